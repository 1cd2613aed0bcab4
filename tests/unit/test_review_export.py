"""Tables, OTLP files and OTLP collectors: what a run looks like elsewhere."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pandas as pd
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from batchgate.errors import ConfigError, LedgerError
from batchgate.events import AttemptStarted, DecisionOpened, JobPlanned, ProposalMade
from batchgate.ledger import Ledger
from batchgate.review.otlp import MAX_CHARS, batches, request_of
from batchgate.review.push import TRIES, NotTaken, Unavailable, push
from batchgate.review.record import RunRecord
from batchgate.review.spans import units, write_json
from batchgate.review.tables import NAMES, Tables, write_csv, write_parquet
from tests.synthetic_run import EVIL, Script, chosen, night

# --- tables --------------------------------------------------------------------------------------


def test_each_table_has_a_row_for_each_thing() -> None:
    record = RunRecord.of(night())

    tables = Tables(record).named()

    assert tuple(tables) == NAMES
    assert len(tables["attempts"]) == len(list(record.attempts))
    assert len(tables["verdicts"]) == sum(len(a.checks) for a in record.attempts)
    assert len(tables["decisions"]) == len(record.decisions)
    assert len(tables["jobs"]) == len(record.jobs)
    assert len(tables["results"]) == sum(
        j.values is not None or bool(j.reasons) for j in record.jobs
    )


@pytest.mark.parametrize("record", [RunRecord.of(night()), RunRecord.of([])])
def test_columns_are_typed_also_in_an_empty_table(record: RunRecord) -> None:
    jobs, attempts = Tables(record).jobs(), Tables(record).attempts()

    assert str(jobs["planned_at"].dtype) == "datetime64[us, UTC]"
    assert jobs["exit_code"].dtype == "Int64"
    assert jobs["charged_node_h"].dtype == "Float64"
    assert jobs["again"].dtype == "boolean"
    assert attempts["model"].dtype == "string"


def test_a_campaigns_own_names_are_columns_with_a_prefix() -> None:
    results = Tables(RunRecord.of(night())).results()

    good = results[results["feasible"]]
    assert good["value.y"].max() < 20
    assert good["candidate.x1"].between(-5, 10).all()


def test_what_never_happened_is_missing_and_not_1970() -> None:
    point = chosen(x1=1.0, x2=2.0)
    script = Script().begin()
    script.add(
        DecisionOpened(decision=1),
        JobPlanned(
            job="j1",
            decision=1,
            fingerprint=point.fingerprint,
            candidate=point.candidate,
            level="fine",
            reserved_node_h=1,
            walltime_s=60,
        ),
    )

    jobs = Tables(RunRecord.of(script.entries)).jobs()

    assert jobs["started_at"].isna().all()
    assert jobs["settled_at"].isna().all()


def test_files_hold_what_the_tables_hold(tmp_path: Path) -> None:
    record = RunRecord.of(night())

    csv, parquet = write_csv(record, tmp_path / "c"), write_parquet(record, tmp_path / "p")

    assert [path.name for path in csv] == [f"{name}.csv" for name in NAMES]
    jobs = pd.read_parquet(parquet[3])
    pd.testing.assert_frame_equal(jobs, Tables(record).jobs(), check_dtype=False)
    assert pd.read_csv(csv[3])["job"].tolist() == jobs["job"].tolist()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="cannot be written"):
        write_csv(RunRecord.of([]), tmp_path / "file" / "x")


# --- spans and events ----------------------------------------------------------------------------


def test_the_same_ledger_gives_the_same_bytes(tmp_path: Path) -> None:
    one = [path.read_bytes() for path in write_json(night(), tmp_path / "one")]
    other = [path.read_bytes() for path in write_json(night(), tmp_path / "other")]

    assert one == other
    assert all(one)


def test_ids_are_whole_unique_and_refer_to_what_is_there() -> None:
    found = list(units(night()))
    spans = [span for unit in found for span in unit.spans]
    logs = [record for unit in found for record in unit.logs]

    ids = {(span.trace_id, span.span_id) for span in spans}

    assert len(ids) == len(spans)
    assert {(len(trace), len(span)) for trace, span in ids} == {(16, 8)}
    parents = {(s.trace_id, s.parent_span_id) for s in spans if s.parent_span_id}
    assert parents <= ids
    assert {(record.trace_id, record.span_id) for record in logs} <= ids
    links = {(link.trace_id, link.span_id) for span in spans for link in span.links}
    assert links <= ids
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)


def test_files_are_strict_otlp_one_kind_in_each(tmp_path: Path) -> None:
    traces, logs = write_json(night(), tmp_path)

    for path, message, kind in ((traces, TracesData, "Spans"), (logs, LogsData, "Logs")):
        for line in path.read_text().splitlines():
            data = json.loads(line)
            assert list(data) == [f"resource{kind}"]
            ParseDict(without_ids(data), message())  # raises for an unknown field


def without_ids(data: Any) -> Any:
    # OTLP writes ids in hex, protobuf's own JSON in base64.
    if isinstance(data, dict):
        ids = ("traceId", "spanId", "parentSpanId")
        return {k: without_ids(v) for k, v in data.items() if k not in ids}
    return [without_ids(one) for one in data] if isinstance(data, list) else data


def test_a_verdict_is_an_event_of_its_attempt_with_its_reason() -> None:
    rejected = [
        {a.key: a.value.string_value for a in record.attributes}
        for unit in units(night())
        for record in unit.logs
    ]

    told = [one for one in rejected if one["gen_ai.evaluation.name"] == "disc"]
    assert {one["gen_ai.evaluation.score.label"] for one in told} == {"pass", "fail"}
    assert all(
        "at most 9" in one["gen_ai.evaluation.explanation"]
        for one in told
        if one["gen_ai.evaluation.score.label"] == "fail"
    )


def test_what_no_runner_finished_is_there_and_marked() -> None:
    script = Script().begin()
    script.add(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))

    (unit,) = units(script.entries)

    assert not unit.complete
    for span in unit.spans:
        told = {a.key: a.value.string_value for a in span.attributes}
        assert told["error.type"] == "interrupted"


def test_hostile_and_huge_text_is_cut_and_can_be_sent() -> None:
    script = Script().begin()
    script.add(
        DecisionOpened(decision=1),
        AttemptStarted(decision=1, attempt=1),
        ProposalMade(decision=1, attempt=1, proposal={}, model=EVIL + "\ud800" + "x" * MAX_CHARS),
    )

    (message,) = request_of("traces", units(script.entries))

    assert len(message.SerializeToString()) < 5 * MAX_CHARS


def test_a_ledger_that_has_grown_yields_the_same_units_first() -> None:
    entries = night()

    whole = [unit.key for unit in units(entries) if unit.complete]
    for cut in range(0, len(entries), 97):
        part = [unit.key for unit in units(entries[:cut]) if unit.complete]
        assert part == whole[: len(part)]


def test_a_batch_is_of_one_resource() -> None:
    for batch in batches(units(night())):
        assert len({str(unit.resource) for unit in batch}) == 1


# --- collectors ----------------------------------------------------------------------------------


class Receiver:
    """A collector in this process: keeps what arrives, and answers by script.

    Attributes:
        answers: Statuses still to be given before all is taken.
        refused: Kinds that it has no place for.
    """

    def __init__(self) -> None:
        self.answers: list[int] = []
        self.refused: set[str] = set()
        self.spans: list[bytes] = []
        self.logs: list[bytes] = []

    def take(self, signal: str, body: bytes) -> int:
        if signal in self.refused:
            return 404
        if self.answers:
            return self.answers.pop(0)
        if signal == "traces":
            traces = trace_service_pb2.ExportTraceServiceRequest.FromString(body)
            groups = [scope for r in traces.resource_spans for scope in r.scope_spans]
            self.spans += [span.span_id for scope in groups for span in scope.spans]
        else:
            logs = logs_service_pb2.ExportLogsServiceRequest.FromString(body)
            scopes = [scope for r in logs.resource_logs for scope in r.scope_logs]
            self.logs += [record.span_id for scope in scopes for record in scope.log_records]
        return 200


@pytest.fixture
def receiver() -> Receiver:
    return Receiver()


@pytest.fixture
def http_url(receiver: Receiver) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            self.send_response(receiver.take(self.path.removeprefix("/v1/"), body))
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def grpc_url(receiver: Receiver) -> Iterator[str]:
    codes = {404: grpc.StatusCode.UNIMPLEMENTED, 503: grpc.StatusCode.UNAVAILABLE}

    def export(signal: str, reply: Any) -> Any:
        def answer(_: Any, request: Any, context: Any) -> Any:
            status = receiver.take(signal, request.SerializeToString())
            if status != 200:
                context.abort(codes.get(status, grpc.StatusCode.INVALID_ARGUMENT), "no")
            return reply

        return answer

    traces = type("Traces", (trace_service_pb2_grpc.TraceServiceServicer,), {})
    logs = type("Logs", (logs_service_pb2_grpc.LogsServiceServicer,), {})
    traces.Export = export("traces", trace_service_pb2.ExportTraceServiceResponse())  # type: ignore[attr-defined]
    logs.Export = export("logs", logs_service_pb2.ExportLogsServiceResponse())  # type: ignore[attr-defined]
    server = grpc.server(futures.ThreadPoolExecutor(2))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(traces(), server)
    logs_service_pb2_grpc.add_LogsServiceServicer_to_server(logs(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"grpc://127.0.0.1:{port}"
    server.stop(None).wait()


@pytest.fixture(params=["http_url", "grpc_url"])
def url(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    with Ledger.open(tmp_path / "ledger", run="branin-7") as ledger:
        for entry in night(decisions=20)[1:]:
            if entry.event.type not in {"segment_opened", "segment_closed"}:
                ledger.append(entry.event)
    return tmp_path


def all_ids(run_dir: Path) -> tuple[list[bytes], list[bytes]]:
    from batchgate.ledger import read

    found = list(units(read(run_dir / "ledger")))
    spans = [span.span_id for unit in found for span in unit.spans]
    return sorted(spans), sorted(record.span_id for unit in found for record in unit.logs)


def test_everything_arrives_once_however_often_it_is_sent(
    run_dir: Path, receiver: Receiver, url: str
) -> None:
    first, second = push(run_dir, url), push(run_dir, url)

    assert first == second
    assert (first.incomplete, first.not_taken) == (0, ())
    assert (sorted(receiver.spans), sorted(receiver.logs)) == all_ids(run_dir)


def test_a_collector_that_is_busy_is_tried_again_and_gets_nothing_twice(
    run_dir: Path, receiver: Receiver, url: str
) -> None:
    receiver.answers = [503, 503]
    pauses: list[float] = []

    push(run_dir, url, sleep=pauses.append)

    assert pauses == [1.0, 2.0]
    assert (sorted(receiver.spans), sorted(receiver.logs)) == all_ids(run_dir)


def test_a_collector_that_fails_for_long_is_given_up_and_taken_up_later(
    run_dir: Path, receiver: Receiver, url: str
) -> None:
    receiver.answers = [503] * TRIES

    with pytest.raises(ConfigError, match="the same call goes on from there"):
        push(run_dir, url, sleep=lambda _: None)
    push(run_dir, url)

    assert (sorted(receiver.spans), sorted(receiver.logs)) == all_ids(run_dir)


def test_a_collector_without_a_place_for_events_gets_the_spans(
    run_dir: Path, receiver: Receiver, url: str
) -> None:
    receiver.refused = {"logs"}

    sent = push(run_dir, url)

    assert sent.not_taken == ("logs",)
    assert sorted(receiver.spans) == all_ids(run_dir)[0]


def test_a_refusal_for_good_is_told(run_dir: Path, receiver: Receiver, url: str) -> None:
    receiver.answers = [400]

    with pytest.raises(ConfigError, match="refuses traces"):
        push(run_dir, url)


class Breaking:
    """A collector that takes so many messages and then fails for good."""

    def __init__(self, takes: int) -> None:
        self.takes = takes
        self.messages: list[bytes] = []

    def send(self, signal: str, message: Any) -> None:
        if len(self.messages) == self.takes:
            raise Unavailable("down")
        self.messages.append(message.SerializeToString())


def test_sending_goes_on_after_any_batch(run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchgate.review.otlp.BATCH_BYTES", 2000)
    whole = Breaking(takes=10**6)
    push(run_dir, "http://whole", collector=whole)
    assert len(whole.messages) > 10

    got: list[bytes] = []
    while len(got) < len(whole.messages):
        part = Breaking(takes=3)
        with contextlib.suppress(ConfigError):
            push(run_dir, "http://part", collector=part, sleep=lambda _: None)
        assert part.messages
        got += part.messages

    assert got == whole.messages


def test_a_collector_is_known_without_its_password(run_dir: Path) -> None:
    push(run_dir, "http://user:secret@host", collector=Breaking(takes=10**6))

    assert "secret" not in (run_dir / "otlp.json").read_text()


def test_notes_of_another_ledger_are_not_believed(run_dir: Path) -> None:
    push(run_dir, "http://host", collector=Breaking(takes=10**6))
    notes = json.loads((run_dir / "otlp.json").read_text())
    notes["http://host"]["traces"][1] = "D999"
    (run_dir / "otlp.json").write_text(json.dumps(notes))

    with pytest.raises(ConfigError, match="delete it to send all again"):
        push(run_dir, "http://host", collector=Breaking(takes=10**6))


def test_notes_that_cannot_be_read_are_told(run_dir: Path) -> None:
    (run_dir / "otlp.json").write_text("{")

    with pytest.raises(ConfigError, match="cannot be read"):
        push(run_dir, "http://host", collector=Breaking(takes=0))


@pytest.mark.parametrize("url", ["collector:4318", "ftp://host", "http://"])
def test_a_url_that_is_none_is_told_with_one_that_is(run_dir: Path, url: str) -> None:
    with pytest.raises(ConfigError, match="http://localhost:4318"):
        push(run_dir, url)


def test_a_directory_without_a_ledger_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="holds no run"):
        push(tmp_path, "http://host")


def test_a_kind_that_is_not_taken_is_no_failure_of_the_other(run_dir: Path) -> None:
    class OnlyTraces(Breaking):
        def send(self, signal: str, message: Any) -> None:
            if signal == "logs":
                raise NotTaken
            super().send(signal, message)

    sent = push(run_dir, "http://host", collector=OnlyTraces(takes=10**6))

    assert (sent.not_taken, sent.logs) == (("logs",), 0)
    assert sent.traces > 0
