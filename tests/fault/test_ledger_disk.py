import asyncio
import contextlib
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from batchgate.errors import LedgerWriteError
from batchgate.events import AttemptStarted, SegmentClosed
from batchgate.lease import Holder, Lease
from batchgate.ledger import Ledger, read

ATTEMPT = AttemptStarted(decision=1, attempt=1)
UNTIL_REFUSED = """
import resource, sys
from pathlib import Path
from batchgate.errors import LedgerWriteError
from batchgate.events import AttemptStarted
from batchgate.ledger import Ledger
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))
with Ledger.open(Path(sys.argv[1]), run="orbits-1") as ledger:
    for refusals in (0, 1):
        try:
            while True:
                seq = ledger.append(AttemptStarted(decision=1, attempt=1)).entry.seq
        except LedgerWriteError as error:
            print(seq, error)
"""
FOR_EVER = """
import asyncio, sys
from pathlib import Path
from batchgate.events import AttemptStarted
from batchgate.ledger import Ledger
async def main():
    with Ledger.open(Path(sys.argv[1]), run="orbits-1") as ledger:
        while True:
            appended = ledger.append(AttemptStarted(decision=1, attempt=1))
            sys.stdout.write(f"{appended.entry.seq} {appended.hash}\\n")
            sys.stdout.flush()
            if appended.entry.seq % 10 == 0:
                await ledger.commit()
asyncio.run(main())
"""
ASLEEP = """
import sys
from pathlib import Path
from batchgate.errors import LedgerWriteError
from batchgate.events import AttemptStarted
from batchgate.ledger import Ledger
with Ledger.open(Path(sys.argv[1]), run="orbits-1", lease_s=0.5) as ledger:
    print("open", flush=True)
    sys.stdin.readline()
    try:
        ledger.append(AttemptStarted(decision=1, attempt=1))
    except LedgerWriteError as error:
        print(error, flush=True)
"""


class Disk:
    """The real disk until it is told to fail."""

    def __init__(self):
        self.write_error = 0
        self.sync_error = 0
        self.cut = 0
        self.syncs = 0

    def write(self, fd, data):
        if self.write_error:
            raise OSError(self.write_error, os.strerror(self.write_error))
        return os.write(fd, data[: -self.cut] if self.cut else data)

    def sync(self, fd):
        self.syncs += 1
        if self.sync_error:
            raise OSError(self.sync_error, os.strerror(self.sync_error))
        os.fdatasync(fd)


def open_ledger(tmp_path, disk=None, **options):
    disk = disk or Disk()
    return Ledger.open(
        tmp_path / "ledger",
        **{"run": "orbits-1", "environ": {}, "write": disk.write, "sync": disk.sync, **options},
    )


def types_of(tmp_path):
    return [entry.event.type for entry in read(tmp_path / "ledger")]


@contextlib.contextmanager
def ledger_that_broke(tmp_path, disk):
    """Give a ledger with one attempt in it; then see that it stays broken and is readable."""
    ledger = open_ledger(tmp_path, disk)
    ledger.append(ATTEMPT)
    yield ledger
    disk.write_error = disk.sync_error = disk.cut = 0
    with pytest.raises(LedgerWriteError):
        ledger.append(ATTEMPT)
    with pytest.raises(LedgerWriteError):
        ledger.commit_now()
    with pytest.raises(LedgerWriteError):
        asyncio.run(ledger.commit())
    ledger.close()
    assert types_of(tmp_path) == ["segment_opened", "attempt_started"]
    open_ledger(tmp_path).close()
    assert types_of(tmp_path)[-2:] == ["segment_opened", "segment_closed"]


def test_a_real_full_disk_ends_the_writing_and_loses_nothing(tmp_path):
    disk = Disk()
    with ledger_that_broke(tmp_path, disk) as ledger, Path("/dev/full").open("wb") as full:
        ledger._write = lambda fd, data: os.write(full.fileno(), data)

        with pytest.raises(LedgerWriteError, match=r"No space left on device.*free space or quota"):
            ledger.append(ATTEMPT)


