"""Events go in here, and nowhere else: to the ledger first, then into the state, then to people.

The state is never changed but by an event that the ledger took; so what a resumed run folds is
what this run knew.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from ..events import Entry, Event
from ..guard import Guard
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
        guard: What the rejections of the run teach, a fold as well.
        observe: Who is told.
    """

    ledger: Ledger
    state: State
    observe: Observer = nobody
    guard: Guard = field(default_factory=Guard)

    @classmethod
    def of(cls, ledger: Ledger, observe: Observer = nobody) -> Recorder:
        """Fold all that is in a ledger, the opening of its newest segment included."""
        # `Ledger.open` has proven the hashes.
        recorder = cls(ledger, State(), observe)
        for entry in read(ledger.folder, verify=False):
            recorder._fold(entry)
        return recorder

    def record(self, event: Event) -> Appended:
        """Write an event and take it into account.

        Raises:
            LedgerWriteError: It could not be written; the state is as before.
        """
        appended = self.ledger.append(event)
        self._fold(appended.entry)
        self.observe(appended.entry, self.state)
        return appended

    def _fold(self, entry: Entry) -> None:
        self.state.apply(entry.event, at=entry.at)
        self.guard.apply(entry.event)

    async def commit(self) -> None:
        """Return once everything recorded so far is on the disk.

        Raises:
            LedgerWriteError: It is not; nothing may be launched on the strength of it.
        """
        await self.ledger.commit()
