import hashlib
import json
import math

import pytest
from pydantic import ValidationError

from batchgate.events import (
    AttemptStarted,
    FailureRecorded,
    JobEnded,
    ProposalMade,
    ResultAccepted,
    SegmentClosed,
)
from batchgate.job import End, JobState
from batchgate.ledger.line import decode, encode, follows, stored_hash


def line_of(event, *, seq=5, at_ns=1_760_000_000_000_000_000, previous=b""):
    return encode(event, seq=seq, at_ns=at_ns, previous=previous)


def test_a_line_is_as_documented():
    line = line_of(AttemptStarted(decision=3, attempt=2), previous=b"ab")

    text = (
        b'{"seq":5,"at":"1760000000000000000","type":"attempt_started",'
        b'"decision":3,"attempt":2,"trace_id":"","span_id":""'
    )
    digest = hashlib.sha256(b"ab" + text).hexdigest()
    assert line == text + f',"~":"{digest}"}}\n'.encode()


def test_a_line_is_strict_json_in_ascii():
    line = line_of(FailureRecorded(kind="check", what="é\n", message="\u2028 \U0001f600 \x00"))

    assert line.isascii()
    assert line.count(b"\n") == 1
    assert json.loads(line)["message"] == "\u2028 \U0001f600 \x00"


def test_a_line_gives_back_its_event_place_and_time():
    event = JobEnded(job="a-1", state=JobState.FAILED, end=End.SIGNAL, signal=9)

    entry = decode(line_of(event, seq=7, at_ns=12))

    assert (entry.seq, entry.at_ns, entry.event) == (7, 12, event)


@pytest.mark.parametrize(
    "value",
    [0.1, -0.0, 1e16, 5e-324, 2**80, -(2**53) - 1, True, None, "", {"$f": "nan"}, [[], {}], "~"],
)
def test_plain_values_come_back_with_their_types(value):
    entry = decode(line_of(ProposalMade(decision=1, attempt=1, proposal=value)))

    assert isinstance(entry.event, ProposalMade)
    assert repr(entry.event.proposal) == repr(value)


def test_lone_surrogates_survive():
    event = FailureRecorded(kind="check", what="stderr", message="caf\udce9 \ud800")

    assert decode(line_of(event)).event == event


def test_nesting_that_pydantic_cannot_parse_survives():
    deep: list[object] = []
    for _ in range(300):
        deep = [deep]

    entry = decode(line_of(ProposalMade(decision=1, attempt=1, proposal=deep)))

    assert isinstance(entry.event, ProposalMade)
    assert entry.event.proposal == deep


@pytest.mark.parametrize("value", [math.nan, math.inf, {"a": [-math.inf]}])
def test_a_non_finite_float_is_refused(value):
    with pytest.raises(ValueError, match="not JSON compliant"):
        line_of(ProposalMade(decision=1, attempt=1, proposal=value))


def test_what_is_not_plain_is_refused():
    with pytest.raises(TypeError, match="not JSON serializable"):
        line_of(ProposalMade(decision=1, attempt=1, proposal=object()))


def test_an_event_that_its_own_model_refuses_is_refused():
    event = AttemptStarted.model_construct(decision="three")  # type: ignore[call-arg, arg-type]

    with pytest.raises(ValueError, match="Expected `int`"):
        line_of(event)


@pytest.mark.parametrize("line", [b"\n", b"{}\n", b"half a line", b"\xff" * 200 + b"\n"])
def test_what_is_no_line_is_refused(line):
    with pytest.raises(ValueError, match=r"Expecting|decode"):
        decode(line)


def test_an_unknown_event_is_refused():
    line = line_of(SegmentClosed()).replace(b"segment_closed", b"segment_sealed")

    with pytest.raises(ValidationError, match="segment_sealed"):
        decode(line)


def test_a_line_follows_only_the_hash_it_was_made_with():
    line = line_of(ResultAccepted(job="a", fingerprint="f", values={}, feasible=True))
    successor = line_of(SegmentClosed(), previous=stored_hash(line))

    assert follows(line, b"")
    assert follows(successor, stored_hash(line))
    assert not follows(successor, b"")
    assert not follows(b"", b"")
