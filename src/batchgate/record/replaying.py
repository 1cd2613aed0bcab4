"""Replays a record: judges its values again, and compares what follows with what is recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from ..decision import Attempt, Ruling, cut
from ..loop import Rules, Snapshot, judged, worded
from ..plain import plain, shown
from .format import (
    MAX_SHOWN,
    NO_HISTORY,
    Data,
    attempt_of,
    canonical,
    entry_of,
    escalation_data,
    is_intact,
    rules_data,
)


@dataclass(frozen=True, slots=True)
class Mismatch:
    """Something that a replay finds otherwise than it is recorded.

    Attributes:
        attempt: Its number, from 1; `None` for the record as a whole.
        what: The check, or the part of the record.
        why: What is recorded, and what is found now.
    """

    attempt: int | None
    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Replay:
    """What a replay has found.

    Attributes:
        attempts: Recorded attempts.
        mismatches: What differs.
        unchecked: What nothing can compute again, in words.
    """

    attempts: int
    mismatches: tuple[Mismatch, ...]
    unchecked: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.mismatches


class Replaying:
    """One replay under way.

    Args:
        data: The record's.
        rules: What its values are judged by.
        restored: Makes of plain data what the checks judge.
    """

    def __init__(self, data: Data, rules: Rules[Any], restored: Callable[[Any], Any]) -> None:
        self.data = data
        self.rules = rules
        self.restored = restored
        self.mismatches: list[Mismatch] = []
        self.unchecked: list[str] = []

    async def run(self, history: Data | None) -> Replay:
        """Replay it all; `history` is what the record should continue, if that is known."""
        if not is_intact(self.data):
            self._tell(None, "hash", "the hashes are not those of the content")
        for key, now in rules_data(self.rules).items():
            self._compare(None, key, self.data[key], now)
        if history is None and self.data["history"]["count"]:
            self.unchecked.append("the history")
        else:
            self._compare(None, "history", self.data["history"], history or NO_HISTORY)
        entries = self.data["attempts"]
        self._end([await self._entry(number, entry) for number, entry in enumerate(entries, 1)])
        return Replay(len(entries), tuple(self.mismatches), tuple(self.unchecked))

    async def _entry(self, number: int, recorded: Data) -> Data:
        """Return the entry of an attempt as it would be written now."""
        try:
            now = await self._again(number, attempt_of(recorded))
        except Exception as exc:  # noqa: BLE001 - a check that fails is what a replay has to tell
            self._tell(number, "raised", cut(f"{type(exc).__name__}: {exc}"))
            return recorded
        for key in ("index", "value", "feedback"):
            self._compare(number, key, recorded[key], now[key])
        for old, new in zip_longest(recorded["rulings"], now["rulings"]):
            self._compare(number, (old or new)["check"], old, new)
        return now

    async def _again(self, number: int, recorded: Attempt[Any]) -> Data:
        value = recorded.value
        if _is_producers_own(recorded.rulings):
            self.unchecked.append(f"attempt {number}: the producer's own rejection")
            attempt = Attempt[Any].judged(number, value, recorded.rulings)
            return entry_of(worded(self.rules, attempt), plain(value))
        value = self.restored(value)
        snapshot = Snapshot.of(value)
        attempt = await judged(self.rules, number, value, snapshot=snapshot)
        return entry_of(worded(self.rules, attempt), snapshot.data)

    def _end(self, entries: Sequence[Data]) -> None:
        accepted = [attempt_of(entry).accepted for entry in entries]
        if any(accepted[:-1]):
            self._tell(accepted.index(True) + 1, "order", "it is accepted, and another follows")
        count, budget = len(entries), self.data["attempts_max"]
        done = any(accepted[-1:])
        if count > budget or not (done or count == budget):
            self._tell(None, "attempts", f"{count} of {budget}, the last accepted: {done}")
        disposition = self.data["disposition"]
        if done != (disposition == "accepted"):
            self._tell(None, "disposition", f"recorded {disposition!r}, accepted now: {done}")
        escalation = escalation_data(disposition, entries)
        self._compare(None, "escalation", self.data["escalation"], escalation)
        if disposition == "fallback":
            self.unchecked.append("the fallback's value")
        else:
            self._compare(None, "fallback", self.data["fallback"], None)

    def _compare(self, attempt: int | None, what: str, recorded: object, now: object) -> None:
        # As text, since True, 1 and 1.0 are equal in Python.
        if canonical(recorded) != canonical(now):
            old, new = shown(recorded, MAX_SHOWN), shown(now, MAX_SHOWN)
            self._tell(attempt, what, f"recorded {old}, now {new}")

    def _tell(self, attempt: int | None, what: str, why: str) -> None:
        self.mismatches.append(Mismatch(attempt, what, why))


def _is_producers_own(rulings: Sequence[Ruling]) -> bool:
    return len(rulings) == 1 and rulings[0].stage == 0 and rulings[0].rejects
