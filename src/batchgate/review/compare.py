"""Two runs side by side: what they decided, launched, spent and found."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LedgerError
from .scan import Raw, scan
from .stats import wilson

_TYPES = {
    "segment_opened",
    "run_started",
    "run_resumed",
    "attempt_started",
    "proposal_rejected",
    "check_judged",
    "decision_made",
    "job_ended",
    "result_accepted",
    "result_rejected",
    "run_stopped",
    "run_suspended",
}

# Verdicts are the most of a ledger. These keys stand ahead of all text of strangers.
_VERDICT = re.compile(
    rb'"check":"((?:[^"\\\\]|\\\\.)*)",(?:"sample":\d+,)?"passed":(true|false),"hard":(true|false)'
)


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

    Raises:
        LedgerError: There is no ledger, or it cannot be read.
    """
    return tuple(_lines(figures(one), figures(other)))


def figures(run_dir: str | Path) -> Figures:
    """Count a run.

    Raises:
        LedgerError: There is no ledger, nothing was started in it, or it cannot be read.
    """
    counts: Counter[str] = Counter()
    names: dict[str, Any] = {}
    charged, best = 0.0, None
    for raw in scan(run_dir, _TYPES, unparsed={"attempt_started", "check_judged"}):
        for name in _counted(raw):
            counts[name] += 1
        match raw["type"]:
            case "segment_opened":
                names["run"] = raw["run"]
            case "run_started" | "run_resumed" if raw["spec"] is not None:
                names["campaign"] = raw["spec"]["campaign"]["name"]
                names["digest"] = raw["digest"]
                ((names["objective"], names["goal"]),) = raw["spec"]["objectives"].items()
            case "job_ended":
                charged += raw["charged_node_h"]
            case "result_accepted" if raw["feasible"]:
                value = raw["values"][names["objective"]]
                pick = min if names["goal"] == "MINIMIZE" else max
                best = value if best is None else pick(best, value)
    if "campaign" not in names:
        raise LedgerError(f"{run_dir} was never started, so there is nothing to compare")
    return Figures(names["run"], names["campaign"], names["digest"], counts, charged, best)


def _counted(raw: Raw) -> Iterator[str]:
    """Name what an event counts for."""
    match raw["type"]:
        case "attempt_started":
            yield "attempts"
        case "proposal_rejected":
            yield f"judged by {raw['stage']}"
            yield f"rejected by {raw['stage']}"
        case "check_judged" if (said := _VERDICT.search(raw["line"])) and said[3] == b"true":
            name = json.loads(b'"%b"' % said[1])
            yield f"judged by {name}"
            if said[2] == b"false":
                yield f"rejected by {name}"
        case "decision_made":
            yield "decisions"
            yield f"decisions {raw['disposition']}"
            if raw["disposition"] == "accepted" and raw["attempts"] == 1:
                yield "accepted at the first ask"
        case "job_ended":
            yield "jobs"
            yield f"jobs {raw['state']}"
        case "result_accepted":
            yield "results"
            yield "results feasible" if raw["feasible"] else "results infeasible"
        case "result_rejected":
            yield "results"
            yield "results rejected"
        case "segment_opened":
            yield "lives"
        case _:
            pass


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
