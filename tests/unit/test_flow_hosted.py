"""A job that somebody else launches leaves word of its end, whatever became of who launched it."""

import os
import signal
import subprocess
import time
import uuid

import pytest

from batchgate.flow import find_orphans, hosted
from batchgate.job import End, JobSpec

MARKER = f"test-{uuid.uuid4().hex}"


@pytest.fixture
def launch(tmp_path):
    """Place an order and start a rank of it; its end is awaited afterwards."""
    folder = tmp_path / "order"
    started = []

    def launch(*argv, walltime_s=60.0, rank=0, env=None):
        if not folder.exists():
            spec = JobSpec("job-1", argv, tmp_path, walltime_s, env or {})
            hosted.place(folder, hosted.Order(spec, MARKER, 0.2))
        variables = {**os.environ, "RP_RANK": str(rank)}
        started.append(subprocess.Popen(hosted.command(folder), cwd=tmp_path, env=variables))
        return folder, started[-1]

    yield launch
    for process in started:
        process.kill()
        process.wait()


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_end_is_told_with_what_was_printed(launch, tmp_path):
    folder, process = launch("sh", "-c", "echo $X; echo why >&2; exit 7", env={"X": "$(id) ä\n"})
    assert process.wait(30) == 0

    end = hosted.end_of(folder, ranks=1)

    assert end is not None
    assert (end.end, end.exit_code, end.error) == (End.EXIT, 7, "exit code 7: why")
    assert (tmp_path / "stdout").read_text() == "$(id) ä\n"


def test_a_job_that_runs_has_no_end_yet_and_a_file_ends_it(launch, tmp_path):
    folder, process = launch("sh", "-c", "setsid sleep 600 & touch up; sleep 600")
    until((tmp_path / "up").exists)
    assert hosted.end_of(folder, ranks=1) is None

    hosted.stop(folder)
    process.wait(30)

    end = hosted.end_of(folder, ranks=1)
    assert end is not None
    assert end.end is End.CANCELED
    assert find_orphans(MARKER) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_launcher_that_ends_it_by_a_signal_ends_all_of_it(launch, tmp_path, number):
    folder, process = launch("sh", "-c", "setsid sleep 600 & touch up; sleep 600")
    until((tmp_path / "up").exists)

    process.send_signal(number)
    process.wait(30)

    end = hosted.end_of(folder, ranks=1)
    assert end is not None
    assert end.end is End.CANCELED
    assert find_orphans(MARKER) == []


def test_the_walltime_holds_without_a_runner(launch):
    folder, process = launch("sleep", "600", walltime_s=0.3)
    process.wait(30)

    end = hosted.end_of(folder, ranks=1)

    assert end is not None
    assert end.end is End.TIMED_OUT


def test_ranks_have_files_of_their_own_and_the_first_that_failed_gives_the_end(launch, tmp_path):
    script = "echo $RP_RANK; exit $RP_RANK"
    folder, first = launch("sh", "-c", script)
    first.wait(30)
    assert hosted.end_of(folder, ranks=2) is None

    launch(rank=1)[1].wait(30)

    end = hosted.end_of(folder, ranks=2)
    assert end is not None
    assert (end.end, end.exit_code) == (End.EXIT, 1)
    assert (tmp_path / "stdout").read_text() == "0\n"
    assert (tmp_path / "stdout.1").read_text() == "1\n"


def test_a_word_of_the_end_that_is_none_counts_as_no_word(tmp_path):
    (tmp_path / "end.0.json").write_text('{"end": "splendid"}')

    assert hosted.end_of(tmp_path, ranks=1) is None
