"""A run's spans and events: OTLP JSON lines in its folder, and a collector if one is named.

A record is in its file as soon as it has ended, so a kill loses open spans only. Nothing here
raises into the program or delays its end by more than `CLOSE_S`: the ledger is the truth, the
trace a projection of it. This is the only module that knows the OpenTelemetry SDK.

The files follow the OTLP file format (https://opentelemetry.io/docs/specs/otel/protocol/
file-exporter): one kind of record in a file, one request on a line, ids in hex. The official
`opentelemetry-exporter-otlp-json-file` 0.66b1 is not used: it does not install beside
`opentelemetry-exporter-otlp` 1.45.2, and on a full disk it loses spans without a word.
"""

from __future__ import annotations

import base64
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from google.protobuf.json_format import MessageToDict
from opentelemetry import _logs, trace
from opentelemetry.exporter.otlp.proto.common._log_encoder import encode_logs
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk._logs import (
    LoggerProvider,
    LogRecordLimits,
    LogRecordProcessor,
    ReadableLogRecord,
    ReadWriteLogRecord,
)
from opentelemetry.sdk._logs.export import BatchLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.trace.sampling import ALWAYS_ON
from opentelemetry.trace import Status

from . import span_ids
from .errors import ConfigError

MAX_CHARS = 8192
"""Longest text of an attribute. One huge span makes a collector refuse the batch it is in."""
BATCH = 128
"""Records in one request: with texts of `MAX_CHARS`, small enough for every collector."""
REQUEST_S = 5.0
"""Seconds for one request, unless `OTEL_EXPORTER_OTLP_TIMEOUT` says otherwise."""
CLOSE_S = 2.0
"""Most seconds that closing waits for the collector."""

_ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
_NO_EXTRA = "an OTLP collector needs an extra: pip install 'batchgate[otlp]'"
_LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True)
class Telemetry:
    """The open trace of one life of a run.

    Attributes:
        tracer_provider: Its tracers' spans go to the trace.
        logger_provider: Its loggers' events go to the trace.
    """

    tracer_provider: TracerProvider
    logger_provider: LoggerProvider
    _outputs: tuple[_Output, ...]

    @property
    def lost(self) -> int:
        """Spans and events that could not be written to the files."""
        return sum(output.lost for output in self._outputs)

    @property
    def unsent(self) -> int:
        """Spans and events that the collector has not taken; they are in the files."""
        return sum(output.sender.unsent for output in self._outputs if output.sender)

    def install(self) -> None:
        """Give the spans and events of the whole process to this trace.

        OpenTelemetry allows that once in the life of a process: a later call changes nothing, and
        its API logs a warning.
        """
        trace.set_tracer_provider(self.tracer_provider)
        _logs.set_logger_provider(self.logger_provider)


@contextmanager
def open_tracing(
    folder: Path, *, segment: str, resource: Mapping[str, str], endpoint: str | None = None
) -> Iterator[Telemetry]:
    """Open the trace of one life of a run.

    It is written to `trace/SEGMENT.traces.jsonl` and `trace/SEGMENT.logs.jsonl`. A disk that
    refuses a record is told once in the log and counted in `Telemetry.lost`. What a forked child
    does is not traced.

    Args:
        folder: The run's folder.
        segment: Name of this life, as of its segment of the ledger.
        resource: Attributes of every record, `campaign.name` and `slurm.job.id` for example.
        endpoint: Base URL of an OTLP/HTTP collector, `http://localhost:4318` for example. By
            default the one in `OTEL_EXPORTER_OTLP_ENDPOINT`, if the extra `otlp` is installed.

    Raises:
        ConfigError: `endpoint` is no URL, the extra `otlp` is missing for it, or a variable
            `OTEL_..._LIMIT` is no number. Mend it and start again.
    """
    tracer_provider, logger_provider = _providers(_resource(folder, segment, resource))
    span_sender, log_sender = _senders(endpoint)
    trace_folder = folder / "trace"
    span_file = _File(trace_folder / f"{segment}.traces.jsonl")
    log_file = _File(trace_folder / f"{segment}.logs.jsonl")
    spans = _Output(span_file, _tidy_span, _span_line, span_sender)
    logs = _Output(log_file, _tidy_log, _log_line, log_sender)
    tracer_provider.add_span_processor(_Spans(spans))
    logger_provider.add_log_record_processor(_Logs(logs))
    try:
        yield Telemetry(tracer_provider, logger_provider, (spans, logs))
    finally:
        _close(spans, logs)


