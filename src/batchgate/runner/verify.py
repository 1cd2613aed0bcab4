"""The checks of a campaign as checks of `accept`, each of which writes down what it judged.

An answer may hold several samples. A check judges each that no earlier stage has rejected, and
rejects the answer when none is left. The last verifier takes them in order and stops at the first
that passes: the first sample that nothing rejected is the answer's proposal.

A verifier is a check that runs a level's function as AsyncFlow tasks. A task that failed is no
verdict: it is run again up to the level's own limit, and then `VerifierError` ends the decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from time import perf_counter
from typing import Any, TypeVar

from opentelemetry.trace import Span

from .. import span_ids
from ..breach import Breach
from ..campaign import BoundCheck, Campaign, Candidate, Level, Proposal, breaches, unmet
from ..carrier import environment
from ..checks import Check
from ..decision import PASSED, Verdict
from ..errors import VerifierError
from ..events import BrokenBound, CheckJudged, FailureRecorded
from ..job import End, Flow, FunctionTask, TaskEnd
from ..plain import plain
from .recorder import Recorder
from .twins import Twins

_MAX_OBSERVABLES = 100
"""Observables of one candidate that are kept; a level returns a handful."""

T = TypeVar("T")


@dataclass(slots=True)
class Turn:
    """Which attempt of which decision is being judged, for the events.

    Attributes:
        decision: From 1.
        attempt: From 1; counts attempts of earlier lives too.
        stage: What is at work now, to name what broke.
        batch: Number of the surrogate's batch, once it was asked.
        samples: The samples of the answer, in its order.
        fallen: Samples that a hard check rejected, by number from 1, and the stage of that check.
    """

    decision: int
    attempt: int = 0
    stage: str = "producer"
    batch: int | None = None
    samples: tuple[Proposal, ...] = ()
    fallen: dict[int, int] = field(default_factory=dict)

    def take(self, samples: Sequence[Proposal]) -> None:
        """Begin to judge an answer."""
        self.samples, self.fallen = tuple(samples), {}

    def left(self, stage: int) -> list[int]:
        """Return the samples that no stage before this one rejected."""
        numbers = range(1, len(self.samples) + 1)
        return [number for number in numbers if self.fallen.get(number, stage) >= stage]

    @property
    def winner(self) -> int:
        """The first sample that nothing rejected, once the answer was accepted."""
        return next(n for n in range(1, len(self.samples) + 1) if n not in self.fallen)


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one check says of a sample.

    Attributes:
        reasons: Sentences; empty when it passes.
        breaches: What they say in numbers, and the number of the candidate.
        refused: Candidates it objects to.
        observables: For a verifier, what it measured, a mapping for each candidate.
        node_h: Node-hours its tasks took.
    """

    reasons: tuple[str, ...] = ()
    breaches: tuple[BrokenBound, ...] = ()
    refused: tuple[Candidate, ...] = ()
    observables: tuple[Mapping[str, Any], ...] = ()
    node_h: float = 0.0


Judge = Callable[[Proposal], Awaitable[Judgement]]


@dataclass(frozen=True, slots=True)
class _Judge:
    """One check of the campaign.

    Attributes:
        name: Name in every record.
        judge: Judges a sample.
        hard: Whether it gates.
        verifier: Whether it runs tasks, which samples may do at the same time.
        last: Whether it is the last verifier, which spares the samples after one that passes.
    """

    name: str
    judge: Judge
    hard: bool = True
    verifier: bool = False
    last: bool = False

    def groups(self, samples: list[int]) -> list[list[int]]:
        """Return the samples in the order in which they are judged, those at the same time as one."""
        return [samples] if self.verifier and not self.last else [[one] for one in samples]


