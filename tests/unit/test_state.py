"""The fold, event by event: a hand-written run of the small campaign of `tests.campaigns`."""

from __future__ import annotations

import gc
import pickle
from dataclasses import replace
from typing import Any, cast, get_args

import pytest

from batchgate import state as state_module
from batchgate.campaign import CampaignSpec
from batchgate.events import (
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    Chosen,
    DecisionMade,
    DecisionOpened,
    Entry,
    Event,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
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
from batchgate.state import Known, State
from tests import campaigns


def spec(**tables: Any) -> CampaignSpec:
    return CampaignSpec.model_validate(campaigns.spec(**tables))


def opened(segment: int = 1) -> SegmentOpened:
    return SegmentOpened(run="square-1", segment=segment, host="node01", pid=1)


def started(campaign: CampaignSpec) -> RunStarted:
    return RunStarted(
        campaign=campaign.campaign.name,
        digest=campaign.digest,
        spec=campaign.model_dump(mode="json"),
        version="0.1.0",
        seed=0,
        granted_node_h=campaign.stop.node_h,
    )


def resumed(campaign: CampaignSpec | None = None) -> RunResumed:
    given = campaign.model_dump(mode="json") if campaign else None
    return RunResumed(version="0.1.0", digest=campaign.digest if campaign else "", spec=given)


def fingerprint(x: float) -> str:
    return spec().space.fingerprint({"x": x})


def proposed(*xs: float, decision: int = 1, attempt: int = 1) -> ProposalMade:
    candidates = [{"x": x} for x in xs]
    return ProposalMade(decision=decision, attempt=attempt, proposal={"candidates": candidates})


def judged(check: str, *, passed: bool = False, **more: Any) -> CheckJudged:
    return CheckJudged(decision=1, attempt=1, check=check, passed=passed, **more)


def made(*xs: float, decision: int = 1, disposition: Any = "accepted", **more: Any) -> DecisionMade:
    candidates = tuple(Chosen(fingerprint=fingerprint(x), candidate={"x": x}) for x in xs)
    return DecisionMade(decision=decision, disposition=disposition, candidates=candidates, **more)


def planned(x: float, *, job: str = "", decision: int = 1, reserved_node_h: float = 0.1) -> Event:
    return JobPlanned(
        job=job or f"j{x:g}",
        decision=decision,
        fingerprint=fingerprint(x),
        candidate={"x": x},
        level="full",
        reserved_node_h=reserved_node_h,
        walltime_s=36,
    )


def ended(job: str, state: JobState = JobState.COMPLETED, **more: Any) -> JobEnded:
    return JobEnded(job=job, state=state, end=End.COMPLETED, **more)


def result(x: float, y: float, *, job: str = "", feasible: bool = True) -> ResultAccepted:
    return ResultAccepted(
        job=job or f"j{x:g}", fingerprint=fingerprint(x), values={"y": y}, feasible=feasible
    )


def no_result(x: float) -> ResultRejected:
    return ResultRejected(job=f"j{x:g}", fingerprint=fingerprint(x), reasons=("y is not finite",))


class Run:
    """A run that has begun; `then` tells what happens, an event each second."""

    def __init__(self, **tables: Any) -> None:
        self.state = State()
        self.now_at = 100.0
        self.then(opened(), started(spec(**tables)))

    def then(self, *events: Event) -> Run:
        for event in events:
            self.state.apply(event, at=self.now_at)
            self.now_at += 1
        return self

    def finish(self, x: float, y: float, *, feasible: bool = True) -> Run:
        """Decide for a candidate, run it, and accept its result."""
        number = len(self.state.decisions) + 1
        return self.then(
            DecisionOpened(decision=number),
            made(x, decision=number),
            planned(x, decision=number),
            ended(f"j{x:g}", charged_node_h=0.05),
            result(x, y, feasible=feasible),
        )


def test_a_run_that_has_not_started_has_no_spec_and_no_wall_time() -> None:
    state = State()

    assert state.spec is None
    assert state.wall_s == 0
    assert (state.ready, state.running, state.unjudged, state.open) == ((), [], [], [])


def test_the_fold_of_entries_takes_their_times() -> None:
    entries = [
        Entry(seq=0, at_ns=5_000_000_000, event=opened()),
        Entry(seq=1, at_ns=7_500_000_000, event=started(spec())),
    ]

    state = State.of(entries)

    assert (state.started_at, state.updated_at, state.wall_s) == (7.5, 7.5, 2.5)


def test_the_start_gives_the_spec_its_digest_and_the_grant() -> None:
    state = Run(stop={"node_h": 2.5}).state

    assert state.run == "square-1"
    assert state.spec == spec(stop={"node_h": 2.5})
    assert state.digest == spec(stop={"node_h": 2.5}).digest
    assert state.granted_node_h == state.free_node_h == 2.5


def test_a_spec_of_another_version_is_read_without_the_keys_it_alone_knows() -> None:
    start = started(spec())
    start = start.model_copy(update={"spec": {**start.spec, "of_a_later_version": 1}})
    state = State()

    state.apply(start, at=1.0)

    assert state.spec == spec()


def test_wall_time_is_that_of_all_lives_without_the_time_between_them() -> None:
    run = Run().then(SegmentClosed())
    run.now_at += 1000

    run.then(opened(2), resumed())

    assert run.state.lives == 2
    assert run.state.last_life_ended_at == 102.0
    assert run.state.life_s == 2.0
    assert run.state.wall_s == 3.0


def test_a_resumed_run_takes_a_changed_spec_and_keeps_the_old_one_else() -> None:
    run = Run()

    run.then(opened(2), resumed(spec(stop={"node_h": 9.0})), opened(3), resumed())

    assert run.state.granted_node_h == 9.0
    assert run.state.spec == spec(stop={"node_h": 9.0})


@pytest.mark.parametrize(
    "end", [RunSuspended(reason="SIGTERM"), RunStopped(rule="jobs", reason="enough")]
)
def test_a_runs_end_is_known_until_it_is_resumed(end: RunSuspended | RunStopped) -> None:
    run = Run().then(end)
    ends = (run.state.suspended, run.state.stopped)

    run.then(opened(2), resumed())

    assert ends in {("SIGTERM", None), ("", end)}
    assert run.state.suspended == ""
    assert run.state.stopped is None


def test_an_attempt_is_spent_when_it_starts() -> None:
    run = Run().then(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))

    (decision,) = run.state.open
    assert (decision.number, decision.source, decision.spent) == (1, "producer", 1)


