"""Runners are killed by the hundred, at every event and around launches; nothing may be lost."""

import os
from pathlib import Path

import pytest

from benchmarks.kill import kill

CASES = 4
KILLS = 500 if os.environ.get("CI") else 60


@pytest.mark.timeout(900)
@pytest.mark.parametrize("case", range(CASES))
def test_a_killed_runner_loses_nothing_and_launches_nothing_twice(
    case: int, tmp_path: Path
) -> None:
    tally = kill(tmp_path, kills=KILLS // CASES, seed=case)

    print(tally.table())  # noqa: T201 - what was hit is part of the result
    assert tally.audit.lost == []
    assert tally.audit.doubled == []
    assert tally.audit.wrong == []
    assert tally.kills == KILLS // CASES
