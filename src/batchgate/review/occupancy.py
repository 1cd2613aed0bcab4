"""How busy the slots were: jobs as bars on lanes, and the gaps between them.

A lane is one slot. The ledger does not say which slot a job took; jobs are laid on the first lane
that is free, which gives the true number of busy slots at every moment.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush, nsmallest
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from .record import RunRecord
    from .rows import JobRow

_B = TypeVar("_B", bound=tuple[float, float, Any])
"""A bar: its start, its end, and what it stands for."""


class Bar(NamedTuple):
    """A job on a lane.

    Attributes:
        start_at: Its start, by its host's clock; by the ledger's when it has not ended.
        end_at: Its end, likewise; the newest event for a job that still runs.
        job: The job.
    """

    start_at: float
    end_at: float
    job: JobRow


class Held(NamedTuple):
    """Slots that a runner held.

    Attributes:
        life: Number of the life.
        started_at: Its first event, in seconds since the epoch.
        ended_at: Its last event.
        slots: Jobs it could run at once.
    """

    life: int
    started_at: float
    ended_at: float
    slots: int


class Gap(NamedTuple):
    """Time in which a slot ran nothing although its runner lived.

    Attributes:
        lane: Number of the lane, from 0.
        life: Number of the life.
        start_at: Its start.
        end_at: Its end.
    """

    lane: int
    life: int
    start_at: float
    end_at: float

    @property
    def length_s(self) -> float:
        """Seconds it lasted."""
        return self.end_at - self.start_at


@dataclass(frozen=True, slots=True)
class Occupancy(Generic[_B]):
    """The slots of a run over time. Make it with `Occupancy.of` or `Occupancy.laid`.

    Attributes:
        lanes: Bars of each slot, in order of time.
        gaps: Idle time, lane by lane in each life.
        held_s: Slot-seconds that the runner held, over all lives.
        busy_s: Of these, those in which a job ran.
    """

    lanes: tuple[tuple[_B, ...], ...]
    gaps: tuple[Gap, ...]
    held_s: float
    busy_s: float

    @staticmethod
    def of(record: RunRecord) -> Occupancy[Bar]:
        """Lay a run's jobs on lanes."""
        lives = [Held(one.number, one.started_at, one.ended_at, one.slots) for one in record.lives]
        return Occupancy.laid(_bars(record), lives)

    @classmethod
    def laid(cls, bars: Iterable[_B], lives: Sequence[Held]) -> Occupancy[_B]:
        """Lay bars on as many lanes as the lives had slots."""
        slots = max((life.slots for life in lives), default=0)
        lanes = tuple(tuple(lane) for lane in _lanes(bars, slots))
        gaps = tuple(gap for life in lives for gap in _gaps(lanes, life))
        held_s = math.fsum((life.ended_at - life.started_at) * life.slots for life in lives)
        idle_s = math.fsum(end_at - start_at for _, _, start_at, end_at in gaps)
        return cls(lanes=lanes, gaps=gaps, held_s=held_s, busy_s=held_s - idle_s)

    def longest(self, count: int) -> list[Gap]:
        """Return the longest gaps, the longest first; the earlier one of equal ones."""
        return nsmallest(count, self.gaps, key=_longest_first)

    @property
    def busy_share(self) -> float | None:
        """Share of the held slot-seconds in which a job ran, 0...1; `None` when none were held."""
        return self.busy_s / self.held_s if self.held_s else None


def _longest_first(gap: Gap) -> tuple[float, float, int]:
    lane, _, start_at, end_at = gap
    return start_at - end_at, start_at, lane


def _bars(record: RunRecord) -> Iterator[Bar]:
    for job in record.jobs:
        if job.settled_at is None:
            yield Bar(job.planned_at, record.state.updated_at, job)
        elif job.started_at:
            yield Bar(job.started_at, max(job.ended_at, job.started_at), job)


def _lanes(bars: Iterable[_B], slots: int) -> list[list[_B]]:
    lanes: list[list[_B]] = [[] for _ in range(slots)]
    free = list(range(slots))  # two heaps: lanes that are free, and those that will be
    taken: list[tuple[float, int]] = []
    for bar in sorted(bars, key=itemgetter(0, 1)):
        start_at, end_at, _ = bar
        while taken and taken[0][0] <= start_at:
            heappush(free, heappop(taken)[1])
        if not free:  # clocks of hosts differ a little, so that two jobs seem to overlap
            free.append(len(lanes))
            lanes.append([])
        lane = heappop(free)
        lanes[lane].append(bar)
        heappush(taken, (end_at, lane))
    return lanes


def _gaps(lanes: Sequence[Sequence[tuple[float, float, Any]]], life: Held) -> Iterator[Gap]:
    for number, lane in enumerate(lanes[: life.slots]):
        at = life.started_at
        first = bisect_right(lane, at, key=itemgetter(1))
        for start_at, end_at, _ in islice(lane, first, None):
            if start_at >= life.ended_at:
                break
            if start_at > at:
                yield Gap(number, life.life, at, start_at)
            at = end_at
        if at < life.ended_at:
            yield Gap(number, life.life, at, life.ended_at)
