"""A whole campaign in a RADICAL pilot, whose first runner is killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchgate.events import JobEnded, RunStopped
from batchgate.flow import find_orphans
from batchgate.job import End
from batchgate.ledger import check_run
from tests.slurm.cluster import call, held, until
from tests.slurm.night import Night
from tests.slurm.pilot import RESOURCE, home, inside

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(600),
]


def test_a_campaign_in_a_pilot_outlives_its_runner_and_runs_every_candidate_once(
    slurm_started: None, tmp_path: Path
) -> None:
    night = Night.make(tmp_path / "night", jobs=20, pause_s=0.5, walltime_s=60)
    variables = home(tmp_path / "home")
    with held("--gres=gpu:1") as job:
        variables |= inside(job)
        variables |= {"BATCHGATE_JOBS_ON": "radical_pilot", "BATCHGATE_PILOT_RESOURCE": RESOURCE}
        try:
            killed = night.start("--slots", "4", **variables)
            until(lambda: sum(night.said("ended").values()) >= 4, within_s=200, what="four jobs")
            killed.kill()
            killed.wait()

            assert night.start("--slots", "4", **variables).wait(300) == 0
        finally:
            night.end()
        steps = call("squeue", "--steps", "--noheader", "-j", job, "-o", "%j").split()

    assert night.lives == 2
    assert len(night.events(RunStopped)) == 1
    night.assert_each_finished_once(20)
    ends = [event.end for event in night.events(JobEnded)]
    assert set(ends) <= {End.COMPLETED, End.ORPHANED}
    assert {"n1", "n2"} == set(night.where("ended"))
    assert check_run(night.folder) == []
    assert [name for name in steps if name.startswith("night-")] == []
    assert find_orphans(night.name) == []
