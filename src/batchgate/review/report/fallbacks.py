"""The section about fallbacks: what the surrogate chose beside what it replaced."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from .. import text
from ..record import RunRecord
from ..rows import AttemptRow, DecisionRow, JobRow
from . import parts
from .html import Content, tag

MAX_FALLBACKS = 30
"""Fallbacks that are shown one by one."""
_CELL = 160


def fallbacks(record: RunRecord) -> Content:
    """Show each fallback beside the last proposal that was rejected before it."""
    replaced = [d for d in record.decisions if d.disposition == "fallback" and d.attempts]
    if not replaced:
        return parts.quiet("No rejected proposal was replaced by the surrogate.")
    jobs: defaultdict[int, list[JobRow]] = defaultdict(list)
    for job in record.jobs:
        if not job.audited:
            jobs[job.decision].append(job)
    rows = [_row(record, one, jobs[one.number]) for one in replaced[:MAX_FALLBACKS]]
    shown = parts.table(
        ("Decision", "last proposal", "why not", "fallback", "distance", "result"),
        rows,
        "What the surrogate took instead of the last proposal. Distance is the largest difference "
        "in any variable, as a share of its range.",
    )
    hidden = len(replaced) - MAX_FALLBACKS
    more = tag("a", f"{hidden} more are among the attempts.", href="#verdict=taken")
    return [shown, tag("p", more)] if hidden > 0 else shown


def _row(record: RunRecord, decision: DecisionRow, jobs: Sequence[JobRow]) -> list[Content]:
    # An attempt without a proposal (the model timed out, say) leaves nothing to compare with.
    last = next((a for a in reversed(decision.attempts) if a.candidates), decision.attempts[-1])
    taken = [chosen.candidate for chosen in decision.candidates if not chosen.audit_probability]
    return [
        parts.place(decision.number),
        tag("td", _shown(last.candidates), class_="proposal"),
        text.clipped(_why(decision, last), _CELL),
        tag("td", _shown(taken), class_="proposal"),
        parts.number(_distance(record, last, taken)),
        text.clipped(_result(record, jobs), _CELL),
    ]


def _shown(candidates: Sequence[Mapping[str, object]]) -> str:
    return text.clipped(" | ".join(map(text.compact, candidates)) or "none", _CELL)


def _why(decision: DecisionRow, last: AttemptRow) -> str:
    if not last.rejected_by:
        return text.plain_word(decision.cause)
    return f"{', '.join(dict.fromkeys(last.rejected_by))}: {'; '.join(last.reasons)}"


def _distance(record: RunRecord, last: AttemptRow, taken: Sequence[Mapping[str, object]]) -> str:
    assert record.spec is not None
    space = record.spec.space
    found = [
        space.distance(one, other)  # type: ignore[arg-type]
        for one in last.candidates
        if not any(space.problems(one))
        for other in taken
    ]
    return text.share(min(found, default=None))


def _result(record: RunRecord, jobs: Sequence[JobRow]) -> str:
    return ", ".join(_told(record, jobs)) or "never ran"


def _told(record: RunRecord, jobs: Sequence[JobRow]) -> Iterator[str]:
    assert record.spec is not None
    name, _ = record.spec.objective
    for job in jobs:
        outcome = text.plain_word(job.outcome)
        yield f"{name}={job.values[name]:.6g}, {outcome}" if job.values else outcome
