"""Jobs that were lost, and results that are worth another try."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from batchgate.campaign import Campaign
from batchgate.errors import ConfigError
from batchgate.events import (
    Event,
    JobEnded,
    JobPlanned,
    ResultAccepted,
    ResultRejected,
    RunResumed,
    RunStarted,
)
from batchgate.job import End, JobSpec, JobState, TaskEnd
from batchgate.ledger import Ledger, read
from batchgate.plain import dumps
from batchgate.runner import Recorder, Runner, launch
from tests.campaigns import CODE, InlineFlow, campaign, spec

GRIDS = """
def full(candidate, grid=10):
    return {"y": float("nan") if grid < 30 else (candidate["x"] - 3) ** 2, "grid": grid}
"""


async def run(
    loaded: Campaign, folder: Path, *, flow: InlineFlow | None = None, gone: bool = True
) -> list[Event]:
    with Ledger.open(folder / "ledger", run="test") as ledger:
        runner = Runner(loaded, Recorder.of(ledger), flow or InlineFlow(), folder, gone=gone)
        await runner.run()
    return [entry.event for entry in read(folder / "ledger")]


def of(kind: type[Any], found: list[Event]) -> list[Any]:
    return [event for event in found if isinstance(event, kind)]


def died_with_a_job_running(folder: Path, loaded: Campaign) -> JobPlanned:
    """Write the ledger of a runner that was killed while a job ran."""
    planned = JobPlanned(
        job="d00001-f1-1",
        decision=1,
        fingerprint=loaded.space.fingerprint({"x": 2.0}),
        candidate={"x": 2.0},
        level="full",
        reserved_node_h=0.01,
        walltime_s=36,
    )
    with Ledger.open(folder / "ledger", run="test") as ledger:
        ledger.append(
            RunStarted(
                campaign="square",
                digest=loaded.spec.digest,
                spec=loaded.spec.model_dump(mode="json"),
                version="0",
                seed=0,
                granted_node_h=1.0,
            )
        )
        ledger.append(planned)
    return planned


def leave_result(folder: Path, planned: JobPlanned) -> None:
    path = folder / "jobs" / planned.job / "result.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dumps({"y": 1.0}))


def grids(folder: Path, *again: dict[str, Any]) -> Campaign:
    levels = spec()["level"]
    levels[1] |= {"args": {"grid": 10}, "again": list(again)}
    return campaign(folder, code=CODE + GRIDS, level=levels, stop={"jobs": 1})


async def test_a_rejected_result_runs_again_with_the_changed_settings(tmp_path: Path) -> None:
    loaded = grids(tmp_path / "c", {"grid": 20}, {"grid": 40})

    found = await run(loaded, tmp_path)

    assert [r.again for r in of(ResultRejected, found)] == [True, True]
    (accepted,) = of(ResultAccepted, found)
    assert accepted.values["grid"] == 40
    plans = of(JobPlanned, found)
    assert [(p.attempt, p.rerun) for p in plans] == [(1, 0), (2, 1), (3, 2)]
    assert len({p.fingerprint for p in plans}) == 1


async def test_reruns_of_a_rejected_result_end_with_the_settings(tmp_path: Path) -> None:
    loaded = grids(tmp_path / "c", {"grid": 20})

    found = await run(loaded, tmp_path)

    assert [r.again for r in of(ResultRejected, found)] == [True, False]
    assert of(ResultAccepted, found) == []


async def test_a_job_that_breaks_and_is_rejected_keeps_the_two_counts_apart(tmp_path: Path) -> None:
    loaded = grids(tmp_path / "c", {"grid": 40})
    broken = [True, False, False]

    def ends(task: Any) -> TaskEnd | None:
        if isinstance(task, JobSpec) and broken.pop(0):
            return TaskEnd(End.EXIT, exit_code=1)
        return None

    found = await run(loaded, tmp_path, flow=InlineFlow(ends=ends))

    assert [(p.attempt, p.rerun) for p in of(JobPlanned, found)] == [(1, 0), (2, 0), (3, 1)]
    assert of(ResultAccepted, found)[0].values["grid"] == 40


def test_a_command_that_cannot_see_changed_settings_is_refused(tmp_path: Path) -> None:
    levels = spec()["level"]
    levels[1] = {
        "name": "full",
        "command": ["solver", "{candidate}", "{result}"],
        "parse": "campaign:full",
        "timeout_s": 36,
        "again": [{"grid": 20}],
    }

    with pytest.raises(ConfigError, match=r"command must have '\{args\}'"):
        campaign(tmp_path, level=levels)


async def test_a_command_gets_its_settings_as_a_file(tmp_path: Path) -> None:
    levels = spec()["level"]
    levels[1] = {
        "name": "full",
        "command": ["solver", "{candidate}", "{args}", "{result}"],
        "parse": "campaign:full",
        "args": {"grid": 20},
        "timeout_s": 36,
        "retries": 0,
    }
    flow = InlineFlow(
        ends=lambda t: TaskEnd(End.EXIT, exit_code=1) if isinstance(t, JobSpec) else None
    )

    await run(campaign(tmp_path / "c", level=levels, stop={"jobs": 1}), tmp_path, flow=flow)

    (job,) = flow.jobs
    assert job.argv[2] == str(job.folder / "args.json")
    assert (job.folder / "args.json").read_text() == '{"grid": 20}'


async def test_a_job_that_is_certainly_gone_is_relaunched_whatever_the_policy(
    tmp_path: Path,
) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1}, failure={"lost": "leave"})
    died_with_a_job_running(tmp_path, loaded)

    found = await run(loaded, tmp_path)

    ended = of(JobEnded, found)
    assert [(e.state, e.end, e.again) for e in ended[:1]] == [
        (JobState.LOST, End.ORPHANED, True),
    ]
    assert [p.attempt for p in of(JobPlanned, found)] == [1, 2]
    assert ended[0].charged_node_h <= 0.01


async def test_a_lost_job_can_be_left(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 2}, failure={"lost": "leave"})
    lost = died_with_a_job_running(tmp_path, loaded)

    found = await run(loaded, tmp_path, gone=False)

    first = of(JobEnded, found)[0]
    assert (first.job, first.end, first.again) == (lost.job, End.UNKNOWN, False)
    assert [p.fingerprint for p in of(JobPlanned, found)].count(lost.fingerprint) == 1


async def test_a_lost_job_can_be_relaunched_at_once(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    lost = died_with_a_job_running(tmp_path, loaded)

    found = await run(loaded, tmp_path, gone=False)

    assert of(JobEnded, found)[0].end is End.UNKNOWN
    assert [p.fingerprint for p in of(JobPlanned, found)] == [lost.fingerprint] * 2


async def test_the_result_of_a_lost_job_is_waited_for_and_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "LOOK_S", 0.01)
    loaded = campaign(tmp_path / "c", stop={"jobs": 1}, failure={"lost": "wait"})
    lost = died_with_a_job_running(tmp_path, loaded)
    task = asyncio.create_task(run(loaded, tmp_path, gone=False))
    while not of(RunResumed, [e.event for e in read(tmp_path / "ledger")]):
        await asyncio.sleep(0.01)

    leave_result(tmp_path, lost)
    found = await task

    (ended,) = of(JobEnded, found)
    assert (ended.state, ended.adopted) == (JobState.COMPLETED, True)
    assert of(ResultAccepted, found)[0].job == lost.job
    assert len(of(JobPlanned, found)) == 1


async def test_a_lost_job_whose_result_never_comes_is_relaunched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "LOOK_S", 0.01)
    failure = {"lost": "wait", "lost_wait_s": 0.05}
    loaded = campaign(tmp_path / "c", stop={"jobs": 1}, failure=failure)
    died_with_a_job_running(tmp_path, loaded)

    found = await run(loaded, tmp_path, gone=False)

    assert [(e.state, e.again) for e in of(JobEnded, found)] == [
        (JobState.LOST, True),
        (JobState.COMPLETED, False),
    ]


async def test_a_run_that_is_suspended_while_it_waits_leaves_the_job_to_the_next_life(
    tmp_path: Path,
) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1}, failure={"lost": "wait"})
    lost = died_with_a_job_running(tmp_path, loaded)
    with Ledger.open(tmp_path / "ledger", run="test") as ledger:
        runner = Runner(loaded, Recorder.of(ledger), InlineFlow(), tmp_path, gone=False)
        task = asyncio.create_task(runner.run())
        while lost.job not in runner.launcher.lost:
            await asyncio.sleep(0.01)
        runner.suspend("SIGTERM")
        await task
    leave_result(tmp_path, lost)

    found = await run(loaded, tmp_path, gone=True)

    assert [(e.job, e.adopted) for e in of(JobEnded, found)] == [(lost.job, True)]


async def test_a_job_that_the_execution_side_lost_is_waited_for_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launch, "LOOK_S", 0.01)
    loaded = campaign(tmp_path / "c", stop={"jobs": 1}, failure={"lost": "wait"})

    def ends(task: Any) -> TaskEnd | None:
        if not isinstance(task, JobSpec):
            return None
        asyncio.get_running_loop().call_later(
            0.05, (task.folder / "result.json").write_text, dumps({"y": 1.0})
        )
        return TaskEnd(End.UNKNOWN, error="node failure", started_at=time.time())

    found = await run(loaded, tmp_path, flow=InlineFlow(ends=ends))

    (ended,) = of(JobEnded, found)
    assert ended.state is JobState.COMPLETED
