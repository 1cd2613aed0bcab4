"""One decision or attempt of a run, found without reading the rest.

Its lines are found by their bytes, as fast as a disk gives them, and only these are parsed. None
is proven to follow the one before (`batchgate verify` does that).
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from ..errors import ConfigError, LedgerCorruptError, LedgerError
from ..events import (
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    DecisionMade,
    DecisionOpened,
    Entry,
    Event,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultRejected,
    RunResumed,
    RunStarted,
    SegmentOpened,
)
from ..ledger import segments_of
from ..ledger.line import decode, why
from .record import RunRecord
from .rows import AttemptRow, DecisionRow, JobRow

BLOCK = 1 << 22
"""Bytes that are looked at together."""

_NAME = re.compile(r"D?([1-9][0-9]{0,8})(?:\.([1-9][0-9]{0,5}))?")
_AROUND = SegmentOpened | RunStarted | RunResumed
_OF_DECISION = (
    DecisionOpened
    | AttemptStarted
    | ProposalMade
    | ProposalRejected
    | CheckJudged
    | FailureRecorded
    | DecisionMade
    | CandidateHeld
    | JobPlanned
)
_OF_JOB = JobEnded | ResultAccepted | ResultRejected


def find(
    run_dir: str | Path, name: str
) -> tuple[DecisionRow, tuple[AttemptRow, ...], tuple[JobRow, ...]]:
    """Find a decision or one of its attempts.

    Args:
        run_dir: The run's directory.
        name: `D17` for a decision, `D17.2` for its second attempt.

    Returns:
        The decision, the attempts that were asked for, and the jobs that it led to.

    Raises:
        ConfigError: The name is none, or there is no such decision or attempt.
        LedgerError: There is no ledger, or it cannot be read.
    """
    match = _NAME.fullmatch(name)
    if match is None:
        raise ConfigError(f"{name!r} names no decision; write D17, or D17.2 for its second attempt")
    number, wanted = int(match[1]), int(match[2] or 0)
    try:
        record = RunRecord.of(_about(run_dir, number))
    except (ValidationError, LookupError) as exc:
        raise LedgerError(f"D{number} cannot be read: {exc}; try `batchgate verify`") from exc
    decision = next(iter(record.decisions), None)
    if decision is None:
        raise ConfigError(f"the run has no decision D{number}")
    attempts = [a for a in decision.attempts if wanted in {0, a.number}]
    if wanted and not attempts:
        raise ConfigError(f"decision D{number} has {len(decision.attempts)} attempts")
    return decision, tuple(attempts), record.jobs


@dataclass(frozen=True, slots=True)
class _Block:
    """Whole lines of a segment that lie together.

    Attributes:
        path: The segment.
        start: Where they begin in it, in bytes.
        data: Their bytes.
    """

    path: Path
    start: int
    data: bytes

    def entries(self, text: bytes, *texts: bytes) -> Iterator[tuple[int, Entry]]:
        """Yield what the lines say that hold a text, and where each begins in the block.

        Args:
            text: What is looked for.
            texts: Longer ones, of which a line holds one, too; by default any line will do.

        Raises:
            LedgerCorruptError: One of them is no event.
        """
        at = self.data.find(text)
        while at >= 0:
            begin, end = self.data.rfind(b"\n", 0, at) + 1, self.data.index(b"\n", at) + 1
            line = self.data[begin:end]
            if not texts or any(one in line for one in texts):
                yield begin, self._entry(begin, line)
            at = self.data.find(text, end)

    def _entry(self, begin: int, line: bytes) -> Entry:
        try:
            return decode(line)
        except (ValueError, RecursionError) as exc:
            with self.path.open("rb") as file:
                number = file.read(self.start + begin).count(b"\n") + 1
            message = f"the line is no event that this version knows: {why(exc)}"
            raise LedgerCorruptError(message, str(self.path), number) from exc


def _blocks(run_dir: str | Path) -> Iterator[_Block]:
    """Yield a ledger in blocks, oldest first, without half a line at the end of a segment.

    Read and not mapped into memory: when the file system fails, or another host cuts the file, a
    map ends the process with SIGBUS, and there would be nothing to tell.
    """
    for path in segments_of(run_dir):
        try:
            with path.open("rb") as file:
                start, rest = 0, b""
                while data := file.read(BLOCK):
                    data = rest + data
                    whole = data.rfind(b"\n") + 1
                    yield _Block(path, start, data[:whole])
                    start, rest = start + whole, data[whole:]
        except OSError as exc:
            raise LedgerError(f"{path} cannot be read: {exc}") from exc


def _about(run_dir: str | Path, number: int) -> Iterator[Entry]:
    """Yield the events of a decision and of its jobs, and those that open lives."""
    # Within a text of JSON a quote is escaped, so a stranger's words are never found; a key of a
    # stranger's can be, which is why the event is asked, too.
    decision = b'"decision":%d,' % number
    jobs: set[str] = set()
    for block in _blocks(run_dir):
        found = _kept(block.entries(b'"type":"run_'), _opens)
        if block.start == 0:
            found |= _kept(block.entries(b'"type":"segment_opened"'), _opens)
        found |= _kept(
            block.entries(decision),
            lambda event: isinstance(event, _OF_DECISION) and event.decision == number,
        )
        plans = (entry.event for entry in found.values())
        jobs.update(plan.job for plan in plans if isinstance(plan, JobPlanned))
        if jobs:
            found |= _kept(
                block.entries(*_naming(jobs)),
                lambda event: isinstance(event, _OF_JOB) and event.job in jobs,
            )
        yield from (found[begin] for begin in sorted(found))


def _naming(jobs: Iterable[str]) -> tuple[bytes, ...]:
    """Return what lines hold that name one of some jobs, first how all of these begin."""
    texts = [f'"job":{json.dumps(job)}' for job in jobs]
    alike = os.path.commonprefix(texts)  # noqa: RUF071 - characters are what is meant
    return tuple(text.encode() for text in (alike, *texts))


def _kept(
    entries: Iterable[tuple[int, Entry]], wanted: Callable[[Event], bool]
) -> dict[int, Entry]:
    return {begin: entry for begin, entry in entries if wanted(entry.event)}


def _opens(event: Event) -> bool:
    return isinstance(event, _AROUND)
