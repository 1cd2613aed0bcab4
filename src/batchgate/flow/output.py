"""Bounded files for what a process prints: the head and the tail stay, the middle is dropped.

A process that prints without end costs neither disk nor memory, and it is not ended for it: what
it prints is read and dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from pathlib import Path
from typing import Self

HEAD_BYTES = 16 << 20
"""Bytes kept from the start."""
TAIL_BYTES = 64 << 10
"""Bytes kept from the end, when there were more than `HEAD_BYTES`."""
ERROR_CHARS = 2000
_CHUNK_BYTES = 64 << 10
_PAUSE_S = 0.001


def one_line(text: str) -> str:
    """Return text fit for `TaskEnd.error`: one line, printable, at most 2,000 characters."""
    start = text[: 10 * ERROR_CHARS]
    printable = "".join(char if char.isprintable() else " " for char in start)
    return " ".join(printable.split())[:ERROR_CHARS]


class BoundedLog:
    """A new file that keeps the first and the last bytes written to it.

    A full disk is no error here: what it refuses is dropped.

    Args:
        path: The file. What stood there is removed first, so a link is never followed.
        head_bytes: Bytes kept from the start.

    Raises:
        OSError: The file cannot be made.
    """

    def __init__(self, path: Path, *, head_bytes: int = HEAD_BYTES) -> None:
        path.unlink(missing_ok=True)
        self._file = path.open("xb", buffering=0)
        self._head_bytes = head_bytes
        self._written = 0
        self._tail = b""

    @property
    def full(self) -> bool:
        """Whether further bytes are dropped."""
        return self._written >= self._head_bytes

    @property
    def tail(self) -> str:
        """The last bytes written, as text."""
        return self._tail.decode("utf-8", "replace")

    def write(self, data: bytes) -> None:
        """Take bytes."""
        room = max(0, self._head_bytes - self._written)
        self._written += len(data)
        self._tail = (self._tail + data)[-TAIL_BYTES:]
        self._store(data[:room])

    def restart(self) -> None:
        """Forget everything written so far."""
        if self._written:
            self._written, self._tail = 0, b""
            self._file.seek(0)
            self._file.truncate()

    def close(self) -> None:
        """Write the tail when bytes were dropped, and close the file."""
        if (dropped := self._written - self._head_bytes) > 0:
            tail = self._tail[-dropped:]
            self._store(b"\n[%d bytes left out]\n" % (dropped - len(tail)) + tail)
        self._file.close()

    def _store(self, data: bytes) -> None:
        if data:
            with contextlib.suppress(OSError):
                self._file.write(data)


class Pump:
    """A pipe whose bytes go to a `BoundedLog` as they come.

    Attributes:
        log: Where they go.
        write_end: Descriptor to start the process with.

    Raises:
        OSError: The file cannot be made.
    """

    def __init__(self, path: Path, *, head_bytes: int = HEAD_BYTES) -> None:
        self.log = BoundedLog(path, head_bytes=head_bytes)
        self._loop = asyncio.get_running_loop()
        self._read_end, self.write_end = os.pipe()
        os.set_blocking(self._read_end, False)
        self._open = True
        self._loop.add_reader(self._read_end, self._read)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def started(self) -> None:
        """Close our copy of the write end: the process has its own, or could not be started."""
        if self.write_end >= 0:
            os.close(self.write_end)
            self.write_end = -1

    def drain(self) -> None:
        """Take what is in the pipe now, at most 1 MiB of it."""
        for _ in range(16):
            if not self._take():
                return

    def close(self) -> None:
        """Take the rest and close pipe and log."""
        self.started()
        self.drain()
        self._loop.remove_reader(self._read_end)
        self._open = False
        os.close(self._read_end)
        self.log.close()

    def _read(self) -> None:
        data = self._take()
        if data == b"":
            self._loop.remove_reader(self._read_end)
        elif self.log.full:
            # One that prints without end must not have the event loop for itself.
            self._loop.remove_reader(self._read_end)
            self._loop.call_later(_PAUSE_S, self._resume)

    def _resume(self) -> None:
        if self._open:
            self._loop.add_reader(self._read_end, self._read)

    def _take(self) -> bytes | None:
        """Take one chunk; empty when the last writer is gone, `None` when there is none now."""
        try:
            data = os.read(self._read_end, _CHUNK_BYTES)
        except BlockingIOError:
            return None
        self.log.write(data)
        return data
