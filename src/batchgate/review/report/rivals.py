"""The chart of rivals: how good the model's candidates and the surrogate's got for their node-hours."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .. import text
from ..record import RunRecord
from ..rows import JobRow
from . import svg
from .html import Markup, tag
from .progress import value_of, values_scale
from .svg import Scale

_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, svg.WIDTH - 12, 48.0, 230.0
_SOURCES = ("model", "surrogate")


@dataclass(frozen=True, slots=True)
class _Course:
    """How one source went.

    Attributes:
        source: `model` or `surrogate`.
        node_h: What its jobs were charged in all.
        steps: Node-hours charged and best feasible value, at each improvement.
    """

    source: str
    node_h: float
    steps: tuple[tuple[float, float], ...]


def rivals(record: RunRecord) -> Markup | None:
    """Draw the best feasible value of each source over the node-hours that its own jobs took.

    Returns:
        `None` unless both have a feasible result: there is nothing to compare.
    """
    if record.spec is None:
        return None
    courses = [_course(record, source) for source in _SOURCES]
    if not all(course.steps for course in courses):
        return None
    objective, minimise = record.spec.objective
    values = [value for course in courses for _, value in course.steps]
    x = Scale(0, max(course.node_h for course in courses) or 1.0, _LEFT, _RIGHT)
    y = values_scale(values, Scale(0, 1, _BOTTOM - 8, _TOP), minimise=minimise)
    return svg.chart(
        _BOTTOM + 46,
        f"Best feasible {objective} of the model and of the surrogate over their own node-hours",
        svg.y_axis(
            y,
            _LEFT,
            _RIGHT,
            f"best {objective} so far, {'lower' if minimise else 'higher'} is better",
        ),
        svg.x_axis(
            x,
            _BOTTOM,
            "node-hours charged to its own jobs",
            ticks=x.ticks(8),
            label=lambda tick: f"{text.hours(tick)} h",
        ),
        [_line(course, x, y) for course in courses],
        svg.legend(
            _LEFT,
            *((f"course {course.source}", _dash, _told(course)) for course in courses),
        ),
    )


def _course(record: RunRecord, source: str) -> _Course:
    assert record.spec is not None
    _, minimise = record.spec.objective
    charged_node_h, best, steps = 0.0, None, []
    for job in _ended(record.jobs, source):
        charged_node_h += job.charged_node_h
        if not job.feasible:
            continue
        value = value_of(record, job)
        if best is None or (value < best if minimise else value > best):
            best = value
            steps.append((charged_node_h, value))
    return _Course(source, charged_node_h, tuple(steps))


def _ended(jobs: Iterable[JobRow], source: str) -> Sequence[JobRow]:
    # Audits are rejected candidates that are run to learn from them: nobody's choice.
    mine = (j for j in jobs if j.source == source and not j.audited and j.settled_at is not None)
    return sorted(mine, key=lambda job: job.settled_at or 0.0)


def _line(course: _Course, x: Scale, y: Scale) -> Markup:
    path = ""
    for node_h, value in course.steps:
        at, height = f"{x(node_h):.1f}", f"{y(value):.1f}"
        path += f"H{at}V{height}" if path else f"M{at} {height}"
    return tag("path", class_=f"course {course.source}", d=f"{path}H{x(course.node_h):.1f}")


def _dash(x: float, y: float) -> str:
    return f"M{x - 8:.1f} {y:.1f}h16"


def _told(course: _Course) -> str:
    return f"{course.source}: {course.steps[-1][1]:.6g} for {text.hours(course.node_h)} node-hours"
