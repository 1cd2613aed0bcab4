"""The lease: which one runner may write a run's directory, over all nodes that mount it.

A lease is a file `lease-0007.json`; the highest number counts. It is created exclusively, so that
of all runners that find number 7 free or dead only one becomes number 8. Its holder touches it
every few seconds. Another runner takes over

* at once, when the holder gave it back, when its process is gone from this very machine, or when
  this is the same Slurm job after a requeue;
* else after it has watched the file for the whole lease and saw no touch. Only changes count:
  the clocks of two machines are never compared.

A holder that was taken over learns it from `renew`, which every commit of the ledger calls. Right
after a successful `renew` nobody takes over by watching for the length of the lease.

`flock` adds what it can where it works: a runner seen to hold its lock is never taken for dead at
once (its pid may be hidden in a container). Nothing depends on it, since Lustre and NFS may be
mounted without it.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .errors import LedgerHeldError, LedgerWriteError

LEASE_S = 60.0
"""Seconds without a touch after which a lease may be taken over. Well above what NFS caches."""

_BEATS = 12  # touches in the length of a lease
_MAX_BYTES = 4096
_NAME = re.compile(r"lease-(\d{4,})\.json")

_log = logging.getLogger(__name__)


class Holder(BaseModel):
    """Who holds a lease: a process that can be looked for, and its Slurm job.

    Attributes:
        host: Host name.
        boot: Id of the kernel's boot. With `host` and `pid_namespace` it says where `pid` counts.
        pid_namespace: Inode of the pid namespace.
        pid: Process id; 0 when the lease was given back.
        process_started: Start of the process in clock ticks since boot, which tells a process
            from a later one with its id.
        slurm_job: Slurm's job id, `""` outside Slurm.
        slurm_cluster: Slurm's name of the cluster.
        slurm_restarts: Times that Slurm had requeued the job.
        token: Random, so that no two leases are alike.
        lease_s: Seconds without a touch after which the lease may be taken over.
    """

    model_config = ConfigDict(frozen=True)

    host: str = ""
    boot: str = ""
    pid_namespace: int = 0
    pid: int = Field(default=0, ge=0, lt=2**31)
    process_started: str = ""
    slurm_job: str = ""
    slurm_cluster: str = ""
    slurm_restarts: int = 0
    token: str = ""
    lease_s: float = Field(default=LEASE_S, gt=0, le=3600)

    @classmethod
    def here(cls, *, environ: Mapping[str, str] = os.environ, lease_s: float = LEASE_S) -> Self:
        """Describe this process."""
        return cls(
            host=socket.gethostname(),
            boot=Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
            pid_namespace=Path("/proc/self/ns/pid").stat().st_ino,
            pid=os.getpid(),
            process_started=_stat(os.getpid())[1],
            slurm_job=environ.get("SLURM_JOB_ID", ""),
            slurm_cluster=environ.get("SLURM_CLUSTER_NAME", ""),
            slurm_restarts=int(environ.get("SLURM_RESTART_COUNT") or 0),
            token=secrets.token_hex(16),
            lease_s=lease_s,
        )

    def __str__(self) -> str:
        job = f" in Slurm job {self.slurm_job}" if self.slurm_job else ""
        return f"pid {self.pid} on host {self.host}{job}"

    def is_alive(self, *, seen_by: Holder) -> bool | None:
        """Whether the process runs, as another one can know without waiting; `None`: it cannot."""
        if (self.host, self.boot, self.pid_namespace) == (
            seen_by.host,
            seen_by.boot,
            seen_by.pid_namespace,
        ):
            return _is_running(self.pid, self.process_started)
        return False if self._was_requeued_as(seen_by) else None

    def _was_requeued_as(self, other: Holder) -> bool:
        return (
            self.slurm_job != ""
            and (self.slurm_job, self.slurm_cluster) == (other.slurm_job, other.slurm_cluster)
            and self.slurm_restarts < other.slurm_restarts
        )


@dataclass(frozen=True, slots=True)
class _Sight:
    """A lease file as it was at one moment."""

    holder: Holder | None  # None when the file says nothing that can be read
    touched_ns: int
    locked: bool

    @property
    def is_free(self) -> bool:
        return self.holder is not None and self.holder.pid == 0

    @property
    def who(self) -> str:
        return str(self.holder or "an unreadable lease")


class Lease:
    """The right to write a run's directory. `acquire` gives one.

    Attributes:
        path: The lease file.
        holder: This process.
    """

    def __init__(
        self, path: Path, fd: int, holder: Holder, *, monotonic: Callable[[], float]
    ) -> None:
        self.path = path
        self.holder = holder
        self._fd = fd
        self._content = holder.model_dump_json().encode()
        self._monotonic = monotonic
        self._touched_at = monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="batchgate-lease", daemon=True)

    @classmethod
    def acquire(
        cls,
        folder: Path,
        *,
        holder: Holder | None = None,
        sleep: Callable[[float], None] = time.sleep,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> Self:
        """Become the only writer. Blocks for the length of the lease when the holder is silent.

        Args:
            folder: Existing folder for the lease files.
            holder: Who asks; by default this process.
            sleep: Waits so many seconds.
            monotonic: Seconds on a clock that never goes back.

        Raises:
            LedgerHeldError: Another runner lives and holds it.
            OSError: The folder cannot be written.
        """
        me = holder or Holder.here()
        while True:
            number = _latest(folder)
            if number:
                _refuse_if_alive(_path(folder, number), me, sleep=sleep, monotonic=monotonic)
            path = _path(folder, number + 1)
            try:
                fd = os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o640)
            except FileExistsError:
                continue  # another runner was faster: judge that one
            lease = cls(path, fd, me, monotonic=monotonic)
            if lease._begin():
                return lease

    def _begin(self) -> bool:
        """Fill the new file. Says no when it came too late: a higher number is there already."""
        try:
            with contextlib.suppress(OSError):  # a mount without locks
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.pwrite(self._fd, self._content, 0)
            os.fsync(self._fd)  # other nodes see nothing of it before (NFS)
            number = _latest(self.path.parent)
        except OSError:
            self._discard()
            raise
        if self.path != _path(self.path.parent, number):
            self._discard()
            return False
        _remove_before(self.path)
        self._thread.start()
        return True

    def _discard(self) -> None:
        self.path.unlink(missing_ok=True)
        os.close(self._fd)

    def renew(self) -> None:
        """Show that we live, and make sure that nobody has taken over.

        Raises:
            LedgerWriteError: The lease is lost, or the file system does not answer. Stop.
        """
        try:
            os.utime(self._fd)
            # Opened anew by its name: NFS looks at the server on open, and only then.
            content = _read(self.path)
            taken = _path(self.path.parent, _number(self.path) + 1).exists()
        except OSError as exc:
            raise LedgerWriteError(
                f"{self.path} cannot be renewed ({exc.strerror}): the run's directory was moved "
                "or removed, or another runner took over; this one must stop"
            ) from exc
        if taken or content != self._content:
            raise LedgerWriteError(
                f"{self.path} was taken over by another runner, since this one was silent for "
                "too long; this one must stop"
            )
        self._touched_at = self._monotonic()

    def hold(self) -> None:
        """Do nothing when the last `renew` is recent, else `renew`. Cheap; raises as `renew` does."""
        if self._monotonic() - self._touched_at > self.holder.lease_s / 4:
            self.renew()

    def release(self) -> None:
        """Give the lease back. Does nothing in a forked child, whose parent goes on."""
        if os.getpid() != self.holder.pid:
            return
        self._ended.set()
        self._thread.join()
        # Overwritten and not removed: numbers must only grow. On failure the process will be gone.
        with contextlib.suppress(OSError):
            os.pwrite(self._fd, b"{}".ljust(len(self._content)), 0)
        os.close(self._fd)

    def _beat(self) -> None:
        # A thread, since a check may block the event loop for longer than a lease; and not a
        # process, since a stopped runner must lose its lease.
        while not self._ended.wait(self.holder.lease_s / _BEATS):
            try:
                self.renew()
            except LedgerWriteError:
                self._touched_at = float("-inf")  # the next `hold` looks again, and raises


@dataclass(frozen=True, slots=True)
class Sign:
    """The last sign of life of a run's runner, as its files show it.

    Attributes:
        who: Its process, host and Slurm job, in words; of the runner before when it is `free`.
        touched_at: When it last said that it is alive, by the clock of the file system, in
            seconds since the epoch.
        free: Whether it gave the run back, as one that ends in order does.
    """

    who: str
    touched_at: float
    free: bool


def last_sign(folder: Path) -> Sign | None:
    """Look who holds, or held, a ledger's folder; `None` when nobody ever did.

    Reads one small file and waits for nothing. A runner whose last touch is older than
    `LEASE_S` is probably dead, unless the clocks of this host and the file system differ.

    Raises:
        OSError: The folder cannot be read.
    """
    seen = _look(_path(folder, _latest(folder)))
    return None if seen is None else Sign(seen.who, seen.touched_ns / 1e9, seen.is_free)


def _refuse_if_alive(
    path: Path, me: Holder, *, sleep: Callable[[float], None], monotonic: Callable[[], float]
) -> None:
    """Return when the lease may be taken over, or has changed hands meanwhile."""
    seen = _look(path)
    if seen is None or seen.is_free:
        return
    alive = seen.holder.is_alive(seen_by=me) if seen.holder else None
    if alive:
        raise _held(path, seen)
    if alive is None or seen.locked:
        _watch(path, seen, me, sleep=sleep, monotonic=monotonic)


def _watch(
    path: Path,
    seen: _Sight,
    me: Holder,
    *,
    sleep: Callable[[float], None],
    monotonic: Callable[[], float],
) -> None:
    """Return when nobody touched the lease for its whole length, or it changed hands."""
    lease_s = max(me.lease_s, seen.holder.lease_s if seen.holder else 0.0)
    _log.warning("%s: held by %s; watching it for %g s", path, seen.who, lease_s)
    pause_s = lease_s / _BEATS if seen.holder else 0.1  # it may be filled at this very moment
    end = monotonic() + lease_s
    while monotonic() < end:
        sleep(pause_s)
        now = _look(path)
        if now is None or now.is_free:
            return
        if now.touched_ns != seen.touched_ns:
            raise _held(path, now)


def _held(path: Path, seen: _Sight) -> LedgerHeldError:
    return LedgerHeldError(
        f"{path.parent} is held by another runner ({seen.who}), which is alive: wait until it has "
        f"ended, or end it. If it is surely gone, remove {path.name} and start again"
    )


def _look(path: Path) -> _Sight | None:
    """See a lease file as it is now; `None` when it is gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = os.read(fd, _MAX_BYTES)
        # The lock is asked for only once there is content: by then its holder has it, and is
        # not kept from getting it.
        return _Sight(_parse(content), os.fstat(fd).st_mtime_ns, bool(content) and _is_locked(fd))
    finally:
        os.close(fd)


