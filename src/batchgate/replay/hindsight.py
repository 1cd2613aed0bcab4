"""The candidates that were known a few events ago.

A check that compares with them has judged at some moment between its attempt's event before and
its own line. What other decisions and jobs wrote in between, it may have seen or not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from ..events import (
    CandidateHeld,
    CheckJudged,
    DecisionMade,
    Event,
    JobEnded,
    JobPlanned,
    ResultAccepted,
    ResultRejected,
)
from ..state import Known, State

EVENTS = 1000
"""Events that are remembered; far more than are written while one check judges."""


@dataclass(slots=True)
class Hindsight:
    """Remembers what the newest events changed. Call `note` before the state takes each.

    Attributes:
        count: Events noted.
    """

    count: int = 0
    _changes: deque[dict[str, Known | None]] = field(default_factory=lambda: deque(maxlen=EVENTS))

    def note(self, event: Event, state: State) -> None:
        """Remember the known candidates that an event is about to change."""
        before = {name: state.known.get(name) for name in _touched(event, state)}
        self._changes.append({name: old and replace(old) for name, old in before.items()})
        self.count += 1

    def since(self, count: int, state: State) -> Iterator[dict[str, Known]]:
        """Yield the known candidates as they were before each event after the `count`-th.

        The newest first; the state itself, as it is now, is not among them.
        """
        known = dict(state.known)
        newest_first = reversed(self._changes)
        for _ in range(min(self.count - count, len(self._changes))):
            changes = next(newest_first)
            for name, old in changes.items():
                if old is not None:
                    known[name] = old
                else:
                    known.pop(name, None)
            if changes:
                yield known


def _touched(event: Event, state: State) -> Iterator[str]:
    match event:
        case CheckJudged():
            yield from event.refused
        case DecisionMade():
            yield from (chosen.fingerprint for chosen in event.candidates)
        case CandidateHeld() | JobPlanned() | ResultAccepted() | ResultRejected():
            yield event.fingerprint
        case JobEnded() if event.job in state.jobs:
            yield state.jobs[event.job].plan.fingerprint
        case _:
            pass