def test_an_attempt_that_its_runner_did_not_outlive_stays_spent_and_says_so() -> None:
    run = Run().then(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))

    run.then(proposed(2.0), opened(2), resumed())

    (past,) = run.state.decisions[1].attempts
    assert (past.rejected_by, past.proposal) == ("interrupted", {"candidates": [{"x": 2.0}]})
    assert run.state.decisions[1].spent == 1


def test_an_attempt_that_was_rejected_keeps_its_reason_over_a_resumption() -> None:
    run = Run().then(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))
    run.then(proposed(-1.0), judged("low", reasons=("too low",)))

    run.then(opened(2), resumed())

    (past,) = run.state.decisions[1].attempts
    assert (past.rejected_by, past.reasons) == ("low", ("too low",))


def test_a_producers_own_rejection_is_its_attempts_end() -> None:
    run = Run().then(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))

    run.then(
        ProposalRejected(decision=1, attempt=1, stage="schema", reasons=("no JSON",), value="{")
    )

    (past,) = run.state.decisions[1].attempts
    assert (past.proposal, past.rejected_by, past.reasons) == ("{", "schema", ("no JSON",))


@pytest.mark.parametrize("more", [{"passed": True}, {"passed": False, "hard": False}])
def test_a_check_that_passes_or_is_soft_rejects_nothing(more: dict[str, Any]) -> None:
    run = Run().then(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))

    run.then(proposed(2.0), judged("low", **more))

    assert run.state.decisions[1].attempts[0].rejected_by == ""


