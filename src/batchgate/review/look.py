"""One decision or attempt of a run, found without reading the rest."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from pydantic import ValidationError

from ..errors import ConfigError, LedgerError
from ..events import EVENT, Entry
from .record import RunRecord
from .rows import AttemptRow, DecisionRow, JobRow
from .scan import Raw, scan

_NAME = re.compile(r"D?([1-9][0-9]{0,8})(?:\.([1-9][0-9]{0,5}))?")
_AROUND = {"segment_opened", "run_started", "run_resumed"}
_OF_DECISION = {
    "decision_opened",
    "attempt_started",
    "proposal_made",
    "proposal_rejected",
    "check_judged",
    "failure_recorded",
    "decision_made",
    "candidate_held",
    "job_planned",
}
_OF_JOB = {"job_ended", "result_accepted", "result_rejected"}


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
        record = RunRecord.of(map(_entry, _about(run_dir, number)))
    except (ValidationError, LookupError) as exc:
        raise LedgerError(f"D{number} cannot be read: {exc}; try `batchgate verify`") from exc
    decision = next(iter(record.decisions), None)
    if decision is None:
        raise ConfigError(f"the run has no decision D{number}")
    attempts = [a for a in decision.attempts if wanted in {0, a.number}]
    if wanted and not attempts:
        raise ConfigError(f"decision D{number} has {len(decision.attempts)} attempts")
    return decision, tuple(attempts), record.jobs


def _about(run_dir: str | Path, number: int) -> Iterator[Raw]:
    decision = b'"decision":%d,' % number
    jobs: set[str] = set()

    def may_belong(line: bytes) -> bool:
        if decision in line:
            return True
        # Events of jobs name the job and not the decision.
        if b'"job":"' in line:
            return any(b'"job":"%b"' % job.encode() in line for job in jobs)
        return b'"decision":' not in line

    for raw in scan(run_dir, {*_AROUND, *_OF_DECISION, *_OF_JOB}, sieve=may_belong):
        if raw["type"] in _OF_JOB:
            if raw["job"] in jobs:
                yield raw
        elif raw["type"] in _AROUND or raw["decision"] == number:
            if raw["type"] == "job_planned":
                jobs.add(raw["job"])
            yield raw


def _entry(raw: Raw) -> Entry:
    fields = {name: value for name, value in raw.items() if name not in {"seq", "at", "~"}}
    event = EVENT.validate_python(fields)
    return Entry(seq=raw["seq"], at_ns=round(raw["at"] * 1e9), event=event)
