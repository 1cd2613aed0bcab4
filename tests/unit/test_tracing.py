"""Tests of `batchgate.tracing`: what a strict OTLP reader finds in the files and at a collector."""

import base64
import builtins
import json
import multiprocessing
import re
import socket
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from google.protobuf import json_format
from opentelemetry import _logs, trace
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import (
    ExportLogsServiceRequest,
    ExportLogsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from batchgate.accept import accept
from batchgate.errors import ConfigError
from batchgate.tracing import MAX_CHARS, open_tracing

RESOURCE = {"campaign.name": "branin", "slurm.job.id": "4711"}


def opened(folder, **options):
    return open_tracing(folder, **{"segment": "0001", "resource": RESOURCE, **options})


def enter(manager):
    with manager:
        pass


def span_of(telemetry, name="s", **options):
    return telemetry.tracer_provider.get_tracer("t").start_as_current_span(name, **options)


def decide(telemetry, decisions=1):
    """Trace decisions as `accept` does: an outer span, an attempt, and an event in the attempt."""
    tracer = telemetry.tracer_provider.get_tracer("batchgate")
    logger = telemetry.logger_provider.get_logger("batchgate")
    for number in range(decisions):
        with (
            tracer.start_as_current_span("accept planner", attributes={"number": number}),
            tracer.start_as_current_span("accept.attempt planner"),
        ):
            logger.emit(
                event_name="gen_ai.evaluation.result",
                attributes={"gen_ai.evaluation.name": "bounds"},
            )


def strictly(line, message):
    """Read a line as the OTLP specification says: hex ids, and no key that it does not know."""

    def as_base64(match):
        hexed = match[2]
        assert len(hexed) == (32 if match[1] == "traceId" else 16)
        return f'"{match[1]}":"{base64.b64encode(bytes.fromhex(hexed)).decode()}"'

    text = re.sub(r'"(traceId|spanId|parentSpanId)":"([0-9a-f]*)"', as_base64, line)
    return json_format.Parse(text, message, ignore_unknown_fields=False)


def read_spans(folder, segment="0001"):
    lines = (folder / "trace" / f"{segment}.traces.jsonl").read_text().splitlines()
    return [
        (resource.resource, span)
        for line in lines
        for resource in strictly(line, TracesData()).resource_spans
        for scope in resource.scope_spans
        for span in scope.spans
    ]


def read_logs(folder, segment="0001"):
    lines = (folder / "trace" / f"{segment}.logs.jsonl").read_text().splitlines()
    return [
        record
        for line in lines
        for resource in strictly(line, LogsData()).resource_logs
        for scope in resource.scope_logs
        for record in scope.log_records
    ]


def attributes_of(record):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in record.attributes}


class Collector:
    """An OTLP/HTTP collector on loopback that keeps what it was sent."""

    def __init__(self):
        self.spans, self.logs = [], []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                reply = collector.take(self.path, body)
                self.send_response(200)
                self.send_header("Content-Length", str(len(reply)))
                self.end_headers()
                self.wfile.write(reply)

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def take(self, path, body):
        if path == "/v1/traces":
            request = ExportTraceServiceRequest.FromString(body)
            self.spans += [
                s for r in request.resource_spans for c in r.scope_spans for s in c.spans
            ]
            return ExportTraceServiceResponse().SerializeToString()
        assert path == "/v1/logs"
        request = ExportLogsServiceRequest.FromString(body)
        self.logs += [x for r in request.resource_logs for c in r.scope_logs for x in c.log_records]
        return ExportLogsServiceResponse().SerializeToString()

    def __enter__(self):
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def refusing_url():
    """URL of a port that is bound, so that nobody else gets it, and refuses every connection."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture
def swallowing_url():
    """URL of a collector that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


@pytest.fixture
def fresh_globals(monkeypatch):
    """Let a test install providers, which OpenTelemetry allows once in a process's life."""
    for module, name in ((trace, "_TRACER_PROVIDER"), (_logs._internal, "_LOGGER_PROVIDER")):
        once = f"{name}_SET_ONCE"
        monkeypatch.setattr(module, name, None)
        monkeypatch.setattr(module, once, type(getattr(module, once))())


