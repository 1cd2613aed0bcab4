"""What holds for every test."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from hypothesis import settings

# Machines that share two cores are slow by turns; that is no failure.
settings.register_profile("shared", deadline=None)
settings.load_profile("shared")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In CI a skip is a failure: a part that is missing there was never tested."""
    report = yield
    if report.skipped and "CI" in os.environ and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report
