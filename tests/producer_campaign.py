"""A campaign, and attempts at it, for the tests of the producer."""

from __future__ import annotations

from typing import Any

from batchgate.campaign import Campaign, Proposal
from batchgate.decision import Attempt

GOOD = '{"gap":0.75,"layers":3,"phase":"a"}'
"""An answer of one candidate: `gap` is sent in units of 1e-7 m."""


def campaign(*, prompt: str = "", **tables: Any) -> Campaign:
    """Return a campaign with a tiny, a whole and a listed variable."""
    data: dict[str, Any] = {
        "campaign": {"name": "films"},
        "variables": {
            "gap": {"domain": [5e-8, 1e-7], "unit": "m", "about": "Gap between the plates."},
            "layers": {"domain": [1, 9], "integer": True},
            "phase": {"values": ["a", "b"]},
        },
        "objectives": {"energy_ev": "MINIMIZE"},
        "constraints": {"drift": ["LESS_THAN", 1e-6]},
        "level": [{"name": "full", "use": "math:sin", "timeout_s": 60}],
        "producer": {},
        "fallback": {},
        "stop": {"node_h": 10},
    }
    for name, table in tables.items():
        data[name] = {**data[name], **table} if isinstance(data.get(name), dict) else table
    return Campaign.of(data, prompt=prompt)


def proposal(made: Campaign, *gaps: float) -> Proposal:
    """Return a proposal with a candidate for each gap, in metres."""
    points = [{"gap": gap, "layers": 3, "phase": "a"} for gap in gaps]
    return made.proposal_model.model_validate({"candidates": points})


def rejected(value: object, *feedback: str, index: int = 1) -> Attempt[Any]:
    """Return a rejected attempt."""
    return Attempt(index, value, (), feedback)
