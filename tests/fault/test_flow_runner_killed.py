"""A runner that is SIGKILLed leaves no worker, and its jobs are found and ended by the next one."""

import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from batchgate.flow import end_orphans, find_orphans

RUNNER = """
import asyncio, signal, sys
from pathlib import Path
from batchgate.flow import open_flow
from batchgate.job import FunctionTask, JobSpec

async def main(folder, marker, functions):
    async with open_flow(workers=2, jobs=1, work_dir=folder, marker=marker) as flow:
        job = JobSpec("job-1", ("sh", "-c", "setsid sleep 600 & sleep 600"), folder, 600)
        busy = FunctionTask(functions, "flow_functions:slow", 1, 600, {"seconds": 600})
        idle = FunctionTask(functions, "flow_functions:echo", 1, 600)
        running = [asyncio.ensure_future(c) for c in (flow.execute(job), flow.call(busy))]
        await flow.call(idle)
        print("up", flush=True)
        await asyncio.gather(*running)

# A shell's command in the background, as these tests may be, ignores interrupts.
signal.signal(signal.SIGINT, signal.default_int_handler)
asyncio.run(main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])))
"""


@pytest.fixture
def marker():
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def runner(tmp_path, marker):
    """Start a runner with a busy worker, an idle one and a job with a grandchild."""
    argv = [sys.executable, "-c", RUNNER, str(tmp_path), marker, str(Path(__file__).parent)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as runner:
        assert runner.stdout is not None
        assert runner.stdout.readline() == "up\n"
        until(lambda: sorted(kinds(marker)) == ["job-1"] * 3 + ["worker"] * 2)
        yield runner
        runner.kill()


def kinds(marker):
    return [orphan.uid.partition(".")[0] for orphan in find_orphans(marker)]


def until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


async def test_a_killed_runner_leaves_no_worker_and_jobs_that_are_found(runner, marker):
    runner.kill()
    runner.wait()

    until(lambda: "worker" not in kinds(marker))
    assert kinds(marker) == ["job-1"] * 3
    ended = await end_orphans(marker, grace_s=1)
    assert {orphan.uid for orphan in ended} == {"job-1"}
    assert find_orphans(marker) == []


@pytest.mark.parametrize("interrupts", [1, 2])
def test_a_runner_that_is_interrupted_leaves_nothing(runner, marker, interrupts):
    for _ in range(interrupts):
        runner.send_signal(signal.SIGINT)
        time.sleep(0.01)
    runner.wait()

    until(lambda: find_orphans(marker) == [])
