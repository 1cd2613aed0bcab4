"""`batchgate` needs pydantic and the OpenTelemetry API at run time, and nothing else."""

import importlib.metadata
import json
import shutil
import subprocess
import textwrap
import venv
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import batchgate


def needed(*names: str) -> set[str]:
    """Return the names of distributions and of all that they require."""
    found: set[str] = set()
    left = list(names)
    while left:
        name = left.pop().lower().replace("_", "-")
        if name in found:
            continue
        found.add(name)
        for text in importlib.metadata.requires(name) or ():
            requirement = Requirement(text)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                left.append(requirement.name)
    return found


@pytest.fixture(scope="module")
def clean_python(tmp_path_factory):
    """Make a virtual environment that holds the two distributions, what they need, and no more.

    Copied from this environment instead of installed anew, so that no network is needed.
    """
    folder = tmp_path_factory.mktemp("clean") / "venv"
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    for name in needed("pydantic", "opentelemetry-api"):
        for file in importlib.metadata.files(name) or ():
            source = Path(str(file.locate()))
            if ".." in file.parts or source.suffix == ".pyc" or not source.is_file():
                continue
            target = site / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target)
    return folder / "bin" / "python"


def run(python: Path, program: str) -> str:
    done = subprocess.run(
        [python, "-c", textwrap.dedent(program)],
        env={"PYTHONPATH": str(Path(batchgate.__file__).parents[1])},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stderr == ""
    return done.stdout


def test_accept_runs_with_pydantic_and_the_opentelemetry_api_alone(clean_python):
    # S0-1, S0-2
    out = run(
        clean_python,
        """
        import json, sys
        from batchgate import Attempt, NotAccepted, Outcome, Rejected, accept, accept_sync

        def positive(value):
            if not value > 0:
                raise Rejected("not above 0")

        outcome = accept_sync(lambda previous: len(previous), checks=[positive], attempts=2)
        print(json.dumps([outcome.value, outcome.disposition, sorted(sys.modules)]))
        """,
    )

    value, disposition, modules = json.loads(out)
    assert (value, disposition) == (1, "accepted")
    packages = {name.split(".")[0] for name in modules} | {
        ".".join(name.split(".")[:2]) for name in modules
    }
    assert not packages & {
        "opentelemetry.sdk",
        "opentelemetry.semconv",
        "openai",
        "radical",
        "rhapsody",
        "httpx",
        "numpy",
        "batchgate.campaign",
    }
    assert not any(name.startswith("langchain") for name in packages)


def test_every_public_name_can_be_imported_there(clean_python):
    # S0-2
    out = run(
        clean_python,
        """
        import sys
        from batchgate import *
        import batchgate
        print(all(name in globals() for name in batchgate.__all__), load.__module__)
        """,
    )

    assert out == "True batchgate.campaign.load\n"