def test_spans_and_events_are_in_files_of_their_own_that_a_strict_reader_takes(tmp_path):
    with opened(tmp_path) as telemetry:
        decide(telemetry, 3)

    spans, logs = read_spans(tmp_path), read_logs(tmp_path)
    assert [span.name for _, span in spans] == ["accept.attempt planner", "accept planner"] * 3
    assert [log.event_name for log in logs] == ["gen_ai.evaluation.result"] * 3
    assert (telemetry.lost, telemetry.unsent) == (0, 0)


def test_every_event_is_in_a_known_span_and_every_child_has_its_parent(tmp_path):
    with opened(tmp_path) as telemetry:
        decide(telemetry, 3)

    spans = [span for _, span in read_spans(tmp_path)]
    known = {(span.trace_id, span.span_id) for span in spans}
    assert {(log.trace_id, log.span_id) for log in read_logs(tmp_path)} <= known
    parents = {(s.trace_id, s.parent_span_id) for s in spans if s.parent_span_id}
    assert len(parents) == 3
    assert parents <= known


def test_int64_are_strings_and_enums_are_numbers(tmp_path):
    with opened(tmp_path) as telemetry:
        decide(telemetry)

    line = (tmp_path / "trace/0001.traces.jsonl").read_text().splitlines()[-1]
    span = json.loads(line)["resourceSpans"][0]["scopeSpans"][0]["spans"][0]
    assert isinstance(span["startTimeUnixNano"], str)
    assert span["kind"] == 1
    assert span["attributes"] == [{"key": "number", "value": {"intValue": "0"}}]


def test_links_have_hex_ids_too(tmp_path):
    with opened(tmp_path) as telemetry:
        tracer = telemetry.tracer_provider.get_tracer("t")
        with tracer.start_as_current_span("first") as first:
            pass
        with tracer.start_as_current_span("second", links=[trace.Link(first.get_span_context())]):
            pass

    (_, one), (_, other) = read_spans(tmp_path)
    assert (other.links[0].trace_id, other.links[0].span_id) == (one.trace_id, one.span_id)


def test_the_resource_says_whose_records_they_are(tmp_path):
    folder = tmp_path / "run7"

    with opened(folder, segment="0003") as telemetry:
        decide(telemetry)

    resource = attributes_of(read_spans(folder, "0003")[0][0])
    assert resource["service.name"] == "batchgate"
    assert resource["service.instance.id"] == "run7/0003"
    assert resource["host.name"] == socket.gethostname()
    assert RESOURCE.items() <= resource.items()


def test_a_span_is_in_the_file_when_it_has_ended(tmp_path):
    with opened(tmp_path) as telemetry:
        decide(telemetry)

        assert len(read_spans(tmp_path)) == 2
        assert len(read_logs(tmp_path)) == 1


@pytest.mark.parametrize("extra", [0, 1, 1_000_000])
def test_a_text_that_is_too_long_is_cut_and_marked(tmp_path, extra):
    text = "x" * (MAX_CHARS + extra)
    with opened(tmp_path) as telemetry, span_of(telemetry) as span:
        span.set_attribute("value", text)
        span.add_event("e", {"value": text})
        telemetry.logger_provider.get_logger("t").emit(attributes={"value": text}, body=text)

    (_, span), log = read_spans(tmp_path)[0], read_logs(tmp_path)[0]
    wanted = {"value": text[:MAX_CHARS]} | ({"value.truncated": True} if extra else {})
    for record in (span, span.events[0], log):
        assert attributes_of(record) == wanted
    assert log.body.string_value == text[:MAX_CHARS]


def test_a_long_list_becomes_its_text_cut_and_marked(tmp_path):
    with opened(tmp_path) as telemetry, span_of(telemetry) as span:
        span.set_attribute("numbers", list(range(5000)))
        span.set_attribute("few", [1, 2])

    (_, span) = read_spans(tmp_path)[0]
    attributes = attributes_of(span)
    assert len(attributes["numbers"]) == MAX_CHARS
    assert attributes["numbers.truncated"] is True
    assert [v.int_value for v in attributes["few"].values] == [1, 2]


