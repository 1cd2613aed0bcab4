r"""Any value as strict JSON, and back.

`plain` never raises, and what it returns is JSON in the strictest sense: `dict` with string keys,
`list`, `str` without lone surrogates, `int` of at most 53 bits, finite `float`, `bool`, `None`. What
JSON cannot say is said by a mapping with one key, its tag:

=====================================  ========================================
`{"$f": "nan"}`, `"inf"`, `"-inf"`     a float that is not finite
`{"$i": "9007199254740993"}`           an integer that a double cannot hold
`{"$s": "a\\ud800"}`                   a string with surrogates, `unicode_escape`d
`{"$m": [[key, value], ...]}`          a mapping with keys JSON cannot have
`{"$r": "<repr>"}`                     anything else: its bounded `repr`
=====================================  ========================================

A mapping with a key that begins with `$` is written as `$m` too, so hostile data cannot forge a
tag. `restore` undoes it all, and gives `Opaque` text for `$r`. Two laws hold: `restore(plain(x))`
equals `x` when `x` is made of the types above (any float, int, str and hashable keys allowed), and
`plain(restore(p))` equals `p` for whatever `plain` returned. Other types lose their type and keep
their content: tuples and sets become lists, models, dataclasses and named tuples become mappings
or lists, enumerations their values, arrays nested lists, dates, paths and decimals strings.
"""

from __future__ import annotations

import dataclasses
import json
import math
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from enum import Enum
from typing import Any, Final

from pydantic_core import to_jsonable_python

MAX_DEPTH: Final = 100
"""Containers within containers; what lies deeper is written as its `repr`."""
MAX_REPR: Final = 1000
"""Longest `repr`, in characters."""
MAX_INT: Final = 2**53 - 1
"""Largest integer that every JSON reader keeps exact (RFC 8259, section 6)."""

_NON_FINITE: Final = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
_MAX_DECIMAL_BITS: Final = 10_000  # Python refuses to write longer integers in decimal.


class Opaque(str):
    """The `repr` of a value that JSON cannot hold. `plain` writes it as `$r` again."""

    __slots__ = ()


def dumps(value: object) -> str:
    """Return strict JSON of any value: one line, ASCII only. Never raises."""
    return _ENCODE(plain(value))


def loads(text: str | bytes) -> Any:
    """Return what `dumps` was given, as far as JSON can say it.

    Raises:
        ValueError: The text is not strict JSON, or has a tag that `plain` does not write.
    """
    try:
        return _DECODE(text if isinstance(text, str) else text.decode())
    except RecursionError:
        raise ValueError("JSON is nested too deep") from None


def plain(value: object) -> Any:
    """Return a value as strict JSON data, see the module. Never raises."""
    try:
        return _plain(value, set())
    except Exception:  # noqa: BLE001 - a foreign object may raise anything from any method
        return _opaque(value)


def restore(data: Any) -> Any:
    """Undo `plain`.

    Raises:
        ValueError: It has a tag that `plain` does not write.
    """
    if isinstance(data, dict):
        return _untag({key: restore(item) for key, item in data.items()})
    if isinstance(data, list):
        return [restore(item) for item in data]
    return data


def shown(value: object, limit: int = MAX_REPR) -> str:
    """Return a `repr` of at most `limit` characters, without lone surrogates. Never raises."""
    text = _SHORT.repr(value)
    text = text if len(text) <= limit else text[: limit - 1] + "…"
    return text if _is_unicode(text) else text.encode(errors="backslashreplace").decode()


def _plain(value: Any, path: set[int]) -> Any:
    # Exact types first: this is the whole way for the small records of the ledger.
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _text(value)
    if kind is float:
        return value if math.isfinite(value) else {"$f": str(value)}
    if kind is bool or value is None:
        return value
    if kind is int:
        return value if -MAX_INT <= value <= MAX_INT else {"$i": _digits(value)}
    if kind is dict or kind is list or kind is tuple:
        return _contents(value, kind is dict, path)
    return _other(value, path)


