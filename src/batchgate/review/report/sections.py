"""The contents of the report's sections: charts with the tables that tell the same in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlencode

from .. import phrases, text
from ..figures import CheckCount, Judged, Summary, VerifierCount
from ..occupancy import Occupancy
from ..record import RunRecord
from . import bars, lanes, progress, table
from .html import Content, Markup, tag

MAX_COLUMNS = 6
"""Attempt numbers that have a column of their own in the table of checks."""
MAX_FAILURES = 50
"""Newest failures that are listed one by one."""


def results(record: RunRecord, figures: Summary) -> Content:
    """Show every result, and the best one whole."""
    chart = progress.progress(record)
    return [_figure(chart) if chart else _quiet("No job has a valid result yet."), _best(figures)]


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
        pairs(phrases.measured(best.candidate, best.units)),
        pairs(phrases.measured({**best.values, **other}, {})),
    ]


def decisions(record: RunRecord, figures: Summary) -> Content:
    """Show how far decisions got, and why some took the surrogate's candidates."""
    chart = bars.funnel(record)
    if chart is None:
        return _quiet("No decision was opened yet.")
    told = []
    if figures.causes:
        told.append(f"Taken from the surrogate because of: {text.words(figures.causes)}.")
    if figures.held:
        told.append(f"Let through and not launched: {text.words(figures.held)}.")
    return [_figure(chart), [tag("p", sentence) for sentence in told]]


# --- checks --------------------------------------------------------------------------------------


def checks(figures: Summary) -> Content:
    """Show which check rejected how much at which attempt, why, and whether asking again helped."""
    if not figures.asks:
        return _quiet("The model was not asked yet.")
    heat = _heat(figures) if figures.checks else ""
    return [_row(heat, _asks(figures)), _reasons(figures.checks)]


def _heat(figures: Summary) -> Markup:
    numbers = [ask.attempt for ask in figures.asks][:MAX_COLUMNS]
    beyond = len(figures.asks) > MAX_COLUMNS
    heads = ["Check", *(f"attempt {n}" for n in numbers), *(["later"] if beyond else []), "all"]
    rows = []
    for check in figures.checks:
        parts = [[part for part in check.by_attempt if part.attempt == n] for n in numbers]
        later = [part for part in check.by_attempt if part.attempt > numbers[-1]]
        cells = [
            _heat_cell(check, part, attempt) for attempt, part in zip(numbers, parts, strict=True)
        ]
        if beyond:
            cells.append(_heat_cell(check, later))
        cells.append(_heat_cell(check, check.by_attempt))
        rows.append([f"{check.name} ({check.kind})", *cells])
    return _table(
        heads,
        rows,
        "Rejected of judged proposals, by check and attempt. A darker cell rejected a larger "
        "share. Choose a number to see these attempts.",
    )


