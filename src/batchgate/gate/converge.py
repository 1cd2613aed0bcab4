"""Improves a candidate by its score until that has an end: done, optimal, converged, exhausted.

For work that gets better by degrees. A gate says whether a result meets the bar; this says when to
stop polishing. They compose: what comes out best goes to the gate.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from ..decision import Verdict

T = TypeVar("T")

StopReason = Literal["done", "optimal", "converged", "exhausted"]
"""Why it stopped; of several at once, the first of these."""


@dataclass(frozen=True)
class Candidate(Generic[T]):
    """One result of the work.

    Attributes:
        value: The result.
        score: How good it is; higher is better. `None` when unknown or not finite, and then it is
            no improvement.
        done: Whether the worker holds that more rounds would not help. It does not say that the
            result is good enough: that is a gate's verdict.
    """

    value: T
    score: float | None = None
    done: bool = False

    def __post_init__(self) -> None:
        # A verdict's rules for a score: a number of any library, and None for one that is not finite.
        object.__setattr__(self, "score", Verdict(True, self.score).score)


Work = Callable[[tuple[Candidate[T], ...]], Candidate[T] | Awaitable[Candidate[T]]]
"""Makes the next candidate, knowing those before it; sync or async."""


@dataclass(frozen=True)
class Convergence(Generic[T]):
    """How it ended.

    Attributes:
        stop: Why.
        best: The candidate with the highest score, the first of equal ones.
        history: Every candidate, in order.
    """

    stop: StopReason
    best: Candidate[T]
    history: tuple[Candidate[T], ...]

    @property
    def scores(self) -> tuple[float | None, ...]:
        """The scores, in order."""
        return tuple(candidate.score for candidate in self.history)


async def iterate_until_converged(
    work: Work[T], *, perfect_score: float = 100, patience: int = 4, max_iterations: int = 20
) -> Convergence[T]:
    """Call `work` until it is done, perfect, no longer better, or out of iterations.

    Args:
        work: Called with the candidates so far as a tuple, `()` at first.
        perfect_score: `optimal` at this score or above; `math.inf` for never.
        patience: `converged` after so many candidates in a row that are no better than the best
            before them, at least 1.
        max_iterations: `exhausted` after so many calls, at least 1.

    Returns:
        The best candidate, the reason, and the history.

    Raises:
        TypeError: `work` returned no `Candidate`, or an argument is of the wrong type.
        ValueError: `patience` or `max_iterations` is below 1, or `perfect_score` is not a number.
        Exception: Whatever else `work` raised.
    """
    if math.isnan(perfect_score):
        raise ValueError("perfect_score is nan, must be a number; math.inf for never")
    _require_count("patience", patience)
    _require_count("max_iterations", max_iterations)
    history: list[Candidate[T]] = []
    best = 0
    while True:
        history.append(await _next(work, history))
        if _rank(history[-1]) > _rank(history[best]):
            best = len(history) - 1
        stop = _stop(history, best, perfect_score, patience, max_iterations)
        if stop is not None:
            return Convergence(stop, history[best], tuple(history))


def _stop(
    history: list[Candidate[T]], best: int, perfect_score: float, patience: int, max_iterations: int
) -> StopReason | None:
    if history[-1].done:
        return "done"
    if _rank(history[best]) >= perfect_score:
        return "optimal"
    if len(history) - 1 - best >= patience:
        return "converged"
    return "exhausted" if len(history) >= max_iterations else None


async def _next(work: Work[T], history: list[Candidate[T]]) -> Candidate[T]:
    made = work(tuple(history))
    if inspect.isawaitable(made):
        made = await made
    if not isinstance(made, Candidate):
        raise TypeError(f"work returned a {type(made).__name__}, must be a Candidate")
    return made


def _rank(candidate: Candidate[T]) -> float:
    return -math.inf if candidate.score is None else candidate.score


def _require_count(name: str, count: object) -> None:
    if isinstance(count, bool) or not isinstance(count, int):
        raise TypeError(f"{name} is a {type(count).__name__}, must be an int")
    if count < 1:
        raise ValueError(f"{name} is {count}, must be at least 1")
