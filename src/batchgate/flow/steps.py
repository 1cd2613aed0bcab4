"""Slurm steps that belong to a task: found by name with `squeue`, and ended for certain.

A step is named `<marker>/<uid>`, as a process's tag is. It is ended by `scancel JOB.STEP` and never
by killing its `srun`: Slurm 22.05 lets the step of a SIGKILLed `srun` run on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from ..errors import FlowError
from .waiting import first

_COMMAND_S = 30.0
"""Seconds for one of Slurm's commands. Slurm 22.05: `squeue` gives up on its controller after 9."""
_CANCEL_S = 30.0
"""Seconds after `scancel` until a step counts as one that cannot be ended."""
_POLL_S = (0.1, 2.0)
"""Shortest and longest pause between two looks; each costs the controller a request."""
# "AllocTRES=" in Slurm 23.11 and later, " TRES=" before; "ReqTRES=" is what was asked.
_MEMORY = re.compile(r"(?:Alloc|\s)TRES=cpu=(\d+),(?:\S+,)?mem=([\d.]+)([KMGT])")
_MB = {"K": 1 / 1024, "M": 1, "G": 1024, "T": 1024**2}


@dataclass(frozen=True, slots=True)
class OrphanStep:
    """A Slurm step of a task whose runner is gone.

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


async def find_steps(marker: str) -> list[OrphanStep]:
    """Return the steps of this user that were started under a marker, in any allocation.

    Args:
        marker: The `marker` that the flow was opened with.

    Raises:
        FlowError: Slurm does not answer.
    """
    out = await command(
        "squeue", "--noheader", "--steps", f"--user={os.getuid()}", "-o", "%i|%j|%N"
    )
    lines = (line.split("|", 2) for line in out.splitlines())
    return [
        OrphanStep(step, name[len(marker) + 1 :], nodes)
        for step, name, nodes in lines
        if name.startswith((f"{marker}/", f"{marker}@"))  # ours, and those of a pilot's tasks
    ]


async def end_steps(find: Callable[[], Awaitable[list[OrphanStep]]], *, grace_s: float) -> None:
    """End steps: SIGTERM to their processes, grace, `scancel`. Returns when none is left.

    A step with a node that Slurm knows as down counts as ended: it is listed for ever.

    Args:
        find: Says which are left.
        grace_s: Seconds between SIGTERM and `scancel`.

    Raises:
        FlowError: One is still there 30 s after `scancel`, as on a node that is dead but not yet
            known as down; or Slurm does not answer.
    """
    flags = [("--signal=TERM", grace_s), ("", _CANCEL_S)]
    left: list[OrphanStep] = []
    for flag, patience_s in flags[0 if grace_s > 0 else 1 :]:
        until = time.monotonic() + patience_s
        told: set[str] = set()
        pause_s, longest_s = _POLL_S
        while left := await _on_live_nodes(await find()):
            # The signal once, as a program may count it; `scancel` until it has an effect.
            if new := [s.step for s in left if s.step not in told or not flag]:
                # It fails for a step that ends meanwhile; what counts is whether it is left.
                with contextlib.suppress(FlowError):
                    await command("scancel", *filter(None, [flag]), *new)
                told.update(new)
            if time.monotonic() >= until:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
        if not left:
            return
    names = ", ".join(step.step for step in left)
    raise FlowError(f"Slurm steps {names} are still there {_CANCEL_S:g} s after scancel")


async def _on_live_nodes(steps: list[OrphanStep]) -> list[OrphanStep]:
    """Leave out steps with a dead node: Slurm 22.05 lists them until their job ends."""
    if not steps:
        return []
    down = await command("sinfo", "--noheader", "--Node", "--states=down", "--format=%N")
    if not down.strip():
        return steps
    dead = set(down.split())
    hosts = [await command("scontrol", "show", "hostnames", step.nodes) for step in steps]
    return [s for s, names in zip(steps, hosts, strict=True) if not dead & set(names.split())]


async def memory_per_cpu_mb() -> int | None:
    """Return an allocation's memory for each of its CPUs; `None` where Slurm does not count it.

    Raises:
        FlowError: Slurm does not answer, or does not know the allocation.
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    found = _MEMORY.search(await command("scontrol", "--oneliner", "show", "job", job))
    if found is None:
        return None
    cpus, memory, unit = found.groups()
    return int(float(memory) * _MB[unit] / int(cpus))


async def command(*argv: str) -> str:
    """Run one of Slurm's commands and return what it prints.

    Raises:
        FlowError: It cannot be run, fails, or does not answer in time.
    """
    try:
        process = await asyncio.create_subprocess_exec(
            *argv,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as exc:
        raise FlowError(f"{argv[0]} cannot be run: {exc.strerror}") from exc
    talk = asyncio.ensure_future(process.communicate())
    try:
        await first(talk, timeout_s=_COMMAND_S)
    finally:
        if not talk.done():
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    out, err = await talk
    if process.returncode != 0:
        why = err.decode("utf-8", "replace").strip() or f"no answer within {_COMMAND_S:g} s"
        raise FlowError(f"{argv[0]} failed: {why[:500]}")
    return out.decode("utf-8", "replace")
