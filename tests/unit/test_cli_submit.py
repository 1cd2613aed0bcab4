"""`batchgate submit` with a Slurm that is played by files: what is asked of it, and what is told."""

import json
import os
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from batchgate.cli import main

BRANIN = str(Path(__file__).parents[2] / "campaigns" / "branin")
RUN = ("--", "--producer", "none", "--max-jobs", "6")
PARTITIONS = (
    "PartitionName=batch Default=YES MaxTime=UNLIMITED\n"
    "PartitionName=short Default=NO MaxTime=00:10:00\n"
)


class Played:
    """Programs called scontrol and sbatch on the path, which remember how they were called."""

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "bin"
        self.programs.mkdir()
        self.calls = folder / "calls"
        self.play("scontrol", PARTITIONS)
        self.play("sbatch", "12;cluster\n")

    def play(self, name, out="", err="", code=0):
        """Let a program say this from now on."""
        path = self.programs / name
        path.write_text(
            f"#!{sys.executable}\n"
            "import json, os, sys\n"
            f"with open({str(self.calls)!r}, 'a') as file:\n"
            "    file.write(json.dumps([sys.argv[1:], dict(os.environ)]) + '\\n')\n"
            f"sys.stdout.write({out!r}); sys.stderr.write({err!r}); sys.exit({code})\n"
        )
        path.chmod(0o755)

    def told(self):
        """Return arguments and environment of each call."""
        return [json.loads(line) for line in self.calls.read_text().splitlines()]


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    played = Played(tmp_path)
    monkeypatch.setenv("PATH", f"{played.programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("BATCHGATE", "SLURM", "SBATCH")):
            monkeypatch.delenv(name)
    return played


def submit(*args):
    return CliRunner().invoke(main, ["submit", *args])


def test_a_campaign_is_submitted_with_the_script_that_is_kept(slurm, tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")

    done = submit(BRANIN, "--run", "one", *RUN)

    assert done.exit_code == 0, done.output
    assert "as job 12" in done.output
    script = tmp_path / "one" / "submit.sbatch"
    argv, environ = slurm.told()[-1]
    assert argv[0] == "--parsable"
    assert argv[-1] == str(script)
    assert all(f"#SBATCH {flag}\n" in script.read_text() for flag in argv[1:-1])
    assert environ["SLURM_CONF"] == "/etc/slurm.conf"
    assert "SLURM_JOB_ID" not in environ
    assert environ.get("TZ") == os.environ.get("TZ")


def test_the_command_of_the_script_is_the_run_with_its_options(slurm, tmp_path):
    done = submit(BRANIN, "--run", "one two", "--dry-run", *RUN, "--set", "stop.jobs=4")

    last = done.stdout.splitlines()[-1]
    assert shlex.split(last) == [
        *("exec", sys.executable, "-m", "batchgate", "run", BRANIN),
        *("--run", str(tmp_path / "one two"), "--producer", "none", "--max-jobs", "6"),
        *("--set", "stop.jobs=4"),
    ]


def test_a_dry_run_writes_and_submits_nothing(slurm, tmp_path):
    done = submit(BRANIN, "--run", "one", "--dry-run", *RUN)

    assert done.exit_code == 0
    assert not (tmp_path / "one").exists()
    assert not any("--parsable" in argv for argv, _ in slurm.told())


def test_two_jobs_of_a_run_share_a_name_and_two_runs_do_not(slurm):
    names = [
        json.loads(submit(BRANIN, "--json", "--dry-run", "--run", run, *RUN).stdout)["name"]
        for run in ("one", "one", "two")
    ]

    assert names[0] == names[1] != names[2]
    assert names[0].startswith("batchgate-branin-")


def test_a_chain_is_so_many_jobs_that_are_not_requeued(slurm):
    done = submit(BRANIN, "--run", "one", "--chain", "3", "--json", *RUN)

    told = json.loads(done.stdout)
    assert told["jobs"] == ["12", "12", "12"]
    assert "--no-requeue" in told["options"]


def test_flags_outweigh_variables_and_they_the_sites_file(slurm, tmp_path, monkeypatch):
    (tmp_path / "batchgate.toml").write_text(
        "[slurm]\n"
        'account = "file"\npartition = "batch"\ntime = "2:00:00"\nextra = ["--gpus-per-node=4"]\n'
        'command = ["apptainer", "exec", "a b.sif", "batchgate"]\nsetup = ["module load cuda"]\n'
    )
    monkeypatch.setenv("BATCHGATE_SLURM__ACCOUNT", "variable")
    monkeypatch.setenv("BATCHGATE_SLURM__PARTITION", "variable")

    done = submit(BRANIN, "--dry-run", "--partition", "flag", "--sbatch=--constraint=x", *RUN)

    for line in ("account=variable", "partition=flag", "time=2:00:00", "gpus-per-node=4"):
        assert f"#SBATCH --{line}\n" in done.stdout
    assert "#SBATCH --constraint=x\n" in done.stdout
    assert "\nmodule load cuda\n" in done.stdout
    assert "\nexec apptainer exec 'a b.sif' batchgate run " in done.stdout


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (["absent", *RUN], "neither a folder nor an installed campaign"),
        ([BRANIN, *RUN, "--set", "stop.job=1"], "did you mean 'jobs'"),
        ([BRANIN, *RUN, "--run", "x"], "give --run before the --"),
        ([BRANIN, "--", "--producer", "robot"], "'robot' is not one of"),
        ([BRANIN, "--", "--model", "/absent/model", "--set", "stop.jobs=1"], "/absent/model"),
        ([BRANIN, "--time", "4:00", *RUN], "must be H:MM:SS"),
        ([BRANIN, "--time", "0:00:00", *RUN], "must be H:MM:SS"),
        ([BRANIN, "--time", "0:03:10", *RUN], "so none would be launched"),
        ([BRANIN, "--partition", "short", *RUN], "partition short allows at most 00:10:00"),
        ([BRANIN, *RUN, "--set", "level.job.resources.nodes=2"], "--nodes is 1"),
        ([BRANIN, "--nodes", "2", *RUN], "run on the first of them only"),
        ([BRANIN, "--sbatch=--wrap=id", *RUN], "--wrap is set by batchgate submit itself"),
        ([BRANIN, "--account", "a b\nc", *RUN], "cannot be said to sbatch"),
        ([BRANIN, "--chain", "2", "--requeue", *RUN], "take one"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_submitted(slurm, tmp_path, args, why):
    (tmp_path / "batchgate.toml").write_text('vllm_command = ["vllm", "serve"]\n')

    done = submit("--run", "one", *args)

    assert done.exit_code == 2
    assert why in done.output
    assert not (tmp_path / "one").exists()


def test_a_refusal_of_slurm_is_told_in_its_words(slurm):
    slurm.play(
        "sbatch", err="sbatch: error: Batch job submission failed: Invalid account\n", code=1
    )

    done = submit(BRANIN, "--run", "one", *RUN)

    assert done.exit_code == 2
    assert "Invalid account" in done.output


def test_a_slurm_that_does_not_answer_may_have_taken_the_job(slurm):
    silent = "sbatch: error: Batch job submission failed: Unable to contact slurm controller\n"
    slurm.play("sbatch", err=silent, code=1)

    done = submit(BRANIN, "--run", "one", *RUN)

    assert done.exit_code == 6
    assert "look whether it has the job: squeue --me --name batchgate-branin-" in done.output


def test_a_dry_run_needs_no_slurm(slurm, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))

    done = submit(BRANIN, "--run", "one", "--dry-run", *RUN)

    assert done.exit_code == 0
    assert "Slurm could not be asked" in done.stderr
    assert done.stdout.startswith("#!/bin/bash\n")


def test_without_slurm_nothing_can_be_submitted(slurm, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))

    done = submit(BRANIN, "--run", "one", *RUN)

    assert done.exit_code == 2
    assert "there is no sbatch here" in done.output


def test_a_run_directory_that_cannot_be_made_is_told(slurm, tmp_path):
    (tmp_path / "file").write_text("")

    done = submit(BRANIN, "--run", "file/one", *RUN)

    assert done.exit_code == 4
    assert "choose another directory with --run" in done.output
