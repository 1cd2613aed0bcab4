"""Tables, OTLP files and OTLP collectors: what a run looks like elsewhere."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent import futures
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-untyped]
import pandas as pd
import pyarrow as pa
import pytest
from google.protobuf.json_format import ParseDict
from opentelemetry.proto.collector.logs.v1 import logs_service_pb2, logs_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2, trace_service_pb2_grpc
from opentelemetry.proto.logs.v1.logs_pb2 import LogsData
from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

from batchgate.errors import ConfigError, LedgerError
from batchgate.events import (
    AttemptStarted,
    CheckJudged,
    DecisionMade,
    DecisionOpened,
    Entry,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ResultAccepted,
)
from batchgate.job import End, JobState
from batchgate.ledger import Ledger
from batchgate.review.otlp import MAX_CHARS, batches, request_of
from batchgate.review.push import TRIES, NotTaken, Unavailable, push
from batchgate.review.record import RunRecord
from batchgate.review.rows import AttemptRow, DecisionRow
from batchgate.review.spans import units, write_json
from batchgate.review.tables import Run, open_run, write_csv, write_parquet
from tests.synthetic_run import EVIL, Script, hostile, kept, night, opened, started

# --- tables --------------------------------------------------------------------------------------

COLUMNS = {
    "attempts": "decision attempt started_at ended_at outcome rejected_by reasons proposal "
    "candidates model response_id temperature input_tokens output_tokens samples_valid "
    "samples_total answer_s trace_id span_id",
    "verdicts": "decision attempt check passed hard verifier reasons refused observables "
    "elapsed_s node_h",
    "decisions": "decision source opened_at closed_at disposition cause attempts candidates batch",
    "jobs": "job decision source fingerprint level attempt outcome planned_at started_at ended_at "
    "settled_at state end exit_code signal error host reserved_node_h charged_node_h walltime_s "
    "adopted again candidate.x1 candidate.x2",
    "results": "job decision source fingerprint settled_at valid feasible reasons charged_node_h "
    "candidate.x1 candidate.x2 value.residual value.y",
}


def planned(job: str, candidate: dict[str, Any]) -> JobPlanned:
    return JobPlanned(
        job=job,
        decision=1,
        fingerprint=job,
        candidate=candidate,
        level="fine",
        reserved_node_h=1,
        walltime_s=60,
    )


def side_by_side() -> list[Entry]:
    """Give two decisions at once, a check that is tried again, and a job that never started."""
    one, other = {"decision": 1, "attempt": 1}, {"decision": 2, "attempt": 1}
    script = Script().begin()
    script.add(DecisionOpened(decision=1), DecisionOpened(decision=2))
    script.add(AttemptStarted(**other), AttemptStarted(**one))
    for ask in (other, one):
        script.add(
            ProposalMade(**ask, proposal="none", elapsed_s=2),
            CheckJudged(**ask, check="disc", passed=True, elapsed_s=1),
            FailureRecorded(**ask, kind="verifier", what="timeout", message="", again=True),
        )
    script.add(
        planned("j1", {"x1": 1.0, "x2": 2.0}),
        JobEnded(job="j1", state=JobState.LOST, end=End.UNKNOWN),
        planned("j2", {"x1": 1.0, "x2": 3.0}),
        JobEnded(job="j2", state=JobState.COMPLETED, end=End.COMPLETED),
        ResultAccepted(
            job="j2", fingerprint="j2", values={"y": 1.5, "residual": 1e-5}, feasible=True
        ),
    )
    return script.entries


NIGHTS = [night(seed=seed, everything=True) for seed in range(1, 5)]
RUNS = [
    *NIGHTS,
    night(seed=5),
    side_by_side(),
    # Runs that still go on, or were killed: cut off anywhere.
    *(NIGHTS[cut % 4][: cut * 37] for cut in range(2, 9)),
]


def tables(entries: Iterable[Entry], *, bare: bool = False) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        return open_run(kept(entries, Path(folder), bare=bare))


def rows(record: RunRecord) -> dict[str, list[Any]]:
    return {
        "attempts": list(record.attempts),
        "verdicts": [check for attempt in record.attempts for check in attempt.checks],
        "decisions": list(record.decisions),
        "jobs": list(record.jobs),
        "results": [job for job in record.jobs if job.values is not None or job.reasons],
    }


def instant(at: float | None) -> pd.Timestamp | None:
    return pd.Timestamp(round(at * 1e6), unit="us", tz="UTC") if at else None


def canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


SHOWN: dict[str, Callable[[Any], Any]] = {
    "valid": lambda values: values is not None,
    "attempts": len,
    "candidates": len,
    "proposal": canonical,
    "observables": canonical,
    "rejected_by": "\n".join,
    "reasons": "\n".join,
    "refused": "\n".join,
}


def shown(row: Any, column: str) -> Any:
    """Say what a cell shows of a row."""
    prefix, _, name = column.partition(".")
    if (type(row), column) in {(AttemptRow, "attempt"), (DecisionRow, "decision")}:
        return row.number
    value = getattr(row, {"value": "values", "valid": "values"}.get(prefix, prefix))
    if name:
        return (value or {}).get(name)
    if column.endswith("_at"):
        return instant(value)
    return SHOWN[column](value) if column in SHOWN else value


@pytest.mark.parametrize(("entries", "bare"), [*((run, False) for run in RUNS), (NIGHTS[0], True)])
def test_tables_hold_what_the_rows_hold(entries: list[Entry], bare: bool) -> None:
    due = rows(RunRecord.of(entries))

    found = tables(entries, bare=bare)

    assert list(found.arrow) == list(COLUMNS)
    for name, frame in found.named().items():
        assert frame.columns.tolist() == COLUMNS[name].split()
        for column in frame:
            told = frame[column].astype(object).where(frame[column].notna(), None)
            assert told.tolist() == [shown(row, column) for row in due[name]], (name, column)


def test_a_hostile_proposal_is_text_in_a_cell_and_names_no_column() -> None:
    due = list(RunRecord.of(hostile()).attempts)

    found = tables(hostile()).attempts()

    assert found.columns.tolist() == COLUMNS["attempts"].split()
    assert [json.loads(text) for text in found["proposal"]] == [row.proposal for row in due]
    assert found["reasons"].tolist() == ["\n".join(row.reasons) for row in due]


@pytest.mark.parametrize("entries", [night(), []])
def test_columns_are_typed_also_in_an_empty_table(entries: list[Entry]) -> None:
    found = tables(entries)

    jobs, arrow = found.jobs(), found.arrow["jobs"].schema
    assert str(jobs["planned_at"].dtype) == "datetime64[us, UTC]"
    assert jobs["exit_code"].dtype == "Int64"
    assert jobs["charged_node_h"].dtype == "Float64"
    assert jobs["again"].dtype == "boolean"
    assert found.attempts()["model"].dtype == "string"
    assert arrow.field("planned_at").type == pa.timestamp("us", "UTC")
    assert arrow.field("exit_code").type == pa.int64()
    assert arrow.field("charged_node_h").type == pa.float64()
    assert arrow.field("again").type == pa.bool_()
    assert found.arrow["attempts"].schema.field("model").type == pa.string()


def test_frames_and_arrow_tables_hold_the_same() -> None:
    found = tables(night())

    for name, frame in found.named().items():
        pd.testing.assert_frame_equal(frame, getattr(found, name)())
        arrow = found.arrow[name]
        assert pa.Table.from_pandas(frame, arrow.schema, preserve_index=False).equals(arrow)


def test_a_candidate_is_typed_as_its_variable_is() -> None:
    variables = {
        "mass": {"domain": [0, 1e30]},
        "mesh": {"domain": [1, 9], "integer": True},
        "cells": {"values": [8, 16]},
        "gr": {"values": [True, False]},
        "order": {"values": [1, 2.5]},
        "solver": {"values": ["whfast", 3]},
    }
    candidate = {"mass": 10**20, "mesh": 4, "cells": 16, "gr": True, "order": 1, "solver": 3}
    script = Script().begin(variables=variables)
    script.add(DecisionOpened(decision=1), planned("j1", candidate), planned("j2", {}))

    found = tables(script.entries).jobs().filter(like="candidate.")

    assert found.columns.tolist() == [f"candidate.{name}" for name in variables]
    assert found.iloc[0].tolist() == [1e20, 4, 16, True, 1.0, "3"]
    assert found.iloc[1].isna().all()
    assert found.dtypes.map(str).tolist() == [
        *("Float64", "Int64", "Int64", "boolean", "Float64", "string")
    ]


def test_what_never_happened_is_missing_and_not_1970() -> None:
    script = Script().begin()
    lost = JobEnded(job="j2", state=JobState.LOST, end=End.UNKNOWN)
    script.add(DecisionOpened(decision=1), planned("j1", {}), planned("j2", {}), lost)

    jobs = tables(script.entries).jobs()

    assert jobs["started_at"].isna().all()
    assert jobs["settled_at"].isna().tolist() == [True, False]


def test_the_sample_that_was_taken_is_counted_and_its_verdicts_alone_reject() -> None:
    ask = {"decision": 1, "attempt": 1}
    point = {"x1": 1.0, "x2": 2.0}
    script = Script().begin()
    script.add(
        DecisionOpened(decision=1),
        AttemptStarted(**ask),
        ProposalMade(**ask, proposal={}, others=({"candidates": [point, point, "x"]},)),
        CheckJudged(**ask, check="disc", passed=False, reasons=("no candidate",)),
        CheckJudged(**ask, check="disc", passed=True, sample=2),
        DecisionMade(decision=1, disposition="accepted", sample=2),
    )

    (attempt,) = tables(script.entries).attempts().to_dict("records")

    assert (attempt["candidates"], attempt["outcome"], attempt["reasons"]) == (2, "accepted", "")


@pytest.mark.parametrize("evil", [EVIL, "nul \0 in it", "lone \ud800 surrogate", "\U0001f480 $x"])
def test_whatever_a_model_writes_fits_into_every_form(evil: str, tmp_path: Path) -> None:
    ask = {"decision": 1, "attempt": 1}
    script = Script().begin()
    script.add(
        DecisionOpened(decision=1),
        AttemptStarted(**ask),
        ProposalMade(**ask, proposal={evil: [evil, 10**30, 1e-7]}, model=evil),
        CheckJudged(**ask, check="disc", passed=False, reasons=(evil, evil)),
    )
    told = evil.replace("\ud800", "?")

    found = tables(script.entries)

    (attempt,) = found.attempts().to_dict("records")
    assert json.loads(attempt["proposal"]) == {told: [told, 10**30, 1e-7]}
    assert attempt["reasons"] == f"{told}\n{told}"
    assert attempt["model"] == told
    write_csv(found, tmp_path)
    write_parquet(found, tmp_path)
    assert pd.read_parquet(tmp_path / "attempts.parquet")["model"].tolist() == [told]


def test_files_hold_what_the_tables_hold(tmp_path: Path) -> None:
    found = tables(night())

    csv, parquet = write_csv(found, tmp_path / "c"), write_parquet(found, tmp_path / "p")

    assert [path.name for path in csv] == [f"{name}.csv" for name in COLUMNS]
    for path, (name, frame) in zip(parquet, found.named().items(), strict=True):
        assert path.name == f"{name}.parquet"
        pd.testing.assert_frame_equal(pd.read_parquet(path), frame)
    assert pd.read_csv(csv[3])["job"].tolist() == found.jobs()["job"].tolist()


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(ConfigError, match="cannot be written"):
        write_csv(tables([]), tmp_path / "file" / "x")


def test_a_directory_without_a_ledger_has_no_tables(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="holds no run"):
        open_run(tmp_path)


def test_a_ledger_that_lacks_lines_has_no_tables(tmp_path: Path) -> None:
    run = kept(night(), tmp_path)
    segment = run / "ledger" / "0001.jsonl"
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:-1]))

    with pytest.raises(LedgerError, match=r"has \d+ lines where \d+ are due"):
        open_run(run)


def test_a_campaign_of_another_version_has_no_tables() -> None:
    other = started().model_copy(update={"spec": {"campaign": {"name": "branin"}}})

    with pytest.raises(LedgerError, match=r"(?s)cannot read:.*variables: Field required"):
        tables(Script().add(opened(1), other).entries)


def test_a_missing_library_is_told_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = tables([])

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ConfigError, match=r"need pandas: pip install 'batchgate\[tables\]'"):
        found.jobs()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ConfigError, match=r"need pyarrow: pip install 'batchgate\[tables\]'"):
        tables([])


def test_a_summary_needs_neither_pandas_nor_pyarrow(tmp_path: Path) -> None:
    run = kept(night(decisions=9), tmp_path)
    code = (
        "import sys; sys.modules |= dict.fromkeys(['numpy', 'pandas', 'pyarrow']); "
        "from batchgate.cli import main; from batchgate.review import open_run; main()"
    )

    told = subprocess.run(
        [sys.executable, "-c", code, "summary", str(run)],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert told.returncode == 0, told.stderr
    assert "branin" in told.stdout


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
