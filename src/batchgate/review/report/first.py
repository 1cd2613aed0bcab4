"""The section that says where to look first."""

from __future__ import annotations

from collections.abc import Sequence

from .. import text
from ..leads import Lead, Spot
from . import parts
from .html import Content, Markup, tag


def first(found: Sequence[Lead]) -> Content:
    """Show what each rule found, the most important rule first."""
    if not found:
        return parts.quiet("No rule found anything that stands out.")
    rows = [
        (str(rank), lead.rule, lead.count, _spots(lead)) for rank, lead in enumerate(found, start=1)
    ]
    return parts.table(
        ("Rank", "what", "times", "the first of them"),
        rows,
        "Ranked by what not looking could cost. Choose a name to see its attempts.",
    )


def _spots(lead: Lead) -> Markup:
    spots = [tag("div", _spot(spot)) for spot in lead.spots]
    hidden = lead.count - len(spots)
    return tag("td", spots, tag("div", f"and {hidden} more", class_="quiet") if hidden else "")


def _spot(spot: Spot) -> list[Content]:
    return [parts.place(spot.decision, spot.attempt), " ", text.clipped(spot.told, 160)]
