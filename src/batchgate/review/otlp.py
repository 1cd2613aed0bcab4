"""Spans and events as OTLP has them: made, put into requests, written as JSON.

Built on the official messages of `opentelemetry-proto`, without the SDK: that one gives spans ids
of its own and ends them now, while these stand for what happened before.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord, LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status, TracesData
from opentelemetry.trace import SpanContext

from ..events import CheckJudged, ProposalMade
from ..span_ids import identifier

MAX_CHARS = 8192
"""Longest text. One huge span makes a collector refuse the batch it is in."""
MAX_VERDICTS = 32
"""Verdicts told on an attempt's span; all of them are events."""
MAX_VERDICT_CHARS = 200
"""Longest of those."""
BATCH_BYTES = 1 << 20
"""Size from which on a request is sent; collectors take 4 MB at least."""
EVALUATION = "gen_ai.evaluation.result"
"""Name of the event that a verdict is."""

Signal = Literal["traces", "logs"]
"""The two kinds of records; no file and no request holds both."""
Attributes = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Unit:
    """The spans and events of one decision or one job.

    Attributes:
        key: Names it within its run: `D17`, or the job.
        resource: What its records have in common: run, segment, host.
        spans: Its spans, parents first.
        logs: Its events.
        complete: Whether nothing of it is still to come.
    """

    key: str
    resource: Attributes
    spans: tuple[Any, ...]
    logs: tuple[Any, ...]
    complete: bool = True


def batches(found: Iterable[Unit]) -> Iterator[list[Unit]]:
    """Group units of one resource, in order, up to about `BATCH_BYTES`."""
    batch: list[Unit] = []
    size = 0
    for unit in found:
        if batch and (size > BATCH_BYTES or unit.resource != batch[0].resource):
            yield batch
            batch, size = [], 0
        batch.append(unit)
        size += sum(record.ByteSize() for record in (*unit.spans, *unit.logs))
    if batch:
        yield batch


def request_of(signal: Signal, batch: Iterable[Unit]) -> list[Any]:
    """Return the records of a batch as one OTLP message; none when it has none of that kind."""
    found = list(batch)
    records = [r for unit in found for r in (unit.spans if signal == "traces" else unit.logs)]
    if not records:
        return []
    data = TracesData() if signal == "traces" else LogsData()
    group = (data.resource_spans if signal == "traces" else data.resource_logs).add()
    group.resource.attributes.extend(_attributes(found[0].resource))
    scope = (group.scope_spans if signal == "traces" else group.scope_logs).add()
    scope.scope.name = "batchgate.ledger"
    (scope.spans if signal == "traces" else scope.log_records).extend(records)
    return [data]


def json_line(message: Any) -> bytes:
    """Return an OTLP message as a line of JSON."""
    data = MessageToDict(message, use_integers_for_enums=True)
    for group in (*data.get("resourceSpans", ()), *data.get("resourceLogs", ())):
        for scope in (*group.get("scopeSpans", ()), *group.get("scopeLogs", ())):
            for record in (*scope.get("spans", ()), *scope.get("logRecords", ())):
                for part in (record, *record.get("links", ())):
                    _write_ids_in_hex(part)
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _write_ids_in_hex(record: dict[str, Any]) -> None:
    # OTLP's JSON differs from that of protobuf in this alone: ids are hex, not base64.
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in record:
            record[name] = base64.b64decode(record[name]).hex()


