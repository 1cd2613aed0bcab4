"""A call of a Slurm program always comes back, and says nothing where nothing was said."""

import asyncio
import os
import sys
import time

import psutil
import pytest

from batchgate.slurm import commands
from batchgate.slurm.commands import Answer, run


def python(code):
    return [sys.executable, "-c", code]


async def test_a_program_answers_with_its_code_and_what_it_printed():
    answer = await run(
        python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(7)")
    )

    assert answer == Answer(7, "out\n", "err\n")
    assert not answer.ok


async def test_a_question_is_asked_in_the_c_locale_and_in_utc(monkeypatch):
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")

    names = ["LC_ALL", "TZ", "SLURM_TIME_FORMAT"]
    answer = await run(python(f"import os; print([os.environ[n] for n in {names}])"))

    assert answer.out.strip() == "['C', 'UTC0', 'standard']"


async def test_a_given_environment_is_taken_as_it_is():
    answer = await run(python("import os; print(sorted(os.environ))"), env={"ONLY": "this"})

    assert "'ONLY'" in answer.out
    assert "TZ" not in answer.out


async def test_a_program_that_is_missing_gives_no_answer():
    answer = await run(["/absent/scontrol", "show", "job"])

    assert answer.code is None
    assert "/absent/scontrol cannot be run" in answer.error


async def test_an_argument_with_a_nul_gives_no_answer():
    assert (await run([sys.executable, "\0"])).code is None


async def test_a_program_that_hangs_is_killed_at_its_deadline():
    began = time.monotonic()

    answer = await run(python("import time; time.sleep(60)"), deadline_s=0.5)

    assert answer.code is None
    assert "no answer in 0.5 s" in answer.error
    assert time.monotonic() - began < 20
    assert psutil.Process(os.getpid()).children() == []


# 1 MiB is more than a stream holds before it reads no further.
@pytest.mark.parametrize("bytes_at_once", [100, 1 << 20])
async def test_a_program_that_prints_without_end_is_killed(monkeypatch, bytes_at_once):
    monkeypatch.setattr(commands, "MAX_BYTES", 1000)

    answer = await run(python(f"import os\nwhile True: os.write(1, bytes({bytes_at_once}))"))

    assert answer.code is None
    assert "more than 1000 bytes" in answer.error
    assert psutil.Process(os.getpid()).children() == []


@pytest.mark.parametrize("then", ["", "time.sleep(60)"])
async def test_a_program_that_leaves_its_output_to_a_child_is_given_up(then):
    child = "import time; time.sleep(10)"
    began = time.monotonic()

    answer = await run(
        python(
            f"import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', {child!r}]); {then}"
        ),
        deadline_s=2,
    )

    assert answer.code is None
    assert "no answer in 2 s" in answer.error
    assert time.monotonic() - began < 30


async def test_a_call_that_is_cancelled_leaves_no_program():
    call = asyncio.create_task(run(python("import time; time.sleep(60)")))
    await asyncio.sleep(0)
    while not psutil.Process(os.getpid()).children():
        await asyncio.sleep(0.01)

    call.cancel()

    with pytest.raises(asyncio.CancelledError):
        await call
    assert psutil.Process(os.getpid()).children() == []


@pytest.mark.parametrize(
    "said",
    [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "scontrol: error: slurm_receive_msg: Socket timed out on send/recv operation",
        "sacct: error: Problem talking to the database: Connection refused",
    ],
)
async def test_a_slurm_that_cannot_be_reached_gives_no_answer(said):
    answer = await run(python(f"import sys; sys.exit({said!r})"))

    assert answer.code is None
    assert answer.error == said


async def test_a_refusal_is_an_answer():
    answer = await run(python("import sys; sys.exit('Invalid job id specified')"))

    assert answer.code == 1


def test_an_error_is_one_line_that_can_be_printed():
    answer = Answer(1, "", "a\x1b[31m\n" + "b " * 1000)

    assert answer.error.startswith("a [31m b b")
    assert len(answer.error) == commands.MAX_ERROR_CHARS


def test_a_failure_without_words_names_its_code():
    assert Answer(3).error == "exit code 3"
