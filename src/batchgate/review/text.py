"""Text of models and simulations, made safe to look at.

Control characters, terminal escapes, invisible and direction-changing characters are replaced by
visible marks, so that what a person reads is what is there. Escaping for HTML is `html`'s.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from ..events import Plain

_HIDDEN = {"Cc", "Cf", "Co", "Cs", "Zl", "Zp"}
_NAMED = {"\n": "↵", "\t": "⇥"}
_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"), (1, "s"))
_THOUSAND = 1000  # three digits would round it
_PHRASES = {
    "canceled": "cancelled",
    "exception": "failed with an exception",
    "exit": "failed with an exit code",
    "signal": "ended by a signal",
    "unknown": "lost",
}


def visible(text: str) -> str:
    """Return text with every character that would be invisible or act shown as a mark.

    The end of a line is `↵`, a tab `⇥`, any other `[U+202E]`: Unicode's own control pictures are
    missing in many fonts. Twice is the same as once.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(map(_shown, text))


def _shown(char: str) -> str:
    if char in _NAMED:
        return _NAMED[char]
    return f"[U+{ord(char):04X}]" if unicodedata.category(char) in _HIDDEN else char


def clipped(text: str, limit: int) -> str:
    """Return visible text of at most about `limit` characters; a mark tells how much is cut."""
    shown = visible(text[: limit + 1])
    if len(text) <= limit:
        return shown
    return f"{visible(text[:limit])}… (+{len(text) - limit} characters)"


def compact(value: Plain) -> str:
    """Return a JSON-ready value on one line, as people write it: `x1=2.5 x2=7`."""
    if isinstance(value, Mapping) and not _tagged(value):
        return " ".join(f"{name}={scalar(item)}" for name, item in value.items())
    return scalar(value)


def scalar(value: Plain) -> str:
    """Return a value on one line: text as it is, floats with six digits, the rest as JSON.

    What `batchgate.plain` has tagged, because JSON cannot hold it, stands without its tag.
    """
    if _tagged(value):
        (value,) = value.values()
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return f"{value:.6g}"
    return json.dumps(value, ensure_ascii=False)


def _tagged(value: Plain) -> bool:
    return isinstance(value, Mapping) and len(value) == 1 and next(iter(value))[:1] == "$"


def instant(at: float) -> str:
    """Return an instant as `2026-10-05 03:12:09 UTC`; `never` for 0."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S} UTC" if at else "never"


def span(seconds: float) -> str:
    """Return a length of time in the two largest units that say something."""
    whole_s = round(seconds)
    for (size_s, unit), (part_s, part) in pairwise(_UNITS):
        if whole_s >= size_s:
            return f"{whole_s // size_s} {unit} {whole_s % size_s // part_s:02d} {part}"
    return f"{seconds:.3g} s"


def hours(node_h: float) -> str:
    """Return node-hours with three digits."""
    return f"{node_h:.3g}" if node_h < _THOUSAND else f"{node_h:,.0f}"


def share(value: float | None) -> str:
    """Return a share as a percentage, `-` for none."""
    return "-" if value is None else f"{value:.0%}"


def words(counts: Mapping[str, Any]) -> str:
    """Return counts as `12 accepted, 3 fallback`; `none` when there are none."""
    told = (f"{count} {plain_word(word)}" for word, count in counts.items())
    return ", ".join(told) or "none"


def plain_word(word: str) -> str:
    """Return a word of a record as people say it: `timed_out` is `timed out`."""
    return _PHRASES.get(word, word.replace("_", " "))
