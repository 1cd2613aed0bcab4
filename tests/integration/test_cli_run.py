"""The real command in a process of its own: real AsyncFlow, real ledger, real signals."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchgate.events import JobEnded, JobPlanned, RunSuspended
from batchgate.job import End, JobState
from batchgate.ledger import check_run, read

ROOT = Path(__file__).parents[2]
BRANIN = ROOT / "campaigns" / "branin"


def start(folder: Path, *args: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    """Start `batchgate run` on the test-bed campaign, with no model."""
    return subprocess.Popen(
        [sys.executable, "-m", "batchgate", "run", str(BRANIN), "--run", str(folder),
         "--producer", "none", "--slots", "2", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **(env or {})},
        cwd=ROOT,
    )  # fmt: skip


def finish(process: subprocess.Popen[str], *, timeout_s: float = 100) -> str:
    """Wait for the end and return what was printed."""
    output, _ = process.communicate(timeout=timeout_s)
    return output


def events(folder: Path, kind: type[Any]) -> list[Any]:
    return [e.event for e in read(folder / "ledger") if isinstance(e.event, kind)]


def until(folder: Path, kind: str, count: int = 1, *, timeout_s: float = 60) -> None:
    """Wait until the ledger has so many events of a kind."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        text = "".join(p.read_text() for p in sorted((folder / "ledger").glob("*.jsonl")))
        if text.count(f'"type":"{kind}"') >= count:
            return
        time.sleep(0.02)
    raise AssertionError(f"no {count} events {kind} after {timeout_s} s")


@pytest.fixture
def run_folder(tmp_path: Path) -> Iterator[Path]:
    """A run's directory; nothing of the run may live on after the test."""
    folder = tmp_path / "run"
    yield folder
    left = [p for p in psutil.process_iter(["cmdline"]) if str(folder) in _command(p)]
    assert left == []


def _command(process: psutil.Process) -> str:
    try:
        return " ".join(process.info["cmdline"] or ())
    except psutil.NoSuchProcess:
        return ""


def test_a_campaign_runs_to_its_end_and_leaves_a_record_and_a_report(run_folder: Path) -> None:
    process = start(run_folder, "--max-jobs", "4", "--set", "constants.pause_s=0")

    output = finish(process)

    assert process.returncode == 0, output
    assert "run stopped by rule jobs: 4 candidates were evaluated" in output
    assert (run_folder / "report.html").is_file()
    assert check_run(run_folder) == []
    assert (run_folder / "trace" / "0001.traces.jsonl").stat().st_size > 0


def test_the_summary_comes_as_json_and_nothing_else_on_stdout(run_folder: Path) -> None:
    command = [sys.executable, "-m", "batchgate", "run", str(BRANIN), "--run", str(run_folder),
               "--producer", "none", "--max-jobs", "2", "--json", "--set", "constants.pause_s=0"]  # fmt: skip

    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_suspends_the_run_and_the_same_command_goes_on(
    run_folder: Path, number: signal.Signals
) -> None:
    slow = ("--max-jobs", "4", "--set", "constants.pause_s=1.5")
    first = start(run_folder, *slow)
    until(run_folder, "job_planned", 3)
    first.send_signal(number)
    output = finish(first)

    assert first.returncode == 3, output
    assert "suspended; go on with" in output
    assert events(run_folder, RunSuspended)[0].reason == number.name

    second = start(run_folder, *slow)
    output = finish(second)

    assert second.returncode == 0, output
    _nothing_ran_twice(run_folder)
    assert check_run(run_folder) == []


def test_the_warning_of_the_end_lets_jobs_end_and_is_harmless_before_the_runner_listens(
    run_folder: Path,
) -> None:
    first = start(run_folder, "--max-jobs", "4", "--set", "constants.pause_s=1.5")
    until(run_folder, "segment_opened", 1)
    for _ in range(20):  # from before the execution side is up
        first.send_signal(signal.SIGUSR1)
        time.sleep(0.2)
    output = finish(first)

    assert first.returncode == 3, output
    assert events(run_folder, RunSuspended)[0].reason == "SIGUSR1"
    assert {ended.state for ended in events(run_folder, JobEnded)} <= {JobState.COMPLETED}


def test_a_killed_runner_is_followed_by_one_that_goes_on(run_folder: Path) -> None:
    slow = ("--max-jobs", "4", "--set", "constants.pause_s=1.5")
    first = start(run_folder, *slow)
    until(run_folder, "result_accepted", 1)
    until(run_folder, "job_planned", 3)
    first.kill()
    finish(first)

    second = start(run_folder, *slow)
    output = finish(second)

    assert second.returncode == 0, output
    _nothing_ran_twice(run_folder)
    assert check_run(run_folder) == []


