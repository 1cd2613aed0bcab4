"""A run's record: one pass over its events, to plain frozen rows.

Every attempt and every verdict is kept, unlike in `batchgate.state`, whose totals are taken along
in the same pass. Nothing is inferred that the ledger does not say, except that an attempt whose
runner died before its end was interrupted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .. import ledger
from ..campaign import CampaignSpec, Space
from ..collector import collector_at_rest
from ..events import (
    AllocationSeen,
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    DecisionMade,
    DecisionOpened,
    DecisionParked,
    Disposition,
    Entry,
    Event,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ParkedResolved,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultParked,
    ResultRejected,
    RunResumed,
    RunStarted,
    RunStopped,
    RunSuspended,
    SegmentClosed,
    SegmentOpened,
    ServerStarted,
    ServerStopped,
    SurrogateAsked,
)
from ..state import State, decision_name
from .proposals import candidates_of, fingerprint_of
from .recorded import readable
from .rows import (
    AttemptOutcome,
    AttemptRow,
    BatchRow,
    DecisionRow,
    FailureRow,
    HeldRow,
    JobRow,
    LifeEnd,
    LifeRow,
    PairRow,
    QuestionRow,
    ServerRow,
)


@dataclass(frozen=True, slots=True)
class RunRecord:
    """Everything a run's ledger tells, as rows. Make it with `RunRecord.read` or `RunRecord.of`.

    Attributes:
        state: The run's totals, as its runner saw them. Not to be changed.
        campaign: The campaign's name; empty before the run started.
        version: batchgate's version at the start.
        seed: The campaign's seed.
        events: Events read.
        decisions: In the order of their opening.
        jobs: In the order of their launches.
        pairs: Verifier beside job, one for each candidate that a verifier judged.
        held: Candidates that were not launched.
        questions: What was parked for a person.
        failures: Everything that broke.
        servers: Starts of the model server.
        batches: Batches of the surrogate.
        lives: Runner processes.
    """

    state: State
    campaign: str
    version: str
    seed: int
    events: int
    decisions: tuple[DecisionRow, ...]
    jobs: tuple[JobRow, ...]
    pairs: tuple[PairRow, ...]
    held: tuple[HeldRow, ...]
    questions: tuple[QuestionRow, ...]
    failures: tuple[FailureRow, ...]
    servers: tuple[ServerRow, ...]
    batches: tuple[BatchRow, ...]
    lives: tuple[LifeRow, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> RunRecord:
        """Read entries, oldest first."""
        draft = _Draft()
        with collector_at_rest():
            for entry in entries:
                draft.add(entry)
            return draft.finish()

    @classmethod
    def read(
        cls,
        run_dir: str | Path,
        *,
        through: Callable[[Iterable[Entry]], Iterable[Entry]] = iter,
    ) -> RunRecord:
        """Read a run's directory. A run that is still going on can be read too.

        Args:
            run_dir: The run's directory, which holds its `ledger` folder.
            through: Passes the entries on, for one who wants to see them in the same pass.

        Raises:
            LedgerError: There is no ledger in it, or its campaign is none that this version knows.
            LedgerCorruptError: The ledger was damaged; the error says where.
        """
        with readable(run_dir):
            return cls.of(through(ledger.read(ledger.folder_of(run_dir))))

    @property
    def spec(self) -> CampaignSpec | None:
        """The campaign as it was recorded last; `None` before the run started."""
        return self.state.spec

    @property
    def attempts(self) -> Iterator[AttemptRow]:
        """Every attempt, decision by decision."""
        return (attempt for decision in self.decisions for attempt in decision.attempts)

    @property
    def best(self) -> JobRow | None:
        """Job with the best feasible result."""
        return next((job for job in self.jobs if job.job == self.state.best), None)


@dataclass(slots=True)
class _Attempt:
    """An attempt while it grows: its row's values, and what decides on its outcome."""

    values: dict[str, Any]
    checks: list[CheckJudged] = field(default_factory=list)
    failed: bool = False
    interrupted: bool = False

    def finish(self, disposition: Disposition | None, *, last: bool, sample: int) -> AttemptRow:
        hard = [check for check in self.checks if check.hard and not check.passed]
        if last and disposition == "accepted":
            hard = [check for check in hard if check.sample == sample]
            self.values["sample"] = sample
        if hard:
            self.values["rejected_by"] = tuple(check.check for check in hard)
            self.values["reasons"] = tuple(r for check in hard for r in check.reasons)
        outcome = self._outcome(disposition, last=last)
        return AttemptRow(**self.values, checks=tuple(self.checks), outcome=outcome)

    def _outcome(self, disposition: Disposition | None, *, last: bool) -> AttemptOutcome:
        if self.values.get("rejected_by"):
            return "rejected"
        if self.interrupted or (last and disposition == "abandoned"):
            return "interrupted"
        if last and disposition == "accepted":
            return "accepted"
        return "open" if last and disposition is None and not self.failed else "failed"


