"""An allocation of the real Slurm, against what `scontrol` says of it."""

from __future__ import annotations

import functools
import json
import shlex
import sys
import time

import pytest

from batchgate.slurm import current
from batchgate.slurm.commands import run
from tests.slurm.cluster import CONF, known

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(300),
]

INSIDE = """
import asyncio, dataclasses, json, time
from batchgate.slurm import current, requeue
now = asyncio.run(current())
print(json.dumps([now.job_id, now.restart_count, now.requeueable, now.nodes, now.cpus, now.gpus,
                  now.end_at]), flush=True)
if now.restart_count == 0:
    asyncio.run(requeue(now.job_id))
    time.sleep(60)
"""


def of(job):
    return current(environ={"SLURM_JOB_ID": job}, patience_s=0)


async def test_a_job_sees_what_it_holds_in_each_of_its_lives(cluster):
    command = shlex.join([sys.executable, "-c", INSIDE])
    job = cluster.sbatch(
        "-N2", "-n4", "--gpus-per-node=1", "--time=7", "--open-mode=append", wrap=f"exec {command}"
    )
    cluster.wait_for(job, "RUNNING")

    cluster.start_now(job)
    cluster.wait_for(job, "COMPLETED")

    told = [line for line in cluster.log(job).splitlines() if line.startswith("[")]
    first, second = map(json.loads, told)
    assert first[:-1] == [job, 0, True, ["n1", "n2"], 4, 2]
    assert second[:-1] == [job, 1, True, ["n1", "n2"], 4, 2]
    assert second[-1] > first[-1]


async def test_the_end_is_the_one_that_slurm_names(cluster):
    job = cluster.running("--time=10")
    before = time.time()

    allocation = await of(job)

    assert allocation.end_at == pytest.approx(before + 600, abs=10)
    assert allocation.left_s(before) == pytest.approx(600, abs=10)
    assert allocation.gpus == 0


async def test_an_end_that_was_brought_forward_is_seen(cluster):
    job = cluster.running("--time=10")
    allocation = await of(job)

    cluster.end_in(job, 100)

    after = known(await allocation.refresh())
    assert after.end_at == pytest.approx(time.time() + 100, abs=3)


async def test_a_job_without_a_limit_has_no_end(cluster):
    job = cluster.running("--time=UNLIMITED")

    allocation = await of(job)

    assert allocation.end_at is None


async def test_a_job_that_must_not_be_requeued_says_so(cluster):
    job = cluster.running("--no-requeue")

    allocation = await of(job)

    assert not allocation.requeueable


async def test_nothing_is_known_while_the_controller_is_silent_and_all_of_it_afterwards(cluster):
    job = cluster.running()
    impatient = functools.partial(run, deadline_s=2)
    allocation = await current(environ={"SLURM_JOB_ID": job}, patience_s=0, run=impatient)

    with cluster.silent_controller():
        during = await allocation.refresh()

    assert during is None
    after = known(await allocation.refresh())
    assert after.nodes == allocation.nodes
    assert after.end_at == pytest.approx(allocation.end_at, abs=2)


async def test_a_controller_that_cannot_be_reached_says_nothing_of_the_job(
    cluster, tmp_path, monkeypatch
):
    job = cluster.running()
    allocation = await of(job)
    elsewhere = tmp_path / "slurm.conf"
    elsewhere.write_text(CONF.read_text().replace("SlurmctldPort=16817", "SlurmctldPort=1"))
    monkeypatch.setenv("SLURM_CONF", str(elsewhere))

    found = await allocation.refresh()

    assert found is None


async def test_a_lost_node_is_no_longer_counted(cluster):
    job = cluster.running("-N2", "--no-kill", "--gpus-per-node=1")
    before = await of(job)

    cluster.down("n2")

    after = known(await before.refresh())
    assert (before.nodes, before.gpus) == (("n1", "n2"), 2)
    assert (after.nodes, after.gpus, after.node_count) == (("n1",), 1, 1)


async def test_a_node_that_lost_its_power_is_no_longer_counted_once_slurm_knows(cluster):
    job = cluster.running("-N2", "--no-kill")
    before = await of(job)

    cluster.kill_node("n2")
    deadline = time.monotonic() + 90
    while (now := await before.refresh()) is None or now.node_count == 2:
        assert time.monotonic() < deadline
        time.sleep(1)

    assert now.nodes == ("n1",)
