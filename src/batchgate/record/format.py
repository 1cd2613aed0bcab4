"""The format of a record: its parts as JSON data, their shape, and the chain of hashes."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import Field, ValidationError
from pydantic_core import to_json

from ..checks import name_of, validation_reasons
from ..decision import PASSED, Attempt, Disposition, Ruling, Verdict, cut, escalation_of
from ..loop import Rules
from ..plain import plain, restore, shown

Data = dict[str, Any]

FORMAT: Final = 1
"""Version of the record's format."""
MAX_TEXT: Final = 10_000
"""Characters kept of a reason, a feedback or a name."""
MAX_SHOWN: Final = 200
"""Characters of a value in a message."""
NO_HISTORY: Final[Mapping[str, Any]] = {"count": 0, "head": ""}
"""What a record says that continues none."""


_Hash = Annotated[str, Field(pattern=r"^[0-9a-f]{64}\z")]
_Count = Annotated[int, Field(ge=0)]
_STRICT: Final[Any] = {"strict": True, "extra": "forbid"}


@dataclass(frozen=True)
class _RulingShape:
    __pydantic_config__ = _STRICT
    check: str
    stage: _Count
    hard: bool
    verdict: dict[str, Any]


@dataclass(frozen=True)
class _AttemptShape:
    __pydantic_config__ = _STRICT
    index: Annotated[int, Field(ge=1)]
    value: Any
    rulings: list[_RulingShape]
    feedback: list[str]
    hash: _Hash


@dataclass(frozen=True)
class _CheckShape:
    __pydantic_config__ = _STRICT
    name: str
    stage: _Count
    hard: bool


@dataclass(frozen=True)
class _HistoryShape:
    __pydantic_config__ = _STRICT
    count: _Count
    head: Literal[""] | _Hash


@dataclass(frozen=True)
class _RecordShape:
    __pydantic_config__ = _STRICT
    format: Annotated[int, Field(ge=FORMAT, le=FORMAT)]
    name: str
    attempts_max: Annotated[int, Field(ge=1)]
    checks: list[_CheckShape]
    feedback_by: str | None
    accept_when: str | None
    history: _HistoryShape
    attempts: list[_AttemptShape]
    disposition: Disposition
    escalation: str | None
    fallback: Any
    hash: _Hash


@functools.cache
def _shape() -> Any:
    # Late: pydantic's part that builds validators takes longer to import than all of this package,
    # and a process that reads no record needs none of it.
    from pydantic import TypeAdapter

    return TypeAdapter(_RecordShape)


def require_record(text: str | bytes) -> Data:
    """Return a record's data from its JSON.

    Raises:
        ValueError: It is no record.
    """
    try:
        _shape().validate_json(text)
        data: Data = json.loads(text)
        for value in (data["fallback"], *(entry["value"] for entry in data["attempts"])):
            _require_same(value, plain(restore(value)))
        history = data["history"]
        if (history["count"] == 0) != (history["head"] == ""):
            raise ValueError("history has a count without a head, or a head without a count")
        for entry in data["attempts"]:
            for ruling in entry["rulings"]:
                verdict = ruling["verdict"]
                _require_same(verdict, _verdict_data(Verdict.from_dict(verdict)))
    except ValidationError as exc:
        raise ValueError(f"not a record: {'; '.join(validation_reasons(exc))}") from None
    except (AttributeError, TypeError, ValueError, RecursionError) as exc:
        raise ValueError(f"not a record: {cut(str(exc))}") from None
    return data


def _require_same(said: object, written: object) -> None:
    if canonical(said) != canonical(written):
        raise ValueError(f"{shown(said, MAX_SHOWN)} is not what is written in a record")


def rules_data(rules: Rules[Any]) -> Data:
    """Return what a record says of the checks and of the two functions."""
    return {
        "checks": [
            {"name": clean(check.name), "stage": number, "hard": check.hard}
            for number, stage in enumerate(rules.stages, start=1)
            for check in stage
        ],
        "feedback_by": _named(rules.feedback),
        "accept_when": _named(rules.accept_when),
    }


def _named(function: Callable[..., object] | None) -> str | None:
    return None if function is None else clean(name_of(function))


def entry_of(attempt: Attempt[Any], value: Any) -> Data:
    """Return an attempt as a record has it, without its hash.

    Args:
        attempt: The attempt.
        value: Its value as plain data.
    """
    return {
        "index": attempt.index,
        "value": value,
        "rulings": [_ruling_data(ruling) for ruling in attempt.rulings],
        "feedback": _cleaned(attempt.feedback),
    }


def _ruling_data(ruling: Ruling) -> Data:
    return {
        "check": clean(ruling.check),
        "stage": ruling.stage,
        "hard": ruling.hard,
        "verdict": _verdict_data(ruling.verdict),
    }


def _verdict_data(verdict: Verdict) -> Data:
    if verdict is PASSED:  # As most are.
        return {"passed": True}
    # What was not said is left out, as in a plain pass.
    said = {key: part for key, part in verdict.to_dict().items() if part not in (None, [])}
    return {key: _cleaned(part) for key, part in said.items()}


def attempt_of(entry: Data) -> Attempt[Any]:
    """Return the attempt that `entry_of` has written, with plain data for its value."""
    rulings = [
        Ruling(said["check"], said["stage"], said["hard"], Verdict.from_dict(said["verdict"]))
        for said in entry["rulings"]
    ]
    value = restore(entry["value"])
    return Attempt(entry["index"], value, tuple(rulings), tuple(entry["feedback"]))


def escalation_data(disposition: Disposition, entries: Iterable[Data]) -> str | None:
    """Return what a person is told of these attempts, if one is."""
    return escalation_of([*map(attempt_of, entries)]) if disposition == "not_accepted" else None


def is_intact(data: Data) -> bool:
    """Say whether the hashes are those of the content."""
    head = data["history"]["head"]
    for entry in data["attempts"]:
        head = chained(head, entry)
        if entry["hash"] != head:
            return False
    return bool(data["hash"] == seal(head, data))


def chained(head: str, entry: Data) -> str:
    """Return an attempt's hash, given that of the attempt before it."""
    return _hash(head, entry, "hash")


def seal(head: str, data: Data) -> str:
    """Return a record's hash, given that of its last attempt, which goes over all of them."""
    return _hash(head, data, "hash", "attempts")


def _hash(head: str, data: Data, *without: str) -> str:
    content = canonical({key: part for key, part in data.items() if key not in without})
    return hashlib.sha256((head + content).encode()).hexdigest()


def clean(text: str) -> str:
    """Return a text that any JSON reader takes, without lone surrogates, of bounded length."""
    if text.isascii() and len(text) <= MAX_TEXT:
        return text
    return cut(text[: MAX_TEXT + 1].encode(errors="backslashreplace").decode(), MAX_TEXT)


def _cleaned(data: Any) -> Any:
    if isinstance(data, str):
        return clean(data)
    if isinstance(data, dict):
        return {clean(key): _cleaned(item) for key, item in data.items()}
    if isinstance(data, (list, tuple)):
        return [_cleaned(item) for item in data]
    return data


def written(data: Data) -> str:
    """Return a record's data as one line of strict JSON, in the order in which one reads it."""
    return to_json(data).decode()


canonical: Final[Callable[[object], str]] = json.JSONEncoder(
    allow_nan=False, sort_keys=True, separators=(",", ":")
).encode
