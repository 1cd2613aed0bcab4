"""Axes and scales for charts that are SVG strings.

Colours come from the page's style sheet by class, so that light, dark and print have their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from .html import Content, Markup, joined, pixel, tag

WIDTH = 880.0
"""Width of every chart, in its own units; the page scales it."""
_ENOUGH_TICKS = 3
_PLAIN = 1e-4
MAX_TITLES = 600
"""Marks up to which each has its title."""


@dataclass(frozen=True, slots=True)
class Scale:
    """Maps values to pixels.

    Attributes:
        low: Value at `start`.
        high: Value at `end`, above `low`.
        start: Pixel of `low`.
        end: Pixel of `high`.
        log: Whether pixels follow the logarithm; `low` must be above 0 then.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Return the pixel of a value; values beyond the ends stay at the ends."""
        low, high = self.low, self.high
        value = min(max(value, low), high)
        if self.log:
            low, high, value = math.log(low), math.log(high), math.log(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self, count: int = 5) -> list[float]:
        """Return about `count` round values within the scale."""
        if self.log:
            return log_ticks(self.low, self.high)
        step = round_step((self.high - self.low) / count)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return [i * step for i in range(first, last + 1)]

    def label(self, tick: float) -> str:
        """Return a tick's value with as many digits as tell it from the next one."""
        ticks = self.ticks()
        if self.log or len(ticks) < _ENOUGH_TICKS:
            return f"{tick:g}"
        largest = max(map(abs, ticks))
        digits = math.floor(math.log10(largest)) - math.floor(math.log10(ticks[1] - ticks[0]))
        told = f"{tick:.{digits + 1}g}"
        return f"{tick:g}" if "e" in told and _PLAIN <= abs(tick) < 1 / _PLAIN else told


def round_step(step: float) -> float:
    """Return 1, 2 or 5 times a power of ten, at least `step`."""
    power = math.pow(10, math.floor(math.log10(step)))
    return next(power * m for m in (1.0, 2.0, 5.0, 10.0) if power * m >= step * (1 - 1e-9))


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten in between; where these are few, 2 and 5 times them too."""
    exponents = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    powers = [math.pow(10, exponent) for exponent in exponents]
    found = [power for power in powers if low <= power <= high]
    if len(found) >= _ENOUGH_TICKS:
        return found
    return [m * power for power in powers for m in (1.0, 2.0, 5.0) if low <= m * power <= high]


def chart(height: float, label: str, *content: Content) -> Markup:
    """Return a whole chart.

    Args:
        height: In the units of `WIDTH`.
        label: What it shows, for people who do not see it.
        content: Its marks.
    """
    return tag(
        "svg",
        *content,
        viewBox=f"0 0 {pixel(WIDTH)} {pixel(height)}",
        role="img",
        aria_label=label,
    )


@dataclass(frozen=True, slots=True)
class Mark:
    """One mark of a chart.

    Attributes:
        class_: Class that colours it.
        path: Its outline, as `d` of a path.
        title: What it stands for, shown under the pointer.
    """

    class_: str
    path: str
    title: str


def marks(found: Sequence[Mark]) -> Markup:
    """Return marks, with their titles while there are few enough to point at.

    Many marks become one path for each class: 10,000 bars take 0.25 MB instead of 1.2 MB.
    """
    if len(found) <= MAX_TITLES:
        return joined(tag("path", tag("title", m.title), class_=m.class_, d=m.path) for m in found)
    paths: dict[str, dict[str, None]] = {}
    for mark in found:
        paths.setdefault(mark.class_, {})[mark.path] = None
    return joined(tag("path", class_=class_, d="".join(each)) for class_, each in paths.items())


def box(x: float, y: float, width: float, height: float) -> str:
    """Return the outline of a box."""
    return f"M{pixel(x)} {pixel(y)}h{pixel(width)}v{pixel(height)}h{pixel(-width)}z"


def disc(x: float, y: float, radius: float = 4.0) -> str:
    """Return the outline of a disc."""
    r = pixel(radius)
    half = f"a{r} {r} 0 0 1 {pixel(2 * radius)} 0a{r} {r} 0 0 1 {pixel(-2 * radius)} 0"
    return f"M{pixel(x - radius)} {pixel(y)}{half}z"


def triangle(x: float, y: float, radius: float = 4.0) -> str:
    """Return the outline of a triangle that points up."""
    half, height = radius * 1.15, radius * 2
    start = f"M{pixel(x - half)} {pixel(y + height * 0.4)}"
    return f"{start}h{pixel(2 * half)}l{pixel(-half)} {pixel(-height)}z"


def dot(x: float, y: float) -> str:
    """Return a dot, whose size is that of the stroke, in whole pixels: one of very many."""
    return f"M{x:.0f} {y:.0f}h0"


def swatch(x: float, y: float) -> str:
    """Return the outline of a legend's box around a point."""
    return box(x - 7, y - 5, 14, 10)


def cross(x: float, y: float, radius: float = 4.0) -> str:
    """Return the strokes of a cross."""
    r, side = radius * 0.75, pixel(radius * 1.5)
    return (
        f"M{pixel(x - r)} {pixel(y - r)}l{side} {side}M{pixel(x - r)} {pixel(y + r)}l{side} -{side}"
    )


def words(x: float, y: float, text: str, *, class_: str = "", anchor: str = "start") -> Markup:
    """Return a line of text."""
    return tag("text", text, x=x, y=y, class_=class_ or None, text_anchor=anchor)


def x_axis(
    scale: Scale, y: float, title: str, *, ticks: Sequence[float], label: Callable[[float], str]
) -> Markup:
    """Return a horizontal axis below a plot whose lower edge is at `y`.

    A label may have several lines.
    """
    lines = 1 + max((label(tick).count("\n") for tick in ticks), default=0)
    found = [
        (
            tag("line", x1=scale(tick), x2=scale(tick), y1=y, y2=y + 4, class_="axis"),
            [
                words(scale(tick), y + 17 + 14 * i, line, class_="tick", anchor="middle")
                for i, line in enumerate(label(tick).split("\n"))
            ],
        )
        for tick in ticks
    ]
    line = tag("line", x1=scale.start, x2=scale.end, y1=y, y2=y, class_="axis")
    middle = (scale.start + scale.end) / 2
    return tag(
        "g",
        line,
        found,
        words(middle, y + 20 + 14 * lines + 4, title, class_="label", anchor="middle"),
    )


def y_axis(scale: Scale, left: float, right: float, title: str) -> Markup:
    """Return a vertical axis with grid lines from `left` to `right`."""
    found = [
        (
            tag("line", x1=left, x2=right, y1=scale(tick), y2=scale(tick), class_="grid"),
            words(left - 6, scale(tick) + 4, scale.label(tick), class_="tick", anchor="end"),
        )
        for tick in scale.ticks()
    ]
    return tag("g", found, words(left - 48, scale.end - 10, title, class_="label"))


def legend(left: float, *entries: tuple[str, Callable[[float, float], str], str]) -> Markup:
    """Return a legend along the upper edge: class, shape and words of each entry."""
    at = left
    found = []
    for class_, shape, label in entries:
        found.append(tag("path", class_=class_, d=shape(at, 12)))
        found.append(words(at + 12, 16, label, class_="tick"))
        at += 36 + 6.4 * len(label)
    return tag("g", found)
