"""What waits for a person, and what follows from the answer or from its absence.

An answer goes into the ledger before anything follows from it, so that a runner that dies between
the two is followed by one that does it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..answer import Answer
from ..campaign import Campaign
from ..errors import ConfigError
from ..events import DecisionParked, FailureRecorded, ParkedResolved, ResultParked
from ..parking import posted
from ..state import Parked
from .decide import Decider
from .launch import Launcher


@dataclass(frozen=True, slots=True)
class Person:
    """A producer that gives the proposal that a person wrote, once.

    Attributes:
        campaign: Says what a proposal is.
        value: What they wrote.
        name: Who.
    """

    campaign: Campaign
    value: Any
    name: str

    async def propose(self, **_: Any) -> Answer:
        """Return the proposal.

        Raises:
            ValidationError: It is none.
        """
        proposal = self.campaign.proposal_model.model_validate(self.value)
        return Answer(proposal, model=f"person {self.name}")

    async def aclose(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class Parking:
    """Looks for answers and acts on them.

    Attributes:
        decider: Closes decisions.
        launcher: Closes results.
        folder: The run's directory.
        clock: Seconds since the epoch.
    """

    decider: Decider
    launcher: Launcher
    folder: Path
    clock: Callable[[], float] = time.time
    _at_work: set[str] = field(default_factory=set)
    _told: set[str] = field(default_factory=set)

    def due(self, *, last_chance: bool) -> list[Coroutine[Any, Any, None]]:
        """Write down the answers that have come, and return what is to be done about them.

        Args:
            last_chance: Whether what is not launched now will not be in this allocation.
        """
        parked = self.decider.recorder.state.parked
        for name, waiting in parked.items():
            if waiting.answer is None and (answer := self._answer(name, waiting, last_chance)):
                self.decider.recorder.record(answer)
        new = [name for name, p in parked.items() if p.answer and name not in self._at_work]
        self._at_work.update(new)
        return [self._resolve(name) for name in new]

    def _answer(self, name: str, parked: Parked, last_chance: bool) -> ParkedResolved | None:
        said = None
        try:
            said = posted(self.folder, parked.key)
        except ConfigError as exc:
            self._complain(parked.key, exc)
        if said is not None:
            return ParkedResolved(
                what=name,
                action=said.action,
                by=said.by,
                answered_at=said.at,
                reason=said.reason,
                value=said.value,
            )
        hurry = last_chance and self.decider.campaign.spec.park.last_chance
        if self.clock() >= parked.event.expires_at or hurry:
            return ParkedResolved(what=name, action="expire", answered_at=self.clock())
        return None

    def _complain(self, key: str, exc: ConfigError) -> None:
        if key not in self._told:
            self._told.add(key)
            self.decider.recorder.record(
                FailureRecorded(kind="check", what="answer", message=str(exc), again=True)
            )

    async def _resolve(self, name: str) -> None:
        parked = self.decider.recorder.state.parked[name]
        assert parked.answer is not None
        try:
            if isinstance(parked.event, DecisionParked):
                await self._resolve_decision(parked.event.decision, parked.answer)
            else:
                self._resolve_result(parked.event, parked.answer)
            await self.decider.recorder.commit()
        finally:
            self._at_work.discard(name)

    async def _resolve_decision(self, number: int, answer: ParkedResolved) -> None:
        match answer.action:
            case "accept":
                self.decider.let_pass(number)
            case "reject":
                self.decider.refuse(number)
            case "edit":
                person = Person(self.decider.campaign, answer.value, answer.by)
                await self.decider.ask(number, person, attempts=1)
            case "expire":
                batch = self.decider.campaign.spec.producer.batch
                await self.decider.fall_back(number, batch, cause="expired")

    def _resolve_result(self, parked: ResultParked, answer: ParkedResolved) -> None:
        job = self.launcher.recorder.state.jobs[parked.job].plan
        values: Mapping[str, Any] = parked.values or {}
        if answer.action == "accept":
            self.launcher.accept(job, values)
        else:
            said: Sequence[str] = (answer.reason,) if answer.reason else ()
            self.launcher.refuse(job, (*parked.reasons, *said), values)
