"""Shares of candidates, estimated from those whose result is known, with their uncertainty.

A refused candidate has a result only if it was drawn to be launched anyway. It then stands for
the `1 / p` refused ones of which it was drawn with probability `p`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from .stats import wilson

SUPPORT = 20
"""Results from which on a share is worth its number. Its 95 % interval is then at most 0.41 wide."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A candidate whose result is known.

    Attributes:
        hit: Whether it is what is counted.
        probability: With which it was drawn to be launched, above 0 and at most 1; 1 for one that
            was accepted.
    """

    hit: bool
    probability: float = 1.0


@dataclass(frozen=True, slots=True)
class Share:
    """An estimated share. Make it with `Share.of`.

    Attributes:
        seen: Candidates with a result.
        hits: Those that are what is counted.
        support: Equally weighted results that tell as much; `seen` when all weigh the same.
        value: The share, 0...1; `None` when nothing was seen.
        low: Lower end of its 95 % interval.
        high: Upper end.
    """

    seen: int
    hits: int
    support: float
    value: float | None
    low: float
    high: float

    @classmethod
    def of(cls, seen: Iterable[Seen]) -> Share:
        """Estimate a share, each candidate weighted by the inverse of its probability.

        The interval is Wilson's for the effective number of results.

        Sources: Hájek (1971), in Godambe and Sprott, Foundations of Statistical Inference, 236,
        for the estimate; Kish (1965), Survey Sampling, section 11.7, for the effective number.
        """
        found = list(seen)
        weights = [1 / one.probability for one in found]
        total = math.fsum(weights)
        if not found:
            return cls(0, 0, 0.0, None, *wilson(0, 0))
        value = math.fsum(w for w, one in zip(weights, found, strict=True) if one.hit) / total
        support = total**2 / math.fsum(w * w for w in weights)
        low, high = wilson(value * support, support)
        return cls(len(found), sum(one.hit for one in found), support, value, low, high)

    @property
    def calibrated(self) -> bool:
        """Whether enough was seen for the number to mean something."""
        return self.support >= SUPPORT

    def apart(self, other: Share) -> bool:
        """Whether both are calibrated and their intervals have nothing in common."""
        both = self.calibrated and other.calibrated
        return both and (self.low > other.high or other.low > self.high)
