from __future__ import annotations

from itertools import pairwise

import pytest

from batchgate.events import (
    DecisionMade,
    DecisionOpened,
    JobEnded,
    JobPlanned,
    RunResumed,
    SegmentClosed,
)
from batchgate.job import End, JobState
from batchgate.review.occupancy import Bar, Occupancy
from batchgate.review.record import RunRecord
from tests.synthetic_run import START_AT, Script, chosen, night, opened


def job(script: Script, start: float, end: float | None) -> None:
    """Write a job down, whose times count from the start of the run; `None` is still running."""
    place = sum(isinstance(entry.event, JobPlanned) for entry in script.entries)
    one, name = chosen(x1=float(place % 10), x2=1.0), f"j{place}"
    script.add(
        DecisionOpened(decision=place),
        DecisionMade(decision=place, disposition="accepted", candidates=(one,)),
        JobPlanned(
            job=name,
            decision=place,
            fingerprint=one.fingerprint,
            candidate=one.candidate,
            level="fine",
            reserved_node_h=0.1,
            walltime_s=600,
        ),
        after_s=0,
    )
    if end is not None:
        script.add(
            JobEnded(
                job=name,
                state=JobState.FAILED,
                end=End.EXIT,
                started_at=START_AT + start if start >= 0 else 0.0,
                ended_at=START_AT + end,
            ),
            after_s=0,
        )


def occupancy(
    *jobs: tuple[float, float | None], slots: int = 2, until: float = 100
) -> Occupancy[Bar]:
    script = Script().begin(slots=slots)
    for start, end in jobs:
        job(script, start, end)
    script.add(SegmentClosed(), after_s=START_AT + until - script.now_at)
    return Occupancy.of(RunRecord.of(script.entries))


def lanes(found: Occupancy[Bar]) -> list[list[str]]:
    return [[bar.job.job for bar in lane] for lane in found.lanes]


def gaps(found: Occupancy[Bar]) -> list[tuple[int, float, float]]:
    return [(gap.lane, gap.start_at - START_AT, gap.end_at - START_AT) for gap in found.longest(99)]


def test_jobs_at_once_lie_on_different_lanes() -> None:
    found = occupancy((0, 50), (10, 60), (50, 100), (60, 100))

    assert lanes(found) == [["j0", "j2"], ["j1", "j3"]]


def test_what_no_job_covers_is_idle_longest_first() -> None:
    found = occupancy((5, 40), (10, 90), (60, 100))

    assert gaps(found) == [(0, 40, 60), (1, 0, 10), (1, 90, 100), (0, 0, 5)]
    assert found.held_s == pytest.approx(200)
    assert found.busy_s == pytest.approx(155)
    assert found.busy_share == pytest.approx(0.775)


def test_a_slot_that_never_ran_anything_is_idle_all_the_time() -> None:
    assert gaps(occupancy((0, 100))) == [(1, 0, 100)]


def test_a_job_that_runs_still_is_busy_until_the_newest_event() -> None:
    found = occupancy((0, None), slots=1)

    assert gaps(found) == []
    assert found.busy_share == 1


def test_a_job_that_never_started_is_no_bar() -> None:
    assert lanes(occupancy((-1, 30), slots=1)) == [[]]


def test_more_jobs_at_once_than_slots_get_lanes_of_their_own() -> None:
    found = occupancy((0, 51), (50, 100), slots=1)

    assert lanes(found) == [["j0"], ["j1"]]
    assert gaps(found) == [(0, 51, 100)]


def test_time_between_two_lives_is_not_idle() -> None:
    script = Script().begin(slots=1)
    job(script, 10, 150)
    job(script, 160, 200)
    script.add(SegmentClosed(), after_s=START_AT + 100 - script.now_at)
    script.add(opened(2), after_s=40)
    script.add(RunResumed(version="0.1.0", slots=2), after_s=0)
    script.add(SegmentClosed(), after_s=60)

    found = Occupancy.of(RunRecord.of(script.entries))

    assert gaps(found) == [(1, 140, 200), (0, 0, 10), (0, 150, 160)]
    assert found.held_s == pytest.approx(100 + 2 * 60)


def test_without_a_life_nothing_is_held() -> None:
    found = Occupancy.of(RunRecord.of([]))

    assert (found.lanes, found.gaps, found.busy_share) == ((), (), None)


def test_no_two_bars_of_a_lane_overlap_in_a_whole_night() -> None:
    found = Occupancy.of(RunRecord.of(night()))

    for lane in found.lanes:
        for one, other in pairwise(lane):
            assert one.end_at <= other.start_at
    assert 0 < (found.busy_share or 0) < 1
