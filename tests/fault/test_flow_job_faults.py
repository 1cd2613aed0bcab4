"""However a job ends, that is a value, and none of its processes is left."""

import asyncio
import os
import signal
import time
import uuid
from pathlib import Path

import pytest
import pytest_asyncio

from batchgate.errors import FlowError
from batchgate.flow import find_orphans, open_flow
from batchgate.flow import processes as processes_module
from batchgate.flow.output import HEAD_BYTES, TAIL_BYTES
from batchgate.flow.process import run_process
from batchgate.job import End, JobSpec

pytestmark = pytest.mark.asyncio(loop_scope="module")
MARKER = f"test-{uuid.uuid4().hex}"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def flow(tmp_path_factory):
    work_dir = tmp_path_factory.mktemp("flow")
    async with open_flow(workers=1, jobs=4, work_dir=work_dir, marker=MARKER, grace_s=0.5) as flow:
        yield flow


@pytest.fixture
def shell(tmp_path):
    """Return a job that runs a script."""

    def shell(script, *, walltime_s=60.0):
        return JobSpec(f"job-{tmp_path.name}", ("sh", "-c", script), tmp_path, walltime_s)

    return shell


def left():
    """Return what is left of the jobs."""
    return [orphan.uid for orphan in find_orphans(MARKER) if orphan.uid.startswith("job-")]


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("code", [1, 7, 137, 255])
async def test_another_exit_code_than_zero_is_an_end_with_the_last_line(flow, shell, code):
    end = await flow.execute(shell(f"echo first >&2; echo no convergence >&2; exit {code}"))

    assert (end.end, end.exit_code, end.signal) == (End.EXIT, code, None)
    assert end.error == f"exit code {code}: no convergence"


async def test_an_exit_without_a_word_is_an_end_with_its_code(flow, shell):
    assert (await flow.execute(shell("exit 7"))).error == "exit code 7"


@pytest.mark.parametrize("name", ["SEGV", "KILL", "TERM", "ABRT"])
async def test_a_signal_is_an_end_with_its_name(flow, shell, name):
    end = await flow.execute(shell(f"ulimit -c 0; kill -{name} $$"))

    assert (end.end, end.exit_code) == (End.SIGNAL, None)
    assert end.signal == signal.Signals[f"SIG{name}"]
    assert end.error == f"killed by SIG{name}"


async def test_a_real_time_signal_has_a_number_only(flow, shell):
    end = await flow.execute(shell(f"kill -{signal.SIGRTMIN + 3} $$"))

    assert end.error == f"killed by signal {signal.SIGRTMIN + 3}"


async def test_output_that_is_no_text_is_kept_as_it_is(flow, shell, tmp_path):
    end = await flow.execute(shell(r"printf '\377\000\n'; printf '\377\033[1m' >&2; exit 1"))

    assert (tmp_path / "stdout").read_bytes() == b"\xff\x00\n"
    assert end.error == "exit code 1: \N{REPLACEMENT CHARACTER} [1m"


async def test_much_output_is_bounded_and_the_job_goes_on(flow, shell, tmp_path):
    end = await flow.execute(
        shell("head -c 60000000 /dev/zero; echo the end; head -c 60000000 /dev/zero >&2")
    )

    assert (end.end, end.exit_code) == (End.COMPLETED, 0)
    for name in ("stdout", "stderr"):
        size = (tmp_path / name).stat().st_size
        assert HEAD_BYTES + TAIL_BYTES <= size < HEAD_BYTES + TAIL_BYTES + 100
    assert (tmp_path / "stdout").read_bytes().endswith(b"the end\n")


async def test_a_job_over_its_walltime_is_ended_with_all_it_started(flow, shell, tmp_path):
    script = f"trap '' TERM; setsid sleep 600 & setsid sh -c 'sleep 600 & sleep 600' & touch {tmp_path}/up; sleep 600; sleep 600"
    end = await flow.execute(shell(script, walltime_s=1))

    assert (tmp_path / "up").exists()
    assert (end.end, end.error) == (End.TIMED_OUT, "ended after its walltime of 1 s")
    assert 1 <= end.elapsed_s < 20
    assert left() == []


async def test_a_job_may_tidy_up_in_the_grace(flow, shell, tmp_path):
    script = f"trap 'echo saved >{tmp_path}/checkpoint; exit 0' TERM; while :; do sleep 0.01; done"

    end = await flow.execute(shell(script, walltime_s=0.5))

    assert (end.end, end.exit_code) == (End.TIMED_OUT, 0)
    assert (tmp_path / "checkpoint").read_text() == "saved\n"


async def test_what_a_job_leaves_running_is_ended_with_it(flow, shell):
    end = await flow.execute(shell("setsid sleep 600 & sleep 600 & exit 0"))

    assert end.end is End.COMPLETED
    assert left() == []


async def test_a_job_that_closes_its_output_runs_on(flow, shell, tmp_path):
    end = await flow.execute(shell(f"exec >&- 2>&-; sleep 0.2; touch {tmp_path}/done"))

    assert end.end is End.COMPLETED
    assert (tmp_path / "done").exists()


async def test_a_cancelled_job_is_gone_by_then(flow, shell, tmp_path):
    running = asyncio.ensure_future(
        flow.execute(
            shell(f"trap '' TERM; setsid sleep 600 & touch {tmp_path}/up; sleep 600; sleep 600")
        )
    )
    await until((tmp_path / "up").exists)
    for _ in range(3):  # one who is in a hurry
        running.cancel()
        await asyncio.sleep(0.01)

    with pytest.raises(asyncio.CancelledError):
        await running

    assert left() == []


