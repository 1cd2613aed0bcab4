"""Sends a run's spans and events to an OTLP collector, and remembers what has arrived.

What a collector has acknowledged is not sent again, by this process or the next: `otlp.json` in
the run's directory counts it. Only what is complete is sent, so a run that still goes on can be
sent again and again. A process that dies between an acknowledgement and its note sends one batch
twice, under the same ids.
"""

from __future__ import annotations

import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from .. import ledger
from ..errors import ConfigError
from ..files import write_whole
from .otlp import Signal, Unit, batches, request_of
from .spans import units

TIMEOUT_S = 10.0
"""Seconds for one request."""
TRIES = 5
"""Requests with the same batch, before it is given up for now."""
PAUSE_S = 1.0
"""Seconds before the second request with a batch; doubled each time."""
NOTES = "otlp.json"
"""File in the run's directory that says what has arrived where."""

_LATER = {408, 429, 502, 503, 504}
_NOT_TAKEN = {404, 405, 501}


class Unavailable(Exception):
    """The collector did not take a batch now, and may later."""


class NotTaken(Exception):
    """The collector has no place for this kind of record."""


class Collector(Protocol):
    """Where records go."""

    def send(self, signal: Signal, message: Any) -> None:
        """Send one OTLP message; return when it is acknowledged.

        Raises:
            Unavailable: Try again later.
            NotTaken: It takes no records of this kind.
            ConfigError: It refuses the message.
        """
        ...


@dataclass(frozen=True, slots=True)
class Sent:
    """What `push` came to.

    Attributes:
        traces: Decisions and jobs whose spans have arrived by now, over all calls.
        logs: Likewise, their events.
        incomplete: Decisions and jobs that are not complete, so that they were left out.
        not_taken: Kinds of records that the collector has no place for.
    """

    traces: int
    logs: int
    incomplete: int
    not_taken: tuple[Signal, ...]