def test_what_a_verifier_refused_is_known_and_what_it_let_pass_is_not() -> None:
    run = Run().then(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))

    run.then(
        proposed(2.0, 9.0),
        judged("cheap", verifier=True, refused=(fingerprint(9.0),), node_h=0.25),
    )

    assert run.state.known == {fingerprint(9.0): Known({"x": 9.0}, "refused", "D1.1")}
    assert run.state.verifier_node_h == 0.25
    assert run.state.charged_node_h == 0


def test_a_verifiers_refusal_does_not_undo_what_is_known_of_a_candidate() -> None:
    run = Run().finish(9.0, 36.0)

    run.then(
        DecisionOpened(decision=1),
        AttemptStarted(decision=1, attempt=1),
        proposed(9.0),
        judged("cheap", verifier=True, refused=(fingerprint(9.0),)),
    )

    assert run.state.known[fingerprint(9.0)].where == "finished"


def test_a_refusal_without_a_proposal_is_of_nobody() -> None:
    run = Run().then(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))

    run.then(judged("cheap", verifier=True, refused=(fingerprint(9.0),)))

    assert run.state.known == {}


def test_a_decisions_candidates_wait_and_its_attempts_are_forgotten() -> None:
    run = Run().then(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))

    run.then(proposed(2.0), made(2.0, attempts=1))

    decision = run.state.decisions[1]
    assert (decision.disposition, decision.attempts, decision.spent) == ("accepted", [], 1)
    assert [(n, dict(c.candidate)) for n, c in run.state.ready] == [(1, {"x": 2.0})]
    assert run.state.known[fingerprint(2.0)] == Known({"x": 2.0}, "chosen", "D1")
    assert run.state.dispositions == {"accepted": 1}
    assert run.state.open == []


def test_a_candidate_that_is_known_does_not_wait_a_second_time() -> None:
    run = Run().finish(2.0, 1.0)

    run.then(DecisionOpened(decision=2), made(2.0, 4.0, decision=2))

    assert [(n, dict(c.candidate)) for n, c in run.state.ready] == [(2, {"x": 4.0})]


def test_decisions_without_candidates_are_counted_in_a_row_and_abandoned_ones_are_not() -> None:
    run = Run()
    for number in range(1, 5):
        run.then(DecisionOpened(decision=number))

    run.then(made(decision=1, disposition="failed"), made(decision=2, disposition="failed"))
    assert run.state.fruitless == 2
    run.then(made(decision=3, disposition="abandoned"))
    assert run.state.fruitless == 2
    run.then(made(2.0, decision=4))
    assert run.state.fruitless == 0


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (made(2.0), 0),
        (made(2.0, disposition="fallback", cause="rejected"), 0),
        (made(2.0, disposition="fallback", cause="producer"), 1),
        (made(disposition="failed", cause="verifier"), 1),
    ],
)
def test_failures_of_checks_are_forgotten_once_every_check_gave_a_verdict(
    end: DecisionMade, left: int
) -> None:
    run = Run().then(DecisionOpened(decision=1))
    for kind in ("check", "verifier"):
        run.then(FailureRecorded(kind=kind, what="timeout", message="late"))

    run.then(end)

    assert (run.state.failures["check"], run.state.failures["verifier"]) == (left, left)


def test_a_failure_that_is_tried_again_does_not_count() -> None:
    run = Run().then(FailureRecorded(kind="verifier", what="timeout", message="late", again=True))

    assert run.state.failures["verifier"] == 0


@pytest.mark.parametrize(
    ("kind", "success"),
    [
        ("producer", proposed(2.0)),
        ("producer", ProposalRejected(decision=1, attempt=1, stage="schema", reasons=())),
        ("surrogate", SurrogateAsked(batch=0, observations=0, candidates=1, elapsed_s=0.1)),
        ("server", ServerStarted(model="m", elapsed_s=1.0)),
    ],
)
def test_a_success_ends_the_row_of_failures_of_its_kind_alone(kind: Any, success: Event) -> None:
    run = Run().then(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))
    run.then(FailureRecorded(kind=kind, what="x", message="x"))
    run.then(FailureRecorded(kind="check", what="x", message="x"))

    run.then(success)

    assert (run.state.failures[kind], run.state.failures["check"]) == (0, 1)


