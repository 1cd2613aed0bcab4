"""Events go in here, and nowhere else: to the ledger first, then into the state, then to people.

The state is never changed but by an event that the ledger took; so what a resumed run folds is
what this run knew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..events import Entry, Event
from ..ledger import Appended, Ledger, read
from ..state import State

Observer = Callable[[Entry, State], None]
"""Told of every event once it is written; it must not raise and not take long."""


def nobody(entry: Entry, state: State) -> None:
    """Observe nothing."""


@dataclass(frozen=True, slots=True)
class Recorder:
    """The one way an event becomes part of a run.

    Attributes:
        ledger: Where it is written.
        state: The fold, one event behind the ledger at most.
        observe: Who is told.
    """

    ledger: Ledger
    state: State
    observe: Observer = nobody

    @classmethod
    def of(cls, ledger: Ledger, observe: Observer = nobody) -> Recorder:
        """Fold all that is in a ledger, the opening of its newest segment included."""
        # `Ledger.open` has proven the hashes.
        return cls(ledger, State.of(read(ledger.folder, verify=False)), observe)

    def record(self, event: Event) -> Appended:
        """Write an event and take it into account.

        Raises:
            LedgerWriteError: It could not be written; the state is as before.
        """
        appended = self.ledger.append(event)
        self.state.apply(appended.entry.event, at=appended.entry.at)
        self.observe(appended.entry, self.state)
        return appended

    async def commit(self) -> None:
        """Return once everything recorded so far is on the disk.

        Raises:
            LedgerWriteError: It is not; nothing may be launched on the strength of it.
        """
        await self.ledger.commit()
