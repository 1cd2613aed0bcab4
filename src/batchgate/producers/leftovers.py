"""What a model server that was killed leaves on its node: shared memory, and its private folder.

vLLM 0.32 passes its engine's messages through named shared memory, a quarter of a gigabyte each,
that only an orderly end removes. What a server has is noted beside its log once it is ready, so
that the next one on the same node can remove it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path

PREFIX = "batchgate-"
"""Begins the name of a server's private folder."""

SHM = Path("/dev/shm")  # noqa: S108 - where Linux keeps named shared memory
_NAME = re.compile(r"(psm|sem)[A-Za-z0-9_.-]{1,64}")
"""Names that Python's multiprocessing gives."""
_MAX_BYTES = 64 * 1024


def note(path: Path, pids: Iterable[int], folder: Path) -> None:
    """Note what the processes of a server have.

    A note that cannot be written is left out: it only saves memory.

    Args:
        path: Where.
        pids: The server's processes.
        folder: Its private folder.
    """
    names = sorted({name for pid in pids for name in _mapped(pid)})
    with contextlib.suppress(OSError):
        path.write_text(json.dumps({"shm": names, "folder": str(folder)}), encoding="ascii")


def clear(path: Path, *, keep: Path | None = None) -> list[str]:
    """Remove what an earlier server noted and no live process has; return what was removed.

    The note is taken as a hint: only our own files of the right names are touched.

    Args:
        path: Where `note` wrote.
        keep: A folder that is not removed, because the next server uses it again.
    """
    try:
        noted = json.loads(path.read_bytes()[:_MAX_BYTES])
        names, folder = [str(name) for name in noted["shm"]], Path(noted["folder"])
    except (OSError, ValueError, TypeError, KeyError):
        return []
    in_use = {name for pid in _pids() for name in _mapped(pid)}
    removed = []
    for name in names:
        if _NAME.fullmatch(name) and name not in in_use and _ours(SHM / name):
            with contextlib.suppress(OSError):
                (SHM / name).unlink()
                removed.append(name)
    if folder != keep and folder.name.startswith(PREFIX) and _ours(folder):
        shutil.rmtree(folder, ignore_errors=True)
        removed.append(str(folder))
    path.unlink(missing_ok=True)
    return removed


def _ours(path: Path) -> bool:
    with contextlib.suppress(OSError):
        return path.lstat().st_uid == os.getuid()
    return False


def _pids() -> list[int]:
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]


def _mapped(pid: int) -> set[str]:
    """Return the names of the shared memory that a process has mapped."""
    start = f"{SHM}/"
    found = set[str]()
    with contextlib.suppress(OSError):  # another user's, or ended by now
        for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines():
            path = line.partition("/")[1] + line.partition("/")[2]
            if path.startswith(start) and not path.endswith(" (deleted)"):
                found.add(path.removeprefix(start))
    return found
