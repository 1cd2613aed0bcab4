"""What is asked of `srun`, and what its words mean."""

from pathlib import Path

import pytest

from batchgate.errors import FlowError
from batchgate.flow import steps
from batchgate.flow.srun import Account, Steps
from batchgate.flow.steps import OrphanStep, end_steps, find_steps, memory_per_cpu_mb
from batchgate.job import JobSpec

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


@pytest.fixture
def slurm(monkeypatch):
    """Answer Slurm's commands from a table; what is asked goes into a list."""
    answers: dict[str, str] = {"sinfo": "", "scancel": ""}
    asked: list[tuple[str, ...]] = []

    async def command(*argv):
        asked.append(argv)
        answer = answers[argv[0]]
        if answer == "broken":
            raise FlowError("broken")
        return answer

    monkeypatch.setattr(steps, "command", command)
    monkeypatch.setattr(steps, "_POLL_S", (0.001, 0.001))
    monkeypatch.setattr(steps, "_CANCEL_S", 0.05)
    return answers, asked


async def test_steps_are_found_by_the_whole_marker(slurm):
    answers, _ = slurm
    answers["squeue"] = (
        "5.0|m/job-1|n1\n5.1|m2/job-1|n1\n5.2|xm/job-1|n1\n5.batch|m|n1\n5.3|m@job-2@ab.exec.sh|n2\n"
    )

    assert await find_steps("m") == [
        OrphanStep("5.0", "job-1", "n1"),
        OrphanStep("5.3", "job-2@ab.exec.sh", "n2"),
    ]


async def test_a_step_that_stays_is_an_error(slurm):
    answers, asked = slurm
    answers["squeue"] = "5.0|m/job-1|n1\n"

    with pytest.raises(FlowError, match=r"steps 5\.0 are still there"):
        await end_steps(lambda: find_steps("m"), grace_s=0.02)

    cancels = [argv for argv in asked if argv[0] == "scancel"]
    assert cancels[0] == ("scancel", "--signal=TERM", "5.0")
    assert cancels.count(cancels[0]) == 1
    assert cancels[-1] == ("scancel", "5.0")


async def test_a_step_on_a_dead_node_counts_as_ended(slurm):
    answers, _ = slurm
    answers |= {"squeue": "5.0|m/job-1|n2\n", "sinfo": "n2\n", "scontrol": "n2\n"}

    await end_steps(lambda: find_steps("m"), grace_s=0)


async def test_a_step_that_ends_under_scancel_is_no_error(slurm):
    answers, _ = slurm
    answers |= {"scancel": "broken"}
    left = [[OrphanStep("5.0", "job-1", "n1")], []]

    async def find():
        return left.pop(0)

    await end_steps(find, grace_s=0)

    assert left == []


@pytest.mark.parametrize(
    ("tres", "mb"),
    [
        ("TRES=cpu=8,mem=16000M,node=2,billing=8", 2000),
        ("ReqTRES=cpu=1 AllocTRES=cpu=4,mem=1.5T,node=1", 393216),
        ("ReqTRES=cpu=1,mem=1G AllocTRES=cpu=8,mem=16G,node=1", 2048),
        ("TRES=cpu=8,node=2,billing=8", None),
    ],
)
async def test_memory_is_shared_by_cpu(slurm, tres, mb):
    answers, _ = slurm
    answers["scontrol"] = f"JobId=3 NumCPUs=8 {tres} Socks/Node=*"

    assert await memory_per_cpu_mb() == mb


async def test_a_command_that_fails_or_is_absent_is_an_error():
    with pytest.raises(FlowError, match="sh failed: why"):
        await steps.command("sh", "-c", "echo why >&2; exit 1")
    with pytest.raises(FlowError, match="cannot be run"):
        await steps.command("/no/such/program")


async def test_a_command_that_does_not_answer_is_an_error(monkeypatch):
    monkeypatch.setattr(steps, "_COMMAND_S", 0.1)

    with pytest.raises(FlowError, match=r"no answer within 0\.1 s"):
        await steps.command("sleep", "60")