class Trace:
    """The records of one trace while they are made."""

    def __init__(self, run: str, key: str) -> None:
        self._run, self._key = run, key
        self._trace_id = identifier(run, key, size=16)
        self._answers: dict[str, str] = {}
        self._spans: list[Any] = []
        self._logs: list[Any] = []

    def span(self, name: str, place: str, start_ns: int, end_ns: int, *, parent: str = "") -> Any:
        """Add a span. `place` names it within the trace, `parent` the one that it is below."""
        span = Span(
            trace_id=self._trace_id,
            span_id=self._id(place),
            parent_span_id=self._id(parent) if parent else b"",
            name=_text(name),
            kind=Span.SPAN_KIND_INTERNAL,
            start_time_unix_nano=start_ns,
            end_time_unix_nano=max(start_ns, end_ns),
        )
        self._spans.append(span)
        return span

    def put(self, span: Any, attributes: Attributes) -> None:
        """Add attributes to a span."""
        span.attributes.extend(_attributes(attributes))

    def link(self, span: Any, to: SpanContext) -> None:
        """Link a span to one of another trace, or of an earlier life."""
        span.links.add(trace_id=to.trace_id.to_bytes(16), span_id=to.span_id.to_bytes(8))

    def fail(self, span: Any, what: str) -> None:
        """Say that something broke in a span, or was never finished."""
        span.status.code = Status.STATUS_CODE_ERROR
        self.put(span, {"error.type": what})

    def chat(self, attempt: str, start_ns: int, end_ns: int, event: ProposalMade) -> None:
        """Add what an answer of the model took, below an attempt."""
        self._answers[attempt] = event.response_id
        name = f"chat {event.model}".rstrip()
        span = self.span(name, f"{attempt} chat", start_ns, end_ns, parent=attempt)
        span.kind = Span.SPAN_KIND_CLIENT
        told = {
            "gen_ai.operation.name": "chat",
            "gen_ai.response.model": event.model or None,
            "gen_ai.response.id": event.response_id or None,
            "gen_ai.request.temperature": event.temperature,
            "gen_ai.usage.input_tokens": event.input_tokens or None,
            "gen_ai.usage.output_tokens": event.output_tokens or None,
        }
        self.put(span, {name: value for name, value in told.items() if value is not None})

    def judged(self, attempt: str, at_ns: int, event: CheckJudged) -> None:
        """Add a verdict to an attempt, and what a verifier took for it."""
        if event.verifier:
            start_ns = at_ns - round(event.elapsed_s * 1e9)
            place = f"{attempt} verify {event.check} {event.sample}"
            span = self.span(f"verify {event.check}", place, start_ns, at_ns, parent=attempt)
            told = {"batchgate.level": event.check, "batchgate.sample": event.sample}
            self.put(span, {**told, "batchgate.node_h": event.node_h})
        reasons = () if event.passed else event.reasons or ("rejected",)
        self.verdict(attempt, at_ns, event.check, reasons, score=event.score)

    def verdict(
        self,
        place: str,
        at_ns: int,
        name: str,
        reasons: tuple[str, ...],
        *,
        score: float | None = None,
    ) -> None:
        """Add a verdict as an event of a span; it rejects when it has reasons."""
        told: dict[str, Any] = {
            "gen_ai.evaluation.name": name,
            "gen_ai.evaluation.score.label": "fail" if reasons else "pass",
        }
        if reasons:
            told["gen_ai.evaluation.explanation"] = "; ".join(reasons)
        if answer := self._answers.get(place):
            told["gen_ai.response.id"] = answer
        if score is not None:
            told["gen_ai.evaluation.score.value"] = score
        self._logs.append(
            LogRecord(
                trace_id=self._trace_id,
                span_id=self._id(place),
                time_unix_nano=at_ns,
                observed_time_unix_nano=at_ns,
                event_name=EVALUATION,
                attributes=_attributes(told),
            )
        )

    def unit(self, key: str, resource: Attributes, *, complete: bool) -> Unit:
        """Return all that was added."""
        return Unit(key, resource, tuple(self._spans), tuple(self._logs), complete)

    def _id(self, place: str) -> bytes:
        return identifier(self._run, self._key, place, size=8)


def _attributes(values: Attributes) -> list[Any]:
    return [KeyValue(key=key, value=_any(value)) for key, value in values.items()]


def _any(value: Any) -> Any:
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case int():
            return AnyValue(int_value=value)
        case float():
            return AnyValue(double_value=value)
        case list() | tuple():
            return AnyValue(array_value=ArrayValue(values=map(_any, value)))
        case _:
            return AnyValue(string_value=_text(str(value)))


def _text(text: str) -> str:
    # One lone surrogate would make protobuf refuse the whole request.
    return text[:MAX_CHARS].encode("utf-8", "replace").decode()
