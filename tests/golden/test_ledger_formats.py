"""Ledgers that earlier versions wrote. They must read for ever; see README.md beside this file."""

import json
import shutil
from pathlib import Path
from typing import Any, get_args

import pytest

from batchgate.errors import LedgerError
from batchgate.events import (
    FORMAT,
    AllocationSeen,
    AttemptStarted,
    BrokenBound,
    CandidateHeld,
    CheckJudged,
    Chosen,
    DecisionMade,
    DecisionOpened,
    DecisionParked,
    Event,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ParkedResolved,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultParked,
    ResultRejected,
    RunResumed,
    RunStarted,
    RunStopped,
    RunSuspended,
    SegmentClosed,
    SegmentOpened,
    ServerStarted,
    ServerStopped,
    SurrogateAsked,
)
from batchgate.job import End, JobState
from batchgate.ledger import Ledger, check_run, read
from batchgate.ledger.line import encode, stored_hash

GOLDEN = Path(__file__).parent
F1, F2, F3 = "1f" * 32, "2f" * 32, "3f" * 32
C1, C2, C3 = {"a": 5.25, "e": 0.1}, {"a": 9.0, "e": 0.4}, {"n": 3, "solver": "whfast", "gr": True}


def opened(segment: int, previous_hash: str) -> SegmentOpened:
    return SegmentOpened(
        format=1,
        run="orbits-3f2a",
        segment=segment,
        previous=f"{segment - 1:04d}.jsonl" if segment > 1 else "",
        previous_hash=previous_hash,
        host=f"n{segment:03d}",
        pid=4240 + segment,
        process_started="199419",
        boot="a947e11a-9b85-4db5-ad14-61cf93cf20a3",
        monotonic_ns="1994555579517",
        slurm={"job_id": "98123", "restart_count": str(segment - 1), "cluster_name": "big"},
    )


FIRST_LIFE: tuple[Event, ...] = (
    RunStarted(
        campaign="orbits",
        digest="d" * 64,
        spec={"campaign": {"name": "orbits"}, "stop": {"node_h": 20.0}},
        version="0.1.0",
        seed=7,
        granted_node_h=20.0,
        slots=2,
        producer="vllm",
        settings={"partition": "normal"},
    ),
    ServerStarted(model="Qwen/Qwen3-4B-Instruct", elapsed_s=92.5),
    DecisionOpened(decision=1),
    AttemptStarted(decision=1, attempt=1, trace_id="4b" * 16, span_id="00f067aa0ba902b7"),
    ProposalRejected(
        decision=1,
        attempt=1,
        stage="schema",
        reasons=("candidates.0.a: Input should be less than or equal to 10",),
        value={"$s": "a\\ud800"},
        elapsed_s=1.5,
    ),
    AttemptStarted(decision=1, attempt=2),
    ProposalMade(
        decision=1,
        attempt=2,
        proposal={
            "rationale": "inner é\u2028\U0001fa90",
            "candidates": [C1, C2],
            "f": {"$f": "nan"},
        },
        response_id="chatcmpl-1.2",
        model="Qwen/Qwen3-4B-Instruct",
        temperature=0.7,
        input_tokens=900,
        output_tokens=120,
        samples_valid=3,
        samples_total=4,
        elapsed_s=2.25,
    ),
    CheckJudged(decision=1, attempt=2, check="space", passed=True, elapsed_s=0.0001),
    CheckJudged(
        decision=1, attempt=2, check="margin", passed=False, hard=False, reasons=("a is near 10",)
    ),
    CheckJudged(
        decision=1,
        attempt=2,
        check="stability",
        passed=True,
        score=0.875,
        verifier=True,
        observables=({"chi": 0.1}, {"chi": {"$f": "inf"}}),
        elapsed_s=12.0,
        node_h=0.25,
    ),
    DecisionMade(
        decision=1,
        disposition="accepted",
        attempts=2,
        candidates=(Chosen(fingerprint=F1, candidate=C1), Chosen(fingerprint=F2, candidate=C2)),
    ),
    JobPlanned(
        job="d00001-1f1f1f1f-1",
        decision=1,
        fingerprint=F1,
        candidate=C1,
        level="fine",
        reserved_node_h=2.0,
        walltime_s=7200.0,
    ),
    JobPlanned(
        job="d00001-2f2f2f2f-1",
        decision=1,
        fingerprint=F2,
        candidate=C2,
        level="fine",
        reserved_node_h=2.0,
        walltime_s=7200.0,
    ),
    JobEnded(
        job="d00001-1f1f1f1f-1",
        state=JobState.COMPLETED,
        end=End.COMPLETED,
        exit_code=0,
        started_at=1760000100.5,
        ended_at=1760003700.5,
        host="n001",
        charged_node_h=1.0,
    ),
    ResultAccepted(
        job="d00001-1f1f1f1f-1", fingerprint=F1, values={"energy": -1e-16}, feasible=True
    ),
    FailureRecorded(
        kind="verifier",
        what="worker_lost",
        message="caf\udce9 \ud800",
        decision=2,
        attempt=1,
        again=True,
    ),
)

