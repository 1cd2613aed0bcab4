import shutil
from pathlib import Path

import pytest

from batchgate.errors import LedgerCorruptError, LedgerError
from batchgate.events import FORMAT, AttemptStarted, SegmentClosed, SegmentOpened
from batchgate.ledger import Ledger, Reader, read
from batchgate.ledger.line import encode, stored_hash


def write_life(folder, attempts, *, run="orbits-1"):
    """Write one segment: opened, attempts, closed."""
    with Ledger.open(folder, run=run) as ledger:
        for attempt in range(1, attempts + 1):
            ledger.append(AttemptStarted(decision=1, attempt=attempt))


@pytest.fixture
def folder(tmp_path):
    """Give a ledger of two segments with 4 and 3 lines."""
    folder = tmp_path / "ledger"
    write_life(folder, 2)
    write_life(folder, 1)
    return folder


def lines_of(folder, number):
    return (folder / f"{number:04d}.jsonl").read_bytes().splitlines(keepends=True)


def put_lines(folder, number, lines):
    (folder / f"{number:04d}.jsonl").write_bytes(b"".join(lines))


def corruption(folder, *, verify=True):
    with pytest.raises(LedgerCorruptError) as info:
        list(read(folder, verify=verify))
    return Path(info.value.path).name, info.value.line_number, str(info.value.args[0])


def test_all_segments_are_read_in_order(folder):
    entries = list(read(folder))

    assert [entry.seq for entry in entries] == list(range(7))
    assert [entry.event.type for entry in entries] == [
        *("segment_opened", "attempt_started", "attempt_started", "segment_closed"),
        *("segment_opened", "attempt_started", "segment_closed"),
    ]


def test_more_than_9999_segments_are_still_in_order(folder):
    names = [f"{number:04d}.jsonl" for number in (1, 2, 9999, 10000)]

    reader = Reader(folder)
    for name in names[2:]:
        (folder / name).touch()

    with pytest.raises(LedgerCorruptError, match=r"0003\.jsonl:1: the segment is missing"):
        list(reader)


def test_other_files_in_the_folder_do_not_matter(folder):
    (folder / "0003.jsonl.bak").write_text("x")
    (folder / "notes.txt").write_text("x")

    assert len(list(read(folder))) == 7


def test_a_folder_without_segments_has_no_entries(tmp_path):
    assert list(read(tmp_path)) == []


def test_a_folder_that_is_not_there_is_an_error(tmp_path):
    with pytest.raises(LedgerError, match="cannot be read"):
        list(read(tmp_path / "nothing"))


def test_a_reader_tells_where_it_stands(folder):
    reader = Reader(folder)
    seen = [(reader.where, reader.seq) for _ in reader]

    assert seen[0] == ("0001.jsonl:1", 1)
    assert seen[5] == ("0002.jsonl:2", 6)
    assert reader.run == "orbits-1"
    assert reader.hash.encode() == stored_hash(lines_of(folder, 2)[-1])


def test_a_reader_goes_on_where_it_stopped(tmp_path):
    folder = tmp_path / "ledger"
    reader = Reader(folder)
    with Ledger.open(folder, run="orbits-1") as ledger:
        first = [entry.event.type for entry in reader]
        ledger.append(AttemptStarted(decision=1, attempt=1))
        second = [entry.event.type for entry in reader]
        third = [entry.event.type for entry in reader]
    write_life(folder, 1)
    fourth = [entry.event.type for entry in reader]

    assert (first, second, third) == (["segment_opened"], ["attempt_started"], [])
    assert fourth == ["segment_closed", "segment_opened", "attempt_started", "segment_closed"]


def test_a_reader_that_was_left_goes_on_with_the_next_line(folder):
    reader = Reader(folder)
    for entry in reader:
        if entry.seq == 2:
            break

    assert [entry.seq for entry in reader] == [3, 4, 5, 6]


def test_a_line_that_is_being_written_is_read_once_it_is_whole(folder):
    whole = lines_of(folder, 2)
    put_lines(folder, 2, [*whole[:-1], whole[-1][:40]])
    reader = Reader(folder)

    before = len(list(reader))
    put_lines(folder, 2, whole)
    after = len(list(reader))

    assert (before, after) == (6, 1)


def test_a_torn_tail_of_an_earlier_segment_is_passed_over(tmp_path):
    folder = tmp_path / "ledger"
    write_life(folder, 2)
    put_lines(folder, 1, [*lines_of(folder, 1)[:-1], b'{"seq":3,"at":"17'])
    write_life(folder, 1)

    assert [entry.seq for entry in read(folder)] == list(range(6))