def _resource(folder: Path, segment: str, given: Mapping[str, str]) -> Resource:
    return Resource.create(
        {
            "service.name": "batchgate",
            "service.version": version("batchgate"),
            "service.instance.id": f"{folder.name}/{segment}",
            "host.name": socket.gethostname(),
            **given,
        }
    )


def _providers(resource: Resource) -> tuple[TracerProvider, LoggerProvider]:
    # One more than is kept, so that a text which the SDK cut can be told from one that fits.
    longest = MAX_CHARS + 1
    try:
        span_limits = SpanLimits(max_attribute_length=longest, max_span_attribute_length=longest)
        log_limits = LogRecordLimits(max_log_record_attribute_length=longest)
    except ValueError as exc:
        raise ConfigError(str(exc)) from exc
    # Not shut down at exit: that would wait for the collector.
    return (
        TracerProvider(
            ALWAYS_ON,
            resource,
            shutdown_on_exit=False,
            id_generator=_Ids(),
            span_limits=span_limits,
        ),
        LoggerProvider(resource, shutdown_on_exit=False, log_record_limits=log_limits),
    )


class _Ids(RandomIdGenerator):
    """Ids that `span_ids` knows beforehand, and random ones."""

    def generate_trace_id(self) -> int:
        return span_ids.next_trace_id() or super().generate_trace_id()

    def generate_span_id(self) -> int:
        return span_ids.next_span_id() or super().generate_span_id()


# --- records on their way out -------------------------------------------------------------------


class _Output:
    """Takes ended records of one kind: to the file at once, to the collector in batches."""

    def __init__(
        self,
        file: _File,
        tidy: Callable[[Any], Any],
        encode: Callable[[Any], bytes],
        sender: _Sender | None,
    ) -> None:
        self.file = file
        self.sender = sender
        self.lost = 0
        self._tidy = tidy
        self._encode = encode
        # Reentrant, as the warning below may itself become an event.
        self._lock = threading.RLock()
        self._pid = os.getpid()
        self._open = True

    def take(self, record: Any) -> None:
        """Write and send a record. Never raises."""
        # A forked child shares the file, and its copy of the lock may be held for ever.
        if os.getpid() != self._pid:
            return
        with self._lock:
            if not self._open:
                return
            try:
                record = self._tidy(record)
                self.file.append(self._encode(record))
            except Exception as exc:  # noqa: BLE001 - a broken trace must not end the campaign
                self._lose(exc)
            if self.sender:
                self.sender.hand(record)

    def close(self) -> None:
        """Close the file; what comes later is not taken."""
        with self._lock:
            self._open = False
            try:
                self.file.close()
            except OSError as exc:  # a network file system tells of a full disk only now
                self._lose(exc)

    def tell(self) -> None:
        """Say what is missing."""
        if self.lost:
            _LOGGER.warning("%s misses %d records", self.file.path, self.lost)
        if self.sender and self.sender.unsent:
            where, unsent = self.sender.exporter.where, self.sender.unsent
            _LOGGER.warning("%s did not get %d records", where, unsent)

    def _lose(self, exc: Exception) -> None:
        self.lost += 1
        if self.lost == 1:
            _LOGGER.warning("%s misses records: %s", self.file.path, exc)


