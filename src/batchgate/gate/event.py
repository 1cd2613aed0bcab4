"""What a gate tells while it decides, and a file of JSON lines to keep it in.

A gate awaits its sink: `started`, then exactly one of `passed`, `failed`, `escalated`. A visit that
a crash cut off is made again, so a file may hold an event twice; its `key` tells, and `read_events`
gives each once. The file is a record to look at. What has been decided is in the state.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from ..decision import cut, texts
from ..plain import dumps, loads

MAX_REASONS: Final = 20
"""Reasons in an event, each of at most 500 characters; the rest is counted."""

Phase = Literal["started", "passed", "failed", "escalated"]


@dataclass(frozen=True, slots=True)
class GateEvent:
    """One fact about one visit.

    Attributes:
        gate: Name of the gate.
        phase: What happened.
        attempt: 1 for the first evaluation since the count last restarted.
        score: The verdict's; `None` at the start, and when there is none or it is not finite.
        reasons: The verdict's, cut to a bound; `()` at the start.
        visit: 1 for the gate's first visit in its thread; it never restarts.
        thread: Names the run that the gate is visited in.
    """

    gate: str
    phase: Phase
    attempt: int
    score: float | None = None
    reasons: tuple[str, ...] = ()
    visit: int = 1
    thread: str = ""

    def __post_init__(self) -> None:
        put = object.__setattr__
        if self.score is not None and not math.isfinite(self.score):
            put(self, "score", None)
        put(self, "reasons", _bounded(texts(self.reasons)))

    @property
    def key(self) -> tuple[str, str, int, int, str]:
        """The same for the same fact told again: thread, gate, visit, attempt, half of the visit.

        With the visit, since an attempt's number returns after a pass. All three ends are one half,
        since a visit made again after a crash may end otherwise, and only the last one counted.
        """
        half = "started" if self.phase == "started" else "ended"
        return (self.thread, self.gate, self.visit, self.attempt, half)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "gate": self.gate,
            "phase": self.phase,
            "attempt": self.attempt,
            "score": self.score,
            "reasons": list(self.reasons),
            "visit": self.visit,
            "thread": self.thread,
        }


Sink = Callable[[GateEvent], Awaitable[object] | object]
"""Takes the events in order; sync or async. What it raises is logged, and changes no decision."""


class JsonLines:
    """A sink that appends each event to a file, as one line of strict JSON.

    A line is `{"at", "thread", "eventType": "GateEvent", "payload"}` with `at` in epoch seconds,
    UTC. The file is made with mode 0600. The lines are handed to the operating system and not
    synced: they outlive the process, and not the node. Several processes may write to one file of
    a local disk. To leave something out, wrap it:
    `lambda event: lines(replace(event, reasons=()))`.

    Args:
        path: The file; its folder must exist.
        clock: Gives the epoch seconds.
    """

    def __init__(self, path: Path | str, *, clock: Callable[[], float] = time.time) -> None:
        self.path = Path(path)
        self.clock = clock

    def __call__(self, event: GateEvent) -> None:
        """Append one event.

        Raises:
            OSError: The file cannot be written, or is a symbolic link.
        """
        payload = event.to_dict()
        thread = payload.pop("thread")
        line = {"at": self.clock(), "thread": thread, "eventType": "GateEvent", "payload": payload}
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        fd = os.open(self.path, flags, 0o600)
        try:
            _append(fd, dumps(line).encode() + b"\n")
        finally:
            os.close(fd)


def read_events(path: Path | str) -> list[GateEvent]:
    """Return the events of a `JsonLines` file, each once, in the order of their first lines.

    Of an event that was told twice, the later one is returned. A line that a crash cut off is left
    out, and so are lines of other types.

    Raises:
        OSError: The file cannot be read.
    """
    events: dict[tuple[object, ...], GateEvent] = {}
    with Path(path).open("rb") as file:
        for line in file:
            if (event := _event_of(line)) is not None:
                events[event.key] = event
    return list(events.values())


def _event_of(line: bytes) -> GateEvent | None:
    try:
        data = loads(line)
        if data["eventType"] != "GateEvent":
            return None
        return GateEvent(thread=data["thread"], **data["payload"])
    except (ValueError, TypeError, KeyError):
        return None


def _append(fd: int, line: bytes) -> None:
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        line = b"\n" + line  # A crash cut the last line off, and this one must not be glued to it.
    while line:
        line = line[os.write(fd, line) :]


def _bounded(reasons: tuple[str, ...]) -> tuple[str, ...]:
    told = tuple(cut(reason) for reason in reasons[:MAX_REASONS])
    left = len(reasons) - len(told)
    return (*told, f"and {left} more reasons") if left else told