def test_a_second_runner_on_the_same_directory_is_refused_by_name(run_folder: Path) -> None:
    first = start(run_folder, "--set", "constants.pause_s=60", "--set", "level.job.timeout_s=90")
    until(run_folder, "job_planned", 1)

    second = start(run_folder)
    output = finish(second)

    assert second.returncode == 5, output
    assert str(first.pid) in output
    first.terminate()
    finish(first)
    assert first.returncode == 3


FAULTS = {
    "crash": {End.SIGNAL, End.EXIT},
    "raise": {End.EXIT, End.EXCEPTION},
    "hang": {End.TIMED_OUT},
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_jobs_fault_is_its_own_end_and_the_campaign_goes_on(run_folder: Path, fault: str) -> None:
    process = start(
        run_folder, "--max-jobs", "6", "--seed", "3",
        "--set", f"constants.fault={fault}", "--set", "constants.fault_share=0.4",
        "--set", "constants.pause_s=0", "--set", "level.job.timeout_s=8",
        "--set", "failure.in_a_row=50",
    )  # fmt: skip

    output = finish(process)

    ends = events(run_folder, JobEnded)
    assert process.returncode == 0, output
    assert {e.end for e in ends if e.state is JobState.FAILED} <= FAULTS[fault]
    assert any(e.state is JobState.FAILED for e in ends)
    assert any(e.state is JobState.COMPLETED for e in ends)


@pytest.mark.parametrize("fault", ["nan", "wrong"])
def test_a_result_that_is_none_is_rejected_by_the_result_gate(run_folder: Path, fault: str) -> None:
    process = start(
        run_folder, "--max-jobs", "6", "--seed", "3",
        "--set", f"constants.fault={fault}", "--set", "constants.fault_share=0.4",
        "--set", "constants.pause_s=0",
    )  # fmt: skip

    output = finish(process)

    kinds = Counter(e.event.type for e in read(run_folder / "ledger"))
    assert process.returncode == 0, output
    assert kinds["result_rejected"] > 0
    assert kinds["result_accepted"] > 0


def _nothing_ran_twice(folder: Path) -> None:
    """Each candidate with a result was launched until it had one, and never again."""
    plans = {p.job: p for p in events(folder, JobPlanned)}
    order = [e.event for e in read(folder / "ledger")]
    finished: set[str] = set()
    for event in order:
        if isinstance(event, JobPlanned):
            assert event.fingerprint not in finished
        elif isinstance(event, JobEnded) and event.state is JobState.COMPLETED:
            finished.add(plans[event.job].fingerprint)
    assert len(finished) == 4


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("campaign.nme='x'", "did you mean 'name'"),
        ("variables.x1.domain=[10.0, -5.0]", "must be increasing"),
        ("check.0.use='campaign:PI_NOT_THERE'", "has no 'PI_NOT_THERE'"),
        ("fallback.use='batchgate.surrogates:Nothing'", "Nothing"),
        ("stop.node_h=1e-9", "stop.node_h grants"),
    ],
)
def test_a_wrong_campaign_is_refused_before_anything_starts(
    run_folder: Path, setting: str, message: str
) -> None:
    process = start(run_folder, "--set", setting)

    output = finish(process)

    assert process.returncode == 2
    assert message in output
    assert "Traceback" not in output
    assert not (run_folder / "ledger").exists()


def test_a_directory_that_cannot_be_made_is_an_error_of_the_record(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    process = start(tmp_path / "file" / "run")
    output = finish(process)

    assert process.returncode == 4
    assert "cannot be made" in output


def test_a_model_that_is_not_there_is_refused_with_the_command_that_brings_one(
    run_folder: Path,
) -> None:
    command = [sys.executable, "-m", "batchgate", "run", str(BRANIN), "--run", str(run_folder),
               "--model", "/nowhere/model"]  # fmt: skip
    env = {**os.environ, "BATCHGATE_CACHE": str(run_folder.parent / "cache"), "PATH": "/usr/bin"}

    done = subprocess.run(command, capture_output=True, text=True, env=env, timeout=60, check=False)

    assert done.returncode == 2
    assert "batchgate vllm-env" in done.stderr


def test_failures_in_a_row_stop_the_run_with_their_kind(run_folder: Path) -> None:
    process = start(
        run_folder,
        "--set", "constants.fault=raise", "--set", "constants.fault_share=1.0",
        "--set", "constants.pause_s=0", "--set", "failure.in_a_row=3",
        "--set", "level.job.retries=0",
    )  # fmt: skip

    output = finish(process)

    assert process.returncode == 1, output
    assert "job failures in a row" in output
    assert {e.state for e in events(run_folder, JobEnded)} == {JobState.FAILED}
