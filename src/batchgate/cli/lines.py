"""An event as one line for people, in a terminal or a log file."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from typing import Any

from ..events import (
    AllocationSeen,
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    DecisionMade,
    DecisionParked,
    Event,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ParkedResolved,
    ProposalRejected,
    ResultAccepted,
    ResultParked,
    ResultRejected,
    RunResumed,
    RunStarted,
    RunStopped,
    RunSuspended,
    ServerStarted,
    ServerStopped,
    SurrogateAsked,
)
from ..job import JobState
from ..state import State

MAX_CHARS = 400
"""Longest line; the ledger has the whole text."""


def line(event: Event, state: State) -> str | None:  # noqa: C901, PLR0911, PLR0912 - a case an event
    """Return an event's line, or `None` for those that are too many to watch."""
    match event:
        case RunStarted():
            return f"run started: campaign {event.campaign}, producer {event.producer}"
        case RunResumed():
            other = (
                f", with another {visible(' and '.join(event.changed))}" if event.changed else ""
            )
            evaluated = f"{state.evaluated} candidates evaluated so far"
            return f"run resumed: life {state.lives}, {evaluated}{other}"
        case AllocationSeen():
            return f"on {len(event.nodes)} nodes: {' '.join(event.nodes)[:200]}"
        case ServerStarted():
            return f"model server answers after {event.elapsed_s:.0f} s: {visible(event.model)}"
        case ServerStopped():
            return f"model server stopped: {visible(event.reason)}"
        case AttemptStarted():
            return f"D{event.decision}.{event.attempt} the model is asked"
        case ProposalRejected():
            return f"D{event.decision}.{event.attempt} rejected by {event.stage}: {_why(event.reasons)}"
        case CheckJudged() if event.hard and not event.passed:
            sample = f", sample {event.sample}," if event.sample > 1 else ""
            where = f"D{event.decision}.{event.attempt}{sample}"
            return f"{where} rejected by {event.check}: {_why(event.reasons)}"
        case FailureRecorded():
            again = ", trying again" if event.again else ""
            return f"{event.kind} failed ({event.what}{again}): {visible(event.message)}"
        case DecisionMade():
            points = "; ".join(values(c.candidate) for c in event.candidates)
            cause = f" ({event.cause})" if event.cause else ""
            return f"D{event.decision} {event.disposition}{cause}: {points or 'nothing'}"
        case DecisionParked():
            return f"D{event.decision} is parked: nothing passed, `batchgate parked` shows it"
        case ResultParked():
            return f"result of job {event.job} is parked: {_why(event.reasons)}"
        case ParkedResolved():
            by = f" by {visible(event.by)}" if event.by else ""
            return f"{event.what} is resolved, {event.action}{by}: {visible(event.reason)}"
        case CandidateHeld():
            return f"D{event.decision} held, {event.cause}: {visible(event.reason)}"
        case SurrogateAsked():
            return f"surrogate gave {event.candidates} after {event.observations} observations"
        case JobPlanned():
            return f"job {event.job} launched: {values(event.candidate)}"
        case JobEnded() if event.state is not JobState.COMPLETED:
            again = ", to run again" if event.again else ""
            return f"job {event.job} {event.state} ({event.end}{again}): {visible(event.error)}"
        case ResultAccepted():
            mark = "" if event.feasible else ", misses a constraint"
            best = ", best so far" if state.best == event.job else ""
            return f"job {event.job} result: {values(event.values)}{mark}{best}"
        case ResultRejected():
            again = ", to run again with changed settings" if event.again else ""
            return f"job {event.job} gave no valid result{again}: {_why(event.reasons)}"
        case RunSuspended():
            again = ", to be requeued" if event.requeued else ""
            return f"run suspended{again}: {event.reason}"
        case RunStopped():
            return f"run stopped by rule {event.rule}: {event.reason}"
        case _:
            return None


def values(mapping: Mapping[str, Any]) -> str:
    """Return values as `name=value`, numbers with six digits."""
    return visible(
        " ".join(
            f"{name}={value:.6g}" if isinstance(value, float) else f"{name}={value}"
            for name, value in mapping.items()
        )
    )


def visible(text: str) -> str:
    """Return hostile text as one bounded line in which nothing acts on a terminal."""
    if len(text) > MAX_CHARS:
        text = text[:MAX_CHARS] + "..."
    return "".join(c if _harmless(c) else c.encode("unicode_escape").decode() for c in text)


def _harmless(char: str) -> bool:
    # Control, format (bidirectional overrides among them), surrogate, private use, line separators.
    return unicodedata.category(char) not in {"Cc", "Cf", "Cs", "Co", "Zl", "Zp"}


def _why(reasons: tuple[str, ...]) -> str:
    return visible("; ".join(reasons))
