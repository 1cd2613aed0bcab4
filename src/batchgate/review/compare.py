"""Two runs side by side: what they decided, launched, spent and found."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..errors import LedgerError
from .database import Database
from .stats import wilson


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of one run that another run's can stand beside.

    Attributes:
        run: The run's name.
        campaign: The campaign's name.
        digest: Digest of the campaign.
        counts: How often each thing happened, by a name for people.
        charged_node_h: Node-hours of its jobs.
        best: The best feasible objective; `None` without one.
    """

    run: str
    campaign: str
    digest: str
    counts: Mapping[str, int]
    charged_node_h: float
    best: float | None


@dataclass(frozen=True, slots=True)
class Line:
    """One figure of two runs.

    Attributes:
        name: What it is.
        one: In the first run; `None` where it has none.
        other: In the second.
        apart: Whether the two differ by more than chance explains; `None` where chance is not
            what they differ by, or there is nothing to tell by. For shares only: their 95 %
            intervals have nothing in common.
    """

    name: str
    one: float | str | None
    other: float | str | None
    apart: bool | None = None


def compare(one: str | Path, other: str | Path) -> tuple[Line, ...]:
    """Put two runs side by side.

    Args:
        one: A run's directory.
        other: The other's.

    Raises:
        LedgerError: There is no ledger, nothing was started in it, or it cannot be read.
    """
    return tuple(_lines(figures(one), figures(other)))


def figures(run_dir: str | Path) -> Figures:
    """Count a run.

    Raises:
        LedgerError: There is no ledger, nothing was started in it, or it cannot be read.
    """
    with Database.of(run_dir, *_COLUMNS) as run:
        name, lives, spec, digest = run.row(_NAMES)
        if spec is None:
            raise LedgerError(f"{run_dir} was never started, so there is nothing to compare")
        campaign = json.loads(spec)
        ((objective, goal),) = campaign["objectives"].items()
        charged_node_h, lowest, highest = run.row(_FIGURES, objective=objective)
        return Figures(
            run=name,
            campaign=campaign["campaign"]["name"],
            digest=digest,
            counts=Counter({"lives": lives} | dict(run.rows(_COUNTS))),
            charged_node_h=charged_node_h,
            best=lowest if goal == "MINIMIZE" else highest,
        )


_COLUMNS = (
    *("run", "segment", "spec", "digest", "stage", "check", "passed", "hard", "disposition"),
    *("attempts", "state", "charged_node_h", "values", "feasible"),
)

_NAMES = """
SELECT
    arg_max(run, seq) FILTER (type = 'segment_opened'),
    arg_max(segment, seq) FILTER (type = 'segment_opened'),
    arg_max(spec, seq) FILTER (json_type(spec) = 'OBJECT'),
    arg_max(digest, seq) FILTER (json_type(spec) = 'OBJECT')
FROM event WHERE type IN ('segment_opened', 'run_started', 'run_resumed')
"""

_FIGURES = """
SELECT
    coalesce(fsum(charged_node_h), 0),
    min(value) FILTER (feasible),
    max(value) FILTER (feasible)
FROM (
    SELECT
        charged_node_h, feasible,
        CASE type
            WHEN 'result_accepted' THEN ("values"::MAP(VARCHAR, DOUBLE))[$objective]
        END AS value
    FROM event WHERE type IN ('job_ended', 'result_accepted')
)
"""

_COUNTS = """
WITH happened AS (
    SELECT
        type, stage, "check", passed, disposition, attempts, state, feasible, count(*) AS n
    FROM event WHERE hard IS DISTINCT FROM FALSE GROUP BY ALL
)
SELECT name, sum(n)::BIGINT FROM (
    SELECT n, unnest(CASE type
        WHEN 'attempt_started' THEN ['attempts']
        WHEN 'proposal_rejected' THEN ['judged by ' || stage, 'rejected by ' || stage]
        WHEN 'check_judged'
            THEN ['judged by ' || "check", if(passed, NULL, 'rejected by ' || "check")]
        WHEN 'decision_made' THEN [
            'decisions', 'decisions ' || disposition,
            if(disposition = 'accepted' AND attempts = 1, 'accepted at the first ask', NULL)
        ]
        WHEN 'job_ended' THEN ['jobs', 'jobs ' || state]
        WHEN 'result_accepted'
            THEN ['results', if(feasible, 'results feasible', 'results infeasible')]
        WHEN 'result_rejected' THEN ['results', 'results rejected']
    END) AS name
    FROM happened
) WHERE name IS NOT NULL GROUP BY name
"""


def _lines(one: Figures, other: Figures) -> Iterator[Line]:
    yield Line("run", one.run, other.run)
    yield Line("campaign", one.campaign, other.campaign)
    same = one.digest == other.digest
    yield Line("campaign's digest", one.digest[:12], other.digest[:12], not same)
    names = sorted({*one.counts, *other.counts})
    for name in names:
        if not name.startswith(("judged by ", "rejected by ")):
            yield Line(name, one.counts[name], other.counts[name])
    for name in names:
        if name.startswith("judged by "):
            yield _share(name.removeprefix("judged by "), one, other)
    yield Line("node-hours charged", one.charged_node_h, other.charged_node_h)
    yield Line("best feasible objective", one.best, other.best)


def _share(check: str, one: Figures, other: Figures) -> Line:
    shares, ends = [], []
    for run in (one, other):
        judged, rejected = run.counts[f"judged by {check}"], run.counts[f"rejected by {check}"]
        shares.append(rejected / judged if judged else None)
        ends.append(wilson(rejected, judged))
    (low, high), (other_low, other_high) = ends
    apart = None if None in shares else low > other_high or other_low > high
    return Line(f"share rejected by {check}", shares[0], shares[1], apart)