def test_a_real_limit_of_the_file_size_leaves_all_that_was_acknowledged(tmp_path):
    folder = tmp_path / "ledger"
    ended = subprocess.run(
        [sys.executable, "-c", UNTIL_REFUSED, str(folder)],
        capture_output=True,
        text=True,
        check=True,
    )

    first, second = ended.stdout.splitlines()
    assert "were written: not recorded, so nothing more is launched; free space" in first
    assert second == first
    assert (folder / "0001.jsonl").stat().st_size == 4096
    assert [entry.seq for entry in read(folder)] == list(range(int(first.split()[0]) + 1))


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (errno.EIO, "its file system works"),
        (errno.ESTALE, "its file system works"),
        (errno.EDQUOT, "free space or quota"),
        (errno.EFBIG, "ulimit -f"),
        (errno.EROFS, "writable"),
    ],
)
def test_a_failed_write_says_what_to_do(tmp_path, code, advice):
    disk = Disk()
    with ledger_that_broke(tmp_path, disk) as ledger:
        disk.write_error = code

        with pytest.raises(LedgerWriteError, match=f"{os.strerror(code)}.*{advice}"):
            ledger.append(ATTEMPT)


@pytest.mark.parametrize("cut", [1, 60, 150])
def test_a_line_written_in_part_is_no_line(tmp_path, cut):
    disk = Disk()
    with ledger_that_broke(tmp_path, disk) as ledger:
        disk.cut = cut

        with pytest.raises(LedgerWriteError, match=r"only \d+ of \d+ bytes were written"):
            ledger.append(ATTEMPT)


def test_a_write_cut_short_by_an_interrupt_is_the_last(tmp_path):
    disk = Disk()
    with ledger_that_broke(tmp_path, disk) as ledger:

        def interrupted(fd, data):
            os.write(fd, data[:20])
            raise KeyboardInterrupt

        ledger._write = interrupted
        with pytest.raises(KeyboardInterrupt):
            ledger.append(ATTEMPT)


def test_a_failed_sync_is_never_tried_again(tmp_path):
    disk = Disk()
    with ledger_that_broke(tmp_path, disk) as ledger:
        disk.sync_error = errno.EIO
        with pytest.raises(LedgerWriteError, match="Input/output error"):
            ledger.commit_now()
        syncs = disk.syncs

    assert disk.syncs == syncs


async def test_a_failed_sync_is_told_to_all_who_wait_for_it(tmp_path):
    disk = Disk()
    ledger = open_ledger(tmp_path, disk)
    disk.sync_error = errno.EIO

    results = await asyncio.gather(*(ledger.commit() for _ in range(5)), return_exceptions=True)
    ledger.close()

    assert [type(result) for result in results] == [LedgerWriteError] * 5
    assert disk.syncs == 2


@pytest.mark.parametrize("failing", ["write_error", "sync_error"])
def test_a_disk_that_fails_at_the_start_leaves_the_lease_free(tmp_path, failing):
    disk = Disk()
    setattr(disk, failing, errno.ENOSPC)
    with pytest.raises(LedgerWriteError, match="No space left"):
        open_ledger(tmp_path, disk)

    with open_ledger(tmp_path) as ledger:
        assert ledger.path.name == "0002.jsonl"


def test_an_end_that_cannot_be_recorded_is_told_and_the_lease_is_free(tmp_path):
    disk = Disk()
    ledger = open_ledger(tmp_path, disk)
    disk.write_error = errno.EIO

    with pytest.raises(LedgerWriteError, match="Input/output error"):
        ledger.close()

    ledger.close()
    open_ledger(tmp_path).close()
    assert types_of(tmp_path) == ["segment_opened", "segment_opened", "segment_closed"]


