"""What a runner that was killed left behind: found by its marker, and ended."""

from __future__ import annotations

import shutil

from ..slurm import Step, end_steps, find_steps, in_allocation
from .processes import Orphan, check_marker, end_processes, find_orphans


async def end_orphans(marker: str, *, grace_s: float = 5.0) -> list[Orphan | Step]:
    """End what was started under a marker, and return what was found at first.

    Processes are found on this node; inside a Slurm allocation also steps, on any node and in any
    allocation of this user.

    Args:
        marker: The `marker` that the earlier flow was opened with.
        grace_s: Seconds between SIGTERM and SIGKILL.

    Raises:
        ConfigError: The marker is not valid.
        FlowError: Something cannot be ended, or Slurm does not answer. Do not run its job again.
    """
    check_marker(marker)
    steps = await _end_steps(marker, grace_s)
    processes = find_orphans(marker)
    await end_processes(lambda: [orphan.pid for orphan in find_orphans(marker)], grace_s=grace_s)
    return [*steps, *processes]


async def _end_steps(marker: str, grace_s: float) -> list[Step]:
    if not in_allocation() or shutil.which("squeue") is None:
        return []
    found = await find_steps(marker)
    if found:
        await end_steps(lambda: find_steps(marker), grace_s=grace_s)
    return found