def push(
    run_dir: str | Path,
    url: str,
    *,
    collector: Collector | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> Sent:
    """Send what a collector has not acknowledged yet.

    Args:
        run_dir: The run's directory.
        url: `http://host:4318` or `https://...` for OTLP over HTTP, `grpc://host:4317` or
            `grpcs://...` for gRPC.
        collector: Instead of one that speaks to the URL.
        sleep: Waits between tries.

    Raises:
        ConfigError: The URL is none, the collector refuses a batch, or does not answer; what has
            arrived until then is remembered.
        LedgerError: There is no ledger, or it cannot be read.
    """
    run_dir = Path(run_dir)
    found = list(units(ledger.read(ledger.folder_of(run_dir))))
    complete = [unit for unit in found if unit.complete]
    notes = _Notes.of(run_dir / NOTES, _shown(url))
    collector = collector or _collector(url)
    not_taken: list[Signal] = []
    signals: tuple[Signal, ...] = ("traces", "logs")
    for signal in signals:
        try:
            _send_rest(signal, complete, notes, collector, sleep)
        except NotTaken:
            not_taken.append(signal)
        except Unavailable as exc:
            raise ConfigError(
                f"{_shown(url)} has {notes.arrived(signal)} of {len(complete)} units' {signal} and "
                f"takes no more now ({exc}); the same call goes on from there"
            ) from exc
    return Sent(
        traces=notes.arrived("traces"),
        logs=notes.arrived("logs"),
        incomplete=len(found) - len(complete),
        not_taken=tuple(not_taken),
    )


def _send_rest(
    signal: Signal,
    complete: list[Unit],
    notes: _Notes,
    collector: Collector,
    sleep: Callable[[float], None],
) -> None:
    arrived = notes.arrived(signal)
    notes.require_same(signal, complete)
    for batch in batches(complete[arrived:]):
        for message in request_of(signal, batch):
            _send(signal, message, collector, sleep)
        notes.note(signal, len(batch), batch[-1].key)


def _send(
    signal: Signal, message: Any, collector: Collector, sleep: Callable[[float], None]
) -> None:
    for tried in range(TRIES):
        try:
            return collector.send(signal, message)
        except Unavailable:
            if tried == TRIES - 1:
                raise
            sleep(PAUSE_S * 2**tried)
    return None


@dataclass(slots=True)
class _Notes:
    """What has arrived at one collector: for each kind a count, and the key of the last unit."""

    path: Path
    url: str
    all_: dict[str, dict[str, list[Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, path: Path, url: str) -> _Notes:
        try:
            found = json.loads(path.read_text(encoding="ascii"))
        except FileNotFoundError:
            found = {}
        except (OSError, ValueError) as exc:
            raise ConfigError(f"{path} cannot be read: {exc}; delete it to send all again") from exc
        return cls(path, url, found)

    def arrived(self, signal: Signal) -> int:
        return int(self.all_.get(self.url, {}).get(signal, [0, ""])[0])

    def require_same(self, signal: Signal, complete: list[Unit]) -> None:
        count, key = self.all_.get(self.url, {}).get(signal, [0, ""])
        if count and (len(complete) < count or complete[count - 1].key != key):
            raise ConfigError(
                f"{self.path} says that {count} units up to {key} were sent, which this ledger does "
                "not have so; delete it to send all again"
            )

    def note(self, signal: Signal, count: int, key: str) -> None:
        self.all_.setdefault(self.url, {})[signal] = [self.arrived(signal) + count, key]
        try:
            write_whole(self.path, json.dumps(self.all_, indent=2))
        except OSError as exc:
            raise ConfigError(f"{self.path} cannot be written: {exc.strerror}") from exc


def _collector(url: str) -> Collector:
    parts = urlsplit(url)
    if not parts.hostname or parts.scheme not in {"http", "https", "grpc", "grpcs"}:
        raise ConfigError(
            "the collector is no http://, https://, grpc:// or grpcs:// URL, such as "
            "http://localhost:4318 or grpc://localhost:4317"
        )
    if parts.scheme in {"http", "https"}:
        return _Http(url.rstrip("/"))
    return _Grpc(parts.netloc.rpartition("@")[2], secure=parts.scheme == "grpcs")


def _shown(url: str) -> str:
    """Return a URL without the password it may hold."""
    parts = urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")


def _headers() -> dict[str, str]:
    """Read `OTEL_EXPORTER_OTLP_HEADERS`, `name=value` pairs, percent-encoded."""
    pairs = os.environ.get("OTEL_EXPORTER_OTLP_HEADERS", "").split(",")
    split = (pair.partition("=") for pair in pairs if "=" in pair)
    return {name.strip().lower(): unquote(value.strip()) for name, _, value in split}


@dataclass(frozen=True, slots=True)
class _Http:
    """OTLP over HTTP, in protobuf."""

    url: str

    def send(self, signal: Signal, message: Any) -> None:
        headers = {**_headers(), "content-type": "application/x-protobuf"}
        body = message.SerializeToString()
        request = urllib.request.Request(  # noqa: S310 - `_collector` has looked at the scheme
            f"{self.url}/v1/{signal}", body, headers, method="POST"
        )
        try:
            with urllib.request.urlopen(request, timeout=TIMEOUT_S):  # noqa: S310 - see above
                return
        except urllib.error.HTTPError as exc:
            code = exc.code
            exc.close()
            if code in _LATER:
                raise Unavailable(f"status {code}") from exc
            if code in _NOT_TAKEN:
                raise NotTaken from exc
            raise ConfigError(f"{_shown(self.url)} refuses {signal}: status {code}") from exc
        except OSError as exc:
            raise Unavailable(str(exc)) from exc


@dataclass(frozen=True, slots=True)
class _Grpc:
    """OTLP over gRPC."""

    target: str
    secure: bool = False

    def send(self, signal: Signal, message: Any) -> None:
        grpc, stub, request = _grpc_parts(signal)
        request.ParseFromString(message.SerializeToString())  # both have the same one field
        with self._channel(grpc) as channel:
            try:
                stub(channel).Export(request, timeout=TIMEOUT_S, metadata=tuple(_headers().items()))
            except grpc.RpcError as exc:
                later = {"UNAVAILABLE", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED", "ABORTED"}
                code = exc.code().name
                if code in later:
                    raise Unavailable(code) from exc
                if code == "UNIMPLEMENTED":
                    raise NotTaken from exc
                raise ConfigError(f"{self.target} refuses {signal}: {code}") from exc

    def _channel(self, grpc: Any) -> Any:
        if self.secure:
            return grpc.secure_channel(self.target, grpc.ssl_channel_credentials())
        return grpc.insecure_channel(self.target)


def _grpc_parts(signal: Signal) -> tuple[Any, Any, Any]:
    try:
        import grpc  # type: ignore[import-untyped]
        from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
        from opentelemetry.proto.collector.trace.v1 import (
            trace_service_pb2,
            trace_service_pb2_grpc,
        )
    except ImportError as exc:
        raise ConfigError(f"{exc}: pip install 'batchgate[otlp]'") from exc
    if signal == "traces":
        traces = trace_service_pb2.ExportTraceServiceRequest()
        return grpc, trace_service_pb2_grpc.TraceServiceStub, traces
    return grpc, logs_service_pb2_grpc.LogsServiceStub, logs_service_pb2.ExportLogsServiceRequest()
