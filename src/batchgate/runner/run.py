"""The runner: decide, admit, launch, learn, until a stop rule holds or it is told to stop.

Decisions and jobs are in flight together, so that no slot waits for the model; when one would,
the surrogate's candidate goes first. All that changes goes through events; a runner that is
killed anywhere is followed by one that folds them and goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .. import __version__
from ..answer import Producer
from ..campaign import Campaign
from ..errors import LedgerMismatchError
from ..events import (
    CandidateHeld,
    ResultParked,
    RunResumed,
    RunStarted,
    RunStopped,
    RunSuspended,
)
from ..job import End, Flow, TaskEnd
from ..plain import plain
from ..state import State
from .decide import Decider
from .launch import Launcher
from .model import Model
from .parked import Parking
from .reconcile import reconcile
from .recorder import Recorder
from .stopping import Stop, held_for, stop_rule
from .tenure import Tenure
from .verify import Judges

PAUSE_S = 5.0
"""Seconds before a producer that failed is asked again; doubled with each failure in a row."""

MAX_PAUSE_S = 300.0
"""Upper end of that pause."""

TICK_S = 1.0
"""Seconds after which the clock's rules are looked at again when nothing happens."""


@dataclass(slots=True)
class InFlight:
    """A decision that is being made.

    Attributes:
        count: Candidates it will bring if it succeeds.
        task: What makes it.
    """

    count: int
    task: asyncio.Task[None]