def _heat_cell(check: CheckCount, parts: Sequence[Judged], attempt: int | None = None) -> Markup:
    judged = sum(part.judged for part in parts)
    rejected = sum(part.rejected for part in parts)
    if not judged:
        return tag("td", "-", class_="number quiet")
    told = f"{rejected} of {judged}"
    if rejected and check.kind != "soft":
        where = {"check": check.name} | ({"attempt": attempt} if attempt else {})
        told = tag("a", told, href=f"#{urlencode(where)}")
    depth = -(-rejected * 5 // judged)
    return tag("td", told, f" {rejected / judged:.0%}", class_=f"number heat{depth}")


def _asks(figures: Summary) -> Content:
    rows = [
        (
            f"attempt {ask.attempt}",
            ask.asked,
            ask.accepted,
            f"{ask.accepted / ask.asked:.0%} ({ask.low:.0%} to {ask.high:.0%})",
        )
        for ask in figures.asks
    ]
    head = ("", "asked", "accepted", "rate (95 % interval)")
    return _table(head, rows, f"Whether asking again helped. {phrases.reasks(figures.reasks)}")


def _reasons(found: Iterable[CheckCount]) -> Content:
    rows = [
        (check.name, reason.count, reason.example if reason.count == 1 else reason.template)
        for check in found
        for reason in check.reasons
    ]
    if not rows:
        return ()
    return _table(
        ("Check", "times", "reason"),
        [(name, count, text.clipped(reason, 300)) for name, count, reason in rows],
        "Most frequent reasons; # stands for a number.",
    )


# --- time and node-hours -------------------------------------------------------------------------


def time(record: RunRecord, figures: Summary) -> Content:
    """Show who was busy when, the longest idle gaps, and the runner's lives."""
    use = Occupancy.of(record)
    chart = lanes.lanes(record, use)
    if chart is None:
        return _quiet("Nothing ran yet.")
    hidden = len(use.lanes) - lanes.MAX_LANES
    return [
        _figure(chart),
        _quiet(f"{hidden} more slots are not drawn.") if hidden > 0 else "",
        _row(_lives(record), _gaps(record, figures)),
    ]


def _gaps(record: RunRecord, figures: Summary) -> Content:
    if not figures.slots.gaps:
        return ()
    start_at = record.lives[0].started_at
    rows = [
        (
            f"slot {gap.slot}",
            _time(text.span(gap.length_s)),
            _time(f"{text.span(gap.start_at - start_at)} after the start"),
        )
        for gap in figures.slots.gaps
    ]
    return _table(("Slot", "idle for", "from"), rows, "The longest idle gaps.")


def _lives(record: RunRecord) -> Markup:
    rows = [
        (
            str(life.number),
            _time(text.instant(life.started_at)),
            _time(text.span(life.ended_at - life.started_at)),
            f"{life.host}, pid {life.pid}",
            ", ".join(f"{key} {value}" for key, value in life.slurm.items()),
            f"{life.end}{f': {life.reason}' if life.reason else ''}",
        )
        for life in record.lives
    ]
    head = ("Life", "started", "lasted", "where", "Slurm", "ended")
    return _table(head, rows, "The runner's lives.")


def node_hours(figures: Summary) -> Content:
    """Show what the grant was spent on."""
    chart = bars.node_hours(figures.node_h)
    if chart is None:
        return _quiet("Nothing was granted yet.")
    rows = [
        (text.plain_word(word), _number(text.hours(charged)))
        for word, charged in figures.node_h.by_outcome.items()
    ]
    rows.append(("verifiers, beside the grant", _number(text.hours(figures.node_h.verifiers))))
    return [_figure(chart), _table(("Spent on", "node-hours"), rows, "By what became of the jobs.")]


# --- verifiers and failures ----------------------------------------------------------------------


def verifiers(figures: Summary) -> Content:
    """Show whether the verifiers were right, as far as jobs can tell."""
    if not figures.verifiers:
        return _quiet("No verifier has judged a candidate yet.")
    return [_confusion(verifier) for verifier in figures.verifiers]


def _confusion(verifier: VerifierCount) -> Content:
    rows = (
        ("let pass", verifier.passed_good, verifier.passed_bad, verifier.passed_unknown),
        ("refused", verifier.refused_good, verifier.refused_bad, verifier.refused_unknown),
    )
    head = (verifier.name, "job feasible", "job not feasible", "no judged job")
    return [_table(head, rows), tag("p", phrases.verifier(verifier))]


def failures(record: RunRecord) -> Content:
    """Show what broke, newest first."""
    if not record.failures:
        return _quiet("Nothing broke.")
    rows = [
        (
            text.instant(failure.at),
            failure.kind,
            text.clipped(failure.what, 80),
            _link(failure.decision, failure.attempt),
            text.clipped(failure.message, 300),
            "yes" if failure.again else "no",
        )
        for failure in reversed(record.failures)
    ]
    head = ("At", "kind", "what", "attempt", "message", "tried again")
    hidden = len(rows) - MAX_FAILURES
    found = _table(head, rows[:MAX_FAILURES])
    return [found, _quiet(f"{hidden} older ones are in the ledger.")] if hidden > 0 else found


def _link(decision: int | None, attempt: int | None) -> Markup:
    if decision is None:
        return tag("td", "-")
    name = f"D{decision}" if attempt is None else f"D{decision}.{attempt}"
    return tag("td", tag("a", name, href=f"#decision={decision}"))


# --- attempts ------------------------------------------------------------------------------------


def attempts(record: RunRecord) -> Content:
    """Show every attempt, with what the page's script needs to filter and to open them."""
    found = table.lines(record)
    if not found:
        return _quiet("No decision was opened yet.")
    hidden = len(found) - table.MAX_ROWS
    noscript = f"Without a script the first {table.MAX_ROWS:,} of {len(found):,} lines are shown."
    return [
        tag("noscript", _quiet(noscript)) if hidden > 0 else "",
        _filters(found),
        tag("div", table.html_table(found), class_="scroll", tabindex=0),
        tag("nav", id="pages", hidden=True, aria_label="Pages of the table"),
        tag(
            "script",
            Markup(table.packed(found)),
            id="attempts-data",
            type="application/octet-stream",
        ),
    ]


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


# --- parts ---------------------------------------------------------------------------------------


def _quiet(sentence: str) -> Markup:
    return tag("p", sentence, class_="quiet")


def _figure(chart: Markup) -> Markup:
    # A wide chart scrolls in its own box on a narrow screen, which the keyboard can reach.
    return tag("figure", chart, tabindex=0)


def pairs(told: Mapping[str, str]) -> Markup:
    """Return names with their values, side by side."""
    found = (tag("div", tag("dt", name), tag("dd", value)) for name, value in told.items())
    return tag("dl", found, class_="facts")


def _row(*blocks: Content) -> Markup:
    return tag("div", *blocks, class_="row")


def _table(head: Sequence[str], rows: Iterable[Sequence[Content]], caption: str = "") -> Markup:
    """Return a table; the first cell names its row, and a cell of `Markup` is whole already."""
    found = tag(
        "table",
        tag("caption", caption) if caption else "",
        tag("thead", tag("tr", [tag("th", name, scope="col") for name in head])),
        tag("tbody", [tag("tr", _cells(row)) for row in rows]),
    )
    return tag("div", found, class_="scroll", tabindex=0)


def _number(told: str) -> Markup:
    return tag("td", told, class_="number")


def _time(told: str) -> Markup:
    return tag("td", told, class_="nowrap")


def _cells(row: Sequence[Content]) -> Iterator[Content]:
    first, *others = row
    yield tag("th", first, scope="row")
    for cell in others:
        if isinstance(cell, Markup):
            yield cell
        else:
            yield tag("td", cell, class_="number" if isinstance(cell, int) else None)
