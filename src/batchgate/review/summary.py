"""From a run's record to its figures."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any, Literal

from ..campaign import CampaignSpec
from ..events import CheckJudged
from ..state import decision_name
from .figures import (
    POOR_RANK,
    AskCount,
    Best,
    CheckCount,
    Ending,
    IdleGap,
    Judged,
    NodeHours,
    Rank,
    ReasonCount,
    Saved,
    SlotUse,
    Summary,
    Transition,
    VerifierCount,
)
from .occupancy import Occupancy
from .record import RunRecord
from .rows import AttemptRow, DecisionRow, JobRow, PairRow
from .stats import masked, spearman, wilson

REASONS = 5
"""Most frequent reasons that are told of each check."""
GAPS = 5
"""Longest idle gaps that are told."""
MANY_REPEATS = 3
"""Re-asks with the same value from which on repeating is worth a warning."""
BUSY = 0.5
"""Share of busy slots below which idling is worth a warning."""


def summarise(record: RunRecord) -> Summary:
    """Count a run."""
    attempts = list(record.attempts)
    ending = _ending(record)
    reasks = _reasks(record.decisions)
    slots = _slots(record)
    verifiers = tuple(_verifiers(record.pairs))
    parked = {q.what for q in record.questions if q.answered_at is None}
    return Summary(
        run=record.state.run,
        campaign=record.campaign,
        title=record.spec.campaign.title if record.spec else "",
        ending=ending,
        started_at=record.state.started_at,
        wall_s=record.state.wall_s,
        lives=len(record.lives),
        decisions=_counts(
            "parked" if decision_name(d.number) in parked else d.disposition or "open"
            for d in record.decisions
        ),
        causes=_counts(d.cause for d in record.decisions if d.disposition == "fallback"),
        attempts=_counts(a.outcome for a in attempts),
        input_tokens=sum(a.input_tokens for a in attempts),
        output_tokens=sum(a.output_tokens for a in attempts),
        checks=(*_stages(attempts), *_checks(attempts)),
        asks=tuple(_asks(attempts)),
        reasks=reasks,
        transitions=tuple(_transitions(record.decisions)),
        jobs=_counts("parked" if job.job in parked else job.outcome for job in record.jobs),
        held=_counts(held.cause for held in record.held),
        best=_best(record),
        slots=slots,
        node_h=_node_hours(record),
        saved=_saved(record),
        verifiers=verifiers,
        failures=_counts(f"{f.kind}: {f.what}" for f in record.failures),
        warnings=tuple(_warnings(ending, verifiers, reasks, slots)),
    )


def _counts(words: Iterable[str]) -> dict[str, int]:
    """Count words, the most frequent first, equal ones by the alphabet."""
    return dict(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))


def _ending(record: RunRecord) -> Ending:
    state, at = record.state, record.state.updated_at
    if not record.lives:
        return Ending("empty", "", "nothing was recorded", at)
    match record.lives[-1].end:
        case "stopped":
            assert state.stopped is not None
            stopped = state.stopped
            return Ending(
                "failed" if stopped.failed else "stopped", stopped.rule, stopped.reason, at
            )
        case "suspended":
            return Ending("suspended", "", state.suspended, at)
        case "closed":
            return Ending("closed", "", "its runner ended in order, on an error", at)
        case _:
            return Ending("open", "", "it runs still, or its runner was killed", at)


def _stages(attempts: Iterable[AttemptRow]) -> Iterator[CheckCount]:
    """Count answers that the producer rejected itself, so that no check saw them."""
    answered = [a for a in attempts if a.checks or a.rejected_by]
    for stage in sorted({name for a in answered if not a.checks for name in a.rejected_by}):
        told = [
            (a.number, not a.checks and stage in a.rejected_by, () if a.checks else a.reasons)
            for a in answered
        ]
        yield CheckCount(stage, "stage", _by_attempt(told), _reasons(told), 0.0, 0.0)


def _checks(attempts: Iterable[AttemptRow]) -> Iterator[CheckCount]:
    """Count verdicts, check by check in the order of the gate."""
    verdicts: defaultdict[str, list[tuple[int, CheckJudged]]] = defaultdict(list)
    places: Counter[str] = Counter()
    for attempt in attempts:
        for place, check in enumerate(attempt.checks):
            verdicts[check.check].append((attempt.number, check))
            places[check.check] = max(places[check.check], place)
    for name in sorted(verdicts, key=places.__getitem__):
        found = verdicts[name]
        told = [(number, not check.passed, check.reasons) for number, check in found]
        yield CheckCount(
            name=name,
            kind=_kind(found[0][1]),
            by_attempt=_by_attempt(told),
            reasons=_reasons(told),
            elapsed_s=math.fsum(check.elapsed_s for _, check in found),
            node_h=math.fsum(check.node_h for _, check in found),
        )


def _kind(check: CheckJudged) -> Literal["check", "soft", "verifier"]:
    if check.verifier:
        return "verifier"
    return "check" if check.hard else "soft"


def _by_attempt(told: Iterable[tuple[int, bool, Any]]) -> tuple[Judged, ...]:
    judged: Counter[int] = Counter()
    rejected: Counter[int] = Counter()
    for number, bad, _ in told:
        judged[number] += 1
        rejected[number] += bad
    return tuple(Judged(number, judged[number], rejected[number]) for number in sorted(judged))


def _reasons(told: Iterable[tuple[int, bool, tuple[str, ...]]]) -> tuple[ReasonCount, ...]:
    counts: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for _, bad, reasons in told:
        for reason in reasons if bad else ():
            template = masked(reason)
            counts[template] += 1
            examples.setdefault(template, reason)
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return tuple(ReasonCount(t, examples[t], count) for t, count in ranked[:REASONS])


def _asks(attempts: Sequence[AttemptRow]) -> Iterator[AskCount]:
    asked = Counter(a.number for a in attempts)
    accepted = Counter(a.number for a in attempts if a.outcome == "accepted")
    for number in sorted(asked):
        low, high = wilson(accepted[number], asked[number])
        yield AskCount(number, asked[number], accepted[number], low, high)


def _reasks(decisions: Iterable[DecisionRow]) -> dict[str, int]:
    return _counts(followed(one, other) for one, other in _asked_again(decisions))


def _transitions(decisions: Iterable[DecisionRow]) -> Iterator[Transition]:
    by_check: defaultdict[str, list[str]] = defaultdict(list)
    for one, other in _asked_again(decisions):
        for check in dict.fromkeys(one.rejected_by):
            by_check[check].append(followed(one, other))
    for check, found in sorted(by_check.items(), key=lambda item: (-len(item[1]), item[0])):
        yield Transition(check, _counts(found))


def _asked_again(decisions: Iterable[DecisionRow]) -> Iterator[tuple[AttemptRow, AttemptRow]]:
    for decision in decisions:
        for one, other in pairwise(decision.attempts):
            if one.outcome == "rejected":
                yield one, other


def followed(one: AttemptRow, other: AttemptRow) -> str:
    """Say how an attempt ended that followed a rejected one; see `Summary.reasks`."""
    if other.outcome == "accepted":
        return "accepted"
    if other.outcome != "rejected":
        return "unjudged"
    if one.identity == other.identity:
        return "repeated"
    return "same_check" if {*one.rejected_by} & {*other.rejected_by} else "other_check"


def _best(record: RunRecord) -> Best | None:
    best, spec = record.best, record.spec
    if best is None:
        return None
    assert spec is not None
    name, minimise = spec.objective
    pick = min if minimise else max
    feasible = [job for job in record.jobs if job.feasible]
    feasible.sort(key=lambda job: job.settled_at or 0.0)
    return Best(
        job=best.job,
        decision=best.decision,
        source=best.source,
        objective=name,
        minimise=minimise,
        value=_value(best, name),
        first=_value(feasible[0], name),
        of_model=pick((_value(j, name) for j in feasible if j.source == "model"), default=None),
        of_surrogate=pick(
            (_value(j, name) for j in feasible if j.source == "surrogate"), default=None
        ),
        candidate=best.candidate,
        units=_units(spec),
        values=best.values or {},
    )


def _value(job: JobRow, objective: str) -> float:
    return (job.values or {})[objective]


def _units(spec: CampaignSpec) -> dict[str, str]:
    return {name: variable.unit for name, variable in spec.variables.items() if variable.unit}


def _slots(record: RunRecord) -> SlotUse:
    use = Occupancy.of(record)
    gaps = (IdleGap(gap.lane + 1, gap.start_at, gap.length_s) for gap in use.gaps[:GAPS])
    slots = max((life.slots for life in record.lives), default=0)
    return SlotUse(slots, use.held_s, use.busy_s, use.busy_share, tuple(gaps))


def _node_hours(record: RunRecord) -> NodeHours:
    state = record.state
    by_outcome: defaultdict[str, list[float]] = defaultdict(list)
    by_source: defaultdict[str, list[float]] = defaultdict(list)
    for job in record.jobs:
        if job.charged_node_h:
            by_outcome[job.outcome].append(job.charged_node_h)
            by_source[job.source].append(job.charged_node_h)
    return NodeHours(
        granted=state.granted_node_h,
        charged=state.charged_node_h,
        reserved=float(state.reserved_node_h),
        free=state.free_node_h,
        verifiers=state.verifier_node_h,
        by_outcome={word: math.fsum(by_outcome[word]) for word in sorted(by_outcome)},
        model=math.fsum(by_source["model"]),
        surrogate=math.fsum(by_source["surrogate"]),
    )


def _saved(record: RunRecord) -> Saved | None:
    ended = [job for job in record.jobs if job.settled_at is not None]
    if not ended:
        return None
    refused = {
        fingerprint
        for attempt in record.attempts
        for check in attempt.checks
        if check.hard
        for fingerprint in check.refused
    }
    return Saved(
        stopped=len(refused - {job.fingerprint for job in record.jobs}),
        job_node_h=math.fsum(job.charged_node_h for job in ended) / len(ended),
        cost_node_h=record.state.verifier_node_h,
    )


def _verifiers(pairs: Iterable[PairRow]) -> Iterator[VerifierCount]:
    by_name: defaultdict[str, list[PairRow]] = defaultdict(list)
    for pair in pairs:
        by_name[pair.verifier].append(pair)
    for name, found in by_name.items():
        counts = Counter((pair.passed, pair.good) for pair in found)
        yield VerifierCount(
            name=name,
            passed_good=counts[True, True],
            passed_bad=counts[True, False],
            passed_unknown=counts[True, None],
            refused_good=counts[False, True],
            refused_bad=counts[False, False],
            refused_unknown=counts[False, None],
            ranks=tuple(_ranks(found)),
        )


def _ranks(pairs: Iterable[PairRow]) -> Iterator[Rank]:
    measured: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
    for pair in pairs:
        for name, value in pair.values.items():
            if (cheap := number(pair.observables.get(name))) is not None:
                measured[name].append((cheap, value))
    for name, both in measured.items():
        yield Rank(name, len(both), spearman(both))


def number(value: object) -> float | None:
    """Return a finite number as it is, and `None` for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def _warnings(
    ending: Ending,
    verifiers: Iterable[VerifierCount],
    reasks: Mapping[str, int],
    slots: SlotUse,
) -> Iterator[str]:
    if ending.how == "failed":
        yield f"Failures ended the run: {ending.reason}"
    for verifier in verifiers:
        for rank in verifier.ranks:
            if rank.poor:
                yield (
                    f"Verifier {verifier.name!r} does not rank {rank.observable} as the jobs do: "
                    f"Spearman {rank.spearman:.2f} over {rank.pairs} pairs, below {POOR_RANK}. "
                    "Node-hours are being spent blind."
                )
    repeated, after = reasks.get("repeated", 0), sum(reasks.values())
    if repeated >= MANY_REPEATS and repeated > after / 4:
        yield (
            f"{repeated} of {after} re-asks brought the same value again. "
            "Raise producer.temperature_step."
        )
    if ending.how != "open" and slots.busy_share is not None and slots.busy_share < BUSY:
        yield f"The slots were busy only {slots.busy_share:.0%} of the time."
