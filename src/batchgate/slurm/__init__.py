"""Slurm: what it gave this process, what it billed, and how a campaign becomes a job of it."""

from .accounting import Bill, Row, billed
from .allocation import Allocation, current
from .commands import no_contact
from .jobs import JobStatus, job_state, requeue
from .script import FILE, SIGNAL_EARLY_S, JobScript, time_text
from .steps import Step, down_nodes, end_steps, find_steps, in_allocation, memory_per_cpu_mb
from .submit import submit, try_out

__all__ = [
    "FILE",
    "SIGNAL_EARLY_S",
    "Allocation",
    "Bill",
    "JobScript",
    "JobStatus",
    "Row",
    "Step",
    "billed",
    "current",
    "down_nodes",
    "end_steps",
    "find_steps",
    "in_allocation",
    "job_state",
    "memory_per_cpu_mb",
    "no_contact",
    "requeue",
    "submit",
    "time_text",
    "try_out",
]
