"""What is read from the recorded answers of Slurm 22.05, and what is made of none."""

import math
import socket

import pytest

from batchgate.errors import FlowError
from batchgate.slurm import Allocation, billed, current, job_state, requeue
from batchgate.slurm.commands import Answer

NOW = 1796063225.0
JOB = (
    "JobId=2 JobName=wrap UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901758 Nice=0 "
    "Account=root QOS=normal JobState=RUNNING Reason=None Dependency=(null) Requeue=1 Restarts=3 "
    "BatchFlag=1 Reboot=0 ExitCode=0:0 RunTime=00:00:02 TimeLimit=00:05:00 TimeMin=N/A "
    "SubmitTime=2026-11-30T18:27:03 StartTime=2026-11-30T18:27:03 EndTime=2026-11-30T18:32:03 "
    "Deadline=N/A Partition=batch NodeList=n[1-2] BatchHost=n1 NumNodes=2 NumCPUs=2 NumTasks=2 "
    "TRES=cpu=2,mem=4000M,node=2,billing=2,gres/gpu=2 WorkDir=/tmp TresPerNode=gres:gpu:1 \n"
)
SILENT = Answer(None, err="scontrol gave no answer in 20 s")
GONE = Answer(1, err="slurm_load_jobs error: Invalid job id specified")


class Recorded:
    """Answers by the first words of a call, and remembers the calls."""

    def __init__(self, **answers):
        self.answers = {
            "scontrol -o show job": Answer(0, JOB),
            "scontrol show hostnames": Answer(0, "n1\nn2\n"),
            **{words.replace("_", " "): answer for words, answer in answers.items()},
        }
        self.calls = []

    async def __call__(self, argv, /, *, env=None):
        self.calls.append(list(argv))
        said = " ".join(argv)
        return next(a for words, a in self.answers.items() if said.startswith(words))

    def job(self, *changes):
        text = JOB
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        self.answers["scontrol -o show job"] = Answer(0, text)


def ask(run, **options):
    environ = {"SLURM_JOB_ID": "2"}
    return current(environ=environ, run=run, clock=lambda: NOW, patience_s=0, **options)


async def test_an_allocation_is_what_slurm_says_of_the_job():
    allocation = await ask(Recorded())

    assert allocation == Allocation(
        job_id="2",
        restart_count=3,
        requeueable=True,
        nodes=("n1", "n2"),
        cpus=2,
        gpus=2,
        end_at=1796063523.0,
        seen_at=NOW,
        started_at=1796063223.0,
    )


@pytest.mark.parametrize(
    ("limit", "end", "left_s"),
    [
        ("00:05:00", "2026-11-30T18:28:05", 60),
        ("00:01:00", "2026-11-30T18:32:03", 58),
        ("UNLIMITED", "2026-11-30T18:28:05", 60),
        ("00:05:00", "Unknown", 298),
        ("UNLIMITED", "Unknown", math.inf),
    ],
)
async def test_the_end_is_the_earlier_of_the_one_named_and_the_one_left(limit, end, left_s):
    run = Recorded()
    run.job(("TimeLimit=00:05:00", f"TimeLimit={limit}"), ("2026-11-30T18:32:03", end))

    allocation = await ask(run)

    assert allocation.left_s(NOW) == left_s
    assert (allocation.end_at is None) == (left_s == math.inf)


@pytest.mark.parametrize("flag", ["Requeue", "BatchFlag"])
async def test_a_job_that_slurm_would_not_requeue_is_none_to_requeue(flag):
    run = Recorded()
    run.job((f"{flag}=1", f"{flag}=0"))

    assert not (await ask(run)).requeueable


@pytest.mark.parametrize(
    "changes",
    [
        [("NodeList=n[1-2]", "NodeList=(null)")],
        [("NodeList=n[1-2]", "NodeList=")],
        [("EndTime=2026-11-30T18:32:03", "EndTime=Unknown"), ("TimeLimit=00:05:00", "TimeLimit=?")],
        [("JobId=2 ", "JobId=3 ")],
    ],
)
async def test_an_answer_that_cannot_be_read_is_no_answer(changes):
    run = Recorded()
    allocation = await ask(run)

    run.job(*changes)

    assert await allocation.refresh() is None


