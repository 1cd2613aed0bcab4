"""A run's ledger as OpenTelemetry spans and events, the same ones at every call.

A decision is a trace: `accept`, its attempts, what the model and the verifiers took; a requeue that
went on with it adds an `accept` to it, linked to the first. A job is a trace of its own, linked to
its decision. Ids are those of `span_ids`, which the live trace has too, so that nothing that is
sent twice is two things. What no runner ever finished is there too, marked by `error.type`
`interrupted`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Status

from ..errors import ConfigError
from ..events import (
    AttemptStarted,
    CheckJudged,
    DecisionMade,
    DecisionOpened,
    Entry,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultRejected,
    RunStarted,
    SegmentOpened,
)
from ..job import JobState
from ..span_ids import first_span, root_place, slurm_attributes
from .otlp import MAX_VERDICT_CHARS, MAX_VERDICTS, Trace, Unit, batches, json_line, request_of

_DECIDED = (AttemptStarted, ProposalMade, ProposalRejected, CheckJudged, FailureRecorded)


def units(entries: Iterable[Entry]) -> Iterator[Unit]:
    """Yield the units of a run: complete ones as the ledger completes them, then the open ones.

    A ledger that has grown yields the same complete units first, in the same order.

    Args:
        entries: The whole ledger, oldest first.
    """
    return _Units().of(entries)


def write_json(entries: Iterable[Entry], folder: Path) -> list[Path]:
    """Write `traces.jsonl` and `logs.jsonl`, one OTLP request on a line; return the files.

    They follow the OTLP file format
    (https://opentelemetry.io/docs/specs/otel/protocol/file-exporter).

    Raises:
        ConfigError: The folder cannot be written.
    """
    paths = [folder / "traces.jsonl", folder / "logs.jsonl"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with paths[0].open("wb") as traces, paths[1].open("wb") as logs:
            for batch in batches(units(entries)):
                traces.writelines(map(json_line, request_of("traces", batch)))
                logs.writelines(map(json_line, request_of("logs", batch)))
    except OSError as exc:
        raise ConfigError(f"{folder} cannot be written: {exc.strerror}") from exc
    return paths


@dataclass(slots=True)
class _Part:
    """What one life wrote of a decision: one span `accept`."""

    life: int
    place: str
    entries: list[Entry] = field(default_factory=list)


@dataclass(slots=True)
class _Units:
    """Follows a ledger, and holds what is not complete yet."""

    run: str = ""
    campaign: str = ""
    version: str = ""
    life: int = 0
    resource: dict[str, Any] = field(default_factory=dict)
    decisions: dict[int, list[_Part]] = field(default_factory=dict)
    jobs: dict[str, list[Entry]] = field(default_factory=dict)
    resources: dict[int | str, dict[str, Any]] = field(default_factory=dict)

    def of(self, entries: Iterable[Entry]) -> Iterator[Unit]:
        for entry in entries:
            match entry.event:
                case SegmentOpened():
                    self._open(entry.event)
                case RunStarted(campaign=name, version=version):
                    self.resource |= {"campaign.name": name, "service.version": version}
                    self.campaign, self.version = name, version
                case DecisionOpened(decision=number):
                    self.decisions[number] = [_Part(self.life, root_place(0), [entry])]
                    self.resources[number] = self.resource
                case DecisionMade(decision=number):
                    self._add(number, entry)
                    yield self._decision(number)
                case JobPlanned(job=job):
                    self.jobs[job] = [entry]
                    self.resources[job] = self.resource
                case JobEnded(job=job, state=state):
                    self.jobs[job].append(entry)
                    if state is not JobState.COMPLETED:
                        yield self._job(job)
                case ResultAccepted(job=job) | ResultRejected(job=job) if job in self.jobs:
                    self.jobs[job].append(entry)
                    yield self._job(job)
                case event if isinstance(event, _DECIDED) and event.decision in self.decisions:
                    self._add(event.decision, entry)
                case _:
                    pass
        yield from map(self._decision, list(self.decisions))
        yield from map(self._job, list(self.jobs))

    def _open(self, event: SegmentOpened) -> None:
        self.run, self.life = event.run, event.segment
        self.resource = {
            "service.name": "batchgate",
            "service.instance.id": f"{event.run}/{event.segment:04d}",
            "host.name": event.host,
            "batchgate.run": event.run,
            **slurm_attributes(event.slurm),
        }
        if self.campaign:
            self.resource |= {"campaign.name": self.campaign, "service.version": self.version}

    def _add(self, number: int, entry: Entry) -> None:
        """Add what a life wrote of a decision; asking again in a later one begins a part."""
        parts = self.decisions[number]
        opened = parts[0].entries[0].event
        alone = isinstance(opened, DecisionOpened) and opened.source == "surrogate"
        if parts[-1].life < self.life and (isinstance(entry.event, AttemptStarted) or alone):
            parts.append(_Part(self.life, root_place(self.life)))
        parts[-1].entries.append(entry)

    def _decision(self, number: int) -> Unit:
        trace = Trace(self.run, f"D{number}")
        parts = self.decisions.pop(number)
        for part in parts:
            self._part(trace, number, part)
        made = isinstance(parts[-1].entries[-1].event, DecisionMade)
        return trace.unit(f"D{number}", self.resources.pop(number), complete=made)

    def _part(self, trace: Trace, number: int, part: _Part) -> None:
        found = part.entries
        first, last = found[0], found[-1]
        made = last.event if isinstance(last.event, DecisionMade) else None
        root = trace.span(f"accept {self.campaign}", part.place, first.at_ns, last.at_ns)
        if part.place != root_place(0):
            trace.link(root, first_span(self.run, f"D{number}"))
        spent = sum(isinstance(entry.event, AttemptStarted) for entry in found)
        trace.put(
            root,
            {
                "flowgentic.accept.name": self.campaign,
                "flowgentic.accept.attempts.used": spent,
                "batchgate.decision": number,
                "batchgate.life": part.life,
            },
        )
        broken = [
            e.event.what
            for e in found
            if isinstance(e.event, FailureRecorded) and not e.event.again
        ]
        if made is None:
            trace.fail(root, "interrupted")
        elif made.disposition in {"accepted", "fallback"}:
            trace.put(root, {"flowgentic.accept.disposition": made.disposition})
        else:
            trace.fail(root, broken[-1] if broken else made.disposition)
        if made is not None:
            trace.put(root, {"batchgate.cause": made.cause} if made.cause else {})
        for index, attempt in enumerate(_by_attempt(found), start=1):
            closed = made is not None and attempt[-1] is found[-2]
            self._attempt(trace, part.place, index, attempt, closed=closed)

    def _attempt(
        self, trace: Trace, parent: str, index: int, found: list[Entry], *, closed: bool
    ) -> None:
        first = found[0].event
        assert isinstance(first, AttemptStarted)
        place = f"attempt {first.attempt}"
        span = trace.span(
            f"accept.attempt {self.campaign}",
            place,
            found[0].at_ns,
            found[-1].at_ns,
            parent=parent,
        )
        trace.put(
            span,
            {
                "flowgentic.accept.attempt": index,
                "batchgate.decision": first.decision,
                "batchgate.attempt": first.attempt,
            },
        )
        if first.trace_id and first.span_id and bytes.fromhex(first.span_id) != span.span_id:
            # It was traced by an SDK that made ids of its own.
            link = span.links.add()
            link.trace_id = bytes.fromhex(first.trace_id)
            link.span_id = bytes.fromhex(first.span_id)
        rejected: list[tuple[str, tuple[str, ...]]] = []
        verdicts: list[str] = []
        judged = False
        for entry in found[1:]:
            match entry.event:
                case ProposalMade() as event:
                    trace.chat(place, found[0].at_ns, entry.at_ns, event)
                case ProposalRejected() as event:
                    trace.verdict(place, entry.at_ns, event.stage, event.reasons)
                    verdicts.append(_told(event.stage, event.reasons))
                    rejected.append((event.stage, event.reasons))
                case CheckJudged() as event:
                    trace.judged(place, entry.at_ns, event)
                    judged = True
                    verdicts.append(_told(event.check, _why(event)))
                    if event.hard and not event.passed:
                        rejected.append((event.check, event.reasons))
                case FailureRecorded(again=False) as event:
                    trace.fail(span, event.what)
                    judged = True
                case _:
                    pass
        if verdicts:
            trace.put(span, {"batchgate.verdicts": verdicts[:MAX_VERDICTS]})
        if rejected:
            reasons = "; ".join(reason for _, told in rejected for reason in told)
            by = ", ".join(name for name, _ in rejected)
            trace.put(
                span, {"flowgentic.accept.rejected_by": by, "flowgentic.accept.reason": reasons}
            )
        elif not (judged and closed) and span.status.code != Status.STATUS_CODE_ERROR:
            trace.fail(span, "interrupted")

    def _job(self, job: str) -> Unit:
        trace = Trace(self.run, job)
        found = self.jobs.pop(job)
        plan = found[0].event
        assert isinstance(plan, JobPlanned)
        root = trace.span(f"job {plan.level}", "job", found[0].at_ns, found[-1].at_ns)
        trace.link(root, first_span(self.run, f"D{plan.decision}"))
        trace.put(
            root,
            {
                "batchgate.job": job,
                "batchgate.decision": plan.decision,
                "batchgate.fingerprint": plan.fingerprint,
                "batchgate.reserved_node_h": plan.reserved_node_h,
            },
        )
        complete = False
        for entry in found[1:]:
            complete = self._job_event(trace, root, entry)
        if not complete:
            trace.fail(root, "interrupted")
        return trace.unit(job, self.resources.pop(job), complete=complete)

    def _job_event(self, trace: Trace, root: Any, entry: Entry) -> bool:
        match entry.event:
            case JobEnded() as event:
                trace.put(
                    root,
                    {
                        "batchgate.job.end": event.end.value,
                        "batchgate.charged_node_h": event.charged_node_h,
                    },
                )
                if event.state is not JobState.COMPLETED:
                    trace.fail(root, event.end.value)
                return event.state is not JobState.COMPLETED
            case ResultAccepted() as event:
                trace.put(
                    root, {"batchgate.result": "feasible" if event.feasible else "infeasible"}
                )
            case ResultRejected() as event:
                trace.put(root, {"batchgate.result": "rejected"})
                trace.verdict("job", entry.at_ns, "result", event.reasons)
            case _:
                pass
        return True


def _by_attempt(found: list[Entry]) -> list[list[Entry]]:
    attempts: dict[int, list[Entry]] = {}
    for entry in found:
        number = getattr(entry.event, "attempt", None)
        if isinstance(entry.event, AttemptStarted):
            attempts[entry.event.attempt] = [entry]
        elif number in attempts:
            attempts[number].append(entry)
    return list(attempts.values())


def _why(event: CheckJudged) -> tuple[str, ...]:
    return () if event.passed else event.reasons or ("rejected",)


def _told(check: str, reasons: tuple[str, ...]) -> str:
    """Word a verdict as the live span does."""
    said = f"{check}: fail, {'; '.join(reasons)}" if reasons else f"{check}: pass"
    return said[:MAX_VERDICT_CHARS]
