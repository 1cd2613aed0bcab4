import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from batchgate import lease as lease_module
from batchgate.errors import LedgerHeldError, LedgerWriteError
from batchgate.lease import Holder, Lease

ELSEWHERE = {"host": "n002", "boot": "another", "pid": 4242, "token": "theirs"}
CHILD = """
import sys
from pathlib import Path
from batchgate.lease import Lease
lease = Lease.acquire(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
TAKER = """
import sys, time
from pathlib import Path
from batchgate.errors import LedgerHeldError
from batchgate.lease import Lease
print("ready", flush=True)
for line in sys.stdin:
    folder, start = line.split()
    time.sleep(max(0.0, float(start) - time.monotonic()))
    try:
        lease = Lease.acquire(Path(folder))
    except LedgerHeldError:
        print("held", flush=True)
        continue
    print("won", flush=True)
    sys.stdin.readline()
    lease.renew()
    lease.release()
    print("kept", flush=True)
"""


class Time:
    """A clock that moves only when somebody sleeps; `then` happens at the first sleep."""

    def __init__(self, then=lambda: None):
        self.now = 0.0
        self.sleeps = 0
        self._then = then

    def monotonic(self):
        return self.now

    def sleep(self, seconds):
        if self.sleeps == 0:
            self._then()
        self.sleeps += 1
        self.now += seconds


def acquire(folder, clock=None, **holder):
    clock = clock or Time()
    me = Holder.here(environ={}).model_copy(update=holder)
    return Lease.acquire(folder, holder=me, sleep=clock.sleep, monotonic=clock.monotonic)


def leave(folder, *, number=1, **holder):
    """Leave a lease file behind, by default that of a runner on another machine."""
    path = folder / f"lease-{number:04d}.json"
    path.write_text(Holder(**{**ELSEWHERE, **holder}).model_dump_json())
    os.utime(path, ns=(1, 1))
    return path


def here(**changes):
    return {**Holder.here(environ={}).model_dump(), "token": "theirs", **changes}


@pytest.fixture
def child(tmp_path):
    """Start a real holder of the lease of `tmp_path`."""
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_free_folder_gives_a_lease_that_names_its_holder(tmp_path):
    lease = acquire(tmp_path)
    lease.renew()

    held = Holder.model_validate_json((tmp_path / "lease-0001.json").read_bytes())
    lease.release()

    assert (held.pid, held.host) == (os.getpid(), lease.holder.host)


def test_the_lease_file_is_not_for_everybody(tmp_path):
    lease = acquire(tmp_path)

    mode = lease.path.stat().st_mode & 0o777
    lease.release()

    assert mode & 0o137 == 0


def test_slurm_is_read_from_the_environment():
    environ = {"SLURM_JOB_ID": "77", "SLURM_RESTART_COUNT": "2", "SLURM_CLUSTER_NAME": "big"}

    holder = Holder.here(environ=environ)

    assert (holder.slurm_job, holder.slurm_restarts, holder.slurm_cluster) == ("77", 2, "big")


def test_a_lease_given_back_is_free_at_once_and_the_numbers_grow(tmp_path):
    acquire(tmp_path).release()
    clock = Time()

    lease = acquire(tmp_path, clock)
    lease.release()

    assert clock.sleeps == 0
    assert [path.name for path in tmp_path.iterdir()] == ["lease-0002.json"]


def test_a_live_holder_in_this_process_is_respected(tmp_path):
    lease = acquire(tmp_path)

    with pytest.raises(LedgerHeldError, match=rf"pid {os.getpid()} on host .*remove lease-0001"):
        acquire(tmp_path)
    lease.release()


def test_a_killed_holder_is_taken_over_at_once(tmp_path, child):
    child.send_signal(signal.SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie: nobody has asked for it
    clock = Time()

    lease = acquire(tmp_path, clock)
    lease.renew()
    lease.release()

    assert clock.sleeps == 0


def test_a_holder_of_which_nothing_is_left_is_taken_over_at_once(tmp_path):
    with subprocess.Popen(["true"]) as ended:
        ended.wait()
    leave(tmp_path, **here(pid=ended.pid))
    clock = Time()

    acquire(tmp_path, clock).release()

    assert clock.sleeps == 0


def test_a_stopped_holder_on_this_machine_still_holds(tmp_path, child):
    child.send_signal(signal.SIGSTOP)

    with pytest.raises(LedgerHeldError, match=f"pid {child.pid}"):
        acquire(tmp_path)


def test_a_later_process_with_the_same_pid_is_not_the_holder(tmp_path):
    leave(tmp_path, **here(process_started="1"))
    clock = Time()

    acquire(tmp_path, clock).release()

    assert clock.sleeps == 0


def test_a_process_whose_start_is_hidden_is_taken_for_alive(tmp_path, monkeypatch):
    leave(tmp_path, **here(process_started="1"))
    me = Holder.here(environ={})

    def hidden(pid):
        raise FileNotFoundError(errno.ENOENT, "hidepid")

    monkeypatch.setattr(lease_module, "_stat", hidden)

    with pytest.raises(LedgerHeldError):
        Lease.acquire(tmp_path, holder=me)


def test_a_pid_in_another_namespace_says_nothing(tmp_path):
    leave(tmp_path, **here(pid_namespace=1, process_started="1"))
    clock = Time()

    acquire(tmp_path, clock).release()

    assert clock.now >= 60


def test_a_silent_holder_elsewhere_is_taken_over_after_its_own_lease(tmp_path, caplog):
    leave(tmp_path, lease_s=120)
    clock = Time()

    acquire(tmp_path, clock).release()

    assert 120 <= clock.now < 140
    assert "held by pid 4242 on host n002; watching it for 120 s" in caplog.text


def test_a_holder_elsewhere_that_touches_its_lease_keeps_it(tmp_path):
    path = leave(tmp_path)
    clock = Time(then=lambda: os.utime(path))

    with pytest.raises(LedgerHeldError, match="pid 4242 on host n002"):
        acquire(tmp_path, clock)

    assert clock.sleeps == 1


def test_a_touch_with_an_older_time_counts_too(tmp_path):
    path = leave(tmp_path)
    clock = Time(then=lambda: os.utime(path, ns=(0, 0)))

    with pytest.raises(LedgerHeldError):
        acquire(tmp_path, clock)


def test_a_holder_elsewhere_that_gives_back_is_waited_for_no_longer(tmp_path):
    path = leave(tmp_path)
    clock = Time(then=lambda: path.write_text("{}"))

    acquire(tmp_path, clock).release()

    assert clock.sleeps == 1


def test_a_requeued_slurm_job_takes_over_from_its_earlier_run_at_once(tmp_path):
    leave(tmp_path, slurm_job="77", slurm_cluster="big", slurm_restarts=0)
    clock = Time()

    acquire(tmp_path, clock, slurm_job="77", slurm_cluster="big", slurm_restarts=1).release()

    assert clock.sleeps == 0


@pytest.mark.parametrize(
    "theirs",
    [
        {"slurm_job": "77", "slurm_cluster": "big", "slurm_restarts": 1},
        {"slurm_job": "77", "slurm_cluster": "small"},
        {"slurm_job": "78", "slurm_cluster": "big"},
        {"slurm_job": ""},
    ],
)
def test_no_other_job_is_taken_over_without_watching(tmp_path, theirs):
    leave(tmp_path, **theirs)
    clock = Time()

    acquire(tmp_path, clock, slurm_job="77", slurm_cluster="big", slurm_restarts=1).release()

    assert clock.now >= 60


def test_a_holder_that_seems_gone_but_has_its_lock_is_watched_first(tmp_path):
    path = leave(tmp_path, **here(process_started="1"))
    clock = Time()

    with path.open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        acquire(tmp_path, clock).release()

    assert clock.now >= 60


def test_a_mount_without_locks_is_good_enough(tmp_path, monkeypatch):
    def no_locks(fd, operation):
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    leave(tmp_path, **here(process_started="1"))
    clock = Time()

    lease = acquire(tmp_path, clock)
    lease.renew()
    lease.release()

    assert clock.sleeps == 0


@pytest.mark.parametrize("content", ["", "half a li", '{"pid": -1}', '{"lease_s": 1e9}', "[]"])
def test_a_lease_that_cannot_be_read_is_watched(tmp_path, content):
    (tmp_path / "lease-0001.json").write_text(content)
    clock = Time()

    acquire(tmp_path, clock).release()

    assert clock.now >= 60


def test_a_lease_removed_by_hand_is_lost_and_free(tmp_path):
    lost = acquire(tmp_path)
    lost.path.unlink()

    lease = acquire(tmp_path)
    lease.release()

    with pytest.raises(LedgerWriteError, match="this one must stop"):
        lost.renew()
    lost.release()


def test_the_loser_learns_of_a_takeover_and_goes_on_knowing_it(tmp_path):
    loser = acquire(tmp_path, host="n001")
    winner = acquire(tmp_path)

    for _ in range(2):
        with pytest.raises(LedgerWriteError, match="another runner took over"):
            loser.renew()
    winner.renew()
    loser.release()
    winner.renew()
    winner.release()


def test_the_loser_learns_of_a_taker_that_died_before_it_tidied_up(tmp_path):
    loser = acquire(tmp_path)
    leave(tmp_path, number=2)

    with pytest.raises(LedgerWriteError, match="was taken over"):
        loser.renew()
    loser.release()


def test_hold_asks_the_disk_only_now_and_then(tmp_path):
    clock = Time()
    lease = acquire(tmp_path, clock)
    lease.path.unlink()

    lease.hold()
    clock.now = 16

    with pytest.raises(LedgerWriteError):
        lease.hold()
    lease.release()


def test_hold_is_content_again_after_a_renewal(tmp_path):
    clock = Time()
    lease = acquire(tmp_path, clock)
    clock.now = 16

    lease.hold()
    lease.path.unlink()

    lease.hold()
    lease.release()


def test_a_faster_taker_is_judged_in_its_turn(tmp_path):
    leave(tmp_path)
    clock = Time(then=lambda: leave(tmp_path, number=2, **here()))

    with pytest.raises(LedgerHeldError, match=f"pid {os.getpid()}"):
        acquire(tmp_path, clock)


def test_a_taker_that_comes_too_late_steps_back(tmp_path):
    path = leave(tmp_path)

    def two_others():
        path.unlink()
        leave(tmp_path, number=3, **here())

    with pytest.raises(LedgerHeldError, match=f"pid {os.getpid()}"):
        acquire(tmp_path, Time(then=two_others))

    assert [path.name for path in tmp_path.iterdir()] == ["lease-0003.json"]


def test_an_older_lease_that_cannot_be_removed_does_no_harm(tmp_path):
    acquire(tmp_path).release()
    (tmp_path / "lease-0000.json").mkdir()
    old = tmp_path / "lease-0001.json"
    old.unlink()
    old.mkdir()
    leave(tmp_path, number=2, pid=0)

    lease = acquire(tmp_path)
    lease.renew()
    lease.release()

    assert lease.path.name == "lease-0003.json"


def test_a_lease_that_cannot_be_written_is_not_left_behind(tmp_path, monkeypatch):
    def full(fd, data, offset):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "pwrite", full)

    with pytest.raises(OSError, match="No space left"):
        acquire(tmp_path)

    assert not list(tmp_path.iterdir())


def test_a_holder_whose_release_cannot_be_written_still_ends(tmp_path, monkeypatch):
    lease = acquire(tmp_path)

    def full(fd, data, offset):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pwrite", full)
    lease.release()

    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(lease._fd)


def test_release_in_a_forked_child_leaves_the_parents_lease_alone(tmp_path, monkeypatch):
    lease = acquire(tmp_path)
    with monkeypatch.context() as child:
        child.setattr(os, "getpid", lambda: -1)
        lease.release()

    lease.renew()
    lease.release()


def test_the_lease_is_touched_while_the_holder_does_something_else(tmp_path):
    lease = Lease.acquire(tmp_path, holder=Holder.here(environ={}, lease_s=0.12))
    os.utime(lease.path, ns=(1, 1))

    deadline = time.monotonic() + 30
    while lease.path.stat().st_mtime_ns == 1:
        assert time.monotonic() < deadline
    lease.release()


def test_the_holder_notices_a_takeover_without_being_asked(tmp_path):
    holder = Holder.here(environ={}, lease_s=0.12)
    lease = Lease.acquire(tmp_path, holder=holder, monotonic=lambda: 0.0)
    lease.path.unlink()

    with pytest.raises(LedgerWriteError):
        hold_until(lease, time.monotonic() + 30)
    lease.release()


def hold_until(lease, deadline):
    while time.monotonic() < deadline:
        lease.hold()


def test_of_many_takers_at_the_same_moment_exactly_one_wins(tmp_path):
    takers = [
        subprocess.Popen(
            [sys.executable, "-c", TAKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )
        for _ in range(4)
    ]
    try:
        assert [readline(taker) for taker in takers] == ["ready"] * 4
        results = [race(takers, tmp_path / str(number)) for number in range(25)]
    finally:
        for taker in takers:
            with taker:
                taker.kill()

    assert results == [("held", "held", "held", "won", "kept")] * 25


def race(takers, folder):
    folder.mkdir()
    leave(folder, **here(process_started="1"))
    start = time.monotonic() + 0.005
    for taker in takers:
        taker.stdin.write(f"{folder} {start}\n")
    answers = [readline(taker) for taker in takers]
    winner = takers[answers.index("won")]
    winner.stdin.write("\n")
    return (*sorted(answers), readline(winner))


def readline(process):
    return process.stdout.readline().strip()


def test_the_lease_file_is_readable_by_people(tmp_path):
    lease = acquire(tmp_path)

    fields = json.loads(lease.path.read_text())
    lease.release()

    assert fields["host"] == lease.holder.host
    assert Path(f"/proc/{fields['pid']}").exists()
