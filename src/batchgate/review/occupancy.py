"""How busy the slots were: jobs as bars on lanes, and the gaps between them.

A lane is one slot. The ledger does not say which slot a job took; jobs are laid on the first lane
that is free, which gives the true number of busy slots at every moment.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from .record import RunRecord
from .rows import JobRow, LifeRow


@dataclass(frozen=True, slots=True)
class Bar:
    """A job on a lane.

    Attributes:
        start_at: Its start, by its host's clock; by the ledger's when it has not ended.
        end_at: Its end, likewise; the newest event for a job that still runs.
        job: The job.
    """

    start_at: float
    end_at: float
    job: JobRow


@dataclass(frozen=True, slots=True)
class Gap:
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
class Occupancy:
    """The slots of a run over time. Make it with `Occupancy.of`.

    Attributes:
        lanes: Bars of each slot, in order of time.
        gaps: Idle time, longest first.
        held_s: Slot-seconds that the runner held, over all lives.
        busy_s: Of these, those in which a job ran.
    """

    lanes: tuple[tuple[Bar, ...], ...]
    gaps: tuple[Gap, ...]
    held_s: float
    busy_s: float

    @classmethod
    def of(cls, record: RunRecord) -> Occupancy:
        """Lay a run's jobs on lanes."""
        slots = max((life.slots for life in record.lives), default=0)
        lanes = tuple(tuple(lane) for lane in _lanes(_bars(record), slots))
        gaps = [gap for life in record.lives for gap in _gaps(lanes, life)]
        held_s = math.fsum((life.ended_at - life.started_at) * life.slots for life in record.lives)
        idle_s = math.fsum(gap.length_s for gap in gaps)
        return cls(
            lanes=lanes,
            gaps=tuple(sorted(gaps, key=lambda gap: (-gap.length_s, gap.start_at, gap.lane))),
            held_s=held_s,
            busy_s=held_s - idle_s,
        )

    @property
    def busy_share(self) -> float | None:
        """Share of the held slot-seconds in which a job ran, 0...1; `None` when none were held."""
        return self.busy_s / self.held_s if self.held_s else None


def _bars(record: RunRecord) -> Iterator[Bar]:
    for job in record.jobs:
        if job.settled_at is None:
            yield Bar(job.planned_at, record.state.updated_at, job)
        elif job.started_at:
            yield Bar(job.started_at, max(job.ended_at, job.started_at), job)


def _lanes(bars: Iterable[Bar], slots: int) -> list[list[Bar]]:
    lanes: list[list[Bar]] = [[] for _ in range(slots)]
    for bar in sorted(bars, key=lambda bar: (bar.start_at, bar.end_at)):
        free = (lane for lane in lanes if not lane or lane[-1].end_at <= bar.start_at)
        lane = next(free, None)
        if lane is None:  # clocks of hosts differ a little, so that two jobs seem to overlap
            lanes.append(lane := [])
        lane.append(bar)
    return lanes


def _gaps(lanes: Sequence[Sequence[Bar]], life: LifeRow) -> Iterator[Gap]:
    for number, lane in enumerate(lanes[: life.slots]):
        at = life.started_at
        for bar in lane:
            if bar.end_at <= at:
                continue
            if bar.start_at >= life.ended_at:
                break
            if bar.start_at > at:
                yield Gap(number, life.number, at, bar.start_at)
            at = bar.end_at
        if at < life.ended_at:
            yield Gap(number, life.number, at, life.ended_at)
