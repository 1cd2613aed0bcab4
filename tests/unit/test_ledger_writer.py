import asyncio
import json
import os
import subprocess
import sys
import threading
import warnings
from pathlib import Path

import pytest

from batchgate.errors import LedgerHeldError, LedgerMismatchError, LedgerWriteError
from batchgate.events import (
    AttemptStarted,
    FailureRecorded,
    ProposalMade,
    SegmentClosed,
    SegmentOpened,
)
from batchgate.ledger import Ledger, read, reader

ATTEMPT = AttemptStarted(decision=1, attempt=1)


def open_ledger(tmp_path, **options):
    return Ledger.open(tmp_path / "ledger", **{"run": "orbits-1", "environ": {}, **options})


def events_of(tmp_path):
    return [entry.event for entry in read(tmp_path / "ledger")]


def test_the_first_life_writes_the_first_segment(tmp_path):
    with open_ledger(tmp_path) as ledger:
        ledger.append(ATTEMPT)

    opened, attempt, closed = events_of(tmp_path)
    assert isinstance(opened, SegmentOpened)
    assert (opened.run, opened.segment, opened.previous, opened.previous_hash) == (
        "orbits-1",
        1,
        "",
        "",
    )
    assert (attempt, closed) == (ATTEMPT, SegmentClosed())


def test_a_segment_names_its_writer(tmp_path):
    environ = {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "1", "HOME": "/home/me"}

    with open_ledger(tmp_path, environ=environ):
        pass

    opened = events_of(tmp_path)[0]
    assert isinstance(opened, SegmentOpened)
    assert opened.pid == os.getpid()
    assert opened.process_started.isdigit()
    assert opened.host
    assert opened.boot
    assert int(opened.monotonic_ns) > 0
    assert opened.slurm == {"job_id": "77", "restart_count": "1"}


def test_a_later_life_goes_on_from_the_last_line(tmp_path):
    with open_ledger(tmp_path) as ledger:
        ledger.append(ATTEMPT)
    last = list(read(tmp_path / "ledger"))[-1]

    with open_ledger(tmp_path) as ledger:
        appended = ledger.append(ATTEMPT)

    opened = events_of(tmp_path)[3]
    assert isinstance(opened, SegmentOpened)
    assert (opened.segment, opened.previous) == (2, "0001.jsonl")
    assert (
        opened.previous_hash
        == json.loads((tmp_path / "ledger" / "0001.jsonl").read_text().splitlines()[-1])["~"]
    )
    assert appended.entry.seq == last.seq + 2
    assert appended.segment == "0002.jsonl"


