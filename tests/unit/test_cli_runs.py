"""What commands tell while they read a long ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from batchgate.cli import main, runs
from tests.synthetic_run import kept, night


@pytest.mark.parametrize("command", ["report", "verify", "hours", "status", "summary"])
@pytest.mark.parametrize("long", [True, False])
def test_a_person_is_told_of_a_long_ledger_and_a_program_is_not_disturbed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, long: bool
) -> None:
    run = kept(night(decisions=5), tmp_path / "run")
    monkeypatch.setattr(runs, "LONG", 0 if long else 1 << 40)
    quiet = CliRunner().invoke(main, [command, str(run)])

    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, as far as rich is concerned
    told = CliRunner().invoke(main, [command, str(run)])

    assert quiet.stderr == ""
    assert ("MB of ledger" in told.stderr) is long
    assert "MB of ledger" not in told.stdout
    assert (quiet.exit_code, told.exit_code) == (0, 0)
