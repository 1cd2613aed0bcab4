"""The events of gates, and the file they are kept in."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from batchgate.gate import Gate, GateEvent, JsonLines, read_events
from batchgate.gate.event import MAX_REASONS


@pytest.fixture
def path(tmp_path):
    return tmp_path / "gates.jsonl"


def started(**changes):
    return replace(GateEvent("review", "started", 1), **changes)


def test_an_event_has_the_documented_fields():
    # S3-11, S3-26, S3-27
    event = GateEvent("review", "failed", 2, 0.4, ["too short"])  # type: ignore[arg-type]

    assert (event.gate, event.phase, event.attempt, event.score) == ("review", "failed", 2, 0.4)
    assert event.reasons == ("too short",)
    assert (started().score, started().reasons) == (None, ())


def test_an_event_is_bounded():
    event = GateEvent("review", "failed", 1, math.nan, tuple("x" * 1000 for _ in range(100)))

    assert event.score is None
    assert len(event.reasons) == MAX_REASONS + 1
    assert max(map(len, event.reasons)) == 500
    assert event.reasons[-1] == "and 80 more reasons"


def test_a_line_is_strict_json_with_its_type_and_payload(path):
    # S3-28, S3-29, S3-31
    lines = JsonLines(path, clock=lambda: 12.5)

    lines(GateEvent("review", "failed", 2, math.inf, ("é \ud800",), visit=3, thread="t/1"))

    (line,) = path.read_bytes().splitlines()
    assert json.loads(line, parse_constant=pytest.fail) == {
        "at": 12.5,
        "thread": "t/1",
        "eventType": "GateEvent",
        "payload": {
            "gate": "review",
            "phase": "failed",
            "attempt": 2,
            "score": None,
            "reasons": [{"$s": "\\xe9 \\ud800"}],
            "visit": 3,
        },
    }
    assert read_events(path)[0].reasons == ("é \ud800",)


def test_the_file_is_private(path):
    # S3-30
    JsonLines(path)(started())

    assert oct(path.stat().st_mode & 0o777) == "0o600"


def test_a_sink_can_be_wrapped_to_leave_something_out(path):
    # S3-30
    lines = JsonLines(path)
    redacted = lambda event: lines(replace(event, reasons=()))  # noqa: E731

    redacted(GateEvent("review", "failed", 1, reasons=("secret",)))

    assert b"secret" not in path.read_bytes()


async def test_a_gate_writes_its_events(path):
    # S3-29, S3-32
    gate = Gate("review", lambda value: value > 1, max_attempts=2, on_event=JsonLines(path))
    for value in (0, 1, 2):
        await gate.decide(value)

    assert [(e.phase, e.attempt) for e in read_events(path)] == [
        ("started", 1),
        ("failed", 1),
        ("started", 2),
        ("escalated", 2),
        ("started", 3),
        ("passed", 3),
    ]


def test_an_event_that_was_told_twice_is_read_once(path):
    # S3-40, S3-41
    lines = JsonLines(path)
    for event in (
        started(),
        started(),
        GateEvent("review", "failed", 1),
        started(visit=2, attempt=2),
        GateEvent("review", "failed", 2, visit=2),
        started(visit=2, attempt=2),
        GateEvent("review", "passed", 2, visit=2),
        started(visit=3),
        started(thread="other"),
    ):
        lines(event)

    assert [(e.thread, e.visit, e.phase) for e in read_events(path)] == [
        ("", 1, "started"),
        ("", 1, "failed"),
        ("", 2, "started"),
        ("", 2, "passed"),
        ("", 3, "started"),
        ("other", 1, "started"),
    ]


def test_a_line_that_a_crash_cut_off_takes_no_other_with_it(path):
    lines = JsonLines(path)
    lines(started())
    with path.open("ab") as file:
        file.write(b'{"at": 1, "thr')

    lines(started(visit=2))

    assert [event.visit for event in read_events(path)] == [1, 2]


@pytest.mark.parametrize(
    "line", ["{}", "[1]", "3", "\0", '{"eventType": "Other"}', '{"eventType": "GateEvent"}',
             '{"eventType": "GateEvent", "thread": "", "payload": {"gate": "g", "no": 1}}']
)  # fmt: skip
def test_a_line_that_is_no_event_is_left_out(path, line):
    path.write_text(f"{line}\n")
    JsonLines(path)(started())

    assert read_events(path) == [started()]


def test_a_link_is_not_followed(path, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    path.symlink_to(elsewhere)

    with pytest.raises(OSError, match="symbolic"):
        JsonLines(path)(started())
    assert not elsewhere.exists()


async def test_a_file_that_cannot_be_written_changes_no_decision(tmp_path, caplog):
    # S3-33
    gate = Gate("review", lambda value: True, on_event=JsonLines(tmp_path / "no" / "folder"))

    assert (await gate.decide(1)).route == "pass"
    assert len(caplog.records) == 2


def test_no_descriptor_is_left_open(path):
    lines = JsonLines(path)
    lines(started())
    before = len(list(Path("/proc/self/fd").iterdir()))

    for visit in range(20):
        lines(started(visit=visit))

    assert len(list(Path("/proc/self/fd").iterdir())) == before
