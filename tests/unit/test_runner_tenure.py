"""The end of a life: nothing is launched that cannot end, what can end in time does."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from batchgate.events import (
    AllocationSeen,
    Event,
    JobEnded,
    JobPlanned,
    ResultAccepted,
    RunStopped,
    RunSuspended,
)
from batchgate.job import End, JobState
from batchgate.ledger import Ledger, read
from batchgate.runner import Recorder, Runner, Stop, Tenure
from batchgate.runner import tenure as tenure_module
from batchgate.slurm import Allocation
from batchgate.state import State
from tests.campaigns import InlineFlow, campaign

WALLTIME_S = 36  # of the campaign's job
NODES = ("n1", "n2")


def allocation(*, left_s: float | None, **changes: Any) -> Allocation:
    now = time.time()
    made = replace(Allocation.local(), nodes=NODES, started_at=now - 100, job_id="7", seen_at=now)
    return replace(made, end_at=None if left_s is None else now + left_s, **changes)


async def run(
    folder: Path, tenure: Tenure, *, flow: InlineFlow | None = None, **tables: Any
) -> tuple[Stop | None, list[Event], Runner]:
    folder.mkdir(exist_ok=True)
    with Ledger.open(folder / "ledger", run="test") as ledger:
        runner = Runner(
            campaign(folder / "campaign", **tables),
            Recorder.of(ledger),
            flow or InlineFlow(),
            folder,
            tenure=tenure,
        )
        stop = await runner.run()
    return stop, [entry.event for entry in read(folder / "ledger")], runner


def of(kind: type[Any], found: list[Event]) -> list[Any]:
    return [event for event in found if isinstance(event, kind)]


async def test_a_life_begins_with_the_allocation_it_was_given(tmp_path: Path) -> None:
    given = allocation(left_s=3600, restart_count=2)

    _, found, _ = await run(tmp_path, Tenure(given))

    (seen,) = of(AllocationSeen, found)
    assert (seen.nodes, seen.job_id, seen.restart_count) == (NODES, "7", 2)
    assert (seen.started_at, seen.ends_at) == (given.started_at, given.end_at)


async def test_no_job_is_launched_that_walltime_would_kill(tmp_path: Path) -> None:
    tenure = Tenure(allocation(left_s=WALLTIME_S + 50), margin_s=60)

    stop, found, runner = await run(tmp_path, tenure)

    assert stop is None
    assert of(JobPlanned, found) == []
    assert of(RunSuspended, found)[-1].reason == "the allocation ends before another job could"
    assert not runner.requeues


async def test_a_job_that_can_end_before_the_margin_is_launched(tmp_path: Path) -> None:
    tenure = Tenure(allocation(left_s=WALLTIME_S + 100), margin_s=60)

    stop, _, _ = await run(tmp_path, tenure)

    assert stop is not None
    assert stop.rule == "jobs"


@pytest.mark.parametrize(("requeue", "told"), [(True, True), (False, False)])
async def test_a_life_out_of_time_is_marked_for_the_next_one(
    tmp_path: Path, *, requeue: bool, told: bool
) -> None:
    tenure = Tenure(allocation(left_s=10), requeue=requeue)

    _, found, runner = await run(tmp_path, tenure)

    assert of(RunSuspended, found)[-1].requeued is told
    assert runner.requeues is told


async def test_a_warning_lets_running_jobs_end_and_launches_none(tmp_path: Path) -> None:
    flow = InlineFlow(delay_s=0.2)
    tmp_path.mkdir(exist_ok=True)
    with Ledger.open(tmp_path / "ledger", run="test") as ledger:
        recorder = Recorder.of(ledger)
        runner = Runner(campaign(tmp_path / "c"), recorder, flow, tmp_path)
        task = asyncio.create_task(runner.run())
        while not recorder.state.running:
            await asyncio.sleep(0.01)

        runner.drain("SIGUSR1")

        assert await task is None
        assert recorder.state.suspended == "SIGUSR1"
        assert len(recorder.state.results) == 1
        assert len(recorder.state.jobs) == 1


@pytest.mark.parametrize(("left_s", "requeued"), [(1000, False), (-1, True)])
async def test_a_job_that_was_cancelled_while_it_drained_is_not_requeued_before_its_end(
    tmp_path: Path, left_s: float, *, requeued: bool
) -> None:
    with Ledger.open(tmp_path / "ledger", run="test") as ledger:
        recorder = Recorder.of(ledger)
        tenure = Tenure(allocation(left_s=1000), requeue=True)
        flow = InlineFlow(delay_s=30)
        runner = Runner(campaign(tmp_path / "c"), recorder, flow, tmp_path, tenure=tenure)
        task = asyncio.create_task(runner.run())
        while not recorder.state.running:
            await asyncio.sleep(0.01)
        runner.drain("SIGUSR1")
        tenure.allocation = allocation(left_s=left_s)

        runner.suspend("SIGTERM")

        assert await task is None
        assert runner.requeues is requeued


async def test_what_cannot_end_in_time_is_ended_and_runs_again(tmp_path: Path) -> None:
    flow = InlineFlow(delay_s=30)
    tmp_path.mkdir(exist_ok=True)
    with Ledger.open(tmp_path / "ledger", run="test") as ledger:
        recorder = Recorder.of(ledger)
        tenure = Tenure(allocation(left_s=1000), margin_s=1)
        runner = Runner(campaign(tmp_path / "c"), recorder, flow, tmp_path, tenure=tenure)
        task = asyncio.create_task(runner.run())
        while not recorder.state.running:
            await asyncio.sleep(0.01)

        tenure.allocation = allocation(left_s=2)  # `scontrol update EndTime=`

        assert await task is None
        (job,) = recorder.state.jobs.values()
        assert job.end is not None
        assert (job.end.end, job.end.again) == (End.CANCELED, True)


async def test_the_last_life_allowed_ends_the_campaign(tmp_path: Path) -> None:
    stop, found, _ = await run(tmp_path, Tenure(allocation(left_s=10)), stop={"lives": 1})

    assert stop == Stop("lives", "this was life 1 of 1")
    assert found[-2] == RunStopped(rule="lives", reason="this was life 1 of 1")

    again, found, _ = await run(tmp_path, Tenure(), stop={"lives": 1})

    assert again == Stop("lives", "this was life 1 of 1")
    assert of(JobPlanned, found) == []


async def test_billed_node_hours_are_never_overdrawn(tmp_path: Path) -> None:
    # 100 s of two nodes are billed when it starts; 46 s more are allowed, a job may need 36: one is
    # launched within 10 s, and after it none any more.
    cap = 2 * 146 / 3600
    flow = InlineFlow(delay_s=11)

    stop, found, runner = await run(
        tmp_path, Tenure(allocation(left_s=None)), flow=flow, stop={"billed_node_h": cap}
    )

    assert stop is not None
    assert stop.rule == "billed_node_h"
    assert len(of(ResultAccepted, found)) == 1
    assert runner.state.billed_node_h <= cap


@pytest.mark.parametrize(
    ("took_s", "quantile", "fits"),
    [([1.0] * 40, 0.9, True), ([1.0] * 40, None, False), ([1.0] * 19, 0.9, False)],
)
def test_what_jobs_took_so_far_may_stand_for_their_walltime(
    tmp_path: Path, took_s: list[float], quantile: float | None, *, fits: bool
) -> None:
    state = State(spec=campaign(tmp_path).spec)
    for number, elapsed_s in enumerate(took_s):
        name = f"j{number}"
        state.apply(planned(name, f"{number}"), at=1.0)
        state.apply(ended(name, elapsed_s), at=2.0)

    tenure = Tenure(allocation(left_s=30), margin_s=10, quantile=quantile)

    assert tenure.fits(state) is fits


def planned(name: str, fingerprint: str) -> JobPlanned:
    return JobPlanned(
        job=name,
        decision=1,
        fingerprint=fingerprint,
        candidate={"x": 1.0},
        level="full",
        reserved_node_h=0.01,
        walltime_s=WALLTIME_S,
    )


def ended(name: str, elapsed_s: float) -> JobEnded:
    return JobEnded(
        job=name,
        state=JobState.COMPLETED,
        end=End.COMPLETED,
        started_at=100.0,
        ended_at=100.0 + elapsed_s,
    )


async def test_a_changed_allocation_is_written_down_and_silence_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = allocation(left_s=1000)
    answers = [
        first,
        None,
        replace(first, nodes=("n1",)),
        replace(first, nodes=("n1",), end_at=first.seen_at + 500),
    ]

    async def refresh(self: Allocation) -> Allocation | None:
        while not answers:
            await asyncio.sleep(60)
        return answers.pop(0)

    monkeypatch.setattr(Allocation, "refresh", refresh)
    monkeypatch.setattr(tenure_module, "REFRESH_S", 0.0)
    tenure = Tenure(first)
    with Ledger.open(tmp_path / "ledger", run="test") as ledger:
        task = asyncio.create_task(tenure.keep(Recorder.of(ledger)))
        while answers:
            await asyncio.sleep(0.01)
        task.cancel()

    seen = of(AllocationSeen, [entry.event for entry in read(tmp_path / "ledger")])
    assert [(s.nodes, s.ends_at) for s in seen] == [
        (("n1",), first.end_at),
        (("n1",), first.seen_at + 500),
    ]
    assert tenure.allocation.end_at == first.seen_at + 500
