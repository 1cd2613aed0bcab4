"""A schema with smaller ranges, for bounds that a run has learned.

Every range stays where it is or gets smaller, and stays one that xgrammar can write.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any

from .schema import MIN_WIDTH, STEP, PortableSchema, Shift, exact

Ranges = Mapping[str, tuple[float, float]]
"""Smallest and largest value by variable, in the campaign's own units."""


def narrowed(asked: PortableSchema, ranges: Ranges) -> PortableSchema:
    """Return the schema with smaller ranges for variables of a candidate.

    A range that would become too small to be written stays as it is, and so does a variable that
    is no number in the schema.

    Args:
        asked: Schema of a candidate, or of a proposal.
        ranges: The ranges learned.
    """
    properties = asked.schema.get("properties", {})
    within = properties.get("candidates", {})
    if within.get("type") != "array":
        return replace(asked, schema=_object(asked.schema, asked.shift, ranges))
    shift = asked.shift.get("candidates") if isinstance(asked.shift, Mapping) else None
    inner = shift[0] if isinstance(shift, tuple) else None
    items = {**within, "items": _object(within.get("items", {}), inner, ranges)}
    return replace(
        asked, schema={**asked.schema, "properties": {**properties, "candidates": items}}
    )


def _object(node: Mapping[str, Any], shift: Shift | None, ranges: Ranges) -> dict[str, Any]:
    powers = shift if isinstance(shift, Mapping) else {}
    properties = {
        name: _number(inner, powers.get(name), *ranges[name]) if name in ranges else inner
        for name, inner in node.get("properties", {}).items()
    }
    return {**node, "properties": properties}


def _number(
    node: Mapping[str, Any], shift: Shift | None, low: float, high: float
) -> Mapping[str, Any]:
    kind = node.get("type")
    if kind not in {"number", "integer"}:
        return node
    power = shift if isinstance(shift, int) else 0
    step, width = (STEP, MIN_WIDTH) if kind == "number" else (Decimal(1), Decimal(0))
    floor, ceiling = exact(node["minimum"]), exact(node["maximum"])
    # Clipped first: a number far outside has too many digits to be rounded.
    least = min(max(floor, exact(low).scaleb(-power)), ceiling).quantize(step, ROUND_CEILING)
    most = max(min(ceiling, exact(high).scaleb(-power)), floor).quantize(step, ROUND_FLOOR)
    if most - least < width:
        return node
    read = float if kind == "number" else int
    return {**node, "minimum": read(least), "maximum": read(most)}
