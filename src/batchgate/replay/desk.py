"""The rules of one decision: who was asked when, which check ran, and how it was closed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Literal

from ..campaign import Campaign, Proposal
from ..events import (
    Action,
    AttemptStarted,
    CheckJudged,
    Chosen,
    DecisionMade,
    FailureKind,
    FailureRecorded,
    ProposalMade,
)
from ..plain import plain
from ..runner.audit import drawn
from ..state import Decision
from .gate import Gate, NotHere, Step
from .hindsight import Hindsight
from .mismatch import Kind, Problem, Problems, differences

Stand = Literal[
    "new", "asked", "judged", "rejected", "passed", "broken", "interrupted", "parked", "resolved"
]
"""How far the newest attempt has come.

`judged`: some of its checks are still to come. `parked`: the decision waits for a person.
`resolved`: a person has answered, or nobody has in time.
"""

DUPLICATE = "duplicate"
"""The one check that sees more than the proposal: the candidates that are known."""
MAX_MESSAGE = 2000
"""Length at which the runner cuts the message of a failure."""

_FREE = frozenset({"elapsed_s", "node_h"})
_CLOSED_BY: dict[FailureKind, tuple[str, str]] = {
    "producer": ("fallback", "producer"),
    "verifier": ("failed", "verifier"),
    "check": ("failed", "check"),
    "surrogate": ("failed", "surrogate"),
}

_RESOLVED_BY: dict[Action, list[tuple[str, str]]] = {
    "accept": [("accepted", "person"), ("refused", "nothing that could be launched")],
    "reject": [("refused", "person")],
    "expire": [("fallback", "expired")],
}


@dataclass(slots=True)
class Counts:
    """What a replay did.

    Attributes:
        rerun: Verdicts that were given again by running the check.
        measured: Verdicts of verifiers, worked out from what they measured then.
        skipped: Verdicts taken from the record, by check, since its code is not here.
    """

    rerun: int = 0
    measured: int = 0
    skipped: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Desk:
    """Follows one decision.

    Attributes:
        number: The decision.
        counts: Shared by all decisions of a replay.
        hindsight: Likewise.
        stand: How far its newest attempt has come.
        attempt: Number of that attempt.
    """

    number: int
    counts: Counts
    hindsight: Hindsight
    stand: Stand = "new"
    attempt: int = 0
    _noted: int = 0
    """Events of the run up to the attempt's newest one."""
    _samples: list[Proposal | None] = field(default_factory=list)
    _steps: list[Step] = field(default_factory=list)
    _due: list[int] = field(default_factory=list)
    """Samples that the first of the steps has still to judge."""
    _fallen: dict[int, int] = field(default_factory=dict)
    """Samples that a hard check rejected, and in which stage."""
    _broken: FailureKind | None = None
    _answer: Action | None = None

    def interrupt(self) -> None:
        """Take in that the runner died, or was told to stop, and another one goes on."""
        if self.stand in {"asked", "judged", "passed"}:
            self.stand = "interrupted"

    def start(self, event: AttemptStarted, decision: Decision, gate: Gate) -> Problems:
        """Judge the start of an attempt."""
        allowed = gate.campaign.spec.producer.attempts
        if decision.source != "producer":
            yield "loop", f"decision {self.number} is the surrogate's, and a model was asked"
        if decision.spent >= allowed and self.stand != "resolved":
            yield "loop", f"attempt {event.attempt} is one too many, {allowed} are allowed"
        if self.stand not in {"new", "rejected", "interrupted"} and self._answer != "edit":
            yield "loop", f"attempt {event.attempt} was started though the last one {self.stand}"
        self.stand, self.attempt = "asked", event.attempt

    def propose(self, event: ProposalMade, gate: Gate) -> Problems:
        """Judge a proposal's own form, and lay out the checks that are to follow."""
        yield from self._answered(event.attempt)
        if event.samples_valid > event.samples_total:
            yield "proposal", f"{event.samples_valid} of {event.samples_total} samples were valid"
        self._noted = self.hindsight.count
        self._samples = [gate.proposal(value) for value in (event.proposal, *event.others)]
        for sample, value in zip(self._samples, (event.proposal, *event.others), strict=True):
            if sample is None:
                yield "proposal", "it does not fit the campaign's model of a proposal"
            elif plain(sample) != value:
                yield "proposal", "the campaign's model of a proposal writes it in another way"
        self._steps, self._fallen = gate.steps(self.number, self.attempt), {}
        self._due, self.stand = list(range(1, len(self._samples) + 1)), "judged"

    def reject(self, attempt: int) -> Problems:
        """Take in that the producer rejected its own answer."""
        yield from self._answered(attempt)
        self.stand = "rejected"

    async def judge(self, event: CheckJudged, gate: Gate) -> AsyncIterator[Problem]:
        """Judge a verdict: whether its check was due, and what the check says now."""
        if (due := self._next()) != (event.check, event.sample):
            told = f"{due[0]} of sample {due[1]}" if due else "nothing"
            yield "check", f"{event.check} judged sample {event.sample} where {told} was due"
            self._skip_to(event)
        if self._next() == (event.check, event.sample):
            step = self._steps[0]
            async for problem in self._again(event, step, gate):
                yield problem
            self._conclude(event, step)
        self._noted = self.hindsight.count

    async def fail(self, event: FailureRecorded, gate: Gate) -> AsyncIterator[Problem]:
        """Judge that something broke."""
        if event.again:
            return
        if self.stand == "broken" and event.kind != "surrogate":
            yield "loop", f"the {event.kind} failed when the decision had come to its end already"
        if event.kind == "check" and self.stand == "judged":
            async for problem in self._broke(event, gate):
                yield problem
        elif event.kind == "producer" and self.stand != "asked":
            yield "loop", "the producer failed and was not being asked"
        elif event.kind == "verifier" and self.stand != "judged":
            yield "loop", "a verifier failed and had nothing to judge"
        if (event.attempt or 0) != self.attempt:
            yield "loop", f"attempt {event.attempt} failed where {self.attempt} was under way"
        self.stand, self._broken = "broken", event.kind

    def park(self, decision: Decision, gate: Gate) -> Problems:
        """Judge that the decision was left to a person."""
        if ("fallback", "rejected") not in self._ends(decision, gate.campaign):
            yield "loop", "it was parked, though it was not out of attempts"
        self.stand = "parked"

    def resolve(self, action: Action) -> None:
        """Take in that the decision was answered for."""
        self.stand, self._answer = "resolved", action

    def close(
        self, event: DecisionMade, decision: Decision, gate: Gate, batches: dict[int, int]
    ) -> Problems:
        """Judge how the decision was closed, and what it let through.

        Args:
            event: Its end.
            decision: It, as the state has it before.
            gate: The campaign's checks.
            batches: Candidates of the surrogate's batches that are not taken yet, by number.
        """
        if event.attempts != decision.spent:
            yield "loop", f"attempts is {event.attempts}, must be {decision.spent}"
        if event.disposition != "abandoned":
            allowed = self._ends(decision, gate.campaign)
            if (event.disposition, event.cause) not in allowed:
                told = " or ".join(f"{one} {why!r}" for one, why in allowed) or "left open"
                yield "loop", f"it is {event.disposition} {event.cause!r}, must be {told}"
        yield from self._drawn(event, gate)
        yield from self._chosen(event, gate, batches)

    def _answered(self, attempt: int) -> Problems:
        if self.stand != "asked":
            yield "loop", f"attempt {attempt} was answered though it was not being asked"

    def _next(self) -> tuple[str, int] | None:
        """Return the check that is to judge next, and the sample."""
        return (self._steps[0].name, self._due[0]) if self._steps and self._due else None

    def _skip_to(self, event: CheckJudged) -> None:
        """Go on from a verdict that was not due, if it can be one of this attempt."""
        places = [place for place, step in enumerate(self._steps) if step.name == event.check]
        if places and 1 <= event.sample <= len(self._samples):
            del self._steps[: places[0]]
            self._due = [event.sample, *(n for n in self._left() if n > event.sample)]

    def _left(self) -> list[int]:
        """Return the samples that no stage before the first of the steps has rejected."""
        stage, numbers = self._steps[0].stage, range(1, len(self._samples) + 1)
        return [number for number in numbers if self._fallen.get(number, stage) >= stage]

    def _conclude(self, event: CheckJudged, step: Step) -> None:
        """Take a verdict in, and find out what is due after it."""
        self._due.pop(0)
        if event.hard and not event.passed:
            self._fallen.setdefault(event.sample, step.stage)
        elif step.last:
            self._due = []
        if self._due:
            return
        self._steps.pop(0)
        all_fell = len(self._fallen) == len(self._samples)
        if self._steps and not (all_fell and self._steps[0].stage != step.stage):
            self._due = self._left()
        else:
            self.stand = "rejected" if all_fell else "passed"

    @property
    def _winner(self) -> int:
        """Return the first sample that nothing rejected."""
        return next(n for n in range(1, len(self._samples) + 1) if n not in self._fallen)

    async def _again(self, event: CheckJudged, step: Step, gate: Gate) -> AsyncIterator[Problem]:
        sample = self._samples[event.sample - 1]
        if sample is None:
            return
        try:
            now = await gate.judge(step, sample, measured=event.observables, sample=event.sample)
        except NotHere as exc:
            if event.verifier:
                yield "reason", str(exc)
            else:
                self._skipped(step.name)
            return
        except Exception as exc:  # noqa: BLE001 - a campaign's own code; that it breaks is told
            yield "check", f"{step.name} fails now: {type(exc).__name__}: {exc}"
            return
        if now.verifier:
            self.counts.measured += 1
        else:
            self.counts.rerun += 1
        free = _FREE if now.verifier else frozenset({"elapsed_s"})
        told = list(differences(event, now, free=free))
        if told and step.name == DUPLICATE and await self._held_earlier(event, step, sample, gate):
            return
        for difference in told:
            kind: Kind = "reason" if event.passed == now.passed else "verdict"
            yield kind, f"{step.name}: {difference}"
        if told and not now.verifier and await self._is_unsteady(step, sample, now, gate):
            yield "unsteady", f"{step.name} says two things of one proposal"

    async def _held_earlier(
        self, event: CheckJudged, step: Step, sample: Proposal, gate: Gate
    ) -> bool:
        """Whether a verdict on twins was right at some moment since the attempt's event before."""
        state = gate.listener.state
        now = state.known
        try:
            for known in self.hindsight.since(self._noted, state):
                state.known = known
                then = await gate.judge(step, sample, sample=event.sample)
                if not any(differences(event, then, free=_FREE)):
                    return True
        finally:
            state.known = now
        return False

    async def _is_unsteady(
        self, step: Step, sample: Proposal, first: CheckJudged, gate: Gate
    ) -> bool:
        try:
            second = await gate.judge(step, sample, sample=first.sample)
        except Exception:  # noqa: BLE001 - it gave a verdict a moment ago
            return True
        return any(differences(second, first, free=_FREE))

    async def _broke(self, event: FailureRecorded, gate: Gate) -> AsyncIterator[Problem]:
        due = self._next()
        if due is None or due[0] != event.what:
            yield "check", f"{event.what} failed where {due[0] if due else 'nothing'} was due"
            return
        sample = self._samples[due[1] - 1]
        if sample is None:
            return
        try:
            await gate.judge(self._steps[0], sample)
        except NotHere:
            self._skipped(event.what)
        except Exception as exc:  # noqa: BLE001 - it is what the record says
            said = f"{type(exc).__name__}: {exc}"[:MAX_MESSAGE]
            if said != event.message:
                yield "reason", f"{event.what} fails with {said!r} now"
        else:
            yield "check", f"{event.what} failed, and gives a verdict now"

    def _skipped(self, name: str) -> None:
        self.counts.skipped[name] = self.counts.skipped.get(name, 0) + 1

    def _ends(self, decision: Decision, campaign: Campaign) -> list[tuple[str, str]]:
        """Return the ways in which the decision may be closed now, each with its cause."""
        if self.stand == "resolved":
            return _RESOLVED_BY.get(self._answer or "edit", [])
        if self.stand == "broken":
            assert self._broken is not None
            return [_CLOSED_BY[self._broken]] if self._broken in _CLOSED_BY else []
        if decision.source == "surrogate":
            return [("fallback", "idle")]
        if self.stand == "passed":
            return [("accepted", "")]
        spent = decision.spent >= campaign.spec.producer.attempts
        if self.stand in {"rejected", "interrupted"} and spent:
            return [("fallback", "rejected")]
        return []

    def _chosen(self, event: DecisionMade, gate: Gate, batches: dict[int, int]) -> Problems:
        space = gate.campaign.space
        for chosen in event.candidates:
            problems = any(space.problems(chosen.candidate))
            if problems or chosen.fingerprint != space.fingerprint(chosen.candidate):
                yield "loop", f"candidate {chosen.fingerprint} has not the values of its name"
        match event.disposition:
            case "accepted" if self.stand == "passed" and (
                taken := self._samples[self._winner - 1]
            ):
                points = taken.points()
                if event.sample != self._winner:
                    yield "loop", f"sample is {event.sample}, must be {self._winner}"
                due = tuple(
                    Chosen(fingerprint=space.fingerprint(p), candidate=dict(p)) for p in points
                )
                if through_of(event) != due:
                    yield "loop", "its candidates are not those of the proposal that was accepted"
            case "fallback":
                yield from self._taken(event, batches)
                for chosen in through_of(event):
                    if told := _unfit(chosen, gate.campaign):
                        yield "loop", f"candidate {chosen.fingerprint}: {told}"
            case "failed" | "refused" | "abandoned" if event.candidates:
                yield "loop", f"it is {event.disposition} and lets candidates through"
        if event.disposition != "fallback" and event.batch is not None:
            yield "loop", f"it is {event.disposition} and names batch {event.batch}"

    def _drawn(self, event: DecisionMade, gate: Gate) -> Problems:
        """Judge which rejected candidates are launched all the same: who is drawn is no chance."""
        through = through_of(event)
        try:
            state = gate.listener.state
            due = drawn(gate.campaign, state, self.number, through) if through else []
        except Exception:  # noqa: BLE001 - a safety check whose code is not here, or is broken
            return
        if event.candidates[len(through) :] != tuple(due):
            yield "loop", "its audited candidates are not those that were to be drawn"

    def _taken(self, event: DecisionMade, batches: dict[int, int]) -> Problems:
        count = batches.pop(event.batch, None) if event.batch is not None else None
        if count is None:
            yield "loop", f"batch {event.batch} was not asked for, or is taken already"
        elif count != len(through_of(event)):
            yield "loop", f"it has {len(through_of(event))} candidates, its batch had {count}"


def through_of(event: DecisionMade) -> tuple[Chosen, ...]:
    """Return the candidates that a decision let through, without those it launches to learn."""
    return tuple(chosen for chosen in event.candidates if chosen.audit_probability is None)


def _unfit(chosen: Chosen, campaign: Campaign) -> str:
    """Say what keeps a candidate from being one that the surrogate may give; `""` for nothing."""
    try:
        return next(iter(campaign.problems(chosen.candidate)), "")
    except NotHere:
        return ""
    except Exception as exc:  # noqa: BLE001 - a campaign's own code; that it breaks is told
        return f"a check fails on it: {type(exc).__name__}: {exc}"
