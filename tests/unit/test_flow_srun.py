"""What is asked of `srun`, and what its words mean."""

import asyncio
import os
import uuid
from pathlib import Path

import pytest

from batchgate.flow import srun
from batchgate.flow.srun import Account, Steps
from batchgate.job import End, JobSpec

LAUNCHED = "srun: launching StepId=5.0 on host n1, 1 tasks: 0\n"


def ended(tasks, status):
    return (
        "srun: launch/slurm: _task_finish: Received task exit notification for "
        f"{tasks} task{'s' if tasks > 1 else ''} of StepId=5.0 (status=0x{status:04x}).\n"
    )


async def heard(*lines):
    account = Account()
    for line in lines:
        account.hear(line)
    return account


async def test_a_step_ended_well_when_each_process_is_known_to_have_exited_with_0():
    account = await heard(LAUNCHED, ended(2, 0), ended(1, 0))

    assert account.launched.done()
    assert account.hosts == ["n1"]
    assert account.code(3) == 0


async def test_the_first_process_that_failed_gives_the_code():
    account = await heard(LAUNCHED, ended(1, 0), ended(1, 0x0700), ended(1, 0x0009))

    assert account.failed.done()
    assert account.code(3) == 7


async def test_a_signal_is_a_negative_code():
    assert (await heard(LAUNCHED, ended(1, 0x000B))).code(1) == -11


async def test_a_process_that_nobody_heard_of_leaves_the_end_open():
    assert (await heard(LAUNCHED, ended(1, 0))).code(2) is None


async def test_a_node_that_died_leaves_the_end_open():
    account = await heard(LAUNCHED, ended(1, 0), "srun: error: Node failure on n2\n")

    assert account.code(1) is None
    assert account.complaint == "Node failure on n2"


async def test_other_words_say_nothing():
    account = await heard("srun: jobid 5: nodes(2):`n[1-2]', cpu counts: 4(x2)\n", "\n")

    assert not account.launched.done()
    assert account.code(1) is None


def test_a_step_asks_for_what_the_level_says():
    place = Steps("run-1", 5.0, 500)
    spec = JobSpec(
        "job-1", ("sim", "-x"), Path("/"), 60, nodes=1.5, ranks=3, cores_per_rank=2, gpus_per_rank=1
    )

    argv = place.argv(spec, 4, 6)

    assert argv[:1] == ("srun",)
    assert argv[-3:] == ("--", "sim", "-x")
    assert {
        *("--exact", "--nodes=2", "--ntasks=3", "--cpus-per-task=2", "--gpus-per-task=1"),
        *(
            "--mem-per-cpu=500M",
            "--job-name=run-1/job-1",
            "--output=/dev/fd/4",
            "--error=/dev/fd/6",
        ),
    } <= set(argv)


def test_a_step_without_gpus_takes_none_and_without_counted_memory_asks_for_none():
    argv = Steps("run-1", 5.0, None).argv(JobSpec("job-1", ("sim",), Path("/"), 60), 4, 6)

    assert "--gres=none" in argv
    assert not [word for word in argv if word.startswith("--mem")]


def test_after_a_node_died_a_step_does_not_wait_for_cpus_of_its_own():
    argv = Steps("run-1", 5.0, None, {"n2"}).argv(JobSpec("job-1", ("sim",), Path("/"), 60), 4, 6)

    assert "--overlap" in argv
    assert "--exact" not in argv


FAKES = {
    "srun": f"""
printf '{LAUNCHED}' >&2
while true; do sleep 1; done
""",
    "sinfo": "echo $DOWN",
    "squeue": "",
    "scontrol": "echo 'TRES=cpu=8,node=2'",
    "scancel": "",
}


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """Put a Slurm on the path whose `srun` launches a step on n1 and never says another word."""
    for name, script in FAKES.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("SLURM_JOB_ID", "5")


async def end_of_a_job(tmp_path, script, *, walltime_s=60):
    """Run a job with this script as `srun`."""
    (tmp_path / "bin" / "srun").write_text(f"#!/bin/sh\n{script}\n")
    place = await Steps.open(marker=f"test-{uuid.uuid4().hex}", grace_s=0.1)
    never = asyncio.get_running_loop().create_future()
    return await place.run(JobSpec("job-1", ("sim",), tmp_path, walltime_s), stop=never)


async def test_a_job_waits_for_a_slurm_that_does_not_answer(slurm, tmp_path, monkeypatch):
    monkeypatch.setattr(srun, "_RETRY_S", 0.01)
    script = f"""
if [ ! -e asked ]; then
    touch asked
    echo 'srun: error: Unable to confirm allocation for job 5: Socket timed out' >&2
    exit 1
fi
printf '{LAUNCHED}{ended(1, 0)}' >&2
"""
    found = await end_of_a_job(tmp_path, script)

    assert (found.end, found.exit_code) == (End.COMPLETED, 0)


async def test_a_job_that_waits_for_slurm_can_be_canceled(slurm, tmp_path):
    refused = "echo 'srun: error: Unable to contact slurm controller' >&2; touch asked; exit 1"
    (tmp_path / "bin" / "srun").write_text(f"#!/bin/sh\n{refused}\n")
    place = await Steps.open(marker=f"test-{uuid.uuid4().hex}", grace_s=0.1)
    stop = asyncio.get_running_loop().create_future()
    running = asyncio.ensure_future(place.run(JobSpec("job-1", ("sim",), tmp_path, 60), stop=stop))
    while not (tmp_path / "asked").exists():
        await asyncio.sleep(0.01)

    stop.set_result(None)

    assert (await running).end is End.CANCELED


async def test_a_job_whose_processes_have_ended_is_over_whatever_srun_still_does(slurm, tmp_path):
    script = f"printf '{LAUNCHED}{ended(1, 0)}' >&2; while true; do sleep 1; done"
    found = await end_of_a_job(tmp_path, script, walltime_s=0.5)

    assert (found.end, found.exit_code) == (End.COMPLETED, 0)


async def test_a_line_without_end_is_no_word_of_slurm(slurm, tmp_path):
    script = f"head -c 300000 /dev/zero | tr '\\0' x >&2; printf '\\n{LAUNCHED}{ended(1, 0)}' >&2"
    found = await end_of_a_job(tmp_path, script)

    assert (found.end, found.exit_code) == (End.COMPLETED, 0)


@pytest.mark.parametrize(
    ("down", "end"), [("n1", End.UNKNOWN), ("n2", End.TIMED_OUT), ("", End.TIMED_OUT)]
)
async def test_a_walltime_that_passed_on_a_dead_node_says_nothing_of_the_job(
    slurm, tmp_path, monkeypatch, down, end
):
    monkeypatch.setenv("DOWN", down)
    place = await Steps.open(marker=f"test-{uuid.uuid4().hex}", grace_s=0.1)
    never = asyncio.get_running_loop().create_future()

    found = await place.run(JobSpec("job-1", ("sim",), tmp_path, 0.2), stop=never)

    assert found.end is end
    assert place.dead == ({"n1"} if down == "n1" else set())
    if down == "n1":
        assert found.error == "its end is not known: n1 is down"
