"""Wherever a task runs, it ends in the same ways, and nothing of it is left.

Slurm steps and the pilot's tasks run in a real allocation. All nodes are this host, so `/proc`
shows what runs on any of them.
"""

import asyncio
import os
import signal
import sys
import uuid
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio

from batchgate.errors import ConfigError, FlowError
from batchgate.flow import find_orphans, open_flow
from batchgate.flow.output import HEAD_BYTES, TAIL_BYTES
from batchgate.job import End, Flow, FunctionTask, JobSpec
from batchgate.slurm import find_steps
from tests.slurm.cluster import held
from tests.slurm.pilot import RESOURCE, home, inside

pytestmark = pytest.mark.asyncio(loop_scope="module")
SLURM = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]
PILOT = pytest.mark.timeout(600)  # the first of them waits until the pilot is active
HOSTILE = "x\n$(touch pwned) `touch pwned` ; touch pwned & '\"\\ * %s %n {x} <Future> ä"

CODE = """
import os, time

def echo(value, **args):
    return value

def raises(value):
    raise KeyError(value)

def dies(value):
    os.kill(os.getpid(), 9)

def quits(value):
    raise SystemExit(value)

def hangs(value):
    with open(value + ".new", "w") as file:
        file.write(str(os.getppid()))
    os.rename(value + ".new", value)
    time.sleep(600)

def long(value):
    return "x" * value

def floods(value):
    for _ in range(value):
        print("x" * 1_000_000)
    return value

def variable(value):
    return os.environ.get(value)
"""


@dataclass
class Side:
    """An open execution side and its marker."""

    flow: Flow
    marker: str
    kind: str


@pytest.fixture(scope="module")
def allocation(slurm_started):
    """Hold an allocation of two nodes, as if this process ran in it."""
    with held("--gres=gpu:1") as job, pytest.MonkeyPatch.context() as patch:
        for name, value in inside(job).items():
            patch.setenv(name, value)
        yield job


@pytest.fixture(scope="module")
def working_folder(tmp_path_factory):
    """Work in a folder of its own, and show that nothing was written there."""
    folder = tmp_path_factory.mktemp("here")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PWD", str(folder))
        yield folder
    assert list(folder.iterdir()) == []


@pytest.fixture(scope="module")
def pilot_home(tmp_path_factory):
    """Give RADICAL-Pilot a home of its own, with a description of the allocation."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in home(tmp_path_factory.mktemp("home")).items():
            patch.setenv(name, value)
        yield


@pytest.fixture(scope="module")
def dask():
    """Start a scheduler and two workers."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        # Any free port: what is on by default is one port for all.
        dashboard_address="127.0.0.1:0",
        worker_dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield cluster.scheduler_address


@pytest_asyncio.fixture(
    scope="module",
    loop_scope="module",
    params=[
        "local",
        pytest.param("srun", marks=SLURM),
        pytest.param("radical_pilot", marks=[*SLURM, PILOT]),
    ],
)
async def jobs(request, tmp_path_factory, working_folder):
    """Open a place for jobs."""
    if request.param != "local":
        request.getfixturevalue("allocation")
    if request.param == "radical_pilot":
        request.getfixturevalue("pilot_home")
    marker = f"test-{uuid.uuid4().hex}"
    folder = tmp_path_factory.mktemp("jobs")
    async with open_flow(
        workers=1,
        jobs=4,
        work_dir=folder,
        marker=marker,
        grace_s=0.5,
        jobs_on=request.param,
        pilot_resource=RESOURCE,
    ) as flow:
        yield Side(flow, marker, request.param)
    assert find_orphans(marker) == []
    assert request.param == "local" or await find_steps(marker) == []


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["local", "dask"])
async def functions(request, tmp_path_factory):
    """Open a place for functions."""
    scheduler = request.getfixturevalue("dask") if request.param == "dask" else None
    marker = f"test-{uuid.uuid4().hex}"
    async with open_flow(
        workers=2,
        jobs=1,
        work_dir=tmp_path_factory.mktemp("functions"),
        marker=marker,
        grace_s=0.5,
        verifiers_on=request.param,
        dask_scheduler=scheduler,
    ) as flow:
        yield Side(flow, marker, request.param)
    assert find_orphans(marker) == []


@pytest.fixture
def job(tmp_path):
    def job(*argv, walltime_s=60.0, env=None, name="job-1", **resources):
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        return JobSpec(name, argv, folder, walltime_s, env or {}, **resources)

    return job


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("campaign")
    (folder / "campaign.py").write_text(CODE)
    return folder


@pytest.fixture
def function(campaign):
    def function(name, value=None, *, timeout_s=60.0, env=None, **args):
        return FunctionTask(campaign, f"campaign:{name}", value, timeout_s, args, env or {})

    return function


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.02)


async def nothing_left(side):
    """Wait a moment for the dead to be buried, then look."""
    async with asyncio.timeout(10):
        while [o for o in find_orphans(side.marker) if o.uid.startswith("job-")]:
            await asyncio.sleep(0.05)
        while side.kind != "local" and await find_steps(side.marker):
            await asyncio.sleep(0.05)


