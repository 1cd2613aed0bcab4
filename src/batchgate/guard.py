"""What the run's rejections teach: broken bounds, counted over the whole ledger.

A fold over events, as the state is: the same ledger gives the same lessons, in whichever life. It
keeps numbers and names of quantities, no text that a model or a simulation wrote, and at most 64
lessons, however long the run is.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from .breach import Lesson, Region
from .campaign import CampaignSpec, Space, Variable
from .events import (
    BrokenBound,
    CheckJudged,
    DecisionMade,
    Event,
    Plain,
    ProposalMade,
    ProposalRejected,
    RunResumed,
    RunStarted,
)

MAX_LESSONS: Final = 64
"""Bounds that are followed; those that are broken later for the first time are not."""
PARTS: Final = 3
"""Equal parts in which a variable's range is counted."""

_REPEATED = 2
_REGION_COUNT = 4
_REGION_SHARE = 0.75
_REGION_EXCESS = 0.25  # above the share of all that was proposed
_NOTHING = (math.inf, -math.inf)  # smallest and largest of no numbers
_DECISION = ""  # in place of a check's name: the candidate was let through
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")

Part = tuple[str, int]
"""A variable, and a part of its range."""
Candidate = Mapping[str, Any]


@dataclass(slots=True)
class _Tally:
    """The breaches of one bound, while they are counted."""

    count: int = 0
    measured: tuple[float, float] = _NOTHING
    bound: tuple[float, float] = _NOTHING
    own: bool = True
    parts: Counter[Part] = field(default_factory=Counter)

    def add(self, breach: BrokenBound, *, own: bool, parts: Iterable[Part]) -> None:
        self.count += 1
        self.measured = _stretched(self.measured, breach.measured)
        self.bound = _stretched(self.bound, breach.bound)
        self.own = self.own and own
        self.parts.update(parts)