THIRD_LIFE: tuple[Event, ...] = (
    RunResumed(version="0.1.0", slots=2, producer="vllm", digest="e" * 64, spec={"stop": 40}),
    JobEnded(
        job="d00001-2f2f2f2f-1",
        state=JobState.LOST,
        end=End.UNKNOWN,
        error="its runner died, and it left no result",
        charged_node_h=0.5,
        again=True,
    ),
    JobPlanned(
        job="d00001-2f2f2f2f-2",
        decision=1,
        fingerprint=F2,
        candidate=C2,
        level="fine",
        attempt=2,
        reserved_node_h=2.0,
        walltime_s=7200.0,
    ),
    JobEnded(
        job="d00001-2f2f2f2f-2",
        state=JobState.FAILED,
        end=End.SIGNAL,
        signal=9,
        error="killed",
        started_at=1760009000.0,
        ended_at=1760009360.0,
        host="n003",
        charged_node_h=0.1,
        adopted=True,
    ),
    ResultRejected(
        job="d00001-2f2f2f2f-2", fingerprint=F2, reasons=("energy is missing",), values={"x": []}
    ),
    DecisionOpened(decision=2, source="surrogate"),
    SurrogateAsked(batch=0, observations=1, candidates=1, elapsed_s=0.125),
    DecisionMade(
        decision=2,
        disposition="fallback",
        candidates=(Chosen(fingerprint=F3, candidate=C3),),
        cause="idle",
        batch=0,
    ),
    CandidateHeld(decision=2, fingerprint=F3, cause="time", reason="1800 s are left of 7200 s"),
    ServerStopped(reason="the run ends"),
    RunSuspended(reason="SIGUSR1"),
    RunStopped(rule="jobs", reason="2 jobs ended", failed=True),
    SegmentClosed(),
)


WITH_PEOPLE: tuple[Event, ...] = (
    RunStarted(
        campaign="orbits",
        digest="d" * 64,
        spec={"campaign": {"name": "orbits"}, "stop": {"node_h": 20.0, "lives": 3}},
        version="0.2.0",
        seed=7,
        granted_node_h=20.0,
    ),
    AllocationSeen(
        nodes=("n001", "n002"),
        started_at=1760000000.0,
        ends_at=1760014400.0,
        job_id="98123",
        restart_count=1,
    ),
    ServerStarted(model="Qwen/Qwen3-4B-Instruct", elapsed_s=92.5, nodes=1.0),
    DecisionOpened(decision=1),
    AttemptStarted(decision=1, attempt=1),
    ProposalRejected(
        decision=1,
        attempt=1,
        stage="producer",
        reasons=("a is 12, must be below 10",),
        breaches=(BrokenBound(candidate=0, field="a", measured=12.0, bound=10.0, kind="above"),),
    ),
    AttemptStarted(decision=1, attempt=2),
    ProposalMade(
        decision=1,
        attempt=2,
        proposal={"candidates": [C1]},
        others=({"candidates": [C2]}, {"candidates": [{"a": 1.0, "e": 0.3}]}),
        samples_valid=3,
        samples_total=4,
    ),
    CheckJudged(decision=1, attempt=2, check="space", sample=1, passed=True),
    CheckJudged(
        decision=1,
        attempt=2,
        check="margin",
        sample=2,
        passed=False,
        reasons=("e is 0.4, must be below 0.35",),
        refused=(F2,),
        breaches=(BrokenBound(candidate=1, field="e", measured=0.4, bound=0.35, kind="above"),),
    ),
    DecisionMade(
        decision=1,
        disposition="accepted",
        attempts=2,
        sample=1,
        candidates=(
            Chosen(fingerprint=F1, candidate=C1),
            Chosen(fingerprint=F2, candidate=C2, audit_probability=0.125),
        ),
    ),
    JobPlanned(
        job="d00001-1f1f1f1f-1",
        decision=1,
        fingerprint=F1,
        candidate=C1,
        level="fine",
        reserved_node_h=2.0,
        walltime_s=7200.0,
    ),
    AllocationSeen(nodes=("n001",), started_at=1760000000.0, job_id="98123", restart_count=1),
    JobEnded(
        job="d00001-1f1f1f1f-1",
        state=JobState.COMPLETED,
        end=End.COMPLETED,
        started_at=1760000100.5,
        ended_at=1760003700.5,
        charged_node_h=1.0,
    ),
    ResultRejected(job="d00001-1f1f1f1f-1", fingerprint=F1, reasons=("not converged",), again=True),
    JobPlanned(
        job="d00001-1f1f1f1f-2",
        decision=1,
        fingerprint=F1,
        candidate=C1,
        level="fine",
        attempt=2,
        rerun=1,
        reserved_node_h=2.0,
        walltime_s=7200.0,
    ),
    JobEnded(
        job="d00001-1f1f1f1f-2",
        state=JobState.LOST,
        end=End.ORPHANED,
        charged_node_h=0.5,
        again=True,
    ),
    JobPlanned(
        job="d00001-1f1f1f1f-3",
        decision=1,
        fingerprint=F1,
        candidate=C1,
        level="fine",
        attempt=3,
        rerun=1,
        reserved_node_h=2.0,
        walltime_s=7200.0,
    ),
    JobEnded(
        job="d00001-1f1f1f1f-3",
        state=JobState.COMPLETED,
        end=End.COMPLETED,
        charged_node_h=1.0,
    ),
    ResultParked(
        job="d00001-1f1f1f1f-3",
        fingerprint=F1,
        reasons=("energy is 3, must be below 2",),
        values={"energy": 3.0},
        expires_at=1760020000.0,
    ),
    ParkedResolved(
        what="d00001-1f1f1f1f-3", action="accept", by="ada", answered_at=1760010000.0, reason="ok"
    ),
    ResultAccepted(job="d00001-1f1f1f1f-3", fingerprint=F1, values={"energy": 3.0}, feasible=False),
    DecisionOpened(decision=2),
    DecisionParked(decision=2, expires_at=1760020000.0),
    ParkedResolved(
        what="D2", action="edit", by="ada", value={"candidates": [{"a": 1.0, "e": 0.5}]}
    ),
    DecisionMade(decision=2, disposition="refused", cause="person"),
    RunSuspended(reason="SIGUSR1", requeued=True),
    SegmentClosed(),
)


