"""The contents of the report's sections: charts with the tables that tell the same in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from .. import phrases, text
from ..figures import Summary
from ..occupancy import Occupancy
from ..record import RunRecord
from ..rows import LifeRow, QuestionRow
from . import bars, lanes, lines, packing, parts, progress, rivals, table
from .html import Content, Markup, tag

MAX_QUESTIONS = 30
"""Questions to a person that are listed one by one."""
MAX_FAILURES = 50
"""Newest failures that are listed one by one."""

_BYTES = "application/octet-stream"


def results(record: RunRecord, figures: Summary) -> Content:
    """Show every result, and the best one whole."""
    chart, both = progress.progress(record), rivals.rivals(record)
    return [
        parts.figure(chart) if chart else parts.quiet("No job has a valid result yet."),
        parts.figure(both) if both else "",
        _best(figures),
    ]


def _best(figures: Summary) -> Content:
    best = figures.best
    if best is None:
        return ()
    other = {
        f"best of the {source}": value
        for source, value in (("model", best.of_model), ("surrogate", best.of_surrogate))
        if value is not None
    }
    return [
        tag("h3", f"The best: {best.job}, decision D{best.decision}, from the {best.source}"),
        parts.pairs(phrases.measured(best.candidate, best.units)),
        parts.pairs(phrases.measured({**best.values, **other}, {})),
    ]


def decisions(record: RunRecord, figures: Summary) -> Content:
    """Show how far decisions got, and why some took the surrogate's candidates."""
    chart = bars.funnel(record)
    if chart is None:
        return parts.quiet("No decision was opened yet.")
    told = []
    if figures.causes:
        told.append(f"Taken from the surrogate because of: {text.words(figures.causes)}.")
    if figures.held:
        told.append(f"Let through and not launched: {text.words(figures.held)}.")
    return [
        parts.figure(chart),
        [tag("p", sentence) for sentence in told],
        _questions(record.questions),
    ]


def _questions(found: Sequence[QuestionRow]) -> Content:
    if not found:
        return ()
    waiting = [question for question in found if question.answered_at is None]
    answered = [question for question in found if question.answered_at is not None]
    rows = [
        (
            question.what,
            parts.place(question.decision),
            parts.unbroken(text.instant(question.asked_at)),
            text.clipped("; ".join(question.reasons) or "out of attempts", 200),
            text.clipped(phrases.answer(question), 300),
        )
        for question in (waiting + answered[::-1])[:MAX_QUESTIONS]
    ]
    hidden = len(found) - MAX_QUESTIONS
    head = ("Parked", "attempts", "at", "because", "answer")
    return [
        parts.table(head, rows, "What was left to a person; what still waits comes first."),
        parts.quiet(f"{hidden} older ones are in the ledger.") if hidden > 0 else "",
    ]


def time(record: RunRecord, figures: Summary) -> Content:
    """Show who was busy when, the longest idle gaps, and the runner's lives."""
    use = Occupancy.of(record)
    chart = lanes.lanes(record, use)
    if chart is None:
        return parts.quiet("Nothing ran yet.")
    hidden = len(use.lanes) - lanes.MAX_LANES
    return [
        parts.figure(chart),
        parts.quiet(f"{hidden} more slots are not drawn.") if hidden > 0 else "",
        parts.row(_lives(record), _gaps(record, figures)),
    ]


def _gaps(record: RunRecord, figures: Summary) -> Content:
    if not figures.slots.gaps:
        return ()
    start_at = record.lives[0].started_at
    rows = [
        (
            f"slot {gap.slot}",
            parts.unbroken(text.span(gap.length_s)),
            parts.unbroken(f"{text.span(gap.start_at - start_at)} after the start"),
        )
        for gap in figures.slots.gaps
    ]
    return parts.table(("Slot", "idle for", "from"), rows, "The longest idle gaps.")