@contextlib.contextmanager
def folder_we_may_not_write():
    """Give a folder whose permissions hold for this process, root or not."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield folder
    finally:
        os.seteuid(user)
        folder.chmod(0o755)
        shutil.rmtree(folder)


def test_a_read_only_directory_is_told_at_the_start():
    with (
        folder_we_may_not_write() as folder,
        pytest.raises(LedgerWriteError, match=r"Permission denied.*make the run's directory writ"),
    ):
        Ledger.open(folder / "ledger", run="orbits-1")


def test_a_directory_that_is_not_there_is_told_at_the_start(tmp_path):
    with pytest.raises(LedgerWriteError, match="see that the run's directory exists"):
        open_ledger(tmp_path / "nowhere")


def test_a_ledger_that_is_a_file_is_told_at_the_start(tmp_path):
    (tmp_path / "ledger").write_text("")

    with pytest.raises(LedgerWriteError, match="Not a directory"):
        open_ledger(tmp_path)


def remove(run_dir):
    shutil.rmtree(run_dir)


def move(run_dir):
    run_dir.rename(run_dir.with_name("elsewhere"))


@pytest.mark.parametrize("lose", [remove, move])
def test_a_run_directory_that_vanishes_is_noticed_at_the_next_commit(tmp_path, lose):
    run_dir = tmp_path / "run"
    run_dir.mkdir()
    ledger = open_ledger(run_dir)
    lose(run_dir)

    with pytest.raises(LedgerWriteError, match="moved or removed"):
        ledger.commit_now()

    with pytest.raises(LedgerWriteError, match="moved or removed"):
        ledger.append(ATTEMPT)
    ledger.close()


def fail_fsync_with(code):
    def fsync(fd):
        raise OSError(code, os.strerror(code))

    return fsync


def test_a_file_system_that_cannot_sync_folders_will_do(tmp_path, monkeypatch):
    (tmp_path / "ledger").mkdir()
    open_ledger(tmp_path).close()
    lease = Lease.acquire(tmp_path / "ledger")
    with monkeypatch.context() as patch:
        patch.setattr(Lease, "acquire", lambda folder, holder: lease)
        patch.setattr(os, "fsync", fail_fsync_with(errno.EINVAL))
        open_ledger(tmp_path).close()

    assert types_of(tmp_path) == ["segment_opened", "segment_closed"] * 2


def test_a_folder_that_cannot_be_synced_is_told_at_the_start(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "fsync", fail_fsync_with(errno.EIO))

    with pytest.raises(LedgerWriteError, match="Input/output error"):
        open_ledger(tmp_path)


def test_killed_writers_lose_nothing_that_was_acknowledged(tmp_path):
    folder = tmp_path / "ledger"
    chance = random.Random(7)
    acknowledged = []
    for _ in range(5):
        with subprocess.Popen(
            [sys.executable, "-c", FOR_EVER, str(folder)], stdout=subprocess.PIPE, text=True
        ) as writer:
            assert writer.stdout is not None
            told = [writer.stdout.readline() for _ in range(chance.randrange(1, 200))]
            writer.send_signal(signal.SIGKILL)
            told += [line for line in writer.stdout if line.endswith("\n")]
        acknowledged += [int(line.split()[0]) for line in told]

    entries = list(read(folder))

    attempts = {entry.seq for entry in entries if entry.event == ATTEMPT}
    assert set(acknowledged) <= attempts
    assert [entry.seq for entry in entries] == list(range(len(entries)))
    assert not any(isinstance(entry.event, SegmentClosed) for entry in entries)


def test_a_writer_that_slept_through_its_lease_writes_no_more(tmp_path):
    folder = tmp_path / "ledger"
    with subprocess.Popen(
        [sys.executable, "-c", ASLEEP, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "open\n"
        writer.send_signal(signal.SIGSTOP)
        # Seen from another machine, where nothing can be known of its process.
        other = Holder.here(environ={}, lease_s=0.5).model_copy(update={"host": "n002"})
        lease = Lease.acquire(folder, holder=other)
        before = (folder / "0001.jsonl").read_bytes()
        writer.send_signal(signal.SIGCONT)
        output, _ = writer.communicate("go\n", timeout=60)

    lease.renew()
    lease.release()
    assert "another runner took over; this one must stop" in output
    assert (folder / "0001.jsonl").read_bytes() == before
