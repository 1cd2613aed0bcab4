"""Everything a ledger can say: one frozen model for each kind of fact.

A name is noun + past participle. An event is never edited; a new field gets a default, so that
the oldest ledger still reads; a new kind is a new class, and the fold's `match` must name it.

Values that come from a model or a simulation (`Plain`) are JSON as `batchgate.plain` makes it:
finite numbers, tagged non-finite ones, bounded text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from .breach import Side
from .job import End, JobState

FORMAT = 2
"""Version of the ledger's format. A reader takes every version up to its own."""

Plain = Any
"""JSON-ready data, as `batchgate.plain.plain` makes it."""

Disposition = Literal["accepted", "fallback", "failed", "refused", "abandoned"]
"""How a decision ended.

`accepted`: a proposal passed every check, or a person let it pass. `fallback`: the surrogate's
candidates were taken. `failed`: something broke, and nothing is launched. `refused`: a person
refused a parked decision. `abandoned`: the run stopped first.
"""

Action = Literal["accept", "reject", "edit", "expire"]
"""How something parked was resolved: by a person, or because nobody answered in time."""

FailureKind = Literal["producer", "check", "verifier", "surrogate", "server", "job"]
"""What broke. Each kind is counted on its own."""

HoldCause = Literal["duplicate", "node_h", "time", "jobs"]
"""Why an accepted candidate is not launched."""


