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
}

# What each of the many events counts for, read off its bytes. Within a text of JSON a quote is
# escaped, so that none of these can be a stranger's.
_TOLD = {
    "check_judged": re.compile(
        rb'"check":"((?:[^"\\]|\\.)*)",(?:"sample":\d+,)?"passed":(true|false),"hard":(true|false)'
    ),
    "decision_made": re.compile(rb'"disposition":"([a-z_]+)","attempts":(\d+)'),
    "job_ended": re.compile(rb'"state":"([a-z_]+)"'),
    "result_accepted": re.compile(rb'"feasible":(true|false)'),
    "proposal_rejected": re.compile(rb'"stage":"((?:[^"\\\\]|\\\\.)*)"'),
    "attempt_started": re.compile(rb""),
    "result_rejected": re.compile(rb""),
}
_CHARGED = re.compile(rb'"charged_node_h":([-+.0-9eE]+)')
_TRUE = b"true"


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
    told: Counter[tuple[str, tuple[bytes, ...]]] = Counter()
    names: dict[str, Any] = {}
    charged, best = 0.0, None
    for raw in scan(run_dir, _TYPES, unparsed=_TOLD.keys()):
        kind = raw["type"]
        if kind in _TOLD:
            match = _TOLD[kind].search(raw["line"])
            told[kind, match.groups() if match else ()] += 1
        if kind == "job_ended":
            charged += sum(map(float, _CHARGED.findall(raw["line"])[:1]))
        elif kind == "result_accepted" and match is not None and match[1] == _TRUE:
            value = json.loads(raw["line"])["values"][names["objective"]]
            pick = min if names["goal"] == "MINIMIZE" else max
            best = value if best is None else pick(best, value)
        elif kind not in _TOLD:
            names |= _named(raw)
    if "campaign" not in names:
        raise LedgerError(f"{run_dir} was never started, so there is nothing to compare")
    counts: Counter[str] = Counter()
    for (kind, said), count in told.items():
        for name in _counted(kind, said):
            counts[name] += count
    counts["lives"] = names["lives"]
    return Figures(names["run"], names["campaign"], names["digest"], counts, charged, best)


def _named(raw: Raw) -> dict[str, Any]:
    """Return what a rare event says of the whole run."""
    match raw["type"]:
        case "segment_opened":
            return {"run": raw["run"], "lives": raw["segment"]}
        case "run_started" | "run_resumed" if raw["spec"] is not None:
            ((objective, goal),) = raw["spec"]["objectives"].items()
            return {
                "campaign": raw["spec"]["campaign"]["name"],
                "digest": raw["digest"],
                "objective": objective,
                "goal": goal,
            }
        case _:
            return {}


def _counted(kind: str, said: tuple[bytes, ...]) -> Iterator[str]:
    """Name what events of a kind count for that say these things."""
    match kind, said:
        case "attempt_started", _:
            yield "attempts"
        case "proposal_rejected", (stage,):
            yield f"judged by {_word(stage)}"
            yield f"rejected by {_word(stage)}"
        case "check_judged", (name, passed, b"true"):
            yield f"judged by {_word(name)}"
            if passed != _TRUE:
                yield f"rejected by {_word(name)}"
        case "decision_made", (disposition, attempts):
            yield "decisions"
            yield f"decisions {disposition.decode()}"
            if (disposition, attempts) == (b"accepted", b"1"):
                yield "accepted at the first ask"
        case "job_ended", (state,):
            yield "jobs"
            yield f"jobs {state.decode()}"
        case "result_accepted", (feasible,):
            yield "results"
            yield "results feasible" if feasible == _TRUE else "results infeasible"
        case "result_rejected", _:
            yield "results"
            yield "results rejected"
        case _:
            pass


def _word(written: bytes) -> str:
    """Return a text that stands in a line of JSON."""
    return str(json.loads(b'"%b"' % written))


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
