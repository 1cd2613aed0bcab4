"""The table of attempts: its lines, and the first of them as HTML rows.

The page itself holds the first lines as rows, so that they are there without a script and in
print. The script takes all lines from packed data; see `packing`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .html import Markup, tag

MAX_ROWS = 1000
"""Lines that the page holds as rows."""
SHOWN_ROWS = 100
"""Of these, those that are shown while the script starts: as many as it shows."""

COLUMNS = ("Attempt", "Proposal", "Checks and reasons", "Verdict", "Decision", "Result")
_GLYPHS = {"pass": "✓", "fail": "✗", "soft": "≈"}


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the table: an attempt, or what a decision took without one.

    Attributes:
        id: `12.1` for the first attempt of decision 12, `12` for what it took instead.
        decision: Number of the decision.
        attempt: Number of the attempt; 0 for none.
        source: `model`, `surrogate` or `person`.
        proposal: The proposal on one line.
        checks: Name, `pass`, `fail` or `soft` (failed, without gating), and reasons of each.
        rejected_by: Checks that rejected it, or the stage that did.
        verdict: What became of it.
        disposition: How its decision ended.
        result: What became of the jobs it led to.
        value: Best objective value of these, to sort by.
        details: Label and text of everything else.
    """

    id: str
    decision: int
    attempt: int
    source: str
    proposal: str
    checks: tuple[tuple[str, str, str], ...]
    rejected_by: tuple[str, ...]
    verdict: str
    disposition: str
    result: str
    value: float | None
    details: tuple[tuple[str, str], ...]


def html_table(found: Sequence[Line]) -> Markup:
    """Return the first lines as a table, which the page's script may take over."""
    head = [tag("th", name, scope="col") for name in COLUMNS]
    return tag(
        "table",
        tag("thead", tag("tr", head)),
        tag("tbody", [_row(line) for line in found[:SHOWN_ROWS]]),
        tag("tbody", [_row(line) for line in found[SHOWN_ROWS:MAX_ROWS]])
        if len(found) > SHOWN_ROWS
        else "",
        id="attempts-table",
    )


def _row(line: Line) -> Markup:
    checks = [tag("span", f"{_GLYPHS[mark]} {name}", class_=mark) for name, mark, _ in line.checks]
    why = [tag("div", reasons, class_="why") for _, _, reasons in line.checks if reasons]
    return tag(
        "tr",
        tag("th", f"D{line.id}", tag("span", line.source, class_=line.source), scope="row"),
        tag("td", line.proposal, class_="proposal"),
        tag("td", checks, why),
        tag("td", line.verdict, class_=f"verdict {line.verdict}"),
        tag("td", line.disposition),
        tag("td", line.result),
    )
