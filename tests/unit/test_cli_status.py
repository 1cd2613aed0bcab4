"""A run while it runs, from its files alone."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from batchgate.cli import main
from batchgate.events import (
    AllocationSeen,
    AttemptStarted,
    CheckJudged,
    Chosen,
    DecisionMade,
    DecisionOpened,
    DecisionParked,
    JobPlanned,
    ProposalMade,
    RunStarted,
    RunStopped,
    RunSuspended,
)
from batchgate.ledger import Ledger
from tests.campaigns import campaign


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    square = campaign(tmp_path / "campaign").spec
    with Ledger.open(tmp_path / "ledger", run="square-1", environ={}) as opened:
        opened.append(
            RunStarted(
                campaign="square",
                digest=square.digest,
                spec=square.model_dump(mode="json"),
                version="0",
                seed=0,
                granted_node_h=1.0,
            )
        )
        yield opened


def says(folder: Path, *words: str, command: str = "status") -> Result:
    told = CliRunner().invoke(main, [command, str(folder), *words])
    assert told.exit_code == 0, told.output
    return told


def a_job_runs(ledger: Ledger) -> None:
    ledger.append(
        AllocationSeen(nodes=("n1", "n2"), started_at=0.0, ends_at=time.time() + 3700, job_id="7")
    )
    ledger.append(DecisionOpened(decision=1))
    ledger.append(AttemptStarted(decision=1, attempt=1))
    ledger.append(ProposalMade(decision=1, attempt=1, proposal={"candidates": [{"x": -1.0}]}))
    ledger.append(
        CheckJudged(decision=1, attempt=1, check="low", passed=False, reasons=("x is\x1b[2J -1",))
    )
    chosen = Chosen(fingerprint="f1", candidate={"x": 2.0})
    ledger.append(DecisionMade(decision=1, disposition="fallback", candidates=(chosen,)))
    ledger.append(
        JobPlanned(
            job="d1-f1-1",
            decision=1,
            fingerprint="f1",
            candidate={"x": 2.0},
            level="full",
            reserved_node_h=0.25,
            walltime_s=36,
        )
    )
    ledger.append(DecisionOpened(decision=2))
    ledger.append(DecisionParked(decision=2, expires_at=1.0))


def test_a_run_that_runs_is_told_with_its_runner_jobs_time_and_reasons(
    tmp_path: Path, ledger: Ledger
) -> None:
    a_job_runs(ledger)

    told = says(tmp_path).output

    assert f"running, pid {os.getpid()} on host" in told
    assert "Slurm job 7, 2 nodes, 1 h 01 min left" in told
    assert "1 fallback" in told
    assert "d1-f1-1 since 20" in told
    assert "D2: see `batchgate parked`" in told
    assert "D1.1 rejected by low: x is\\x1b[2J -1" in told


def test_status_as_json_has_the_same(tmp_path: Path, ledger: Ledger) -> None:
    a_job_runs(ledger)

    told = json.loads(says(tmp_path, "--json").output)

    assert told["running"]
    assert (told["slurm_job"], told["nodes"]) == ("7", ["n1", "n2"])
    assert told["left_s"] == pytest.approx(3700, abs=60)
    assert [job["job"] for job in told["jobs_running"]] == ["d1-f1-1"]
    assert told["decisions"] == {"fallback": 1}
    assert told["parked"] == ["D2"]
    assert told["reasons"] == ["D1.1 rejected by low: x is\\x1b[2J -1"]


def test_a_runner_that_shows_no_sign_of_life_is_probably_dead(
    tmp_path: Path, ledger: Ledger
) -> None:
    (lease,) = (tmp_path / "ledger").glob("lease-*.json")
    os.utime(lease, (time.time() - 600,) * 2)

    told = json.loads(says(tmp_path, "--json").output)

    assert not told["running"]
    assert told["standing"].startswith(f"probably dead: no sign of pid {os.getpid()} on host")


def test_a_suspended_run_says_so(tmp_path: Path, ledger: Ledger) -> None:
    ledger.append(RunSuspended(reason="SIGUSR1", requeued=True))
    ledger.close()

    assert "suspended since" in says(tmp_path).output


def test_a_run_that_ended_on_an_error_says_what_to_do(tmp_path: Path, ledger: Ledger) -> None:
    ledger.close()

    assert "ended in order on an error" in says(tmp_path).output


def test_a_run_that_is_over_says_so(tmp_path: Path, ledger: Ledger) -> None:
    ledger.append(RunStopped(rule="jobs", reason="3 candidates were evaluated"))

    assert "over since" in says(tmp_path).output
    assert "rule jobs" in says(tmp_path).output


def test_watch_shows_the_past_and_what_comes_until_the_run_is_over(
    tmp_path: Path, ledger: Ledger
) -> None:
    a_job_runs(ledger)
    told: list[str] = []
    watcher = threading.Thread(
        target=lambda: told.append(says(tmp_path, "--last", "3", command="watch").output)
    )
    watcher.start()

    ledger.append(RunStopped(rule="jobs", reason="enough"))
    watcher.join(30)

    assert "D2 is parked" in told[0]
    assert "run started" not in told[0]
    assert told[0].rstrip().endswith("run stopped by rule jobs: enough")


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["status", str(tmp_path)])

    assert told.exit_code == 2
    assert "holds no run" in told.output
