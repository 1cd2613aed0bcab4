"""Where the node-hours went: every life, every node, every end."""

from __future__ import annotations

import json
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchgate.campaign import CampaignSpec
from batchgate.cli import main
from batchgate.events import (
    AllocationSeen,
    AttemptStarted,
    CheckJudged,
    DecisionOpened,
    Entry,
    Event,
    JobEnded,
    JobPlanned,
    RunStarted,
    RunSuspended,
    SegmentClosed,
    SegmentOpened,
    ServerStarted,
    ServerStopped,
)
from batchgate.job import End, JobState
from batchgate.ledger import Ledger
from batchgate.review.hours import Hours
from batchgate.slurm import Bill, Row
from batchgate.state import State
from tests.campaigns import spec

H = 3600.0


def entries(*told: tuple[float, Event]) -> list[Entry]:
    return [
        Entry(seq=seq, at_ns=round(at * 1e9), event=event) for seq, (at, event) in enumerate(told)
    ]


def opened(life: int) -> SegmentOpened:
    return SegmentOpened(run="square-1", segment=life, host="n1", pid=1)


def seen(*nodes: str, since: float, job_id: str = "7") -> AllocationSeen:
    return AllocationSeen(nodes=nodes, started_at=since, job_id=job_id)


def planned(job: str) -> JobPlanned:
    return JobPlanned(
        job=job,
        decision=1,
        fingerprint=job,
        candidate={"x": 1.0},
        level="full",
        reserved_node_h=1.0,
        walltime_s=3600,
    )


def ended(job: str, state: JobState, end: End, node_h: float) -> JobEnded:
    return JobEnded(job=job, state=state, end=end, charged_node_h=node_h)


def of(*told: tuple[float, Event]) -> Hours:
    found = entries(*told)
    hours = Hours.of(found)
    assert hours.billed == pytest.approx(State.of(found).billed_node_h)
    return hours


def test_an_allocation_is_billed_from_its_start_to_the_last_event() -> None:
    found = of(
        (1 * H, opened(1)),
        (1 * H, seen("n1", "n2", since=0.5 * H)),
        (2 * H, RunSuspended(reason="SIGUSR1")),
    )

    assert found.billed == pytest.approx(2 * 1.5)
    assert found.idle == pytest.approx(2 * 1.5)


def test_every_life_is_billed_and_the_time_in_a_queue_between_them_is_not() -> None:
    found = of(
        (0.0, opened(1)),
        (0.0, seen("n1", since=0.0)),
        (1 * H, SegmentClosed()),
        (5 * H, opened(2)),
        (5 * H, seen("n1", "n2", since=4.9 * H)),
        (6 * H, SegmentClosed()),
    )

    assert [held.node_h for held in found.held] == pytest.approx([1.0, 2.2])


def test_a_runner_that_died_in_its_allocation_is_followed_without_billing_twice() -> None:
    found = of(
        (1 * H, opened(1)),
        (1 * H, seen("n1", since=0.0)),
        (2 * H, ServerStarted(model="m", elapsed_s=0.0)),
        (3 * H, opened(2)),
        (3 * H, seen("n1", since=0.0)),
        (4 * H, SegmentClosed()),
    )

    assert found.billed == pytest.approx(4.0)


def test_a_lost_node_is_billed_until_it_was_missed() -> None:
    found = of(
        (0.0, opened(1)),
        (0.0, seen("n1", "n2", since=0.0)),
        (1 * H, seen("n1", since=0.0)),
        (3 * H, SegmentClosed()),
    )

    assert [(held.nodes, held.node_h) for held in found.held] == [(2, 2.0), (1, 2.0)]