def _parse(content: bytes) -> Holder | None:
    try:
        return Holder.model_validate_json(content)
    except ValidationError:
        return None


def _is_locked(fd: int) -> bool:
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False  # a mount without locks says nothing
    return False


def _read(path: Path) -> bytes:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _MAX_BYTES)
    finally:
        os.close(fd)


def _path(folder: Path, number: int) -> Path:
    return folder / f"lease-{number:04d}.json"


def _number(path: Path) -> int:
    name = _NAME.fullmatch(path.name)
    return int(name[1]) if name else 0


def _latest(folder: Path) -> int:
    """Highest number of the lease files in a folder, 0 when there is none."""
    return max(map(_number, folder.iterdir()), default=0)


def _remove_before(path: Path) -> None:
    for other in path.parent.iterdir():
        if 0 < _number(other) < _number(path):
            with contextlib.suppress(OSError):  # a lower number means nothing anyway
                other.unlink()


def _is_running(pid: int, started: str) -> bool:
    """Whether the very process runs, or at least may: another user's can be hidden."""
    try:
        with contextlib.suppress(PermissionError):  # there, and another user's
            os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:
        state, its_start = _stat(pid)
    except OSError:
        return True
    return state not in {"Z", "X"} and its_start == started


def _stat(pid: int) -> tuple[str, str]:
    """State of a process and its start in clock ticks since boot (proc_pid_stat(5))."""
    # The name, in parentheses, may itself hold spaces and parentheses.
    fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return fields[0], fields[19]