def _contents(value: Any, keyed: bool, path: set[int]) -> Any:
    here = id(value)
    if here in path or len(path) >= MAX_DEPTH:
        return _opaque(value)
    path.add(here)
    try:
        if not keyed:
            return [_plain(item, path) for item in value]
        if all(map(_is_json_key, value)):
            return {key: _plain(item, path) for key, item in value.items()}
        return {"$m": [[_plain(key, path), _plain(item, path)] for key, item in value.items()]}
    finally:
        path.discard(here)


def _other(value: Any, path: set[int]) -> Any:
    here = id(value)
    if here in path:
        return _opaque(value)
    path.add(here)
    try:
        return _by_kind(value, path)
    except Exception:  # noqa: BLE001 - one odd object must not hide the rest of the value
        return _opaque(value)
    finally:
        path.discard(here)


def _by_kind(value: Any, path: set[int]) -> Any:
    """Bring a value of any other type one step nearer to JSON, and go on with that."""
    if hasattr(type(value), "model_dump"):
        # First: proposals are models, and asking the abstract classes below takes half the time.
        return _plain(_model_content(value), path)
    match value:
        case Opaque():
            return {"$r": str.__str__(value)}
        case Set():
            # Sorted, for the order of a set of strings differs from process to process.
            return sorted((_plain(item, path) for item in value), key=_ENCODE)
        case Enum():
            nearer = value.value
        case str():
            nearer = str.__str__(value)
        case int():
            nearer = int.__int__(value)
        case float():
            nearer = float.__float__(value)
        case Mapping():
            nearer = dict(value)
        case bytes() | bytearray():
            nearer = to_jsonable_python(value)
        case Sequence():
            nearer = list(value)
        case _:
            nearer = _content(value)
    return _plain(nearer, path)


def _model_content(value: Any) -> Any:
    # In Python's terms, since pydantic's JSON mode writes NaN as null (pydantic 2.14); and by the
    # values' own types, since a field declared as BaseModel would be written as {}.
    return value.model_dump(mode="python", serialize_as_any=True, warnings=False)


def _content(value: Any) -> Any:
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(kind)}
    if hasattr(kind, "tolist") and hasattr(kind, "dtype"):
        return value.tolist()
    if isinstance(value, Iterator):
        raise TypeError("reading an iterator would use it up")
    return to_jsonable_python(value)


def _is_json_key(key: object) -> bool:
    return type(key) is str and key[:1] != "$" and (key.isascii() or _is_unicode(key))


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _text(text: str) -> Any:
    # Escaped in JSON's own way, a pair of lone surrogates would be read back as one character.
    return text if _is_unicode(text) else {"$s": text.encode("unicode_escape").decode()}


def _digits(value: int) -> str:
    return str(value) if value.bit_length() <= _MAX_DECIMAL_BITS else hex(value)


def _opaque(value: object) -> dict[str, str]:
    return {"$r": shown(value)}


def _untag(data: dict[str, Any]) -> Any:
    if len(data) != 1:
        return data
    ((tag, said),) = data.items()
    if tag[:1] != "$":
        return data
    try:
        return _UNTAG[tag](said)
    except Exception:  # noqa: BLE001 - whatever is wrong with it, it was not written here
        raise ValueError(f"{tag[:20]!r} is no tag, or its value is not one of that tag") from None


def _mapping(pairs: list[tuple[Any, Any]]) -> dict[Any, Any]:
    return {_hashable(key): item for key, item in pairs}


def _hashable(key: Any) -> Any:
    return tuple(map(_hashable, key)) if isinstance(key, list) else key


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"{digits[:20]} is beyond a double")
    return number


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _shortener() -> reprlib.Repr:
    short = reprlib.Repr()
    short.maxother = short.maxstring = MAX_REPR
    return short


_SHORT: Final = _shortener()
_ENCODE: Final = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_DECODE: Final = json.JSONDecoder(
    object_hook=_untag, parse_float=_finite, parse_constant=_no_constant
).decode
_UNTAG: Final[dict[str, Callable[[Any], Any]]] = {
    "$f": lambda said: _NON_FINITE[said],
    "$i": lambda said: int(said, 0),
    "$s": lambda said: said.encode("ascii").decode("unicode_escape"),
    "$m": _mapping,
    "$r": lambda said: Opaque(said + ""),
}
