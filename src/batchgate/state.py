"""Where a run stands: a fold over its events, and nothing else.

Memory grows with candidates and results, not with events: of a closed decision only how it ended
is kept. Whoever needs every attempt reads the ledger (`batchgate.review`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from .campaign import CampaignSpec, Observation, Value
from .events import (
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    Chosen,
    DecisionMade,
    DecisionOpened,
    Disposition,
    Entry,
    Event,
    FailureKind,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    Plain,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
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
from .job import JobState

Whereabouts = Literal["chosen", "running", "finished", "failed", "refused"]
"""What has become of a candidate: let through, launched, evaluated, broken, refused."""


@dataclass(slots=True)
class Known:
    """A candidate the run knows, so that no twin of it costs anything again.

    Attributes:
        candidate: Its values.
        where: What has become of it.
        name: Its job or decision, for people.
    """

    candidate: Mapping[str, Value]
    where: Whereabouts
    name: str


@dataclass(slots=True)
class Past:
    """An attempt of a decision that is still open.

    Attributes:
        proposal: The proposal, or the raw value of a rejected answer, as plain JSON.
        rejected_by: Check or stage that rejected it; `interrupted` when its runner died.
        reasons: Why.
    """

    proposal: Plain = None
    rejected_by: str = ""
    reasons: tuple[str, ...] = ()


@dataclass(slots=True)
class Decision:
    """A decision as the ledger tells it.

    Attributes:
        number: From 1.
        source: Who was asked.
        attempts: Its attempts; empty again once it is closed.
        spent: Attempts spent.
        disposition: How it ended; `None` while it is open.
        candidates: What it let through.
    """

    number: int
    source: Literal["producer", "surrogate"] = "producer"
    attempts: list[Past] = field(default_factory=list)
    spent: int = 0
    disposition: Disposition | None = None
    candidates: tuple[Chosen, ...] = ()


@dataclass(slots=True)
class Job:
    """A job as the ledger tells it.

    Attributes:
        plan: What was about to be launched.
        planned_at: When, in seconds since the epoch.
        end: How it ended; `None` while nobody knows.
        values: Its result; `None` without one.
        rejected: Why its result is none.
    """

    plan: JobPlanned
    planned_at: float
    end: JobEnded | None = None
    values: Mapping[str, float] | None = None
    feasible: bool = False
    rejected: tuple[str, ...] = ()

    @property
    def settled(self) -> bool:
        """Whether nothing is left to do for it."""
        if self.end is None:
            return False
        judged = self.values is not None or bool(self.rejected)
        return judged or self.end.state is not JobState.COMPLETED


@dataclass(slots=True)
class State:
    """A run's state. Build it with `State.of(entries)`.

    Attributes:
        run: The run's name.
        spec: The campaign as it was recorded last; `None` before the run started.
        granted_node_h: Node-hours that jobs may use.
        lives: Runners that have written so far.
        life_s: Seconds that the earlier lives took.
        last_life_ended_at: When the life before this one wrote its last event.
        batches: Batches the surrogate has been asked for.
        failures: Failures in a row, by kind.
        runs: A candidate's jobs, by its fingerprint, oldest first.
        fruitless: Decisions in a row without a candidate to launch.
        results: Jobs with a result, in the order of their ends.
        best: Job with the best feasible result.
        evaluated: Candidates whose job has come to its end, whatever it was.
        since_best: Of these, those since the best result.
        dispositions: Decisions by how they ended.
    """

    run: str = ""
    spec: CampaignSpec | None = None
    digest: str = ""
    granted_node_h: float = 0.0
    lives: int = 0
    life_s: float = 0.0
    batches: int = 0
    failures: Counter[FailureKind] = field(default_factory=Counter)
    fruitless: int = 0
    charged_node_h: float = 0.0
    verifier_node_h: float = 0.0
    decisions: dict[int, Decision] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    runs: dict[str, list[Job]] = field(default_factory=dict)
    known: dict[str, Known] = field(default_factory=dict)
    results: list[str] = field(default_factory=list)
    best: str | None = None
    evaluated: int = 0
    since_best: int = 0
    dispositions: Counter[Disposition] = field(default_factory=Counter)
    stopped: RunStopped | None = None
    suspended: str = ""
    started_at: float = 0.0
    updated_at: float = 0.0
    last_life_ended_at: float = 0.0
    _life_began_at: float = 0.0
    _ready: dict[str, Chosen] = field(default_factory=dict)
    _decided_by: dict[str, int] = field(default_factory=dict)
    _running: dict[str, Job] = field(default_factory=dict)
    _unjudged: dict[str, Job] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> State:
        """Fold entries, oldest first."""
        state = cls()
        for entry in entries:
            state.apply(entry.event, at=entry.at_ns / 1e9)
        return state

    @property
    def reserved_node_h(self) -> float:
        """Node-hours that running jobs may still charge."""
        return sum(job.plan.reserved_node_h for job in self._running.values())

    @property
    def free_node_h(self) -> float:
        """Node-hours neither charged nor reserved."""
        return self.granted_node_h - self.charged_node_h - self.reserved_node_h

    @property
    def ready(self) -> tuple[tuple[int, Chosen], ...]:
        """Candidates that wait for a slot, with their decisions, oldest first."""
        return tuple((self._decided_by[f], chosen) for f, chosen in self._ready.items())

    @property
    def running(self) -> list[Job]:
        """Jobs that are planned and not known to have ended."""
        return list(self._running.values())

    @property
    def unjudged(self) -> list[Job]:
        """Jobs that completed and whose result is not judged yet."""
        return list(self._unjudged.values())

    @property
    def open(self) -> list[Decision]:
        """Decisions that are not closed."""
        return [d for d in self.decisions.values() if d.disposition is None]

    @property
    def wall_s(self) -> float:
        """Seconds of all lives together, up to the newest event."""
        return self.life_s + (self.updated_at - self._life_began_at if self.lives else 0.0)

    def observations(self) -> Iterator[Observation]:
        """Yield what is known of evaluated candidates: results, and those without a valid one."""
        for known in self.known.values():
            if known.where == "finished":
                job = self.jobs[known.name]
                yield Observation(known.candidate, dict(job.values or {}), job.feasible)
            elif known.where == "failed":
                yield Observation(known.candidate, {}, feasible=False)

    def apply(self, event: Event, *, at: float) -> None:  # noqa: C901, PLR0912, PLR0915 - a case an event
        """Take one event into account.

        Args:
            event: What happened.
            at: When, in seconds since the epoch.
        """
        match event:
            case SegmentOpened():
                self._new_life(event, at)
            case RunStarted():
                self.started_at = at
                self._take_spec(event)
            case RunResumed():
                if event.spec is not None:
                    self._take_spec(event)
                self._interrupt()
                self.suspended, self.stopped = "", None
            case DecisionOpened():
                self.decisions[event.decision] = Decision(event.decision, event.source)
            case AttemptStarted():
                decision = self.decisions[event.decision]
                decision.spent += 1
                decision.attempts.append(Past())
            case ProposalMade():
                self.decisions[event.decision].attempts[-1].proposal = event.proposal
                self.failures["producer"] = 0
            case ProposalRejected():
                past = self.decisions[event.decision].attempts[-1]
                past.proposal, past.rejected_by = event.value, event.stage
                past.reasons = event.reasons
                self.failures["producer"] = 0
            case CheckJudged():
                self._judge(event)
            case FailureRecorded():
                if not event.again:
                    self.failures[event.kind] += 1
            case DecisionMade():
                self._decide(event)
            case CandidateHeld():
                if self._ready.pop(event.fingerprint, None) is not None:
                    del self.known[event.fingerprint]
            case JobPlanned():
                self._plan(event, at)
            case JobEnded():
                self._end(event)
            case ResultAccepted():
                self._accept(event)
            case ResultRejected():
                job = self.jobs[event.job]
                self._unjudged.pop(event.job, None)
                job.rejected = event.reasons
                self._evaluate(event.fingerprint, "failed")
            case SurrogateAsked():
                self.batches = max(self.batches, event.batch + 1)
                self.failures["surrogate"] = 0
            case ServerStarted():
                self.failures["server"] = 0
            case RunSuspended():
                self.suspended = event.reason
            case RunStopped():
                self.stopped = event
            case ServerStopped() | SegmentClosed():
                pass
        self.updated_at = at

    def _new_life(self, event: SegmentOpened, at: float) -> None:
        if self.lives:  # `updated_at` is still that of the life before
            self.life_s += self.updated_at - self._life_began_at
            self.last_life_ended_at = self.updated_at
        self.run, self.lives, self._life_began_at = event.run, event.segment, at

    def _take_spec(self, event: RunStarted | RunResumed) -> None:
        # Keys of an older or newer version are passed over: an old run stays readable.
        self.spec = CampaignSpec.model_validate(event.spec, extra="ignore")
        self.digest = event.digest
        self.granted_node_h = self.spec.stop.node_h

    def _interrupt(self) -> None:
        # What was under way when the last runner died stays spent: a proposal that kills its
        # verifier, and the runner with it, cannot do so for ever.
        for decision in self.open:
            for past in decision.attempts:
                past.rejected_by = past.rejected_by or "interrupted"

    def _judge(self, event: CheckJudged) -> None:
        if event.verifier:
            self.verifier_node_h += event.node_h
        decision = self.decisions[event.decision]
        if event.passed or not event.hard:
            return
        past = decision.attempts[-1]
        past.rejected_by, past.reasons = event.check, event.reasons
        if event.verifier:
            self._refuse(event, past)

    def _refuse(self, event: CheckJudged, past: Past) -> None:
        # Only what a verifier refused is remembered: a domain check says it again for nothing,
        # and with a better reason than "refused before".
        assert self.spec is not None
        space = self.spec.space
        for candidate in (past.proposal or {}).get("candidates", ()):
            fingerprint = space.fingerprint(candidate)
            if fingerprint in event.refused:
                name = f"D{event.decision}.{event.attempt}"
                self.known.setdefault(fingerprint, Known(candidate, "refused", name))

    def _decide(self, event: DecisionMade) -> None:
        decision = self.decisions[event.decision]
        decision.disposition, decision.candidates = event.disposition, event.candidates
        decision.attempts = []
        self.dispositions[event.disposition] += 1
        if event.disposition == "accepted" or event.cause == "rejected":
            # Every check gave a verdict. One that passes does not make up for one that fails.
            self.failures["check"] = self.failures["verifier"] = 0
        if event.disposition != "abandoned":
            self.fruitless = 0 if event.candidates else self.fruitless + 1
        for chosen in event.candidates:
            if chosen.fingerprint in self.known:
                continue
            self._ready[chosen.fingerprint] = chosen
            self._decided_by[chosen.fingerprint] = event.decision
            self.known[chosen.fingerprint] = Known(chosen.candidate, "chosen", f"D{event.decision}")

    def _plan(self, event: JobPlanned, at: float) -> None:
        self._ready.pop(event.fingerprint, None)
        self.jobs[event.job] = self._running[event.job] = job = Job(event, at)
        self.runs.setdefault(event.fingerprint, []).append(job)
        self.known[event.fingerprint] = Known(event.candidate, "running", event.job)

    def _end(self, event: JobEnded) -> None:
        job = self._running.pop(event.job)
        job.end = event
        self.charged_node_h += event.charged_node_h
        if event.state is JobState.COMPLETED:
            self._unjudged[event.job] = job
            return
        fingerprint = job.plan.fingerprint
        if event.again:
            self._ready[fingerprint] = Chosen(fingerprint=fingerprint, candidate=job.plan.candidate)
            self._decided_by[fingerprint] = job.plan.decision
            self.known[fingerprint].where = "chosen"
        else:
            self.failures["job"] += 1
            self._evaluate(fingerprint, "failed")

    def _accept(self, event: ResultAccepted) -> None:
        job = self.jobs[event.job]
        self._unjudged.pop(event.job, None)
        job.values, job.feasible = event.values, event.feasible
        self._evaluate(event.fingerprint, "finished")
        self.results.append(event.job)
        self.failures["job"] = 0
        if event.feasible and self._better(event.values):
            self.best, self.since_best = event.job, 0

    def _evaluate(self, fingerprint: str, where: Whereabouts) -> None:
        self.known[fingerprint].where = where
        self.evaluated += 1
        self.since_best += 1

    def _better(self, values: Mapping[str, float]) -> bool:
        assert self.spec is not None
        name, minimise = self.spec.objective
        if self.best is None:
            return True
        best = (self.jobs[self.best].values or {})[name]
        return values[name] < best if minimise else values[name] > best
