import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchgate import plain
from batchgate.flow import entry

CODE = """
import sys

def energy(candidate, *, shift=0.0):
    return {"e": candidate["x"] + shift, "bad": float("nan")}

def leaves(candidate):
    sys.exit(0)

def number(candidate):
    return 3.0

def odd(candidate):
    return {"e": object()}

def huge(candidate):
    return {"e": "x" * (2 << 20)}

def raises(candidate):
    raise ValueError("no\\nconvergence")
"""


@pytest.fixture
def argv(tmp_path):
    """Return the arguments for a function of a campaign; its result goes to `r.json`."""
    (tmp_path / "campaign.py").write_text(CODE)
    (tmp_path / "c.json").write_text(plain.dumps({"x": 2.0}))
    (tmp_path / "a.json").write_text("{}")

    def argv(use):
        return entry.command(
            folder=tmp_path,
            use=f"campaign:{use}",
            candidate=tmp_path / "c.json",
            args=tmp_path / "a.json",
            result=tmp_path / "r.json",
        )

    return argv


def arguments(command):
    return command[command.index("batchgate.flow.entry") + 1 :]


def test_a_function_leaves_its_observables_as_strict_json(argv, tmp_path):
    (tmp_path / "a.json").write_text('{"shift": 0.5}')

    code = entry.main(arguments(argv("energy")))

    assert code == 0
    text = (tmp_path / "r.json").read_text()
    assert text == '{"e":2.5,"bad":{"$f":"nan"}}\n'


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        ("leaves", "SystemExit: 0"),
        ("number", "TypeError: the function returned float, must be a mapping of observables"),
        ("odd", "TypeError: the function returned object, must be plain data"),
        ("huge", "ValueError: the result has 2097161 bytes, must be at most 1048576"),
        ("raises", "ValueError: no convergence"),
        ("absent", "ConfigError: campaign:absent: campaign has no function 'absent'"),
    ],
)
def test_a_function_without_observables_leaves_a_reason_and_no_file(
    argv, tmp_path, capsys, use, reason
):
    code = entry.main(arguments(argv(use)))

    assert code == 1
    assert capsys.readouterr().err.splitlines()[-1].startswith(reason)
    assert not (tmp_path / "r.json").exists()


def test_a_result_replaces_an_older_one_as_a_whole(tmp_path):
    (tmp_path / "r.json").write_text("old")
    reader = (tmp_path / "r.json").open()

    entry.write_result(tmp_path / "r.json", {"e": 1})

    assert reader.read() == "old"
    reader.close()
    assert plain.loads((tmp_path / "r.json").read_text()) == {"e": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["r.json"]


def test_a_result_that_the_disk_refuses_leaves_the_older_one(tmp_path, monkeypatch):
    (tmp_path / "r.json").write_text("old")

    def refuse(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        entry.write_result(tmp_path / "r.json", {"e": 1})

    assert (tmp_path / "r.json").read_text() == "old"


def test_nothing_is_imported_from_the_working_folder(argv, tmp_path):
    (tmp_path / "json.py").write_text("raise SystemExit('hijacked')")

    done = subprocess.run(argv("energy"), cwd=tmp_path, capture_output=True, check=False)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "r.json").exists()


def test_the_command_names_this_interpreter_and_leaves_an_absent_folder_out():
    path = Path("x.json")

    command = entry.command(folder=None, use="m:f", candidate=path, args=path, result=path)

    assert command[0] == sys.executable
    assert "--folder" not in command
