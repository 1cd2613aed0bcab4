"""The table of attempts: its lines, as HTML rows and as packed data for the page's script.

The page itself holds the first lines as rows, so that they are there without a script and in
print. The script takes all lines from the packed data: columns of one JSON object, compressed.
Both are made from the same `Line`.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...events import CheckJudged, Plain
from .. import text
from ..record import RunRecord
from ..rows import AttemptRow, DecisionRow, HeldRow, JobRow
from .html import Markup, tag

MAX_ROWS = 2000
"""Lines that the page holds as rows."""
CELL = 160
"""Longest text of a cell, in characters."""
DETAIL = 4000
"""Longest text of a detail."""
ROOM = 1_000_000
"""Characters that one text of every line may take together: 10,000 lines stay below 3 MB."""

COLUMNS = ("Attempt", "Proposal", "Checks and reasons", "Verdict", "Decision", "Result")
_GLYPHS = {"pass": "✓", "fail": "✗", "soft": "≈"}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: an attempt, or what a decision took without one.

    Attributes:
        id: `12.1` for the first attempt of decision 12, `12` for what it took instead.
        decision: Number of the decision.
        attempt: Number of the attempt; 0 for none.
        source: `model` or `surrogate`.
        proposal: The proposal on one line.
        checks: Name, `pass`, `fail` or `soft` (failed, without gating), and reasons of each.
        rejected_by: Checks that rejected it, or the stage that did.
        verdict: What became of it.
        disposition: How its decision ended.
        result: What became of the jobs it led to.
        value: Best objective value of these, to sort by.
        details: Label and text of everything else.
    """

    id: str
    decision: int
    attempt: int
    source: str
    proposal: str
    checks: tuple[tuple[str, str, str], ...]
    rejected_by: tuple[str, ...]
    verdict: str
    disposition: str
    result: str
    value: float | None
    details: tuple[tuple[str, str], ...]


