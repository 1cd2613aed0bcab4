"""The record of one decision: what was proposed, said, told and decided, as strict JSON.

`accept(record=True)` makes one. Nothing in it can be changed unseen: each attempt's hash goes over
the attempt and the hash before it, the record's over all, and `Record.verify` computes them anew.
Who rewrites a record and all its hashes is caught by `Record.replay`, as far as the rest of the
record contradicts him: it judges every value again. What no one can compute again (which value a
model proposed, and in which order) is safe only where the hash is kept elsewhere too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, TypeVar

from ..decision import Attempt, Disposition, cut
from ..loop import AcceptWhen, Checks, Ending, Feedback, Request, Rules, data_of, stages_of
from ..plain import shown
from .format import (
    FORMAT,
    MAX_SHOWN,
    Data,
    attempt_of,
    chained,
    clean,
    entry_of,
    escalation_data,
    is_intact,
    require_record,
    rules_data,
    seal,
    written,
)
from .replaying import Replay, Replaying

T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Record:
    """What one call of `accept` leaves behind. It is made by `accept`, or read.

    Give it to `accept` as `history` to go on where it ends.
    """

    _text: str

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read a record. It need not be true for that: see `verify`.

        Raises:
            ValueError: It is no record: not JSON, or something is missing, too much, or of the
                wrong type.
        """
        return cls(written(require_record(text)))

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Read what `to_dict` returned.

        Raises:
            ValueError: As `from_json`.
        """
        try:
            text = json.dumps(data, allow_nan=False)
        except (TypeError, ValueError, RecursionError) as exc:
            raise ValueError(f"not a record: {cut(str(exc))}") from None
        return cls.from_json(text)

    def to_json(self) -> str:
        """Return one line of strict JSON."""
        return self._text

    def to_dict(self) -> Data:
        """Return it as JSON data, see `docs/reference/record.md`."""
        data: Data = json.loads(self._text)
        return data

    @property
    def name(self) -> str:
        """Name of the decision."""
        return str(self.to_dict()["name"])

    @property
    def disposition(self) -> Disposition:
        """How the decision ended."""
        disposition: Disposition = self.to_dict()["disposition"]
        return disposition

    @property
    def attempts(self) -> tuple[Attempt[Any], ...]:
        """The attempts, with their values as plain data."""
        return tuple(map(attempt_of, self.to_dict()["attempts"]))

    @property
    def hash(self) -> str:
        """Hash of it all, 64 hex digits. Keep it elsewhere too, and nobody can forge the record."""
        return str(self.to_dict()["hash"])

    def verify(self) -> bool:
        """Say whether it is as `accept` has made it, by its hashes."""
        return is_intact(self.to_dict())

    async def replay(
        self,
        checks: Checks[T] = (),
        *,
        feedback: Feedback[T] | None = None,
        accept_when: AcceptWhen[T] | None = None,
        history: Record | Iterable[Attempt[Any]] | None = None,
        restore: Callable[[Any], T] | None = None,
    ) -> Replay:
        """Judge every recorded value again, and compare what follows with what is recorded.

        Give it what `accept` was given. With other checks it says what they would have changed.

        Args:
            checks: The checks.
            feedback: The function that worded the feedback.
            accept_when: The function that accepted.
            history: The attempts, or the record, that the call continued, if it did.
            restore: Makes what the checks judge of a value's plain data, for instance a model's
                `model_validate`. They are given the plain data otherwise.

        Returns:
            What differs, and what cannot be computed again. A check that raises is a difference.

        Raises:
            TypeError: An argument is of the wrong type.
        """
        rules = Rules(stages_of(checks), feedback, accept_when)
        replaying = Replaying(self.to_dict(), rules, restore or _as_it_is)
        return await replaying.run(None if history is None else _end_of(history))

    def __repr__(self) -> str:
        data = self.to_dict()
        return (
            f"Record({shown(data['name'], MAX_SHOWN)}, {data['disposition']!r}, "
            f"attempts={len(data['attempts'])}, hash={data['hash'][:12]!r})"
        )


def record_of(
    request: Request[Any],
    made: Sequence[Attempt[Any]],
    ending: Ending,
    *,
    name: str,
    history: Record | Iterable[Attempt[Any]],
) -> Record:
    """Make the record of a call that has ended.

    Args:
        request: What was asked, with the values that were kept.
        made: Its attempts.
        ending: How it ended.
        name: Name of the decision.
        history: What it continued.
    """
    before = _end_of(history)
    disposition, value = ending
    entries = []
    head = before["head"]
    for attempt, kept in zip(made, request.kept or (), strict=True):
        entry = entry_of(attempt, kept)
        head = entry["hash"] = chained(head, entry)
        entries.append(entry)
    data = {
        "format": FORMAT,
        "name": clean(name),
        "attempts_max": request.attempts,
        **rules_data(request.rules),
        "history": before,
        "attempts": entries,
        "disposition": disposition,
        "escalation": escalation_data(disposition, entries),
        "fallback": data_of(value) if disposition == "fallback" else None,
    }
    data["hash"] = seal(head, data)
    return Record(written(data))


def _end_of(history: Record | Iterable[Attempt[Any]]) -> Data:
    """Return how many attempts a history has in all, and the hash of the last one."""
    if isinstance(history, Record):
        data = history.to_dict()
        before, entries = data["history"], data["attempts"]
        head = entries[-1]["hash"] if entries else before["head"]
        return {"count": before["count"] + len(entries), "head": head}
    count, head = 0, ""
    for attempt in history:
        count, head = count + 1, chained(head, entry_of(attempt, data_of(attempt.value)))
    return {"count": count, "head": head}


def _as_it_is(value: Any) -> Any:
    return value
