"""The lines of the table of attempts as packed data, of which the page's script makes rows.

Compressed JSON in blocks, of which the script unpacks those that it shows: a page of 100,000 lines
is opened with one block of them, and the others follow when they are searched or sorted.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

from .table import Line

LINES = 2000
"""Lines packed together without their details.

Unpacked in a few hundredths of a second, and no fewer than the script prints: it cannot wait for a
second block while the browser prints.
"""
DETAILS = 500
"""Lines whose details are packed together: one of them is there in the blink of an eye."""

# A line's id is made of its decision and its attempt.
_COLUMNS = tuple(f.name for f in fields(Line) if f.name not in {"id", "decision", "details"})


def packed(found: Sequence[Line]) -> str:
    """Return all lines without their details, packed in blocks with a space between them.

    A block is an object of columns of equal length. In place of the decisions' numbers stand the
    steps from line to line, the first one from 0: they take a fifth of the room.
    """
    return _packed_blocks([_columns(block) for block in _blocks(found, LINES)])


def packed_details(found: Sequence[Line]) -> str:
    """Return the details of all lines, packed in blocks with a space between them."""
    return _packed_blocks([[line.details for line in block] for block in _blocks(found, DETAILS)])


def _columns(block: Sequence[Line]) -> dict[str, list[Any]]:
    steps = [one - before for before, one in pairwise([0, *(line.decision for line in block)])]
    columns = {name: [getattr(line, name) for line in block] for name in _COLUMNS}
    return {"decision_step": steps, **columns}


def _blocks(found: Sequence[Line], size: int) -> list[Sequence[Line]]:
    return [found[start : start + size] for start in range(0, len(found), size)]


def _packed_blocks(blocks: Sequence[Any]) -> str:
    """Return base64 of compressed JSON: no character could end the element which holds it."""
    return " ".join(map(_packed, blocks))


def _packed(data: Any) -> str:
    raw = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(raw.encode(), mtime=0)).decode()
