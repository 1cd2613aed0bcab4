"""The rules of one decision: who was asked when, which check ran, and how it was closed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..campaign import Campaign, Proposal
from ..checks import Check
from ..events import (
    AttemptStarted,
    CheckJudged,
    Chosen,
    DecisionMade,
    FailureKind,
    FailureRecorded,
    ProposalMade,
)
from ..plain import plain
from ..state import Decision
from .gate import Gate, NotHere
from .mismatch import Kind, Problem, Problems, differences

Stand = Literal["new", "asked", "judged", "rejected", "passed", "broken", "interrupted"]
"""How far the newest attempt has come. `judged`: some of its checks are still to come."""

MAX_MESSAGE = 2000
"""Length at which the runner cuts the message of a failure."""

_FREE = frozenset({"elapsed_s", "node_h"})
_CLOSED_BY: dict[FailureKind, tuple[str, str]] = {
    "producer": ("fallback", "producer"),
    "verifier": ("failed", "verifier"),
    "check": ("failed", "check"),
    "surrogate": ("failed", "surrogate"),
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
        stand: How far its newest attempt has come.
        attempt: Number of that attempt.
    """

    number: int
    counts: Counts
    stand: Stand = "new"
    attempt: int = 0
    _proposal: Proposal | None = None
    _due: list[tuple[int, Check[Proposal]]] = field(default_factory=list)
    _refused: bool = False
    _broken: FailureKind | None = None

    def interrupt(self) -> None:
        """Take in that the runner died, or was told to stop, and another one goes on."""
        if self.stand in {"asked", "judged", "passed"}:
            self.stand = "interrupted"

    def start(self, event: AttemptStarted, decision: Decision, gate: Gate) -> Problems:
        """Judge the start of an attempt."""
        allowed = gate.campaign.spec.producer.attempts
        if decision.source != "producer":
            yield "loop", f"decision {self.number} is the surrogate's, and a model was asked"
        if decision.spent >= allowed:
            yield "loop", f"attempt {event.attempt} is one too many, {allowed} are allowed"
        if self.stand not in {"new", "rejected", "interrupted"}:
            yield "loop", f"attempt {event.attempt} was started though the last one {self.stand}"
        self.stand, self.attempt = "asked", event.attempt

    def propose(self, event: ProposalMade, gate: Gate) -> Problems:
        """Judge a proposal's own form, and lay out the checks that are to follow."""
        yield from self._answered(event.attempt)
        if event.samples_valid > event.samples_total:
            yield "proposal", f"{event.samples_valid} of {event.samples_total} samples were valid"
        self._proposal = gate.proposal(event.proposal)
        if self._proposal is None:
            yield "proposal", "it does not fit the campaign's model of a proposal"
        elif plain(self._proposal) != event.proposal:
            yield "proposal", "the campaign's model of a proposal writes it in another way"
        stages = gate.stages(self.number, self.attempt)
        self._due = [(place, check) for place, stage in enumerate(stages) for check in stage]
        self._refused, self.stand = False, "judged"

    def reject(self, attempt: int) -> Problems:
        """Take in that the producer rejected its own answer."""
        yield from self._answered(attempt)
        self.stand = "rejected"

    async def judge(self, event: CheckJudged, gate: Gate) -> AsyncIterator[Problem]:
        """Judge a verdict: whether its check was due, and what the check says now."""
        check = self._take(event.check)
        if check is None:
            yield "check", f"{event.check} is no check that was due; {self._next()}"
        else:
            if check[1]:
                yield "check", f"{event.check} judged, and {check[1]} before it did not"
            async for problem in self._again(event, check[0], gate):
                yield problem
        self._refused = self._refused or (event.hard and not event.passed)
        self._conclude()

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
        yield from self._chosen(event, gate, batches)

    def _answered(self, attempt: int) -> Problems:
        if self.stand != "asked":
            yield "loop", f"attempt {attempt} was answered though it was not being asked"

    def _take(self, name: str) -> tuple[Check[Proposal], str] | None:
        """Take a check from those that are due; return it and the name of one left out."""
        for place, (_, check) in enumerate(self._due):
            if check.name == name:
                left_out = self._due[0][1].name if place else ""
                del self._due[:place]
                return check, left_out
        return None

    def _next(self) -> str:
        return f"{self._due[0][1].name} is" if self._due else "none is"

    def _conclude(self) -> None:
        """Drop the check that has judged; after a refusal only the rest of its stage is due."""
        if self._due:
            stage, _ = self._due.pop(0)
            if self._refused:
                self._due = [item for item in self._due if item[0] == stage]
        if not self._due:
            self.stand = "rejected" if self._refused else "passed"

    async def _again(
        self, event: CheckJudged, check: Check[Proposal], gate: Gate
    ) -> AsyncIterator[Problem]:
        if self._proposal is None:
            return
        try:
            now = await gate.judge(check, self._proposal, event.observables)
        except NotHere as exc:
            if event.verifier:
                yield "reason", str(exc)
            else:
                self.counts.skipped[check.name] = self.counts.skipped.get(check.name, 0) + 1
            return
        except Exception as exc:  # noqa: BLE001 - a campaign's own code; that it breaks is told
            yield "check", f"{check.name} fails now: {type(exc).__name__}: {exc}"
            return
        if now.verifier:
            self.counts.measured += 1
        else:
            self.counts.rerun += 1
        free = _FREE if now.verifier else frozenset({"elapsed_s"})
        told = list(differences(event, now, free=free))
        for difference in told:
            kind: Kind = "reason" if event.passed == now.passed else "verdict"
            yield kind, f"{check.name}: {difference}"
        if told and not now.verifier and await self._is_unsteady(check, now, gate):
            yield "unsteady", f"{check.name} says two things of one proposal"

    async def _is_unsteady(self, check: Check[Proposal], first: CheckJudged, gate: Gate) -> bool:
        assert self._proposal is not None
        try:
            second = await gate.judge(check, self._proposal)
        except Exception:  # noqa: BLE001 - it gave a verdict a moment ago
            return True
        return any(differences(second, first, free=_FREE))

    async def _broke(self, event: FailureRecorded, gate: Gate) -> AsyncIterator[Problem]:
        due = self._take(event.what)
        if due is None or due[1]:
            yield "check", f"{event.what} failed and was not due; {self._next()}"
        elif self._proposal is not None:
            try:
                await gate.judge(due[0], self._proposal)
            except NotHere:
                self.counts.skipped[event.what] = self.counts.skipped.get(event.what, 0) + 1
            except Exception as exc:  # noqa: BLE001 - it is what the record says
                said = f"{type(exc).__name__}: {exc}"[:MAX_MESSAGE]
                if said != event.message:
                    yield "reason", f"{event.what} fails with {said!r} now"
            else:
                yield "check", f"{event.what} failed, and gives a verdict now"

    def _ends(self, decision: Decision, campaign: Campaign) -> list[tuple[str, str]]:
        """Return the ways in which the decision may be closed now, each with its cause."""
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
        match event.disposition:
            case "accepted" if self._proposal is not None:
                points = self._proposal.points()
                due = tuple(
                    Chosen(fingerprint=space.fingerprint(p), candidate=dict(p)) for p in points
                )
                if event.candidates != due:
                    yield "loop", "its candidates are not those of the proposal that was accepted"
            case "fallback":
                yield from self._taken(event, batches)
                for chosen in event.candidates:
                    yield from ((("loop", told)) for told in _unfit(chosen, gate.campaign))
            case "failed" | "abandoned" if event.candidates:
                yield "loop", f"it is {event.disposition} and lets candidates through"
        if event.disposition != "fallback" and event.batch is not None:
            yield "loop", f"it is {event.disposition} and names batch {event.batch}"

    def _taken(self, event: DecisionMade, batches: dict[int, int]) -> Problems:
        count = batches.pop(event.batch, None) if event.batch is not None else None
        if count is None:
            yield "loop", f"batch {event.batch} was not asked for, or is taken already"
        elif count != len(event.candidates):
            yield "loop", f"it has {len(event.candidates)} candidates, its batch had {count}"


def _unfit(chosen: Chosen, campaign: Campaign) -> Iterator[str]:
    """Tell what keeps a candidate from being one that the surrogate may give."""
    where = f"candidate {chosen.fingerprint}"
    if problems := list(campaign.space.problems(chosen.candidate)):
        yield f"{where}: {problems[0]}"
        return
    if chosen.fingerprint != campaign.space.fingerprint(chosen.candidate):
        yield f"{where} has another fingerprint than its values have"
    try:
        problems = campaign.problems(chosen.candidate)
    except NotHere:
        return
    except Exception as exc:  # noqa: BLE001 - a campaign's own code; that it breaks is told
        problems = [f"a check fails on it: {type(exc).__name__}: {exc}"]
    if problems:
        yield f"{where}: {problems[0]}"
