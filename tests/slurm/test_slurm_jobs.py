"""The state, the next life and the bill of a job of the real Slurm."""

from __future__ import annotations

from datetime import datetime

import pytest

from batchgate.errors import FlowError
from batchgate.slurm import billed, job_state, requeue
from tests.slurm.cluster import CONF, call, known

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(300),
]


def node_s(rows):
    """Return the node-seconds of accounting rows from their instants alone."""
    spans = [
        (datetime.fromisoformat(row["End"]) - datetime.fromisoformat(row["Start"]), row)
        for row in rows
        if row["Start"] != "Unknown"
    ]
    return sum(span.total_seconds() * int(row["AllocNodes"]) for span, row in spans)


async def test_the_state_of_a_job_is_told_while_it_waits_runs_and_has_ended(cluster):
    job = cluster.sbatch("--hold")
    waiting = known(await job_state(job))
    call("scontrol", "release", job)
    cluster.wait_for(job, "RUNNING")
    running = known(await job_state(job))
    cluster.cancel(job)
    ended = known(await job_state(job))

    assert (waiting.state, waiting.reason) == ("PENDING", "JobHeldUser")
    assert (running.state, running.reason, running.over) == ("RUNNING", "", False)
    assert running.start_at is not None
    assert (ended.state, ended.over) == ("CANCELLED", True)


async def test_a_job_that_nobody_knows_has_no_state():
    assert await job_state("99999999") is None


async def test_a_requeued_job_runs_again_under_its_id(cluster):
    job = cluster.running()

    await requeue(job)

    cluster.start_now(job)
    assert known(await job_state(job)).restart_count == 1


async def test_a_job_that_must_not_be_requeued_is_refused(cluster):
    job = cluster.running("--no-requeue")

    with pytest.raises(FlowError, match="disabled"):
        await requeue(job)

    assert known(await job_state(job)).state == "RUNNING"


async def test_the_bill_holds_every_life_of_a_requeued_job_to_the_second(cluster):
    job = cluster.running("-N2")
    cluster.runs_for(job, 3)
    await requeue(job)
    cluster.start_now(job)
    cluster.runs_for(job, 2)

    cluster.cancel(job)

    bill = known(await billed(job))
    assert [row.state for row in bill.rows] == ["REQUEUED", "CANCELLED"]
    assert bill.node_s == node_s(cluster.rows(job))
    assert bill.node_s >= 2 * (3 + 2)


async def test_the_bill_holds_every_size_of_a_job_that_lost_a_node_to_the_second(cluster):
    job = cluster.running("-N2", "--no-kill")
    cluster.runs_for(job, 3)
    cluster.down("n2")
    cluster.runs_for(job, 2)

    cluster.cancel(job)

    bill = known(await billed(job))
    assert [(row.state, row.nodes) for row in bill.rows] == [("RESIZING", 2), ("CANCELLED", 1)]
    assert bill.node_s == node_s(cluster.rows(job))
    assert bill.node_s >= 2 * 3 + 2


async def test_without_accounting_there_is_no_bill(cluster, tmp_path, monkeypatch):
    job = cluster.running()
    without = tmp_path / "slurm.conf"
    kept = [line for line in CONF.read_text().splitlines() if not line.startswith("Accounting")]
    without.write_text("\n".join([*kept, "AccountingStorageType=accounting_storage/none", ""]))

    with_accounting = await billed(job)
    monkeypatch.setenv("SLURM_CONF", str(without))
    nothing = await billed(job)

    assert with_accounting is not None
    assert nothing is None
