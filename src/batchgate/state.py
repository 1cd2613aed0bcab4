"""Where a run stands: a fold over its events, and nothing else.

Memory grows with candidates and results, not with events: of a closed decision only how it ended
is kept. Whoever needs every attempt reads the ledger (`batchgate.review`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from .campaign import CampaignSpec, Observation, Value
from .collector import collector_at_rest
from .events import (
    AllocationSeen,
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    Chosen,
    DecisionMade,
    DecisionOpened,
    DecisionParked,
    Disposition,
    Entry,
    Event,
    FailureKind,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ParkedResolved,
    Plain,
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
from .job import End, JobState

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
        others: Further samples of the answer.
        rejected_by: Check or stage that rejected it; `interrupted` when its runner died.
        reasons: Why.
        refused: Fingerprints of candidates that a hard check objected to, each with its name.
    """

    proposal: Plain = None
    others: tuple[Plain, ...] = ()
    rejected_by: str = ""
    reasons: tuple[str, ...] = ()
    refused: dict[str, str] = field(default_factory=dict)


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

    @property
    def outcome(self) -> Literal["rejected", "failed", "timed_out"] | None:
        """What a job without a result says of its candidate; `None` when it says nothing."""
        if self.rejected:
            return "rejected"
        if self.end is None or self.end.state is not JobState.FAILED:
            return None  # lost or canceled: the node's or the runner's doing
        return "timed_out" if self.end.end is End.TIMED_OUT else "failed"


