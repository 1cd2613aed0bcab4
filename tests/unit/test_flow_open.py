import asyncio
import os
import re
import time
import uuid
from pathlib import Path

import pytest
import pytest_asyncio

from batchgate.errors import ConfigError, FlowError
from batchgate.flow import find_orphans, open_flow
from batchgate.flow.engine import WINDOW
from batchgate.job import End, FunctionTask, JobSpec

CODE = """
import os, time

loaded = []
loaded.append(time.time())

def echo(value):
    return value

def loads(value):
    return loaded

async def awaits(value, *, times):
    return value * times

def variables(value):
    return {name: os.environ.get(name) for name in value}

def leaves_home(value):
    os.chdir("/")

def where(value):
    return os.getcwd()

def who(value):
    time.sleep(value)
    return os.getpid()

def meets(folder, *, others):
    open(f"{folder}/{os.getpid()}", "w").close()
    while len(os.listdir(folder)) < others:
        time.sleep(0.01)

def stdin(value):
    return os.read(0, 10).decode()
"""


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def marker():
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("campaign")
    (folder / "campaign.py").write_text(CODE)
    (folder / "broken.py").write_text("def f(:")
    (folder / "quits.py").write_text("raise SystemExit(3)")
    return folder


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("flow")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def flow(work_dir, marker):
    async with open_flow(workers=2, jobs=2, work_dir=work_dir, marker=marker) as flow:
        yield flow


@pytest.fixture
def function(campaign):
    def function(name, value=None, *, timeout_s=60.0, env=None, **args):
        return FunctionTask(campaign, f"campaign:{name}", value, timeout_s, args, env or {})

    return function


@pytest.fixture
def job(tmp_path):
    def job(*argv, walltime_s=60.0, env=None, name="job-1"):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return JobSpec(name, argv, folder, walltime_s, env or {})

    return job


async def test_a_function_returns_its_value_and_when_and_where_it_ran(flow, function):
    before_at = time.time()

    end = await flow.call(function("echo", {"x": [1, 2.5, "ä", None, True]}))

    assert (end.end, end.value) == (End.COMPLETED, {"x": [1, 2.5, "ä", None, True]})
    assert before_at <= end.started_at <= end.ended_at <= time.time()
    assert end.host == os.uname().nodename
    assert (end.error, end.traceback, end.exit_code) == ("", "", None)


async def test_a_campaign_is_imported_once_for_many_calls(flow, function):
    ends = [await flow.call(function("loads")) for _ in range(3)]

    assert len({tuple(end.value) for end in ends}) == 1


async def test_the_worker_that_is_warm_is_taken_first(flow, function):
    ends = [await flow.call(function("who", 0)) for _ in range(3)]

    assert len({end.value for end in ends}) == 1


async def test_an_async_function_is_awaited(flow, function):
    assert (await flow.call(function("awaits", 3, times=4))).value == 12


async def test_variables_hold_for_one_call(flow, function, monkeypatch):
    names = ["TRACEPARENT", "PATH"]

    within = await flow.call(function("variables", names, env={"TRACEPARENT": "00-a", "PATH": "p"}))
    after = await flow.call(function("variables", names))

    assert within.value == {"TRACEPARENT": "00-a", "PATH": "p"}
    assert after.value == {"TRACEPARENT": None, "PATH": os.environ["PATH"]}


