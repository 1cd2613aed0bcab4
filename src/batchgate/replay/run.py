"""Replay: every event of a run held against its campaign and the runner's rules."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from ..events import (
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    DecisionMade,
    DecisionOpened,
    DecisionParked,
    Entry,
    Event,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ParkedResolved,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultRejected,
    RunResumed,
    RunStarted,
    RunStopped,
    RunSuspended,
    SegmentClosed,
    SegmentOpened,
    SurrogateAsked,
)
from ..ledger import Reader, folder_of
from ..state import State
from . import loop
from .desk import Counts, Desk
from .gate import Gate, campaign_of
from .hindsight import Hindsight
from .mismatch import Kind, Mismatch, Problem, Problems


@dataclass(frozen=True, slots=True)
class RunReplay:
    """What a replay found. Make it with `replay`.

    Attributes:
        run: The run's name.
        decisions: Decisions followed.
        attempts: Attempts followed.
        rerun: Verdicts of checks that were given again.
        measured: Verdicts of verifiers, worked out from what they had measured. The verifiers
            themselves were not run.
        skipped: Verdicts taken from the record, by check, since the check's code was not here.
        end: How the record ends. `open`: it runs, its runner was killed, or lines were cut off
            the end; nothing inside the record can tell these apart.
        mismatches: Where the record and the replay disagree, in the order of the record.
    """

    run: str
    decisions: int
    attempts: int
    rerun: int
    measured: int
    skipped: Mapping[str, int]
    end: Literal["stopped", "suspended", "open"]
    mismatches: tuple[Mismatch, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing disagrees."""
        return not self.mismatches

    def to_json(self) -> str:
        """Return it as strict JSON, one object, `ok` among its keys."""
        return json.dumps({"ok": self.ok, **asdict(self)}, indent=2, allow_nan=False)


async def replay(run_dir: str | Path, *, campaign: str | Path | None = None) -> RunReplay:
    """Hold a run's record against its campaign's checks and the runner's rules.

    The campaign is the recorded one, with all its bounds; only its code comes from elsewhere.

    Args:
        run_dir: The run's directory. A run that is still going on can be replayed too.
        campaign: Folder with the `campaign.py` that the run had. Without it, checks whose code is
            not installed are skipped and counted.

    Raises:
        ConfigError: The folder lacks a function that the campaign names.
        LedgerCorruptError: The ledger was damaged; the error says where.
        LedgerError: There is no ledger.
    """
    run_dir, reader = Path(run_dir), Reader(folder_of(run_dir))
    player = _Player(run_dir, Path(campaign).resolve() if campaign is not None else None)
    for entry in reader:
        if not await player.take(entry, reader.where):
            break
    return player.finish()


