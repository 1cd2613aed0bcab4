"""The chart of slots over time: who was busy when, and what stood idle."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence

from .. import text
from ..occupancy import Bar, Occupancy
from ..record import RunRecord
from ..rows import JobRow, LifeRow
from . import svg
from .html import Markup, tag
from .svg import Mark, Scale

MAX_LANES = 48
"""Slots that are drawn; a wall of more would not be read."""

DENSE = 400
"""Jobs on a lane up to which each has a bar of its own; two pixels are the least that is seen."""

COLUMN = 4
"""Width of the columns of a lane with more jobs, in pixels."""

_STACKED = ("model", "surrogate", "running", "other", "bad")
"""Kinds of jobs in such a column, from its foot."""
_LEAST = 0.05
"""Least height of a part that is drawn, in pixels: below that nothing is seen."""

_LEFT, _RIGHT = 84.0, svg.WIDTH - 12
_TOP = 34.0
_ROOMY = 16
"""Lanes up to which each is as high as a line of text."""
_UNITS = ((7200.0, 3600.0, "hours"), (120.0, 60.0, "minutes"), (0.0, 1.0, "seconds"))
"""Length from which on a unit is used, in seconds; the unit in seconds; its name."""


_Place = Callable[[float], float]
"""Maps an instant to a pixel."""
_Row = tuple[float, float, str, list[Mark]]
"""Upper edge, height, label and marks of a lane."""


def lanes(record: RunRecord, use: Occupancy[Bar]) -> Markup | None:
    """Draw who was busy when: the model, the verifiers, and every slot.

    Returns:
        `None` before a runner has written anything.
    """
    if not record.lives:
        return None
    start_at = record.lives[0].started_at
    length_s = max(record.lives[-1].ended_at - start_at, 1e-3)
    unit_s, unit = next((size, name) for least, size, name in _UNITS if length_s >= least)
    x = Scale(0, length_s / unit_s, _LEFT, _RIGHT)

    def place(at: float) -> float:
        return x((at - start_at) / unit_s)

    rows = list(_rows(record, use, place))
    bottom = rows[-1][0] + rows[-1][1] + 4
    return svg.chart(
        bottom + 44,
        _title(use),
        [_life(life, place, bottom) for life in record.lives],
        [
            svg.words(_LEFT - 6, y + height / 2 + 4, label, class_="tick", anchor="end")
            for y, height, label, _ in rows
        ],
        svg.marks([mark for *_, marks in rows for mark in marks]),
        svg.x_axis(
            x,
            bottom,
            f"{unit} since {text.instant(start_at)}",
            ticks=x.ticks(8),
            label=lambda tick: f"{tick:g}",
        ),
        svg.legend(
            _LEFT,
            ("model", svg.swatch, "model's job"),
            ("surrogate", svg.swatch, "surrogate's job"),
            ("bad", svg.swatch, "no valid result"),
            ("running", svg.swatch, "running"),
            ("other", svg.swatch, "cancelled"),
            ("idle", svg.swatch, "idle"),
            ("none", svg.swatch, "no runner"),
        ),
    )


def _title(use: Occupancy[Bar]) -> str:
    told = f"Jobs on {len(use.lanes)} slots over time; what is not covered is idle"
    crowded = any(len(lane) > DENSE for lane in use.lanes[:MAX_LANES])
    return f"{told}; in crowded lanes heights are shares of time" if crowded else told


def _life(life: LifeRow, place: _Place, bottom: float) -> Markup:
    start, end = place(life.started_at), place(life.ended_at)
    return tag(
        "rect",
        tag("title", f"life {life.number}: {life.end}"),
        class_="idle",
        x=start,
        y=_TOP,
        width=max(end - start, 1.0),
        height=bottom - _TOP,
    )


def _rows(record: RunRecord, use: Occupancy[Bar], place: _Place) -> Iterator[_Row]:
    """Yield the lanes from top to bottom; labels of thin ones are thinned out."""
    y = _TOP + 5
    for label, spans in (("model", _asking(record)), ("verifiers", _verifying(record))):
        yield y, 14, label, _busy_marks(spans, place, y)
        y += 20
    shown = use.lanes[:MAX_LANES]
    height, every = (16.0, 1) if len(shown) <= _ROOMY else (7.0, 4)
    for number, lane in enumerate(shown):
        label = f"slot {number + 1}" if number % every == 0 else ""
        yield y, height, label, _lane_marks(lane, place, y, height)
        y += height + 3


def _lane_marks(lane: Sequence[Bar], place: _Place, y: float, height: float) -> list[Mark]:
    if len(lane) <= DENSE:
        return [_bar_mark(bar, place, y, height) for bar in lane]
    return list(_share_marks(lane, place, y, height))


def _share_marks(lane: Iterable[Bar], place: _Place, y: float, height: float) -> Iterator[Mark]:
    """Draw columns of a crowded lane, each as high as the share of its time for every kind of job.

    Bars of a pixel's width would hide what is frequent under what is rare and drawn last.
    """
    columns: defaultdict[int, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
    for bar in lane:
        start, end, class_ = place(bar.start_at), place(bar.end_at), _bar_class(bar.job)
        for column in range(int(start // COLUMN), int(end // COLUMN) + 1):
            left = column * COLUMN
            columns[column][class_] += min(end, left + COLUMN) - max(start, left)
    for column, shares in columns.items():
        bottom = y + height
        for class_ in _STACKED:
            part = height * shares[class_] / COLUMN
            if part >= _LEAST:
                bottom -= part
                yield Mark(class_, svg.box(column * COLUMN, bottom, COLUMN, part), class_)


def _asking(record: RunRecord) -> Iterator[tuple[float, float]]:
    for attempt in record.attempts:
        if attempt.answer_s:
            end_at = attempt.started_at + attempt.answer_s
        else:  # it never answered, or has not yet
            end_at = record.state.updated_at if attempt.outcome == "open" else attempt.ended_at
        yield attempt.started_at, end_at


def _verifying(record: RunRecord) -> Iterator[tuple[float, float]]:
    # Verifiers cost most and so come last: the attempt ends with the last one's verdict.
    for attempt in record.attempts:
        if elapsed_s := sum(check.elapsed_s for check in attempt.checks if check.verifier):
            yield attempt.ended_at - elapsed_s, attempt.ended_at


def _busy_marks(
    spans: Iterable[tuple[float, float]],
    place: _Place,
    y: float,
) -> list[Mark]:
    """Draw the union of time spans, in pixels: what touches is one."""
    merged: list[tuple[float, float]] = []
    for start, end in sorted((place(start), place(end)) for start, end in spans):
        if merged and start <= merged[-1][1] + 0.5:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return [
        Mark("busy", svg.box(start, y, max(end - start, 0.7), 14), "busy") for start, end in merged
    ]


def _bar_mark(bar: Bar, place: _Place, y: float, height: float) -> Mark:
    job = bar.job
    start, end = place(bar.start_at), place(bar.end_at)
    outcome = text.plain_word(job.outcome)
    title = f"{job.job} (D{job.decision}): {outcome} after {text.span(bar.end_at - bar.start_at)}"
    # A little shorter than true, so that two jobs in a row are two bars.
    return Mark(_bar_class(job), svg.box(start, y, max(end - start - 0.6, 0.7), height), title)


def _bar_class(job: JobRow) -> str:
    if job.outcome == "running":
        return "running"
    if job.outcome == "canceled":  # the run was suspended; the candidate runs again
        return "other"
    return "bad" if job.values is None and job.outcome != "unjudged" else job.source
