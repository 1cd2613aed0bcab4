"""What Slurm prints, as numbers and texts.

A value that cannot be read is `None` and never a guess. "No limit" is `math.inf`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime

_FIELD = re.compile(r"(?:^|\s)([\w/:]+)=(\S*)")
_SPAN = re.compile(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?(?:\.\d+)?")
_GPUS = re.compile(r"\bgres[:/]gpu(?::[A-Za-z][\w.-]*)?(?:[:=](\d+))?")


def fields_of(line: str) -> dict[str, str]:
    """Return the `Key=value` pairs of a line of `scontrol -o`; of a key that is twice, the first.

    The name of a job and its folder may hold blanks; their further words are dropped.
    """
    found: dict[str, str] = {}
    for key, value in _FIELD.findall(line):
        found.setdefault(key, value)
    return found


def job_fields(out: str, job_id: str) -> dict[str, str]:
    """Return the fields of one job of `scontrol -o show job`, which shows a whole array."""
    lines = [line for line in out.splitlines() if line.startswith(f"JobId={job_id} ")]
    return fields_of(lines[0]) if lines else {}


def seconds_of(text: str) -> float | None:
    """Return a span as Slurm prints it: `4:59`, `01:00:00`, `1-00:00:00`, `UNLIMITED`.

    Two numbers are minutes and seconds; with days they are hours and minutes, and one is hours.
    """
    if text in {"UNLIMITED", "INFINITE"}:
        return math.inf
    match = _SPAN.fullmatch(text)
    if match is None:
        return None
    days, *rest = match.groups()
    numbers = [int(number) for number in rest if number is not None]
    if days is not None:
        numbers += [0] * (3 - len(numbers))
        numbers[0] += 24 * int(days)
    elif len(numbers) == 1:
        return None  # Slurm prints none such; it would read minutes
    seconds = 0
    for number in numbers:
        seconds = 60 * seconds + number
    return float(seconds)


def at_of(text: str) -> float | None:
    """Return an instant that was asked in UTC, `2026-11-30T18:32:03`, as epoch seconds."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None  # Unknown, None, N/A, (null)


def count_of(text: str | None) -> int:
    """Return a count, 0 where there is none."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() else 0


def gpus_of(fields: Mapping[str, str], nodes: int) -> int:
    """Return the GPUs of a job with so many nodes.

    A site that does not account for GPUs leaves them out of the sum, and names only what was
    asked for on each node.
    """
    total = fields.get("AllocTRES") or fields.get("TRES", "")
    if (match := re.search(r"\bgres/gpu=(\d+)", total)) is not None:
        return int(match[1])
    match = _GPUS.search(fields.get("TresPerNode", ""))
    return 0 if match is None else nodes * int(match[1] or 1)