@dataclass(slots=True)
class Parked:
    """Something that waits for a person.

    Attributes:
        event: What was parked: a decision, or a job's result.
        at: When.
        key: Names this question and no other: a decision can be parked again after an edit.
        answer: The answer, from when it is known until what follows from it is done.
    """

    event: DecisionParked | ResultParked
    at: float
    key: str
    answer: ParkedResolved | None = None


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
        evaluated: Candidates whose job has come to its end, whatever it was; audits aside.
        since_best: Of these, those since the best result.
        dispositions: Decisions by how they ended.
        allocation: What this life may use; `None` before it is known.
        earlier: Opening of the life before this one; `None` in the first.
        audits: Fingerprints of rejected candidates that are launched to learn from them, each
            with the probability of its draw.
        parked: What waits for a person, by its name: a decision's, or a job's for its result.
    """

    run: str = ""
    spec: CampaignSpec | None = None
    digest: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
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
    allocation: AllocationSeen | None = None
    earlier: SegmentOpened | None = None
    audits: dict[str, float] = field(default_factory=dict)
    parked: dict[str, Parked] = field(default_factory=dict)
    _objective: tuple[str, bool] = ("", True)
    _life: SegmentOpened | None = None
    _life_began_at: float = 0.0
    _billed_node_h: float = 0.0
    _billed_to: float = 0.0
    _open: dict[int, Decision] = field(default_factory=dict)
    _ready: dict[str, Chosen] = field(default_factory=dict)
    _decided_by: dict[str, int] = field(default_factory=dict)
    _running: dict[str, Job] = field(default_factory=dict)
    _unjudged: dict[str, Job] = field(default_factory=dict)

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> State:
        """Fold entries, oldest first."""
        state = cls()
        state.fold(entries)
        return state

    def fold(self, entries: Iterable[Entry]) -> None:
        """Take entries into account, oldest first."""
        with collector_at_rest():
            for entry in entries:
                self.apply(entry.event, at=entry.at_ns / 1e9)

    @property
    def reserved_node_h(self) -> float:
        """Node-hours that running jobs may still charge."""
        return sum(job.plan.reserved_node_h for job in self._running.values())

    @property
    def free_node_h(self) -> float:
        """Node-hours neither charged nor reserved."""
        return self.granted_node_h - self.charged_node_h - self.reserved_node_h

    @property
    def audit_node_h(self) -> float:
        """Node-hours that audits have charged, have reserved, or will reserve."""
        waits = len(self.audits.keys() & self._ready.keys())
        used = sum(
            job.end.charged_node_h if job.end else job.plan.reserved_node_h
            for fingerprint in self.audits
            for job in self.runs.get(fingerprint, ())
        )
        return used + (waits * self.spec.job.node_h if self.spec else 0.0)

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
    def unmade(self) -> list[Decision]:
        """Decisions that are not closed."""
        return list(self._open.values())

    @property
    def open(self) -> list[Decision]:
        """Decisions that are neither closed nor parked."""
        return [d for d in self._open.values() if decision_name(d.number) not in self.parked]

    @property
    def billed_node_h(self) -> float:
        """Node-hours that the allocations have cost up to the newest event."""
        return self._bill_to(self.updated_at)

    def _bill_to(self, at: float) -> float:
        if self.allocation is None:
            return self._billed_node_h
        elapsed_s = max(0.0, at - self._billed_to)
        return self._billed_node_h + len(self.allocation.nodes) * elapsed_s / 3600

    @property
    def wall_s(self) -> float:
        """Seconds of all lives together, up to the newest event."""
        return self.life_s + (self.updated_at - self._life_began_at if self.lives else 0.0)

    def observations(self) -> Iterator[Observation]:
        """Yield what is known of evaluated candidates: results, and those without a valid one."""
        for known in self.known.values():
            if known.where not in {"finished", "failed"}:
                continue
            job = self.jobs[known.name]
            if known.where == "finished":
                yield Observation(known.candidate, dict(job.values or {}), job.feasible)
            elif (outcome := job.outcome) is not None:
                yield Observation(known.candidate, {}, feasible=False, outcome=outcome)

    def apply(self, event: Event, *, at: float) -> None:
        """Take one event into account.

        Args:
            event: What happened.
            at: When, in seconds since the epoch.
        """
        # Looked up and not matched case by case: of a million events that is the half of the time.
        _TAKE.get(type(event), State._pass_over)(self, event, at)
        self.updated_at = at

    def _pass_over(self, event: Event, at: float) -> None:
        pass

    def _start(self, event: RunStarted, at: float) -> None:
        self.started_at = at
        self._take_spec(event)
        self.files = event.files

    def _resume(self, event: RunResumed, at: float) -> None:
        self.files = event.files or self.files
        if event.spec is not None:
            self._take_spec(event)
        self._interrupt()
        self.suspended, self.stopped = "", None

    def _see_allocation(self, event: AllocationSeen, at: float) -> None:
        if self.allocation is None:
            # Billed from its start, but not again for what an earlier life in it was billed for.
            since = max(event.started_at, self.last_life_ended_at)
        else:
            self._billed_node_h, since = self._bill_to(at), at
        self.allocation, self._billed_to = event, since

    def _serve(self, event: ServerStarted, at: float) -> None:
        self.failures["server"] = 0

    def _begin(self, event: DecisionOpened, at: float) -> None:
        decision = Decision(event.decision, event.source)
        self.decisions[event.decision] = self._open[event.decision] = decision

    def _attempt(self, event: AttemptStarted, at: float) -> None:
        decision = self.decisions[event.decision]
        decision.spent += 1
        decision.attempts.append(Past())

    def _propose(self, event: ProposalMade, at: float) -> None:
        past = self.decisions[event.decision].attempts[-1]
        past.proposal, past.others = event.proposal, event.others
        self.failures["producer"] = 0

    def _reject(self, event: ProposalRejected, at: float) -> None:
        past = self.decisions[event.decision].attempts[-1]
        past.proposal, past.rejected_by = event.value, event.stage
        past.reasons = event.reasons
        self.failures["producer"] = 0

    def _fail(self, event: FailureRecorded, at: float) -> None:
        if not event.again:
            self.failures[event.kind] += 1

    def _park(self, event: DecisionParked, at: float) -> None:
        # The checks gave a verdict, as they do for a decision that is made.
        self.failures["check"] = self.failures["verifier"] = 0
        name = decision_name(event.decision)
        spent = self.decisions[event.decision].spent
        self.parked[name] = Parked(event, at, key=f"{name}.{spent}")

    def _park_result(self, event: ResultParked, at: float) -> None:
        self._unjudged.pop(event.job, None)
        self.parked[event.job] = Parked(event, at, key=event.job)

    def _resolve(self, event: ParkedResolved, at: float) -> None:
        self.parked[event.what].answer = event

    def _hold(self, event: CandidateHeld, at: float) -> None:
        if self._ready.pop(event.fingerprint, None) is not None:
            del self.known[event.fingerprint]

    def _refuse_result(self, event: ResultRejected, at: float) -> None:
        job = self.jobs[event.job]
        self._unjudged.pop(event.job, None)
        self.parked.pop(event.job, None)
        job.rejected = event.reasons
        if event.again:
            self._ready_again(job)
        else:
            self._evaluate(event.fingerprint, "failed")

    def _ask_surrogate(self, event: SurrogateAsked, at: float) -> None:
        self.batches = max(self.batches, event.batch + 1)
        self.failures["surrogate"] = 0

    def _suspend(self, event: RunSuspended, at: float) -> None:
        self.suspended = event.reason

    def _stop(self, event: RunStopped, at: float) -> None:
        self.stopped = event

    def _new_life(self, event: SegmentOpened, at: float) -> None:
        if self.lives:  # `updated_at` is still that of the life before
            self.life_s += self.updated_at - self._life_began_at
            self.last_life_ended_at = self.updated_at
        self._billed_node_h, self.allocation = self.billed_node_h, None
        self.earlier, self._life = self._life, event
        self.run, self.lives, self._life_began_at = event.run, event.segment, at

    def _take_spec(self, event: RunStarted | RunResumed) -> None:
        # Keys of an older or newer version are passed over: an old run stays readable.
        self.spec = CampaignSpec.model_validate(event.spec, extra="ignore")
        self._objective = self.spec.objective
        self.digest = event.digest
        self.granted_node_h = self.spec.stop.node_h

    def _interrupt(self) -> None:
        # What was under way when the last runner died stays spent: a proposal that kills its
        # verifier, and the runner with it, cannot do so for ever.
        for decision in self._open.values():
            for past in decision.attempts:
                past.rejected_by = past.rejected_by or "interrupted"

    def _judge(self, event: CheckJudged, at: float) -> None:
        if event.verifier:
            self.verifier_node_h += event.node_h
        decision = self.decisions[event.decision]
        if event.passed or not event.hard:
            return
        past = decision.attempts[-1]
        past.rejected_by, past.reasons = event.check, event.reasons
        past.refused.update(dict.fromkeys(event.refused, event.check))
        if event.verifier:
            self._refuse(event, past)

    def _refuse(self, event: CheckJudged, past: Past) -> None:
        # Only what a verifier refused is remembered: a domain check says it again for nothing,
        # and with a better reason than "refused before".
        assert self.spec is not None
        space = self.spec.space
        proposal = (past.proposal, *past.others)[event.sample - 1]
        for candidate in (proposal or {}).get("candidates", ()):
            fingerprint = space.fingerprint(candidate)
            if fingerprint in event.refused:
                name = f"{decision_name(event.decision)}.{event.attempt}"
                self.known.setdefault(fingerprint, Known(candidate, "refused", name))

    def _decide(self, event: DecisionMade, at: float) -> None:
        decision = self.decisions[event.decision]
        self._open.pop(event.decision, None)
        self.parked.pop(decision_name(event.decision), None)
        decision.disposition, decision.candidates = event.disposition, event.candidates
        decision.attempts = []
        self.dispositions[event.disposition] += 1
        if event.disposition == "accepted" or event.cause == "rejected":
            # Every check gave a verdict. One that passes does not make up for one that fails.
            self.failures["check"] = self.failures["verifier"] = 0
        if event.disposition != "abandoned":
            fruit = any(chosen.audit_probability is None for chosen in event.candidates)
            self.fruitless = 0 if fruit else self.fruitless + 1
        for chosen in event.candidates:
            known = self.known.get(chosen.fingerprint)
            audit = chosen.audit_probability is not None
            # A person or an audit may launch what a verifier refused, and nobody runs a twin.
            if known and not (known.where == "refused" and (audit or event.cause == "person")):
                continue
            if chosen.audit_probability is not None:
                self.audits[chosen.fingerprint] = chosen.audit_probability
            self._ready[chosen.fingerprint] = chosen
            self._decided_by[chosen.fingerprint] = event.decision
            self.known[chosen.fingerprint] = Known(
                chosen.candidate, "chosen", decision_name(event.decision)
            )

    def _plan(self, event: JobPlanned, at: float) -> None:
        self._ready.pop(event.fingerprint, None)
        self.jobs[event.job] = self._running[event.job] = job = Job(event, at)
        self.runs.setdefault(event.fingerprint, []).append(job)
        self.known[event.fingerprint] = Known(event.candidate, "running", event.job)

    def _end(self, event: JobEnded, at: float) -> None:
        job = self._running.pop(event.job)
        job.end = event
        self.charged_node_h += event.charged_node_h
        if event.state is JobState.COMPLETED:
            self._unjudged[event.job] = job
            return
        if event.again:
            self._ready_again(job)
        else:
            self.failures["job"] += 1
            self._evaluate(job.plan.fingerprint, "failed")

    def _ready_again(self, job: Job) -> None:
        fingerprint = job.plan.fingerprint
        self._ready[fingerprint] = Chosen(fingerprint=fingerprint, candidate=job.plan.candidate)
        self._decided_by[fingerprint] = job.plan.decision
        self.known[fingerprint].where = "chosen"

    def _accept(self, event: ResultAccepted, at: float) -> None:
        job = self.jobs[event.job]
        self._unjudged.pop(event.job, None)
        self.parked.pop(event.job, None)
        job.values, job.feasible = event.values, event.feasible
        self._evaluate(event.fingerprint, "finished")
        self.results.append(event.job)
        self.failures["job"] = 0
        if event.feasible and self._better(event.values):
            self.best, self.since_best = event.job, 0

    def _evaluate(self, fingerprint: str, where: Whereabouts) -> None:
        self.known[fingerprint].where = where
        if fingerprint not in self.audits:
            self.evaluated += 1
            self.since_best += 1

    def _better(self, values: Mapping[str, float]) -> bool:
        name, minimise = self._objective
        if self.best is None:
            return True
        best = (self.jobs[self.best].values or {})[name]
        return values[name] < best if minimise else values[name] > best


def decision_name(number: int) -> str:
    """Name of a decision, for people."""
    return f"D{number}"


# ruff: noqa: SLF001 - the table names the class's own methods
_TAKE: Mapping[type[Any], Callable[[State, Any, float], None]] = {
    SegmentOpened: State._new_life,
    SegmentClosed: State._pass_over,
    RunStarted: State._start,
    RunResumed: State._resume,
    AllocationSeen: State._see_allocation,
    ServerStarted: State._serve,
    ServerStopped: State._pass_over,
    DecisionOpened: State._begin,
    AttemptStarted: State._attempt,
    ProposalMade: State._propose,
    ProposalRejected: State._reject,
    CheckJudged: State._judge,
    FailureRecorded: State._fail,
    DecisionMade: State._decide,
    DecisionParked: State._park,
    ResultParked: State._park_result,
    ParkedResolved: State._resolve,
    CandidateHeld: State._hold,
    JobPlanned: State._plan,
    JobEnded: State._end,
    ResultAccepted: State._accept,
    ResultRejected: State._refuse_result,
    SurrogateAsked: State._ask_surrogate,
    RunSuspended: State._suspend,
    RunStopped: State._stop,
}
"""What each kind of event changes. A test holds it against the kinds that there are."""
