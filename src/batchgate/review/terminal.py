"""A run's figures for a terminal: at most 100 columns, and nothing that needs a colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from . import phrases, text
from .figures import CheckCount, Summary

REASONS = 2
"""Most frequent reasons told of each check."""
REASON = 200
"""Longest reason, in characters."""


def rendered(summary: Summary) -> RenderableType:
    """Return a summary as something that `rich.console.Console(width=100)` prints.

    Text of models and checks is shown as it is: it is never read as markup, and its control
    characters are visible.
    """
    ending = summary.ending
    parts: list[RenderableType] = [
        _line(summary.title or summary.campaign or "A run that never started", style="bold"),
        _line(
            f"{phrases.ended(ending)}: {ending.reason}" if ending.reason else phrases.ended(ending)
        ),
        *(_line(f"! {warning}", style="bold") for warning in summary.warnings),
        Text(),
        _overview(summary),
    ]
    if summary.checks:
        parts += [Text(), _checks(summary.checks)]
    if summary.asks:
        parts += [Text(), _asks(summary)]
    if summary.reasks:
        parts.append(_line(phrases.reasks(summary.reasks)))
    for verifier in summary.verifiers:
        parts += [Text(), _line(phrases.verdicts(verifier)), _line(phrases.verifier(verifier))]
    return Group(*parts)


def _line(told: str, style: str = "") -> Text:
    return Text(text.visible(told), style=style, overflow="fold")


def _overview(summary: Summary) -> Table:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="bold", no_wrap=True)
    grid.add_column(overflow="fold")
    for label, told in _facts(summary):
        grid.add_row(_line(label), _line(told))
    return grid


def _facts(summary: Summary) -> Iterator[tuple[str, str]]:
    lives = "1 runner" if summary.lives == 1 else f"{summary.lives} runners"
    times = f"started {text.instant(summary.started_at)}, {text.span(summary.wall_s)} in {lives}"
    yield "Run", f"{summary.run}, {times}; newest event {text.instant(summary.ending.at)}"
    yield from _best(summary)
    decided = sum(summary.decisions.values())
    yield "Decisions", f"{decided}: {text.words(summary.decisions)}"
    if summary.causes:
        yield "Fallback", f"because of: {text.words(summary.causes)}"
    yield "Jobs", f"{sum(summary.jobs.values())}: {text.words(summary.jobs)}"
    if summary.held:
        yield "Held", text.words(summary.held)
    yield from _node_hours(summary)
    yield from _slots(summary)
    if summary.failures:
        yield "Failures", text.words(summary.failures)


def _best(summary: Summary) -> Iterator[tuple[str, str]]:
    best = summary.best
    if best is None:
        yield "Best", "no feasible result"
        return
    yield "Best", f"{best.objective} = {best.value:.6g}, {phrases.origin(best)}"
    candidate = phrases.measured(best.candidate, best.units)
    told = ", ".join(f"{name} = {value}" for name, value in candidate.items())
    yield "", f"{best.job} (D{best.decision}): {told}"


def _node_hours(summary: Summary) -> Iterator[tuple[str, str]]:
    spent = summary.node_h
    told = f"{text.hours(spent.charged)} charged of {text.hours(spent.granted)} granted"
    left = f"{text.hours(spent.reserved)} reserved, {text.hours(spent.free)} free"
    yield "Node-hours", f"{told}; {left}; verifiers {text.hours(spent.verifiers)}"
    if spent.by_outcome:
        parts = {"model": spent.model, "surrogate": spent.surrogate} | dict(spent.by_outcome)
        each = (f"{text.plain_word(word)} {text.hours(part)}" for word, part in parts.items())
        yield "", ", ".join(each)


def _slots(summary: Summary) -> Iterator[tuple[str, str]]:
    slots = summary.slots
    if slots.busy_share is None:
        return
    yield "Slots", f"{slots.slots}, busy {text.share(slots.busy_share)} of the time"
    if slots.gaps:
        gaps = (f"slot {gap.slot}: {text.span(gap.length_s)}" for gap in slots.gaps)
        yield "", f"longest idle: {', '.join(gaps)}"


def _checks(checks: Iterable[CheckCount]) -> Table:
    table = _table("Check", "", "rejected", "of", "", "most frequent reasons (# is a number)")
    for check in checks:
        rate = text.share(check.rejected / check.judged)
        told = (
            f"{reason.count} x {text.clipped(reason.template, REASON)}"
            for reason in check.reasons[:REASONS]
        )
        table.add_row(
            _line(check.name),
            check.kind,
            str(check.rejected),
            str(check.judged),
            rate,
            Text("\n".join(told), overflow="fold"),
        )
    return table


def _asks(summary: Summary) -> Table:
    table = _table("Attempt", "", "accepted", "of", "", "95 % interval")
    for ask in summary.asks:
        rate = text.share(ask.accepted / ask.asked)
        interval = f"{ask.low:.0%} to {ask.high:.0%}"
        table.add_row(str(ask.attempt), "", str(ask.accepted), str(ask.asked), rate, interval)
    return table


def _table(*head: str) -> Table:
    """Return a table with words, a kind, three numbers and words again."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    *front, last = head
    for name, right in zip(front, (False, False, True, True, True), strict=True):
        table.add_column(name, justify="right" if right else "left", no_wrap=right)
    table.add_column(last, overflow="fold", ratio=1)
    return table