def test_text_that_is_no_unicode_is_replaced_and_costs_no_record(tmp_path):
    bad = "a\ud800b"
    with opened(tmp_path) as telemetry, span_of(telemetry, bad) as span:
        span.set_attribute("value", bad)
        span.set_status(trace.StatusCode.ERROR, bad)
        telemetry.logger_provider.get_logger("t").emit(body=bad)

    (_, span), log = read_spans(tmp_path)[0], read_logs(tmp_path)[0]
    assert (span.name, span.status.message, log.body.string_value) == ("a?b",) * 3
    assert attributes_of(span) == {"value": "a?b"}
    assert telemetry.lost == 0


def test_non_finite_numbers_are_written_as_otlp_has_them(tmp_path):
    with opened(tmp_path) as telemetry, span_of(telemetry) as span:
        span.set_attribute("score", float("inf"))

    assert attributes_of(read_spans(tmp_path)[0][1]) == {"score": float("inf")}


def test_an_unsampled_parent_does_not_hide_a_decision(tmp_path):
    unsampled = trace.NonRecordingSpan(
        trace.SpanContext(1, 2, is_remote=True, trace_flags=trace.TraceFlags(0))
    )
    with opened(tmp_path) as telemetry, trace.use_span(unsampled):
        decide(telemetry)

    assert len(read_spans(tmp_path)) == 2


def test_a_folder_that_cannot_be_written_disturbs_nothing_and_is_told_once(tmp_path, caplog):
    (tmp_path / "trace").write_text("a file where the folder should be")

    with opened(tmp_path) as telemetry:
        decide(telemetry, 5)

    assert telemetry.lost == 15
    told = [r for r in caplog.records if "misses records" in r.getMessage()]
    assert len(told) == 2  # one for each file


def test_a_trace_that_exists_is_not_written_to(tmp_path):
    with opened(tmp_path) as telemetry:
        decide(telemetry)
    before = (tmp_path / "trace/0001.traces.jsonl").read_bytes()

    with opened(tmp_path) as telemetry:
        decide(telemetry)

    assert telemetry.lost == 3
    assert (tmp_path / "trace/0001.traces.jsonl").read_bytes() == before


def test_what_ends_after_the_trace_was_closed_is_dropped_in_silence(tmp_path, caplog):
    with opened(tmp_path) as telemetry:
        decide(telemetry)

    decide(telemetry)

    assert len(read_spans(tmp_path)) == 2
    assert not caplog.records


def test_installed_providers_get_what_the_whole_process_traces(tmp_path, fresh_globals):
    tracer, logger = trace.get_tracer("batchgate"), _logs.get_logger("batchgate")
    with opened(tmp_path) as telemetry:
        telemetry.install()
        with tracer.start_as_current_span("accept planner"):
            logger.emit(event_name="gen_ai.evaluation.result")

    (_, span), log = read_spans(tmp_path)[0], read_logs(tmp_path)[0]
    assert (log.trace_id, log.span_id) == (span.trace_id, span.span_id)


async def test_decisions_of_accept_are_traced_when_installed(tmp_path, fresh_globals):
    with opened(tmp_path) as telemetry:
        telemetry.install()
        await accept(len, checks=[lambda n: n > 0], attempts=2, name="n")

    names = [span.name for _, span in read_spans(tmp_path)]
    assert names == ["accept.attempt n", "accept.attempt n", "accept n"]
    labels = [attributes_of(r)["gen_ai.evaluation.score.label"] for r in read_logs(tmp_path)]
    assert labels == ["fail", "pass"]


