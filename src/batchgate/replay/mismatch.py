"""Where a record and its replay disagree."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ..events import Event
from ..plain import shown

Kind = Literal[
    "campaign",
    "proposal",
    "check",
    "verdict",
    "reason",
    "unsteady",
    "loop",
    "launch",
    "job",
    "result",
    "stop",
]
"""What disagrees.

`campaign`: the recorded campaign with its own digest or name. `proposal`: a proposal is none.
`check`: a check was left out, ran in another place, or broke where it does not now, or the other
way round. `verdict`: a check says yes where the record says no, or the other way round. `reason`:
the verdict is the same, and its reasons, candidates or other fields are not. `unsteady`: a check
that is judged twice now says two things. `loop`: attempts, dispositions and what a decision let
through. `launch`: a job that the runner would not have planned so. `job`: a job's end or charge.
`result`: a result's verdict or values. `stop`: the end of the run, and what it left over.
"""

MAX_SHOWN = 120
"""Longest value in a sentence."""

Problem = tuple[Kind, str]
"""A kind of disagreement, and a sentence for people."""
Problems = Iterator[Problem]


@dataclass(frozen=True, slots=True)
class Mismatch:
    """One thing that the record says and the replay does not.

    Attributes:
        kind: What kind of thing.
        where: Line of the ledger, as `0001.jsonl:17`.
        event: Type of the event in that line.
        message: One sentence for people.
    """

    kind: Kind
    where: str
    event: str
    message: str


def differences(
    recorded: Event, due: Event, *, free: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Tell each field in which two events differ.

    Args:
        recorded: What the record has.
        due: What the replay would write, an event of the same type.
        free: Fields that nothing can work out anew, times and the like.
    """
    for name, value in recorded:
        wanted = getattr(due, name)
        if name not in free and value != wanted:
            yield f"{name} is {shown(value, MAX_SHOWN)}, must be {shown(wanted, MAX_SHOWN)}"