class Guard:
    """The lessons of a run. Apply every event once, oldest first."""

    def __init__(self) -> None:
        self._space: Space | None = None
        self._judged_by: tuple[Any, ...] = ()
        self._answers: dict[int, tuple[Plain, ...]] = {}
        self._tallies: dict[tuple[str, str, str], _Tally] = {}
        self._passed: dict[tuple[str, str], tuple[float, float]] = {}
        self._proposed: Counter[Part] = Counter()
        self._candidates = 0
        self._by_kind: dict[type[Any], Callable[[Any], None]] = {
            RunStarted: self._begin,
            RunResumed: self._begin,
            ProposalMade: self._propose,
            ProposalRejected: self._reject,
            CheckJudged: self._judge,
            DecisionMade: self._decide,
        }

    def apply(self, event: Event) -> None:
        """Take one event into account."""
        if take := self._by_kind.get(type(event)):
            take(event)

    def lessons(self) -> tuple[Lesson, ...]:
        """Return what was broken more than once, the most frequent first."""
        found = [
            self._lesson(key, tally)
            for key, tally in self._tallies.items()
            if tally.count >= _REPEATED
        ]
        return tuple(sorted(found, key=lambda one: (-one.count, one.check, one.field, one.kind)))

    def _begin(self, event: RunStarted | RunResumed) -> None:
        if event.spec is None:
            return
        read = CampaignSpec.model_validate(event.spec, extra="ignore")
        judged_by = (read.variables, read.constants, read.check, read.level)
        if judged_by != self._judged_by:  # other checks teach other lessons
            self._tallies.clear()
            self._passed.clear()
            self._proposed.clear()
            self._candidates = 0
        self._space, self._judged_by = read.space, judged_by

    def _propose(self, event: ProposalMade) -> None:
        self._answers[event.decision] = (event.proposal, *event.others)
        for answer in self._answers[event.decision]:
            for candidate in _candidates(answer):
                self._candidates += 1
                self._proposed.update(self._parts(candidate))

    def _reject(self, event: ProposalRejected) -> None:
        for breach in event.breaches:
            self._count(event.stage, breach, {})

    def _judge(self, event: CheckJudged) -> None:
        if not event.hard:
            return
        answers = self._answers.get(event.decision, ())
        candidates = _candidates(answers[event.sample - 1]) if event.sample <= len(answers) else []
        for breach in event.breaches:
            inside = 0 < breach.candidate <= len(candidates)
            self._count(event.check, breach, candidates[breach.candidate - 1] if inside else {})
        for candidate in candidates:
            if event.passed or self._spared(candidate, event.refused):
                self._pass(candidate, by=event.check)

    def _decide(self, event: DecisionMade) -> None:
        self._answers.pop(event.decision, None)
        for chosen in event.candidates:
            self._pass(chosen.candidate, by=_DECISION)

    def _count(self, check: str, breach: BrokenBound, candidate: Candidate) -> None:
        key = (check, breach.field, breach.kind)
        # A name that is no identifier is no name of a quantity, and is not shown to a model.
        if not _NAME.fullmatch(breach.field):
            return
        if key not in self._tallies and len(self._tallies) >= MAX_LESSONS:
            return
        own = _is(candidate.get(breach.field), breach.measured)
        parts = self._parts(candidate)
        self._tallies.setdefault(key, _Tally()).add(breach, own=own, parts=parts)

    def _pass(self, candidate: Candidate, *, by: str) -> None:
        """Keep the smallest and the largest value of each variable that passed."""
        for name in self._space.variables if self._space else ():
            value = candidate.get(name)
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                ends = self._passed.get((by, name), _NOTHING)
                self._passed[by, name] = _stretched(ends, value)

    def _refuted(self, check: str, name: str, kind: str, bound: tuple[float, float]) -> bool:
        passed = [self._passed.get((by, name), _NOTHING) for by in (check, _DECISION)]
        if kind == "below":
            return any(low < bound[0] for low, _ in passed)
        return any(high > bound[1] for _, high in passed)

    def _lesson(self, key: tuple[str, str, str], tally: _Tally) -> Lesson:
        check, name, kind = key
        return Lesson(
            check=check,
            field=name,
            kind="below" if kind == "below" else "above",
            count=tally.count,
            measured=tally.measured,
            bound=tally.bound,
            own=tally.own,
            refuted=tally.own and self._refuted(check, name, kind, tally.bound),
            region=self._region(tally, other_than=name if tally.own else ""),
        )

    def _region(self, tally: _Tally, *, other_than: str) -> Region | None:
        """Return the part of a variable's range in which nearly all happened, and little else."""
        if tally.count < _REGION_COUNT or self._space is None:
            return None
        found = [
            (count / tally.count - self._proposed[part] / max(self._candidates, 1), part)
            for part, count in tally.parts.items()
            if part[0] != other_than and count >= _REGION_SHARE * tally.count
        ]
        excess, (name, part) = max(found, default=(0.0, ("", 0)))
        if excess < _REGION_EXCESS:
            return None
        values = self._space.variables[name].values
        if values is not None:
            return Region(name, values[part], values[part])
        low, high = (self._space.at_unit(name, end / PARTS) for end in (part, part + 1))
        return Region(name, low, high)

    def _parts(self, candidate: Candidate) -> Iterator[Part]:
        if self._space is None:
            return
        for name, variable in self._space.variables.items():
            value = candidate.get(name)
            if variable.problem(name, value) is None:
                yield name, self._part(self._space, name, variable, value)

    @staticmethod
    def _part(space: Space, name: str, variable: Variable, value: Any) -> int:
        if variable.values is not None:
            return variable.values.index(variable.canonical(value))
        return min(int(space.unit(name, value) * PARTS), PARTS - 1)

    def _spared(self, candidate: Candidate, refused: Sequence[str]) -> bool:
        """Whether a check that refused others let this candidate pass."""
        # A campaign's own proposal model may let values through that are none of the space's.
        if self._space is None or not refused or any(self._space.problems(candidate)):
            return False
        return self._space.fingerprint(candidate) not in refused


def bounds(
    lessons: Iterable[Lesson], variables: Mapping[str, Variable], *, after: int
) -> dict[str, tuple[float, float]]:
    """Return the narrower ranges that lessons teach, for variables that have one.

    Only a bound that was broken `after` times, was the same each time and that no candidate has
    passed beyond. Never wider than the variable's own range.

    Args:
        lessons: What the run has learned.
        variables: The campaign's.
        after: Breaches it takes; 0 for never.
    """
    found: dict[str, tuple[float, float]] = {}
    for lesson in lessons:
        variable = variables.get(lesson.field)
        if not after or lesson.count < after or not lesson.fixed:
            continue
        if variable is None or variable.domain is None:
            continue
        low, high = found.get(lesson.field, variable.domain)
        edge = lesson.bound[0]
        found[lesson.field] = (
            (max(low, edge), high) if lesson.kind == "below" else (low, min(high, edge))
        )
    return {name: (low, high) for name, (low, high) in found.items() if low < high}


def _candidates(answer: Plain) -> list[Candidate]:
    found = answer.get("candidates") if isinstance(answer, Mapping) else None
    if not isinstance(found, (list, tuple)):
        return []
    return [one if isinstance(one, Mapping) else {} for one in found]


def _is(value: object, measured: float) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    return math.isclose(value, measured, rel_tol=1e-9)


def _stretched(ends: tuple[float, float], value: float) -> tuple[float, float]:
    return min(ends[0], value), max(ends[1], value)
