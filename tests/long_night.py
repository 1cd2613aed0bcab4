"""A run of very many attempts, made in seconds: one made-up night over and over."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from batchgate.collector import collector_at_rest
from batchgate.review.record import RunRecord
from batchgate.review.report import Findings
from batchgate.review.rows import DecisionRow, FailureRow, JobRow
from tests.synthetic_run import findings, night

NIGHT = 2000
"""Decisions of the night that is repeated: so many that packing cannot see it is."""
FIGURES = 90
"""Decisions of the night that lends its figures."""


def long_findings(attempts: int) -> Findings:
    """Return what a report is made of, for a run of at least so many attempts.

    The record is the long run's. Figures, hours, report card and leads are those of a short night:
    their room on the page does not grow with a run.
    """
    with collector_at_rest():
        record = RunRecord.of(night(decisions=NIGHT, slots=8, everything=True))
        turns = -(-attempts // sum(1 for _ in record.attempts))
        found = findings(night(decisions=FIGURES, slots=8, everything=True))
        return replace(found, record=repeated(record, turns))


def repeated(record: RunRecord, turns: int) -> RunRecord:
    """Return a run that is another one so many times over, one after the other.

    Decisions are counted on, and jobs of later turns are named after the first turn's. One runner
    lives through it all; what waits for a person is the first turn's.
    """
    first, last = record.lives[0], record.lives[-1]
    length_s = last.ended_at - first.started_at
    each = [_Turn(record, number, length_s) for number in range(turns)]
    end_at = first.started_at + turns * length_s
    return replace(
        record,
        state=replace(record.state, updated_at=end_at),
        events=record.events * turns,
        decisions=tuple(row for turn in each for row in turn.decisions()),
        jobs=tuple(row for turn in each for row in turn.jobs()),
        pairs=record.pairs * turns,
        failures=tuple(row for turn in each for row in turn.failures()),
        lives=(replace(last, number=1, started_at=first.started_at, ended_at=end_at),),
    )


@dataclass(frozen=True)
class _Turn:
    """A night as one of many: its rows with later numbers and instants."""

    record: RunRecord
    number: int
    length_s: float

    def decisions(self) -> Iterator[DecisionRow]:
        for row in self.record.decisions:
            number = self._decision(row.number)
            attempts = tuple(
                replace(
                    attempt,
                    decision=number,
                    started_at=self._at(attempt.started_at),
                    ended_at=self._at(attempt.ended_at),
                )
                for attempt in row.attempts
            )
            yield replace(
                row,
                number=number,
                opened_at=self._at(row.opened_at),
                closed_at=None if row.closed_at is None else self._at(row.closed_at),
                attempts=attempts,
            )

    def jobs(self) -> Iterator[JobRow]:
        for row in self.record.jobs:
            yield replace(
                row,
                job=f"{row.job}-{self.number}" if self.number else row.job,
                decision=self._decision(row.decision),
                planned_at=self._at(row.planned_at),
                started_at=self._at(row.started_at) if row.started_at else 0.0,
                ended_at=self._at(row.ended_at) if row.ended_at else 0.0,
                settled_at=None if row.settled_at is None else self._at(row.settled_at),
            )

    def failures(self) -> Iterator[FailureRow]:
        for row in self.record.failures:
            decision = None if row.decision is None else self._decision(row.decision)
            yield replace(row, at=self._at(row.at), decision=decision)

    def _decision(self, number: int) -> int:
        return number + self.number * len(self.record.decisions)

    def _at(self, instant: float) -> float:
        return instant + self.number * self.length_s
