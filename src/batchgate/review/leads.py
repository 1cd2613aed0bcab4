"""Where to look first: decisions that a rule says are worth a person's time, ranked.

The rules are ranked by what not looking could cost: somebody is waited for, the gate was wrong,
something was lost or broke, the model was of no use, and then what is merely odd.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise

from ..campaign import Constraint
from . import text
from .record import RunRecord
from .rows import AttemptRow, DecisionRow, JobRow
from .stats import masked, number

SPOTS = 4
"""Places that are named for each rule."""
NEAR = 0.05
"""Distance from a verifier's limit, as a share of the limit, up to which a candidate was near."""
SLOW = 4.0
"""Times the median from which on an answer was slow."""
_ENOUGH_ANSWERS = 20
"""Answers from which on their median says what is usual."""


@dataclass(frozen=True, slots=True)
class Spot:
    """One place to look at.

    Attributes:
        decision: Number of the decision.
        attempt: Number of the attempt; 0 for the decision as a whole.
        told: What is there; may hold text of strangers.
    """

    decision: int
    attempt: int
    told: str


@dataclass(frozen=True, slots=True)
class Lead:
    """What one rule found.

    Attributes:
        rule: What the rule looks for, for people.
        count: How much it found.
        spots: The first of it, the most important first.
    """

    rule: str
    count: int
    spots: tuple[Spot, ...]


def leads(record: RunRecord) -> tuple[Lead, ...]:
    """Return what is worth a look, most important first; rules that found nothing are left out."""
    found = ((rule, list(look(record))) for rule, look in _RULES.items())
    return tuple(Lead(rule, len(spots), tuple(spots[:SPOTS])) for rule, spots in found if spots)


def _waiting(record: RunRecord) -> Iterator[Spot]:
    for question in record.questions:
        if question.answered_at is None:
            about = f"{question.what}: {'; '.join(question.reasons)}" if question.reasons else ""
            until = f"until {text.instant(question.expires_at)}"
            yield Spot(question.decision, 0, f"{about} ({until})" if about else until)


def _wrongly_accepted(record: RunRecord) -> Iterator[Spot]:
    last = {job.fingerprint: job for job in record.jobs}  # of those that ran again
    yield from _dearest(
        job
        for job in last.values()
        if job.source == "model" and not job.audited and job.outcome in {"infeasible", "invalid"}
    )


def _wrongly_rejected(record: RunRecord) -> Iterator[Spot]:
    yield from _dearest(job for job in record.jobs if job.audited and job.feasible)


def _dearest(jobs: Iterable[JobRow]) -> Iterator[Spot]:
    for job in sorted(jobs, key=lambda job: -job.charged_node_h):
        told = "; ".join(job.reasons) or text.compact(job.values or {})
        cost = f"{text.hours(job.charged_node_h)} node-hours"
        yield Spot(job.decision, 0, f"{text.plain_word(job.outcome)}, {cost}: {told}")


def _lost(record: RunRecord) -> Iterator[Spot]:
    for job in record.jobs:
        if job.outcome == "unknown":
            yield Spot(job.decision, 0, f"{job.job} was lost: {job.error}")
    for attempt in record.attempts:
        if attempt.outcome == "interrupted":
            yield Spot(attempt.decision, attempt.number, "interrupted")


def _broken(record: RunRecord) -> Iterator[Spot]:
    for failure in record.failures:
        if failure.kind in {"check", "verifier"}:
            told = f"{failure.kind} {failure.what}: {failure.message}"
            yield Spot(failure.decision or 0, failure.attempt or 0, told)


def _given_up(record: RunRecord) -> Iterator[Spot]:
    for decision in record.decisions:
        if decision.disposition == "fallback" and decision.cause in {"rejected", "expired"}:
            yield Spot(decision.number, 0, _last_reason(decision))


def _last_reason(decision: DecisionRow) -> str:
    last = next((a for a in reversed(decision.attempts) if a.reasons), None)
    if last is None:
        return decision.cause
    return f"{', '.join(dict.fromkeys(last.rejected_by))}: {last.reasons[0]}"


def _near_a_limit(record: RunRecord) -> Iterator[Spot]:
    limits = {level.name: level.accept for level in record.spec.verifiers} if record.spec else {}
    found = [
        (distance, Spot(attempt.decision, attempt.number, f"{check.check}: {told}"))
        for attempt in record.attempts
        if attempt.outcome == "accepted"
        for check in attempt.checks
        for measured in (check.observables if check.sample == attempt.sample else ())
        if isinstance(measured, Mapping)
        for name, constraint in limits.get(check.check, {}).items()
        if (value := number(measured.get(name))) is not None
        for distance, told in _distance(name, value, constraint)
    ]
    yield from (spot for _, spot in sorted(found, key=lambda item: item[0]))


def _distance(name: str, value: float, constraint: Constraint) -> Iterator[tuple[float, str]]:
    for bound in constraint.bounds:
        if bound and (distance := abs(value - bound) / abs(bound)) <= NEAR:
            yield distance, f"{name} is {value:.6g}, the limit is {bound:g}"


def _rare(record: RunRecord) -> Iterator[Spot]:
    told = [
        (masked(reason), Spot(attempt.decision, attempt.number, f"{name}: {reason}"))
        for attempt in record.attempts
        for name, reason in _objections(attempt)
    ]
    counts = Counter(template for template, _ in told)
    yield from (spot for template, spot in told if counts[template] == 1)


def _objections(attempt: AttemptRow) -> Iterator[tuple[str, str]]:
    if not attempt.checks:
        yield from ((stage, reason) for stage in attempt.rejected_by for reason in attempt.reasons)
    for check in attempt.checks:
        if check.hard and not check.passed:
            yield from ((check.check, reason) for reason in check.reasons)


def _repeated(record: RunRecord) -> Iterator[Spot]:
    for decision in record.decisions:
        for one, other in pairwise(decision.attempts):
            both = one.outcome == other.outcome == "rejected"
            if both and one.identity == other.identity:
                told = f"as attempt {one.number}: {_proposal(other)}"
                yield Spot(decision.number, other.number, told)


def _proposal(attempt: AttemptRow) -> str:
    found = attempt.candidates or (attempt.sampled(attempt.sample),)
    return " | ".join(map(text.compact, found))


def _slow(record: RunRecord) -> Iterator[Spot]:
    answered = [attempt for attempt in record.attempts if attempt.answer_s]
    if len(answered) < _ENOUGH_ANSWERS:
        return
    usual_s = statistics.median(attempt.answer_s for attempt in answered)
    for attempt in sorted(answered, key=lambda attempt: -attempt.answer_s):
        if attempt.answer_s < SLOW * usual_s:
            return
        told = f"{text.span(attempt.answer_s)}; usual are {text.span(usual_s)}"
        yield Spot(attempt.decision, attempt.number, told)


_RULES: dict[str, Callable[[RunRecord], Iterator[Spot]]] = {
    "waits for a person": _waiting,
    "accepted, and the result is bad": _wrongly_accepted,
    "rejected, and an audit found it good": _wrongly_rejected,
    "lost, or interrupted with its runner": _lost,
    "a check or a verifier broke": _broken,
    "no proposal passed, so the surrogate took over": _given_up,
    f"passed within {NEAR:.0%} of a verifier's limit": _near_a_limit,
    "rejected for a reason given only once": _rare,
    "the same value again after a rejection": _repeated,
    f"an answer took {SLOW:g} times as long as usual": _slow,
}
"""What is looked for, most important first."""
