"""What must be true of a run whose runners were killed: nothing lost, nothing launched twice.

The ledger is not asked to speak for itself alone: the jobs keep a log of their own outside the
run's directory, result files lie in the jobs' folders, and each life left what it knew.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from batchgate.events import (
    AttemptStarted,
    CandidateHeld,
    DecisionMade,
    DecisionOpened,
    Entry,
    JobEnded,
    JobPlanned,
    ResultAccepted,
    ResultRejected,
)
from batchgate.job import JobState
from batchgate.ledger import Reader, check_run
from batchgate.state import State

from .lives import Memo

EPSILON_NODE_H = 1e-9
"""Rounding of a sum of charges."""


@dataclass(frozen=True, slots=True)
class Place:
    """How far a ledger was written when a life had ended: lines, and the hash of the last."""

    entries: int
    hash: str

    @classmethod
    def of(cls, ledger: Path) -> Place:
        """Read how far it is."""
        if not ledger.exists():
            return cls(0, "")
        reader = Reader(ledger)
        for _ in reader:
            pass
        return cls(reader.seq, reader.hash)


@dataclass(slots=True)
class Audit:
    """What is wrong with a run.

    Attributes:
        lost: Results, decisions and lines that are gone.
        doubled: Candidates that were launched again though they had a result, or were running.
        wrong: Everything else.
    """

    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def findings(self) -> list[str]:
        """All of it."""
        return [*self.lost, *self.doubled, *self.wrong]


@dataclass(slots=True)
class Record:
    """A run's events, sorted as the audit asks for them."""

    entries: list[Entry]
    hashes: list[str]
    plans: dict[str, JobPlanned] = field(default_factory=dict)
    ends: dict[str, JobEnded] = field(default_factory=dict)
    judged: set[str] = field(default_factory=set)
    reruns: set[str] = field(default_factory=set)
    """Jobs whose result was rejected, and whose candidate was to run again."""

    @classmethod
    def of(cls, ledger: Path) -> Record:
        """Read a ledger."""
        reader, entries, hashes = Reader(ledger), [], []
        for entry in reader:
            entries.append(entry)
            hashes.append(reader.hash)
        record = cls(entries, hashes)
        for entry in entries:
            match entry.event:
                case JobPlanned() as planned:
                    record.plans[planned.job] = planned
                case JobEnded() as ended:
                    record.ends[ended.job] = ended
                case ResultAccepted() | ResultRejected() as judged:
                    record.judged.add(judged.job)
                    if isinstance(judged, ResultRejected) and judged.again:
                        record.reruns.add(judged.job)
                case _:
                    pass
        return record


def audit(
    run: Path, *, log: Path, attempts: int, places: Iterable[Place], memos: Iterable[Memo]
) -> Audit:
    """Audit a run that has come to its end.

    Args:
        run: The run's directory.
        log: Lines `begin JOB` and `end JOB`, written by the jobs themselves.
        attempts: Attempts that a decision may spend.
        places: How far the ledger was after each life.
        memos: What the lives knew.
    """
    record = Record.of(run / "ledger")
    marks = [line.split() for line in log.read_text().splitlines()] if log.exists() else []
    # One that said its last word can have been ended before its result was there.
    done = {
        job
        for mark, job in marks
        if mark == "end" and (run / "jobs" / job / "result.json").exists()
    }
    return Audit(
        lost=[
            *_lost_lines(record, places),
            *_lost_results(record, done),
            *_forgotten(record),
        ],
        doubled=[
            *_launched_again(record),
            *_begun_again(record, marks, done),
        ],
        wrong=[
            *(f"{f.where}: {f.message}" for f in check_run(run)),
            *(
                f"job {job} began and was never planned"
                for _, job in marks
                if job not in record.plans
            ),
            *_overshoot(record),
            *_overspent(record, attempts),
            *_other_states(record, memos),
        ],
    )


def _lost_lines(record: Record, places: Iterable[Place]) -> Iterator[str]:
    for place in places:
        if place.entries and record.hashes[place.entries - 1] != place.hash:
            yield f"line {place.entries} is not what it was when its life ended"


def _lost_results(record: Record, done: Iterable[str]) -> Iterator[str]:
    for job in done:
        end = record.ends.get(job)
        if end is None or end.state is not JobState.COMPLETED:
            yield f"job {job} left a result that is not counted: {end}"
        elif job not in record.judged:
            yield f"the result of job {job} was never judged"


