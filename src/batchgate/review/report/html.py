"""HTML and SVG as strings that cannot be broken by what is put into them.

`tag` escapes every text and attribute it is given, after making hidden characters visible. Only
`Markup`, which `tag` itself returns, goes in as it is.
"""

from __future__ import annotations

import html
from collections.abc import Iterable

from ..text import visible

_VOID = {"meta", "input", "br", "hr"}

Attribute = str | int | float | bool | None


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | int | Iterable["Content"]


def escaped(text: str) -> Markup:
    """Return text as HTML that shows it, and does nothing else."""
    return Markup(html.escape(visible(text)))


def tag(name: str, /, *content: Content, **attributes: Attribute) -> Markup:
    """Return an element.

    Args:
        name: Its name.
        content: Markup, text, numbers, or iterables of them.
        attributes: `class_` is `class`, `aria_label` is `aria-label`. `None` and `False` leave
            an attribute out, `True` sets it without a value. Floats are written with one digit:
            they are coordinates in pixels.
    """
    opening = f"<{name}{''.join(_attribute(k, v) for k, v in attributes.items())}>"
    if name in _VOID:
        return Markup(opening)
    return Markup(f"{opening}{joined(*content)}</{name}>")


def joined(*content: Content) -> Markup:
    """Return contents one after the other."""
    return Markup("".join(map(_rendered, content)))


def _rendered(content: Content) -> str:
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return escaped(content)
    if isinstance(content, int):
        return str(content)
    return joined(*content)


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    if value is True:
        return f" {name}"
    if isinstance(value, float):
        return f' {name}="{pixel(value)}"'
    return f' {name}="{escaped(str(value))}"'


def pixel(value: float) -> str:
    """Return a coordinate with at most one digit behind the point: smaller than the eye sees."""
    return f"{value:.1f}".removesuffix(".0")