def lines(record: RunRecord) -> list[Line]:
    """Return the lines of a run's table, decision by decision."""
    count = sum(len(decision.attempts) + 1 for decision in record.decisions)
    write = _Writer(record, room=max(50, ROOM // max(count, 1)))
    return [line for decision in record.decisions for line in write.decision(decision)]


class _Writer:
    """Writes lines, with what else the record knows of a decision at hand."""

    def __init__(self, record: RunRecord, *, room: int) -> None:
        self._record = record
        self._cell, self._detail = min(room, CELL), min(room, DETAIL)
        self._jobs: defaultdict[int, list[JobRow]] = defaultdict(list)
        self._held: defaultdict[int, list[HeldRow]] = defaultdict(list)
        for job in record.jobs:
            self._jobs[job.decision].append(job)
        for held in record.held:
            self._held[held.decision].append(held)

    def decision(self, row: DecisionRow) -> Iterator[Line]:
        """Yield a line for each attempt, and one for what was taken without an attempt."""
        for attempt in row.attempts:
            yield self._attempt(row, attempt)
        if row.disposition == "fallback" or not row.attempts:
            yield self._taken(row)

    def _attempt(self, decision: DecisionRow, attempt: AttemptRow) -> Line:
        led = attempt.outcome == "accepted"
        return Line(
            id=f"{attempt.decision}.{attempt.number}",
            decision=attempt.decision,
            attempt=attempt.number,
            source="model",
            proposal=text.clipped(_proposal(attempt.sampled(attempt.sample)), self._cell),
            checks=tuple(self._checks(attempt)),
            rejected_by=attempt.rejected_by,
            verdict=attempt.outcome,
            disposition=_disposition(decision),
            result=self._result(decision.number) if led else "",
            value=self._value(decision.number) if led else None,
            details=self._told([*_attempt_details(attempt), *self._jobs_told(decision, led=led)]),
        )

    def _taken(self, decision: DecisionRow) -> Line:
        by_surrogate = decision.source == "surrogate" or decision.disposition == "fallback"
        candidates = [chosen.candidate for chosen in decision.candidates]
        details = [("Opened", text.instant(decision.opened_at)), *_candidates(candidates)]
        if decision.cause:
            details.append(("Cause", decision.cause))
        if decision.batch is not None:
            details.append(("Batch of the surrogate", str(decision.batch)))
        return Line(
            id=str(decision.number),
            decision=decision.number,
            attempt=0,
            source="surrogate" if by_surrogate else "model",
            proposal=text.clipped(_proposal({"candidates": candidates}), self._cell),
            checks=(),
            rejected_by=(),
            verdict="taken" if decision.candidates else decision.disposition or "open",
            disposition=_disposition(decision),
            result=self._result(decision.number),
            value=self._value(decision.number),
            details=self._told([*details, *self._jobs_told(decision, led=True)]),
        )

    def _checks(self, attempt: AttemptRow) -> Iterator[tuple[str, str, str]]:
        for check in (c for c in attempt.checks if c.sample == attempt.sample):
            mark = "pass" if check.passed else "fail" if check.hard else "soft"
            yield check.check, mark, text.clipped("; ".join(check.reasons), self._cell)
        if not attempt.checks:
            for stage in attempt.rejected_by:
                yield stage, "fail", text.clipped("; ".join(attempt.reasons), self._cell)

    def _told(self, details: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        return tuple(
            (text.clipped(label, self._cell), text.clipped(told, self._detail))
            for label, told in details
            if told
        )

    def _jobs_told(self, decision: DecisionRow, *, led: bool) -> Iterator[tuple[str, str]]:
        for job in self._jobs[decision.number] if led else ():
            yield f"Job {job.job}", _job(job)
        for held in self._held[decision.number] if led else ():
            yield f"Held ({held.cause})", held.reason

    def _value(self, decision: int) -> float | None:
        assert self._record.spec is not None  # no decision is opened before the run has started
        name, minimise = self._record.spec.objective
        found = [job.values[name] for job in self._jobs[decision] if job.feasible and job.values]
        return (min if minimise else max)(found, default=None)

    def _result(self, decision: int) -> str:
        jobs, held = self._jobs[decision], self._held[decision]
        told: dict[str, int] = {}
        for word in [*(job.outcome for job in jobs), *(f"held: {h.cause}" for h in held)]:
            told[word] = told.get(word, 0) + 1
        if len(jobs) + len(held) == 1:
            outcome = text.plain_word(next(iter(told)))
        else:
            outcome = text.words(told) if told else ""
        value = self._value(decision)
        return outcome if value is None else f"{value:.6g} ({outcome})"


def _disposition(decision: DecisionRow) -> str:
    cause = f" ({text.plain_word(decision.cause)})" if decision.cause else ""
    return f"{decision.disposition or 'open'}{cause}"


def _proposal(proposal: Plain) -> str:
    if isinstance(proposal, Mapping) and isinstance(proposal.get("candidates"), (list, tuple)):
        return " | ".join(map(text.compact, proposal["candidates"]))
    return "" if proposal is None else text.scalar(proposal)


def _candidates(candidates: Sequence[Plain]) -> list[tuple[str, str]]:
    if len(candidates) == 1:
        return [("Candidate", text.compact(candidates[0]))]
    return [(f"Candidate {i}", text.compact(c)) for i, c in enumerate(candidates, start=1)]


def _attempt_details(attempt: AttemptRow) -> Iterator[tuple[str, str]]:
    yield from _candidates(attempt.candidates)
    if isinstance(attempt.proposal, Mapping):
        for name, value in attempt.proposal.items():
            if name != "candidates":
                yield name, text.scalar(value)
    elif attempt.proposal is not None:
        yield "Answer", text.scalar(attempt.proposal)
    yield "Asked", f"{text.instant(attempt.started_at)}, answered in {text.span(attempt.answer_s)}"
    if attempt.rejected_by and not attempt.checks:
        yield f"Stage {attempt.rejected_by[0]}", "; ".join(attempt.reasons)
    for number, other in enumerate(attempt.others, start=2):
        yield f"Sample {number}", _proposal(other)
    for check in attempt.checks:
        sample = f", sample {check.sample}" if attempt.others else ""
        kind = "Verifier" if check.verifier else "Check"
        yield f"{kind} {check.check}{sample}", _check_told(check)
    if attempt.model:
        yield "Model", attempt.model
    if attempt.temperature is not None:
        yield "Temperature", f"{attempt.temperature:g}"
    if attempt.output_tokens:
        yield "Tokens", f"{attempt.input_tokens} in, {attempt.output_tokens} out"
    if attempt.samples_total > 1:
        yield "Samples", f"{attempt.samples_valid} of {attempt.samples_total} valid"
    yield "Response", attempt.response_id
    yield "Trace", attempt.trace_id


def _check_told(check: CheckJudged) -> str:
    objected = "rejected" if check.hard else "objected, without gating,"
    told = f"{'passed' if check.passed else objected} in {text.span(check.elapsed_s)}"
    if check.score is not None:
        told += f", score {check.score:.6g}"
    told += "".join(f"; {reason}" for reason in check.reasons)
    measured = " | ".join(map(text.compact, check.observables))
    return f"{told}; measured {measured}" if measured else told


def _job(job: JobRow) -> str:
    told = [text.plain_word(job.outcome)]
    if job.values is not None:
        told.append(text.compact(job.values))
    if job.started_at:
        told.append(f"ran {text.span(job.ended_at - job.started_at)} on {job.host}")
    if job.charged_node_h:
        told.append(f"charged {text.hours(job.charged_node_h)} node-hours")
    if job.attempt > 1:
        told.append(f"launch {job.attempt} of this candidate")
    if job.adopted:
        told.append("its result was found after its runner had died")
    told += [job.error] if job.error else []
    return "; ".join([*told, *job.reasons])


def html_table(found: Sequence[Line]) -> Markup:
    """Return the first lines as a table, which the page's script may take over."""
    head = [tag("th", name, scope="col") for name in COLUMNS]
    return tag(
        "table",
        tag("thead", tag("tr", head)),
        tag("tbody", [_row(line) for line in found[:MAX_ROWS]]),
        id="attempts-table",
    )


def _row(line: Line) -> Markup:
    checks = [tag("span", f"{_GLYPHS[mark]} {name}", class_=mark) for name, mark, _ in line.checks]
    why = [tag("div", reasons, class_="why") for _, _, reasons in line.checks if reasons]
    return tag(
        "tr",
        tag("th", f"D{line.id}", tag("span", line.source, class_=line.source), scope="row"),
        tag("td", line.proposal, class_="proposal"),
        tag("td", checks, why),
        tag("td", line.verdict, class_=f"verdict {line.verdict}"),
        tag("td", line.disposition),
        tag("td", line.result),
    )


def packed(found: Sequence[Line]) -> str:
    """Return all lines as base64 of compressed JSON: an object of columns of equal length.

    Base64 has no character that could end the element which holds it.
    """
    names = [field.name for field in fields(Line)]
    columns: dict[str, list[Any]] = {name: [] for name in names}
    for line in found:
        for name in names:
            columns[name].append(getattr(line, name))
    raw = json.dumps(columns, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(raw.encode(), mtime=0)).decode()