def test_a_segment_without_a_whole_line_is_passed_over(tmp_path):
    folder = tmp_path / "ledger"
    write_life(folder, 1)
    put_lines(folder, 2, [b'{"seq":3,"at'])
    write_life(folder, 1)
    put_lines(folder, 4, [])
    write_life(folder, 1)

    entries = list(read(folder))

    assert [entry.seq for entry in entries] == list(range(9))
    opened = [entry.event for entry in entries if isinstance(entry.event, SegmentOpened)]
    assert [event.previous for event in opened] == ["", "0002.jsonl", "0004.jsonl"]


@pytest.mark.parametrize("verify", [True, False])
def test_half_a_line_elsewhere_is_corruption(folder, verify):
    lines = lines_of(folder, 1)
    put_lines(folder, 1, [lines[0], lines[1][:50] + b"\n", *lines[2:]])

    name, number, message = corruption(folder, verify=verify)

    assert (name, number) == ("0001.jsonl", 2)
    assert message.startswith(("the line was changed", "the line is no event"))


@pytest.mark.parametrize("verify", [True, False])
def test_half_a_line_with_the_next_one_glued_to_it_is_corruption(folder, verify):
    lines = lines_of(folder, 1)
    put_lines(folder, 1, [lines[0], lines[1][:5] + lines[2], lines[3]])

    name, number, message = corruption(folder, verify=verify)

    assert (name, number) == ("0001.jsonl", 2)
    assert message == "this is no line of a ledger: half a line, or it was changed"


def test_a_changed_line_is_named(folder):
    lines = lines_of(folder, 1)
    put_lines(folder, 1, [*lines[:2], lines[2].replace(b'"attempt":2', b'"attempt":3'), lines[3]])

    assert corruption(folder) == ("0001.jsonl", 3, "the line was changed: its hash does not fit")


def test_a_dropped_line_is_named(folder):
    lines = lines_of(folder, 1)
    put_lines(folder, 1, [lines[0], *lines[2:]])

    name, number, message = corruption(folder, verify=False)

    assert (name, number) == ("0001.jsonl", 2)
    assert message.startswith("seq is 2 where 1 is due: lines are missing")


def test_a_doubled_line_is_named(folder):
    lines = lines_of(folder, 1)
    put_lines(folder, 1, [*lines[:2], lines[1], *lines[2:]])

    name, number, message = corruption(folder, verify=False)

    assert (name, number) == ("0001.jsonl", 3)
    assert message.startswith("seq is 1 where 2 is due: a line stands here twice")


def test_swapped_lines_are_named(folder):
    lines = lines_of(folder, 1)
    put_lines(folder, 1, [lines[0], lines[2], lines[1], lines[3]])

    name, number, message = corruption(folder)

    assert (name, number) == ("0001.jsonl", 2)
    assert "swapped" in message


@pytest.mark.parametrize("verify", [True, False])
def test_lines_cut_off_an_earlier_segment_are_named(folder, verify):
    put_lines(folder, 1, lines_of(folder, 1)[:2])

    name, number, message = corruption(folder, verify=verify)

    assert (name, number) == ("0002.jsonl", 1)
    assert message.endswith("lines were cut off or changed")


def test_an_emptied_segment_is_named(folder):
    put_lines(folder, 1, [])

    name, number, message = corruption(folder)

    assert (name, number) == ("0002.jsonl", 1)
    assert "cut off" in message


def test_a_missing_segment_is_named(folder):
    write_life(folder, 1)
    (folder / "0002.jsonl").unlink()

    assert corruption(folder) == ("0002.jsonl", 1, "the segment is missing")


@pytest.mark.parametrize("verify", [True, False])
def test_lines_that_an_old_writer_added_later_are_named(folder, verify):
    lines = lines_of(folder, 1)
    late = encode(SegmentClosed(), seq=4, at_ns=0, previous=stored_hash(lines[-1]))
    put_lines(folder, 1, [*lines, late])

    name, number, message = corruption(folder, verify=verify)

    assert (name, number) == ("0001.jsonl", 5)
    assert message.startswith("lines were added here after 0002.jsonl was opened")


def test_lines_that_an_old_writer_added_to_its_torn_segment_are_named(tmp_path):
    folder = tmp_path / "ledger"
    write_life(folder, 1)
    lost = lines_of(folder, 1)
    (folder / "0001.jsonl").write_bytes(lost[0][:30])
    write_life(folder, 1)
    put_lines(folder, 1, lost)

    name, number, message = corruption(folder)

    assert (name, number) == ("0001.jsonl", 1)
    assert message.startswith("lines were added here")