def test_what_a_killed_life_left_is_synced_before_the_next_segment_goes_on_from_it(
    tmp_path, monkeypatch
):
    open_ledger(tmp_path).close()
    synced = []

    def fsync(fd):
        name = Path(f"/proc/self/fd/{fd}").readlink().name
        synced.append((name, (tmp_path / "ledger" / "0002.jsonl").exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    open_ledger(tmp_path).close()

    assert ("0001.jsonl", False) in synced
    assert ("ledger", True) in synced


def test_append_tells_what_a_reader_will_get(tmp_path):
    event = ProposalMade(decision=1, attempt=1, proposal={"points": ((1, 2), (3, 4))})

    with open_ledger(tmp_path, clock=lambda: 123) as ledger:
        appended = ledger.append(event)
        line = ledger.path.read_bytes().splitlines()[-1]

    assert appended.entry == list(read(tmp_path / "ledger"))[1]
    assert isinstance(appended.entry.event, ProposalMade)
    assert appended.entry.event.proposal == {"points": [[1, 2], [3, 4]]}
    assert (appended.entry.at_ns, appended.hash) == (123, json.loads(line)["~"])


def test_every_event_is_one_write_of_one_line(tmp_path):
    writes = []

    def write(fd, data):
        writes.append(data)
        return os.write(fd, data)

    with open_ledger(tmp_path, write=write) as ledger:
        ledger.append(ATTEMPT)

    assert [data.count(b"\n") for data in writes] == [1, 1, 1]
    assert all(data.endswith(b"\n") for data in writes)


def test_what_was_appended_is_there_for_others_at_once(tmp_path):
    with open_ledger(tmp_path) as ledger:
        ledger.append(ATTEMPT)

        assert events_of(tmp_path)[-1] == ATTEMPT


def test_segments_can_be_read_by_owner_and_group_only(tmp_path):
    with open_ledger(tmp_path) as ledger:
        mode = ledger.path.stat().st_mode & 0o777

    assert mode & 0o137 == 0


def test_entries_are_those_of_earlier_lives_each_time(tmp_path):
    with open_ledger(tmp_path) as ledger:
        assert list(ledger.entries) == []
        ledger.append(ATTEMPT)

    with open_ledger(tmp_path) as ledger:
        ledger.append(ATTEMPT)
        types = [entry.event.type for entry in ledger.entries]

        assert types == ["segment_opened", "attempt_started", "segment_closed"]
        assert len(list(ledger.entries)) == 3


def test_a_second_writer_is_refused(tmp_path):
    with open_ledger(tmp_path), pytest.raises(LedgerHeldError, match=f"pid {os.getpid()}"):
        open_ledger(tmp_path)

    assert len(events_of(tmp_path)) == 2


def test_another_run_is_refused_and_the_lease_given_back(tmp_path):
    open_ledger(tmp_path).close()

    with pytest.raises(LedgerMismatchError, match="is of run 'orbits-1', not 'orbits-2'"):
        open_ledger(tmp_path, run="orbits-2")

    open_ledger(tmp_path).close()
    assert len(events_of(tmp_path)) == 4


def test_a_segment_that_appears_behind_our_back_is_another_writers(tmp_path, monkeypatch):
    open_ledger(tmp_path).close()
    monkeypatch.setattr(reader, "segment_numbers", lambda folder: [])

    with pytest.raises(LedgerHeldError, match=r"0001\.jsonl has just been made by another"):
        open_ledger(tmp_path)


@pytest.mark.parametrize(
    "event",
    [
        ProposalMade(decision=1, attempt=1, proposal=float("nan")),
        ProposalMade(decision=1, attempt=1, proposal=object()),
        AttemptStarted.model_construct(decision="three"),  # type: ignore[call-arg, arg-type]
    ],
)
def test_an_event_that_cannot_be_read_back_is_refused_and_nothing_is_lost(tmp_path, event):
    with open_ledger(tmp_path) as ledger:
        with pytest.raises(LedgerWriteError, match="cannot be recorded"):
            ledger.append(event)
        ledger.append(FailureRecorded(kind="check", what="bug", message="odd event"))

    assert [e.type for e in events_of(tmp_path)] == [
        *("segment_opened", "failure_recorded", "segment_closed")
    ]


def test_nesting_that_no_reader_could_read_is_refused(tmp_path):
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]

    with open_ledger(tmp_path) as ledger, pytest.raises(LedgerWriteError, match="recorded"):
        ledger.append(ProposalMade(decision=1, attempt=1, proposal=deep))


def test_a_closed_ledger_refuses_more_and_closes_only_once(tmp_path):
    ledger = open_ledger(tmp_path)
    ledger.close()
    ledger.close()

    with pytest.raises(LedgerWriteError, match="is closed"):
        ledger.append(ATTEMPT)
    with pytest.raises(LedgerWriteError, match="is closed"):
        ledger.commit_now()
    assert len(events_of(tmp_path)) == 2


async def test_a_closed_ledger_refuses_to_commit(tmp_path):
    ledger = open_ledger(tmp_path)
    ledger.close()

    with pytest.raises(LedgerWriteError, match="is closed"):
        await ledger.commit()


def test_the_segment_is_closed_when_the_block_ends_with_an_error(tmp_path):
    with pytest.raises(ZeroDivisionError), open_ledger(tmp_path):
        raise ZeroDivisionError

    assert events_of(tmp_path)[-1] == SegmentClosed()


class Disk:
    """Counts syncs, and holds the next one back until it is let go."""

    def __init__(self):
        self.syncs = 0
        self.began = threading.Event()
        self.go = threading.Event()
        self.go.set()

    def sync(self, fd):
        self.syncs += 1
        self.began.set()
        assert self.go.wait(30)
        os.fdatasync(fd)

    def hold(self):
        self.syncs = 0
        self.began.clear()
        self.go.clear()


async def test_commits_that_wait_together_share_one_sync(tmp_path):
    disk = Disk()
    with open_ledger(tmp_path, sync=disk.sync) as ledger:
        disk.hold()
        first = asyncio.create_task(ledger.commit())
        await asyncio.to_thread(disk.began.wait, 30)
        later = [asyncio.create_task(append_and_commit(ledger)) for _ in range(20)]
        await asyncio.sleep(0)
        disk.go.set()
        await asyncio.gather(first, *later)

        assert disk.syncs == 2


async def append_and_commit(ledger):
    ledger.append(ATTEMPT)
    await ledger.commit()


async def test_a_commit_is_not_content_with_a_sync_that_began_before_it(tmp_path):
    disk = Disk()
    with open_ledger(tmp_path, sync=disk.sync) as ledger:
        disk.hold()
        first = asyncio.create_task(ledger.commit())
        await asyncio.to_thread(disk.began.wait, 30)
        second = asyncio.create_task(ledger.commit())
        disk.go.set()
        await first
        assert not second.done()
        await second

        assert disk.syncs == 2


async def test_the_loop_goes_on_while_the_disk_is_slow(tmp_path):
    disk = Disk()
    with open_ledger(tmp_path, sync=disk.sync) as ledger:
        disk.hold()
        commit = asyncio.create_task(ledger.commit())
        await asyncio.to_thread(disk.began.wait, 30)

        ledger.append(ATTEMPT)

        assert not commit.done()
        disk.go.set()
        await commit


async def test_a_cancelled_commit_leaves_the_ledger_whole(tmp_path):
    disk = Disk()
    with open_ledger(tmp_path, sync=disk.sync) as ledger:
        disk.hold()
        cancelled = asyncio.create_task(ledger.commit())
        await asyncio.to_thread(disk.began.wait, 30)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        waiting = asyncio.create_task(ledger.commit())
        await asyncio.sleep(0)
        disk.go.set()
        await waiting

    assert disk.syncs == 3
    assert len(events_of(tmp_path)) == 2


def test_a_ledger_is_not_used_in_a_forked_child(tmp_path, monkeypatch):
    ledger = open_ledger(tmp_path)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        with pytest.raises(LedgerWriteError, match="used in a forked child"):
            ledger.append(ATTEMPT)
        with pytest.raises(LedgerWriteError, match="used in a forked child"):
            ledger.commit_now()
        ledger.close()

    ledger.append(ATTEMPT)
    ledger.close()
    assert len(events_of(tmp_path)) == 3


def test_a_real_forked_child_can_neither_write_nor_end_the_ledger(tmp_path):
    with open_ledger(tmp_path) as ledger:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # the lease has a thread
            pid = os.fork()
        if pid == 0:
            try:
                ledger.append(ATTEMPT)
            except LedgerWriteError:
                ledger.close()
                os._exit(17)
            os._exit(1)
        _, status = os.waitpid(pid, 0)
        ledger.append(ATTEMPT)
        ledger.commit_now()

    assert os.waitstatus_to_exitcode(status) == 17
    assert len(events_of(tmp_path)) == 3


def test_processes_that_follow_one_another_write_a_segment_each(tmp_path):
    script = (
        "import sys; from pathlib import Path; from batchgate.ledger import Ledger;"
        "Ledger.open(Path(sys.argv[1]), run='orbits-1')"
    )
    for _ in range(3):  # each ends without closing
        subprocess.run([sys.executable, "-c", script, str(tmp_path / "ledger")], check=True)

    opened = [event for event in events_of(tmp_path) if isinstance(event, SegmentOpened)]
    assert [event.segment for event in opened] == [1, 2, 3]
    assert len({event.pid for event in opened}) == 3
