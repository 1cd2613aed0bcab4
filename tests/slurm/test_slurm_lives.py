"""Unattended nights on the real Slurm: drained, requeued, killed, and every job run once."""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from batchgate.cli import main
from batchgate.events import AllocationSeen, JobEnded, ResultAccepted, RunStopped, RunSuspended
from batchgate.flow import find_orphans
from batchgate.job import End, JobState
from batchgate.ledger import check_run
from tests.slurm.cluster import CONF, Cluster, call, held, start, until
from tests.slurm.night import COMMAND, OPTIONS, QUICK, Night

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(400),
]

SMALL = ("--time", "0:10:00", "--signal-s", "30", "--sbatch=--cpus-per-task=2")


def asked(night: Night, *flags: str, **variables: str) -> str:
    """Return what `batchgate submit` says."""
    where = ("submit", str(night.campaign), "--run", str(night.folder))
    done = subprocess.run(
        [*COMMAND, *where, *SMALL, *flags, "--", *OPTIONS],
        env=environment(**variables),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment(**variables: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
    return {**env, "BATCHGATE_SLURM__EXCLUSIVE": "false", **QUICK, **variables}


def submit(cluster: Cluster, night: Night, **variables: str) -> str:
    """Submit a night on half a node, and return the job's id."""
    (job,) = json.loads(asked(night, "--json", **variables))["jobs"]
    cluster.jobs.append(job)
    return str(job)


def submit_silent(cluster: Cluster, night: Night, **variables: str) -> str:
    """Submit a night that gets no warning of its end: what Slurm sends instead is ignored."""
    script = asked(night, "--dry-run", **variables)
    assert "--signal=B:USR1@30" in script
    file = night.campaign / "silent.sbatch"
    file.write_text(script.replace("--signal=B:USR1@30", "--signal=B:URG@1"))
    night.folder.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(**variables).items():
            patch.setenv(name, value)
        job = call("sbatch", "--parsable", file).strip()
    cluster.jobs.append(job)
    return job


def results(night: Night) -> int:
    return len(night.events(ResultAccepted))


def has_results(night: Night, count: int) -> None:
    until(lambda: results(night) >= count, within_s=90, what=f"{count} results")


def is_suspended(night: Night, times: int = 1) -> None:
    until(lambda: len(night.events(RunSuspended)) == times, within_s=120, what="the suspension")


def status(night: Night) -> str:
    """Return what `batchgate status` says."""
    told = CliRunner().invoke(main, ["status", str(night.folder)])
    assert told.exit_code == 0, told.output
    return told.output


def hours(night: Night, **variables: str) -> dict[str, Any]:
    told = CliRunner().invoke(main, ["hours", str(night.folder), "--json"], env=variables)
    assert told.exit_code == 0, told.output
    found: dict[str, Any] = json.loads(told.output)
    return found


def billed_node_s(cluster: Cluster, job: str) -> int:
    """Sum up Slurm's accounting by hand."""
    return sum(int(row["ElapsedRaw"]) * int(row["AllocNodes"]) for row in cluster.rows(job))


@pytest.mark.parametrize("jobs_on", ["local", "srun"])
def test_a_campaign_of_three_lives_runs_every_job_once(
    cluster: Cluster, tmp_path: Path, jobs_on: str
) -> None:
    night = Night.make(tmp_path, jobs=16, pause_s=1.5)
    job = submit(cluster, night, BATCHGATE_JOBS_ON=jobs_on)
    for life in (1, 2):
        cluster.wait_for(job, "RUNNING")
        wanted = results(night) + random.randint(1, 3)
        has_results(night, wanted)
        until(lambda: "since 20" in status(night), within_s=30, what="a running job")
        said = status(night)
        again = "requeue 1, " if life == 2 else ""
        assert re.search(rf"running, pid \d+ on host \S+ in Slurm job {job}, life {life}, ", said)
        assert re.search(rf"Slurm job {job}, {again}1 node, \d min \d\d s left\n", said)

        call("scancel", "--batch", "--signal=USR1", job)
        is_suspended(night, times=life)
        until(lambda: "suspended since" in status(night), within_s=30, what="the end of a life")
        assert re.search(r"suspended since \S+ \S+: SIGUSR1\n", status(night))
        cluster.start_now(job)

    cluster.wait_for(job, "COMPLETED", within_s=180)

    assert [s.reason for s in night.events(RunSuspended)] == ["SIGUSR1"] * 2
    assert all(s.requeued for s in night.events(RunSuspended))
    assert night.lives == 3
    assert [s.restart_count for s in night.events(AllocationSeen)] == [0, 1, 2]
    night.assert_each_finished_once(16)
    assert {e.end for e in night.events(JobEnded)} == {End.COMPLETED}  # the drain let them end
    assert check_run(night.folder) == []
    told = hours(night)
    assert told["slurm_node_h"] == {job: billed_node_s(cluster, job) / 3600}
    # The ledger's own account ends with its last event: at most a few seconds less a life.
    own_node_s = told["billed_node_h"] * 3600
    assert billed_node_s(cluster, job) - 45 <= own_node_s <= billed_node_s(cluster, job) + 3


def test_the_end_of_the_allocation_is_seen_without_a_signal_and_a_stubborn_job_is_ended(
    cluster: Cluster, tmp_path: Path
) -> None:
    night = Night.make(tmp_path, jobs=2, stubborn="until told", walltime_s=100)
    job = submit_silent(cluster, night, BATCHGATE_JOBS_ON="srun")
    until(lambda: sum(night.said("began").values()) == 2, within_s=90, what="two jobs")

    # Before their walltime, and they ignore TERM; the runner asks for the end every 30 s.
    cluster.end_in(job, 60)
    is_suspended(night)
    night.log.with_name("jobs.log.tame").touch()
    cluster.wait_for(job, "PENDING", within_s=60)
    call("scontrol", "update", f"jobid={job}", "TimeLimit=10")
    cluster.start_now(job)
    cluster.wait_for(job, "COMPLETED", within_s=120)

    (suspended,) = night.events(RunSuspended)
    assert suspended.reason == "the allocation ends before another job could"
    assert suspended.requeued
    first, second = night.events(JobEnded)[:2]
    assert (first.end, second.end) == (End.CANCELED, End.CANCELED)
    assert first.again
    night.assert_each_finished_once(2)
    assert "TIMEOUT" not in {row["State"] for row in cluster.rows(job)}
    assert check_run(night.folder) == []


def test_a_cancelled_job_leaves_a_run_that_another_one_finishes(
    cluster: Cluster, tmp_path: Path
) -> None:
    night = Night.make(tmp_path, jobs=5, pause_s=1.5)
    first = submit(cluster, night, BATCHGATE_JOBS_ON="srun")
    has_results(night, 2)
    call("scancel", first)
    is_suspended(night)
    cluster.wait_for(first, "CANCELLED")

    second = submit(cluster, night, BATCHGATE_JOBS_ON="srun")
    cluster.wait_for(second, "COMPLETED", within_s=120)

    (suspended,) = night.events(RunSuspended)
    assert (suspended.reason, suspended.requeued) == ("SIGTERM", False)
    night.assert_each_finished_once(5)
    assert set(hours(night)["slurm_node_h"]) == {first, second}
    assert check_run(night.folder) == []


@pytest.fixture
def allocation(slurm_started: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    with held() as job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
        yield job
    start()


@pytest.fixture
def night(tmp_path: Path) -> Iterator[Night]:
    made = Night.make(tmp_path, jobs=10, pause_s=2.0)
    yield made
    made.end()


def test_a_runner_killed_in_its_allocation_is_followed_and_its_steps_are_ended(
    allocation: str, night: Night
) -> None:
    for _ in range(2):
        runner = night.start("--slots", "4", BATCHGATE_JOBS_ON="srun")
        wanted = results(night) + 1
        has_results(night, wanted)
        runner.kill()
        runner.wait()

    assert night.start("--slots", "4", BATCHGATE_JOBS_ON="srun").wait(120) == 0

    assert night.lives == 3
    assert len(night.events(RunStopped)) == 1
    night.assert_each_finished_once(10)
    lost = [e for e in night.events(JobEnded) if e.state is JobState.LOST]
    assert all(e.end is End.ORPHANED and e.again for e in lost)
    assert check_run(night.folder) == []
    steps = call("squeue", "--steps", "--noheader", "-j", allocation, "-o", "%i").split()
    assert [step for step in steps if not step.endswith((".batch", ".extern"))] == []
    assert find_orphans(night.name) == []


def test_a_node_that_dies_costs_its_jobs_a_rerun_and_nothing_else(
    allocation: str, tmp_path: Path, cluster: Cluster
) -> None:
    # Slurm takes up to 30 s here to see that the node is dead, and the walltime passes before.
    night = Night.make(tmp_path / "night", jobs=10, pause_s=2.0, walltime_s=15)
    runner = night.start("--slots", "4", BATCHGATE_JOBS_ON="srun")
    until(lambda: {"n1", "n2"} <= set(night.where("began")), within_s=90, what="jobs on both")

    cluster.kill_node("n2")

    assert runner.wait(240) == 0
    night.assert_each_finished_once(10)
    ends = night.events(JobEnded)
    assert any(e.end is End.UNKNOWN and e.again for e in ends)
    lost = [e for e in ends if e.state is JobState.LOST]
    assert all(e.charged_node_h > 0 for e in lost)
    assert check_run(night.folder) == []


def test_a_controller_that_is_silent_for_half_a_minute_changes_nothing(
    allocation: str, tmp_path: Path, cluster: Cluster
) -> None:
    night = Night.make(tmp_path / "night", jobs=6, pause_s=2.0)
    runner = night.start(BATCHGATE_JOBS_ON="srun")
    has_results(night, 1)

    with cluster.silent_controller():
        end = time.monotonic() + 30
        until(lambda: time.monotonic() > end, within_s=60, what="30 s")

    assert runner.wait(90) == 0
    night.end()
    night.assert_each_finished_once(6)
    assert {e.end for e in night.events(JobEnded)} == {End.COMPLETED}
    assert len(night.events(AllocationSeen)) == 1


def test_without_accounting_the_ledgers_own_hours_stand_and_it_says_so(
    allocation: str, tmp_path: Path
) -> None:
    night = Night.make(tmp_path / "night", jobs=2, pause_s=0.5)
    assert night.start().wait(120) == 0
    off = tmp_path / "slurm.conf"
    off.write_text(
        CONF.read_text().replace(
            "AccountingStorageType=accounting_storage/slurmdbd",
            "AccountingStorageType=accounting_storage/none",
        )
    )
    assert "storage/none" in off.read_text()
    variables = {"SLURM_CONF": str(off)}

    told = CliRunner().invoke(main, ["hours", str(night.folder)], env=variables)

    assert told.exit_code == 0
    assert f"accounting says nothing of job {allocation}: the ledger's own numbers" in told.output
    assert hours(night, **variables)["slurm_node_h"] == {allocation: None}
    assert hours(night, **variables)["billed_node_h"] > 0
