"""The table of attempts: its lines, as HTML rows and as packed data for the page's script.

The page itself holds the first lines as rows, so that they are there without a script and in
print. The script takes all lines from the packed data: columns of one JSON object, compressed.
Both are made from the same `Line`.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from ...events import CheckJudged, Plain
from ...state import decision_name
from .. import phrases, text
from ..record import RunRecord
from ..rows import (
    AttemptRow,
    DecisionRow,
    HeldRow,
    JobRow,
    QuestionRow,
    candidates_of,
    fingerprint_of,
)
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
        source: `model`, `surrogate` or `person`.
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
        self._audits: defaultdict[int, list[JobRow]] = defaultdict(list)
        self._held: defaultdict[int, list[HeldRow]] = defaultdict(list)
        self._questions: defaultdict[int, list[QuestionRow]] = defaultdict(list)
        for job in record.jobs:
            (self._audits if job.audited else self._jobs)[job.decision].append(job)
        for held in record.held:
            self._held[held.decision].append(held)
        for question in record.questions:
            self._questions[question.decision].append(question)
        self._waiting = {q.what for q in record.questions if q.answered_at is None}

    def decision(self, row: DecisionRow) -> Iterator[Line]:
        """Yield a line for each attempt, and one for what was taken without an attempt."""
        for attempt in row.attempts:
            yield self._attempt(row, attempt)
        led = any(attempt.outcome == "accepted" for attempt in row.attempts)
        if not row.attempts or (not led and (row.candidates or self._questions[row.number])):
            yield self._taken(row)

    def _attempt(self, decision: DecisionRow, attempt: AttemptRow) -> Line:
        accepted = attempt.outcome == "accepted"
        led = _Led(self._jobs[decision.number], self._held[decision.number])
        if not accepted:
            led = _Led(self._audited(decision, attempt), [])
        details = [*_attempt_details(attempt), *self._led_told(led)]
        if accepted:
            details += self._questions_told(decision)
        return Line(
            id=f"{attempt.decision}.{attempt.number}",
            decision=attempt.decision,
            attempt=attempt.number,
            source="model",
            proposal=text.clipped(_proposal(attempt.sampled(attempt.sample)), self._cell),
            checks=tuple(self._checks(attempt)),
            rejected_by=attempt.rejected_by,
            verdict=attempt.outcome,
            disposition=self._disposition(decision),
            result=self._result(led),
            value=self._value(led),
            details=self._told(details),
        )

    def _audited(self, decision: DecisionRow, attempt: AttemptRow) -> list[JobRow]:
        """Return the jobs that ran candidates of a rejected attempt to learn from them."""
        audits = self._audits[decision.number]
        if not audits:
            return []
        assert self._record.spec is not None
        space, samples = self._record.spec.space, (attempt.proposal, *attempt.others)
        mine = {fingerprint_of(space, one) for each in samples for one in candidates_of(each)}
        return [job for job in audits if job.fingerprint in mine]

    def _taken(self, decision: DecisionRow) -> Line:
        led = _Led(self._jobs[decision.number], self._held[decision.number])
        candidates = [one.candidate for one in decision.candidates if not one.audit_probability]
        details = [("Opened", text.instant(decision.opened_at)), *_candidates(candidates)]
        if decision.cause:
            details.append(("Cause", decision.cause))
        if decision.batch is not None:
            details.append(("Batch of the surrogate", str(decision.batch)))
        details += [*self._questions_told(decision), *self._led_told(led)]
        return Line(
            id=str(decision.number),
            decision=decision.number,
            attempt=0,
            source=self._source(decision),
            proposal=text.clipped(_proposal({"candidates": candidates}), self._cell),
            checks=(),
            rejected_by=(),
            verdict="taken" if candidates else self._disposition(decision).partition(" (")[0],
            disposition=self._disposition(decision),
            result=self._result(led),
            value=self._value(led),
            details=self._told(details),
        )

    def _source(self, decision: DecisionRow) -> str:
        if decision.source == "surrogate" or decision.disposition == "fallback":
            return "surrogate"
        return "person" if self._questions[decision.number] else "model"

    def _disposition(self, decision: DecisionRow) -> str:
        if decision_name(decision.number) in self._waiting:
            return "parked"
        cause = f" ({text.plain_word(decision.cause)})" if decision.cause else ""
        return f"{decision.disposition or 'open'}{cause}"

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

    def _questions_told(self, decision: DecisionRow) -> Iterator[tuple[str, str]]:
        for question in self._questions[decision.number]:
            asked = f"parked {text.instant(question.asked_at)}; {phrases.answer(question)}"
            yield f"Person, {question.what}", "; ".join([asked, *question.reasons])

    def _led_told(self, led: _Led) -> Iterator[tuple[str, str]]:
        for job in led.jobs:
            yield f"{'Audit' if job.audited else 'Job'} {job.job}", _job(job)
        for held in led.held:
            yield f"Held ({held.cause})", held.reason

    def _value(self, led: _Led) -> float | None:
        assert self._record.spec is not None  # no decision is opened before the run has started
        name, minimise = self._record.spec.objective
        found = [job.values[name] for job in led.jobs if job.feasible and job.values]
        return (min if minimise else max)(found, default=None)

    def _result(self, led: _Led) -> str:
        told = Counter(map(self._outcome, led.jobs)) + Counter(f"held: {h.cause}" for h in led.held)
        if told.total() == 1:
            outcome = text.plain_word(next(iter(told)))
        else:
            outcome = text.words(told) if told else ""
        value = self._value(led)
        return outcome if value is None else f"{value:.6g} ({outcome})"

    def _outcome(self, job: JobRow) -> str:
        outcome = "parked" if job.job in self._waiting else job.outcome
        return f"audit: {text.plain_word(outcome)}" if job.audited else outcome


@dataclass(frozen=True, slots=True)
class _Led:
    """What a line led to: jobs, and candidates that were let through and not launched."""

    jobs: Sequence[JobRow]
    held: Sequence[HeldRow]


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
    for number, other in enumerate((attempt.proposal, *attempt.others), start=1):
        if attempt.others:
            accepted = attempt.outcome == "accepted" and number == attempt.sample
            yield f"Sample {number}{', accepted' if accepted else ''}", _proposal(other)
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
    if job.rerun:
        told.append(f"with changed settings, after {job.rerun} rejected result(s)")
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
