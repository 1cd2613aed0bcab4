"""Steps are found by the whole marker and ended for certain, or there is an error."""

import pytest

from batchgate.errors import FlowError
from batchgate.slurm import Step, end_steps, find_steps, memory_per_cpu_mb, steps
from batchgate.slurm.commands import Answer

REFUSED = Answer(1, err="broken")


class Told:
    """Answers each program from a table, and remembers what was asked."""

    def __init__(self, **answers):
        self.answers = {"sinfo": "", "scancel": "", **answers}
        self.asked = []

    async def __call__(self, argv, /, *, env=None):
        self.asked.append(tuple(argv))
        answer = self.answers[argv[0]]
        return answer if isinstance(answer, Answer) else Answer(0, answer)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(steps, "_POLL_S", (0.001, 0.001))
    monkeypatch.setattr(steps, "_CANCEL_S", 0.05)


async def test_steps_are_found_by_the_whole_marker():
    run = Told(
        squeue="5.0|m/job-1|n1\n5.1|m2/job-1|n1\n5.2|xm/job-1|n1\n5.batch|m|n1\n"
        "5.3|m@job-2@ab.exec.sh|n2\n"
    )

    assert await find_steps("m", run=run) == [
        Step("5.0", "job-1", "n1"),
        Step("5.3", "job-2@ab.exec.sh", "n2"),
    ]


async def test_a_step_that_stays_is_an_error():
    run = Told(squeue="5.0|m/job-1|n1\n")

    with pytest.raises(FlowError, match=r"steps 5\.0 are still there"):
        await end_steps(lambda: find_steps("m", run=run), grace_s=0.02, run=run)

    cancels = [argv for argv in run.asked if argv[0] == "scancel"]
    assert cancels[0] == ("scancel", "--signal=TERM", "5.0")
    assert cancels.count(cancels[0]) == 1
    assert cancels[-1] == ("scancel", "5.0")


async def test_a_step_on_a_dead_node_counts_as_ended():
    run = Told(squeue="5.0|m/job-1|n2\n", sinfo="n2\n", scontrol="n2\n")

    await end_steps(lambda: find_steps("m", run=run), grace_s=0, run=run)

    assert not [argv for argv in run.asked if argv[0] == "scancel"]


async def test_a_step_that_ends_under_scancel_is_no_error():
    left = [[Step("5.0", "job-1", "n1")], []]

    async def find():
        return left.pop(0)

    await end_steps(find, grace_s=0, run=Told(scancel=REFUSED))

    assert left == []


async def test_a_slurm_that_does_not_say_which_steps_there_are_is_an_error():
    with pytest.raises(FlowError, match="squeue failed: broken"):
        await find_steps("m", run=Told(squeue=REFUSED))


@pytest.mark.parametrize(
    ("tres", "mb"),
    [
        ("TRES=cpu=8,mem=16000M,node=2,billing=8", 2000),
        ("ReqTRES=cpu=1 AllocTRES=cpu=4,mem=1.5T,node=1", 393216),
        ("ReqTRES=cpu=1,mem=1G AllocTRES=cpu=8,mem=16G,node=1", 2048),
        ("TRES=cpu=8,node=2,billing=8", None),
    ],
)
async def test_memory_is_shared_by_cpu(tres, mb):
    run = Told(scontrol=f"JobId=3 NumCPUs=8 {tres} Socks/Node=*")

    assert await memory_per_cpu_mb(run=run) == mb
