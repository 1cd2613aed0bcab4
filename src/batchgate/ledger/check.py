"""Checks a run's record as a whole: the chain, its events, and the jobs that they allowed.

What is wrong is a `Finding`; nothing in a run's directory makes this raise. It is evidence
against accidents and edits, and none against an owner who writes the whole record anew.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import LedgerCorruptError, LedgerError
from ..job import End
from .reader import Reader, segment_name
from .rules import Job, Kind, Rules

_GATE = "gate.json"
_GATE_BYTES = 1 << 16
_PLACE = ("segment", "seq", "hash")  # of the line that allowed the job


@dataclass(frozen=True, slots=True)
class Finding:
    """Something wrong in a run's record.

    Attributes:
        kind: What kind of thing.
        where: Line (`0001.jsonl:17`) or path.
        message: One sentence for people.
    """

    kind: Kind
    where: str
    message: str


def check_run(run_dir: Path) -> list[Finding]:
    """Check a run's `ledger` and the `gate.json` of every folder in its `jobs`.

    A run that is under way may be checked as well.

    Returns:
        What is wrong; empty for an intact run. After a `chain` finding the rest of the ledger is
        not read, and jobs that only the rest can explain are left out.
    """
    # Listed before the ledger is read: a folder is made after the line that allows it.
    jobs = _listed(run_dir / "jobs")
    rules = Rules()
    findings = list(_check_ledger(run_dir / "ledger", rules))
    intact = all(finding.kind != "chain" for finding in findings)
    if isinstance(jobs, OSError):
        findings.append(Finding("gate", "jobs", f"the folder cannot be read: {jobs.strerror}"))
        return findings
    for folder in jobs:
        job = rules.jobs.get(folder.name)
        problem = _gate_problem(folder / _GATE, job) if job or intact else ""
        if problem:
            findings.append(Finding("gate", f"jobs/{folder.name}", problem))
    return findings


def _check_ledger(folder: Path, rules: Rules) -> Iterator[Finding]:
    reader = Reader(folder)
    try:
        for entry in reader:
            place = (segment_name(reader.segment), entry.seq, reader.hash)
            for kind, message in rules.judge(entry.event, place):
                yield Finding(kind, reader.where, message)
    except LedgerCorruptError as exc:
        yield Finding("chain", f"{Path(exc.path).name}:{exc.line_number}", str(exc.args[0]))
    except LedgerError as exc:
        yield Finding("chain", folder.name, str(exc))
    else:
        if reader.segment == 0:
            yield Finding("chain", folder.name, "there is no segment")


def _listed(jobs: Path) -> list[Path] | OSError:
    try:
        return sorted(path for path in jobs.iterdir() if path.is_dir() and not path.is_symlink())
    except FileNotFoundError:
        return []
    except OSError as exc:
        return exc


def _gate_problem(path: Path, job: Job | None) -> str:
    """What is wrong with a job's `gate.json`; `""` when nothing is."""
    try:
        gate = json.loads(_read_small(path))
    except FileNotFoundError:
        return _missing_gate(job)
    except (OSError, ValueError, RecursionError) as exc:
        return f"gate.json cannot be read: {exc}"
    if job is None:
        return (
            "gate.json names a line that the ledger does not hold: lines were cut off its end, or "
            "the job is not of this run"
        )
    place = tuple(gate.get(key) for key in _PLACE) if isinstance(gate, dict) else ()
    if place != job.place:
        return f"gate.json does not name the job's line: {_PLACE} must be {job.place}"
    return ""


def _missing_gate(job: Job | None) -> str:
    if job is None:
        return "no line of the ledger allows this job"
    # Of a job whose runner died nobody knows whether it was launched.
    unsure = {End.ORPHANED, End.UNKNOWN}
    if job.ended and job.ended.started_at > 0 and job.ended.end not in unsure:
        return "the job ran and gate.json is missing"
    return ""  # its runner died between the plan and the launch, or is launching it now


def _read_small(path: Path) -> bytes:
    # The job could write here: no link is followed, no pipe waited for, nothing huge read.
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode) or status.st_size > _GATE_BYTES:
            raise ValueError(f"no regular file of at most {_GATE_BYTES} bytes")
        return os.read(fd, _GATE_BYTES)
    finally:
        os.close(fd)
