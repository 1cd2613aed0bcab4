"""The checks of a campaign as checks of `accept`, each of which writes down what it judged.

A verifier is a check that runs a level's function as AsyncFlow tasks. A task that failed is no
verdict: it is run again up to the level's own limit, and then `VerifierError` ends the decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, TypeVar

from opentelemetry import trace

from ..campaign import BoundCheck, Campaign, Candidate, Level, Proposal, unmet
from ..carrier import environment
from ..decision import Check, Rejected, Verdict
from ..errors import VerifierError
from ..events import CheckJudged, FailureRecorded
from ..job import End, Flow, FunctionTask, TaskEnd
from ..plain import plain
from .recorder import Recorder
from .twins import Twins

_MAX_OBSERVABLES = 100
"""Observables of one candidate that are kept; a level returns a handful."""

T = TypeVar("T")

tracer = trace.get_tracer("batchgate")


@dataclass(slots=True)
class Turn:
    """Which attempt of which decision is being judged, for the events.

    Attributes:
        decision: From 1.
        attempt: From 1; counts attempts of earlier lives too.
        stage: What is at work now, to name what broke.
        batch: Number of the surrogate's batch, once it was asked.
    """

    decision: int
    attempt: int = 0
    stage: str = "producer"
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """What one check says of a proposal.

    Attributes:
        reasons: Sentences; empty when it passes.
        refused: Candidates it objects to.
        observables: For a verifier, what it measured, a mapping for each candidate.
        node_h: Node-hours its tasks took.
    """

    reasons: tuple[str, ...] = ()
    refused: tuple[Candidate, ...] = ()
    observables: tuple[Mapping[str, Any], ...] = ()
    node_h: float = 0.0


Judge = Callable[[Proposal], Awaitable[Judgement]]


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
        domain = [
            self._recorded(turn, c.name, self._domain(c), hard=c.hard) for c in self.campaign.checks
        ]
        stages: list[Check[Proposal] | list[Check[Proposal]]] = [
            self._recorded(turn, "space", self._space)
        ]
        if domain:
            stages.append(domain)
        stages.append(self._recorded(turn, "duplicate", self._duplicate))
        stages += [
            self._recorded(turn, level.name, self._verifier(level, turn), verifier=True)
            for level in self.campaign.spec.verifiers
        ]
        return stages

    def _recorded(
        self,
        turn: Turn,
        name: str,
        judge: Judge,
        *,
        hard: bool = True,
        verifier: bool = False,
    ) -> Check[Proposal]:
        async def check(proposal: Proposal) -> Verdict:
            turn.stage, began = name, perf_counter()
            found = await judge(proposal)
            self.recorder.record(
                CheckJudged(
                    decision=turn.decision,
                    attempt=turn.attempt,
                    check=name,
                    passed=not found.reasons,
                    hard=hard,
                    reasons=found.reasons,
                    refused=tuple(map(self.campaign.space.fingerprint, found.refused)),
                    verifier=verifier,
                    observables=tuple(plain(o) for o in found.observables),
                    elapsed_s=perf_counter() - began,
                    node_h=found.node_h,
                )
            )
            return Verdict(not found.reasons, reasons=found.reasons)

        return Check(name, check, hard=hard)

    async def _space(self, proposal: Proposal) -> Judgement:
        points = proposal.points()
        return _judgement(points, [list(self.campaign.space.problems(p)) for p in points])

    def _domain(self, check: BoundCheck) -> Judge:
        async def judge(proposal: Proposal) -> Judgement:
            points = proposal.points()
            return _judgement(points, [self._problems(check, point) for point in points])

        return judge

    def _problems(self, check: BoundCheck, point: Candidate) -> Sequence[str]:
        try:
            return check.problems(self.campaign.inputs(point))
        except Rejected as rejected:  # the other way in which a check may say no
            return rejected.reasons or (f"{check.name} rejects it",)

    async def _duplicate(self, proposal: Proposal) -> Judgement:
        points = proposal.points()
        twins = Twins.now(self.campaign, self.recorder.state)
        problems = []
        for number, point in enumerate(points):
            if point in points[:number]:
                problems.append(["stands twice in the proposal"])
            else:
                problem = twins.problem(point)
                problems.append([problem] if problem else [])
        return _judgement(points, problems)

    def _verifier(self, level: Level, turn: Turn) -> Judge:
        async def judge(proposal: Proposal) -> Judgement:
            points = proposal.points()
            runs = await all_or_none(self._verify(level, turn, point) for point in points)
            judgement = _judgement(points, [list(unmet(level.accept, found)) for found, _ in runs])
            return replace(
                judgement,
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
            with tracer.start_as_current_span(
                f"verify {level.name}", attributes={"batchgate.level": level.name}
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


def _judgement(points: Sequence[Candidate], problems: Sequence[Sequence[str]]) -> Judgement:
    """Put the problems of each candidate together; with several, a reason says which it means."""
    several = len(points) > 1
    return Judgement(
        reasons=tuple(
            f"candidate {number}: {problem}" if several else problem
            for number, found in enumerate(problems, start=1)
            for problem in found
        ),
        refused=tuple(point for point, found in zip(points, problems, strict=True) if found),
    )


async def all_or_none(work: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Await all; when one raises, end the others first, then raise as it is.

    Not a `TaskGroup`, which would wrap the exception in a group.
    """
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
