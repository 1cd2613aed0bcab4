"""A small campaign for unattended nights: its jobs say on disk that they ran, and where."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchgate.events import Event, JobEnded, JobPlanned, ResultAccepted, SegmentOpened
from batchgate.ledger import read

CODE = '''
import os
import signal
import socket
import time


def simulate(candidate):
    """Take a while, and say so in a file that only grows."""
    if candidate["stubborn"] == "until told":
        if not os.path.exists(candidate["log"] + ".tame"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            say(candidate, "began")
            while True:
                time.sleep(1)
    say(candidate, "began")
    time.sleep(candidate["pause_s"])
    say(candidate, "ended")
    return {"y": (candidate["x"] - 3) ** 2}


def say(candidate, what):
    line = f"{what} {candidate['x']!r} {os.environ.get('SLURMD_NODENAME', '-')}\\n"
    with open(candidate["log"], "a") as file:
        file.write(line)
'''

SPEC = """
[campaign]
name = "night"

[variables]
x = {{ domain = [-10.0, 10.0] }}

[constants]
log = {log}
pause_s = {pause_s}
stubborn = {stubborn}

[objectives]
y = "MINIMIZE"

[[level]]
name = "job"
use = "campaign:simulate"
timeout_s = {walltime_s}
resources = {{ nodes = {nodes} }}

[fallback]
use = "batchgate.surrogates:Sobol"

[stop]
jobs = {jobs}
node_h = 100
"""


@dataclass
class Night:
    """A run directory of the campaign, and what is known of it from its files alone.

    Attributes:
        folder: The run's directory.
        campaign: The campaign's.
    """

    folder: Path
    campaign: Path
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    @classmethod
    def make(
        cls,
        parent: Path,
        *,
        jobs: int,
        pause_s: float = 1.0,
        walltime_s: float = 30,
        nodes: float = 0.5,
        stubborn: str = "no",
    ) -> Night:
        """Write the campaign down."""
        campaign = parent / "campaign"
        campaign.mkdir(parents=True)
        (campaign / "campaign.py").write_text(CODE)
        (campaign / "campaign.toml").write_text(
            SPEC.format(
                log=json.dumps(str(parent / "jobs.log")),
                pause_s=float(pause_s),
                stubborn=json.dumps(stubborn),
                walltime_s=walltime_s,
                nodes=nodes,
                jobs=jobs,
            )
        )
        return cls(parent / "run", campaign)

    @property
    def log(self) -> Path:
        """What the jobs said."""
        return self.folder.parent / "jobs.log"

    def said(self, what: str) -> Counter[str]:
        """Return how often each candidate said something."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return Counter(line.split()[1] for line in lines if line.startswith(what))

    def where(self, what: str) -> list[str]:
        """Return the nodes on which it was said."""
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [line.split()[2] for line in lines if line.startswith(what)]

    def events(self, kind: type[Any]) -> list[Any]:
        """Return the events of a kind."""
        if not (self.folder / "ledger").exists():
            return []
        found: list[Event] = [entry.event for entry in read(self.folder / "ledger")]
        return [event for event in found if isinstance(event, kind)]

    @property
    def lives(self) -> int:
        """Runners so far."""
        return len(self.events(SegmentOpened))

    @property
    def name(self) -> str:
        """The run's name, which marks its processes and steps."""
        return next(iter(self.events(SegmentOpened))).run  # type: ignore[no-any-return]

    def assert_each_finished_once(self, jobs: int) -> None:
        """Show that every candidate has one result, from one run that ended."""
        results = Counter(event.fingerprint for event in self.events(ResultAccepted))
        assert len(results) == jobs
        assert set(results.values()) == {1}
        assert set(self.said("ended").values()) == {1}
        assert len(self.said("ended")) == jobs
        planned = {event.job for event in self.events(JobPlanned)}
        assert planned == {event.job for event in self.events(JobEnded)}

    def start(self, *flags: str, **variables: str) -> subprocess.Popen[bytes]:
        """Start a runner here, in the allocation that `SLURM_JOB_ID` names."""
        process = subprocess.Popen(
            [*COMMAND, "run", str(self.campaign), "--run", str(self.folder), *OPTIONS, *flags],
            env={**os.environ, **QUICK, **variables},
            stdout=subprocess.DEVNULL,
        )
        self.processes.append(process)
        return process

    def end(self) -> None:
        """End every runner that was started here."""
        for process in self.processes:
            process.send_signal(signal.SIGKILL)
            process.wait()


COMMAND = (sys.executable, "-m", "batchgate")
OPTIONS = ("--producer", "none", "--slots", "2", "--quiet")
QUICK: Mapping[str, str] = {"BATCHGATE_GRACE_S": "1", "BATCHGATE_MARGIN_S": "5"}