@dataclass(slots=True)
class _Player:
    """A replay while it goes on."""

    run_dir: Path
    code: Path | None
    state: State = field(default_factory=State)
    counts: Counts = field(default_factory=Counts)
    hindsight: Hindsight = field(default_factory=Hindsight)
    gate: Gate | None = None
    slots: int = 1
    life_began_at: float = 0.0
    closed: bool = False
    attempts: int = 0
    desks: dict[int, Desk] = field(default_factory=dict)
    batches: dict[int, int] = field(default_factory=dict)
    ending: loop.Ending = field(default_factory=loop.Ending)
    mismatches: list[Mismatch] = field(default_factory=list)

    async def take(self, entry: Entry, where: str) -> bool:
        """Take one event; return whether the next one can be taken."""
        event = entry.event
        try:
            async for kind, message in self._judge(event, entry.at):
                self._tell(where, event, kind, message)
            self.hindsight.note(event, self.state)
            self.state.apply(event, at=entry.at)
            self._follow(event, entry.at)
        except (LookupError, TypeError, ValueError, AttributeError, AssertionError) as exc:
            # An edited record may name anything: what cannot be folded ends the replay.
            why = f"nothing after it can be replayed, since it fits nothing before ({exc!r:.200})"
            self._tell(where, event, "loop", why)
            return False
        self.ending.see(self.state)
        await asyncio.sleep(0)
        return True

    def finish(self) -> RunReplay:
        state = self.state
        end: Literal["stopped", "suspended", "open"] = "suspended" if state.suspended else "open"
        return RunReplay(
            run=state.run,
            decisions=len(self.desks),
            attempts=self.attempts,
            rerun=self.counts.rerun,
            measured=self.counts.measured,
            skipped=dict(self.counts.skipped),
            end="stopped" if state.stopped else end,
            mismatches=tuple(self.mismatches),
        )

    def _tell(self, where: str, event: Event, kind: Kind, message: str) -> None:
        self.mismatches.append(Mismatch(kind, where, event.type, message))

    async def _judge(self, event: Event, at: float) -> AsyncIterator[Problem]:
        """Judge an event by the state before it."""
        if self.closed and not isinstance(event, SegmentOpened):
            yield "stop", "the segment was closed before"
        match event:
            case CheckJudged() | FailureRecorded() if event.decision is not None:
                desk = self.desks[event.decision]
                judge = desk.judge if isinstance(event, CheckJudged) else desk.fail
                async for problem in judge(event, self._open_gate):  # type: ignore[arg-type]
                    yield problem
            case (
                AttemptStarted()
                | ProposalMade()
                | ProposalRejected()
                | DecisionMade()
                | DecisionParked()
            ):
                for problem in self._judge_step(event):
                    yield problem
            case _:
                for problem in self._judge_loop(event, at):
                    yield problem

    def _judge_step(
        self,
        event: AttemptStarted | ProposalMade | ProposalRejected | DecisionMade | DecisionParked,
    ) -> Problems:
        desk, decision = self.desks[event.decision], self.state.decisions[event.decision]
        match event:
            case AttemptStarted():
                yield from desk.start(event, decision, self._open_gate)
            case ProposalMade():
                yield from desk.propose(event, self._open_gate)
            case ProposalRejected():
                yield from desk.reject(event.attempt)
            case DecisionParked():
                yield from desk.park(decision, self._open_gate)
            case DecisionMade():
                yield from desk.close(event, decision, self._open_gate, self.batches)

    def _judge_loop(self, event: Event, at: float) -> Problems:  # noqa: C901, PLR0912 - a case an event
        state = self.state
        match event:
            case SegmentOpened():
                if event.segment != (due := state.lives + 1):
                    yield "loop", f"segment {event.segment} is opened where {due} is due"
            case RunStarted():
                yield from loop.started(event)
            case RunResumed():
                yield from loop.resumed(event, state)
            case DecisionOpened():
                if event.decision != (due := len(state.decisions) + 1):
                    yield "loop", f"decision {event.decision} is opened where {due} is due"
            case SurrogateAsked():
                yield from loop.asked(event, state)
            case CandidateHeld():
                yield from loop.held(event, state)
            case JobPlanned():
                yield from loop.planned(event, state, self._open_gate.campaign, self.slots)
            case JobEnded():
                began_at = self.life_began_at
                campaign = self._open_gate.campaign
                yield from loop.ended(event, state, campaign, life_began_at=began_at)
            case ResultAccepted():
                yield from loop.accepted(event, state, self._open_gate.campaign, self.run_dir)
            case ResultRejected():
                yield from loop.refused(event, state, self._open_gate.campaign)
            case RunSuspended():
                yield from self.ending.suspended(state)
            case RunStopped():
                yield from self.ending.stopped(event, state, at)
            case _:
                pass

    def _follow(self, event: Event, at: float) -> None:
        """Remember what the next events are judged by, and the state does not keep."""
        match event:
            case SegmentOpened():
                self.ending = loop.Ending()
                self.life_began_at, self.closed = at, False
            case SegmentClosed():
                self.closed = True
            case RunStarted() | RunResumed():
                self.slots = event.slots
                if event.spec is not None:
                    assert self.state.spec is not None
                    self.gate = Gate.of(campaign_of(self.state.spec, self.code), self.state)
                for desk in self.desks.values():
                    desk.interrupt()
            case DecisionOpened():
                self.desks[event.decision] = Desk(event.decision, self.counts, self.hindsight)
            case AttemptStarted():
                self.attempts += 1
            case ParkedResolved() if event.what not in self.state.jobs:
                self.desks[int(event.what.removeprefix("D"))].resolve(event.action)
            case SurrogateAsked():
                self.batches[event.batch] = event.candidates
            case DecisionMade() if event.disposition == "abandoned":
                self.ending.abandon(event.cause)
            case CandidateHeld():
                self.ending.keep_back(event)
            case _:
                pass

    @property
    def _open_gate(self) -> Gate:
        if self.gate is None:
            raise ValueError("the run was not started")
        return self.gate
