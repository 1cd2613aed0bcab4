"""Slurm: what it gave this process, what it billed, and how a campaign becomes a job of it."""

from .accounting import Bill, Row, billed
from .allocation import Allocation, current
from .jobs import JobStatus, cancel_step, job_state, requeue, steps
from .script import FILE, SIGNAL_EARLY_S, JobScript, time_text
from .submit import submit, try_out

__all__ = [
    "FILE",
    "SIGNAL_EARLY_S",
    "Allocation",
    "Bill",
    "JobScript",
    "JobStatus",
    "Row",
    "billed",
    "cancel_step",
    "current",
    "job_state",
    "requeue",
    "steps",
    "submit",
    "time_text",
    "try_out",
]
