"""The batch script: what it says to sbatch and to the shell, and what is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgate.errors import ConfigError
from batchgate.slurm import JobScript

TEMPLATES = sorted((Path(__file__).parents[2] / "slurm").glob("*.sbatch"))
HOSTILE = ["a b", "$(touch pwned)", "`id`", "'; id; '", '"', "\\", "*", "%s {x}", "ä\n#SBATCH -N9"]


def script(**changes):
    given = {
        "name": "batchgate-x-1",
        "command": ("batchgate", "run", "campaign"),
        "run_dir": Path("/runs/one"),
        "work_dir": Path("/home/me"),
    }
    return JobScript(**{**given, **changes})


def flags(text):
    return [line.removeprefix("#SBATCH ") for line in text.splitlines() if "#SBATCH" in line]


def test_a_script_says_all_that_an_unattended_run_needs():
    text = script(
        nodes=2, time_s=5400, account="phys", partition="gpu", extra=("--gpus-per-node=4",)
    ).text()

    assert flags(text) == [
        "--job-name=batchgate-x-1",
        "--nodes=2",
        "--time=1:30:00",
        "--signal=B:USR1@120",
        "--requeue",
        "--dependency=singleton",
        "--open-mode=append",
        "--output=/runs/one/slurm-%j.log",
        "--chdir=/home/me",
        "--account=phys",
        "--partition=gpu",
        "--exclusive",
        "--gpus-per-node=4",
    ]
    assert text.startswith("#!/bin/bash\n")
    assert text.endswith("\nexec batchgate run campaign\n")


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda path: path.name)
def test_a_template_says_what_a_script_of_ours_says(template):
    text = template.read_text(encoding="utf-8")
    ours = {flag.partition("=")[0]: flag for flag in script().options()}
    said = {flag.partition("=")[0]: flag for flag in flags(text)}
    free = {"--job-name", "--nodes", "--time", "--output", "--chdir", "--signal"}

    assert ours.keys() - said.keys() <= {"--chdir"}
    assert {ours[name] for name in ours.keys() - free} <= set(said.values())
    assert said["--signal"].startswith("--signal=B:USR1@")
    assert [line for line in text.splitlines() if "batchgate run" in line][-1].startswith(
        ("exec ", "  batchgate run")
    )
    subprocess.run(["bash", "-n", template], check=True)


def test_what_was_not_asked_for_is_left_to_the_site():
    told = " ".join(script(requeue=False, exclusive=False).options())

    assert "--no-requeue" in told
    assert not {"--account", "--partition", "--exclusive"} & set(told.replace("=", " ").split())


def test_the_sites_lines_come_before_the_runner():
    text = script(setup=("module load cuda", "ulimit -c 0")).text()

    lines = text.splitlines()
    assert lines[lines.index("set -e") + 1 :][:2] == ["module load cuda", "ulimit -c 0"]


def test_a_folder_with_blanks_and_percent_signs_is_quoted():
    (output,) = [f for f in flags(script(run_dir=Path("/a b/100%j")).text()) if "output" in f]

    assert output == '"--output=/a b/100%%j/slurm-%j.log"'


@settings(max_examples=25)
@given(st.lists(st.sampled_from(HOSTILE) | st.text(st.characters(exclude_characters="\0"))))
def test_a_word_of_the_command_reaches_the_runner_as_it_is(words):
    words = [word.encode("utf-8", "replace").decode() for word in words]
    show = "import json, sys; print(json.dumps(sys.argv[1:]))"
    text = script(command=(sys.executable, "-c", show, *words)).text()

    done = subprocess.run(["bash"], input=text.encode(), capture_output=True, check=True)

    assert json.loads(done.stdout) == words
    assert len(flags(text.partition("\nset -e\n")[0])) == 10


@pytest.mark.parametrize("bad", ["x\ny", 'a"b', "a'b", "a\\b", "\x1b[31m", "a\u2028b"])
def test_what_sbatch_would_read_differently_is_refused(bad):
    for changed in (
        script(account=bad),
        script(partition=bad),
        script(name=bad),
        script(run_dir=Path(bad)),
        script(work_dir=Path(bad)),
        script(extra=(f"--comment={bad}",)),
    ):
        with pytest.raises(ConfigError, match="cannot be said to sbatch"):
            changed.text()


@pytest.mark.parametrize("bad", ["-N4", "gpu", "--", "--Nodes=4", "x --wrap=id"])
def test_a_further_flag_must_be_a_long_one(bad):
    with pytest.raises(ConfigError, match="write a long flag"):
        script(extra=(bad,)).options()


@pytest.mark.parametrize("bad", ["--wrap=id", "--array=1-9", "--time=1", "--requeue", "--wait"])
def test_a_flag_that_is_set_here_cannot_be_set_twice(bad):
    with pytest.raises(ConfigError, match="is set by batchgate submit itself"):
        script(extra=(bad,)).options()
