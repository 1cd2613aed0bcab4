"""What a benchmark promises: the costs of its contenders side by side, and bounds they must keep."""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

MIN_REPETITIONS = 20

Costs = Mapping[str, Sequence[float]]
"""Microseconds of each contender, one a repetition."""


class Promise(NamedTuple):
    """A figure and its bound."""

    what: str
    measured: float
    limit: float
    at_most: bool = True

    @property
    def kept(self) -> bool:
        return self.measured <= self.limit if self.at_most else self.measured >= self.limit


def repetitions(benchmark: str, about: str | None) -> int:
    """Parse a benchmark's command line and return how often each contender is measured."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {benchmark}",
        description=about,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--repetitions", type=int, default=40, help="at least 20, by default 40")
    found: int = parser.parse_args().repetitions
    if found < MIN_REPETITIONS:
        parser.error(f"--repetitions is {found}, must be at least {MIN_REPETITIONS}")
    return found


def ratio(costs: Costs, one: str, other: str) -> float:
    """Return how many times as much one contender costs as another."""
    return statistics.median(a / b for a, b in zip(costs[one], costs[other], strict=True))


def report(costs: Costs, unit: str, promises: Iterable[Promise]) -> int:
    """Print costs and promises; return 1 when one is broken."""
    print(f"{'contender':<24}{unit:>16}{'fastest':>12}")
    for name, found in costs.items():
        print(f"{name:<24}{statistics.median(found):>16.1f}{min(found):>12.1f}")
    print(f"\n{'promise':<34}{'measured':>12}{'bound':>14}")
    broken = False
    for promise in promises:
        bound = f"{'at most' if promise.at_most else 'at least'} {promise.limit:g}"
        told = "PASS" if promise.kept else "FAIL"
        print(f"{promise.what:<34}{promise.measured:>12.2f}{bound:>14}  {told}")
        broken |= not promise.kept
    return int(broken)