@dataclass(slots=True)
class _Decision:
    """A decision while it grows."""

    row: DecisionRow
    attempts: dict[int, _Attempt] = field(default_factory=dict)
    sample: int = 1

    def finish(self) -> DecisionRow:
        last, disposition = max(self.attempts, default=0), self.row.disposition
        rows = (
            attempt.finish(disposition, last=number == last, sample=self.sample)
            for number, attempt in sorted(self.attempts.items())
        )
        return replace(self.row, attempts=tuple(rows))


@dataclass(slots=True)
class _Draft:
    """The rows while they grow."""

    state: State = field(default_factory=State)
    events: int = 0
    at: float = 0.0
    started: RunStarted | None = None
    decisions: dict[int, _Decision] = field(default_factory=dict)
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    held: list[HeldRow] = field(default_factory=list)
    questions: list[QuestionRow] = field(default_factory=list)
    failures: list[FailureRow] = field(default_factory=list)
    servers: list[ServerRow] = field(default_factory=list)
    batches: list[BatchRow] = field(default_factory=list)
    lives: list[LifeRow] = field(default_factory=list)

    def add(self, entry: Entry) -> None:  # noqa: C901, PLR0912, PLR0915 - a case an event
        at, event = entry.at, entry.event
        match event:
            case SegmentOpened():
                self._open_life(event, at)
            case SegmentClosed():
                if self.lives[-1].end == "open":
                    self._change_life(end="closed")
            case RunStarted():
                self.started = event
                self._equip_life(event)
            case RunResumed():
                self._interrupt()
                self._equip_life(event)
            case RunSuspended():
                self._change_life(end="suspended", reason=event.reason)
            case RunStopped():
                self._change_life(end="stopped", reason=event.reason)
            case ServerStarted():
                life = len(self.lives)
                self.servers.append(ServerRow(life, event.start, event.model, at, event.elapsed_s))
            case ServerStopped():
                if self.servers:  # it may have died before it ever answered
                    last = self.servers[-1]
                    self.servers[-1] = replace(last, stopped_at=at, reason=event.reason)
            case DecisionOpened():
                row = DecisionRow(event.decision, event.source, at, None, None, "", (), (), None)
                self.decisions[event.decision] = _Decision(row)
            case AttemptStarted() | ProposalMade() | ProposalRejected() | CheckJudged():
                self._add_to_attempt(event, at)
            case FailureRecorded():
                self._fail(event, at)
            case DecisionMade():
                self._decide(event, at)
            case CandidateHeld():
                self.held.append(HeldRow(at=at, **_fields(event)))
            case JobPlanned():
                row = self.decisions[event.decision].row
                self.jobs[event.job] = _fields(event) | {
                    "disposition": row.disposition,
                    "planned_at": at,
                    "audited": _audited(row, event.fingerprint),
                }
            case JobEnded():
                self.jobs[event.job] |= _fields(event) | {"settled_at": at}
            case ResultAccepted():
                self.jobs[event.job] |= {"values": event.values, "feasible": event.feasible}
            case ResultRejected():
                values = {"reasons": event.reasons, "rejected_values": event.values}
                self.jobs[event.job] |= values
            case SurrogateAsked():
                self.batches.append(BatchRow(at=at, **_fields(event)))
            case DecisionParked():
                name = decision_name(event.decision)
                self.questions.append(QuestionRow(name, event.decision, at, event.expires_at))
            case ResultParked():
                decision, reasons = self.jobs[event.job]["decision"], event.reasons
                self.questions.append(
                    QuestionRow(event.job, decision, at, event.expires_at, reasons)
                )
            case ParkedResolved():
                self._answer(event, at)
            case AllocationSeen():
                pass  # `hours` counts them
        self.state.apply(event, at=at)
        self.events += 1
        self.at = at

    def finish(self) -> RunRecord:
        if self.lives:
            self._change_life(ended_at=self.at)
        decisions = tuple(decision.finish() for decision in self.decisions.values())
        jobs = tuple(JobRow(**values) for values in self.jobs.values())
        space = self.state.spec.space if self.state.spec else None
        return RunRecord(
            state=self.state,
            campaign=self.started.campaign if self.started else "",
            version=self.started.version if self.started else "",
            seed=self.started.seed if self.started else 0,
            events=self.events,
            decisions=decisions,
            jobs=jobs,
            pairs=tuple(_pairs(decisions, jobs, space)) if space else (),
            held=tuple(self.held),
            questions=tuple(self.questions),
            failures=tuple(self.failures),
            servers=tuple(self.servers),
            batches=tuple(self.batches),
            lives=tuple(self.lives),
        )

    def _open_life(self, event: SegmentOpened, at: float) -> None:
        if self.lives:
            end: LifeEnd = self.lives[-1].end
            self._change_life(ended_at=self.at, end="interrupted" if end == "open" else end)
        number = len(self.lives) + 1
        life = LifeRow(number, event.host, event.pid, event.slurm, "", "", 0, at, at, "open")
        self.lives.append(life)

    def _equip_life(self, event: RunStarted | RunResumed) -> None:
        self._change_life(version=event.version, producer=event.producer, slots=event.slots)

    def _change_life(self, **changes: Any) -> None:
        self.lives[-1] = replace(self.lives[-1], **changes)

    def _interrupt(self) -> None:
        for decision in self.decisions.values():
            if decision.row.disposition is None:
                for attempt in decision.attempts.values():
                    attempt.interrupted = not attempt.failed

    def _add_to_attempt(
        self, event: AttemptStarted | ProposalMade | ProposalRejected | CheckJudged, at: float
    ) -> None:
        attempts = self.decisions[event.decision].attempts
        match event:
            case AttemptStarted():
                values = {"number": event.attempt, "started_at": at}
                attempts[event.attempt] = _Attempt(_fields(event, "attempt") | values)
            case ProposalMade():
                values = _fields(event, "attempt", "elapsed_s") | {"answer_s": event.elapsed_s}
                attempts[event.attempt].values |= values
            case ProposalRejected():
                attempts[event.attempt].values |= {
                    "proposal": event.value,
                    "rejected_by": (event.stage,),
                    "reasons": event.reasons,
                    "answer_s": event.elapsed_s,
                }
            case CheckJudged():
                attempts[event.attempt].checks.append(event)
        attempts[event.attempt].values["ended_at"] = at

    def _fail(self, event: FailureRecorded, at: float) -> None:
        self.failures.append(FailureRow(at=at, **_fields(event)))
        if event.decision is None or event.attempt is None:
            return
        attempt = self.decisions[event.decision].attempts.get(event.attempt)
        if attempt and not event.again:
            attempt.failed = True
            attempt.values["ended_at"] = at

    def _answer(self, event: ParkedResolved, at: float) -> None:
        # Newest first: after an edit that was rejected too, the same decision is parked again.
        for place in reversed(range(len(self.questions))):
            question = self.questions[place]
            if question.what == event.what:
                self.questions[place] = replace(
                    question, answered_at=at, action=event.action, by=event.by, why=event.reason
                )
                return

    def _decide(self, event: DecisionMade, at: float) -> None:
        decision = self.decisions[event.decision]
        decision.sample = event.sample
        decision.row = replace(
            decision.row,
            closed_at=at,
            disposition=event.disposition,
            cause=event.cause,
            candidates=event.candidates,
            batch=event.batch,
        )