def test_jobs_are_told_by_their_ends_and_the_rest_was_idle() -> None:
    ends = {
        "a": (JobState.COMPLETED, End.COMPLETED, 0.5),
        "b": (JobState.FAILED, End.EXIT, 0.25),
        "c": (JobState.FAILED, End.TIMED_OUT, 1.0),
        "d": (JobState.LOST, End.ORPHANED, 0.125),
        "e": (JobState.CANCELED, End.CANCELED, 0.0625),
    }
    square = CampaignSpec.model_validate(spec())
    found = of(
        (0.0, opened(1)),
        (0.0, started(square)),
        (0.0, seen("n1", since=0.0)),
        (0.0, DecisionOpened(decision=1)),
        (0.0, AttemptStarted(decision=1, attempt=1)),
        (
            0.0,
            CheckJudged(
                decision=1, attempt=1, check="cheap", passed=True, verifier=True, node_h=0.2
            ),
        ),
        *((1 * H, planned(job)) for job in ends),
        *((2 * H, ended(job, *end)) for job, end in ends.items()),
        (2 * H, planned("f")),
        (4 * H, SegmentClosed()),
    )

    assert found.jobs == {
        "completed": 0.5,
        "failed": 0.25,
        "timed_out": 1.0,
        "lost": 0.125,
        "canceled": 0.0625,
    }
    assert (found.verifiers, found.running, found.granted) == (0.2, 1.0, 1.0)
    assert found.idle == pytest.approx(4.0 - 1.9375 - 0.2)


def started(square: CampaignSpec) -> RunStarted:
    return RunStarted(
        campaign="square",
        digest=square.digest,
        spec=square.model_dump(mode="json"),
        version="0",
        seed=0,
        granted_node_h=1.0,
    )


def test_the_model_server_is_charged_from_its_start_to_its_end_or_that_of_its_runner() -> None:
    found = of(
        (0.0, opened(1)),
        (0.0, seen("n1", "n2", since=0.0)),
        (1 * H, ServerStarted(model="m", elapsed_s=0.5 * H, nodes=1.0)),
        (2 * H, ServerStopped(reason="killed")),
        (3 * H, ServerStarted(model="m", elapsed_s=0.0, nodes=0.5)),
        (4 * H, DecisionOpened(decision=1)),  # the runner dies
        (9 * H, opened(2)),
        (9 * H, seen("n1", since=9 * H)),
        (9 * H, ServerStarted(model="m", elapsed_s=0.0, nodes=1.0)),
        (10 * H, SegmentClosed()),
    )

    assert found.server == pytest.approx(1.5 + 0.5 + 1.0)


def test_a_run_that_shares_its_node_is_never_idle_below_nothing() -> None:
    found = of(
        (0.0, opened(1)),
        (0.0, seen("n1", since=0.0)),
        (0.0, planned("a")),
        (0.0, planned("b")),
        (1 * H, ended("a", JobState.COMPLETED, End.COMPLETED, 1.0)),
        (1 * H, ended("b", JobState.FAILED, End.EXIT, 1.0)),
    )

    assert found.idle == 0.0


def made(folder: Path, events: Iterable[Event]) -> Path:
    with Ledger.open(folder / "ledger", run="square-1") as ledger:
        for event in events:
            ledger.append(event)
    return folder


@pytest.fixture
def accounting(monkeypatch: pytest.MonkeyPatch) -> dict[str, Bill]:
    bills: dict[str, Bill] = {}

    async def billed(job_id: str) -> Bill | None:
        return bills.get(job_id)

    monkeypatch.setattr(import_module("batchgate.cli.hours"), "billed", billed)
    return bills


def test_the_command_shows_slurms_own_number_beside_the_ledgers(
    tmp_path: Path, accounting: dict[str, Bill]
) -> None:
    accounting["7"] = Bill((Row(0.0, 1800, 2, "REQUEUED"), Row(9000.0, 3600, 2, "COMPLETED")))
    run = made(tmp_path, [seen("n1", "n2", since=0.0), seen("n1", "n2", since=0.0, job_id="8")])

    told = CliRunner().invoke(main, ["hours", str(run)])

    assert told.exit_code == 0, told.output
    assert "billed, 1 life" in told.output
    assert "Slurm's accounting bills job 7 3.0000 node-hours" in told.output
    assert "accounting says nothing of job 8: the ledger's own numbers stand" in told.output


def test_the_command_prints_json(tmp_path: Path, accounting: dict[str, Bill]) -> None:
    run = made(tmp_path, [seen("n1", since=0.0)])

    told = json.loads(CliRunner().invoke(main, ["hours", str(run), "--json"]).output)

    assert told["slurm_node_h"] == {"7": None}
    assert told["billed_node_h"] == pytest.approx(told["held"][0]["node_h"])
    assert set(told["jobs_node_h"]) == {"completed", "failed", "timed_out", "lost", "canceled"}


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    told = CliRunner().invoke(main, ["hours", str(tmp_path)])

    assert told.exit_code == 2
    assert "holds no run" in told.output