def test_renamed_segments_are_named(folder):
    (folder / "0001.jsonl").rename(folder / "x")
    (folder / "0002.jsonl").rename(folder / "0001.jsonl")
    (folder / "x").rename(folder / "0002.jsonl")

    name, number, message = corruption(folder)

    assert (name, number) == ("0001.jsonl", 1)
    assert message.startswith("the file says that it is segment 2 and follows '0001.jsonl'")


def opening(**changes):
    fields = {"run": "orbits-1", "segment": 1, "host": "n001", "pid": 1}
    event = SegmentOpened(**{**fields, **changes})
    return encode(event, seq=0, at_ns=0, previous=event.previous_hash.encode())


def test_a_segment_of_another_run_is_named(tmp_path):
    first = opening()
    digest = stored_hash(first).decode()
    event = SegmentOpened(
        run="orbits-2", segment=2, previous="0001.jsonl", previous_hash=digest, host="n", pid=1
    )
    put_lines(tmp_path, 1, [first])
    put_lines(tmp_path, 2, [encode(event, seq=1, at_ns=0, previous=digest.encode())])

    name, number, message = corruption(tmp_path)

    assert (name, number) == ("0002.jsonl", 1)
    assert message == "the segment is of run 'orbits-2', not 'orbits-1'"


def test_a_first_segment_that_claims_an_earlier_line_is_corruption(tmp_path):
    put_lines(tmp_path, 1, [opening(previous_hash="ab" * 32)])

    name, number, message = corruption(tmp_path)

    assert (name, number) == ("0001.jsonl", 1)
    assert message.startswith("goes on from a line that no segment before holds")


@pytest.mark.parametrize("line", [b"\n", b"[]\n", b"[" * 5000 + b"\n", b"\xff\n"])
def test_a_segment_that_begins_with_anything_else_is_corruption(tmp_path, line):
    put_lines(tmp_path, 1, [line])

    message = "the first line of a segment is no segment_opened"
    assert corruption(tmp_path) == ("0001.jsonl", 1, message)


def test_a_segment_that_begins_with_another_event_is_corruption(tmp_path):
    put_lines(tmp_path, 1, [encode(SegmentClosed(), seq=0, at_ns=0, previous=b"")])

    message = "the first line of a segment is no segment_opened"
    assert corruption(tmp_path) == ("0001.jsonl", 1, message)


def test_a_changed_first_line_is_not_taken_for_a_change_elsewhere(folder):
    lines = lines_of(folder, 2)
    flipped = lines[0].replace(b'"previous_hash":"', b'"previous_hash":"0', 1)
    put_lines(folder, 2, [flipped, *lines[1:]])

    assert corruption(folder) == ("0002.jsonl", 1, "the line was changed: its hash does not fit")


@pytest.mark.parametrize("version", [FORMAT + 1, 0])
def test_an_unknown_format_is_told_from_damage(tmp_path, version):
    put_lines(tmp_path, 1, [opening(format=version)])

    with pytest.raises(
        LedgerError, match=f"has format {version}, and this version reads up to {FORMAT}"
    ):
        list(read(tmp_path))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"type": "omen_seen"}, "omen_seen"),
        ({"attempt": "many"}, "attempt"),
        ({"more": 1}, "more"),
    ],
)
def test_an_event_that_this_version_does_not_know_is_named(tmp_path, change, why):
    first = opening()
    event = AttemptStarted(decision=1, attempt=1)
    fields = {**event.model_dump(), **change}

    class Stranger:
        def model_dump(self, **_):
            return fields

    strange = encode(Stranger(), seq=1, at_ns=0, previous=stored_hash(first))  # type: ignore[arg-type]
    put_lines(tmp_path, 1, [first, strange])

    name, number, message = corruption(tmp_path)

    assert (name, number) == ("0001.jsonl", 2)
    assert message.startswith("the line is no event that this version knows: ")
    assert why in message


def test_without_verification_a_change_inside_a_line_is_not_looked_for(folder):
    lines = lines_of(folder, 1)
    put_lines(folder, 1, [*lines[:2], lines[2].replace(b'"attempt":2', b'"attempt":3'), lines[3]])

    assert len(list(read(folder, verify=False))) == 7


def test_corruption_is_told_again_and_nothing_is_skipped(folder):
    lines = lines_of(folder, 1)
    put_lines(folder, 1, [lines[0], *lines[2:]])
    reader = Reader(folder)

    for _ in range(2):
        with pytest.raises(LedgerCorruptError, match="lines are missing"):
            list(reader)

    put_lines(folder, 1, lines)
    assert len(list(reader)) == 6


def test_reading_changes_nothing(folder, tmp_path):
    shutil.copytree(folder, tmp_path / "copy")

    list(read(folder))

    for path in folder.iterdir():
        assert path.read_bytes() == (tmp_path / "copy" / path.name).read_bytes()
