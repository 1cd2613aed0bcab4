"""What was proposed: the candidates in a model's answer, and what makes two of them the same."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..campaign import Space
from ..events import Plain


def identity_of(proposal: Plain) -> str:
    """Return canonical JSON of what was proposed; see `AttemptRow.identity`."""
    return json.dumps(candidates_of(proposal) or proposal, sort_keys=True)


def candidates_of(proposal: Plain) -> tuple[Mapping[str, Any], ...]:
    """Return a proposal's candidates; empty when the value is not shaped like a proposal."""
    found = proposal.get("candidates") if isinstance(proposal, Mapping) else None
    if not isinstance(found, (list, tuple)):
        return ()
    return tuple(candidate for candidate in found if isinstance(candidate, Mapping))


def fingerprint_of(space: Space, candidate: Mapping[str, Any]) -> str:
    """Return a candidate's identity; empty when it has none in this space."""
    # A campaign's own proposal model may let values through that are none of the space's.
    try:
        return space.fingerprint(candidate)
    except (LookupError, TypeError, ValueError):
        return ""
