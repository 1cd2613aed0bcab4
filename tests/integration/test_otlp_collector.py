"""A run sent to a real collector, over HTTP and gRPC: what it passes on is what the ledger says."""

from __future__ import annotations

import gzip
import importlib.util
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from batchgate.errors import ConfigError
from batchgate.ledger import Ledger, read
from batchgate.review import push as module
from batchgate.review.otlp import Unit
from batchgate.review.push import Unavailable, push
from batchgate.review.spans import units
from tests.synthetic_run import night

PATIENCE_S = 60.0


class Behind:
    """What stands behind the collector, and keeps what it passes on.

    Attributes:
        records: Each span and event in full, and how often it came.
        resources: The attributes of each resource.
    """

    def __init__(self) -> None:
        self.records: Counter[bytes] = Counter()
        self.resources: set[str] = set()

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                self._keep(group.resource, [s for scope in group.scope_spans for s in scope.spans])
        else:
            for logs in ExportLogsServiceRequest.FromString(body).resource_logs:
                found = [r for scope in logs.scope_logs for r in scope.log_records]
                self._keep(logs.resource, found)

    def _keep(self, resource: Any, records: list[Any]) -> None:
        self.records.update(map(whole, records))
        told = {a.key: a.value.string_value for a in resource.attributes}
        self.resources.add(repr(sorted(told.items())))


def whole(record: Any) -> bytes:
    """Return all that a record says, in one order."""
    copy = type(record)()
    copy.CopyFrom(record)
    ordered = sorted(copy.attributes, key=lambda a: str(a.key))
    del copy.attributes[:]
    copy.attributes.extend(ordered)
    said: bytes = copy.SerializeToString(deterministic=True)
    return said


@pytest.fixture
def behind() -> Iterator[tuple[Behind, str]]:
    found = Behind()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            packed = self.headers.get("content-encoding") == "gzip"
            found.take(self.path, gzip.decompress(body) if packed else body)
            self.send_response(200)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield found, f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def collector(behind: tuple[Behind, str], tmp_path: Path) -> Iterator[dict[str, str]]:
    """Start rotel; return its URLs, by their scheme."""
    spec = importlib.util.find_spec("rotel")
    assert spec is not None
    assert spec.origin is not None
    grpc_port, http_port = free_port(), free_port()
    with (tmp_path / "rotel.log").open("wb") as log:
        process = subprocess.Popen(
            [
                *(str(Path(spec.origin).with_name("rotel-agent")), "start"),
                *("--otlp-grpc-endpoint", f"127.0.0.1:{grpc_port}"),
                *("--otlp-http-endpoint", f"127.0.0.1:{http_port}"),
                *("--exporter", "otlp", "--otlp-exporter-protocol", "http"),
                *("--otlp-exporter-endpoint", behind[1]),
                *("--batch-timeout", "50ms"),
            ],
            stdout=log,
            stderr=log,
        )
        try:
            for port in (grpc_port, http_port):
                wait_for(port)
            yield {
                "http": f"http://127.0.0.1:{http_port}",
                "grpc": f"grpc://127.0.0.1:{grpc_port}",
            }
        finally:
            process.terminate()
            process.wait(10)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    until = time.monotonic() + PATIENCE_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert time.monotonic() < until
            time.sleep(0.05)
        else:
            return


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    with Ledger.open(tmp_path / "ledger", run="branin-7") as ledger:
        for entry in night(decisions=20)[1:]:
            if entry.event.type not in {"segment_opened", "segment_closed"}:
                ledger.append(entry.event)
    return tmp_path


def ours(run_dir: Path) -> tuple[Counter[bytes], set[str]]:
    """Return every span and event of the ledger, and the resources they are of."""
    found: list[Unit] = list(units(read(run_dir / "ledger")))
    records = Counter(whole(r) for unit in found for r in (*unit.spans, *unit.logs))
    return records, {repr(sorted(unit.resource.items())) for unit in found}


def arrived(behind: Behind, count: int) -> Counter[bytes]:
    """Wait until the collector has passed on so many records."""
    until = time.monotonic() + PATIENCE_S
    while behind.records.total() < count:
        assert time.monotonic() < until, f"{behind.records.total()} of {count} came"
        time.sleep(0.05)
    return behind.records


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_a_real_collector_passes_on_what_the_ledger_says(
    run_dir: Path, behind: tuple[Behind, str], collector: dict[str, str], scheme: str
) -> None:
    push(run_dir, collector[scheme])

    wanted, resources = ours(run_dir)
    assert arrived(behind[0], wanted.total()) == wanted
    assert behind[0].resources == resources


@pytest.mark.parametrize("scheme", ["http", "grpc"])
def test_an_interrupted_export_goes_on_and_nothing_is_lost_or_twice(
    run_dir: Path,
    behind: tuple[Behind, str],
    collector: dict[str, str],
    scheme: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("batchgate.review.otlp.BATCH_BYTES", 5000)
    real = module._collector(collector[scheme])
    taken = 0

    class Fails:
        def send(self, signal: Any, message: Any) -> None:
            nonlocal taken
            taken += 1
            if taken % 4 == 0:
                raise Unavailable("the line is down")
            real.send(signal, message)

    def times(tries: int) -> int:
        try:
            push(run_dir, collector[scheme], collector=Fails(), sleep=lambda _: None)
        except ConfigError:
            return times(tries + 1)
        return tries

    monkeypatch.setattr(module, "TRIES", 1)
    interrupted = times(0)

    wanted, _ = ours(run_dir)
    assert interrupted > 3
    assert arrived(behind[0], wanted.total()) == wanted
