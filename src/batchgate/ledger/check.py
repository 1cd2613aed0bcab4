"""Checks a run's record as a whole: the chain, the order of events, and what they refer to.

What is wrong is a `Finding`; nothing in a run's directory makes this raise. It is evidence
against accidents and edits, and none against an owner who writes the whole record anew.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from ..errors import LedgerCorruptError, LedgerError
from ..events import (
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    DecisionMade,
    DecisionOpened,
    Event,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultRejected,
    RunResumed,
    RunStarted,
    RunStopped,
    RunSuspended,
    SegmentOpened,
)
from ..job import End
from .reader import Reader, segment_name

Kind = Literal["chain", "order", "reference", "launch", "gate"]
"""What is wrong.

`chain`: bytes of the ledger are changed or missing. `order`: an event comes where it cannot.
`reference`: an event names something that is not there. `launch`: a job was planned that nothing
allowed. `gate`: a job's folder does not name the line that allowed it.
"""

_GATE = "gate.json"
_GATE_BYTES = 1 << 16
_PLACE = ("segment", "seq", "hash")


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in a run's record.

    Attributes:
        kind: What kind of thing.
        where: Line (`0001.jsonl:17`) or path.
        message: One sentence for people.
    """

    kind: Kind
    where: str
    message: str


Problems = Iterator[tuple[Kind, str]]
Place = tuple[str, int, str]  # as in _PLACE


@dataclass(slots=True)
class _Decision:
    attempts: int = 0
    answered: bool = True
    """Whether the last attempt has its answer."""
    proposed: bool = False
    """Whether that answer is a proposal."""
    failed: str = ""
    """A hard check that it failed."""
    made: DecisionMade | None = None

    def chosen(self, fingerprint: str) -> Mapping[str, Any] | None:
        """Candidate that the decision let through, if it did."""
        if self.made is None or self.made.disposition not in {"accepted", "fallback"}:
            return None
        found = (c.candidate for c in self.made.candidates if c.fingerprint == fingerprint)
        return next(found, None)


@dataclass(slots=True)
class _Job:
    planned: JobPlanned
    place: Place
    """The plan's line."""
    ended: JobEnded | None = None
    result: ResultAccepted | ResultRejected | None = None


