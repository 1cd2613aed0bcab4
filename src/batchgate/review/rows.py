"""The rows of a run's record: plain, frozen, one for each attempt, decision, job, life.

Times are seconds since the epoch, UTC; 0.0 stands for "never" where the event says so. Values
of models and simulations are as the ledger has them: hostile, bounded, never evaluated.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ..campaign import Value
from ..events import Action, CheckJudged, Chosen, Disposition, FailureKind, HoldCause, Plain
from ..job import End, JobState
from .proposals import candidates_of, identity_of

AttemptOutcome = Literal["accepted", "rejected", "failed", "interrupted", "open"]
"""What became of an attempt.

`rejected`: a check or the producer's own stage said no. `failed`: something broke, so nobody
judged it. `interrupted`: its runner died or gave it up. `open`: still under way, as far as the
ledger tells.
"""

LifeEnd = Literal["stopped", "suspended", "closed", "interrupted", "open"]
"""How a runner's life ended.

`stopped`: a stop rule ended the campaign. `suspended`: it was told to stop. `closed`: it ended
in order without either, on an error. `interrupted`: it wrote no end, and another life followed.
`open`: it wrote no end yet: it runs, or it was killed.
"""


@dataclass(frozen=True, slots=True)
class AttemptRow:
    """One proposal and what the checks said of it.

    Attributes:
        decision: Number of its decision.
        number: From 1 within the decision.
        started_at: When the producer was asked.
        ended_at: Time of its newest event.
        outcome: What became of it.
        proposal: The proposal, or the raw value of an answer that its producer rejected.
        others: Further samples of the answer, judged as the proposal was.
        sample: Which of them all was accepted, 1 being the proposal; 1 when none was.
        checks: Verdicts in the order in which they were given.
        rejected_by: Checks that rejected it, or the producer's stage that did; else empty.
        reasons: Why it was rejected, all of them.
        model: Model that answered.
        response_id: Id of its answer.
        temperature: Sampling temperature, where one was used.
        input_tokens: Tokens of the prompt.
        output_tokens: Tokens of the answer.
        samples_valid: Answers of which the proposal was assembled.
        samples_total: Answers asked for.
        answer_s: Seconds until the answer was there.
        trace_id: Trace of the attempt, where one was recorded.
        span_id: Span of the attempt.
    """

    decision: int
    number: int
    started_at: float
    ended_at: float
    outcome: AttemptOutcome
    proposal: Plain = None
    others: tuple[Plain, ...] = ()
    sample: int = 1
    checks: tuple[CheckJudged, ...] = ()
    rejected_by: tuple[str, ...] = ()
    reasons: tuple[str, ...] = ()
    model: str = ""
    response_id: str = ""
    temperature: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    samples_valid: int = 0
    samples_total: int = 0
    answer_s: float = 0.0
    trace_id: str = ""
    span_id: str = ""

    @property
    def candidates(self) -> tuple[Mapping[str, Any], ...]:
        """The sample's candidates; empty when it does not have the shape of a proposal."""
        return candidates_of(self.sampled(self.sample))

    def sampled(self, number: int) -> Plain:
        """Return a sample of the answer, 1 for the proposal itself."""
        return (self.proposal, *self.others)[number - 1]

    @property
    def identity(self) -> str:
        """Canonical JSON of what was proposed, the rationale left out: equal for equal values."""
        return identity_of(self.sampled(self.sample))


@dataclass(frozen=True, slots=True)
class DecisionRow:
    """One decision, from its opening to what it let through.

    Attributes:
        number: From 1.
        source: Who was asked.
        opened_at: When it was begun.
        closed_at: When it ended; `None` while it is open.
        disposition: How it ended; `None` while it is open.
        cause: Why it is no acceptance.
        attempts: Its attempts, in order.
        candidates: What it let through.
        batch: Number of the surrogate's batch, for a fallback.
    """

    number: int
    source: Literal["producer", "surrogate"]
    opened_at: float
    closed_at: float | None
    disposition: Disposition | None
    cause: str
    attempts: tuple[AttemptRow, ...]
    candidates: tuple[Chosen, ...]
    batch: int | None


