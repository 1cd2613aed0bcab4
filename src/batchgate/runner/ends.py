"""What follows from a job's end: its state, and whether its candidate runs again."""

from __future__ import annotations

from collections.abc import Sequence

from ..campaign import CampaignSpec
from ..job import End, JobState

_LOSSES = {End.ORPHANED, End.UNKNOWN}


def state_of(end: End) -> JobState:
    """Return the state of a job that ended so and left no result."""
    match end:
        case End.CANCELED:
            return JobState.CANCELED
        case End.ORPHANED | End.UNKNOWN:
            return JobState.LOST
        case _:
            return JobState.FAILED


def runs_again(spec: CampaignSpec, end: End, before: Sequence[End]) -> bool:
    """Whether a job without a result is worth another run.

    Args:
        spec: The campaign, whose limits count.
        end: How the job ended.
        before: How the earlier jobs of its candidate ended.
    """
    match end:
        case End.CANCELED:
            return True
        case End.TIMED_OUT:
            return False  # it would use up its walltime again
        case End.ORPHANED | End.UNKNOWN:
            # Its runner or its node died. Mostly not its fault, but a job may be what killed it.
            if end is End.UNKNOWN and spec.failure.lost == "leave":
                return False
            return sum(e in _LOSSES for e in before) < spec.failure.losses
        case _:
            broken = [e for e in before if e is not End.CANCELED and e not in _LOSSES]
            return len(broken) < spec.job.retries