async def test_a_job_runs_in_its_folder_with_its_variables(jobs, job, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "secret")
    spec = job(
        *("sh", "-c", "cat; echo $PWD $HF_TOKEN $TRACEPARENT; echo why >&2"),
        env={"TRACEPARENT": "00-a"},
    )

    end = await jobs.flow.execute(spec)

    assert (end.end, end.exit_code, end.error) == (End.COMPLETED, 0, "")
    assert (spec.folder / "stdout").read_text() == f"{spec.folder} 00-a\n"
    assert (spec.folder / "stderr").read_text() == "why\n"
    assert end.host in {os.uname().nodename, "n1", "n2"}
    assert 0 < end.started_at <= end.ended_at
    await nothing_left(jobs)


@pytest.mark.parametrize("code", [1, 137])
async def test_a_failed_job_is_an_end_with_its_code_and_last_line(jobs, job, code):
    end = await jobs.flow.execute(job("sh", "-c", f"echo no convergence >&2; exit {code}"))

    assert (end.end, end.exit_code, end.signal) == (End.EXIT, code, None)
    assert end.error == f"exit code {code}: no convergence"


async def test_a_crashed_job_is_an_end_with_its_signal(jobs, job):
    end = await jobs.flow.execute(job("sh", "-c", "ulimit -c 0; kill -SEGV $$"))

    assert (end.end, end.signal) == (End.SIGNAL, signal.SIGSEGV)
    await nothing_left(jobs)


async def test_a_job_over_its_walltime_is_ended_with_all_it_started(jobs, job):
    script = "trap '' TERM; setsid sleep 600 & touch up; sleep 600; sleep 600"
    spec = job("sh", "-c", script, walltime_s=3)

    end = await jobs.flow.execute(spec)

    assert (spec.folder / "up").exists()
    assert end.end is End.TIMED_OUT
    assert end.error.startswith("ended after its walltime of 3 s")
    assert 3 <= end.elapsed_s < 40
    await nothing_left(jobs)


async def test_a_cancelled_job_is_gone_by_then(jobs, job):
    spec = job("sh", "-c", "setsid sleep 600 & touch up; sleep 600")
    running = asyncio.ensure_future(jobs.flow.execute(spec))
    await until((spec.folder / "up").exists)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await nothing_left(jobs)


async def test_a_job_cancelled_at_once_leaves_nothing(jobs, job):
    spec = job("sh", "-c", "sleep 600")
    running = asyncio.ensure_future(jobs.flow.execute(spec))
    await until((spec.folder / "stdout").exists)

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    await nothing_left(jobs)


async def test_much_output_is_bounded_and_the_job_goes_on(jobs, job):
    spec = job("sh", "-c", "head -c 40000000 /dev/zero; echo the end")

    end = await jobs.flow.execute(spec)

    assert end.end is End.COMPLETED
    assert (spec.folder / "stdout").stat().st_size < HEAD_BYTES + TAIL_BYTES + 100
    assert (spec.folder / "stdout").read_bytes().endswith(b"the end\n")


async def test_an_argument_stays_one_argument(jobs, job):
    spec = job(sys.executable, "-c", "import sys; print(ascii(sys.argv[1:]))", HOSTILE, "", "-n9")

    end = await jobs.flow.execute(spec)

    assert (end.end, end.error) == (End.COMPLETED, "")
    assert (spec.folder / "stdout").read_text() == f"{[HOSTILE, '', '-n9']!a}\n"
    assert not list(spec.folder.rglob("pwned"))


async def test_a_variable_stays_one_variable(jobs, job):
    code = "import os; print(ascii(os.environ['TRACESTATE']))"
    spec = job(sys.executable, "-c", code, env={"TRACESTATE": HOSTILE})

    end = await jobs.flow.execute(spec)

    assert (end.end, end.error) == (End.COMPLETED, "")
    assert (spec.folder / "stdout").read_text() == f"{HOSTILE!a}\n"


@pytest.mark.parametrize("argv", [(), ("/no/such/program",), ("echo", "a\0b")])
async def test_a_program_that_cannot_be_started_is_an_end(jobs, job, argv):
    end = await jobs.flow.execute(job(*argv))

    assert end.end is End.NOT_STARTED
    assert end.error


async def test_jobs_run_side_by_side(jobs, job, tmp_path):
    meets = "touch ../here-$0; while [ $(ls .. | grep -c here-) -lt 3 ]; do sleep 0.05; done"
    specs = [job("sh", "-c", meets, str(n), name=f"job-{n}") for n in range(3)]

    ends = await asyncio.gather(*(jobs.flow.execute(spec) for spec in specs))

    assert [end.end for end in ends] == [End.COMPLETED] * 3


async def test_a_function_returns_its_value(functions, function):
    value = {"x": [1, 2.5, HOSTILE, None, True]}

    end = await functions.flow.call(function("echo", value, y=[1]))

    assert (end.end, end.value, end.error) == (End.COMPLETED, value, "")
    assert 0 < end.started_at <= end.ended_at


