"""Where the node-hours of a run went: what the allocations cost, and on what.

The bill is nodes held times time held, over every life of the run, whatever ran on them. Jobs,
verifiers and the model server are charged for the nodes they held; what is left was idle. A job's
charge is an upper bound when its runner died under it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

from ..events import AllocationSeen, Entry, SegmentOpened, ServerStarted, ServerStopped
from ..job import End, JobState
from ..state import Job, State

ENDS = ("completed", "failed", "timed_out", "lost", "canceled")
"""The ways in which a job is charged."""


@dataclass(frozen=True, slots=True)
class Held:
    """Nodes that a life held for a time.

    Attributes:
        life: Number of the life.
        job_id: The batch system's job; empty without one.
        nodes: Nodes held.
        started_at: From when, in seconds since the epoch.
        ended_at: Until when, as far as the ledger tells.
    """

    life: int
    job_id: str
    nodes: int
    started_at: float
    ended_at: float

    @property
    def node_h(self) -> float:
        """What it cost."""
        return self.nodes * max(0.0, self.ended_at - self.started_at) / 3600


@dataclass(frozen=True, slots=True)
class Hours:
    """The node-hours of a run. Make it with `Hours.of`.

    Attributes:
        held: What was held, in order.
        jobs: Charged to jobs, by how they ended; see `ENDS`.
        running: Reserved for jobs that have not ended.
        verifiers: Charged to verifiers.
        server: Charged to the model server.
        granted: What jobs may use.
    """

    held: tuple[Held, ...]
    jobs: dict[str, float]
    running: float
    verifiers: float
    server: float
    granted: float

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Hours:
        """Count a run's hours from its entries, oldest first."""
        meter = Meter()
        for entry in entries:
            meter.take(entry)
        return meter.hours()

    @property
    def billed(self) -> float:
        """What all that was held cost."""
        return math.fsum(held.node_h for held in self.held)

    @property
    def charged(self) -> float:
        """What jobs were charged for, whatever their end."""
        return math.fsum(self.jobs.values())

    @property
    def idle(self) -> float:
        """What was billed and charged to nobody.

        Never below 0: jobs of an allocation whose nodes are shared can be charged for more than
        the run was billed for.
        """
        return max(0.0, self.billed - self.charged - self.verifiers - self.server)

    @property
    def job_ids(self) -> tuple[str, ...]:
        """The batch system's jobs, in order of their first life."""
        return tuple(dict.fromkeys(held.job_id for held in self.held if held.job_id))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data, derived figures included."""
        return {
            "billed_node_h": self.billed,
            "jobs_node_h": self.jobs,
            "verifiers_node_h": self.verifiers,
            "server_node_h": self.server,
            "idle_node_h": self.idle,
            "reserved_node_h": self.running,
            "granted_node_h": self.granted,
            "held": [{**asdict(held), "node_h": held.node_h} for held in self.held],
        }


@dataclass(slots=True)
class _Server:
    """What the model server has held so far."""

    node_h: float = 0.0
    _nodes: float = 0.0
    _since: float = 0.0

    def start(self, event: ServerStarted, at: float) -> None:
        self._nodes, self._since = event.nodes, at - event.elapsed_s

    def stop(self, at: float) -> None:
        self.node_h += self._nodes * max(0.0, at - self._since) / 3600
        self._nodes = 0.0


@dataclass(slots=True)
class Meter:
    """Counts hours while entries pass by, for one who reads them for more than their hours."""

    _state: State = field(default_factory=State)
    _server: _Server = field(default_factory=_Server)
    _held: list[Held] = field(default_factory=list)

    def watch(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Pass entries on, oldest first, and count each."""
        for entry in entries:
            self.take(entry)
            yield entry

    def take(self, entry: Entry) -> None:
        """Count one more entry."""
        event, at, held = entry.event, entry.at, self._held
        before_at = self._state.updated_at
        self._state.apply(event, at=at)
        life = self._state.lives
        match event:
            case SegmentOpened():
                self._server.stop(before_at)
            case AllocationSeen():
                _close(held, life, at)
                since = at if held and held[-1].life == life else _since(self._state, event)
                held.append(Held(life, event.job_id, len(event.nodes), since, at))
            case ServerStarted():
                self._server.start(event, at)
            case ServerStopped():
                self._server.stop(at)
            case _:
                pass
        _close(held, life, at)

    def hours(self) -> Hours:
        """Return what was counted so far; nothing can be counted after that."""
        state = self._state
        self._server.stop(state.updated_at)
        return Hours(
            held=tuple(self._held),
            jobs=_by_end(state.jobs.values()),
            running=float(state.reserved_node_h),
            verifiers=state.verifier_node_h,
            server=self._server.node_h,
            granted=state.granted_node_h,
        )


def _since(state: State, event: AllocationSeen) -> float:
    return max(event.started_at, state.last_life_ended_at)


def _close(held: list[Held], life: int, at: float) -> None:
    """Let what this life holds last until now."""
    if held and held[-1].life == life:
        last = held[-1]
        held[-1] = Held(last.life, last.job_id, last.nodes, last.started_at, at)


def _by_end(jobs: Iterable[Job]) -> dict[str, float]:
    charges: defaultdict[str, list[float]] = defaultdict(list)
    for job in jobs:
        if job.end is not None:
            charges[_end(job.end.state, job.end.end)].append(job.end.charged_node_h)
    return {end: math.fsum(charges[end]) for end in ENDS}


def _end(state: JobState, end: End) -> str:
    if state is JobState.COMPLETED:
        return "completed"
    if end is End.TIMED_OUT:
        return "timed_out"
    return {JobState.LOST: "lost", JobState.CANCELED: "canceled"}.get(state, "failed")
