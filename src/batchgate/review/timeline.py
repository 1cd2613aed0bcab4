"""A run along its time: what happened in each stretch of it, and what broke or stopped when."""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .database import Database

STRETCHES = 24
"""Stretches of time that a run is told in, at most."""

_LENGTHS_S = (1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 12 * 3600, 24 * 3600)
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
"""Milestones, and what is told of each."""

_FIELDS = (
    *("segment", "host", "pid", "campaign", "producer", "slots", "model", "elapsed_s", "kind"),
    *("what", "message", "rule", "reason", "again"),
)
"""Fields of milestones that are told."""


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

    @property
    def of_a_life(self) -> bool:
        """Whether it is a runner's own beginning or end, of which a run has few."""
        return self.what.startswith(("segment_", "run_"))


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


def timeline(run_dir: str | Path) -> Timeline:
    """Tell a run along its time.

    Raises:
        LedgerError: There is no ledger, or it cannot be read.
    """
    with Database.of(run_dir, "disposition", "charged_node_h", *_FIELDS) as run:
        run.make("moment", _MOMENT, milestones=list(_SENTENCES))
        start_at, span_s = run.row(
            'SELECT min("at") / 1e9, (max("at") - min("at")) / 1e9 FROM moment'
        )
        if start_at is None:
            return Timeline(1.0, (), ())
        length_s = _length_s(span_s)
        return Timeline(
            length_s=length_s,
            stretches=tuple(_stretches(run, start_at, length_s)),
            milestones=tuple(_milestones(run)),
        )


# What is counted of each event; jobs that run are counted along the order of the ledger.
_MOMENT = """
SELECT
    seq, "at", ("at" - min("at") OVER ()) / 1e9 AS after_s, charged_node_h,
    CASE type
        WHEN 'attempt_started' THEN 'asked'
        WHEN 'decision_made' THEN disposition
        WHEN 'job_planned' THEN 'launched'
        WHEN 'job_ended' THEN 'ended'
        WHEN 'result_accepted' THEN 'results'
        WHEN 'result_rejected' THEN 'invalid'
    END AS word,
    sum(CASE type WHEN 'job_planned' THEN 1 WHEN 'job_ended' THEN -1 ELSE 0 END)
        OVER (ORDER BY seq) AS running
FROM event WHERE word IS NOT NULL OR list_contains($milestones, type)
"""

_COUNTS = """
SELECT floor(after_s / $length_s)::BIGINT, word, count(*) FROM moment
WHERE word IS NOT NULL GROUP BY ALL ORDER BY min(seq)
"""

_FIGURES = """
SELECT
    floor(after_s / $length_s)::BIGINT AS place, coalesce(fsum(charged_node_h), 0),
    max(running)::BIGINT, arg_max(running, seq)::BIGINT
FROM moment GROUP BY place ORDER BY place
"""


def _length_s(span_s: float) -> float:
    """Return the length of the stretches that a run is told in, in seconds."""
    wanted_s = span_s / STRETCHES
    fitting = bisect.bisect(_LENGTHS_S, wanted_s)
    return max(float(_LENGTHS_S[min(fitting, len(_LENGTHS_S) - 1)]), wanted_s)


def _stretches(run: Database, start_at: float, length_s: float) -> Iterator[Stretch]:
    counts: defaultdict[int, dict[str, int]] = defaultdict(dict)
    for place, word, count in run.rows(_COUNTS, length_s=length_s):
        counts[place][word] = count
    figures = {place: rest for place, *rest in run.rows(_FIGURES, length_s=length_s)}
    before = 0  # jobs that run when a stretch begins
    for place in range(max(figures) + 1):
        charged_node_h, most, after = figures.get(place, (0.0, 0, before))
        running = max(before, most)
        yield Stretch(start_at + place * length_s, counts[place], charged_node_h, running)
        before = after


def _milestones(run: Database) -> Iterator[Milestone]:
    rows = run.rows(
        f'SELECT "at" / 1e9, type, {", ".join(_FIELDS)} FROM event '
        "WHERE list_contains($milestones, type) ORDER BY seq",
        milestones=list(_SENTENCES),
    )
    for at, what, *values in rows:
        fields = dict(zip(_FIELDS, values, strict=True))
        told = _SENTENCES[what].format_map(fields)
        yield Milestone(at, what, f"{told}, tried again" if fields["again"] else told)