@dataclass(frozen=True, slots=True)
class JobRow:
    """One launch of one candidate, and its result.

    Attributes:
        job: Its name.
        decision: Number of the decision that let its candidate through.
        disposition: How that decision ended: whether model or surrogate is behind it.
        fingerprint: The candidate's identity.
        candidate: The candidate.
        level: Level of the fidelity ladder.
        attempt: 1, or more when the same candidate runs again.
        planned_at: When its worst case was reserved.
        reserved_node_h: Node-hours reserved for it.
        walltime_s: Seconds after which it is killed.
        started_at: When it started, by the clock of its host; 0.0 when it never did.
        ended_at: When it ended, likewise.
        settled_at: When the runner wrote its end down; `None` while it runs.
        state: Its state; `ACTIVE` while nobody knows of an end.
        end: How it ended; `None` while it runs.
        exit_code: Exit code of a process that ended by itself.
        signal: Signal that ended it.
        error: One line for people.
        host: Host it ran on.
        charged_node_h: Node-hours charged for it.
        adopted: Whether its result was found after its runner had died.
        again: Whether the same candidate was planned again.
        rerun: Results of its candidate that were rejected before it.
        audited: Whether its candidate had been rejected, and it is run to learn from that.
        values: Its result; `None` without a valid one.
        feasible: Whether the result meets the campaign's constraints.
        reasons: Why its result was rejected.
        rejected_values: What was rejected.
    """

    job: str
    decision: int
    disposition: Disposition | None
    fingerprint: str
    candidate: Mapping[str, Value]
    level: str
    attempt: int
    planned_at: float
    reserved_node_h: float
    walltime_s: float
    started_at: float = 0.0
    ended_at: float = 0.0
    settled_at: float | None = None
    state: JobState = JobState.ACTIVE
    end: End | None = None
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    host: str = ""
    charged_node_h: float = 0.0
    adopted: bool = False
    again: bool = False
    rerun: int = 0
    audited: bool = False
    values: Mapping[str, float] | None = None
    feasible: bool = False
    reasons: tuple[str, ...] = ()
    rejected_values: Plain = None

    @property
    def source(self) -> Literal["model", "surrogate"]:
        """Who is behind its candidate."""
        return "model" if self.audited or self.disposition == "accepted" else "surrogate"

    @property
    def outcome(self) -> str:
        """One word for it.

        `feasible`, `infeasible` or `invalid` (rejected) for a judged result, `running`,
        `unjudged` for a result that was not judged yet, `no_result` for a job that exited with 0
        and left none, else the kind of its end.
        """
        if self.values is not None:
            return "feasible" if self.feasible else "infeasible"
        if self.reasons:
            return "invalid"
        if self.end is None:
            return "running"
        if self.state is JobState.COMPLETED:
            return "unjudged"
        return "no_result" if self.end is End.COMPLETED else self.end.value


@dataclass(frozen=True, slots=True)
class PairRow:
    """What a verifier said of one candidate, beside what its job found.

    Attributes:
        verifier: Name of the verifier.
        decision: Number of the decision.
        attempt: Number of the attempt.
        fingerprint: The candidate's identity.
        passed: Whether the verifier let it pass.
        observables: What the verifier measured.
        good: Whether the job's result is feasible; `None` when the candidate has no judged
            result. A result that was rejected is not good.
        values: The job's valid result; empty without one.
    """

    verifier: str
    decision: int
    attempt: int
    fingerprint: str
    passed: bool
    observables: Mapping[str, Any]
    good: bool | None
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class HeldRow:
    """An accepted candidate that was not launched.

    Attributes:
        at: When.
        decision: Number of its decision.
        fingerprint: Its identity.
        cause: What kept it.
        reason: Why, for people.
    """

    at: float
    decision: int
    fingerprint: str
    cause: HoldCause
    reason: str


@dataclass(frozen=True, slots=True)
class QuestionRow:
    """Something that was parked for a person.

    Attributes:
        what: `D17` for a decision, else the job whose result it is about.
        decision: Number of the decision.
        asked_at: When it was parked.
        expires_at: When nobody is waited for any longer.
        reasons: Why a result was parked; empty for a decision, whose attempts have them.
        answered_at: When it was resolved; `None` while it waits.
        action: How, likewise.
        by: Account of who answered; empty when nobody did.
        why: What this person said.
    """

    what: str
    decision: int
    asked_at: float
    expires_at: float
    reasons: tuple[str, ...] = ()
    answered_at: float | None = None
    action: Action | None = None
    by: str = ""
    why: str = ""


@dataclass(frozen=True, slots=True)
class FailureRow:
    """Something that broke.

    Attributes:
        at: When.
        kind: What broke.
        what: Short and countable.
        message: For people.
        decision: Number of the decision it broke, if any.
        attempt: Number of the attempt it broke, if any.
        again: Whether the same thing was tried again.
    """

    at: float
    kind: FailureKind
    what: str
    message: str
    decision: int | None
    attempt: int | None
    again: bool


@dataclass(frozen=True, slots=True)
class ServerRow:
    """One start of the model server.

    Attributes:
        life: Number of the life that started it.
        start: 1 for the first start of that life.
        model: Model it serves.
        ready_at: When it answered.
        elapsed_s: Seconds it took to get there.
        stopped_at: When it was gone; `None` when the ledger does not say.
        reason: Why it was gone.
    """

    life: int
    start: int
    model: str
    ready_at: float
    elapsed_s: float
    stopped_at: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch of the surrogate.

    Attributes:
        at: When it was there.
        batch: Its number, which seeds it.
        observations: Results it was fitted to.
        candidates: Candidates in it.
        elapsed_s: Seconds it took.
    """

    at: float
    batch: int
    observations: int
    candidates: int
    elapsed_s: float


@dataclass(frozen=True, slots=True)
class LifeRow:
    """One runner process of the run.

    Attributes:
        number: From 1.
        host: Where it ran.
        pid: Its process id.
        slurm: Its Slurm job, restart count and the like; empty outside Slurm.
        version: batchgate's version.
        producer: Name of the producer.
        slots: Jobs it could run at once.
        started_at: Its first event.
        ended_at: Its last event.
        end: How it ended.
        reason: Why, where the ledger says so.
    """

    number: int
    host: str
    pid: int
    slurm: Mapping[str, str]
    version: str
    producer: str
    slots: int
    started_at: float
    ended_at: float
    end: LifeEnd
    reason: str = ""
