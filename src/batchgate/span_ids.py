"""Ids of spans that say what they stand for, so that a run is traced under the same ids everywhere.

A span that is started within `placed`, of a trace that is `about` a decision or a job, has the id
that the ledger alone gives it too. So what is sent live and what is exported later are the same
spans, and a job can be linked to a decision that was made in an earlier life. A place is given
once: whatever else claims it gets a random id, as does every span that nobody placed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Link, Span, SpanContext, TraceFlags
from opentelemetry.util.types import AttributeValue

SLURM_ATTRIBUTES: Mapping[str, str] = {
    "job_id": "slurm.job.id",
    "restart_count": "slurm.job.restart_count",
    "partition": "slurm.job.partition",
    "nodes": "slurm.job.nodes",
    "node_list": "slurm.job.node_list",
    "cluster_name": "slurm.cluster.name",
    "array_job_id": "slurm.array.job_id",
    "array_task_id": "slurm.array.task_id",
}
"""Names of the facts of a segment's opening as attributes; no convention has names for them yet."""


@dataclass(slots=True)
class Subject:
    """What a trace is about: a decision, or a job.

    Attributes:
        run: The run's name.
        key: `D17`, or the job.
        life: Number of this life, when an earlier one began the decision; 0 else.
        spent: Attempts of earlier lives.
        attributes: For the first span of this life.
        attempt: The attempt that is being made.
    """

    run: str
    key: str
    life: int = 0
    spent: int = 0
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    attempt: int = 0
    _given: set[str] = field(default_factory=set)

    @property
    def root(self) -> str:
        """Place of the first span of this life."""
        return root_place(self.life)

    def links(self) -> list[Link]:
        """Link the first span of a later life to that of the first."""
        return [Link(first_span(self.run, self.key))] if self.life else []

    def take(self, place: str) -> bytes | None:
        """Return the span id of a place, once."""
        if place in self._given:
            return None
        self._given.add(place)
        return identifier(self.run, self.key, place, size=8)


_SUBJECT: ContextVar[Subject | None] = ContextVar("batchgate_subject", default=None)
_PLACE: ContextVar[str] = ContextVar("batchgate_place", default="")


def identifier(*parts: str, size: int) -> bytes:
    """Return the id of what these parts name, of `size` bytes: the start of their SHA-256."""
    return hashlib.sha256(json.dumps(parts).encode()).digest()[:size]


def root_place(life: int) -> str:
    """Name the place of a decision's first span in a life, 0 for the life that began it."""
    return f"accept {life}" if life else "accept"


def first_span(run: str, key: str) -> SpanContext:
    """Return the first span of a decision, whichever life made it."""
    return SpanContext(
        int.from_bytes(identifier(run, key, size=16)),
        int.from_bytes(identifier(run, key, root_place(0), size=8)),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def slurm_attributes(facts: Mapping[str, str]) -> dict[str, str]:
    """Return what is known of the Slurm job as attributes of a resource."""
    return {SLURM_ATTRIBUTES.get(name, f"slurm.{name}"): said for name, said in facts.items()}


def current() -> Subject | None:
    """Return what the current trace is about; `None` when that is nothing of a run."""
    return _SUBJECT.get()


@contextmanager
def about(subject: Subject) -> Iterator[Subject]:
    """Make every trace that is started in the block one of this subject."""
    token = _SUBJECT.set(subject)
    try:
        yield subject
    finally:
        _SUBJECT.reset(token)


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Give the span that is started in the block the id of a place in its trace."""
    token = _PLACE.set(place)
    try:
        yield
    finally:
        _PLACE.reset(token)


@contextmanager
def started(name: str, place: str = "", **options: Any) -> Iterator[Span]:
    """Start the span of a place; it is current in the block, and ends with it.

    Args:
        name: Its name.
        place: Its place in the trace; empty for a random id.
        options: As of `Tracer.start_as_current_span`.
    """
    # Asked for at each call, so that a provider that is installed late is used.
    tracer = trace.get_tracer("batchgate")
    with placed(place), tracer.start_as_current_span(name, **options) as span, placed(""):
        yield span


def in_attempt(what: str) -> str:
    """Name a place below the attempt that is being made; none when nothing is known of it."""
    subject = _SUBJECT.get()
    return f"attempt {subject.attempt} {what}" if subject and subject.attempt else ""


def next_trace_id() -> int | None:
    """Return the id of a trace that is started now; `None` for a random one."""
    subject = _SUBJECT.get()
    return int.from_bytes(identifier(subject.run, subject.key, size=16)) if subject else None


def next_span_id() -> int | None:
    """Return the id of a span that is started now; `None` for a random one."""
    subject, place = _SUBJECT.get(), _PLACE.get()
    found = subject.take(place) if subject and place else None
    return int.from_bytes(found) if found else None
