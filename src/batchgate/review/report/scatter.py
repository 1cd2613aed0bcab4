"""The chart of a verifier's measurements beside the job's: how well the cheap one tells the dear one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from ..record import RunRecord
from ..stats import number
from . import svg
from .html import Markup, tag
from .svg import Mark, Scale

MAX_CHARTS = 3
"""Charts that are drawn: verifiers times what they and the job both measure can be many."""
_LEFT, _RIGHT, _TOP, _BOTTOM = 64.0, 560.0, 48.0, 300.0
_DECADES = 100.0
_MANY = 1000
"""Pairs from which on each is a dot."""
_Pair = tuple[float, float, bool, str]
"""The verifier's value, the job's, whether the job's result is feasible, a name."""


def scatters(record: RunRecord) -> Iterator[Markup]:
    """Yield a chart for each observable that a verifier and the job both measure."""
    found: defaultdict[tuple[str, str], list[_Pair]] = defaultdict(list)
    for pair in record.pairs:
        for name, value in pair.values.items():
            if (cheap := number(pair.observables.get(name))) is not None:
                told = f"D{pair.decision}.{pair.attempt}"
                found[pair.verifier, name].append((cheap, value, bool(pair.good), told))
    for (verifier, name), both in list(found.items())[:MAX_CHARTS]:
        yield _scatter(verifier, name, both)


def _scatter(verifier: str, name: str, both: Sequence[_Pair]) -> Markup:
    every = [value for cheap, dear, *_ in both for value in (cheap, dear)]
    log = min(every) > 0 and max(every) / min(every) >= _DECADES
    x = _scale([cheap for cheap, *_ in both], _LEFT, _RIGHT, log=log)
    y = _scale([dear for _, dear, *_ in both], _BOTTOM, _TOP, log=log)
    return svg.chart(
        _BOTTOM + 46,
        f"{name} as {verifier} measured it, and as the job did",
        svg.y_axis(y, _LEFT, _RIGHT, f"{name}, the job"),
        svg.x_axis(x, _BOTTOM, f"{name}, {verifier}", ticks=x.ticks(6), label=x.label),
        _equal(x, y),
        svg.marks([_mark(pair, x, y, many=len(both) > _MANY) for pair in both]),
        svg.legend(
            _LEFT,
            ("done", svg.disc, "job feasible"),
            ("bad stroke", svg.cross, "not feasible"),
            ("equal", lambda x, y: f"M{x - 8:.1f} {y:.1f}h16", "both the same"),
        ),
    )


def _scale(values: Sequence[float], start: float, end: float, *, log: bool) -> Scale:
    low, high = min(values), max(values)
    if log:
        return Scale(low / 1.2, high * 1.2, start, end, log=True)
    room = (high - low) * 0.05 or abs(high) * 0.05 or 0.5
    return Scale(low - room, high + room, start, end)


def _equal(x: Scale, y: Scale) -> Markup | str:
    """Draw where both would say the same, as far as both axes go."""
    low, high = max(x.low, y.low), min(x.high, y.high)
    if not low < high:
        return ""
    line = f"M{x(low):.1f} {y(low):.1f}L{x(high):.1f} {y(high):.1f}"
    return tag("path", class_="equal", d=line)


def _mark(pair: _Pair, x: Scale, y: Scale, *, many: bool) -> Mark:
    cheap, dear, good, name = pair
    if many:
        return Mark("dots done" if good else "dots bad", svg.dot(x(cheap), y(dear)), name)
    shape = (svg.disc if good else svg.cross)(x(cheap), y(dear), 3.5)
    title = f"{name}: {cheap:.6g} and {dear:.6g}{'' if good else ', not feasible'}"
    return Mark("done" if good else "bad stroke", shape, title)
