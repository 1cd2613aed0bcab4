"""From a run's record to the lines of its table of attempts.

Every attempt has a line, however many there are; what gives way is the length of their texts, so
that the page stays small enough to be sent around and to open at once.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...state import decision_name
from .. import phrases, text
from ..proposals import candidates_of, fingerprint_of
from ..record import RunRecord
from ..rows import (
    AttemptRow,
    DecisionRow,
    HeldRow,
    JobRow,
    QuestionRow,
)
from . import details, packing
from .table import Line


@dataclass(frozen=True, slots=True)
class Room:
    """How long texts may be.

    Attributes:
        cell: Longest text of a cell, in characters.
        detail: Longest text of a detail; 0 for no details.
        ids: Whether ids of answers and traces are told, which nothing can compress.
    """

    cell: int
    detail: int
    ids: bool


ROOMS = (
    Room(160, 4000, ids=True),
    Room(160, 400, ids=True),
    Room(120, 120, ids=False),
    Room(60, 60, ids=False),
    Room(40, 40, ids=False),
    Room(120, 0, ids=False),
    Room(32, 0, ids=False),
)
"""Ever less room, as lines become more."""
BUDGET = 3_800_000
"""Characters that packed lines may take: with charts and rows the page stays below 6 MB."""
SAMPLES, STRETCH = 6, 300
"""Stretches of a run that are packed to see what fits, and decisions in each."""


def room_for(record: RunRecord, *, budget: int = BUDGET) -> Room:
    """Return the most room for texts with which the lines of a run fit into the page."""
    sample = list(_sample(record.decisions))
    write = _Writer(record)
    for room in ROOMS[:-1]:
        found = write.all(sample, room)
        size = len(packing.packed(found)) + len(packing.packed_details(found))
        if size * len(record.decisions) <= budget * len(sample):
            return room
    return ROOMS[-1]


def _sample(decisions: Sequence[DecisionRow]) -> Iterator[DecisionRow]:
    """Yield decisions from all over a run, in stretches: neighbours are packed together."""
    step = max(len(decisions) // SAMPLES, STRETCH)
    for start in range(0, len(decisions), step):
        yield from decisions[start : start + STRETCH]


def lines(record: RunRecord, *, room: Room | None = None) -> list[Line]:
    """Return the lines of a run's table, decision by decision; with all room by default."""
    return _Writer(record).all(record.decisions, room or ROOMS[0])


class _Writer:
    """Writes lines, with what else the record knows of a decision at hand."""

    def __init__(self, record: RunRecord) -> None:
        self._record = record
        self._room = ROOMS[0]
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

    def all(self, decisions: Iterable[DecisionRow], room: Room) -> list[Line]:
        """Return the lines of decisions, their texts cut to the room that there is."""
        self._room = room
        return [line for decision in decisions for line in self._decision(decision)]

    def _decision(self, row: DecisionRow) -> Iterator[Line]:
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
        value = self._value(led)
        return Line(
            id=f"{attempt.decision}.{attempt.number}",
            decision=attempt.decision,
            attempt=attempt.number,
            source="model",
            proposal=text.clipped(
                details.proposal_told(attempt.sampled(attempt.sample)), self._room.cell
            ),
            checks=tuple(self._checks(attempt)),
            rejected_by=attempt.rejected_by,
            verdict=attempt.outcome,
            disposition=self._disposition(decision),
            result=self._result(led, value),
            value=value,
            details=self._told(self._attempt_told(decision, attempt, led)),
        )

    def _attempt_told(
        self, decision: DecisionRow, attempt: AttemptRow, led: _Led
    ) -> Iterator[tuple[str, str]]:
        yield from details.attempt_told(attempt)
        yield from self._led_told(led)
        if attempt.outcome == "accepted":
            yield from self._questions_told(decision)

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
        value = self._value(led)
        return Line(
            id=str(decision.number),
            decision=decision.number,
            attempt=0,
            source=self._source(decision),
            proposal=text.clipped(
                details.proposal_told({"candidates": candidates}), self._room.cell
            ),
            checks=(),
            rejected_by=(),
            verdict="taken" if candidates else self._disposition(decision).partition(" (")[0],
            disposition=self._disposition(decision),
            result=self._result(led, value),
            value=value,
            details=self._told(self._taken_told(decision, candidates, led)),
        )

    def _taken_told(
        self, decision: DecisionRow, candidates: Sequence[Mapping[str, Any]], led: _Led
    ) -> Iterator[tuple[str, str]]:
        yield "Opened", text.instant(decision.opened_at)
        yield from details.candidates_told(candidates)
        if decision.cause:
            yield "Cause", decision.cause
        if decision.batch is not None:
            yield "Batch of the surrogate", str(decision.batch)
        yield from self._questions_told(decision)
        yield from self._led_told(led)

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
        every = attempt.outcome == "rejected"  # each of its samples was
        for check in (c for c in attempt.checks if every or c.sample == attempt.sample):
            mark = "pass" if check.passed else "fail" if check.hard else "soft"
            yield check.check, mark, text.clipped("; ".join(check.reasons), self._room.cell)
        if not attempt.checks:
            for stage in attempt.rejected_by:
                yield stage, "fail", text.clipped("; ".join(attempt.reasons), self._room.cell)

    def _told(self, found: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
        room = self._room
        if not room.detail:  # then nothing is written to be thrown away
            return ()
        return tuple(
            (text.clipped(label, room.cell), text.clipped(told, room.detail))
            for label, told in found
            if told and (room.ids or label not in details.IDS)
        )

    def _questions_told(self, decision: DecisionRow) -> Iterator[tuple[str, str]]:
        for question in self._questions[decision.number]:
            asked = f"parked {text.instant(question.asked_at)}; {phrases.answer(question)}"
            yield f"Person, {question.what}", "; ".join([asked, *question.reasons])

    def _led_told(self, led: _Led) -> Iterator[tuple[str, str]]:
        for job in led.jobs:
            yield f"{'Audit' if job.audited else 'Job'} {job.job}", details.job_told(job)
        for held in led.held:
            yield f"Held ({held.cause})", held.reason

    def _value(self, led: _Led) -> float | None:
        assert self._record.spec is not None  # no decision is opened before the run has started
        name, minimise = self._record.spec.objective
        found = [job.values[name] for job in led.jobs if job.feasible and job.values]
        return (min if minimise else max)(found, default=None)

    def _result(self, led: _Led, value: float | None) -> str:
        told = [*map(self._outcome, led.jobs), *(f"held: {held.cause}" for held in led.held)]
        if len(told) > 1:
            outcome = text.words(Counter(told))
        else:  # of most lines, and counting takes longer than all the rest
            outcome = text.plain_word(told[0]) if told else ""
        return outcome if value is None else f"{value:.6g} ({outcome})"

    def _outcome(self, job: JobRow) -> str:
        outcome = "parked" if job.job in self._waiting else job.outcome
        return f"audit: {text.plain_word(outcome)}" if job.audited else outcome


@dataclass(frozen=True, slots=True)
class _Led:
    """What a line led to: jobs, and candidates that were let through and not launched."""

    jobs: Sequence[JobRow]
    held: Sequence[HeldRow]
