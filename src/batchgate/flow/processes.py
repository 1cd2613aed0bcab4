"""Processes that belong to a task: found in `/proc`, and ended for certain.

Every process that is started for a task carries `BATCHGATE_TASK=<marker>/<uid>` in its
environment, which its children inherit. So those are found that made a session of their own or
outlived the runner. One that does both that and drops its environment is not found; on a cluster
the batch system's cgroup ends it with the allocation.

Linux only, and this node only.
"""

from __future__ import annotations

import asyncio
import contextlib
import fnmatch
import os
import re
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from ..errors import ConfigError, FlowError

VARIABLE = "BATCHGATE_TASK"
_SECRETS = ("*_TOKEN", "*_KEY", "*SECRET*", "*PASSWORD*")
_MARKER = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_GONE = (b"X", b"0", b"0")
_KILL_S = 10.0
"""Seconds after SIGKILL until a process counts as one that cannot be ended."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """A process of a task whose runner is gone.

    Attributes:
        pid: Its process id.
        uid: What it was started for: a job's `id`, or a worker.
    """

    pid: int
    uid: str


@dataclass(frozen=True, slots=True)
class Family:
    """The processes of one task: a process group, and all that carry the task's tag.

    Attributes:
        tag: `<marker>/<uid>`.
        group: Id of the process group.
    """

    tag: str
    group: int

    def members(self) -> list[int]:
        """Return the ids of its live processes."""
        wanted = f"{VARIABLE}={self.tag}".encode()
        return [pid for pid, group in _live() if group == self.group or wanted in _environ(pid)]

    async def end(self, *, grace_s: float) -> None:
        """End every process: SIGTERM, grace, SIGKILL. Returns when none is left.

        Raises:
            FlowError: One is still there 10 s after SIGKILL (it hangs in the kernel).
        """
        await end_processes(self.members, grace_s=grace_s)

    def kill(self) -> None:
        """SIGKILL every process, where nothing can be awaited any more. Blocks a second at most."""
        until = time.monotonic() + 1
        while (left := _certain(self.members)) and time.monotonic() < until:
            for pid in left:
                _send(pid, signal.SIGKILL)
            time.sleep(0.01)


def check_marker(marker: str) -> None:
    """Refuse a marker that could be taken for another one.

    Raises:
        ConfigError: It is not 1 to 128 letters, digits, `.`, `_` and `-`.
    """
    if not _MARKER.fullmatch(marker):
        raise ConfigError(
            f"marker is {marker!r}, must be 1 to 128 letters, digits, '.', '_' and '-'"
        )


def environment(tag: str, extra: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a task's process: ours, without secrets, and what is given.

    A variable whose name ends in `_TOKEN` or `_KEY`, or holds `SECRET` or `PASSWORD`, is not
    handed on unless `extra` names it.
    """
    ours = {
        name: value
        for name, value in os.environ.items()
        if not any(fnmatch.fnmatchcase(name.upper(), pattern) for pattern in _SECRETS)
    }
    return {**ours, **extra, VARIABLE: tag}


def find_orphans(marker: str) -> list[Orphan]:
    """Return the processes on this node that were started under a marker.

    Call it before `open_flow`: the tasks of a flow that is open are found too.

    Args:
        marker: The `marker` that the earlier flow was opened with.

    Raises:
        ConfigError: The marker is not valid.
    """
    check_marker(marker)
    start = f"{VARIABLE}={marker}/".encode()
    return [
        Orphan(pid, entry[len(start) :].decode("utf-8", "replace"))
        for pid, _ in _live()
        for entry in _environ(pid)
        if entry.startswith(start)
    ]


async def end_processes(find: Callable[[], list[int]], *, grace_s: float) -> None:
    """End processes: SIGTERM, grace, SIGKILL. Returns when none is left.

    Args:
        find: Says which are left.
        grace_s: Seconds between SIGTERM and SIGKILL.

    Raises:
        FlowError: One is still there 10 s after SIGKILL (it hangs in the kernel).
    """
    left: list[int] = []
    steps = [(signal.SIGTERM, grace_s), (signal.SIGKILL, _KILL_S)]
    for number, patience_s in steps[0 if grace_s > 0 else 1 :]:
        told: set[int] = set()
        until = time.monotonic() + patience_s
        pause_s = 0.002
        # In a thread: a scan of a big node's /proc takes tens of milliseconds.
        while left := await asyncio.to_thread(_certain, find):
            for pid in left:
                if pid not in told:
                    _send(pid, number)
            told.update(left)
            if time.monotonic() >= until:
                break
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, 0.1)
        if not left:
            return
    raise FlowError(f"processes {left} are still there {_KILL_S:g} s after SIGKILL")


def _certain(find: Callable[[], list[int]]) -> list[int]:
    """Look twice before saying that there is none.

    One that forks and exits during a look is missed, and so is its child.
    """
    return find() or find()


def _live() -> Iterator[tuple[int, int]]:
    """Yield id and process group of every process but this one and the dead."""
    own = os.getpid()
    for name in os.listdir("/proc"):  # noqa: PTH208 - names only, thousands of them
        if name.isdecimal() and int(name) != own:
            # "pid (comm) state ppid pgrp ...", and comm may hold anything.
            state, _, group = _read(name, "stat").rpartition(b")")[2].split()[:3] or _GONE
            if state not in {b"Z", b"X"}:
                yield int(name), int(group)


def _environ(pid: int) -> list[bytes]:
    return _read(str(pid), "environ").split(b"\0")


def _read(pid: str, what: str) -> bytes:
    """Read a file of a process; empty when it has gone or belongs to another user."""
    try:
        with open(f"/proc/{pid}/{what}", "rb", buffering=0) as file:  # noqa: PTH123 - twice as fast
            return file.read()
    except OSError:
        return b""


def _send(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