class _Event(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class SegmentOpened(_Event):
    """First line of every segment: who writes it, and which segment it follows."""

    type: Literal["segment_opened"] = "segment_opened"
    format: int = FORMAT
    run: str
    segment: int
    previous: str = ""
    """File name of the segment before; empty for the first."""
    previous_hash: str = ""
    """Hash of the last line that counts in it."""
    host: str
    pid: int
    process_started: str = ""
    """Start time of the process in clock ticks since boot: tells a pid from its successor."""
    boot: str = ""
    monotonic_ns: str = "0"
    slurm: Mapping[str, str] = {}
    """`job_id`, `restart_count` and the like; empty outside Slurm."""


class SegmentClosed(_Event):
    """Last line of a segment whose writer ended in order."""

    type: Literal["segment_closed"] = "segment_closed"


class RunStarted(_Event):
    """The campaign this run belongs to, whole, so that the record explains itself."""

    type: Literal["run_started"] = "run_started"
    campaign: str
    digest: str
    spec: Plain
    version: str
    seed: int
    granted_node_h: float
    slots: int = 1
    producer: str = ""
    settings: Plain = None
    """Site settings without secrets."""
    files: Mapping[str, str] = {}
    """SHA-256 of the campaign's own files beside the spec, by their names."""


class RunResumed(_Event):
    """A runner took the run up again; what was under way is spent."""

    type: Literal["run_resumed"] = "run_resumed"
    version: str
    slots: int = 1
    producer: str = ""
    digest: str = ""
    spec: Plain = None
    """The spec, when it differs from the one before (a raised grant, say)."""
    files: Mapping[str, str] = {}
    """SHA-256 of the campaign's own files beside the spec, by their names."""
    changed: tuple[str, ...] = ()
    """Of these, those that differ from the life before."""


class AllocationSeen(_Event):
    """What this life may use, and is billed for: at its start, and whenever it has changed."""

    type: Literal["allocation_seen"] = "allocation_seen"
    nodes: tuple[str, ...]
    """Host names of the live nodes."""
    started_at: float
    """When the allocation began, which is before the runner did."""
    ends_at: float | None = None
    """When it will be taken away; `None` when nobody knows of an end."""
    job_id: str = ""
    """Of the batch system; empty without one."""
    restart_count: int = 0


class ServerStarted(_Event):
    """The model server answers a real, constrained request."""

    type: Literal["server_started"] = "server_started"
    model: str
    elapsed_s: float
    nodes: float = 0.0
    """Nodes, or share of one, that it holds while it runs."""
    start: int = 1
    """1 for the first start of this life."""


class ServerStopped(_Event):
    """The model server is gone, and why."""

    type: Literal["server_stopped"] = "server_stopped"
    reason: str


class DecisionOpened(_Event):
    """A decision was begun."""

    type: Literal["decision_opened"] = "decision_opened"
    decision: int
    source: Literal["producer", "surrogate"] = "producer"
    """`surrogate` when a slot was idle, so that no model was asked."""


class AttemptStarted(_Event):
    """The producer is about to be asked. From here on the attempt is spent."""

    type: Literal["attempt_started"] = "attempt_started"
    decision: int
    attempt: int
    trace_id: str = ""
    span_id: str = ""


class ProposalMade(_Event):
    """The producer answered with a proposal. Written before any check sees it."""

    type: Literal["proposal_made"] = "proposal_made"
    decision: int
    attempt: int
    proposal: Plain
    others: tuple[Plain, ...] = ()
    """Further samples of the same answer in order, the second one first; all are judged alike."""
    response_id: str = ""
    model: str = ""
    temperature: float | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    samples_valid: int = 1
    samples_total: int = 1
    elapsed_s: float = 0.0


class BrokenBound(BaseModel):
    """A bound that a candidate does not keep: `batchgate.breach.Breach`, and of which candidate."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    candidate: int = 1
    """Place of the candidate in the proposal, from 1; 0 when it is of no candidate."""
    field: str
    measured: float
    bound: float
    kind: Side


class ProposalRejected(_Event):
    """The producer rejected its own answer: refusal, truncation, schema."""

    type: Literal["proposal_rejected"] = "proposal_rejected"
    decision: int
    attempt: int
    stage: str
    reasons: tuple[str, ...]
    breaches: tuple[BrokenBound, ...] = ()
    """Of the reasons, those that the producer told as numbers."""
    value: Plain = None
    elapsed_s: float = 0.0


class CheckJudged(_Event):
    """A check or verifier answered."""

    type: Literal["check_judged"] = "check_judged"
    decision: int
    attempt: int
    check: str
    sample: int = 1
    """Which sample of the answer it judged."""
    passed: bool
    hard: bool = True
    reasons: tuple[str, ...] = ()
    breaches: tuple[BrokenBound, ...] = ()
    """Of the reasons, those that were told as numbers."""
    score: float | None = None
    refused: tuple[str, ...] = ()
    """Fingerprints of the candidates it objects to."""
    verifier: bool = False
    observables: tuple[Plain, ...] = ()
    """For a verifier: what it measured, one mapping for each candidate of the proposal."""
    elapsed_s: float = 0.0
    node_h: float = 0.0


class FailureRecorded(_Event):
    """Something broke. No verdict follows from it."""

    type: Literal["failure_recorded"] = "failure_recorded"
    kind: FailureKind
    what: str
    """Short and countable: `timeout`, `connection`, `worker_lost`, a check's name."""
    message: str
    decision: int | None = None
    attempt: int | None = None
    again: bool = False
    """Whether the same thing is tried again."""


class Chosen(BaseModel):
    """A candidate that a decision let through."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    fingerprint: str
    candidate: Mapping[str, float | int | str | bool]
    audit_probability: float | None = None
    """For one that was rejected and is launched all the same, to learn whether that was right:
    the probability with which it was drawn."""


class DecisionMade(_Event):
    """A decision closed."""

    type: Literal["decision_made"] = "decision_made"
    decision: int
    disposition: Disposition
    attempts: int = 0
    sample: int = 1
    """Which sample of the last answer was accepted."""
    candidates: tuple[Chosen, ...] = ()
    cause: str = ""
    """Why it is no acceptance: `rejected`, `idle`, `producer`, a failure's kind, a stop rule."""
    batch: int | None = None
    """Number of the surrogate's batch, for a fallback."""


class DecisionParked(_Event):
    """A decision is out of attempts and waits for a person."""

    type: Literal["decision_parked"] = "decision_parked"
    decision: int
    expires_at: float
    """When the fallback takes over, in seconds since the epoch."""


class ResultParked(_Event):
    """A job's result was rejected by the result gate and waits for a person."""

    type: Literal["result_parked"] = "result_parked"
    job: str
    fingerprint: str
    reasons: tuple[str, ...]
    values: Plain = None
    expires_at: float


class ParkedResolved(_Event):
    """Something parked was resolved. What follows from it is in the events after it."""

    type: Literal["parked_resolved"] = "parked_resolved"
    what: str
    """`D17` for a decision, else the job."""
    action: Action
    by: str = ""
    """Account of who answered."""
    answered_at: float = 0.0
    """When, in seconds since the epoch; `at` of the line is when the runner took it up."""
    reason: str = ""
    value: Plain = None
    """With `edit`: the new proposal."""


class CandidateHeld(_Event):
    """An accepted candidate is not launched, and why."""

    type: Literal["candidate_held"] = "candidate_held"
    decision: int
    fingerprint: str
    cause: HoldCause
    reason: str


class JobPlanned(_Event):
    """A job is about to be launched and its worst case is reserved. On the disk before it is."""

    type: Literal["job_planned"] = "job_planned"
    job: str
    decision: int
    fingerprint: str
    candidate: Mapping[str, float | int | str | bool]
    level: str
    attempt: int = 1
    """1, or more when the same candidate runs again after a failure or a loss."""
    rerun: int = 0
    """Results of this candidate that were rejected before; picks the level's changed settings."""
    reserved_node_h: float
    walltime_s: float


class JobEnded(_Event):
    """A job reached its end; its reservation became a charge."""

    type: Literal["job_ended"] = "job_ended"
    job: str
    state: JobState
    end: End
    exit_code: int | None = None
    signal: int | None = None
    error: str = ""
    started_at: float = 0.0
    ended_at: float = 0.0
    host: str = ""
    charged_node_h: float = 0.0
    adopted: bool = False
    """Whether its result was found after its runner had died."""
    again: bool = False
    """Whether the same candidate is planned again."""


class ResultAccepted(_Event):
    """A job's result converged and is physical. It may still miss a constraint."""

    type: Literal["result_accepted"] = "result_accepted"
    job: str
    fingerprint: str
    values: Mapping[str, float]
    feasible: bool


class ResultRejected(_Event):
    """A job's result is no result. It is kept, and never reaches surrogate or prompt as a value."""

    type: Literal["result_rejected"] = "result_rejected"
    job: str
    fingerprint: str
    reasons: tuple[str, ...]
    values: Plain = None
    again: bool = False
    """Whether the candidate runs again with the level's changed settings."""


class SurrogateAsked(_Event):
    """The surrogate was fitted and gave a batch."""

    type: Literal["surrogate_asked"] = "surrogate_asked"
    batch: int
    observations: int
    candidates: int
    elapsed_s: float


class RunSuspended(_Event):
    """The runner was told to stop. The next life goes on from here."""

    type: Literal["run_suspended"] = "run_suspended"
    reason: str
    requeued: bool = False
    """Whether the batch system is about to be asked to start the next life."""


class RunStopped(_Event):
    """The campaign is over."""

    type: Literal["run_stopped"] = "run_stopped"
    rule: str
    """The stop rule, as the campaign names it under `stop`; `failures` for failures in a row."""
    reason: str
    failed: bool = False
    """Whether failures ended it."""


Event = Annotated[
    SegmentOpened
    | SegmentClosed
    | RunStarted
    | RunResumed
    | AllocationSeen
    | ServerStarted
    | ServerStopped
    | DecisionOpened
    | AttemptStarted
    | ProposalMade
    | ProposalRejected
    | CheckJudged
    | FailureRecorded
    | DecisionMade
    | DecisionParked
    | ResultParked
    | ParkedResolved
    | CandidateHeld
    | JobPlanned
    | JobEnded
    | ResultAccepted
    | ResultRejected
    | SurrogateAsked
    | RunSuspended
    | RunStopped,
    Field(discriminator="type"),
]
"""Any event. `type` tells which."""

EVENTS: tuple[type[_Event], ...] = get_args(get_args(Event)[0])
"""Every kind of event."""


class Entry(BaseModel):
    """One line of the ledger: an event, its place and its time."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seq: int
    """0 for the run's first line; no gaps, over all segments."""
    at_ns: int
    """Nanoseconds since the epoch, UTC, when the line was written."""
    event: Event

    @property
    def at(self) -> float:
        """Seconds since the epoch, UTC."""
        return self.at_ns / 1e9


EVENT: TypeAdapter[Event] = TypeAdapter(Event)
"""Validates and serialises any event."""
