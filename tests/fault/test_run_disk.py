"""The real command on a disk that refuses: it stops, says what to do, and leaves a whole record."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from batchgate.events import JobPlanned
from batchgate.ledger import check_run, read

ROOT = Path(__file__).parents[2]
BRANIN = ROOT / "campaigns" / "branin"
NO_RECORD = 4

# argv: what fails, after how many calls of it, with which error number, and what `batchgate` gets.
FAULTY = """
import ctypes, os, resource, sys
from unittest import mock
from batchgate.cli import main, wiring

what, left, code, *argv = sys.argv[1:]
left, code, open_ledger = int(left), int(code), wiring.Ledger.open
real = {"write": os.write, "sync": os.fdatasync}

def failing(*args):
    global left
    left -= 1
    if left < 0:
        raise OSError(code, os.strerror(code))
    return real[what](*args)

def opened(folder, **options):
    return open_ledger(folder, **{what: failing}, **options)

if what == "rights":  # root's to write anywhere (capabilities(7): PR_CAPBSET_DROP, DAC_OVERRIDE)
    ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
    os.execv(sys.executable, [sys.executable, "-m", "batchgate", *argv])
if what == "size":
    resource.setrlimit(resource.RLIMIT_FSIZE, (left, left))
    main(argv)
with mock.patch.object(wiring.Ledger, "open", opened):
    main(argv)
"""


def start(
    folder: Path, *, what: str = "write", after: int = 10**6, code: int = errno.EIO
) -> subprocess.Popen[str]:
    """Start a run whose disk begins to fail; by default never."""
    run = ["run", str(BRANIN), "--run", str(folder), "--producer", "none", "--slots", "2"]
    limits = ["--max-jobs", "12", "--set", "constants.pause_s=0.2"]
    return subprocess.Popen(
        [sys.executable, "-c", FAULTY, what, str(after), str(code), *run, *limits],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=ROOT,
        env={**os.environ, "HOME": "/"},
    )


def finish(process: subprocess.Popen[str]) -> str:
    output, _ = process.communicate(timeout=100)
    return output


def until(happened: Callable[[], bool], *, timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.02)


def says(folder: Path, kind: str, count: int) -> Callable[[], bool]:
    """Whether a ledger has so many events of a kind."""
    segment = folder / "ledger" / "0001.jsonl"
    return lambda: segment.exists() and segment.read_text().count(f'"type":"{kind}"') >= count


@pytest.fixture
def run_folder(tmp_path: Path) -> Iterator[Path]:
    """A run's directory; no process of the run may live on after the test."""
    folder = tmp_path / "run"
    yield folder
    assert [p.name for p in Path("/proc").glob("[0-9]*") if str(folder) in _told_by(p)] == []


def _told_by(process: Path) -> str:
    """Return a process's command line and working folder; a dead one has none."""
    with contextlib.suppress(OSError):
        return f"{(process / 'cmdline').read_bytes()!r} {(process / 'cwd').readlink()}"
    return ""


def refused(process: subprocess.Popen[str], output: str) -> None:
    """See that the run ended as one whose record cannot be kept."""
    assert process.returncode == NO_RECORD, output
    assert "Traceback" not in output
    assert "batchgate: " in output.splitlines()[-1]


def whole(folder: Path) -> int:
    """See that the record is readable and explains every job; return how many were planned."""
    planned = [e for e in read(folder / "ledger") if isinstance(e.event, JobPlanned)]
    assert check_run(folder) == []
    return len(planned)


@pytest.mark.parametrize(
    ("code", "advice"),
    [(errno.ENOSPC, "free space or quota"), (errno.EIO, "its file system works")],
)
def test_a_write_that_fails_ends_the_run_and_leaves_what_was_written(
    run_folder: Path, code: int, advice: str
) -> None:
    process = start(run_folder, what="write", after=14, code=code)

    output = finish(process)

    refused(process, output)
    assert advice in output
    assert len(list(read(run_folder / "ledger"))) == 14
    assert 1 <= whole(run_folder) <= 3


def test_a_sync_that_fails_launches_nothing_on_the_strength_of_it(run_folder: Path) -> None:
    process = start(run_folder, what="sync", after=2, code=errno.EIO)

    output = finish(process)

    refused(process, output)
    assert whole(run_folder) >= 1
    assert list((run_folder / "jobs").glob("*/stdout")) == []


def test_a_limit_of_the_file_size_ends_the_run_and_the_next_goes_on(run_folder: Path) -> None:
    process = start(run_folder, what="size", after=8192)

    output = finish(process)

    refused(process, output)
    assert "ulimit -f" in output
    planned = whole(run_folder)

    process = start(run_folder)
    output = finish(process)

    assert process.returncode == 0, output
    assert whole(run_folder) > planned


def test_a_directory_that_may_not_be_written_is_refused_before_anything_starts(
    run_folder: Path,
) -> None:
    run_folder.mkdir()
    run_folder.chmod(0o555)

    process = start(run_folder, what="rights")
    output = finish(process)

    refused(process, output)
    assert "writable" in output
    assert list(run_folder.iterdir()) == []


def test_a_job_folder_that_cannot_be_made_ends_the_run(run_folder: Path) -> None:
    run_folder.mkdir()
    (run_folder / "jobs").write_text("a file in place of the folder refuses root as well")

    process = start(run_folder)
    output = finish(process)

    refused(process, output)
    assert "cannot be made" in output
    assert any(isinstance(entry.event, JobPlanned) for entry in read(run_folder / "ledger"))


def move(folder: Path) -> Path:
    return folder.rename(f"{folder}-moved")


def remove(folder: Path) -> None:
    # Moved first, and as far as it goes: jobs that run in it may still write.
    shutil.rmtree(move(folder), ignore_errors=True)


@pytest.mark.parametrize("vanish", [move, remove])
def test_a_run_directory_that_vanishes_ends_the_run(
    run_folder: Path, vanish: Callable[[Path], object]
) -> None:
    process = start(run_folder)
    until(says(run_folder, "job_ended", 1))

    vanish(run_folder)
    output = finish(process)

    refused(process, output)
    if vanish is move:
        assert whole(Path(f"{run_folder}-moved")) >= 1
