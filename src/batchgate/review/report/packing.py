"""The lines of the table of attempts as packed data, of which the page's script makes rows.

Columns of one JSON object, compressed, and the details in blocks, of which the script unpacks those
that are looked at: 100,000 lines are there in a second, and a detail in the blink of an eye.
"""

from __future__ import annotations

import base64
import gzip
import json
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from .table import Line

BLOCK = 500
"""Lines whose details are packed together."""


def packed(found: Sequence[Line]) -> str:
    """Return all lines without their details, packed: an object of columns of equal length."""
    names = [field.name for field in fields(Line) if field.name != "details"]
    return _packed({name: [getattr(line, name) for line in found] for name in names})


def packed_details(found: Sequence[Line]) -> str:
    """Return the details of all lines, packed in blocks with a space between them."""
    blocks = (found[start : start + BLOCK] for start in range(0, len(found), BLOCK))
    return " ".join(_packed([line.details for line in block]) for block in blocks)


def _packed(data: Any) -> str:
    """Return base64 of compressed JSON: no character could end the element which holds it."""
    raw = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return base64.b64encode(gzip.compress(raw.encode(), mtime=0)).decode()
