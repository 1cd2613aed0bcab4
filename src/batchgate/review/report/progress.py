"""The chart of progress: every result in the order of the jobs' ends, and the best so far."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from .. import text
from ..record import RunRecord
from ..rows import JobRow
from . import svg
from .html import Markup, tag
from .svg import Mark, Scale

_LEFT, _RIGHT, _BOTTOM = 64.0, svg.WIDTH - 12, 300.0
_DECADES = 100.0
"""Ratio of values from which on the axis is logarithmic."""
_MANY = 1000
"""Jobs from which on each is a dot."""
_SHAPES: dict[str, Callable[[float, float], str]] = {
    "model": svg.disc,
    "surrogate": svg.triangle,
}


@dataclass(frozen=True, slots=True)
class _Point:
    """A job in the order of ends.

    Attributes:
        place: From 1.
        charged_node_h: Node-hours charged by all jobs up to it.
        job: The job.
    """

    place: int
    charged_node_h: float
    job: JobRow


def progress(record: RunRecord) -> Markup | None:
    """Draw every result in the order of the jobs' ends, and the best so far.

    Returns:
        `None` while no job has a valid result.
    """
    points = list(_points(record.jobs))
    values = [value_of(record, p.job) for p in points if p.job.values is not None]
    if record.spec is None or not values:
        return None
    objective, minimise = record.spec.objective
    x = Scale(0, max(len(points), 2), _LEFT, _RIGHT)
    y = values_scale(values, Scale(0, 1, _BOTTOM - 16, 48), minimise=minimise)
    axis = f"{objective}, {'lower' if minimise else 'higher'} is better"
    return svg.chart(
        _BOTTOM + 60,
        f"{axis}: every result in the order of the jobs' ends, and the best so far",
        svg.y_axis(y, _LEFT, _RIGHT, axis),
        svg.x_axis(
            x,
            _BOTTOM,
            "jobs ended, and the node-hours (h) they had charged by then",
            ticks=[tick for tick in x.ticks(8) if tick == int(tick)],
            label=lambda tick: f"{tick:g}\n{text.hours(_charged(points, int(tick)))} h",
        ),
        svg.marks(
            [_result_mark(record, point, x, y, many=len(points) > _MANY) for point in points]
        ),
        _best_line(record, points, x, y, minimise=minimise),
        svg.legend(
            _LEFT,
            ("model", svg.disc, "model"),
            ("surrogate", svg.triangle, "surrogate"),
            ("model hollow", svg.disc, "hollow: infeasible"),
            ("bad stroke", svg.cross, "no valid result"),
            ("best", lambda x, y: f"M{x - 8:.1f} {y:.1f}h16", "best feasible so far"),
        ),
    )


def _points(jobs: Iterable[JobRow]) -> Iterator[_Point]:
    ended = [job for job in jobs if job.settled_at is not None]
    charged_node_h = 0.0
    for place, job in enumerate(sorted(ended, key=lambda job: job.settled_at or 0.0), start=1):
        charged_node_h += job.charged_node_h
        yield _Point(place, charged_node_h, job)


def value_of(record: RunRecord, job: JobRow) -> float:
    """Return the objective that a job with a valid result found."""
    assert record.spec is not None
    assert job.values is not None
    return job.values[record.spec.objective[0]]


def _charged(points: Sequence[_Point], place: int) -> float:
    return points[min(place, len(points)) - 1].charged_node_h if place else 0.0


def values_scale(values: Sequence[float], pixels: Scale, *, minimise: bool) -> Scale:
    """Choose the vertical axis: whole at the better end, without far outliers at the other."""
    low, high = min(values), max(values)
    if low > 0 and high / low >= _DECADES:
        return Scale(low / 1.2, high * 1.2, pixels.start, pixels.end, log=True)
    ordered = sorted(values)
    one, three = ordered[len(ordered) // 4], ordered[-1 - len(ordered) // 4]
    # Tukey's outer fences: what lies beyond would squeeze all the others into a line.
    reach = 3 * (three - one)
    if reach and minimise:
        high = min(high, three + reach)
    elif reach:
        low = max(low, one - reach)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 0.5
    return Scale(low - room, high + room, pixels.start, pixels.end)


def _best_line(
    record: RunRecord, points: Iterable[_Point], x: Scale, y: Scale, *, minimise: bool
) -> Markup | str:
    best: float | None = None
    path = ""
    for point in points:
        if not point.job.feasible:
            continue
        value = value_of(record, point.job)
        if best is not None and (value >= best if minimise else value <= best):
            continue
        at, height = f"{x(point.place):.1f}", f"{y(value):.1f}"
        path += f"H{at}V{height}" if path else f"M{at} {height}"
        best = value
    return tag("path", class_="best", d=f"{path}H{_RIGHT:.1f}") if path else ""


def _result_mark(record: RunRecord, point: _Point, x: Scale, y: Scale, *, many: bool) -> Mark:
    job = point.job
    name = f"{job.job} (D{job.decision})"
    at = x(point.place)
    if job.values is None:
        title = f"{name}: {text.plain_word(job.outcome)}"
        if many:
            return Mark("dots bad", svg.dot(at, _BOTTOM - 6), title)
        return Mark("bad stroke", svg.cross(at, _BOTTOM - 6), title)
    source, value = job.source, value_of(record, job)
    class_ = source if job.feasible else f"{source} hollow"
    beyond = "" if y.low <= value <= y.high else ", off the scale"
    title = f"{name}: {value:.6g}{'' if job.feasible else ', infeasible'}{beyond}"
    if many:
        return Mark(f"dots {class_}", svg.dot(at, y(value)), title)
    return Mark(class_, _SHAPES[source](at, y(value)), title)
