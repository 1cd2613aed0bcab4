"""Two runs side by side: what they decided, launched, spent and found."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import LedgerError
from ..ledger.reader import segment_name, segment_numbers
from .stats import wilson

# What an event counts for, read off its bytes: a line that begins as every line does, its type, and
# the fields that tell. Within a text of JSON a quote is escaped, so that none of it can be a
# stranger's. Nothing is tried twice (`++`), which makes it three times as fast.
_TEXT = rb'"(?:[^"\\]++|\\.)*+"'
_LINE = re.compile(
    rb'\n\{"seq":[0-9]++,"at":"[0-9]++","type":"'
    rb'(?:((?:segment_opened|run_started|run_resumed)"[^\n]*+)|([a-z_]++)"'
    rb'(?:,"decision":[0-9]++)?+(?:,"attempt":[0-9]++)?+(?:,"(?:job|fingerprint)":'
    + _TEXT
    + rb")*+"
    rb'(?:,"(check":' + _TEXT + rb',(?:"sample":[0-9]++,)?+"passed":(?:true|false),"hard":true'
    rb'|disposition":"[a-z_]++","attempts":[0-9]++'
    rb'|stage":' + _TEXT + rb""
    rb'|state":"[a-z_]++"[^\n]*?"charged_node_h":[-+.0-9eE]++'
    rb'|values":\{[^\n]*?\},"feasible":(?:true|false)))?+)'
)
_CHECK = re.compile(rb'check":(' + _TEXT + rb'),.*"passed":(true|false)')
_BLOCK = 1 << 22
"""Bytes that are looked at together."""
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


def compare(
    one: str | Path, other: str | Path, *, pool: Executor | None = None
) -> tuple[Line, ...]:
    """Put two runs side by side.

    Args:
        one: A run's directory.
        other: The other's.
        pool: Reads the other run while this process reads the first. Without one, or when its
            process dies, both are read here, one after the other.

    Raises:
        LedgerError: There is no ledger, or it cannot be read.
    """
    waiting = pool.submit(figures, other) if pool else None
    first = figures(one)
    try:
        second = waiting.result() if waiting else figures(other)
    except BrokenExecutor:
        second = figures(other)
    return tuple(_lines(first, second))


def figures(run_dir: str | Path) -> Figures:
    """Count a run.

    Raises:
        LedgerError: There is no ledger, nothing was started in it, or it cannot be read.
    """
    counts: Counter[str] = Counter()
    names: dict[str, Any] = {}
    charged, best = 0.0, None
    for (rare, kind, said), count in _told(Path(run_dir)):
        if rare:
            names |= _named(json.loads(b'{"type":"' + rare))
        for name in _counted(kind, said):
            counts[name] += count
        if kind == b"job_ended":
            charged += count * float(said.rpartition(b":")[2])
        elif kind == b"result_accepted" and said.endswith(_TRUE):
            value = json.loads(said[8 : said.rindex(b',"')])[names["objective"]]
            pick = min if names["goal"] == "MINIMIZE" else max
            best = value if best is None else pick(best, value)
    if "campaign" not in names:
        raise LedgerError(f"{run_dir} was never started, so there is nothing to compare")
    counts["lives"] = names["lives"]
    return Figures(names["run"], names["campaign"], names["digest"], counts, charged, best)


def _told(run_dir: Path) -> Iterator[tuple[tuple[bytes, bytes, bytes], int]]:
    """Yield what lines say, and how many say it, the first of them first."""
    folder = run_dir / "ledger"
    if not folder.is_dir():
        raise LedgerError(f"{run_dir} holds no run: there is no folder {folder}")
    try:
        for number in segment_numbers(folder):
            with (folder / segment_name(number)).open("rb") as file:
                rest = b"\n"
                while block := file.read(_BLOCK):
                    block = rest + block
                    whole = block.rfind(b"\n")  # a line that was cut off does not count
                    yield from Counter(_LINE.findall(block, 0, whole)).items()
                    rest = block[whole:]
    except OSError as exc:
        raise LedgerError(f"the ledger in {folder} cannot be read: {exc}") from exc


def _named(raw: Mapping[str, Any]) -> dict[str, Any]:
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


def _counted(kind: bytes, said: bytes) -> Iterator[str]:
    """Name what an event of this kind counts for that says this."""
    match kind:
        case b"attempt_started":
            yield "attempts"
        case b"proposal_rejected":
            stage = json.loads(said.partition(b":")[2])
            yield f"judged by {stage}"
            yield f"rejected by {stage}"
        case b"check_judged" if (found := _CHECK.match(said)) is not None:
            yield f"judged by {json.loads(found[1])}"
            if found[2] != _TRUE:
                yield f"rejected by {json.loads(found[1])}"
        case b"decision_made":
            yield "decisions"
            yield f"decisions {_word(said)}"
            if said == b'disposition":"accepted","attempts":1':
                yield "accepted at the first ask"
        case b"job_ended":
            yield "jobs"
            yield f"jobs {_word(said)}"
        case b"result_accepted":
            yield "results"
            yield "results feasible" if said.endswith(_TRUE) else "results infeasible"
        case b"result_rejected":
            yield "results"
            yield "results rejected"
        case _:
            pass


def _word(said: bytes) -> str:
    """Return the first value of what was said, a word of ours."""
    return said.split(b'"', 3)[2].decode()


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