@dataclass(frozen=True, slots=True)
class Judges:
    """Makes the checks of one decision.

    Attributes:
        campaign: Whose checks.
        recorder: Where judgements go.
        flow: Where verifiers run.
    """

    campaign: Campaign
    recorder: Recorder
    flow: Flow

    def checks(self, turn: Turn) -> list[Check[Proposal] | list[Check[Proposal]]]:
        """Return the stages of a decision, cheapest first.

        The space and the domain checks are one stage: a model is told all that is wrong with a
        candidate at once. Then come duplicates, then each verifier, the cheapest level first.
        """
        verifiers = self.campaign.spec.verifiers
        judges = [
            [_Judge("space", self._space)],
            [_Judge(check.name, self._domain(check), check.hard) for check in self.campaign.checks],
            [_Judge("duplicate", self._duplicate)],
            *(
                [_Judge(v.name, self._verifier(v, turn), verifier=True, last=v is verifiers[-1])]
                for v in verifiers
            ),
        ]
        return [
            [self._recorded(turn, stage, judge) for judge in same]
            for stage, same in enumerate(filter(None, judges), start=1)
        ]

    def _recorded(self, turn: Turn, stage: int, by: _Judge) -> Check[Proposal]:
        async def check(_: Proposal) -> Verdict:
            turn.stage, found = by.name, dict[int, Judgement]()
            left = turn.left(stage)
            for numbers in by.groups(left):
                timed = (self._timed(by, turn, n) for n in numbers)
                for number, (judgement, elapsed_s) in zip(
                    numbers, await all_or_none(timed), strict=True
                ):
                    found[number] = judgement
                    self._record(turn, number, by, judgement, elapsed_s)
                    if by.hard and judgement.reasons:
                        turn.fallen.setdefault(number, stage)
                if by.last and not found[numbers[-1]].reasons:
                    break
            if by.hard:
                spared = any(number not in turn.fallen for number in left)
            else:
                spared = not all(judgement.reasons for judgement in found.values())
            return PASSED if spared else _verdict(found, several=len(turn.samples) > 1)

        return Check(by.name, check, hard=by.hard)

    async def _timed(self, by: _Judge, turn: Turn, sample: int) -> tuple[Judgement, float]:
        began = perf_counter()
        with _verify_span(by, sample) if by.verifier else nullcontext():
            judgement = await by.judge(turn.samples[sample - 1])
        return judgement, perf_counter() - began

    def _record(
        self, turn: Turn, sample: int, by: _Judge, judgement: Judgement, elapsed_s: float
    ) -> None:
        self.recorder.record(
            CheckJudged(
                decision=turn.decision,
                attempt=turn.attempt,
                check=by.name,
                sample=sample,
                passed=not judgement.reasons,
                hard=by.hard,
                reasons=judgement.reasons,
                breaches=judgement.breaches,
                refused=tuple(map(self.campaign.space.fingerprint, judgement.refused)),
                verifier=by.verifier,
                observables=tuple(plain(o) for o in judgement.observables),
                elapsed_s=elapsed_s,
                node_h=judgement.node_h,
            )
        )

    async def _space(self, proposal: Proposal) -> Judgement:
        points = proposal.points()
        return _judgement(points, [_said(self.campaign.space.problems(p)) for p in points])

    def _domain(self, check: BoundCheck) -> Judge:
        async def judge(proposal: Proposal) -> Judgement:
            points = proposal.points()
            return _judgement(points, [check.judge(self.campaign.inputs(p)) for p in points])

        return judge

    async def _duplicate(self, proposal: Proposal) -> Judgement:
        points = proposal.points()
        twins = Twins.now(self.campaign, self.recorder.state)
        said = []
        for number, point in enumerate(points):
            if point in points[:number]:
                said.append(_said(["stands twice in the proposal"]))
            else:
                said.append(_said(filter(None, [twins.problem(point)])))
        return _judgement(points, said)

    def _verifier(self, level: Level, turn: Turn) -> Judge:
        async def judge(proposal: Proposal) -> Judgement:
            points = proposal.points()
            runs = await all_or_none(self._verify(level, turn, point) for point in points)
            said = [
                _said(unmet(level.accept, found), breaches(level.accept, found))
                for found, _ in runs
            ]
            return replace(
                _judgement(points, said),
                observables=tuple(found for found, _ in runs),
                node_h=sum(node_h for _, node_h in runs),
            )

        return judge

    async def _verify(
        self, level: Level, turn: Turn, candidate: Candidate
    ) -> tuple[Mapping[str, Any], float]:
        """Run a level on one candidate; return its observables and what it cost."""
        node_h = 0.0
        for tries_left in range(level.retries, -1, -1):
            with span_ids.started(
                f"task {level.name}", attributes={"batchgate.level": level.name}
            ) as span:
                assert level.use is not None
                end = await self.flow.call(
                    FunctionTask(
                        folder=self.campaign.folder,
                        use=level.use,
                        value=self.campaign.inputs(candidate),
                        args=level.args,
                        timeout_s=level.timeout_s,
                        env=environment(),
                    )
                )
                span.set_attribute("batchgate.task.end", end.end)
            node_h += level.resources.nodes * end.elapsed_s / 3600
            what, message = _odd(end)
            if not what:
                return end.value, node_h
            if tries_left:
                again = FailureRecorded(
                    kind="verifier",
                    what=what,
                    message=message[:2000],
                    decision=turn.decision,
                    attempt=turn.attempt,
                    again=True,
                )
                self.recorder.record(again)
        raise VerifierError(f"verifier {level.name}: {message[:300]}", level.name, what)