def test_a_servers_end_changes_nothing_but_the_time() -> None:
    run = Run()

    run.then(ServerStopped(reason="it crashed"))

    assert run.state.updated_at == 102.0
    assert run.state.failures.total() == 0


def test_batches_of_the_surrogate_are_numbered_on() -> None:
    run = Run()

    for batch in (0, 3, 1):
        run.then(SurrogateAsked(batch=batch, observations=0, candidates=1, elapsed_s=0.1))

    assert run.state.batches == 4


def test_a_candidate_that_is_held_waits_no_more_and_may_be_proposed_again() -> None:
    run = Run().then(DecisionOpened(decision=1), made(2.0))
    held = CandidateHeld(decision=1, fingerprint=fingerprint(2.0), cause="jobs", reason="the end")

    run.then(held)

    assert run.state.ready == ()
    assert run.state.known == {}


def test_a_candidate_that_is_held_and_did_not_wait_stays_known() -> None:
    run = Run().finish(2.0, 1.0)
    held = CandidateHeld(
        decision=1, fingerprint=fingerprint(2.0), cause="duplicate", reason="it was run"
    )

    run.then(held)

    assert run.state.known[fingerprint(2.0)].where == "finished"


def test_a_planned_job_reserves_and_its_end_charges() -> None:
    run = Run().then(DecisionOpened(decision=1), made(2.0), planned(2.0))

    state = run.state
    assert (state.reserved_node_h, state.charged_node_h, state.free_node_h) == (0.1, 0.0, 0.9)
    assert state.ready == ()
    assert [job.plan.job for job in state.running] == ["j2"]
    assert state.known[fingerprint(2.0)] == Known({"x": 2.0}, "running", "j2")
    assert not state.jobs["j2"].settled

    run.then(ended("j2", charged_node_h=0.04))
    assert (state.reserved_node_h, state.charged_node_h, state.free_node_h) == (0.0, 0.04, 0.96)
    assert state.running == []


def test_a_job_that_completed_is_unjudged_until_its_result_is_accepted_or_rejected() -> None:
    run = Run().then(DecisionOpened(decision=1), made(2.0, 4.0), planned(2.0), planned(4.0))

    run.then(ended("j2"), ended("j4"))
    assert [job.plan.job for job in run.state.unjudged] == ["j2", "j4"]
    assert not run.state.jobs["j2"].settled
    assert run.state.evaluated == 0

    run.then(result(2.0, 1.0), no_result(4.0))
    assert run.state.unjudged == []
    assert run.state.jobs["j2"].settled
    assert run.state.jobs["j4"].settled
    assert run.state.jobs["j4"].rejected == ("y is not finite",)
    assert run.state.evaluated == 2


def test_a_job_that_is_run_again_makes_its_candidate_wait_and_is_not_evaluated() -> None:
    run = Run().then(DecisionOpened(decision=1), made(2.0), planned(2.0))

    run.then(ended("j2", JobState.LOST, again=True, charged_node_h=0.02))

    assert [(n, dict(c.candidate)) for n, c in run.state.ready] == [(1, {"x": 2.0})]
    assert run.state.known[fingerprint(2.0)].where == "chosen"
    assert run.state.jobs["j2"].settled
    assert (run.state.evaluated, run.state.failures["job"]) == (0, 0)

    run.then(planned(2.0, job="j2-2"))
    assert [job.plan.job for job in run.state.runs[fingerprint(2.0)]] == ["j2", "j2-2"]


def test_a_job_that_failed_for_good_is_evaluated_and_counts_as_a_failure() -> None:
    run = Run().then(DecisionOpened(decision=1), made(2.0), planned(2.0))

    run.then(ended("j2", JobState.FAILED))

    assert (run.state.evaluated, run.state.since_best, run.state.failures["job"]) == (1, 1, 1)
    assert run.state.known[fingerprint(2.0)].where == "failed"
    assert run.state.unjudged == []


