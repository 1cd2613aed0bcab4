"""Decides which of a model's proposals may become expensive HPC jobs.

`accept` asks a producer until a value passes every check, or takes a fallback. A `Campaign`
describes what an unattended run proposes, checks and launches; `load` reads one from its folder.
Importing this package needs pydantic and the OpenTelemetry API, and nothing else.
"""

from typing import TYPE_CHECKING, Any

from .accept import accept, accept_sync, judge
from .checks import Check, as_check, check
from .decision import (
    Attempt,
    Fail,
    Rejected,
    Ruling,
    Verdict,
    feedback_of,
)
from .outcome import NotAccepted, Outcome, attempts_of
from .record import Record

if TYPE_CHECKING:
    from .campaign import Campaign, Proposal, load

__version__ = "0.1.0"

__all__ = [
    "Attempt",
    "Campaign",
    "Check",
    "Fail",
    "NotAccepted",
    "Outcome",
    "Proposal",
    "Record",
    "Rejected",
    "Ruling",
    "Verdict",
    "__version__",
    "accept",
    "accept_sync",
    "as_check",
    "attempts_of",
    "check",
    "feedback_of",
    "judge",
    "load",
]

if not TYPE_CHECKING:  # A type checker would take any name for one of ours.

    def __getattr__(name: str) -> Any:
        # Late, since the campaign's models take longer to import than all the rest, and a worker
        # process that runs a verifier needs none of them.
        if name in {"Campaign", "Proposal", "load"}:
            from . import campaign

            return getattr(campaign, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
