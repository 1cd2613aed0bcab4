"""Slurm steps that belong to a task: found by name with `squeue`, and ended for certain.

A step is named `<marker>/<uid>`, as a process's tag is. It is ended by `scancel JOB.STEP` and never
by killing its `srun`: Slurm 22.05 lets the step of a SIGKILLed `srun` run on.
"""

from __future__ import annotations

import asyncio
import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..errors import FlowError
from .commands import Run, ask, run

_CANCEL_S = 30.0
"""Seconds after `scancel` until a step counts as one that cannot be ended."""
_POLL_S = (0.1, 2.0)
"""Shortest and longest pause between two looks; each costs the controller a request."""
# "AllocTRES=" in Slurm 23.11 and later, " TRES=" before; "ReqTRES=" is what was asked.
_MEMORY = re.compile(r"(?:Alloc|\s)TRES=cpu=(\d+),(?:\S+,)?mem=([\d.]+)([KMGT])")
_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


@dataclass(frozen=True, slots=True)
class Step:
    """A Slurm step that was started under a marker.

    Attributes:
        step: Its id, `JOB.STEP`.
        uid: What it was started for: a job's `id`.
        nodes: Nodes it is on, as Slurm writes a list of them.
    """

    step: str
    uid: str
    nodes: str


def in_allocation() -> bool:
    """Return whether this process runs in a Slurm allocation."""
    return bool(os.environ.get("SLURM_JOB_ID"))


async def find_steps(marker: str, *, run: Run = run) -> list[Step]:
    """Return the steps of this user that were started under a marker, in any allocation.

    Args:
        marker: The `marker` that the flow was opened with.
        run: Runs Slurm's programs.

    Raises:
        FlowError: Slurm does not answer.
    """
    whose = f"--user={os.getuid()}"
    out = await ask("squeue", "--noheader", "--steps", whose, "-o", "%i|%j|%N", run=run)
    lines = (line.split("|", 2) for line in out.splitlines())
    return [
        Step(step, name[len(marker) + 1 :], nodes)
        for step, name, nodes in lines
        if name.startswith((f"{marker}/", f"{marker}@"))  # ours, and those of a pilot's tasks
    ]


async def end_steps(
    find: Callable[[], Awaitable[list[Step]]], *, grace_s: float, run: Run = run
) -> None:
    """End steps: SIGTERM to their processes, grace, `scancel`. Returns when none is left.

    A step with a node that Slurm knows as down counts as ended: it is listed for ever.

    Args:
        find: Says which are left.
        grace_s: Seconds between SIGTERM and `scancel`.
        run: Runs Slurm's programs.

    Raises:
        FlowError: One is still there 30 s after `scancel`, as on a node that is dead but not yet
            known as down; or Slurm does not answer.
    """
    flags = [("--signal=TERM", grace_s), ("", _CANCEL_S)]
    left: list[Step] = []
    for flag, patience_s in flags[0 if grace_s > 0 else 1 :]:
        until = time.monotonic() + patience_s
        told: set[str] = set()
        pause_s, longest_s = _POLL_S
        while left := await _on_live_nodes(await find(), run):
            # The signal once, as a program may count it; `scancel` until it has an effect.
            if new := [s.step for s in left if s.step not in told or not flag]:
                # It fails for a step that ends meanwhile; what counts is whether it is left.
                await run(["scancel", *filter(None, [flag]), *new])
                told.update(new)
            if time.monotonic() >= until:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        if not left:
            return
    names = ", ".join(step.step for step in left)
    raise FlowError(f"Slurm steps {names} are still there {_CANCEL_S:g} s after scancel")


async def _on_live_nodes(steps: list[Step], run: Run) -> list[Step]:
    """Leave out steps with a dead node: Slurm 22.05 lists them until their job ends."""
    if not steps or not (dead := await down_nodes(run=run)):
        return steps
    hosts = [await ask("scontrol", "show", "hostnames", step.nodes, run=run) for step in steps]
    return [s for s, names in zip(steps, hosts, strict=True) if not dead & set(names.split())]


async def down_nodes(*, run: Run = run) -> frozenset[str]:
    """Return the nodes that Slurm takes for dead: up to `SlurmdTimeout` after they died.

    Raises:
        FlowError: Slurm does not answer.
    """
    out = await ask("sinfo", "--noheader", "--Node", "--states=down", "--format=%N", run=run)
    return frozenset(out.split())


async def memory_per_cpu_mb(*, run: Run = run) -> int | None:
    """Return an allocation's memory for each of its CPUs; `None` where Slurm does not count it.

    Raises:
        FlowError: Slurm does not answer, or does not know the allocation.
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    found = _MEMORY.search(await ask("scontrol", "--oneliner", "show", "job", job, run=run))
    if found is None:
        return None
    cpus, memory, unit = found.groups()
    return int(float(memory) * _MB[unit] / int(cpus))
