from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from batchgate.errors import LedgerCorruptError, LedgerError
from batchgate.events import (
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    DecisionMade,
    DecisionOpened,
    Event,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultRejected,
    RunResumed,
    RunStopped,
    RunSuspended,
    SegmentClosed,
    ServerStarted,
    ServerStopped,
    SurrogateAsked,
)
from batchgate.job import End, JobState
from batchgate.ledger import Ledger
from batchgate.review.record import RunRecord
from batchgate.review.rows import AttemptRow
from batchgate.state import State
from tests.synthetic_run import START_AT, Script, chosen, night, opened, started

POINT = {"x1": 1.0, "x2": 2.0}
OTHER = {"x1": 3.0, "x2": 4.0}
RESUMED = RunResumed(version="0.2.0", slots=4, producer="vllm")


def asked(attempt: int = 1, *points: dict[str, Any]) -> tuple[Event, Event]:
    return (
        AttemptStarted(decision=1, attempt=attempt),
        ProposalMade(decision=1, attempt=attempt, proposal={"candidates": list(points) or [POINT]}),
    )


def judged(check: str = "disc", *, passed: bool, attempt: int = 1, **fields: Any) -> CheckJudged:
    return CheckJudged(decision=1, attempt=attempt, check=check, passed=passed, **fields)


def made(disposition: Any, *points: dict[str, float], cause: str = "") -> DecisionMade:
    candidates = tuple(chosen(**point) for point in points)
    return DecisionMade(decision=1, disposition=disposition, candidates=candidates, cause=cause)


def planned(job: str = "j1", attempt: int = 1, point: dict[str, float] = POINT) -> JobPlanned:
    one = chosen(**point)
    return JobPlanned(
        job=job,
        decision=1,
        fingerprint=one.fingerprint,
        candidate=one.candidate,
        level="fine",
        attempt=attempt,
        reserved_node_h=0.2,
        walltime_s=600,
    )


def ended(job: str = "j1", end: End = End.COMPLETED, **fields: Any) -> JobEnded:
    done = {"state": JobState.COMPLETED if end is End.COMPLETED else JobState.FAILED}
    return JobEnded(**{"job": job, "end": end, **done, **fields})


def record(*events: Event) -> RunRecord:
    return RunRecord.of(Script().begin().add(*events).entries)


def only_attempt(*events: Event) -> AttemptRow:
    (attempt,) = record(DecisionOpened(decision=1), *events).attempts
    return attempt


# --- attempts ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((*asked(), judged(passed=True), made("accepted", POINT)), "accepted"),
        ((*asked(), judged(passed=False), made("fallback", OTHER)), "rejected"),
        ((*asked(), judged(passed=True)), "open"),
        ((*asked(), judged(passed=True), RESUMED), "interrupted"),
        ((*asked(), judged(passed=True), made("abandoned")), "interrupted"),
        ((*asked(), made("failed", cause="verifier")), "failed"),
        (
            (
                AttemptStarted(decision=1, attempt=1),
                FailureRecorded(kind="producer", what="timeout", message="", decision=1, attempt=1),
            ),
            "failed",
        ),
        (
            (
                *asked(),
                FailureRecorded(
                    kind="verifier",
                    what="worker_lost",
                    message="",
                    decision=1,
                    attempt=1,
                    again=True,
                ),
            ),
            "open",
        ),
    ],
)
def test_an_attempt_has_the_outcome_that_the_ledger_tells(
    events: tuple[Event, ...], outcome: str
) -> None:
    assert only_attempt(*events).outcome == outcome


def test_an_attempt_that_failed_before_its_runner_died_stays_failed() -> None:
    failure = FailureRecorded(kind="producer", what="x", message="", decision=1, attempt=1)

    assert only_attempt(AttemptStarted(decision=1, attempt=1), failure, RESUMED).outcome == "failed"


def test_an_attempt_is_rejected_by_every_hard_check_that_failed_it() -> None:
    attempt = only_attempt(
        *asked(),
        judged("disc", passed=False, reasons=("too far",)),
        judged("spacing", passed=False, reasons=("too close", "too deep")),
        judged("taste", passed=False, hard=False, reasons=("meh",)),
    )

    assert attempt.rejected_by == ("disc", "spacing")
    assert attempt.reasons == ("too far", "too close", "too deep")
    assert [check.check for check in attempt.checks] == ["disc", "spacing", "taste"]


