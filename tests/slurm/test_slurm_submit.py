"""`batchgate submit` and the templates, with the real Slurm."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchgate.ledger import check_run
from tests.slurm.cluster import CONF, call

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.xdist_group("slurm"),
    pytest.mark.timeout(300),
]

ROOT = Path(__file__).parents[2]
BRANIN = ROOT / "campaigns" / "branin"
TEMPLATES = sorted((ROOT / "slurm").glob("*.sbatch"))
SMALL = ("--time", "0:10:00", "--sbatch=--cpus-per-task=2")
RUN = ("--", "--producer", "none", "--slots", "2")


@pytest.fixture
def submit(cluster):
    """Return a function that submits with flags; half a node, so that jobs fit side by side."""

    def run(*flags, jobs_on="local", **variables):
        env = {k: v for k, v in os.environ.items() if not k.startswith(("SLURM_", "SBATCH_"))}
        done = subprocess.run(
            [sys.executable, "-m", "batchgate", "submit", str(BRANIN), "--json", *flags],
            env={
                **env,
                "BATCHGATE_SLURM__EXCLUSIVE": "false",
                "BATCHGATE_JOBS_ON": jobs_on,
                **variables,
            },
            cwd=cluster.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        if done.returncode == 0:
            cluster.jobs += json.loads(done.stdout)["jobs"]
        return done

    return run


def test_a_submitted_campaign_runs_to_its_end(cluster, submit):
    folder = cluster.folder / "a night, 100% of it"

    done = submit("--run", str(folder), *SMALL, *RUN, "--max-jobs", "6")

    (job,) = json.loads(done.stdout)["jobs"]
    cluster.wait_for(job, "COMPLETED")
    assert "run stopped by rule jobs" in (folder / "run.log").read_text()
    assert "report:" in (folder / f"slurm-{job}.log").read_text()
    assert check_run(folder) == []


def test_the_jobs_of_a_chain_run_one_after_the_other(cluster, submit):
    folder = cluster.folder / "run"

    done = submit("--run", str(folder), "--chain", "2", *SMALL, *RUN, "--max-jobs", "2")

    first, second = json.loads(done.stdout)["jobs"]
    cluster.wait_for(second, "COMPLETED")
    assert cluster.field(first, "JobState") == "COMPLETED"
    assert cluster.field(second, "StartTime") >= cluster.field(first, "EndTime")


def test_the_script_that_is_kept_can_be_submitted_by_hand(cluster, submit):
    folder = cluster.folder / "run"
    done = submit("--run", str(folder), *SMALL, *RUN, "--max-jobs", "1")
    (job,) = json.loads(done.stdout)["jobs"]
    cluster.wait_for(job, "COMPLETED")

    again = call("sbatch", "--parsable", folder / "submit.sbatch").strip()
    cluster.jobs.append(again)

    cluster.wait_for(again, "COMPLETED")
    assert cluster.field(again, "JobName") == cluster.field(job, "JobName")


def test_the_warning_reaches_the_runner_itself(cluster, submit, tmp_path):
    listener = tmp_path / "listener.py"
    listener.write_text(
        "import signal, sys\n"
        "signal.signal(signal.SIGUSR1, lambda *_: sys.exit(3))\n"
        "print('listening', flush=True)\n"
        "while True: signal.pause()\n"
    )
    command = json.dumps([sys.executable, str(listener)])
    folder = cluster.folder / "run"
    done = submit("--run", str(folder), *SMALL, *RUN, BATCHGATE_SLURM__COMMAND=command)
    (job,) = json.loads(done.stdout)["jobs"]
    cluster.wait_for_text(folder / f"slurm-{job}.log", "listening")

    call("scancel", "--batch", "--signal=USR1", job)

    cluster.wait_for(job, "FAILED")
    assert cluster.field(job, "ExitCode") == "3:0"


def test_what_was_asked_for_outweighs_the_variables_of_a_shell(cluster, submit):
    done = submit(
        "--run", str(cluster.folder / "run"), *SMALL, *RUN,
        BATCHGATE_SLURM__EXTRA='["--hold"]', SBATCH_OPEN_MODE="truncate", SBATCH_TIMELIMIT="1",
    )  # fmt: skip

    (job,) = json.loads(done.stdout)["jobs"]
    assert cluster.field(job, "TimeLimit") == "00:10:00"
    assert cluster.field(job, "Requeue") == "1"


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--partition", "short", "--time", "0:20:00"], "partition short allows at most 00:10:00"),
        (["--partition", "short", "--nodes", "2", "--time", "0:10:00"], "not available"),
        (["--partition", "absent"], "invalid partition specified: absent"),
        (["--nodes", "3"], "not available"),
        (["--sbatch=--constraint=absent"], "Invalid feature specification"),
    ],
)
def test_what_would_never_start_is_refused_and_nothing_is_written(cluster, submit, flags, why):
    done = submit("--run", str(cluster.folder / "run"), *flags, *RUN, jobs_on="srun")

    assert done.returncode == 2
    assert why in done.stderr
    assert not (cluster.folder / "run").exists()


def test_a_controller_that_cannot_be_reached_is_no_refusal(cluster, submit):
    elsewhere = cluster.folder / "slurm.conf"
    elsewhere.write_text(CONF.read_text().replace("SlurmctldPort=16817", "SlurmctldPort=1"))

    done = submit(
        "--run", str(cluster.folder / "run"), "--dry-run", *SMALL, *RUN, SLURM_CONF=str(elsewhere)
    )

    assert done.returncode == 0
    assert "Slurm could not be asked" in done.stderr
    assert done.stdout.startswith("{")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_is_one_that_slurm_would_start(cluster, template):
    # The nodes of the tests are two, with one GPU each.
    call("sbatch", "--test-only", "--nodes=2", "--gpus-per-node=1", template)