def _audited(row: DecisionRow, fingerprint: str) -> bool:
    return any(c.audit_probability and c.fingerprint == fingerprint for c in row.candidates)


def _fields(event: Event, *left_out: str) -> dict[str, Any]:
    """Return an event's fields by name, their values as they are."""
    return {name: value for name, value in vars(event).items() if name not in {"type", *left_out}}


def _pairs(
    decisions: Iterable[DecisionRow], jobs: Iterable[JobRow], space: Space
) -> Iterator[PairRow]:
    results = {job.fingerprint: job for job in jobs if job.values is not None or job.reasons}
    for decision in decisions:
        for attempt in decision.attempts:
            for check in attempt.checks:
                if check.verifier:
                    yield from _judged(attempt, check, results, space)


def _judged(
    attempt: AttemptRow, check: CheckJudged, results: Mapping[str, JobRow], space: Space
) -> Iterator[PairRow]:
    for place, candidate in enumerate(candidates_of(attempt.sampled(check.sample))):
        fingerprint = fingerprint_of(space, candidate)
        measured = check.observables[place] if place < len(check.observables) else {}
        result = results.get(fingerprint)
        yield PairRow(
            verifier=check.check,
            decision=attempt.decision,
            attempt=attempt.number,
            fingerprint=fingerprint,
            passed=check.passed or (bool(check.refused) and fingerprint not in check.refused),
            observables=measured if isinstance(measured, Mapping) else {},
            good=None if result is None else result.feasible,
            values={} if result is None else result.values or {},
        )
