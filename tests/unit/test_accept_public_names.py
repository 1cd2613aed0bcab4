"""What `batchgate` exports."""

import tomllib
from pathlib import Path

import pytest

import batchgate
import batchgate.accept


def test_the_public_names_are_these_in_order():
    # S0-1
    assert batchgate.__all__ == [
        "Attempt",
        "Campaign",
        "Check",
        "Fail",
        "NotAccepted",
        "Outcome",
        "Proposal",
        "Record",
        "Rejected",
        "Ruling",
        "Verdict",
        "__version__",
        "accept",
        "accept_sync",
        "as_check",
        "attempts_of",
        "check",
        "feedback_of",
        "judge",
        "load",
    ]
    assert sorted(batchgate.__all__) == batchgate.__all__
    assert all(getattr(batchgate, name) is not None for name in batchgate.__all__)


def test_accept_is_the_function_also_after_its_module_is_imported():
    assert callable(batchgate.accept)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'batchgate' has no attribute 'acept'"):
        batchgate.acept  # type: ignore[attr-defined]  # noqa: B018


def test_the_version_is_that_of_the_project():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())["project"]

    assert batchgate.__version__ == project["version"]