async def test_a_time_limit_around_a_job_ends_the_job(flow, shell, tmp_path):
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.5):
            await flow.execute(shell("setsid sleep 600 & sleep 600"))

    assert left() == []


async def test_a_job_cancelled_before_it_began_never_begins(flow, shell, tmp_path):
    running = asyncio.ensure_future(flow.execute(shell(f"touch {tmp_path}/began")))
    await asyncio.sleep(0)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert not (tmp_path / "began").exists()
    assert not (tmp_path / "stdout").exists()


async def test_a_failed_task_of_a_group_takes_the_jobs_of_the_group_along(flow, shell, tmp_path):
    async def fails():
        await until((tmp_path / "up").exists)
        raise KeyError("ours")

    async def together():
        async with asyncio.TaskGroup() as group:
            group.create_task(flow.execute(shell(f"touch {tmp_path}/up; sleep 600")))
            group.create_task(fails())

    with pytest.raises(ExceptionGroup):
        await together()

    assert left() == []


async def test_a_process_that_cannot_be_ended_makes_the_end_unknown(flow, shell, monkeypatch):
    monkeypatch.setattr(processes_module, "_KILL_S", 0.1)
    monkeypatch.setattr(processes_module, "_send", lambda pid, number: None)

    end = await flow.execute(shell("sleep 1 & sleep 600", walltime_s=0.2))
    monkeypatch.undo()

    assert end.end is End.UNKNOWN
    assert "are still there 0.1 s after SIGKILL" in end.error
    for orphan in find_orphans(MARKER):
        if orphan.uid.startswith("job-"):
            os.kill(orphan.pid, signal.SIGKILL)


async def test_a_job_does_not_outlive_an_event_loop_that_goes_down(shell, tmp_path):
    stop = asyncio.get_running_loop().create_future()
    spec = shell(f"setsid sleep 600 & touch {tmp_path}/up; sleep 600")
    driver = asyncio.ensure_future(run_process(spec, marker=MARKER, stop=stop, grace_s=60))
    await until((tmp_path / "up").exists)

    driver.cancel()
    with pytest.raises(asyncio.CancelledError):
        await driver

    await until(lambda: left() == [])


async def test_two_jobs_do_not_end_one_another(flow, tmp_path):
    specs = [
        JobSpec(f"job-{n}", ("sh", "-c", "sleep 0.5; echo done"), tmp_path / str(n), 60)
        for n in (1, 11)
    ]
    for spec in specs:
        spec.folder.mkdir()
    survivor = asyncio.ensure_future(flow.execute(specs[1]))

    victim = asyncio.ensure_future(flow.execute(specs[0]))
    await until((tmp_path / "1" / "stdout").exists)
    victim.cancel()
    await asyncio.gather(victim, return_exceptions=True)

    assert (await survivor).end is End.COMPLETED
    assert (tmp_path / "11" / "stdout").read_text() == "done\n"


async def test_leaving_ends_the_jobs_that_run_and_refuses_those_that_wait(tmp_path):
    marker = f"test-{uuid.uuid4().hex}"
    async with open_flow(workers=1, jobs=1, work_dir=tmp_path, marker=marker, grace_s=0.2) as flow:
        spec = JobSpec("job-1", ("sh", "-c", "setsid sleep 600 & sleep 600"), tmp_path, 600)
        jobs = [asyncio.ensure_future(flow.execute(spec)) for _ in range(3)]
        await until(lambda: len(find_orphans(marker)) >= 2)
        began = time.monotonic()

    ends = await asyncio.gather(*jobs, return_exceptions=True)
    assert time.monotonic() - began < 10
    assert [getattr(end, "end", type(end)) for end in ends] == [End.CANCELED, FlowError, FlowError]
    assert find_orphans(marker) == []


async def test_an_error_of_the_caller_comes_through_as_it_is(tmp_path):
    marker = f"test-{uuid.uuid4().hex}"
    spec = JobSpec("job-1", ("sleep", "600"), tmp_path, 600)
    running = []

    async def life():
        async with open_flow(workers=1, jobs=1, work_dir=tmp_path, marker=marker) as flow:
            running.append(asyncio.ensure_future(flow.execute(spec)))
            await until(lambda: find_orphans(marker))
            raise KeyError("ours")

    with pytest.raises(KeyError, match="ours"):
        await life()

    assert (await running[0]).end is End.CANCELED
    assert find_orphans(marker) == []


async def test_a_hostile_folder_gets_new_files_for_output(flow, shell, tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    (tmp_path / "stdout").symlink_to(precious)
    os.mkfifo(tmp_path / "stderr")

    end = await asyncio.wait_for(flow.execute(shell("echo out; echo err >&2")), 20)

    assert end.end is End.COMPLETED
    assert precious.read_text() == "mine"
    assert [Path(tmp_path, name).read_text() for name in ("stdout", "stderr")] == ["out\n", "err\n"]


async def test_a_folder_in_the_place_of_an_output_file_is_an_end(flow, shell, tmp_path):
    (tmp_path / "stderr").mkdir()

    end = await flow.execute(shell("echo out"))

    assert end.end is End.NOT_STARTED
    assert "Is a directory" in end.error