def events_of(folder: Path) -> list[Event]:
    return [entry.event for entry in read(folder)]


def test_format_1_reads_as_it_was_written():
    events = events_of(GOLDEN / "format-1")

    first, third = events[0], events[len(FIRST_LIFE) + 1]
    assert isinstance(first, SegmentOpened)
    assert isinstance(third, SegmentOpened)
    assert first == opened(1, "")
    assert third == opened(3, third.previous_hash)
    assert events[1 : len(FIRST_LIFE) + 1] == list(FIRST_LIFE)
    assert events[len(FIRST_LIFE) + 2 :] == list(THIRD_LIFE)


def test_format_2_reads_as_it_was_written():
    events = events_of(GOLDEN / "format-2")

    assert isinstance(events[0], SegmentOpened)
    assert events[0].format == 2
    assert events[1:] == list(WITH_PEOPLE)


def test_format_1_keeps_the_times_and_the_hashes():
    entries = list(read(GOLDEN / "format-1"))
    last = (GOLDEN / "format-1" / "0003.jsonl").read_bytes().splitlines(keepends=True)[-1]

    assert [e.at_ns for e in entries] == [1_760_000_000_000_000_007 + e.seq for e in entries]
    assert stored_hash(last).decode() == json.loads((GOLDEN / "format-1" / "last.json").read_text())


def test_format_1_has_torn_tails():
    for name in ("0001.jsonl", "0002.jsonl"):
        assert not (GOLDEN / "format-1" / name).read_bytes().endswith(b"\n")


def test_every_kind_of_event_is_in_a_golden_ledger():
    kinds: set[str] = set()
    for folder in GOLDEN.glob("format-*"):
        kinds |= {event.type for event in events_of(folder)}

    union: Any = get_args(Event)[0]
    assert kinds == {event.model_fields["type"].default for event in get_args(union)}


def test_there_is_a_golden_ledger_of_every_format():
    assert {folder.name for folder in GOLDEN.glob("format-*")} == {
        f"format-{version}" for version in range(1, FORMAT + 1)
    }


@pytest.mark.parametrize("version", range(1, FORMAT + 1))
def test_an_old_run_is_intact_and_can_be_taken_up(tmp_path, version):
    shutil.copytree(GOLDEN / f"format-{version}", tmp_path / "ledger")
    before = events_of(tmp_path / "ledger")

    with Ledger.open(tmp_path / "ledger", run="orbits-3f2a", environ={}) as ledger:
        assert [entry.event for entry in ledger.entries] == before

    assert check_run(tmp_path) == []
    assert len(events_of(tmp_path / "ledger")) == len(before) + 2


def test_a_newer_format_is_refused_by_readers_and_writers(tmp_path):
    newer = opened(1, "").model_copy(update={"format": FORMAT + 1})
    line = encode(newer, seq=0, at_ns=0, previous=b"")
    (tmp_path / "0001.jsonl").write_bytes(line)

    message = f"has format {FORMAT + 1}, and this version reads up to {FORMAT}; use the batchgate"
    with pytest.raises(LedgerError, match=message):
        events_of(tmp_path)
    with pytest.raises(LedgerError, match=message):
        Ledger.open(tmp_path, run="orbits-3f2a")
    assert [path.name for path in tmp_path.glob("*.jsonl")] == ["0001.jsonl"]


def test_a_newer_format_with_members_that_this_version_does_not_know_is_no_damage(tmp_path):
    class Newer:
        def model_dump(self, **_):
            return {**opened(1, "").model_dump(), "format": FORMAT + 1, "zone": "UTC"}

    line = encode(Newer(), seq=0, at_ns=0, previous=b"")  # type: ignore[arg-type]
    (tmp_path / "0001.jsonl").write_bytes(line)

    with pytest.raises(LedgerError, match=f"has format {FORMAT + 1}"):
        events_of(tmp_path)