class _Spans(SpanProcessor):
    def __init__(self, output: _Output) -> None:
        self._output = output

    def on_end(self, span: ReadableSpan) -> None:
        self._output.take(span)


class _Logs(LogRecordProcessor):
    def __init__(self, output: _Output) -> None:
        self._output = output

    def on_emit(self, log_record: ReadWriteLogRecord) -> None:
        self._output.take(log_record)

    def shutdown(self) -> None:
        """Do nothing: `open_tracing` closes what it opened."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        """Do nothing: a record is written when it comes."""
        return True


def _tidy_span(span: ReadableSpan) -> ReadableSpan:
    """Copy a span with texts that are short enough and can be encoded.

    One lone surrogate in a name or a status makes the encoder drop the whole batch (1.45.2).
    """
    status = span.status
    return ReadableSpan(
        name=_text(span.name),
        context=span.context,
        parent=span.parent,
        resource=span.resource,
        attributes=_tidy(span.attributes),
        events=[Event(_text(e.name), _tidy(e.attributes), e.timestamp) for e in span.events],
        links=span.links,
        kind=span.kind,
        status=Status(status.status_code, status.description and _text(status.description)),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _tidy_log(log_record: ReadWriteLogRecord) -> ReadWriteLogRecord:
    record = log_record.log_record
    record.attributes = _tidy(record.attributes)
    if isinstance(record.body, str):
        record.body = _text(record.body)
    return log_record


def _tidy(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    """Cut long values, and mark each that was cut."""
    tidied: dict[str, Any] = {}
    for key, value in (attributes or {}).items():
        if isinstance(value, (bool, int, float)):
            tidied[key] = value
            continue
        whole = value if isinstance(value, str) else repr(value)
        if len(whole) > MAX_CHARS:
            tidied[key] = _text(whole)
            tidied[f"{key}.truncated"] = True
        else:
            tidied[key] = _text(value) if isinstance(value, str) else value
    return tidied


def _text(text: str) -> str:
    return text[:MAX_CHARS].encode("utf-8", "replace").decode("utf-8")


# --- files --------------------------------------------------------------------------------------


class _File:
    """Lines by one writer, each handed to the kernel at once, none of them half."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._fd: int | None = None
        self._size = 0

    def append(self, line: bytes) -> None:
        if self._fd is None:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND
            self._fd = os.open(self.path, flags, 0o640)
        rest = line
        try:
            while rest:
                rest = rest[os.write(self._fd, rest) :]
        except OSError:
            # A full disk takes half a line, and the next one must not be glued to it.
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(line)

    def close(self) -> None:
        if self._fd is not None:
            os.close(self._fd)


def _span_line(span: ReadableSpan) -> bytes:
    return _line(MessageToDict(encode_spans([span]), use_integers_for_enums=True), "Spans", "spans")


def _log_line(log_record: ReadWriteLogRecord) -> bytes:
    readable = ReadableLogRecord(
        log_record=log_record.log_record,
        resource=log_record.resource or Resource.get_empty(),
        instrumentation_scope=log_record.instrumentation_scope,
        limits=log_record.limits,
    )
    data = MessageToDict(encode_logs([readable]), use_integers_for_enums=True)
    return _line(data, "Logs", "logRecords")


def _line(data: dict[str, Any], kind: str, records: str) -> bytes:
    for resource in data[f"resource{kind}"]:
        for scope in resource[f"scope{kind}"]:
            for record in scope[records]:
                _hex_ids(record)
                for link in record.get("links", ()):
                    _hex_ids(link)
    return json.dumps(data, separators=(",", ":"), allow_nan=False).encode() + b"\n"


def _hex_ids(record: dict[str, Any]) -> None:
    # OTLP's JSON differs from that of protobuf in this alone: ids are hex, not base64.
    for name in ("traceId", "spanId", "parentSpanId"):
        if name in record:
            record[name] = base64.b64decode(record[name]).hex()