def _lives(record: RunRecord) -> Markup:
    rows = [
        (
            str(life.number),
            parts.unbroken(text.instant(life.started_at)),
            parts.unbroken(text.span(life.ended_at - life.started_at)),
            parts.unbroken(f"{life.host}, pid {life.pid}"),
            parts.unbroken(_slurm(life)),
            f"{life.end}{f': {life.reason}' if life.reason else ''}",
        )
        for life in record.lives
    ]
    head = ("Life", "started", "lasted", "where", "Slurm", "ended")
    return parts.table(head, rows, "The runner's lives.")


def failures(record: RunRecord) -> Content:
    """Show what broke, newest first."""
    if not record.failures:
        return parts.quiet("Nothing broke.")
    rows = [
        (
            text.instant(failure.at),
            failure.kind,
            text.clipped(text.plain_word(failure.what), 80),
            parts.place(failure.decision, failure.attempt),
            text.clipped(failure.message, 300),
            "yes" if failure.again else "no",
        )
        for failure in reversed(record.failures)
    ]
    head = ("At", "kind", "what", "attempt", "message", "tried again")
    hidden = len(rows) - MAX_FAILURES
    found = parts.table(head, rows[:MAX_FAILURES])
    return [found, parts.quiet(f"{hidden} older ones are in the ledger.")] if hidden > 0 else found


def _slurm(life: LifeRow) -> str:
    return ", ".join(f"{text.plain_word(key)} {value}" for key, value in life.slurm.items())


# --- attempts ------------------------------------------------------------------------------------


def attempts(record: RunRecord) -> Content:
    """Show every attempt, with what the page's script needs to filter and to open them."""
    if not record.decisions:
        return parts.quiet("No decision was opened yet.")
    room = lines.room_for(record)
    found = lines.lines(record, room=room)
    hidden = len(found) - table.MAX_ROWS
    noscript = f"Without a script the first {table.MAX_ROWS:,} of {len(found):,} lines are shown."
    return [
        tag("noscript", parts.quiet(noscript)) if hidden > 0 else "",
        parts.quiet(_cut(room)) if room is not lines.ROOMS[0] else "",
        _filters(found),
        tag("div", table.html_table(found), class_="scroll", tabindex=0),
        tag("nav", id="pages", hidden=True, aria_label="Pages of the table"),
        _data("attempts-data", packing.packed(found), block=packing.LINES, lines=len(found)),
        _data("attempts-details", packing.packed_details(found), block=packing.DETAILS),
    ]


def _data(name: str, packed: str, *, block: int, lines: int | None = None) -> Markup:
    """Return packed data for the page's script: blocks of so many lines, of so many altogether."""
    return tag("script", Markup(packed), id=name, type=_BYTES, data_block=block, data_lines=lines)


def _cut(room: lines.Room) -> str:
    details = "details are left out" if not room.detail else f"details to {room.detail}"
    return (
        f"So many lines that texts are cut to {room.cell} characters, {details}; "
        "`batchgate show RUN D17.2` tells a whole attempt."
    )


def _filters(found: Sequence[table.Line]) -> Markup:
    choices = {
        "verdict": sorted({line.verdict for line in found}),
        "check": sorted({name for line in found for name in line.rejected_by}),
        "source": sorted({line.source for line in found}),
    }
    labels = {"verdict": "Verdict", "check": "Rejected by", "source": "From"}
    return tag(
        "div",
        tag("label", "Search ", tag("input", type="search", id="filter-text")),
        [
            tag(
                "label",
                f"{labels[name]} ",
                tag(
                    "select",
                    tag("option", "any", value=""),
                    [tag("option", value, value=value) for value in values],
                    id=f"filter-{name}",
                ),
            )
            for name, values in choices.items()
        ],
        tag("button", "Show all", type="button", id="filter-reset"),
        tag("output", id="filter-count"),
        class_="filters",
        id="filters",
        hidden=True,
    )
