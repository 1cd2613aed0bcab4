"""What a run came to, as data: counts, shares, node-hours, the best result.

`summarise` makes a `Summary`. It is shown by `terminal` and `report`, and read by programs as JSON.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Literal

from ..campaign import Value

ENOUGH_PAIRS = 10
"""Pairs from which on a rank correlation is worth a warning."""
POOR_RANK = 0.4
"""Rank correlation below which a verifier does not tell good from bad."""


@dataclass(frozen=True, slots=True)
class Ending:
    """How the run ended, or where it stands.

    Attributes:
        how: `stopped` by a rule, `failed` (failures ended it), `suspended` (it can be taken up
            again), `closed` (its runner ended on an error), `open` (no end is recorded: it runs,
            or it was killed), `empty` (nothing was recorded).
        rule: The stop rule, for `stopped` and `failed`.
        reason: Why, for people.
        at: When, in seconds since the epoch; the newest event for `open`.
    """

    how: Literal["stopped", "failed", "suspended", "closed", "open", "empty"]
    rule: str
    reason: str
    at: float


@dataclass(frozen=True, slots=True)
class ReasonCount:
    """Reasons that differ only in their numbers.

    Attributes:
        template: The reason with `#` for its numbers.
        example: The first such reason.
        count: How often it was given.
    """

    template: str
    example: str
    count: int


@dataclass(frozen=True, slots=True)
class Judged:
    """Verdicts of one check at one attempt number.

    Attributes:
        attempt: Attempt number, from 1.
        judged: Proposals judged.
        rejected: Proposals rejected.
    """

    attempt: int
    judged: int
    rejected: int


@dataclass(frozen=True, slots=True)
class CheckCount:
    """What one check, verifier or stage of the producer did.

    Attributes:
        name: Its name.
        kind: `stage` for the producer's own (schema, refusal), `check`, `soft` for a check
            that is only recorded, or `verifier`.
        by_attempt: Its verdicts by attempt number.
        reasons: Its most frequent reasons.
        elapsed_s: Seconds it took, over all proposals.
        node_h: Node-hours it was charged.
    """

    name: str
    kind: Literal["stage", "check", "soft", "verifier"]
    by_attempt: tuple[Judged, ...]
    reasons: tuple[ReasonCount, ...]
    elapsed_s: float
    node_h: float

    @property
    def judged(self) -> int:
        """Proposals it judged."""
        return sum(part.judged for part in self.by_attempt)

    @property
    def rejected(self) -> int:
        """Proposals it rejected."""
        return sum(part.rejected for part in self.by_attempt)


@dataclass(frozen=True, slots=True)
class AskCount:
    """How the attempts of one number fared.

    Attributes:
        attempt: 1 for first asks, 2 for the first re-asks and so on.
        asked: Attempts started.
        accepted: Of these, accepted.
        low: Lower end of the 95 % interval of the acceptance rate.
        high: Upper end.
    """

    attempt: int
    asked: int
    accepted: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Transition:
    """What followed when one check, verifier or stage had rejected and the model was asked again.

    Attributes:
        check: Its name.
        followed: How the next attempts ended, by the words of `Summary.reasks`.
    """

    check: str
    followed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Best:
    """The best feasible result.

    Attributes:
        job: Its job.
        decision: Number of the decision behind it.
        source: `model` or `surrogate`.
        objective: Name of the objective.
        minimise: Whether less is better.
        value: The objective's value.
        first: The first feasible value, from which it improved.
        of_model: Best value of the model's candidates; `None` without a feasible one.
        of_surrogate: Best value of the surrogate's candidates, likewise.
        candidate: The candidate.
        units: Units of its variables, where there are any.
        values: Everything the job measured.
    """

    job: str
    decision: int
    source: Literal["model", "surrogate"]
    objective: str
    minimise: bool
    value: float
    first: float
    of_model: float | None
    of_surrogate: float | None
    candidate: Mapping[str, Value]
    units: Mapping[str, str]
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class IdleGap:
    """A slot that ran nothing.

    Attributes:
        slot: Number of the slot, from 1.
        start_at: Its start, in seconds since the epoch.
        length_s: Seconds it lasted.
    """

    slot: int
    start_at: float
    length_s: float


@dataclass(frozen=True, slots=True)
class SlotUse:
    """How busy the slots were.

    Attributes:
        slots: Jobs that could run at once, at most over all lives.
        held_s: Slot-seconds that runners held.
        busy_s: Of these, those in which a job ran.
        busy_share: Their share, 0...1; `None` when none were held.
        gaps: The longest idle gaps.
    """

    slots: int
    held_s: float
    busy_s: float
    busy_share: float | None
    gaps: tuple[IdleGap, ...]


@dataclass(frozen=True, slots=True)
class NodeHours:
    """Where the node-hours went.

    Attributes:
        granted: What jobs may use.
        charged: What jobs were charged.
        reserved: What running jobs may still be charged.
        free: Neither charged nor reserved.
        verifiers: What verifiers used; not part of the grant.
        by_outcome: Charged, by what became of the job.
        model: Charged for candidates of the model.
        surrogate: Charged for candidates of the surrogate.
    """

    granted: float
    charged: float
    reserved: float
    free: float
    verifiers: float
    by_outcome: Mapping[str, float]
    model: float
    surrogate: float


@dataclass(frozen=True, slots=True)
class Saved:
    """An estimate of the node-hours that the gate kept from being spent.

    Attributes:
        stopped: Different candidates that a check or verifier refused and that never ran.
        job_node_h: Mean charge of the jobs that did.
        cost_node_h: What verifiers used to find out.
    """

    stopped: int
    job_node_h: float
    cost_node_h: float

    @property
    def node_h(self) -> float:
        """What the refused candidates would have cost, less what refusing them cost."""
        return self.stopped * self.job_node_h - self.cost_node_h


@dataclass(frozen=True, slots=True)
class Rank:
    """How a verifier ranks an observable that the job measures too.

    Attributes:
        observable: Its name.
        pairs: Candidates that both measured.
        spearman: Rank correlation; `None` below three pairs, or when one side never varies.
    """

    observable: str
    pairs: int
    spearman: float | None

    @property
    def poor(self) -> bool:
        """Whether it is low, and there are enough pairs to say so."""
        return (
            self.spearman is not None and self.pairs >= ENOUGH_PAIRS and self.spearman < POOR_RANK
        )


@dataclass(frozen=True, slots=True)
class VerifierCount:
    """A verifier's verdicts beside the results of the jobs.

    Attributes:
        name: The verifier.
        passed_good: Let pass, and the job's result was feasible.
        passed_bad: Let pass, and it was infeasible or rejected.
        passed_unknown: Let pass, without a judged result.
        refused_good: Refused; another decision had it run, and it was feasible.
        refused_bad: Likewise, and it was not.
        refused_unknown: Refused and never run.
        ranks: Rank correlation of each observable that both measure.
    """

    name: str
    passed_good: int
    passed_bad: int
    passed_unknown: int
    refused_good: int
    refused_bad: int
    refused_unknown: int
    ranks: tuple[Rank, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """The figures of a run. Make it with `summarise`.

    Attributes:
        run: The run's name.
        campaign: The campaign's name.
        title: One line about it.
        ending: How it ended.
        started_at: When it started; 0.0 when it never did.
        wall_s: Seconds of all lives together.
        lives: Runner processes.
        decisions: Decisions by disposition; `open` and `parked` are those that have none yet.
        causes: Fallbacks by their cause.
        attempts: Attempts by outcome.
        input_tokens: Tokens of all prompts.
        output_tokens: Tokens of all answers.
        checks: What stages, checks and verifiers did, in the order of the gate.
        asks: How attempts fared, by attempt number.
        reasks: What followed a rejection: `accepted`, `repeated` (the same value again),
            `same_check`, `other_check`, `unjudged` (a failure or an interruption).
        transitions: The same by the check that had rejected; an attempt that several had
            rejected counts for each.
        jobs: Jobs by what became of them; `parked` ones wait for a person.
        held: Accepted candidates not launched, by cause.
        best: The best feasible result; `None` without one.
        slots: How busy the slots were.
        node_h: Where the node-hours went.
        saved: What the gate saved, as an estimate; `None` while no job has ended.
        verifiers: Verifiers beside results.
        failures: Failures by kind and what broke, as `kind: what`.
        warnings: What a reader should know first, most important first.
    """

    run: str
    campaign: str
    title: str
    ending: Ending
    started_at: float
    wall_s: float
    lives: int
    decisions: Mapping[str, int]
    causes: Mapping[str, int]
    attempts: Mapping[str, int]
    input_tokens: int
    output_tokens: int
    checks: tuple[CheckCount, ...]
    asks: tuple[AskCount, ...]
    reasks: Mapping[str, int]
    transitions: tuple[Transition, ...]
    jobs: Mapping[str, int]
    held: Mapping[str, int]
    best: Best | None
    slots: SlotUse
    node_h: NodeHours
    saved: Saved | None
    verifiers: tuple[VerifierCount, ...]
    failures: Mapping[str, int]
    warnings: tuple[str, ...]

    def to_json(self) -> str:
        """Return it as strict JSON, one object, keys named like the attributes."""
        return json.dumps(asdict(self), indent=2, allow_nan=False)
