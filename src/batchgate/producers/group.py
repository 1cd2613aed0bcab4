"""The processes of a model server: found and ended together, whoever their parent is now.

vLLM 0.32 is an API server, an engine and workers. An API server that is killed leaves the others
alive with their memory, so what counts is the whole session; a process that left the session still
carries the mark in its environment. Linux only: it reads `/proc`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

MARK = "BG_MODEL_SERVER"
"""Variable that marks every process of one server."""

_POLL_S = 0.1


def marked(mark: str, session: int | None = None) -> list[int]:
    """Return the live processes that carry a mark or belong to a session, without our own."""
    wanted = os.fsencode(f"{MARK}={mark}")
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        # Other users' processes cannot be read, and any may end while it is looked at.
        with contextlib.suppress(OSError):
            state, of_session = _state_and_session(entry)
            if state not in "ZX" and (of_session == session or wanted in _environ(entry)):
                found.append(int(entry.name))
    return sorted(found)


async def gone(mark: str, session: int | None, *, within_s: float) -> bool:
    """Wait until no process of a server is left; say whether that came about in time."""
    deadline = time.monotonic() + within_s
    while marked(mark, session):
        if time.monotonic() >= deadline:
            return False
        await asyncio.sleep(_POLL_S)
    return True


async def kill(mark: str, session: int | None = None, *, within_s: float) -> list[int]:
    """Kill every process of a server, and return those that are still there in the end.

    The first round comes before anything is waited for, so a cancellation does not prevent it.
    """
    deadline = time.monotonic() + within_s
    # Again and again: one may have forked while it was looked at.
    while found := marked(mark, session):
        for pid in found:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() >= deadline:
            return found
        await asyncio.sleep(_POLL_S)
    return []


def _state_and_session(entry: Path) -> tuple[str, int]:
    # The program's name stands in parentheses and may hold any of them.
    fields = (entry / "stat").read_bytes().rpartition(b")")[2].split()
    return fields[0].decode(), int(fields[3])


def _environ(entry: Path) -> list[bytes]:
    return (entry / "environ").read_bytes().split(b"\0")