def test_an_answer_that_its_producer_rejected_keeps_its_raw_value() -> None:
    rejected = ProposalRejected(
        decision=1,
        attempt=1,
        stage="schema",
        reasons=("x2 is missing",),
        value='{"x1": 1',
        elapsed_s=3,
    )

    attempt = only_attempt(AttemptStarted(decision=1, attempt=1), rejected)

    assert (attempt.outcome, attempt.rejected_by) == ("rejected", ("schema",))
    assert attempt.proposal == '{"x1": 1'
    assert attempt.candidates == ()
    assert attempt.answer_s == 3


def test_an_attempt_keeps_what_its_producer_told() -> None:
    answer = ProposalMade(
        decision=1,
        attempt=1,
        proposal={"rationale": "why", "candidates": [POINT, OTHER]},
        response_id="chatcmpl-1",
        model="qwen",
        temperature=0.7,
        input_tokens=10,
        output_tokens=20,
        samples_valid=6,
        samples_total=8,
        elapsed_s=1.5,
    )

    attempt = only_attempt(
        AttemptStarted(decision=1, attempt=1, trace_id="a" * 32, span_id="b" * 16), answer
    )

    assert attempt.candidates == (POINT, OTHER)
    assert (attempt.model, attempt.response_id, attempt.temperature) == ("qwen", "chatcmpl-1", 0.7)
    assert (attempt.input_tokens, attempt.output_tokens) == (10, 20)
    assert (attempt.samples_valid, attempt.samples_total, attempt.answer_s) == (6, 8, 1.5)
    assert (attempt.trace_id, attempt.span_id) == ("a" * 32, "b" * 16)
    assert (attempt.started_at, attempt.ended_at) == (START_AT + 2, START_AT + 3)


@pytest.mark.parametrize("proposal", [None, 3, "text", {"candidates": 3}, {"candidates": [1]}, {}])
def test_a_proposal_of_another_shape_has_no_candidates(proposal: Any) -> None:
    attempt = only_attempt(
        AttemptStarted(decision=1, attempt=1),
        ProposalMade(decision=1, attempt=1, proposal=proposal),
    )

    assert attempt.candidates == ()


def test_attempts_of_equal_values_are_identical_whatever_their_rationale_says() -> None:
    one, other, different = (
        only_attempt(
            AttemptStarted(decision=1, attempt=1),
            ProposalMade(decision=1, attempt=1, proposal=proposal),
        ).identity
        for proposal in (
            {"rationale": "a", "candidates": [{"x1": 1.0, "x2": 2.0}]},
            {"rationale": "b", "candidates": [{"x2": 2.0, "x1": 1.0}]},
            {"rationale": "a", "candidates": [{"x1": 1.0, "x2": 2.5}]},
        )
    )

    assert one == other
    assert one != different


def test_attempts_of_a_decision_go_on_over_lives() -> None:
    found = record(
        DecisionOpened(decision=1),
        *asked(1),
        opened(2),
        RESUMED,
        *asked(2),
        judged(passed=True, attempt=2),
        made("accepted", POINT),
    )

    assert [(a.number, a.outcome) for a in found.attempts] == [(1, "interrupted"), (2, "accepted")]


# --- decisions, jobs -----------------------------------------------------------------------------


def test_a_decision_tells_who_was_asked_and_what_it_let_through() -> None:
    found = record(
        DecisionOpened(decision=1, source="surrogate"),
        SurrogateAsked(batch=4, observations=9, candidates=1, elapsed_s=0.5),
        DecisionMade(
            decision=1, disposition="fallback", candidates=(chosen(**POINT),), cause="idle", batch=4
        ),
    )

    (decision,) = found.decisions
    assert (decision.source, decision.disposition, decision.cause) == (
        "surrogate",
        "fallback",
        "idle",
    )
    assert (decision.opened_at, decision.closed_at) == (START_AT + 1, START_AT + 3)
    assert (decision.batch, decision.candidates) == (4, (chosen(**POINT),))
    assert [(b.batch, b.observations, b.at) for b in found.batches] == [(4, 9, START_AT + 2)]


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ((), "running"),
        ((ended(),), "unjudged"),
        ((ended(end=End.TIMED_OUT, state=JobState.COMPLETED),), "unjudged"),
        ((ended(state=JobState.FAILED),), "no_result"),
        ((ended(end=End.TIMED_OUT),), "timed_out"),
        ((ended(end=End.UNKNOWN, state=JobState.LOST),), "unknown"),
        (
            (
                ended(),
                ResultAccepted(
                    job="j1",
                    fingerprint=chosen(**POINT).fingerprint,
                    values={"y": 1},
                    feasible=True,
                ),
            ),
            "feasible",
        ),
        (
            (
                ended(),
                ResultAccepted(
                    job="j1",
                    fingerprint=chosen(**POINT).fingerprint,
                    values={"y": 1},
                    feasible=False,
                ),
            ),
            "infeasible",
        ),
        (
            (
                ended(),
                ResultRejected(
                    job="j1", fingerprint=chosen(**POINT).fingerprint, reasons=("residual",)
                ),
            ),
            "invalid",
        ),
    ],
)
def test_a_job_has_one_word_for_what_became_of_it(events: tuple[Event, ...], outcome: str) -> None:
    found = record(DecisionOpened(decision=1), made("accepted", POINT), planned(), *events)

    assert [job.outcome for job in found.jobs] == [outcome]