def test_a_result_ends_the_row_of_failed_jobs() -> None:
    run = Run().then(FailureRecorded(kind="job", what="x", message="x"))

    run.finish(2.0, 1.0)

    assert run.state.failures["job"] == 0


@pytest.mark.parametrize(("direction", "best"), [("MINIMIZE", "j4"), ("MAXIMIZE", "j2")])
def test_the_best_result_is_the_best_feasible_one_in_the_campaigns_direction(
    direction: str, best: str
) -> None:
    run = Run(objectives={"y": direction})

    run.finish(2.0, 5.0).finish(4.0, 3.0).finish(6.0, 4.0)
    run.finish(7.0, 0.0, feasible=False).finish(8.0, 9.0, feasible=False)

    assert run.state.best == best
    assert run.state.results == ["j2", "j4", "j6", "j7", "j8"]
    assert run.state.since_best == {"j4": 3, "j2": 4}[best]


def test_observations_are_results_and_failures_and_nothing_that_is_under_way() -> None:
    run = Run().finish(2.0, 1.0).finish(4.0, 5.0, feasible=False)
    run.then(DecisionOpened(decision=3), made(6.0, 7.0, 8.0, decision=3))
    run.then(planned(6.0, decision=3), planned(7.0, decision=3), ended("j6"), no_result(6.0))

    found = [(dict(o.candidate), dict(o.values), o.feasible) for o in run.state.observations()]

    assert found == [
        ({"x": 2.0}, {"y": 1.0}, True),
        ({"x": 4.0}, {"y": 5.0}, False),
        ({"x": 6.0}, {}, False),
    ]


def test_what_is_no_event_of_this_version_changes_nothing_but_the_time() -> None:
    run = Run()
    before = replace(run.state)

    run.then(cast(Event, "an event of a later version"))

    assert run.state == replace(before, updated_at=102.0)


def test_every_kind_of_event_changes_what_the_table_says() -> None:
    kinds = set(get_args(get_args(Event)[0]))

    assert set(state_module._TAKE) == kinds


def test_a_state_grows_with_candidates_and_not_with_events() -> None:
    def size(attempts: int) -> int:
        run = Run()
        for number in range(1, 51):
            run.then(DecisionOpened(decision=number))
            for attempt in range(1, attempts + 1):
                run.then(
                    AttemptStarted(decision=number, attempt=attempt),
                    proposed(1.0, decision=number, attempt=attempt),
                    CheckJudged(
                        decision=number, attempt=attempt, check="low", passed=False, reasons=("no",)
                    ),
                )
            run.then(DecisionMade(decision=number, disposition="fallback", attempts=attempts))
        return len(pickle.dumps(run.state))

    assert size(40) < 1.1 * size(2)


@pytest.mark.parametrize(
    ("end", "outcome"),
    [
        (ended("j1", JobState.FAILED), "failed"),
        (JobEnded(job="j1", state=JobState.FAILED, end=End.TIMED_OUT), "timed_out"),
        (JobEnded(job="j1", state=JobState.LOST, end=End.UNKNOWN), None),
    ],
)
def test_what_a_job_without_a_result_says_of_its_candidate_is_told_in_its_own_words(
    end: JobEnded, outcome: str | None
) -> None:
    run = Run()
    run.then(DecisionOpened(decision=1), made(1.0), planned(1.0), end)

    found = [o.outcome for o in run.state.observations()]

    assert found == ([outcome] if outcome else [])


def test_a_rejected_result_is_told_as_one() -> None:
    run = Run()
    run.then(DecisionOpened(decision=1), made(1.0), planned(1.0), ended("j1"), no_result(1.0))

    assert [o.outcome for o in run.state.observations()] == ["rejected"]


@pytest.mark.parametrize("collects", [True, False])
def test_folding_leaves_the_garbage_collector_as_it_was(*, collects: bool) -> None:
    was = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        State.of([Entry(seq=0, at_ns=0, event=opened())])
        left = gc.isenabled()
    finally:
        (gc.enable if was else gc.disable)()

    assert left is collects
