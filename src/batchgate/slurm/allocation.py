"""What Slurm gave this process: nodes, GPUs and the time until it is taken away.

An `Allocation` is a snapshot. `refresh` takes the next one, or none when Slurm does not answer:
then the last one stands, and nothing may be taken for gone. A machine without Slurm has an
allocation too, `Allocation.local`.
"""

from __future__ import annotations

import asyncio
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from ..errors import FlowError
from .commands import Run, run
from .fields import at_of, count_of, gpus_of, job_fields, seconds_of

PATIENCE_S: Final = 120.0
"""Seconds in which Slurm must answer once at a job's start; a controller restarts in less."""
_PAUSE_S = 2.0


@dataclass(frozen=True, slots=True)
class Allocation:
    """What this process may use, as of one moment.

    Attributes:
        job_id: Slurm's job id; `""` without Slurm.
        restart_count: How often Slurm has requeued the job; 0 in its first life.
        requeueable: Whether `requeue` starts the job again; Slurm refuses it for an interactive
            job, and for one that was submitted with `--no-requeue`.
        nodes: Names of the nodes that it holds now. `SLURM_JOB_NODELIST` still names those that
            were lost.
        cpus: CPUs on all of them.
        gpus: GPUs on all of them.
        end_at: When the job is killed, epoch seconds; `None` without a limit.
        seen_at: When this was so, epoch seconds.
        started_at: When it was given, epoch seconds; the bill runs from then.
    """

    job_id: str
    restart_count: int
    requeueable: bool
    nodes: tuple[str, ...]
    cpus: int
    gpus: int
    end_at: float | None
    seen_at: float
    started_at: float
    _run: Run | None = field(default=None, repr=False, compare=False)

    @classmethod
    def local(cls, wall_s: float | None = None, *, clock: Callable[[], float] = time.time) -> Self:
        """Return this machine as an allocation of one node.

        Args:
            wall_s: Seconds from now after which it counts as taken away; `None` for never.
            clock: Epoch seconds.
        """
        now = clock()
        return cls(
            job_id="",
            restart_count=0,
            requeueable=False,
            nodes=(socket.gethostname(),),
            cpus=len(os.sched_getaffinity(0)),
            gpus=0,
            end_at=None if wall_s is None else now + wall_s,
            seen_at=now,
            started_at=now,
        )

    @property
    def node_count(self) -> int:
        """Nodes that it holds."""
        return len(self.nodes)

    def left_s(self, now: float) -> float:
        """Return the seconds left at an instant; infinite without a limit."""
        return math.inf if self.end_at is None else self.end_at - now

    async def refresh(self, *, clock: Callable[[], float] = time.time) -> Allocation | None:
        """Return the allocation as it is now; `None` when Slurm does not say.

        Takes about 0.1 s, and 20 s at most. An allocation without Slurm never changes.
        """
        if self._run is None:
            return self
        return await _ask(self.job_id, self._run, clock)


async def current(
    *,
    wall_s: float | None = None,
    patience_s: float = PATIENCE_S,
    environ: Mapping[str, str] = os.environ,
    run: Run = run,
    clock: Callable[[], float] = time.time,
) -> Allocation:
    """Return the allocation that this process runs in: the Slurm job's, or this machine.

    Args:
        wall_s: Without Slurm, seconds after which the machine counts as taken away.
        patience_s: Seconds in which Slurm must answer once.
        environ: Where `SLURM_JOB_ID` is looked for.
        run: Runs Slurm's programs.
        clock: Epoch seconds.

    Raises:
        FlowError: This is a Slurm job, and Slurm does not say what it holds. Start again later;
            in a container, bind Slurm's programs and munge's socket into it.
    """
    job_id = environ.get("SLURM_JOB_ID")
    if not job_id:
        return Allocation.local(wall_s, clock=clock)
    until = time.monotonic() + patience_s
    while (found := await _ask(job_id, run, clock)) is None:
        if time.monotonic() >= until:
            said = (await run(["scontrol", "-o", "show", "job", job_id])).error
            raise FlowError(
                f"Slurm does not say what job {job_id} holds ({said}); start again when "
                f"`scontrol show job {job_id}` works here"
            )
        await asyncio.sleep(_PAUSE_S)
    return found


async def _ask(job_id: str, run: Run, clock: Callable[[], float]) -> Allocation | None:
    answer = await run(["scontrol", "-o", "show", "job", job_id])
    if not answer.ok:
        return None
    now = clock()
    fields = job_fields(answer.out, job_id)
    end_at = _end_at(fields, now)
    nodes = await _nodes(fields.get("NodeList", ""), run)
    if end_at is None or nodes is None:
        return None
    return Allocation(
        job_id=job_id,
        restart_count=count_of(fields.get("Restarts")),
        requeueable=fields.get("Requeue") == fields.get("BatchFlag") == "1",
        nodes=nodes,
        cpus=count_of(fields.get("NumCPUs")),
        gpus=gpus_of(fields, len(nodes)),
        end_at=None if end_at == math.inf else end_at,
        seen_at=now,
        started_at=now if (began := at_of(fields.get("StartTime", ""))) is None else began,
        _run=run,
    )


def _end_at(fields: Mapping[str, str], now: float) -> float | None:
    """Return the earlier of the end that Slurm names and the end that its limit leaves.

    They differ by minutes after `scontrol update EndTime=` (Slurm 22.05 rounds the limit up), and
    by the difference of two clocks.
    """
    named = at_of(fields.get("EndTime", ""))
    limit_s = seconds_of(fields.get("TimeLimit", ""))
    ran_s = seconds_of(fields.get("RunTime", ""))
    ends = [] if named is None else [named]
    if limit_s is not None and ran_s is not None:
        ends.append(now + limit_s - ran_s)
    return min(ends, default=None)


async def _nodes(text: str, run: Run) -> tuple[str, ...] | None:
    if not text or text == "(null)":
        return None
    answer = await run(["scontrol", "show", "hostnames", text])
    return tuple(answer.out.split()) or None if answer.ok else None