@pytest.mark.parametrize("answer", [SILENT, GONE, Answer(0, "")])
async def test_nothing_is_known_when_slurm_does_not_say(answer):
    run = Recorded()
    allocation = await ask(run)

    run.answers["scontrol -o show job"] = answer

    assert await allocation.refresh() is None


async def test_nothing_is_known_when_the_nodes_are_not_named():
    run = Recorded()
    allocation = await ask(run)

    run.answers["scontrol show hostnames"] = SILENT

    assert await allocation.refresh() is None


async def test_a_job_that_slurm_does_not_explain_is_an_error_that_says_so():
    run = Recorded(scontrol=SILENT)
    run.answers = {"scontrol": SILENT}

    with pytest.raises(FlowError, match=r"what job 2 holds \(scontrol gave no answer in 20 s\)"):
        await ask(run)


async def test_without_slurm_the_machine_is_the_allocation():
    allocation = await current(environ={}, wall_s=60, clock=lambda: NOW)

    assert allocation.nodes == (socket.gethostname(),)
    assert (allocation.job_id, allocation.restart_count, allocation.requeueable) == ("", 0, False)
    assert allocation.left_s(NOW) == 60
    assert await allocation.refresh() is allocation


def test_a_machine_without_a_wall_has_no_end():
    assert Allocation.local().end_at is None


async def test_the_bill_is_the_sum_over_all_rows():
    rows = (
        "2026-11-30T18:45:56|3|2|RESIZING\n"
        "2026-11-30T18:45:59|4|1|CANCELLED by 0\n"
        "Unknown|0|0|PENDING\n"
    )
    run = Recorded(sacct=Answer(0, rows))

    bill = await billed("2", run=run, clock=lambda: NOW)

    assert bill is not None
    assert bill.node_s == 3 * 2 + 4
    assert [row.state for row in bill.rows] == ["RESIZING", "CANCELLED", "PENDING"]
    assert bill.rows[2].started_at is None
    (call,) = run.calls
    assert call[call.index("-S") + 1] == "2025-11-30T18:27:05"
    assert {"-D", "-X"} <= set(call)


@pytest.mark.parametrize(
    "answer", [SILENT, Answer(1, err="Slurm accounting storage is disabled"), Answer(0, "")]
)
async def test_without_accounting_there_is_no_bill(answer):
    assert await billed("2", run=Recorded(sacct=answer)) is None


async def test_the_state_of_a_job_is_what_slurm_says():
    state = await job_state("2", run=Recorded())

    assert state is not None
    assert (state.state, state.reason, state.restart_count) == ("RUNNING", "", 3)
    assert state.start_at == 1796063223
    assert not state.over


async def test_a_job_that_slurm_forgot_has_the_state_of_its_last_row():
    run = Recorded(sacct=Answer(0, "Unknown|5|1|REQUEUED\n2026-11-30T18:45:59|4|1|TIMEOUT\n"))
    run.answers["scontrol -o show job"] = GONE

    state = await job_state("2", run=run)

    assert state is not None
    assert (state.state, state.over) == ("TIMEOUT", True)


async def test_a_silent_slurm_does_not_end_a_job():
    run = Recorded(sacct=Answer(0, "2026-11-30T18:45:59|4|1|TIMEOUT\n"))
    run.answers["scontrol -o show job"] = SILENT

    assert await job_state("2", run=run) is None


@pytest.mark.parametrize("answer", [SILENT, Answer(1, err="Access/permission denied")])
async def test_what_slurm_did_not_do_is_an_error(answer):
    run = Recorded()
    run.answers["scontrol requeue"] = answer

    with pytest.raises(FlowError, match="did not requeue job 2: "):
        await requeue("2", run=run)
