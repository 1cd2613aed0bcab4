"""A run along its time: what happened in each stretch of it, and what broke or stopped when."""

from __future__ import annotations

import bisect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from .scan import Raw, scan

STRETCHES = 24
"""Stretches of time that a run is told in, at most."""

_LENGTHS_S = (1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 12 * 3600, 24 * 3600)
_MILESTONES = {
    "segment_opened",
    "run_started",
    "run_resumed",
    "run_suspended",
    "run_stopped",
    "server_started",
    "server_stopped",
    "failure_recorded",
}
_COUNTED = {
    "attempt_started": "asked",
    "job_planned": "launched",
    "job_ended": "ended",
    "result_accepted": "results",
    "result_rejected": "invalid",
}

# Within a text of JSON a quote is escaped, so that none of these can be a stranger's.
_DISPOSITION = re.compile(rb'"disposition":"([a-z_]+)"')
_JOB = re.compile(rb'"job":"([^"]*)"')
_CHARGED = re.compile(rb'"charged_node_h":([-+.0-9eE]+)')


@dataclass(frozen=True, slots=True)
class Milestone:
    """Something that happened once, and that a reader of the night wants to see.

    Attributes:
        at: When, in seconds since the epoch.
        what: Type of the event.
        told: A sentence for people; may hold text of strangers.
    """

    at: float
    what: str
    told: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """What happened in a stretch of time.

    Attributes:
        start_at: Its start, in seconds since the epoch.
        counts: Attempts `asked`; decisions `accepted`, `fallback` and so on; jobs `launched` and
            `ended`; `results` and `invalid` ones.
        charged_node_h: Node-hours of the jobs that ended.
        running: Most jobs that ran at once.
    """

    start_at: float
    counts: dict[str, int]
    charged_node_h: float
    running: int


@dataclass(frozen=True, slots=True)
class Timeline:
    """A run along its time. Make it with `timeline`.

    Attributes:
        length_s: Length of each stretch, in seconds.
        stretches: From the first event to the last, empty ones too.
        milestones: In order.
    """

    length_s: float
    stretches: tuple[Stretch, ...]
    milestones: tuple[Milestone, ...]


@dataclass(slots=True)
class _Count:
    counts: Counter[str] = field(default_factory=Counter)
    charged_node_h: float = 0.0
    running: int = 0


def timeline(run_dir: str | Path) -> Timeline:
    """Tell a run along its time.

    Raises:
        LedgerError: There is no ledger, or it cannot be read.
    """
    types = {*_MILESTONES, *_COUNTED, "decision_made"}
    found = list(scan(run_dir, types, unparsed={*_COUNTED, "decision_made"}))
    if not found:
        return Timeline(1.0, (), ())
    start_at, end_at = found[0]["at"], found[-1]["at"]
    wanted_s = (end_at - start_at) / STRETCHES
    length_s = float(_LENGTHS_S[min(bisect.bisect(_LENGTHS_S, wanted_s), len(_LENGTHS_S) - 1)])
    length_s = max(length_s, wanted_s)
    counts = [_Count() for _ in range(int((end_at - start_at) // length_s) + 1)]
    running: set[bytes] = set()
    for raw in found:
        count = counts[int((raw["at"] - start_at) // length_s)]
        _take(count, raw, running)
        count.running = max(count.running, len(running))
    return Timeline(
        length_s=length_s,
        stretches=tuple(
            Stretch(start_at + i * length_s, dict(c.counts), c.charged_node_h, c.running)
            for i, c in enumerate(counts)
        ),
        milestones=tuple(_milestones(found)),
    )


def _take(count: _Count, raw: Raw, running: set[bytes]) -> None:
    kind = raw["type"]
    if kind == "decision_made":
        count.counts[_found(_DISPOSITION, raw).decode()] += 1
    elif kind in _COUNTED:
        count.counts[_COUNTED[kind]] += 1
    if kind == "job_planned":
        running.add(_found(_JOB, raw))
    elif kind == "job_ended":
        running.discard(_found(_JOB, raw))
        count.charged_node_h += float(_found(_CHARGED, raw))


def _found(pattern: re.Pattern[bytes], raw: Raw) -> bytes:
    match = pattern.search(raw["line"])
    return match[1] if match else b"0"


def _milestones(found: list[Raw]) -> Iterator[Milestone]:
    for raw in found:
        if raw["type"] in _MILESTONES:
            yield Milestone(raw["at"], raw["type"], _told(raw))


_SENTENCES = {
    "segment_opened": "runner {segment} on {host}, process {pid}",
    "run_started": "campaign {campaign}, producer {producer}, {slots} slots",
    "run_resumed": "goes on, producer {producer}, {slots} slots",
    "server_started": "model {model} answers after {elapsed_s:.0f} s",
    "failure_recorded": "{kind} failed ({what}): {message}",
    "run_stopped": "by the rule {rule}: {reason}",
    "run_suspended": "{reason}",
    "server_stopped": "{reason}",
}


def _told(raw: Raw) -> str:
    told = _SENTENCES[raw["type"]].format_map(raw)
    return f"{told}, tried again" if raw.get("again") else told