def _forgotten(record: Record) -> Iterator[str]:
    """Yield what was begun or let through, and has no end."""
    opened, closed = set[int](), set[int]()
    chosen, held = set[str](), set[str]()
    for entry in record.entries:
        match entry.event:
            case DecisionOpened() as event:
                opened.add(event.decision)
            case DecisionMade() as event:
                closed.add(event.decision)
                chosen.update(c.fingerprint for c in event.candidates)
            case CandidateHeld() as event:
                held.add(event.fingerprint)
            case _:
                pass
    planned = {plan.fingerprint for plan in record.plans.values()}
    yield from (f"decision {number} was never closed" for number in opened - closed)
    yield from (f"candidate {f} was neither launched nor held" for f in chosen - planned - held)
    yield from (f"job {job} never ended" for job in record.plans.keys() - record.ends.keys())
    last = {plan.fingerprint: plan.job for plan in record.plans.values()}
    for fingerprint, job in last.items():
        again = job in record.reruns or (job in record.ends and record.ends[job].again)
        if again and fingerprint not in held:
            yield f"candidate {fingerprint} was to run again after {job} and was not"


def _launched_again(record: Record) -> Iterator[str]:
    completed: set[str] = set()
    running: set[str] = set()
    for entry in record.entries:
        match entry.event:
            case JobPlanned() as event:
                if event.fingerprint in completed | running:
                    yield f"job {event.job} runs a candidate that has a result or is running"
                running.add(event.fingerprint)
            case JobEnded() as event:
                fingerprint = record.plans[event.job].fingerprint
                running.discard(fingerprint)
                if event.state is JobState.COMPLETED:
                    completed.add(fingerprint)
            case ResultRejected(again=True) as event:
                completed.discard(event.fingerprint)
            case _:
                pass


def _begun_again(record: Record, marks: Iterable[list[str]], done: set[str]) -> Iterator[str]:
    """Yield what the jobs themselves say, whatever the ledger does."""
    begun: set[str] = set()
    finished: set[str] = set()
    for mark, job in marks:
        if job not in record.plans:
            continue  # told as wrong
        fingerprint = record.plans[job].fingerprint
        if mark == "end" and job in done - record.reruns:
            finished.add(fingerprint)
        if mark == "begin":
            if job in begun:
                yield f"job {job} was launched twice"
            if fingerprint in finished:
                yield f"job {job} was launched though its candidate had a result"
            begun.add(job)


def _overshoot(record: Record) -> Iterator[str]:
    """Yield where charged and reserved node-hours exceed the grant.

    A job whose runner was killed runs on without a walltime; what it then used more than was
    reserved could not be prevented, and is left out.
    """
    state, unheld = State(), 0.0
    for entry in record.entries:
        event = entry.event
        state.apply(event, at=entry.at)
        if isinstance(event, JobEnded) and event.adopted:
            reserved = record.plans[event.job].reserved_node_h
            unheld += max(0.0, event.charged_node_h - reserved)
        if state.spec is None:
            continue
        used = state.charged_node_h + state.reserved_node_h - unheld
        if used > state.granted_node_h + EPSILON_NODE_H:
            yield f"line {entry.seq}: {used} of {state.granted_node_h} node-hours"


def _overspent(record: Record, attempts: int) -> Iterator[str]:
    spent: Counter[int] = Counter()
    tried: defaultdict[int, list[int]] = defaultdict(list)
    for entry in record.entries:
        if isinstance(entry.event, AttemptStarted):
            spent[entry.event.decision] += 1
            tried[entry.event.decision].append(entry.event.attempt)
    for decision, count in spent.items():
        if count > attempts or tried[decision] != list(range(1, count + 1)):
            yield f"decision {decision} spent attempts {tried[decision]} of {attempts}"


def _other_states(record: Record, memos: Iterable[Memo]) -> Iterator[str]:
    """Yield where a runner knew something else than its ledger says."""
    for memo in memos:
        replayed = repr(State.of(record.entries[: memo.entries]))
        if replayed != memo.state:
            where = next(i for i, (a, b) in enumerate(zip(replayed, memo.state)) if a != b)  # noqa: B905 - the first difference
            near = slice(max(0, where - 60), where + 60)
            yield (
                f"after line {memo.entries} the runner knew …{memo.state[near]}… where its ledger "
                f"says …{replayed[near]}…"
            )


def load_memo(path: Path) -> Memo | None:
    """Read what a life left; `None` when it had nothing to tell."""
    return Memo(**json.loads(path.read_text())) if path.exists() else None