async def test_a_worker_has_no_secrets(tmp_path, function, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    async with open_flow(workers=1, jobs=1, work_dir=tmp_path, marker="test") as flow:
        end = await flow.call(function("variables", ["HF_TOKEN"]))

    assert end.value == {"HF_TOKEN": None}


async def test_each_call_begins_in_the_workers_folder(flow, function, work_dir):
    await flow.call(function("leaves_home"))

    assert (await flow.call(function("where"))).value in {
        str(work_dir / "worker-0"),
        str(work_dir / "worker-1"),
    }


async def test_a_function_has_no_input(flow, function):
    assert (await flow.call(function("stdin"))).value == ""


def most_at_once(ends):
    steps = sorted([(end.started_at, 1) for end in ends] + [(end.ended_at, -1) for end in ends])
    return max(sum(step for _, step in steps[: n + 1]) for n in range(len(steps)))


async def test_functions_run_side_by_side_up_to_the_number_of_workers(flow, function, tmp_path):
    meeting = tmp_path / "meeting"
    meeting.mkdir()

    await asyncio.gather(*(flow.call(function("meets", str(meeting), others=2)) for _ in range(2)))
    ends = await asyncio.gather(*(flow.call(function("who", 0.02)) for _ in range(8)))

    assert len({end.value for end in ends}) == 2
    assert most_at_once(ends) == 2


async def test_waiting_for_a_worker_is_no_part_of_the_deadline(tmp_path, function):
    async with open_flow(workers=1, jobs=1, work_dir=tmp_path, marker="test") as flow:
        ends = await asyncio.gather(
            *(flow.call(function("who", 0.5, timeout_s=1.2)) for _ in range(4))
        )

    assert [end.end for end in ends] == [End.COMPLETED] * 4
    assert all(end.elapsed_s < 1.2 for end in ends)


async def test_asyncflow_knows_a_bounded_number_of_function_tasks(flow, function):
    known = []

    async def watch():
        while True:
            known.append(len(flow._engine.components))
            await asyncio.sleep(0.001)

    watcher = asyncio.ensure_future(watch())
    await asyncio.gather(*(flow.call(function("echo", n)) for n in range(3 * WINDOW)))
    watcher.cancel()

    assert WINDOW / 2 < max(known) <= WINDOW


async def test_two_thousand_tasks_leave_nothing_behind(flow, function):
    await asyncio.gather(*(flow.call(function("echo", n)) for n in range(100)))
    before = len(asyncio.all_tasks())

    ends = await asyncio.gather(*(flow.call(function("echo", n)) for n in range(2000)))

    assert [end.value for end in ends] == list(range(2000))
    engine = flow._engine
    kept = ("components", "dependencies", "resolved", "running", "_dependents_map")
    assert {name: len(getattr(engine, name)) for name in kept} == dict.fromkeys(kept, 0)
    assert engine.backend._running == {}
    assert len(asyncio.all_tasks()) == before


@pytest.mark.parametrize("args", [{"x": object()}, {"x": {1}}, {"x": b"1"}])
async def test_an_argument_that_is_no_data_is_an_end(flow, function, args):
    end = await flow.call(function("echo", **args))

    assert end.end is End.NOT_STARTED
    assert "not JSON serializable" in end.error
    assert end.elapsed_s == 0


@pytest.mark.parametrize(
    ("use", "error"),
    [
        ("campaign:absent", "has no function 'absent'"),
        ("absent:f", "No module named 'absent'"),
        ("broken:f", "invalid syntax"),
        ("quits:f", "SystemExit: 3"),
    ],
)
async def test_a_function_that_cannot_be_found_is_an_end(flow, campaign, use, error):
    end = await flow.call(FunctionTask(campaign, use, None, 60))

    assert end.end is End.EXCEPTION
    assert error in end.error
    assert (end.started_at, end.ended_at) == (0.0, 0.0)


async def test_a_job_runs_in_its_folder_with_its_variables_and_no_input(flow, job, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("SCRATCH", "/scratch")
    spec = job(
        "sh",
        "-c",
        "cat; echo $PWD $HF_TOKEN $SCRATCH $TRACEPARENT; echo why >&2",
        env={"TRACEPARENT": "00-a"},
    )

    end = await flow.execute(spec)

    assert (end.end, end.exit_code, end.error) == (End.COMPLETED, 0, "")
    assert (spec.folder / "stdout").read_text() == f"{spec.folder} /scratch 00-a\n"
    assert (spec.folder / "stderr").read_text() == "why\n"
    assert end.host == os.uname().nodename


async def test_an_argument_of_a_job_stays_one_argument(flow, job, tmp_path):
    hostile = f"x\ntouch {tmp_path}/pwned; $(touch {tmp_path}/pwned) `id` '\"\\ * <Future>"

    await flow.execute(job("printf", "%s", hostile))

    assert (tmp_path / "job-1" / "stdout").read_text() == hostile
    assert not (tmp_path / "pwned").exists()


async def test_jobs_run_side_by_side_up_to_their_number(flow, job):
    ends = await asyncio.gather(
        *(flow.execute(job("sleep", "0.2", name=f"job-{n}")) for n in range(5))
    )

    assert most_at_once(ends) == 2


async def test_waiting_jobs_do_not_hold_up_functions(flow, job, function):
    jobs = [
        asyncio.ensure_future(flow.execute(job("sleep", "60", name=f"job-{n}"))) for n in range(80)
    ]

    end = await flow.call(function("echo", 1))

    assert end.value == 1
    for waiting in jobs:
        waiting.cancel()
    await asyncio.gather(*jobs, return_exceptions=True)


@pytest.mark.parametrize(
    ("argv", "error"),
    [
        ((), "argv is empty"),
        (("/no/such/program",), "No such file or directory"),
        (("/etc/passwd",), "Permission denied"),
        (("echo", "a\0b"), "embedded null byte"),
        (("echo", "x" * 3_000_000), "Argument list too long"),
    ],
)
async def test_a_program_that_cannot_be_started_is_an_end(flow, job, argv, error):
    end = await flow.execute(job(*argv))

    assert end.end is End.NOT_STARTED
    assert error in end.error
    assert (end.started_at, end.ended_at) == (0.0, 0.0)


async def test_a_job_without_its_folder_is_an_end(flow, tmp_path):
    end = await flow.execute(JobSpec("job-1", ("true",), tmp_path / "absent", 60))

    assert end.end is End.NOT_STARTED
    assert "absent" in end.error


async def test_processes_carry_the_marker_and_what_they_are_for(flow, job, function, marker):
    running = asyncio.ensure_future(flow.execute(job("sleep", "60")))
    await flow.call(function("echo"))

    async with asyncio.timeout(10):
        while "job-1" not in (uids := {orphan.uid for orphan in find_orphans(marker)}):
            await asyncio.sleep(0.01)

    assert {re.sub(r"[0-9a-f]{32}", "ID", uid) for uid in uids} == {"job-1", "worker.ID"}
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_closed_flow_takes_nothing_and_leaves_nothing(tmp_path, job, function):
    marker = f"test-{uuid.uuid4().hex}"
    async with open_flow(workers=2, jobs=2, work_dir=tmp_path, marker=marker) as flow:
        await asyncio.gather(*(flow.call(function("who", 0.1)) for _ in range(2)))

    assert find_orphans(marker) == []
    with pytest.raises(FlowError, match="is down"):
        await flow.call(function("echo"))
    with pytest.raises(FlowError, match="is down"):
        await flow.execute(job("true"))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"workers": 0}, "workers is 0, must be at least 1"),
        ({"jobs": -1}, "jobs is -1, must be at least 1"),
        ({"marker": "a/b"}, "marker is 'a/b'"),
    ],
)
async def test_a_flow_refuses_what_it_cannot_work_with(tmp_path, given, reason):
    options = {"workers": 1, "jobs": 1, "work_dir": Path(tmp_path), "marker": "m"} | given

    with pytest.raises(ConfigError, match=reason):
        async with open_flow(**options):
            pass
