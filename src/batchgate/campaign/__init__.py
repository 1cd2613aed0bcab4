"""What a user writes: the search space, the checks, the fidelity ladder, when to stop.

A campaign is a folder with `campaign.toml` (data), `campaign.py` (plain functions) and
`prompt.md` (the domain's context for the model). Nothing here runs one.
"""

from .constraint import Constraint, breaches, unmet
from .load import BoundCheck, Campaign, explain, load
from .observation import Observation
from .space import Candidate, Proposal, Space, Value, Variable
from .spec import (
    About,
    Ask,
    CampaignSpec,
    CheckUse,
    Duplicates,
    Failure,
    Fallback,
    Level,
    Resources,
    Stop,
)

__all__ = [
    "About",
    "Ask",
    "BoundCheck",
    "Campaign",
    "CampaignSpec",
    "Candidate",
    "CheckUse",
    "Constraint",
    "Duplicates",
    "Failure",
    "Fallback",
    "Level",
    "Observation",
    "Proposal",
    "Resources",
    "Space",
    "Stop",
    "Value",
    "Variable",
    "breaches",
    "explain",
    "load",
    "unmet",
]
