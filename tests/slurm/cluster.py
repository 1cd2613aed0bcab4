"""The tests' own Slurm: started once, asked with its own programs, hurt on demand.

Everything here is said to the real Slurm and read from it. Waiting is polling with a deadline.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")
HERE = Path(__file__).parent
RUN = Path("/run/batchgate-slurm")
CONF = Path("/etc/slurm/slurm.conf")
OVER = {"CANCELLED", "COMPLETED", "FAILED", "TIMEOUT"}


def known(value: T | None) -> T:
    """Return a value that Slurm must know by now."""
    assert value is not None
    return value


def call(*argv: str | Path, timeout_s: float = 60, check: bool = True) -> str:
    """Run a program and return what it printed."""
    done = subprocess.run(
        [str(part) for part in argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
    )
    assert not check or done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"
    return done.stdout


def until(holds: Callable[[], bool], *, within_s: float, what: str) -> None:
    """Wait until something holds."""
    end = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < end, f"not within {within_s:g} s: {what}"
        time.sleep(0.2)


def start() -> None:
    """Start the cluster, or what of it has died."""
    call(HERE / "start.sh", timeout_s=900)


@contextlib.contextmanager
def held(*flags: str) -> Iterator[str]:
    """Hold two CPUs of each node and give the job's id, so that a runner here can be killed."""
    half = ("--nodes=2", "--ntasks=4", "--ntasks-per-node=2", "--mem-per-cpu=500M")
    salloc = ("salloc", "--no-shell", "--no-kill", "--time=10", "--immediate=100", *half, *flags)
    granted = subprocess.run(salloc, capture_output=True, text=True, check=True, timeout=110)
    job = granted.stderr.split("Granted job allocation ")[1].split()[0]
    try:
        yield job
    finally:
        call("scancel", job)


@dataclass
class Cluster:
    """A running cluster with the nodes n1 and n2 in partition `batch`, and n1 in `short`.

    Attributes:
        folder: Where jobs start and leave their output.
        jobs: Ids of the jobs that were submitted through this object.
        hurt: Whether a node was ended through it.
    """

    folder: Path
    jobs: list[str] = field(default_factory=list)
    hurt: bool = False

    def sbatch(self, *options: str, wrap: str = "sleep 300") -> str:
        """Submit a command and return the job's id."""
        log = f"--output={self.folder}/%j.log"
        job = call("sbatch", "--parsable", f"--chdir={self.folder}", log, *options, "--wrap", wrap)
        self.jobs.append(job.strip())
        return job.strip()

    def log(self, job: str) -> str:
        """Return what a job has printed."""
        return (self.folder / f"{job}.log").read_text(encoding="utf-8")

    def field(self, job: str, name: str) -> str:
        """Return a field of `scontrol show job`."""
        words = call("scontrol", "-o", "show", "job", job).split()
        return next(word.partition("=")[2] for word in words if word.startswith(f"{name}="))

    def wait_for(self, job: str, *states: str, within_s: float = 120) -> None:
        """Wait until a job is in one of the states."""

        def reached() -> bool:
            state = self.field(job, "JobState")
            assert state in states or state not in OVER, f"job {job} is {state}, not {states}"
            return state in states

        until(reached, within_s=within_s, what=f"job {job} {' or '.join(states)}")

    def running(self, *options: str, wrap: str = "sleep 300") -> str:
        """Submit a command, wait until it runs, and return the job's id."""
        job = self.sbatch(*options, wrap=wrap)
        self.wait_for(job, "RUNNING")
        return job

    def wait_for_text(self, path: Path, text: str) -> None:
        """Wait until a file has a text."""
        until(
            lambda: path.exists() and text in path.read_text(encoding="utf-8"),
            within_s=60,
            what=f"{text!r} in {path}",
        )

    def runs_for(self, job: str, seconds: int) -> None:
        """Wait until the accounting has so many seconds of a job's present life and size."""
        until(
            lambda: (
                self.rows(job)[-1]["State"] == "RUNNING"
                and int(self.rows(job)[-1]["ElapsedRaw"]) >= seconds
            ),
            within_s=60,
            what=f"{seconds} s of job {job}",
        )

    def cancel(self, job: str) -> None:
        """End a job, and wait until its accounting has its end."""
        call("scancel", job)
        until(
            lambda: self.rows(job)[-1]["End"] not in {"Unknown", "None"},
            within_s=60,
            what=f"the end of job {job}",
        )
        self.wait_for(job, "CANCELLED")

    def end_in(self, job: str, seconds: int) -> None:
        """Let a job's time end so many seconds from now; at least 35 for a warning before it.

        Slurm looks every 30 s who gets his warning or is out of time.
        """
        call("scontrol", "update", f"jobid={job}", f"EndTime=now+{seconds}")

    def start_now(self, job: str) -> None:
        """Let a job that was requeued start in 3 s instead of its hold of 20 s.

        Within the second of its requeueing a node takes the new life for the one that it has just
        ended, and Slurm 22.05 lets the job fail: "Job credential revoked".
        """
        self.wait_for(job, "PENDING")
        call("scontrol", "update", f"jobid={job}", "StartTime=now+3")
        self.wait_for(job, "RUNNING")

    def rows(self, job: str) -> list[dict[str, str]]:
        """Return the rows of a job's accounting, all lives and sizes of it."""
        names = ["Start", "End", "ElapsedRaw", "AllocNodes", "State", "NodeList"]
        text = call("sacct", "-D", "-X", "-n", "-P", "-j", job, "-o", ",".join(names))
        return [dict(zip(names, line.split("|"), strict=True)) for line in text.splitlines()]

    def down(self, node: str) -> None:
        """Let Slurm take a node for dead at once."""
        self.hurt = True
        call("scontrol", "update", f"nodename={node}", "state=DOWN", "reason=test")

    def kill_node(self, node: str) -> None:
        """Let a node lose its power; Slurm notices after 15 to 30 s."""
        self.hurt = True
        call(HERE / "kill_node.sh", node)

    @contextlib.contextmanager
    def silent_controller(self) -> Iterator[None]:
        """Stop slurmctld for a while: it takes connections and answers none."""
        pid = int((RUN / "slurmctld.started").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def clear(self) -> None:
        """Cancel the jobs of this object, and bring the nodes back."""
        if self.jobs:
            call("scancel", "--quiet", *self.jobs, check=False)
        if self.hurt:
            start()