@dataclass(slots=True)
class Runner:
    """Runs a campaign in a run directory. Use `run` once.

    Attributes:
        campaign: What to run.
        recorder: Ledger and state, with the earlier lives folded in.
        flow: Where verifiers and jobs run.
        folder: The run's directory.
        slots: Jobs at once.
        model: Who proposes; `None` leaves everything to the surrogate.
        settings: Site settings, without secrets, for the record.
        tenure: How long this life may run.
        gone: Whether every process of the earlier lives is certain to have ended.
        clock: Seconds since the epoch.
        requeues: Whether the batch system is to be asked for the next life, once `run` is over.
    """

    campaign: Campaign
    recorder: Recorder
    flow: Flow
    folder: Path
    slots: int = 1
    model: Model | None = None
    settings: Any = None
    tenure: Tenure = field(default_factory=Tenure)
    gone: bool = True
    clock: Callable[[], float] = time.time
    requeues: bool = field(default=False, init=False)
    decider: Decider = field(init=False)
    launcher: Launcher = field(init=False)
    parking: Parking = field(init=False)
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)
    _deciding: dict[int, InFlight] = field(default_factory=dict)
    _ask_from: float = 0.0
    _suspended: str = ""
    _drain: str = ""
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _idle_since: float | None = None
    _fatal: BaseException | None = None

    def __post_init__(self) -> None:
        judges = Judges(self.campaign, self.recorder, self.flow)
        self.decider = Decider(self.campaign, self.recorder, judges)
        self.launcher = Launcher(self.campaign, self.recorder, self.flow, self.folder)
        self.parking = Parking(self.decider, self.launcher, self.folder, self.clock)

    @property
    def state(self) -> State:
        """Where the run stands."""
        return self.recorder.state

    def suspend(self, reason: str) -> None:
        """Ask the runner to stop as soon as it can; safe to call from a signal handler of the loop.

        Nothing more is asked or launched; what runs is ended, and the next life runs it again.
        """
        self._suspended = self._suspended or reason
        self._wake.set()

    def drain(self, reason: str) -> None:
        """Ask the runner to stop once the jobs that run have ended, or their time is over.

        Safe to call from a signal handler of the loop. Nothing more is asked or launched.
        """
        self._drain = self._drain or reason
        self._wake.set()

    async def run(self) -> Stop | None:
        """Run until a stop rule holds (returned) or the run is suspended (`None`).

        Raises:
            LedgerError: The record cannot be kept; nothing was launched without one.
            FlowError: The execution side is down.
            LedgerMismatchError: The directory belongs to another campaign.
        """
        if self.state.stopped is not None and not self._reopened():
            stopped = self.state.stopped
            return Stop(stopped.rule, stopped.reason, stopped.failed)
        self._open()
        try:
            for work in reconcile(self.launcher, gone=self.gone):
                self._start(work)
            await self.recorder.commit()
            self._start(self.tenure.keep(self.recorder))
            if self.model is not None:
                self._start(self.model.keep(self.recorder, self._model_changed))
            stop = await self._until_stopped()
        finally:
            await self._end_tasks()
        if self._fatal is not None:
            raise self._fatal
        for job in self.state.running:
            if job.plan.job not in self.launcher.lost:  # planned, and stopped before its launch
                self.launcher.settle(job.plan, TaskEnd(End.CANCELED, error="never launched"))
        if stop is None:
            self.requeues = self._may_requeue()
            self.recorder.record(RunSuspended(reason=self._suspended, requeued=self.requeues))
        else:
            self._conclude(stop)
        await self.recorder.commit()
        return stop

    def _may_requeue(self) -> bool:
        """Whether it was the time that ended this life: what a person cancelled stays ended.

        Slurm 22.05 requeues a cancelled job when it is asked to.
        """
        in_order = bool(self._drain) and self._suspended == self._drain
        return self.tenure.requeue and (in_order or self.tenure.at_end)

    def _open(self) -> None:
        spec, state, files = self.campaign.spec, self.state, self.campaign.files()
        name = self.model.name if self.model else "none"
        if state.spec is None:
            event: RunStarted | RunResumed = RunStarted(
                campaign=spec.campaign.name,
                digest=spec.digest,
                spec=spec.model_dump(mode="json"),
                version=__version__,
                seed=spec.campaign.seed,
                granted_node_h=spec.stop.node_h,
                slots=self.slots,
                producer=name,
                settings=plain(self.settings),
                files=files,
            )
        else:
            recorded = state.spec.campaign.name
            if recorded != spec.campaign.name or state.spec.variables != spec.variables:
                raise LedgerMismatchError(
                    f"{self.folder} holds a run of campaign {recorded!r} with other variables or "
                    f"another name than {spec.campaign.name!r}; choose another run directory"
                )
            changed = state.digest != spec.digest
            known = state.files
            both = sorted({*files, *known}) if known else []
            event = RunResumed(
                version=__version__,
                slots=self.slots,
                producer=name,
                digest=spec.digest,
                spec=spec.model_dump(mode="json") if changed else None,
                files=files,
                changed=tuple(name for name in both if files.get(name) != known.get(name)),
            )
        self.recorder.record(event)
        self.recorder.record(self.tenure.seen())

    def _reopened(self) -> bool:
        """Whether a run that had stopped goes on, because its rules were widened."""
        return stop_rule(self.campaign.spec, self.state, now=self.state.updated_at) is None

    async def _until_stopped(self) -> Stop | None:
        stop: Stop | None = None
        while not self._suspended and self._fatal is None:
            # A rule that held once holds: what still runs may end, and nothing new is begun.
            stop = stop or stop_rule(self.campaign.spec, self.state, now=self.clock())
            if stop is None and not self._draining():
                self._take_answers()
                self._launch()
                self._decide_ahead()
                self._fill_idle_slots()
            else:
                if stop is not None:
                    for in_flight in self._deciding.values():
                        in_flight.task.cancel()
                if not self._at_work(stop) or self.tenure.over(self.state):
                    return stop or self._out_of_time()
            await self._something()
        return None

    def _at_work(self, stop: Stop | None) -> bool:
        """Whether something runs that is worth waiting for."""
        # What a job that was lost may still bring can be found by the next life as well.
        lost = self.launcher.lost if stop is None else set[str]()
        running = [job for job in self.state.running if job.plan.job not in lost]
        return bool(running or self.state.unjudged)

    def _draining(self) -> bool:
        """Whether nothing may be begun any more, because it could not end in time."""
        if not self._drain and not self.tenure.fits(self.state):
            self._drain = "the allocation ends before another job could"
        return bool(self._drain)

    def _out_of_time(self) -> Stop | None:
        """End this life: for good when no other may follow, else until the next."""
        if (last := self.tenure.last(self.state)) is not None:
            return last
        self._suspended = self._drain
        return None

    def _take_answers(self) -> None:
        """Do what people said of what is parked, and what is due without a word of them."""
        for work in self.parking.due(last_chance=self.tenure.last_chance(self.state)):
            self._start(work)

    def _launch(self) -> None:
        """Give free slots to candidates that were let through, the oldest first."""
        for decision, chosen in self.state.ready:
            if len(self.state.running) >= self.slots or self._jobs_left() < 1:
                return
            planned = self.launcher.plan(decision, chosen)
            if planned is None:
                return  # its reservation fits once a running job has settled for less
            self._start(self.launcher.run(planned))

    def _jobs_left(self) -> int:
        limit = self.campaign.spec.stop.jobs
        if limit is None:
            return self.slots
        state = self.state
        at_work = [job.plan.fingerprint for job in (*state.running, *state.unjudged)]
        return limit - state.evaluated - sum(f not in state.audits for f in at_work)

    def _decide_ahead(self) -> None:
        """Ask the producer while jobs run, until enough candidates wait for the slots."""
        if self.model is not None and (self._producer is None or self.clock() < self._ask_from):
            return
        spec = self.campaign.spec.producer
        for decision in self.state.open:  # what an earlier life left open comes first
            if decision.number not in self._deciding:
                self._decide(decision.number, count=int(decision.source == "surrogate"))
        while (
            self.model is not None
            and len(self._deciding) < spec.decisions
            and self._waiting() < min(self.slots + spec.batch - 1, self._jobs_left())
        ):
            self._decide(self._next_number())

    def _waiting(self) -> int:
        """Candidates that wait for a slot, or will if the decisions in flight succeed."""
        return len(self.state.ready) + sum(d.count for d in self._deciding.values())

    def _fill_idle_slots(self) -> None:
        """Let the surrogate fill slots that the model has left idle for too long."""
        ready = len(self.state.ready)
        free = min(self.slots - len(self.state.running), self._jobs_left()) - ready
        surrogate_at_work = any(
            n in self.state.decisions and self.state.decisions[n].source == "surrogate"
            for n in self._deciding
        )
        if free < 1 or surrogate_at_work:
            self._idle_since = None
            return
        now = self.clock()
        if self._idle_since is None:
            self._idle_since = now
        if now - self._idle_since >= self._patience_s():
            self._idle_since = None
            self._decide(self._next_number(), count=free)

    def _patience_s(self) -> float:
        """Seconds that a free slot waits for the model."""
        if self.model is None:
            return 0.0
        fallback = self.campaign.spec.fallback
        return fallback.idle_s if self.model.answered else fallback.start_s

    def _next_number(self) -> int:
        return max((*self.state.decisions, *self._deciding), default=0) + 1

    @property
    def _producer(self) -> Producer | None:
        return self.model.producer if self.model else None

    def _decide(self, number: int, *, count: int = 0) -> None:
        """Start a decision; with a count it is the surrogate's, else the producer's."""
        producer = self._producer

        async def decide() -> None:
            try:
                if producer is None or count:
                    await self.decider.fall_back(number, expected, cause="idle")
                else:
                    await self.decider.ask(number, producer)
                    self._be_patient()
            finally:
                del self._deciding[number]

        expected = count or self.campaign.spec.producer.batch
        self._deciding[number] = InFlight(expected, self._start(decide()))

    def _model_changed(self) -> None:
        # What the slots have waited for its start does not count against its first answer.
        self._idle_since = None
        self._wake.set()

    def _be_patient(self) -> None:
        """After failures of the producer wait before it is asked again, longer each time.

        Until then its server has been found dead and started again, or it has recovered.
        """
        if failures := self.state.failures["producer"]:
            self._ask_from = self.clock() + min(PAUSE_S * 2 ** (failures - 1), MAX_PAUSE_S)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._fatal = self._fatal or error
        self._wake.set()

    async def _something(self) -> None:
        """Wait until a decision or a job has ended, a stop was asked for, or a moment passed."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._wake.wait(), TICK_S)
        self._wake.clear()

    async def _end_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _conclude(self, stop: Stop) -> None:
        """Close what is open or parked, say why each candidate never got a slot, and stop."""
        for left_open in self.state.unmade:
            self.decider.abandon(left_open.number, cause=stop.rule)
        for parked in list(self.state.parked.values()):
            if isinstance(parked.event, ResultParked):
                job = self.state.jobs[parked.event.job].plan
                self.launcher.refuse(job, parked.event.reasons, parked.event.values or {})
        for decision, chosen in self.state.ready:
            self.recorder.record(
                CandidateHeld(
                    decision=decision,
                    fingerprint=chosen.fingerprint,
                    cause=held_for(stop.rule),
                    reason=f"the campaign stopped: {stop.reason}",
                )
            )
        self.recorder.record(RunStopped(rule=stop.rule, reason=stop.reason, failed=stop.failed))
