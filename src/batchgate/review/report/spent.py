"""The section about node-hours: what was billed, on what it went, and what the gate may have saved."""

from __future__ import annotations

from .. import phrases, text
from ..hours import Hours
from . import bars, parts
from .findings import Findings
from .html import Content, tag


def node_hours(found: Findings) -> Content:
    """Show what the run was billed, and what the grant was spent on."""
    grant = bars.grant(found.figures.node_h)
    if grant is None:
        return parts.quiet("Nothing was granted yet.")
    bill = bars.bill(found.hours)
    return [
        tag("h3", "What was billed, by what it went on"),
        parts.figure(bill) if bill else "",
        parts.row(_by_kind(found.hours), _by_result(found)),
        tag("h3", "What was granted to jobs, by who chose their candidates"),
        parts.figure(grant),
        tag("h3", "What the gate saved, as an estimate"),
        _saved(found),
    ]


def _by_kind(hours: Hours) -> Content:
    rows: list[tuple[Content, ...]] = [
        (
            [parts.key(part.class_), part.label],
            parts.number(text.hours(part.node_h)),
            parts.number(f"{part.node_h / hours.billed:.0%}" if hours.billed else ""),
        )
        for part in bars.parts_of(hours)
    ]
    lives = len({held.life for held in hours.held})
    caption = (
        f"Billed: nodes times time held, over {lives} {'life' if lives == 1 else 'lives'}."
        if hours.billed
        else "The ledger names no allocation, so what was billed and what was idle is unknown."
    )
    if hours.billed:
        rows.append(("billed", parts.number(text.hours(hours.billed)), parts.number("100%")))
    return parts.table(("Spent on", "node-hours", "share"), rows, caption)


def _by_result(found: Findings) -> Content:
    rows = [
        (text.plain_word(word), parts.number(text.hours(charged)))
        for word, charged in found.figures.node_h.by_outcome.items()
    ]
    head = ("What became of it", "node-hours")
    return parts.table(head, rows, "What jobs were charged, by their result.") if rows else ()


def _saved(found: Findings) -> Content:
    saved, gate = found.figures.saved, next(iter(found.card.checks), None)
    if saved is None:
        return parts.quiet("No job has ended yet, so what one costs is unknown.")
    return tag("p", phrases.saved(saved, gate.false_reject if gate else None))