def test_threads_write_whole_lines(tmp_path):
    with opened(tmp_path) as telemetry:
        threads = [threading.Thread(target=decide, args=(telemetry, 20)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert len(read_spans(tmp_path)) == 8 * 20 * 2
    assert len(read_logs(tmp_path)) == 8 * 20


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_writes_nothing(tmp_path):
    with opened(tmp_path) as telemetry:
        decide(telemetry)
        child = multiprocessing.get_context("fork").Process(target=decide, args=(telemetry,))
        child.start()
        child.join()
        decide(telemetry)

    assert child.exitcode == 0
    assert len(read_spans(tmp_path)) == 4


def test_a_collector_gets_the_records_that_are_in_the_files(tmp_path):
    with Collector() as collector, opened(tmp_path, endpoint=collector.url) as telemetry:
        decide(telemetry, 200)

    written = [span for _, span in read_spans(tmp_path)]
    assert telemetry.unsent == 0
    assert {s.span_id for s in collector.spans} == {s.span_id for s in written}
    assert len(collector.spans) == len(written) == 400
    assert collector.logs == read_logs(tmp_path)


def test_a_collector_gets_cut_and_cleaned_records(tmp_path):
    with Collector() as collector, opened(tmp_path, endpoint=collector.url) as telemetry:
        enter(span_of(telemetry, "\ud800", attributes={"value": "x" * 10_000_000}))

    (span,) = collector.spans
    assert attributes_of(span) == {"value": "x" * MAX_CHARS, "value.truncated": True}


def test_the_standard_variable_names_a_collector(tmp_path, monkeypatch):
    with Collector() as collector:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url + "/")
        with opened(tmp_path) as telemetry:
            decide(telemetry)

    assert len(collector.spans) == 2
    assert len(collector.logs) == 1


@pytest.mark.parametrize("dead", ["refusing_url", "swallowing_url"])
def test_a_dead_collector_delays_the_end_by_two_seconds_at_most(tmp_path, request, dead, caplog):
    with opened(tmp_path, endpoint=request.getfixturevalue(dead)) as telemetry:
        decide(telemetry, 300)
        began = time.monotonic()

    assert time.monotonic() - began < 5
    assert telemetry.unsent == 900
    assert telemetry.lost == 0
    assert len(read_spans(tmp_path)) == 600
    assert "did not get 600 records" in caplog.text
    assert {r.name for r in caplog.records} == {"batchgate.tracing"}


def test_a_password_in_the_endpoint_is_not_logged(tmp_path, refusing_url, caplog):
    secret = refusing_url.replace("http://", "http://user:geheim@")

    with opened(tmp_path, endpoint=secret) as telemetry:
        decide(telemetry)

    assert "did not get" in caplog.text
    assert "geheim" not in caplog.text


@pytest.mark.parametrize("url", ["geheim:4318", "grpc://geheim:4317", "http://", "http://h:geheim"])
def test_an_endpoint_that_is_no_url_is_refused_without_repeating_it(tmp_path, url):
    with pytest.raises(ConfigError, match="is no http:// or https:// URL") as caught:
        enter(opened(tmp_path, endpoint=url))

    assert "geheim" not in str(caught.value)


@pytest.fixture
def no_extra(monkeypatch):
    """Be an installation without the extra `otlp`."""
    real = builtins.__import__

    def importer(name, *args, **kwargs):
        if name.startswith("opentelemetry.exporter.otlp.proto.http"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    for name in [n for n in sys.modules if n.startswith("opentelemetry.exporter.otlp.proto.http")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(builtins, "__import__", importer)


def test_an_endpoint_without_the_extra_is_an_error_that_says_what_to_install(tmp_path, no_extra):
    with pytest.raises(ConfigError, match=r"batchgate\[otlp\]"):
        enter(opened(tmp_path, endpoint="http://localhost:4318"))


def test_the_variable_without_the_extra_is_a_warning(tmp_path, no_extra, monkeypatch, caplog):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://localhost:4318")

    with opened(tmp_path) as telemetry:
        decide(telemetry)

    assert "batchgate[otlp]" in caplog.text
    assert len(read_spans(tmp_path)) == 2


@pytest.mark.parametrize("name", ["OTEL_SPAN_EVENT_COUNT_LIMIT", "OTEL_ATTRIBUTE_COUNT_LIMIT"])
def test_a_limit_that_is_no_number_is_an_error_that_names_it(tmp_path, monkeypatch, name):
    monkeypatch.setenv(name, "many")

    with pytest.raises(ConfigError, match=name):
        enter(opened(tmp_path))


def test_an_error_of_the_program_closes_the_trace_and_passes(tmp_path):
    def broken():
        with opened(tmp_path) as telemetry:
            decide(telemetry)
            raise ZeroDivisionError

    descriptors = len(list(Path("/proc/self/fd").iterdir()))

    with pytest.raises(ZeroDivisionError):
        broken()

    assert len(list(Path("/proc/self/fd").iterdir())) == descriptors
    assert len(read_spans(tmp_path)) == 2