def test_a_job_keeps_its_plan_and_its_end() -> None:
    end = ended(
        end=End.EXIT,
        exit_code=3,
        error="boom",
        started_at=START_AT + 4,
        ended_at=START_AT + 9,
        host="node07",
        charged_node_h=0.1,
        again=True,
    )

    found = record(DecisionOpened(decision=1), made("fallback", POINT), planned(), end)

    (job,) = found.jobs
    assert (job.job, job.decision, job.source, job.level) == ("j1", 1, "surrogate", "fine")
    assert (job.candidate, job.fingerprint) == (POINT, chosen(**POINT).fingerprint)
    assert (job.reserved_node_h, job.walltime_s, job.charged_node_h) == (0.2, 600, 0.1)
    assert (job.planned_at, job.started_at, job.ended_at, job.settled_at) == (
        START_AT + 3,
        START_AT + 4,
        START_AT + 9,
        START_AT + 4,
    )
    assert (job.state, job.exit_code, job.error, job.host) == (JobState.FAILED, 3, "boom", "node07")
    assert job.again


def test_held_candidates_and_failures_are_kept() -> None:
    held = CandidateHeld(
        decision=1, fingerprint=chosen(**POINT).fingerprint, cause="time", reason="too late"
    )
    failure = FailureRecorded(kind="server", what="died", message="signal 9")

    found = record(DecisionOpened(decision=1), made("accepted", POINT), held, failure)

    assert [(h.cause, h.reason, h.at) for h in found.held] == [("time", "too late", START_AT + 3)]
    assert [(f.kind, f.what, f.decision) for f in found.failures] == [("server", "died", None)]


# --- verifier beside result ----------------------------------------------------------------------


def test_verdicts_of_a_verifier_are_joined_with_results_candidate_by_candidate() -> None:
    third = {"x1": 5.0, "x2": 5.0}
    found = record(
        DecisionOpened(decision=1),
        *asked(1, POINT, OTHER, third),
        judged(
            "coarse",
            passed=False,
            verifier=True,
            refused=(chosen(**OTHER).fingerprint,),
            observables=({"y": 7.0}, {"y": 99.0}, {"y": 8.0}),
        ),
        made("fallback", POINT, OTHER),
        planned("j1"),
        ended("j1"),
        ResultAccepted(
            job="j1", fingerprint=chosen(**POINT).fingerprint, values={"y": 6.5}, feasible=True
        ),
        planned("j2", point=OTHER),
        ended("j2"),
        ResultRejected(job="j2", fingerprint=chosen(**OTHER).fingerprint, reasons=("diverged",)),
    )

    assert [(p.passed, p.good, p.observables, p.values) for p in found.pairs] == [
        (True, True, {"y": 7.0}, {"y": 6.5}),
        (False, False, {"y": 99.0}, {}),
        (True, None, {"y": 8.0}, {}),
    ]


def test_a_refusal_that_names_no_candidate_refuses_all() -> None:
    found = record(
        DecisionOpened(decision=1),
        *asked(1, POINT, OTHER),
        judged("coarse", passed=False, verifier=True),
    )

    assert [(p.passed, p.observables) for p in found.pairs] == [(False, {}), (False, {})]


def test_candidates_outside_the_space_are_judged_but_never_joined() -> None:
    found = record(
        DecisionOpened(decision=1),
        *asked(1, {"x1": "far"}),
        judged("coarse", passed=True, verifier=True, observables=("odd",)),
    )

    assert [(p.fingerprint, p.observables, p.good) for p in found.pairs] == [("", {}, None)]


def test_a_candidate_that_ran_twice_counts_with_its_result() -> None:
    found = record(
        DecisionOpened(decision=1),
        *asked(),
        judged("coarse", passed=True, verifier=True),
        made("accepted", POINT),
        planned("j1"),
        ended("j1", end=End.SIGNAL, again=True),
        planned("j2", attempt=2),
        ended("j2"),
        ResultAccepted(
            job="j2", fingerprint=chosen(**POINT).fingerprint, values={"y": 1}, feasible=True
        ),
    )

    assert [pair.good for pair in found.pairs] == [True]