@dataclass(slots=True)
class _Rules:
    """What the events of an intact run obey; remembers what it needs of those before."""

    started: bool = False
    running: bool = False
    decisions: dict[int, _Decision] = field(default_factory=dict)
    jobs: dict[str, _Job] = field(default_factory=dict)
    runs: dict[str, list[_Job]] = field(default_factory=dict)
    """Jobs of each candidate, by its fingerprint."""

    def judge(self, event: Event, place: Place) -> Problems:
        """Tell what is wrong with the next event."""
        if isinstance(event, JobPlanned):
            return self._job_planned(event, place)
        rule = _RULES.get(type(event))
        return rule(self, event) if rule else iter(())

    def segment_opened(self, _: SegmentOpened) -> Problems:
        self.running = False
        yield from ()

    def run_started(self, _: RunStarted) -> Problems:
        if self.started:
            yield "order", "the run is started a second time"
        self.started = self.running = True

    def run_resumed(self, _: RunResumed) -> Problems:
        if not self.started:
            yield "order", "the run is resumed and was never started"
        self.running = True

    def run_ended(self, _: RunSuspended | RunStopped) -> Problems:
        self.running = False
        yield from ()

    def decision_opened(self, event: DecisionOpened) -> Problems:
        yield from self._outside_a_run()
        if event.decision in self.decisions:
            yield "order", f"decision {event.decision} is opened a second time"
        self.decisions.setdefault(event.decision, _Decision())

    def attempt_started(self, event: AttemptStarted) -> Problems:
        decision = yield from self._open_decision(event.decision)
        due = decision.attempts + 1
        if event.attempt != due:
            yield "order", f"attempt {event.attempt} is started where {due} is due"
        decision.attempts = event.attempt
        decision.answered = decision.proposed = False
        decision.failed = ""

    def attempt_answered(self, event: ProposalMade | ProposalRejected) -> Problems:
        decision = yield from self._open_decision(event.decision)
        if event.attempt != decision.attempts:
            yield "reference", f"attempt {event.attempt} is answered and was not started"
        elif decision.answered:
            yield "order", f"attempt {event.attempt} is answered a second time"
        decision.answered = True
        decision.proposed = isinstance(event, ProposalMade)

    def check_judged(self, event: CheckJudged) -> Problems:
        decision = yield from self._open_decision(event.decision)
        if event.attempt != decision.attempts or not decision.proposed:
            yield "reference", f"attempt {event.attempt} is judged and has no proposal"
        if event.hard and not event.passed:
            decision.failed = event.check

    def decision_made(self, event: DecisionMade) -> Problems:
        decision = yield from self._open_decision(event.decision)
        if event.disposition == "accepted" and decision.failed:
            message = f"decision {event.decision} is accepted though {decision.failed} refused it"
            yield "launch", message
        if event.disposition == "accepted" and not decision.proposed:
            yield "launch", f"decision {event.decision} is accepted without a proposal"
        decision.made = event

    def candidate_held(self, event: CandidateHeld) -> Problems:
        if self._chosen(event) is None:
            yield "reference", f"decision {event.decision} did not let {event.fingerprint} through"

    def _job_planned(self, event: JobPlanned, place: Place) -> Problems:
        yield from self._outside_a_run()
        chosen = self._chosen(event)
        if chosen is None:
            yield "launch", f"decision {event.decision} did not let {event.fingerprint} through"
        elif chosen != event.candidate:
            yield "launch", f"job {event.job} runs another candidate than the one let through"
        if not (event.reserved_node_h > 0 and event.walltime_s > 0):
            size = f"{event.reserved_node_h} node-hours for {event.walltime_s} s"
            yield "launch", f"job {event.job} reserves {size}; both must be above 0"
        yield from self._repeated(event)
        if event.job in self.jobs:
            yield "order", f"job {event.job} is planned a second time"
            return
        job = self.jobs[event.job] = _Job(event, place)
        self.runs.setdefault(event.fingerprint, []).append(job)

    def _repeated(self, event: JobPlanned) -> Problems:
        before = self.runs.get(event.fingerprint, [])
        due = len(before) + 1
        if event.attempt != due:
            yield "order", f"job {event.job} is attempt {event.attempt} where {due} is due"
        for job in before:
            if job.ended is None:
                yield "launch", f"job {event.job} repeats {job.planned.job}, which has not ended"
            if isinstance(job.result, ResultAccepted):
                yield "launch", f"job {event.job} repeats {job.planned.job}, which has a result"

    def job_ended(self, event: JobEnded) -> Problems:
        job = self.jobs.get(event.job)
        if job is None:
            yield "reference", f"job {event.job} ended and was never planned"
            return
        if job.ended is not None:
            yield "order", f"job {event.job} ended a second time"
        if event.charged_node_h < 0:
            yield "order", f"job {event.job} is charged {event.charged_node_h} node-hours"
        job.ended = event

    def result_judged(self, event: ResultAccepted | ResultRejected) -> Problems:
        job = self.jobs.get(event.job)
        if job is None or job.planned.fingerprint != event.fingerprint:
            yield "reference", f"there is no job {event.job} of {event.fingerprint}"
            return
        if job.ended is None:
            yield "order", f"the result of job {event.job} is judged before the job has ended"
        if job.result is not None:
            yield "order", f"the result of job {event.job} is judged a second time"
        job.result = event

    def _outside_a_run(self) -> Problems:
        if not self.running:
            yield "order", "nothing may begin here: the run is not started, or was stopped"

    def _chosen(self, event: JobPlanned | CandidateHeld) -> Mapping[str, Any] | None:
        return self.decisions.get(event.decision, _Decision()).chosen(event.fingerprint)

    def _open_decision(self, number: int) -> Generator[tuple[Kind, str], None, _Decision]:
        if number not in self.decisions:
            yield "reference", f"decision {number} was never opened"
        decision = self.decisions.setdefault(number, _Decision())
        if decision.made is not None:
            yield "order", f"decision {number} goes on after it was closed"
        return decision


