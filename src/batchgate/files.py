"""Writing a small file that others read: all of it is there, or nothing, also after a crash."""

from __future__ import annotations

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write a file beside its place, have it on the disk, and move it there.

    Args:
        path: Where; what stood there is replaced.
        text: Its content.

    Raises:
        OSError: The disk refused; the file is as it was.
    """
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with scratch.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def _flush_folder(folder: Path) -> None:
    """Have a rename in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