# --- lives ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "end"),
    [
        ((), "open"),
        ((SegmentClosed(),), "closed"),
        ((RunSuspended(reason="SIGTERM"), SegmentClosed()), "suspended"),
        ((RunStopped(rule="jobs", reason="8 jobs"), SegmentClosed()), "stopped"),
        ((opened(2),), "interrupted"),
    ],
)
def test_a_life_ended_as_its_last_events_say(events: tuple[Event, ...], end: str) -> None:
    assert record(*events).lives[0].end == end


def test_each_life_tells_where_and_how_long_it_ran() -> None:
    found = record(RunSuspended(reason="SIGTERM"), SegmentClosed(), opened(2), RESUMED)

    one, other = found.lives
    assert (one.host, one.pid, one.slots, one.version, one.reason) == (
        "node01",
        4001,
        2,
        "0.1.0",
        "SIGTERM",
    )
    assert one.slurm == {"job_id": "98123", "restart_count": "0"}
    assert (one.started_at, one.ended_at) == (START_AT, START_AT + 2)
    assert (other.started_at, other.ended_at) == (START_AT + 3, START_AT + 4)
    assert (other.slots, other.version, other.producer) == (4, "0.2.0", "vllm")


def test_starts_of_the_server_are_matched_with_their_stops() -> None:
    found = record(
        ServerStopped(reason="it never answered"),
        ServerStarted(model="qwen", elapsed_s=90),
        ServerStopped(reason="no answer"),
        ServerStarted(model="qwen", elapsed_s=80, start=2),
    )

    assert [(s.life, s.start, s.elapsed_s, s.reason) for s in found.servers] == [
        (1, 1, 90, "no answer"),
        (1, 2, 80, ""),
    ]
    assert found.servers[0].stopped_at == START_AT + 3
    assert found.servers[1].stopped_at is None


# --- whole runs ----------------------------------------------------------------------------------


def test_rows_of_a_whole_night_agree_with_the_state() -> None:
    entries = night()

    found, state = RunRecord.of(entries), State.of(entries)

    assert found.state == state
    assert found.events == len(entries)
    assert Counter(d.disposition for d in found.decisions) == state.dispositions
    assert sum(len(d.attempts) for d in found.decisions) == sum(
        isinstance(e.event, AttemptStarted) for e in entries
    )
    assert {job.job for job in found.jobs if job.values is not None} == set(state.results)
    assert sum(job.charged_node_h for job in found.jobs) == pytest.approx(state.charged_node_h)
    assert found.best is not None
    assert found.best.job == state.best
    assert [life.end for life in found.lives] == ["interrupted", "suspended", "stopped"]
    assert any(job.adopted for job in found.jobs)


def test_a_record_of_nothing_is_empty() -> None:
    found = RunRecord.of([])

    assert (found.decisions, found.jobs, found.lives, found.best, found.spec) == (
        (),
        (),
        (),
        None,
        None,
    )
    assert (found.campaign, found.version, found.seed) == ("", "", 0)


def test_a_run_is_read_from_its_directory(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", run="branin-7") as ledger:
        ledger.append(started())
        ledger.append(DecisionOpened(decision=1))

    found = RunRecord.read(tmp_path)

    assert (found.state.run, found.campaign) == ("branin-7", "branin")
    assert len(found.decisions) == 1


def test_a_directory_without_a_ledger_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match=r"holds no run: there is no folder .*ledger"):
        RunRecord.read(tmp_path)


def test_a_campaign_of_another_version_is_told_and_not_guessed(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", run="branin-7") as ledger:
        ledger.append(started().model_copy(update={"spec": {"campaign": {"name": "branin"}}}))

    with pytest.raises(LedgerError, match=r"(?s)cannot read:.*variables: Field required"):
        RunRecord.read(tmp_path)


def test_a_damaged_ledger_is_told_and_not_reviewed(tmp_path: Path) -> None:
    with Ledger.open(tmp_path / "ledger", run="branin-7") as ledger:
        ledger.append(started())
        ledger.append(DecisionOpened(decision=1))
    (segment,) = (tmp_path / "ledger").glob("*.jsonl")
    segment.write_text(segment.read_text().replace('"slots":2', '"slots":3'))

    with pytest.raises(LedgerCorruptError):
        RunRecord.read(tmp_path)
