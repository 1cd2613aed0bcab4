"""Making and syncing files, and saying what to do when the disk refuses."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from ..errors import LedgerHeldError, LedgerWriteError

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_FORBIDDEN = {errno.EROFS, errno.EACCES, errno.EPERM}


def write_error(path: Path, exc: OSError) -> LedgerWriteError:
    """Say that something was not recorded, and what to do about it."""
    if exc.errno in _FULL:
        advice = "free space or quota, or raise the limit of a file's size (ulimit -f)"
    elif exc.errno in _FORBIDDEN:
        advice = "make the run's directory writable"
    else:
        advice = "see that the run's directory exists and its file system works"
    return LedgerWriteError(
        f"{path}: {exc.strerror}: not recorded, so nothing more is launched; {advice}, and run again"
    )


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an `OSError` inside into a `LedgerWriteError`."""
    try:
        yield
    except OSError as exc:
        raise write_error(path, exc) from exc


def make_folder(folder: Path) -> None:
    """Make a folder in an existing one, such that it outlives the node, unless it is there."""
    try:
        folder.mkdir(0o750)
    except FileExistsError:
        return
    sync_path(folder.parent)


def create(path: Path) -> int:
    """Create a file that nobody else has, and open it for appending.

    Raises:
        LedgerHeldError: It is there already.
    """
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o640)
    except FileExistsError as exc:
        # Not listed a moment ago: NFS shows another node's new files late.
        raise LedgerHeldError(
            f"{path} has just been made by another runner; see that it has ended, and run again"
        ) from exc


def sync_path(path: Path) -> None:
    """Bring a file, or the names in a folder, to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    except OSError as exc:
        if exc.errno != errno.EINVAL:  # fsync(2): a file system that cannot sync folders
            raise
    finally:
        os.close(fd)
