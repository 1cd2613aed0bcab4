"""The gate of a campaign over a record: its checks in order, each judging a stored proposal.

It is the runner's own gate, with a recorder that only listens and an execution side that hands
out what verifiers measured then. So a verifier's verdict is worked out anew from its
measurements, and its function is not called.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from ..campaign import BoundCheck, Campaign, CampaignSpec, CheckUse, Proposal
from ..checks import Check
from ..errors import ConfigError, FlowError
from ..events import CheckJudged, Entry, Event, Plain
from ..job import End, FunctionTask, JobSpec, TaskEnd
from ..ledger import Appended, Ledger
from ..plain import restore
from ..runner import Recorder
from ..runner.verify import Judges, Turn
from ..state import State


class NotHere(Exception):
    """A verdict cannot be given here: its check's code or its verifier's measurements are missing."""


@dataclass(frozen=True, slots=True)
class Listener(Recorder):
    """A recorder that writes nothing and remembers what it was given.

    Attributes:
        events: What it was given.
    """

    events: list[Event] = field(default_factory=list)

    @classmethod
    def over(cls, state: State) -> Listener:
        """Listen to something that reads this state."""
        return cls(cast("Ledger", None), state)

    def record(self, event: Event) -> Appended:
        """Remember an event; the state stays as it is."""
        self.events.append(event)
        return Appended(Entry(seq=0, at_ns=0, event=event), "", "")


@dataclass(frozen=True, slots=True)
class Step:
    """One check in the order of a gate.

    Attributes:
        stage: From 1. Checks of one stage are all run, whatever one of them says.
        check: The check.
        turn: Where the check finds what it judges.
        last: Whether it is the last verifier, which spares the samples after one that passes.
    """

    stage: int
    check: Check[Proposal]
    turn: Turn
    last: bool

    @property
    def name(self) -> str:
        """The check's name."""
        return self.check.name


@dataclass(slots=True)
class Gate:
    """Judges stored proposals. Make it with `Gate.of`.

    Attributes:
        campaign: Whose checks.
        listener: Hears the verdicts; its state says which candidates are known.
    """

    campaign: Campaign
    listener: Listener
    _measured: Measured
    _judges: Judges

    @classmethod
    def of(cls, campaign: Campaign, state: State) -> Gate:
        """Make the gate of a campaign that sees a state, also as it changes."""
        listener, measured = Listener.over(state), Measured()
        return cls(campaign, listener, measured, Judges(campaign, listener, measured))

    def proposal(self, value: Plain) -> Proposal | None:
        """Return a stored proposal as the campaign's models have it; `None` when it does not fit.

        A producer may bring fewer candidates than a whole proposal has, so any number of valid
        candidates is one too.
        """
        try:
            return self.campaign.proposal_model.model_validate(value)
        except ValidationError:
            pass
        if not isinstance(value, dict) or not isinstance(value.get("candidates"), list):
            return None
        model = self.campaign.candidate_model
        try:
            found = [model.model_validate(candidate) for candidate in value["candidates"]]
            return Proposal(rationale=value.get("rationale", ""), candidates=found)
        except ValidationError:
            return None

    def steps(self, decision: int, attempt: int) -> list[Step]:
        """Return the checks that judge an attempt, in order."""
        turn = Turn(decision, attempt=attempt)
        verifiers = self.campaign.spec.verifiers
        last = verifiers[-1].name if verifiers else ""
        return [
            Step(stage, check, turn, check.name == last)
            for stage, same in enumerate(self._judges.checks(turn), start=1)
            for check in (same if isinstance(same, list) else [same])
        ]

    async def judge(
        self, step: Step, proposal: Proposal, *, measured: Sequence[Plain] = (), sample: int = 1
    ) -> CheckJudged:
        """Judge a proposal with one check, now.

        Args:
            step: The check.
            proposal: The proposal, or one sample of an answer.
            measured: For a verifier, what it measured of each candidate.
            sample: Number of the sample, for the record.

        Raises:
            NotHere: The check's code or the measurements are missing.
            Exception: Whatever the check raises.
        """
        self.listener.events.clear()
        self._measured.give(measured)
        step.turn.take([proposal])
        await step.check.judge(proposal)
        (judged,) = self.listener.events
        assert isinstance(judged, CheckJudged)
        return judged.model_copy(update={"sample": sample})


class Measured:
    """An execution side that answers with measurements of a record, in the order of candidates."""

    def __init__(self) -> None:
        self._next: Iterator[Any] = iter(())

    def give(self, measured: Iterable[Plain]) -> None:
        """Say what the next calls are to answer."""
        self._next = iter([restore(one) for one in measured])

    async def call(self, task: FunctionTask) -> TaskEnd:
        """Answer with the next measurement, whatever is asked."""
        try:
            return TaskEnd(End.COMPLETED, value=next(self._next))
        except StopIteration:
            raise NotHere(f"nothing was recorded of {task.use}") from None

    async def execute(self, spec: JobSpec) -> TaskEnd:
        """Refuse."""
        raise FlowError(f"a replay launches nothing, {spec.id} neither")


def campaign_of(spec: CampaignSpec, folder: Path | None) -> Campaign:
    """Return a recorded campaign with its code, as far as there is any.

    Args:
        spec: The campaign as the record has it.
        folder: Folder with its `campaign.py`. Without it checks that are not installed are
            `NotHere`.

    Raises:
        ConfigError: The folder lacks a function that the campaign names.
    """
    if folder is not None:
        return Campaign.of(spec, folder=folder)
    try:
        return Campaign.of(spec)
    except ConfigError:
        ask = spec.producer
        model = spec.space.proposal_model(batch=ask.batch, rationale_chars=ask.rationale_chars)
        return Campaign(spec, None, tuple(map(_absent, spec.check)), "", model)


def _absent(use: CheckUse) -> BoundCheck:
    def not_here(_: object, **args: object) -> None:
        raise NotHere(f"the code of {use.use} is not here")

    return BoundCheck(use.name or use.use.partition(":")[2], not_here, use.args, use.hard)