def _verify_span(by: _Judge, sample: int) -> AbstractContextManager[Span]:
    """Trace what a verifier does with a sample; its tasks are below."""
    return span_ids.started(
        f"verify {by.name}",
        span_ids.in_attempt(f"verify {by.name} {sample}"),
        attributes={"batchgate.level": by.name, "batchgate.sample": sample},
    )


def _odd(end: TaskEnd) -> tuple[str, str]:
    """Say why a task's end is no judgement: what kind, and a message; two empty texts else."""
    if end.end is not End.COMPLETED:
        return end.end.value, end.error or end.end.value
    value = end.value
    if not isinstance(value, Mapping):
        return "odd_result", f"it returned {type(value).__name__}, must be a mapping of observables"
    if not value or len(value) > _MAX_OBSERVABLES:
        return (
            "odd_result",
            f"it returned {len(value)} observables, 1 to {_MAX_OBSERVABLES} are allowed",
        )
    return "", ""


def _said(problems: Iterable[str], broken: Iterable[Breach] = ()) -> Verdict:
    """Return what is said of one candidate."""
    reasons = tuple(problems)
    return Verdict(not reasons, reasons=reasons, breaches=tuple(broken))


def _judgement(points: Sequence[Candidate], said: Sequence[Verdict]) -> Judgement:
    """Put together what is said of each candidate; with several, a reason says which it means."""
    several = len(points) > 1
    return Judgement(
        reasons=tuple(
            f"candidate {number}: {reason}" if several else reason
            for number, verdict in enumerate(said, start=1)
            for reason in verdict.reasons
        ),
        breaches=tuple(
            BrokenBound(candidate=number, **breach.to_dict())
            for number, verdict in enumerate(said, start=1)
            for breach in verdict.breaches
        ),
        refused=tuple(point for point, verdict in zip(points, said, strict=True) if not verdict),
    )


def _verdict(found: Mapping[int, Judgement], *, several: bool) -> Verdict:
    """Say of an answer what was said of its samples; with several, a reason says which it means."""
    reasons = [
        f"answer {number}: {reason}" if several else reason
        for number, judgement in found.items()
        for reason in judgement.reasons
    ]
    broken = [one for judgement in found.values() for one in judgement.breaches]
    return Verdict(
        not reasons,  # it passes what another check of its stage has rejected
        reasons=reasons,
        breaches=[Breach(one.field, one.measured, one.bound, one.kind) for one in broken],
    )


async def all_or_none(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all; when one raises, end the others first, then raise as it is.

    Not a `TaskGroup`, which would wrap the exception in a group. One alone is awaited without a
    task, so that nothing comes between what it finds and its line in the ledger.
    """
    work = list(work)
    if len(work) == 1:
        return [await work[0]]
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