_RULES: Mapping[type[Any], Callable[[_Rules, Any], Problems]] = {
    SegmentOpened: _Rules.segment_opened,
    RunStarted: _Rules.run_started,
    RunResumed: _Rules.run_resumed,
    RunSuspended: _Rules.run_ended,
    RunStopped: _Rules.run_ended,
    DecisionOpened: _Rules.decision_opened,
    AttemptStarted: _Rules.attempt_started,
    ProposalMade: _Rules.attempt_answered,
    ProposalRejected: _Rules.attempt_answered,
    CheckJudged: _Rules.check_judged,
    DecisionMade: _Rules.decision_made,
    CandidateHeld: _Rules.candidate_held,
    JobEnded: _Rules.job_ended,
    ResultAccepted: _Rules.result_judged,
    ResultRejected: _Rules.result_judged,
}


def check_run(run_dir: Path) -> list[Finding]:
    """Check a run's `ledger` and the `gate.json` of every folder in its `jobs`.

    A run that is under way may be checked as well.

    Returns:
        What is wrong; empty for an intact run. After a `chain` finding the rest of the ledger is
        not read, and jobs that only the rest can explain are left out.
    """
    # Listed before the ledger is read: a folder is made after the line that allows it.
    folders = _job_folders(run_dir / "jobs")
    rules = _Rules()
    findings = list(_check_ledger(run_dir / "ledger", rules))
    intact = all(finding.kind != "chain" for finding in findings)
    for folder in folders:
        job = rules.jobs.get(folder.name)
        problem = _gate_problem(folder / _GATE, job) if job or intact else ""
        if problem:
            findings.append(Finding("gate", str(folder.relative_to(run_dir)), problem))
    return findings


def _check_ledger(folder: Path, rules: _Rules) -> Iterator[Finding]:
    reader = Reader(folder)
    try:
        for entry in reader:
            place = (segment_name(reader.segment), entry.seq, reader.hash)
            for kind, message in rules.judge(entry.event, place):
                yield Finding(kind, reader.where, message)
    except LedgerCorruptError as exc:
        yield Finding("chain", f"{Path(exc.path).name}:{exc.line_number}", str(exc.args[0]))
    except LedgerError as exc:
        yield Finding("chain", folder.name, str(exc))
    else:
        if reader.segment == 0:
            yield Finding("chain", folder.name, "there is no segment")


def _job_folders(jobs: Path) -> list[Path]:
    if not jobs.is_dir():
        return []
    return sorted(path for path in jobs.iterdir() if path.is_dir() and not path.is_symlink())


def _gate_problem(path: Path, job: _Job | None) -> str:
    """What is wrong with a job's `gate.json`; `""` when nothing is."""
    try:
        gate = json.loads(_read_small(path))
    except FileNotFoundError:
        return _missing_gate(job)
    except (OSError, ValueError, RecursionError) as exc:
        return f"gate.json cannot be read: {exc}"
    if job is None:
        return (
            "gate.json names a line that the ledger does not hold: lines were cut off its end, or "
            "the job is not of this run"
        )
    place = tuple(gate.get(key) for key in _PLACE) if isinstance(gate, dict) else ()
    if place != job.place:
        return f"gate.json does not name the job's line: {_PLACE} must be {job.place}"
    return ""


def _missing_gate(job: _Job | None) -> str:
    if job is None:
        return "no line of the ledger allows this job"
    # Of a job whose runner died nobody knows whether it was launched.
    if job.ended and job.ended.started_at > 0 and job.ended.end is not End.UNKNOWN:
        return "the job ran and gate.json is missing"
    return ""  # its runner died between the plan and the launch, or is launching it now


def _read_small(path: Path) -> bytes:
    # The job could write here: no link is followed, no pipe waited for, nothing huge read.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _GATE_BYTES:
            raise ValueError(f"no regular file of at most {_GATE_BYTES} bytes")
        return os.read(fd, _GATE_BYTES)
    finally:
        os.close(fd)
