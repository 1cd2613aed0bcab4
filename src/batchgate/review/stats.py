"""The few statistics that a review needs, in plain Python."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

MIN_PAIRS = 3
"""Pairs below which a rank correlation says nothing."""

# Digits inside an identifier (`x1`, `d2`) are no numbers: they name what the reason is about.
_NUMBER = re.compile(r"(?<![\w.])[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def spearman(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Rank correlation of two measurements, -1...1, equal values sharing their mean rank.

    Returns:
        `None` below three pairs, or when one side never varies: there is nothing to rank.

    Source: Spearman (1904), Am. J. Psychol. 15, 72-101; Pearson's coefficient of the ranks.
    """
    if len(pairs) < MIN_PAIRS:
        return None
    one, other = _ranks([a for a, _ in pairs]), _ranks([b for _, b in pairs])
    mean = (len(pairs) + 1) / 2
    cross = math.fsum((a - mean) * (b - mean) for a, b in zip(one, other, strict=True))
    spread = math.fsum((a - mean) ** 2 for a in one) * math.fsum((b - mean) ** 2 for b in other)
    return cross / math.sqrt(spread) if spread else None


def _ranks(values: Sequence[float]) -> list[float]:
    order = sorted(range(len(values)), key=lambda i: values[i])
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for i in order[start:end]:
            ranks[i] = (start + 1 + end) / 2
        start = end
    return ranks


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


def masked(reason: str) -> str:
    """Return a reason with its numbers masked, so that equal problems count as one."""
    return _NUMBER.sub("#", reason)
