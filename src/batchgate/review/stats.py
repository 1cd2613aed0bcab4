"""The few statistics that a review needs, in plain Python."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping

# Digits inside an identifier (`x1`, `d2`) are no numbers: they name what the reason is about.
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def wilson(hits: float, trials: float) -> tuple[float, float]:
    """95 % interval of a share, 0...1; the whole range when nothing was tried.

    Source: Wilson (1927), J. Am. Stat. Assoc. 22, 209-212, with z = 1.96.
    """
    if not trials:
        return 0.0, 1.0
    z2 = 1.96**2
    share = hits / trials
    middle = share + z2 / (2 * trials)
    half = 1.96 * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials**2))
    scale = 1 + z2 / trials
    return max(0.0, (middle - half) / scale), min(1.0, (middle + half) / scale)


def number(value: object) -> float | None:
    """Return a finite number as it is, and `None` for anything else."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    return None


def counted(words: Iterable[str] | Mapping[str, int]) -> dict[str, int]:
    """Count words, the most frequent first, equal ones by the alphabet."""
    return dict(sorted(Counter(words).items(), key=lambda item: (-item[1], item[0])))


def masked(reason: str) -> str:
    """Return a reason with its numbers masked, so that equal problems count as one."""
    return _NUMBER.sub("#", reason)
