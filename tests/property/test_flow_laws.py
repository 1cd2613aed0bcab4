import json
import math
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from batchgate import plain
from batchgate.flow.entry import write_result
from batchgate.flow.function import as_plain
from batchgate.flow.output import ERROR_CHARS, TAIL_BYTES, BoundedLog, one_line

TEXTS = st.text(st.characters())
DATA = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5),
    max_leaves=20,
)


def same(left, right):
    """Compare as data: NaN equals NaN, and -0.0 is not 0.0."""
    return repr(left) == repr(right)


@settings(deadline=None)
@given(
    head=st.integers(0, 100),
    chunks=st.lists(st.binary(max_size=40) | st.just(b"-" * TAIL_BYTES), max_size=10),
)
def test_a_log_has_head_and_tail_of_all_that_was_written_and_nothing_else(head, chunks):
    whole = b"".join(chunks)
    with tempfile.TemporaryDirectory() as folder:
        log = BoundedLog(Path(folder, "log"), head_bytes=head)
        for chunk in chunks:
            log.write(chunk)
        log.close()
        kept = Path(folder, "log").read_bytes()

    if len(whole) <= head:
        assert kept == whole
    else:
        tail = whole[head:][-TAIL_BYTES:]
        left_out = len(whole) - head - len(tail)
        assert kept == whole[:head] + b"\n[%d bytes left out]\n" % left_out + tail


@settings(deadline=None)
@given(TEXTS)
def test_one_line_is_printable_bounded_and_settled(text):
    line = one_line(text)

    assert line.isprintable()
    assert line == line.strip()
    assert len(line) <= ERROR_CHARS
    assert one_line(line) == line


@settings(deadline=None)
@given(DATA)
def test_data_crosses_the_workers_socket_unchanged_on_one_line(value):
    line = json.dumps(value, default=as_plain)

    assert "\n" not in line
    assert same(json.loads(line), value)


@settings(deadline=None)
@given(st.dictionaries(TEXTS, st.floats() | st.integers(-(2**53), 2**53) | TEXTS))
def test_a_result_file_gives_back_what_the_function_returned(observables):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "result.json")
        write_result(path, observables)
        text = path.read_text()

    json.loads(text, parse_constant=lambda name: math.nan / 0)
    assert same(plain.loads(text), observables)
