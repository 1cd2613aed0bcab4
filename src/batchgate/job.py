"""Tasks and jobs: what is asked of the execution side, and the ways it can end.

A *task* is a function call in a warm worker process (a verifier); a *job* is a process of its
own (the expensive level). How one ended is a value, `TaskEnd`, never an exception: an exception
from the execution side means that the side itself is down (`FlowError`).

The words for states are PSI/J's (https://exaworks.org/psij-python), with `LOST` of our own for
"nobody can say".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, Protocol

JobsOn = Literal["local", "srun", "radical_pilot"]
"""Where jobs run: processes on this node, steps of the Slurm allocation, tasks of a RADICAL pilot."""
VerifiersOn = Literal["local", "dask"]
"""Where functions run: in worker processes on this node, or beside the workers of a Dask cluster."""


class JobState(StrEnum):
    """Where a job stands."""

    NEW = "new"
    QUEUED = "queued"
    ACTIVE = "active"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"
    LOST = "lost"
    """Its node or its runner is gone, and it left no result."""

    @property
    def final(self) -> bool:
        """Whether no other state can follow."""
        return self not in {JobState.NEW, JobState.QUEUED, JobState.ACTIVE}


class End(StrEnum):
    """How a task or a job ended."""

    COMPLETED = "completed"
    """A function returned, or a process exited with 0. Says nothing of the result's worth."""
    EXCEPTION = "exception"
    """A function raised (`SystemExit` and `CancelledError` included)."""
    EXIT = "exit"
    """A process exited with another code than 0."""
    SIGNAL = "signal"
    """A process was ended by a signal that was not ours."""
    TIMED_OUT = "timed_out"
    """The deadline passed; the whole process group was killed."""
    WORKER_LOST = "worker_lost"
    """The worker process died under the function."""
    NOT_STARTED = "not_started"
    """The process could not be started (no such program, no memory)."""
    CANCELED = "canceled"
    """We ended it."""
    ORPHANED = "orphaned"
    """Its runner died; what was left of it has been ended."""
    UNKNOWN = "unknown"
    """The execution side cannot say."""


@dataclass(frozen=True, slots=True)
class FunctionTask:
    """A call of a campaign's function in a warm worker process.

    Attributes:
        folder: Folder to import from, or `None` for an installed module.
        use: `module:function`.
        value: First argument, given by position: a candidate, or the path of a result.
        args: Keyword arguments; plain data, as JSON has it.
        timeout_s: Seconds from its start until the worker is killed.
        env: Variables set while the function runs (`TRACEPARENT` and the like).
    """

    folder: Path | None
    use: str
    value: Any
    timeout_s: float
    args: Mapping[str, Any] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class JobSpec:
    """A process to run, in its own group and its own folder. No shell is involved.

    Attributes:
        id: Names the job's folder and marks its processes; `[a-z0-9.-]`, at most 64 characters.
        argv: Program and arguments. Nothing in it comes from a model or a simulation.
        folder: Working folder; stdout and stderr go to files of these names in it.
        walltime_s: Seconds from its start until the whole group is killed.
        env: Variables added to the runner's own.
        nodes: Nodes it holds; a share of one for several jobs on a node.
        ranks: Processes to start (MPI ranks).
        cores_per_rank: Cores for each rank.
        gpus_per_rank: GPUs for each rank.
    """

    id: str
    argv: tuple[str, ...]
    folder: Path
    walltime_s: float
    env: Mapping[str, str] = field(default_factory=dict)
    nodes: float = 1.0
    ranks: int = 1
    cores_per_rank: int = 1
    gpus_per_rank: int = 0

    @property
    def node_h(self) -> float:
        """Most the job can charge, in node-hours."""
        return self.nodes * self.walltime_s / 3600


@dataclass(frozen=True, slots=True)
class TaskEnd:
    """How a task or a job ended, as a value.

    Attributes:
        end: The kind of end.
        value: What a function returned; `None` for a job.
        exit_code: Exit code of a process that exited by itself.
        signal: Signal number that ended a process.
        error: One line for people, at most 2,000 characters, `""` when completed. Text of a
            simulation: it is recorded, and never reaches a prompt.
        traceback: Tail of a function's traceback, or of what its worker printed when it died or
            was ended, at most 8,000 characters.
        started_at: Seconds since the epoch, stamped where it ran; 0.0 when it never started.
        ended_at: Likewise.
        host: Host it ran on.
    """

    end: End
    value: Any = None
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    traceback: str = ""
    started_at: float = 0.0
    ended_at: float = 0.0
    host: str = ""

    @property
    def elapsed_s(self) -> float:
        """Seconds it ran, queueing left out."""
        return max(0.0, self.ended_at - self.started_at)


class Flow(Protocol):
    """The execution side, as the runner sees it. `batchgate.flow.open_flow` gives one.

    Wherever tasks run, a cancelled one has been ended by the time the cancellation arrives.
    """

    async def call(self, task: FunctionTask) -> TaskEnd:
        """Run a function in a warm worker; returns when it has ended or its deadline has passed.

        Raises:
            FlowError: The execution side is down.
        """
        ...

    async def execute(self, spec: JobSpec) -> TaskEnd:
        """Run a job; returns when all of it has ended, or nobody can say (`End.UNKNOWN`).

        Raises:
            FlowError: The execution side is down.
        """
        ...