@pytest.mark.parametrize(
    ("name", "value", "error"),
    [
        ("raises", HOSTILE, "KeyError"),
        ("quits", 3, "SystemExit: 3"),
        ("absent", 1, "has no function 'absent'"),
        ("long", 2_000_000, "must be at most"),
    ],
)
async def test_a_function_that_fails_is_an_end(functions, function, name, value, error):
    end = await functions.flow.call(function(name, value))

    assert end.end is End.EXCEPTION
    assert error in end.error


async def test_an_argument_that_is_no_data_is_an_end(functions, function):
    assert (await functions.flow.call(function("echo", object()))).end is End.NOT_STARTED


async def test_a_function_that_crashes_costs_no_other(functions, function):
    crash, fine = await asyncio.gather(
        functions.flow.call(function("dies")), functions.flow.call(function("echo", 1))
    )

    assert (crash.end, fine.value) == (End.WORKER_LOST, 1)
    assert "SIGKILL" in crash.error
    assert (await functions.flow.call(function("echo", 2))).value == 2


async def test_a_function_that_hangs_is_ended_at_its_deadline(functions, function, tmp_path):
    end = await functions.flow.call(function("hangs", str(tmp_path / "up"), timeout_s=0.5))

    assert (tmp_path / "up").exists()
    assert end.end is End.TIMED_OUT
    assert 0.5 <= end.elapsed_s < 20
    assert (await functions.flow.call(function("echo", 2))).value == 2


async def test_a_cancelled_function_is_ended(functions, function, tmp_path):
    running = asyncio.ensure_future(functions.flow.call(function("hangs", str(tmp_path / "up"))))
    await until((tmp_path / "up").exists)
    before = {orphan.uid for orphan in find_orphans(functions.marker)}

    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    assert len(before - {orphan.uid for orphan in find_orphans(functions.marker)}) == 1


async def test_a_function_that_prints_without_end_is_bounded(functions, function):
    assert (await functions.flow.call(function("floods", 30))).value == 30


async def test_the_trace_context_holds_for_one_call(functions, function):
    env = {"TRACEPARENT": "00-a"}

    within = await functions.flow.call(function("variable", "TRACEPARENT", env=env))
    after = await functions.flow.call(function("variable", "TRACEPARENT"))

    assert (within.value, after.value) == ("00-a", None)


async def test_a_worker_of_the_cluster_that_dies_costs_its_call_only(
    tmp_path_factory, dask, function, tmp_path
):
    marker = f"test-{uuid.uuid4().hex}"
    async with open_flow(
        workers=1,
        jobs=1,
        work_dir=tmp_path,
        marker=marker,
        verifiers_on="dask",
        dask_scheduler=dask,
    ) as flow:
        lost = asyncio.ensure_future(flow.call(function("hangs", str(tmp_path / "up"))))
        await until((tmp_path / "up").exists)

        os.kill(int((tmp_path / "up").read_text()), signal.SIGKILL)

        assert (await lost).end is End.WORKER_LOST
        assert (await flow.call(function("echo", 1))).value == 1
    assert find_orphans(marker) == []


async def test_the_next_life_ends_what_a_life_left_on_the_cluster(dask, function, tmp_path):
    marker = f"test-{uuid.uuid4().hex}"
    common: dict[str, Any] = {"workers": 1, "jobs": 1, "marker": marker, "grace_s": 0.5}
    on_dask: dict[str, Any] = {"verifiers_on": "dask", "dask_scheduler": dask}
    async with open_flow(work_dir=tmp_path / "1", **common, **on_dask) as first_life:
        left = asyncio.ensure_future(first_life.call(function("hangs", str(tmp_path / "up"))))
        await until((tmp_path / "up").exists)

        async with open_flow(work_dir=tmp_path / "2", **common, **on_dask) as second_life:
            assert (await left).end is End.CANCELED
            assert (await second_life.call(function("echo", 1))).value == 1
    assert find_orphans(marker) == []


@pytest.mark.parametrize(
    ("options", "error", "reason"),
    [
        ({"jobs_on": "srun"}, ConfigError, "SLURM_JOB_ID is not set"),
        ({"verifiers_on": "dask"}, ConfigError, "dask_scheduler is not set"),
        (
            {"verifiers_on": "dask", "dask_scheduler": "tcp://127.0.0.1:9"},
            FlowError,
            "does not answer",
        ),
        ({"verifiers_on": "dask", "dask_scheduler": "absent.json"}, FlowError, "does not answer"),
    ],
)
async def test_a_backend_says_what_it_misses(tmp_path, monkeypatch, options, error, reason):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setattr("batchgate.flow.dask.CONNECT_S", 0.5)

    with pytest.raises(error, match=reason):
        async with open_flow(workers=1, jobs=1, work_dir=tmp_path, marker="test", **options):
            pass


async def test_a_pilot_says_which_path_its_scripts_would_break(tmp_path):
    odd = tmp_path / "a b"

    with pytest.raises(ConfigError, match="goes through RADICAL-Pilot's shell scripts"):
        async with open_flow(
            workers=1, jobs=1, work_dir=odd, marker="test", jobs_on="radical_pilot"
        ):
            pass
