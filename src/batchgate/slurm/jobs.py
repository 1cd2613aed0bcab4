"""A Slurm job from outside or from within: its state, and its next life."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ..errors import FlowError
from .accounting import billed
from .commands import Run, run
from .fields import at_of, count_of, job_fields

_OVER: Final = frozenset(
    [
        "BOOT_FAIL",
        "CANCELLED",
        "COMPLETED",
        "DEADLINE",
        "FAILED",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "TIMEOUT",
    ]
)


@dataclass(frozen=True, slots=True)
class JobStatus:
    """Where a job stands.

    Attributes:
        state: Slurm's word, `PENDING` or `RUNNING` for example.
        reason: Why it waits or how it ended, Slurm's word; `""` for none.
        restart_count: How often it was requeued.
        start_at: When it started or is expected to, epoch seconds; `None` when nobody knows.
    """

    state: str
    reason: str = ""
    restart_count: int = 0
    start_at: float | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended. Slurm may still requeue one that lost its node."""
        return self.state in _OVER


async def job_state(job_id: str, *, run: Run = run) -> JobStatus | None:
    """Return where a job stands; `None` when neither Slurm nor its accounting say."""
    answer = await run(["scontrol", "-o", "show", "job", job_id])
    fields = job_fields(answer.out, job_id) if answer.ok else {}
    if (state := fields.get("JobState")) is not None:
        reason = fields.get("Reason", "")
        return JobStatus(
            state,
            "" if reason == "None" else reason,
            count_of(fields.get("Restarts")),
            at_of(fields.get("StartTime", "")),
        )
    # Slurm forgets a job minutes after its end, its accounting does not.
    if "Invalid job id" in answer.err and (bill := await billed(job_id, run=run)) is not None:
        last = bill.rows[-1]
        return JobStatus(last.state, start_at=last.started_at)
    return None


async def requeue(job_id: str, *, run: Run = run) -> None:
    """Ask Slurm to end a job and to start it again under the same id.

    From within the job this is the last that one can count on: Slurm 22.05 sends TERM about a
    second later. Write everything down first.

    Raises:
        FlowError: Slurm refused or did not answer. Submit the run again instead.
    """
    answer = await run(["scontrol", "requeue", job_id])
    if not answer.ok:
        raise FlowError(f"Slurm did not requeue job {job_id}: {answer.error}")
