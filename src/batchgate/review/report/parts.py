"""The parts that sections are built of: tables, figures, links, lists of facts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from . import svg
from .html import Content, Markup, tag


def quiet(sentence: str) -> Markup:
    """Return a remark."""
    return tag("p", sentence, class_="quiet")


def figure(chart: Markup) -> Markup:
    """Return a chart in a box of its own, in which a narrow screen scrolls it."""
    return tag("figure", chart, tabindex=0)


def pairs(told: Mapping[str, str]) -> Markup:
    """Return names with their values, side by side."""
    found = (tag("div", tag("dt", name), tag("dd", value)) for name, value in told.items())
    return tag("dl", found, class_="facts")


def row(*blocks: Content) -> Markup:
    """Return blocks side by side, where there is room."""
    return tag("div", *blocks, class_="row")


def table(head: Sequence[str], rows: Iterable[Sequence[Content]], caption: str = "") -> Markup:
    """Return a table; the first cell names its row, and a cell of `Markup` is whole already.

    A column whose cells are numbers has its head on the right as well.
    """
    found = [list(row) for row in rows]
    right = [bool(found) and _is_number(cell) for cell in (found[0] if found else head)]
    whole = tag(
        "table",
        tag("caption", caption) if caption else "",
        tag(
            "thead",
            tag(
                "tr",
                [
                    tag("th", name, scope="col", class_="number" if number else None)
                    for name, number in zip(head, right, strict=True)
                ],
            ),
        ),
        tag("tbody", [tag("tr", _cells(row)) for row in found]),
    )
    return tag("div", whole, class_="scroll", tabindex=0)


def number(told: str) -> Markup:
    """Return a cell with a number in words."""
    return tag("td", told, class_="number")


def unbroken(told: str) -> Markup:
    """Return a cell that stays on one line."""
    return tag("td", told, class_="nowrap")


def place(decision: int | None, attempt: int | None = None) -> Content:
    """Return a link to the lines of a decision in the table of attempts; `-` for none."""
    if not decision:
        return "-"
    name = f"D{decision}.{attempt}" if attempt else f"D{decision}"
    return tag("a", name, href=f"#decision={decision}")


def key(class_: str) -> Markup:
    """Return the mark by which a table explains a colour of the chart above it."""
    shape = tag("path", class_=class_, d=svg.box(0.5, 0.5, 13, 9))
    return tag("svg", shape, viewBox="0 0 14 10", class_="key", aria_hidden="true")


def _is_number(cell: Content) -> bool:
    return isinstance(cell, int) or (isinstance(cell, Markup) and 'class="number' in cell[:40])


def _cells(row: Sequence[Content]) -> Iterator[Content]:
    first, *others = row
    yield tag("th", first, scope="row")
    for cell in others:
        if isinstance(cell, Markup) and cell.startswith("<td"):
            yield cell
        else:
            yield tag("td", cell, class_="number" if isinstance(cell, int) else None)
