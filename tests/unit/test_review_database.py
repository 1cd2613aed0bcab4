"""A run's ledger as a table: what is in it, whatever strangers wrote and wherever it lies."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest

from batchgate.errors import LedgerCorruptError, LedgerError
from batchgate.events import (
    EVENTS,
    FORMAT,
    AttemptStarted,
    CheckJudged,
    DecisionOpened,
    ProposalMade,
    RunResumed,
    SegmentClosed,
)
from batchgate.ledger import read, segments_of
from batchgate.review.database import Database, schema
from tests.synthetic_run import Script, kept, night, opened

ONE: dict[str, Any] = {"decision": 1, "attempt": 1}


def said(run_dir: Path, text: str) -> Path:
    """Write a run in which a model and a check say something."""
    script = Script().begin().add(
        DecisionOpened(decision=1),
        AttemptStarted(**ONE),
        ProposalMade(**ONE, proposal={"rationale": text}, model=text),
        CheckJudged(**ONE, check="disc", passed=False, reasons=(text, "far")),
        SegmentClosed(),
    )  # fmt: skip
    return kept(script.entries, run_dir)


def segment_of(run_dir: Path) -> Path:
    (path,) = segments_of(run_dir)
    return path


def types(run_dir: Path) -> list[str]:
    with Database.of(run_dir) as run:
        return [kind for (kind,) in run.rows("SELECT type FROM event ORDER BY seq")]


# --- the table -----------------------------------------------------------------------------------


def test_the_columns_are_the_fields_of_the_events() -> None:
    found = schema()

    assert found.keys() == {name for event in EVENTS for name in event.model_fields}
    assert {name: found[name] for name in ("type", "decision", "attempt", "passed")} == {
        "type": "VARCHAR",
        "decision": "BIGINT",
        "attempt": "BIGINT",
        "passed": "BOOLEAN",
    }
    # An enumeration, words of ours, an optional number, words of strangers, and free form.
    assert (found["state"], found["disposition"]) == ("VARCHAR", "VARCHAR")
    assert (found["score"], found["reasons"]) == ("DOUBLE", "VARCHAR[]")
    assert {found[name] for name in ("spec", "proposal", "candidates", "breaches")} == {"JSON"}


def test_every_event_of_every_kind_is_a_row(tmp_path: Path) -> None:
    entries = night(everything=True)
    run_dir = kept(entries, tmp_path / "run")

    with Database.of(run_dir, *schema().keys() - {"type"}) as run:
        rows = run.rows('SELECT seq, "at", type FROM event ORDER BY seq')

    assert rows == [(entry.seq, entry.at_ns, entry.event.type) for entry in entries]


def test_values_are_those_of_the_events(tmp_path: Path) -> None:
    run_dir = kept(night(everything=True), tmp_path / "run")
    verdicts = [e.event for e in read(run_dir / "ledger") if isinstance(e.event, CheckJudged)]

    with Database.of(run_dir, "check", "passed", "reasons", "observables", "node_h") as run:
        rows = run.rows(
            'SELECT "check", passed, reasons, observables, node_h FROM event '
            "WHERE type = 'check_judged' ORDER BY seq"
        )

    told = [
        (check, passed, tuple(reasons), tuple(json.loads(observables)), node_h)
        for check, passed, reasons, observables, node_h in rows
    ]
    assert told == [(v.check, v.passed, v.reasons, v.observables, v.node_h) for v in verdicts]
    assert any(v.observables for v in verdicts)


def test_a_column_is_null_where_an_event_has_no_such_field(tmp_path: Path) -> None:
    with Database.of(said(tmp_path / "run", ""), "passed") as run:
        assert run.row("SELECT count(*), count(passed) FROM event") == (7, 1)


def test_a_query_takes_parameters_and_can_be_kept_as_a_table(tmp_path: Path) -> None:
    with Database.of(said(tmp_path / "run", "'; DROP TABLE event"), "model") as run:
        run.make(
            "answer", "SELECT seq FROM event WHERE model = $model", model="'; DROP TABLE event"
        )
        assert run.row("SELECT * FROM answer") == (4,)


def test_what_cannot_be_counted_is_told(tmp_path: Path) -> None:
    with (
        Database.of(said(tmp_path / "run", "far"), "model") as run,
        pytest.raises(LedgerError, match="cannot be counted"),
    ):
        run.rows("SELECT model::BIGINT FROM event")


# --- text of strangers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\x00b", "a\x00b"),
        ("\U0001f600 \u202e \x1b[31m", "\U0001f600 \u202e \x1b[31m"),
        ('"type":"run_stopped"}\n{"seq":9}', '"type":"run_stopped"}\n{"seq":9}'),
        ("a\ud83db", "a?b"),
        ("\ude00\ud83d", "??"),
        ("\ud83d \U0001f600 \x00", "? \U0001f600 \x00"),
        ("\\ud83d", "\\ud83d"),
    ],
    ids=["NUL", "emoji", "line", "half", "swapped", "mixed", "escape"],
)
def test_text_comes_out_as_it_is_and_a_lone_surrogate_as_a_question_mark(
    tmp_path: Path, text: str, told: str
) -> None:
    run_dir = said(tmp_path / "run", text)

    with Database.of(run_dir, "model", "reasons", "proposal") as run:
        model, proposal = run.row("SELECT model, proposal FROM event WHERE type = 'proposal_made'")
        (reasons,) = run.row("SELECT reasons FROM event WHERE type = 'check_judged'")

    assert (model, reasons) == (told, [told, "far"])
    assert json.loads(proposal) == {"rationale": told}


def test_deep_json_is_read(tmp_path: Path) -> None:
    deep = json.loads("[" * 900 + "]" * 900)
    script = Script().begin().add(
        DecisionOpened(decision=1), AttemptStarted(**ONE), ProposalMade(**ONE, proposal=deep)
    )  # fmt: skip

    with Database.of(kept(script.entries, tmp_path / "run"), "proposal") as run:
        (proposal,) = run.row("SELECT proposal FROM event WHERE proposal IS NOT NULL")

    assert json.loads(proposal) == deep


# --- ledgers that are not whole ------------------------------------------------------------------


@pytest.mark.parametrize("lost", [1, 30, 200], ids=["newline", "hash", "half"])
def test_half_a_line_at_the_end_does_not_count(tmp_path: Path, lost: int) -> None:
    path = segment_of(said(tmp_path, "far"))
    whole = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(whole[:-1])[:-lost])

    assert types(tmp_path)[-1] == "proposal_made"


def test_half_a_line_at_the_end_of_a_life_that_was_killed_does_not_count(tmp_path: Path) -> None:
    script = Script().begin().add(opened(2), RunResumed(version="0.1.0"))
    kept(script.entries, tmp_path)
    with segments_of(tmp_path)[0].open("ab") as file:
        file.write(b'{"seq":2,"at":"17')

    assert types(tmp_path) == ["segment_opened", "run_started", "segment_opened", "run_resumed"]


@pytest.mark.parametrize("line", [1, 3, 5])
def test_a_missing_line_is_told(tmp_path: Path, line: int) -> None:
    path = segment_of(said(tmp_path, "far"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[: line - 1] + lines[line:]))

    with pytest.raises(LedgerError, match="has 6 lines where 7 are due"):
        types(tmp_path)


LINES_OF_NOTHING = [
    *(b'{"seq":', b"garbage", b"3", b"[1]", b'"\xff"'),
    *(b'{"seq":3,"at":"3"}', b'{"seq":3,"at":"3","type":"moon_landed"}', b'{"type":["check"]}'),
]


@pytest.mark.parametrize("line", LINES_OF_NOTHING)
def test_a_line_that_is_no_event_is_told_with_its_place(tmp_path: Path, line: bytes) -> None:
    path = segment_of(said(tmp_path, "a\ud83db"))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:3], line + b"\n", *lines[4:]]))

    with pytest.raises(LedgerCorruptError) as caught:
        types(tmp_path)

    assert (caught.value.path, caught.value.line_number) == (str(path), 4)


def test_a_ledger_of_a_newer_format_is_refused_as_the_reader_does(tmp_path: Path) -> None:
    path = segment_of(said(tmp_path, "far"))
    newer = b'"format":%d,' % (FORMAT + 1)
    path.write_bytes(path.read_bytes().replace(b'"format":%d,' % FORMAT, newer))

    with pytest.raises(LedgerError, match=f"has format {FORMAT + 1}, and this version reads up to"):
        types(tmp_path)


def test_a_field_that_changed_its_type_is_told(tmp_path: Path) -> None:
    path = segment_of(said(tmp_path, "far"))
    path.write_bytes(path.read_bytes().replace(b'"passed":false', b'"passed":"perhaps"'))

    with (
        pytest.raises(LedgerError, match=r"cannot be read: .*perhaps") as caught,
        Database.of(tmp_path, "passed"),
    ):
        pass

    assert tempfile.gettempdir() + "/batchgate-" not in str(caught.value)


@pytest.mark.parametrize("begun", [False, True], ids=["no segment", "empty segment"])
def test_a_ledger_that_is_empty_is_a_table_without_rows(tmp_path: Path, *, begun: bool) -> None:
    (tmp_path / "ledger").mkdir()
    if begun:
        (tmp_path / "ledger" / "0001.jsonl").touch()

    with Database.of(tmp_path, "decision", "reasons") as run:
        assert run.row("SELECT count(*), max(decision) FROM event") == (0, None)


def test_a_folder_without_a_ledger_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="holds no run"):
        types(tmp_path)


# --- places --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["a [1] run", "*", "r?n", "it's", 'a "b"', "{a,b}", "~", "$HOME", "a\\b", "s3:", "decision=7"],
)
def test_a_run_is_read_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    for other in ("a 1 run", "run", "ab", "a", "b"):
        said(tmp_path / other, "another run")
    said(tmp_path / name, "far")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "run"))

    for run_dir in (tmp_path / name, Path(name)):
        with Database.of(run_dir, "decision", "reasons") as run:
            found = run.rows("SELECT decision, reasons FROM event WHERE len(reasons) > 0")
        assert found == [(1, ["far", "far"])]


@pytest.mark.parametrize("text", ["far", "a\ud83db"], ids=["plain", "mended"])
def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    here, temporary = tmp_path / "here", tmp_path / "temporary"
    here.mkdir()
    temporary.mkdir()
    monkeypatch.chdir(here)
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    run_dir = said(tmp_path / "run", text)
    before = {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()}

    with Database.of(run_dir, "model") as run:
        run.make("answer", "SELECT * FROM event ORDER BY random()")

    assert [*here.iterdir(), *temporary.iterdir()] == []
    assert {path: path.read_bytes() for path in run_dir.rglob("*") if path.is_file()} == before