# --- collector ----------------------------------------------------------------------------------


class _Counting:
    """An exporter around the official one, which counts what arrived."""

    def __init__(self, exporter: Any, where: str) -> None:
        self.arrived = 0
        self._exporter = exporter
        self.where = where
        self._told = False

    def export(self, batch: Sequence[Any]) -> Any:
        result = self._exporter.export(batch)
        if result.name == "SUCCESS":
            self.arrived += len(batch)
        elif not self._told:
            self._told = True
            _LOGGER.warning("%s takes no records; the trace files have them", self.where)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()

    def give_up(self) -> None:
        """Make what is under way fail soon, in silence."""
        self._told = True
        self._exporter.shutdown()


@dataclass
class _Sender:
    """Sends records of one kind in batches, from a thread of its own."""

    exporter: _Counting
    queue: Callable[[Any], None]
    shutdown: Callable[[], None]
    handed: int = 0

    @property
    def unsent(self) -> int:
        return self.handed - self.exporter.arrived

    def hand(self, record: Any) -> None:
        self.handed += 1
        self.queue(record)


def _senders(endpoint: str | None) -> tuple[_Sender | None, _Sender | None]:
    """Make the senders of spans and of events, over HTTP: the threads of gRPC survive no fork."""
    url = endpoint or os.environ.get(_ENDPOINT)
    if not url:
        return None, None
    base, where = _split(url)
    try:
        from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    except ImportError as exc:
        if endpoint:
            raise ConfigError(f"{_NO_EXTRA} ({exc})") from exc
        _LOGGER.warning("%s is set, but %s", _ENDPOINT, _NO_EXTRA)
        return None, None
    _silence_exporters()
    timeout = None if "OTEL_EXPORTER_OTLP_TIMEOUT" in os.environ else REQUEST_S
    spans = _Counting(OTLPSpanExporter(f"{base}/v1/traces", timeout=timeout), f"{where}/v1/traces")
    logs = _Counting(OTLPLogExporter(f"{base}/v1/logs", timeout=timeout), f"{where}/v1/logs")
    # An exporter is whatever has `export` and `shutdown`; its two base classes exclude each other.
    span_batches = BatchSpanProcessor(spans, max_export_batch_size=BATCH)  # type: ignore[arg-type]
    log_batches = BatchLogRecordProcessor(logs, max_export_batch_size=BATCH)  # type: ignore[arg-type]
    return (
        _Sender(spans, span_batches.on_end, span_batches.shutdown),
        _Sender(logs, log_batches.on_emit, log_batches.shutdown),
    )


def _split(url: str) -> tuple[str, str]:
    """Return a collector's URL, and the part of it that may be shown: it may hold a password."""
    problem = "the OTLP endpoint is no http:// or https:// URL, such as http://localhost:4318"
    try:
        parts = urlsplit(url)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        raise ConfigError(problem) from None
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ConfigError(problem)
    return url.rstrip("/"), f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}"


def _silence_exporters() -> None:
    # A dead collector would fill a night's log with one error per batch; we tell it once.
    for name in ("opentelemetry.exporter", "opentelemetry.sdk._shared_internal"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


def _close(*outputs: _Output) -> None:
    for output in outputs:
        output.close()
    senders = [output.sender for output in outputs if output.sender]
    # Shutting a batch processor down sends what it holds: 21 s were seen with a collector that
    # refuses, 30 s with one that swallows (1.45.2). So that is left to threads that may be left.
    threads = [threading.Thread(target=sender.shutdown, daemon=True) for sender in senders]
    deadline = time.monotonic() + CLOSE_S
    for thread in threads:
        thread.start()
    for thread, sender in zip(threads, senders, strict=True):
        thread.join(max(0.0, deadline - time.monotonic()))
        if thread.is_alive():
            sender.exporter.give_up()
    for output in outputs:
        output.tell()
