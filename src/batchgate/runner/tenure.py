"""How long this life may run: what still fits before the allocation is taken away.

A job that walltime would kill costs its hours and gives nothing, so none is launched that cannot
end in time. The end is watched here as well as announced by a signal: Slurm 22.05 sends its
warning once, and a shell can lose it.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from ..events import AllocationSeen
from ..job import End
from ..slurm import Allocation
from ..state import State
from .recorder import Recorder
from .stopping import Stop

REFRESH_S: Final = 30.0
"""Seconds between two looks at the allocation, whose end may be moved and whose nodes may go."""

MIN_SEEN: Final = 20
"""Completed jobs from which on what they took is taken for what the next one will take."""

LAST_CHANCE_S: Final = 60.0
"""Seconds before the last launch in which those who still wait for something are told."""

_SAME_END_S = 2.0


@dataclass(slots=True)
class Tenure:
    """The time that is left. Ask it before every launch.

    Attributes:
        allocation: What this process may use, as it was last seen.
        margin_s: Seconds before the end by which everything has been ended and written down.
        quantile: Share of the jobs so far that took less time than must be left for a launch;
            `None` demands the whole walltime.
        requeue: Whether the batch system is asked for another life when the time is over.
        clock: Seconds since the epoch.
    """

    allocation: Allocation = field(default_factory=Allocation.local)
    margin_s: float = 60.0
    quantile: float | None = None
    requeue: bool = False
    clock: Callable[[], float] = time.time

    def seen(self) -> AllocationSeen:
        """Return the allocation as an event."""
        found = self.allocation
        return AllocationSeen(
            nodes=found.nodes,
            started_at=found.started_at,
            ends_at=found.end_at,
            job_id=found.job_id,
            restart_count=found.restart_count,
        )

    async def keep(self, recorder: Recorder) -> None:
        """Look at the allocation now and then, and write down when it has changed."""
        while True:
            await asyncio.sleep(REFRESH_S)
            if (found := await self.allocation.refresh()) is None:
                continue  # nobody can say: the last word stands
            changed = found.nodes != self.allocation.nodes or _moved(found, self.allocation)
            self.allocation = found
            if changed:
                recorder.record(self.seen())

    def ends_at(self, state: State) -> float:
        """Return when everything must have ended, in seconds since the epoch; may be infinite."""
        end_at = self.allocation.end_at
        limits = [math.inf if end_at is None else end_at - self.margin_s]
        if (cap := _billed_out_at(state)) is not None:
            limits.append(cap)
        return min(limits)

    def fits(self, state: State) -> bool:
        """Whether a job that is launched now can end in time."""
        return self.clock() + self._needed_s(state) <= self.ends_at(state)

    def last_chance(self, state: State) -> bool:
        """Whether what is not launched within moments will not be in this allocation."""
        return self.clock() + self._needed_s(state) + LAST_CHANCE_S > self.ends_at(state)

    def over(self, state: State) -> bool:
        """Whether what still runs must be ended now."""
        return self.clock() >= self.ends_at(state)

    @property
    def at_end(self) -> bool:
        """Whether the allocation has come to its end, as far as it is known."""
        end_at = self.allocation.end_at
        return end_at is not None and self.clock() >= end_at

    def last(self, state: State) -> Stop | None:
        """Return the stop rule that forbids another life, or `None`."""
        assert state.spec is not None
        rules, cap = state.spec.stop, _billed_out_at(state)
        end_at = self.allocation.end_at
        if cap is not None and (end_at is None or cap <= end_at):
            return Stop(
                "billed_node_h",
                f"{state.billed_node_h:.3g} of {rules.billed_node_h:g} billed node-hours are used, "
                "and no job fits into the rest",
            )
        if rules.lives is not None and state.lives >= rules.lives:
            return Stop("lives", f"this was life {state.lives} of {rules.lives}")
        return None

    def _needed_s(self, state: State) -> float:
        assert state.spec is not None
        walltime_s = state.spec.job.timeout_s
        if self.quantile is None:
            return walltime_s
        took = sorted(
            end.ended_at - end.started_at
            for job in state.jobs.values()
            if (end := job.end) is not None and end.end is End.COMPLETED
        )
        # The order statistic that is above the quantile whatever the distribution is.
        rank = math.ceil(self.quantile * (len(took) + 1))
        if len(took) < MIN_SEEN or rank > len(took):
            return walltime_s
        return min(walltime_s, took[rank - 1])


def _moved(one: Allocation, other: Allocation) -> bool:
    if one.end_at is None or other.end_at is None:
        return one.end_at != other.end_at
    return abs(one.end_at - other.end_at) > _SAME_END_S


def _billed_out_at(state: State) -> float | None:
    """When the run's billed node-hours are used up; `None` without such a rule."""
    assert state.spec is not None
    cap = state.spec.stop.billed_node_h
    if cap is None or state.allocation is None or not state.allocation.nodes:
        return None
    left_s = (cap - state.billed_node_h) * 3600 / len(state.allocation.nodes)
    return state.updated_at + left_s
