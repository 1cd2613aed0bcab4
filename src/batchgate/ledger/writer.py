"""Writing a ledger: one process, one segment, one write for each line, nothing ever changed.

What `append` returned for survives the death of the process; what `commit` returned for survives
that of the node. When the disk, the lease or a fork stands in the way, `append` and `commit` raise
`LedgerWriteError`, and so does every later call: what cannot be recorded must not be launched.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from ..errors import LedgerMismatchError, LedgerWriteError
from ..events import Entry, Event, SegmentClosed, SegmentOpened
from ..lease import LEASE_S, Holder, Lease
from .disk import create, make_folder, sync_path, write_error, writing
from .line import decode, encode, stored_hash, why
from .reader import Reader, segment_name

_SLURM = {
    "SLURM_JOB_ID": "job_id",
    "SLURM_RESTART_COUNT": "restart_count",
    "SLURM_CLUSTER_NAME": "cluster_name",
    "SLURM_JOB_PARTITION": "partition",
    "SLURM_JOB_NUM_NODES": "nodes",
    "SLURM_JOB_NODELIST": "node_list",
    "SLURM_ARRAY_JOB_ID": "array_job_id",
    "SLURM_ARRAY_TASK_ID": "array_task_id",
}


@dataclass(frozen=True, slots=True)
class Appended:
    """A line that was written, for the `gate.json` of a job that it allows.

    Attributes:
        entry: What a reader will get for it.
        hash: Its hash, in hex.
        segment: File name of its segment.
    """

    entry: Entry
    hash: str
    segment: str


class Ledger:
    """The one writer of a run's ledger. `open` gives one; use it as a context manager.

    `append`, `commit` and `close` belong to the thread of the event loop.

    Attributes:
        folder: The ledger's folder.
        path: The segment that this process writes.
    """

    def __init__(
        self,
        reader: Reader,
        lease: Lease,
        *,
        clock: Callable[[], int],
        write: Callable[[int, bytes], int],
        sync: Callable[[int], None],
    ) -> None:
        """Create the segment after the last one; `reader` has read to the end."""
        self.folder = reader.folder
        self._segment = reader.segment + 1
        self.path = self.folder / segment_name(self._segment)
        self._fd = create(self.path)
        self._seq = reader.seq
        self._hash = reader.hash.encode()
        self._lease = lease
        self._clock = clock
        self._write = write
        self._sync = sync
        self._failure = ""
        self._closed = False
        # Held while the file is synced, so that it is not closed under a cancelled commit.
        self._syncing = threading.RLock()
        # Its own thread: checks that hang in the loop's default ones must not delay a commit.
        self._thread = ThreadPoolExecutor(1, "batchgate-ledger")
        self._turn = asyncio.Lock()
        self._asked = 0
        self._served = 0

    @classmethod
    def open(
        cls,
        folder: Path,
        *,
        run: str,
        clock: Callable[[], int] = time.time_ns,
        lease_s: float = LEASE_S,
        environ: Mapping[str, str] = os.environ,
        write: Callable[[int, bytes], int] = os.write,
        sync: Callable[[int], None] = os.fdatasync,
    ) -> Self:
        """Take the lease, prove what is there, and begin the next segment.

        Blocks while it reads, and for the length of a lease when a holder elsewhere is silent.

        Args:
            folder: The ledger's folder, in an existing directory; made when missing.
            run: Name of the run.
            clock: Nanoseconds since the epoch, UTC.
            lease_s: Seconds of silence after which another machine may take over.
            environ: Where Slurm's variables are.
            write: Writes bytes to a file descriptor and returns how many.
            sync: Brings the data of a file descriptor to the disk.

        Raises:
            LedgerHeldError: Another runner lives and holds the run.
            LedgerMismatchError: The ledger is of another run.
            LedgerCorruptError: A line was changed, or is missing.
            LedgerWriteError: The folder cannot be written.
            LedgerError: The ledger cannot be read, or is of a newer format.
        """
        holder = Holder.here(environ=environ, lease_s=lease_s)
        with contextlib.ExitStack() as undo:
            with writing(folder):
                make_folder(folder)
                lease = Lease.acquire(folder, holder=holder)
                undo.callback(lease.release)
            reader = _read_to_end(folder, run=run)
            with writing(folder):
                _sync_last(reader)
                ledger = cls(reader, lease, clock=clock, write=write, sync=sync)
                undo.pop_all()
                undo.callback(ledger.close)
                sync_path(folder)
            ledger._append_opening(reader, run=run, slurm=slurm_facts(environ))
            undo.pop_all()
        return ledger

    def _append_opening(self, reader: Reader, *, run: str, slurm: Mapping[str, str]) -> None:
        holder = self._lease.holder
        opened = SegmentOpened(
            run=run,
            segment=self._segment,
            previous=segment_name(reader.segment),
            previous_hash=reader.hash,
            host=holder.host,
            pid=holder.pid,
            process_started=holder.process_started,
            boot=holder.boot,
            monotonic_ns=str(time.monotonic_ns()),
            slurm=slurm,
        )
        self.append(opened)
        self.commit_now()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def entries(self) -> Iterator[Entry]:
        """What earlier lives wrote, from the start at each access. `open` has proven its hashes."""
        return iter(Reader(self.folder, verify=False, last=self._segment - 1))

    def append(self, event: Event) -> Appended:
        """Write one event as one whole line. It outlives this process, and a commit the node.

        The event is read back from the line's bytes before they are written, so that what is in
        the ledger can always be read, and live state is what a replay would give.

        Raises:
            LedgerWriteError: The event is not recorded. Launch nothing.
        """
        self._check_usable()
        self._check_lease(self._lease.hold)
        try:
            line = encode(event, seq=self._seq, at_ns=self._clock(), previous=self._hash)
            entry = decode(line)
        except (TypeError, ValueError, RecursionError) as exc:
            raise LedgerWriteError(
                f"{event.type} cannot be recorded, since it holds more than plain data: {why(exc)}"
            ) from exc
        try:
            self._put(line)
        except OSError as exc:
            raise self._fail(exc) from exc
        except BaseException:
            self._failure = f"{self.path}: a write was interrupted; run again"
            raise
        return Appended(entry, self._hash.decode(), self.path.name)

    def _put(self, line: bytes) -> None:
        written = self._write(self._fd, line)
        if written != len(line):
            # A regular file takes less than it is given only when there is no more room.
            raise OSError(errno.ENOSPC, f"only {written} of {len(line)} bytes were written")
        self._seq += 1
        self._hash = stored_hash(line)

    async def commit(self) -> None:
        """Return when everything appended so far is on the disk and the lease is still ours.

        Commits that wait together share one sync.

        Raises:
            LedgerWriteError: It is not, or the lease was lost. Launch nothing.
        """
        self._asked += 1
        mine = self._asked
        async with self._turn:
            if self._served >= mine:
                return
            self._check_usable()
            covered = self._asked
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._thread, self.commit_now)
            self._served = covered

    def commit_now(self) -> None:
        """Do what `commit` does, and block. For the end of a run.

        Raises:
            LedgerWriteError: As `commit`.
        """
        with self._syncing:
            self._check_usable()
            try:
                self._sync(self._fd)
            except OSError as exc:
                # Never tried again: after a failed sync Linux counts the lost pages as clean.
                raise self._fail(exc) from exc
            self._check_lease(self._lease.renew)

    def close(self) -> None:
        """End the segment and give the lease back. Does nothing twice, or in a forked child.

        Raises:
            LedgerWriteError: The end could not be recorded. Everything is closed nevertheless.
        """
        if self._closed or self._is_forked:
            return
        try:
            if not self._failure:
                self.append(SegmentClosed())
                self.commit_now()
        finally:
            with self._syncing:
                self._closed = True
                self._failure = self._failure or f"{self.path}: the ledger is closed"
                os.close(self._fd)
            self._thread.shutdown()
            self._lease.release()

    @property
    def _is_forked(self) -> bool:
        return os.getpid() != self._lease.holder.pid

    def _check_usable(self) -> None:
        if self._is_forked:
            raise LedgerWriteError(
                f"{self.path}: used in a forked child; only the process that opened it may write"
            )
        if self._failure:
            raise LedgerWriteError(self._failure)

    def _check_lease(self, check: Callable[[], None]) -> None:
        try:
            check()
        except LedgerWriteError as exc:
            self._failure = str(exc)
            raise

    def _fail(self, exc: OSError) -> LedgerWriteError:
        error = write_error(self.path, exc)
        self._failure = str(error)
        return error


def _read_to_end(folder: Path, *, run: str) -> Reader:
    reader = Reader(folder)
    for _ in reader.lines():
        pass
    if reader.run not in {"", run}:
        raise LedgerMismatchError(
            f"{folder} is of run {reader.run!r}, not {run!r}; choose another directory"
        )
    return reader


def _sync_last(reader: Reader) -> None:
    # Its writer may have been killed before it synced. What the next segment goes on from must
    # not be lost with the node once that segment is on the disk.
    if reader.segment:
        sync_path(reader.folder / segment_name(reader.segment))


def slurm_facts(environ: Mapping[str, str]) -> dict[str, str]:
    """Return what Slurm says of the job that this process is in; nothing outside of one."""
    return {name: environ[key] for key, name in _SLURM.items() if key in environ}
