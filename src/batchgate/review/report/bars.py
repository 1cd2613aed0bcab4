"""Charts of bars: the funnel of decisions, and where the node-hours went."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from ...job import JobState
from .. import text
from ..figures import NodeHours
from ..hours import Hours
from ..record import RunRecord
from ..rows import DecisionRow, JobRow
from . import svg
from .html import Markup, tag
from .svg import Mark, Scale

_LEFT, _RIGHT = 170.0, svg.WIDTH - 142


def funnel(record: RunRecord) -> Markup | None:
    """Draw how many decisions got how far, and who was behind them.

    Returns:
        `None` while there is no decision.
    """
    if not record.decisions:
        return None
    stages = list(_stages(record))
    x = Scale(0, len(record.decisions), _LEFT, _RIGHT)
    height = 30.0
    rows: list[Markup] = []
    for place, (label, decisions) in enumerate(stages):
        y = 40 + place * height
        rows.append(svg.words(_LEFT - 8, y + 15, label, class_="tick", anchor="end"))
        rows.append(_funnel_bar(decisions, x, y))
    return svg.chart(
        40 + height * len(stages),
        "Funnel: how many decisions got how far",
        rows,
        svg.legend(
            _LEFT,
            ("model", svg.swatch, "accepted from the model"),
            ("surrogate", svg.swatch, "taken from the surrogate"),
            ("other", svg.swatch, "neither, or still open"),
        ),
    )


def _stages(record: RunRecord) -> Iterator[tuple[str, list[DecisionRow]]]:
    jobs: dict[int, list[JobRow]] = {}
    for job in record.jobs:
        jobs.setdefault(job.decision, []).append(job)

    def with_a_job(holds: Callable[[JobRow], bool]) -> list[DecisionRow]:
        return [d for d in record.decisions if any(map(holds, jobs.get(d.number, ())))]

    yield "opened", list(record.decisions)
    yield "let candidates through", [d for d in record.decisions if d.candidates]
    yield "launched a job", with_a_job(lambda _: True)
    yield "a job completed", with_a_job(lambda job: job.state is JobState.COMPLETED)
    yield "a result is valid", with_a_job(lambda job: job.values is not None)
    yield "a result is feasible", with_a_job(lambda job: job.feasible)


def _funnel_bar(decisions: Sequence[DecisionRow], x: Scale, y: float) -> Markup:
    model = sum(d.disposition == "accepted" for d in decisions)
    surrogate = sum(d.disposition == "fallback" for d in decisions)
    other = len(decisions) - model - surrogate
    at = 0
    found = []
    for class_, count in (("model", model), ("surrogate", surrogate), ("other", other)):
        if count:
            shape = svg.box(x(at), y, x(at + count) - x(at), 20)
            found.append(Mark(class_, shape, f"{count} {class_}"))
        at += count
    parts = [str(count) for count in (model, surrogate, other) if count]
    told = f"{len(decisions)} = {' + '.join(parts)}" if len(parts) > 1 else str(len(decisions))
    return tag("g", svg.marks(found), svg.words(x(at) + 8, y + 15, told, class_="value"))


@dataclass(frozen=True, slots=True)
class Part:
    """What one kind of use took of the node-hours.

    Attributes:
        class_: Class that colours it.
        label: What it is, for people.
        node_h: How much it took.
    """

    class_: str
    label: str
    node_h: float


def parts_of(hours: Hours) -> list[Part]:
    """Return what node-hours went on; what was not billed for is left out."""
    found = [
        *(Part(_ENDS[end], f"jobs {text.plain_word(end)}", h) for end, h in hours.jobs.items()),
        Part("running", "jobs that still run, reserved", hours.running),
        Part("verifying", "verifiers", hours.verifiers),
        Part("serving", "model server", hours.server),
        Part("idle", "idle", hours.idle),
    ]
    return [part for part in found if part.node_h or part.label == "jobs completed"]


_ENDS = {
    "completed": "done",
    "failed": "bad",
    "timed_out": "overdue",
    "lost": "lost",
    "canceled": "other",
}


def bill(hours: Hours) -> Markup | None:
    """Draw on what the billed node-hours went, to scale.

    Returns:
        `None` when nothing was spent.
    """
    found = [part for part in parts_of(hours) if part.class_ != "running"]
    whole = sum(part.node_h for part in found)
    if not whole:
        return None
    x = Scale(0, whole, 0, svg.WIDTH)
    at = 0.0
    marks = []
    for part in found:
        shape = svg.box(x(at), 2, x(at + part.node_h) - x(at), 24)
        marks.append(
            Mark(part.class_, shape, f"{part.label}: {text.hours(part.node_h)} node-hours")
        )
        at += part.node_h
    told = f"{text.hours(whole)} node-hours, by what they went on"
    return svg.chart(28, told, svg.marks(marks))


def grant(figures: NodeHours) -> Markup | None:
    """Draw what of the grant was charged, is reserved and is free, to scale.

    Returns:
        `None` when nothing was granted.
    """
    if figures.granted <= 0:
        return None
    parts = (
        ("model", "model's jobs", figures.model),
        ("surrogate", "surrogate's jobs", figures.surrogate),
        ("running", "reserved", figures.reserved),
        ("idle", "free", max(figures.free, 0.0)),
    )
    x = Scale(0, max(figures.granted, figures.charged + figures.reserved), 0, svg.WIDTH)
    at = 0.0
    found = []
    for class_, label, part in parts:
        if part:
            shape = svg.box(x(at), 34, x(at + part) - x(at), 24)
            found.append(Mark(class_, shape, f"{label}: {text.hours(part)} node-hours"))
        at += part
    told = (
        f"{text.hours(figures.charged)} of {text.hours(figures.granted)} granted node-hours charged"
    )
    return svg.chart(
        64,
        told,
        svg.marks(found),
        svg.legend(
            8, *((class_, svg.swatch, f"{label} {text.hours(p)} h") for class_, label, p in parts)
        ),
    )
