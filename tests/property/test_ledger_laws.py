import asyncio
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgate.errors import LedgerCorruptError, LedgerError
from batchgate.events import (
    AttemptStarted,
    Chosen,
    DecisionMade,
    FailureRecorded,
    JobEnded,
    ProposalMade,
    ResultAccepted,
    RunSuspended,
)
from batchgate.job import End, JobState
from batchgate.ledger import Ledger, Reader, check_run, read

NUMBERS = st.integers(0, 10**6)
FINITE = st.floats(allow_nan=False, allow_infinity=False)
# Lone surrogates too, but no pair of them, which is a character written in two halves.
TEXT = st.text(st.characters(), max_size=20).map(
    lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | FINITE | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
CHOSEN = st.builds(
    Chosen,
    fingerprint=TEXT,
    candidate=st.dictionaries(TEXT, FINITE | st.integers() | TEXT | st.booleans(), max_size=4),
)
EVENTS = st.one_of(
    st.builds(AttemptStarted, decision=NUMBERS, attempt=NUMBERS, trace_id=TEXT),
    st.builds(ProposalMade, decision=NUMBERS, attempt=NUMBERS, proposal=JSON, temperature=FINITE),
    st.builds(FailureRecorded, kind=st.just("check"), what=TEXT, message=TEXT),
    st.builds(
        DecisionMade,
        decision=NUMBERS,
        disposition=st.sampled_from(["accepted", "fallback"]),
        candidates=st.lists(CHOSEN, max_size=3).map(tuple),
    ),
    st.builds(
        JobEnded,
        job=TEXT,
        state=st.sampled_from(JobState),
        end=st.sampled_from(End),
        charged_node_h=FINITE,
    ),
    st.builds(
        ResultAccepted,
        job=TEXT,
        fingerprint=TEXT,
        values=st.dictionaries(TEXT, FINITE, max_size=4),
        feasible=st.booleans(),
    ),
)


@contextmanager
def run_dir():
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def open_ledger(run, **options):
    return Ledger.open(run / "ledger", **{"run": "r", "sync": lambda fd: None, **options})


@pytest.fixture(scope="module")
def segments():
    """Give the bytes of two segments of 5 lines."""
    with run_dir() as run:
        for life in (1, 2):
            with open_ledger(run) as ledger:
                for attempt in range(3):
                    ledger.append(AttemptStarted(decision=life, attempt=attempt))
        return [(run / "ledger" / f"{life:04d}.jsonl").read_bytes() for life in (1, 2)]


@pytest.fixture(scope="module")
def seqs_of(tmp_path_factory):
    """Give a function that reads segments: the seqs, up to an error, and the error."""
    folder = tmp_path_factory.mktemp("ledger")

    def seqs(segments):
        for number, content in enumerate(segments, start=1):
            path = folder / f"{number:04d}.jsonl"
            path.unlink(missing_ok=True)  # ext4 flushes a file that is cut and written anew
            path.write_bytes(content)
        found: list[int] = []
        try:
            found.extend(entry.seq for entry in read(folder))
        except LedgerError as error:
            return found, error
        return found, None

    return seqs


def whole_lines(content):
    return content.count(b"\n")


def test_the_last_segment_cut_at_any_byte_reads_up_to_its_last_whole_line(segments, seqs_of):
    first, last = segments
    for cut in range(len(last) + 1):
        found, error = seqs_of([first, last[:cut]])

        assert error is None
        assert found == list(range(5 + whole_lines(last[:cut])))


def test_an_earlier_segment_cut_at_any_byte_is_corruption(segments, seqs_of):
    first, last = segments
    for cut in range(len(first)):
        found, error = seqs_of([first[:cut], last])

        assert isinstance(error, LedgerCorruptError)
        assert found == list(range(whole_lines(first[:cut])))
        assert (Path(error.path).name, error.line_number) == ("0002.jsonl", 1)


def test_a_flip_of_any_byte_is_found(segments, seqs_of):
    content = b"".join(segments)
    border = len(segments[0])
    for at in range(len(content) - 1):
        flipped = bytearray(content)
        flipped[at] ^= (0x01, 0x20, 0x80)[at % 3]

        found, error = seqs_of([bytes(flipped[:border]), bytes(flipped[border:])])

        assert error is not None, at
        # Never a line that was changed; and all lines before it.
        assert found == list(range(whole_lines(content[:at])))


@pytest.mark.parametrize("mask", [0x01, 0x20, 0x80])
def test_a_flip_of_the_very_last_newline_makes_a_torn_tail(segments, seqs_of, mask):
    first, last = segments
    flipped = last[:-1] + bytes([last[-1] ^ mask])

    assert seqs_of([first, flipped]) == (list(range(9)), None)


def test_any_line_taken_out_is_found_but_the_very_last(segments, seqs_of):
    for segment, line in [(segment, line) for segment in (0, 1) for line in range(5)]:
        damaged = [content.splitlines(keepends=True) for content in segments]
        del damaged[segment][line]

        found, error = seqs_of([b"".join(lines) for lines in damaged])

        if (segment, line) == (1, 4):
            assert (found, error) == (list(range(9)), None)
        else:
            assert isinstance(error, LedgerCorruptError)
            assert found == list(range(5 * segment + line))


@given(data=st.data())
@settings(deadline=None)
def test_any_line_put_in_again_is_found(segments, seqs_of, data):
    damaged = [content.splitlines(keepends=True) for content in segments]
    line = data.draw(st.sampled_from(damaged[0] + damaged[1]))
    segment = data.draw(st.integers(0, 1))
    damaged[segment].insert(data.draw(st.integers(0, 5)), line)

    _, error = seqs_of([b"".join(lines) for lines in damaged])

    assert isinstance(error, LedgerCorruptError)


@given(data=st.data())
@settings(deadline=None)
def test_any_two_lines_swapped_are_found(segments, seqs_of, data):
    lines = [line for content in segments for line in content.splitlines(keepends=True)]
    one, other = data.draw(st.lists(st.integers(0, 9), min_size=2, max_size=2, unique=True))
    lines[one], lines[other] = lines[other], lines[one]

    found, error = seqs_of([b"".join(lines[:5]), b"".join(lines[5:])])

    assert isinstance(error, LedgerCorruptError)
    assert found == list(range(min(one, other)))


@given(cuts=st.lists(st.integers(0, 10_000), max_size=6))
@settings(deadline=None)
def test_a_reader_that_looks_in_often_reads_what_one_reads_that_looks_once(segments, cuts):
    content = b"".join(segments)
    border = len(segments[0])
    with run_dir() as folder:
        reader = Reader(folder)
        found: list[int] = []
        for cut in [*sorted(min(cut, len(content)) for cut in cuts), len(content)]:
            (folder / "0001.jsonl").write_bytes(content[:border][:cut])
            if cut > border:
                (folder / "0002.jsonl").write_bytes(content[border:cut])
            found += [entry.seq for entry in reader]

    assert found == list(range(10))


@given(lives=st.lists(st.lists(EVENTS, max_size=5), min_size=1, max_size=3))
@settings(deadline=None, max_examples=50)
def test_whatever_is_appended_is_read_again(lives):
    with run_dir() as run:
        written = []
        for events in lives:
            with open_ledger(run) as ledger:
                written += [ledger.append(event).entry for event in events]
        entries = list(read(run / "ledger"))
        unverified = list(read(run / "ledger", verify=False))

    events = [event for life in lives for event in life]
    assert [repr(entry.event) for entry in written] == [repr(event) for event in events]
    assert [e for e in entries if not e.event.type.startswith("segment_")] == written
    assert unverified == entries


@given(plan=st.lists(st.lists(st.integers(0, 3), max_size=4), min_size=1, max_size=8))
@settings(deadline=None, max_examples=50)
def test_a_commit_covers_all_that_was_appended_before_it(plan):
    synced = 0
    syncs = 0

    def sync(fd):
        nonlocal synced, syncs
        synced, syncs = os.fstat(fd).st_size, syncs + 1

    async def work(ledger, counts):
        for count in counts:
            for _ in range(count):
                ledger.append(RunSuspended(reason="x"))
                await asyncio.sleep(0)
            size = ledger.path.stat().st_size
            await ledger.commit()
            assert synced >= size

    async def all_of_it():
        await asyncio.gather(*(work(ledger, counts) for counts in plan))

    with run_dir() as run, open_ledger(run, sync=sync) as ledger:
        asyncio.run(all_of_it())
        assert syncs <= 1 + sum(map(len, plan))


@given(data=st.data())
@settings(deadline=None)
def test_checking_a_run_never_raises_and_finds_any_changed_byte(segments, data):
    content = bytearray(data.draw(st.sampled_from(segments)))
    number = 1 + segments.index(bytes(content))
    at = data.draw(st.integers(0, len(content) - 2))
    content[at] ^= data.draw(st.integers(1, 255))

    with run_dir() as run:
        (run / "ledger").mkdir()
        for life, whole in enumerate(segments, start=1):
            (run / "ledger" / f"{life:04d}.jsonl").write_bytes(content if life == number else whole)
        findings = check_run(run)

    assert [finding.kind for finding in findings if finding.kind == "chain"] == ["chain"]
