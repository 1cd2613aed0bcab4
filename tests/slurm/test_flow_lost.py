"""A node, a runner, an `srun` or a pilot dies: no job of it counts as done, and none runs on."""

import asyncio
import subprocess
import sys
import time
import uuid

import psutil
import pytest

from batchgate.flow import end_orphans, find_orphans, open_flow
from batchgate.job import End, JobSpec
from batchgate.slurm import find_steps
from tests.slurm.cluster import Cluster, held, start

pytestmark = [pytest.mark.slurm, pytest.mark.xdist_group("slurm")]

RUNNER = """
import asyncio, sys
from pathlib import Path
from batchgate.flow import open_flow
from batchgate.job import JobSpec

async def main(folder, marker):
    async with open_flow(
        workers=1, jobs=2, work_dir=folder, marker=marker, jobs_on="srun"
    ) as flow:
        job = JobSpec("job-1", ("sh", "-c", "setsid sleep 600 & touch up; sleep 600"), folder, 600)
        await flow.execute(job)

asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
"""


@pytest.fixture
def marker():
    return f"test-{uuid.uuid4().hex}"


@pytest.fixture
def allocation(slurm_started, monkeypatch):
    """Hold an allocation, and bring dead nodes back."""
    with held() as job:
        monkeypatch.setenv("SLURM_JOB_ID", job)
        yield job
    start()


async def until(condition):
    async with asyncio.timeout(90):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.mark.timeout(240)
async def test_a_node_that_dies_takes_no_job_as_done_and_the_others_go_on(
    allocation, marker, tmp_path
):
    script = (
        "echo $SLURMD_NODENAME >node; while [ ! -e ../go ]; do sleep 0.2; done; echo {} >result"
    )
    specs = [
        JobSpec(f"job-{n}", ("sh", "-c", script), tmp_path / f"job-{n}", 200) for n in range(4)
    ]
    for spec in specs:
        spec.folder.mkdir()
    async with open_flow(
        workers=1, jobs=4, work_dir=tmp_path / "flow", marker=marker, grace_s=0.5, jobs_on="srun"
    ) as flow:
        running = [asyncio.ensure_future(flow.execute(spec)) for spec in specs]
        await until(lambda: all((s.folder / "node").exists() for s in specs))
        await until(lambda: all((s.folder / "node").read_text() for s in specs))
        nodes = [(spec.folder / "node").read_text().strip() for spec in specs]
        assert sorted(nodes) == ["n1", "n1", "n2", "n2"]

        Cluster(tmp_path).kill_node("n2")
        dead = [task for task, node in zip(running, nodes, strict=True) if node == "n2"]
        await asyncio.wait(dead, timeout=90)
        (tmp_path / "go").touch()
        ends = await asyncio.gather(*running)
        again = await flow.execute(JobSpec("job-5", ("true",), tmp_path, 30))

    for end, node, spec in zip(ends, nodes, specs, strict=True):
        assert end.end is (End.UNKNOWN if node == "n2" else End.COMPLETED), end
        assert (spec.folder / "result").exists() is (node == "n1")
        assert end.host == node
    assert (again.end, again.host) == (End.COMPLETED, "n1")


async def test_what_a_killed_runner_left_in_the_allocation_is_ended(allocation, marker, tmp_path):
    argv = [sys.executable, "-c", RUNNER, str(tmp_path), marker]
    with subprocess.Popen(argv) as runner:
        await until((tmp_path / "up").exists)
        runner.kill()
    (step,) = await find_steps(marker)
    assert (step.step.partition(".")[0], step.uid) == (allocation, "job-1")

    ended = await end_orphans(marker, grace_s=0.5)

    assert step in ended
    assert await find_steps(marker) == []
    await until(lambda: find_orphans(marker) == [])


async def test_a_step_does_not_outlive_its_killed_srun(allocation, marker, tmp_path):
    async with open_flow(
        workers=1, jobs=1, work_dir=tmp_path / "flow", marker=marker, grace_s=0.5, jobs_on="srun"
    ) as flow:
        spec = JobSpec("job-1", ("sh", "-c", "touch up; sleep 600"), tmp_path, 600)
        running = asyncio.ensure_future(flow.execute(spec))
        await until((tmp_path / "up").exists)

        for child in psutil.Process().children(recursive=True):
            if child.name() == "srun":
                child.kill()
        end = await running

        assert end.end is End.UNKNOWN
        assert await find_steps(marker) == []
        await until(lambda: find_orphans(marker) == [])


async def test_waiting_for_cpus_is_no_part_of_the_walltime(allocation, marker, tmp_path):
    specs = [JobSpec(f"job-{n}", ("sleep", "2"), tmp_path / f"job-{n}", 3.5) for n in range(8)]
    for spec in specs:
        spec.folder.mkdir()
    async with open_flow(
        workers=1, jobs=8, work_dir=tmp_path / "flow", marker=marker, jobs_on="srun"
    ) as flow:
        ends = await asyncio.gather(*(flow.execute(spec) for spec in specs))

    assert [end.end for end in ends] == [End.COMPLETED] * 8
    assert max(end.started_at for end in ends) - min(end.started_at for end in ends) > 1.5


async def test_a_step_that_waits_for_cpus_can_be_canceled(allocation, marker, tmp_path):
    async with open_flow(
        workers=1, jobs=8, work_dir=tmp_path / "flow", marker=marker, grace_s=0.2, jobs_on="srun"
    ) as flow:
        for n in range(2):
            (tmp_path / f"job-{n}").mkdir()
        whole = JobSpec("job-0", ("sleep", "600"), tmp_path / "job-0", 600, nodes=2, ranks=4)
        first = asyncio.ensure_future(flow.execute(whole))
        while not await find_steps(marker):
            await asyncio.sleep(0.05)
        waits = JobSpec("job-1", ("touch", "ran"), tmp_path / "job-1", 600)
        second = asyncio.ensure_future(flow.execute(waits))
        await until((tmp_path / "job-1" / "stdout").exists)
        began = time.monotonic()

        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second

        assert time.monotonic() - began < 20
        assert not (tmp_path / "job-1" / "ran").exists()
        assert [step.uid for step in await find_steps(marker)] == ["job-0"]
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
    assert await find_steps(marker) == []


async def test_a_job_that_does_not_fit_is_an_end(allocation, marker, tmp_path):
    async with open_flow(
        workers=1, jobs=1, work_dir=tmp_path / "flow", marker=marker, jobs_on="srun"
    ) as flow:
        end = await flow.execute(JobSpec("job-1", ("true",), tmp_path, 60, ranks=64))

    assert end.end is End.NOT_STARTED
    assert "More processors requested" in end.error


async def test_ranks_run_on_their_nodes_and_one_that_fails_ends_all(allocation, marker, tmp_path):
    async with open_flow(
        workers=1, jobs=1, work_dir=tmp_path / "flow", marker=marker, jobs_on="srun"
    ) as flow:
        where = JobSpec("job-1", ("printenv", "SLURMD_NODENAME"), tmp_path, 60, nodes=2, ranks=2)
        assert (await flow.execute(where)).end is End.COMPLETED
        assert sorted((tmp_path / "stdout").read_text().split()) == ["n1", "n2"]

        script = "[ $SLURM_PROCID = 1 ] && sleep 600; exit 3"
        end = await flow.execute(
            JobSpec("job-2", ("sh", "-c", script), tmp_path, 60, nodes=2, ranks=2)
        )

    assert (end.end, end.exit_code) == (End.EXIT, 3)
    assert await find_steps(marker) == []
