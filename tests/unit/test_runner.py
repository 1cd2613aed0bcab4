"""The runner on small campaigns: real ledger, real checks, tasks run in this process."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from batchgate.answer import Answer
from batchgate.breach import Lesson
from batchgate.campaign import Campaign, Observation, Proposal
from batchgate.decision import Attempt, Rejected
from batchgate.errors import LedgerMismatchError, ProducerError
from batchgate.events import (
    CandidateHeld,
    CheckJudged,
    DecisionMade,
    Event,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ProposalRejected,
    ResultAccepted,
    ResultRejected,
)
from batchgate.job import End, JobSpec, JobState, TaskEnd
from batchgate.ledger import Ledger, read
from batchgate.runner import Model, Recorder, Runner, Stop
from batchgate.state import State
from tests.campaigns import CODE, InlineFlow, campaign


class Script:
    """A producer that answers by script, its last answer over and over."""

    name = "script"

    def __init__(self, *answers: float | list[float] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[Sequence[Attempt[Any]]] = []
        self.results: Sequence[Observation] = ()
        self.campaign: Campaign | None = None

    async def propose(
        self,
        *,
        decision: int,
        results: Sequence[Observation],
        previous: Sequence[Attempt[Any]],
        lessons: Sequence[Lesson] = (),
    ) -> Answer:
        self.asked.append(tuple(previous))
        self.results = results
        answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
        if isinstance(answer, Exception):
            raise answer
        points = answer if isinstance(answer, list) else [answer]
        assert self.campaign is not None
        model = self.campaign.candidate_model
        return Answer(Proposal(candidates=[model(x=x) for x in points]), response_id="r1")

    async def aclose(self) -> None:
        pass


@asynccontextmanager
async def runner(
    loaded: Campaign,
    folder: Path,
    *,
    script: Script | None,
    flow: InlineFlow | None = None,
    slots: int = 1,
    **more: Any,
) -> AsyncIterator[Runner]:
    folder.mkdir(exist_ok=True)
    if script is not None:
        script.campaign = loaded
    with Ledger.open(folder / "ledger", run="test") as ledger:
        recorder = Recorder.of(ledger)
        yield Runner(
            loaded,
            recorder,
            flow or InlineFlow(),
            folder,
            slots=slots,
            model=Model("script", producer=script) if script else None,
            **more,
        )


async def run(loaded: Campaign, folder: Path, **more: Any) -> tuple[Stop | None, list[Event]]:
    async with runner(loaded, folder, **more) as made:
        stop = await made.run()
    return stop, events(folder)


def events(folder: Path) -> list[Event]:
    return [entry.event for entry in read(folder / "ledger")]


def of(kind: type[Any], found: list[Event]) -> list[Any]:
    return [event for event in found if isinstance(event, kind)]


async def test_an_accepted_proposal_becomes_a_job_with_a_result(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})

    stop, found = await run(loaded, tmp_path / "r", script=Script(2.0))

    assert stop == Stop("jobs", "1 candidates were evaluated")
    (decision,) = of(DecisionMade, found)
    assert decision.disposition == "accepted"
    assert of(ResultAccepted, found)[0].values == {"y": 1.0}
    assert of(JobEnded, found)[0].state is JobState.COMPLETED


async def test_checks_judge_in_order_and_a_rejection_spares_the_verifier(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    flow = InlineFlow()

    _, found = await run(loaded, tmp_path / "r", script=Script(-1.0, 2.0), flow=flow)

    judged = [(c.attempt, c.check, c.passed) for c in of(CheckJudged, found)]
    assert judged == [
        (1, "space", True),
        (1, "low", False),
        (2, "space", True),
        (2, "low", True),
        (2, "duplicate", True),
        (2, "cheap", True),
    ]
    assert len(flow.calls) == 1


async def test_a_re_ask_is_given_the_rejected_proposal_and_the_reasons(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    script = Script(-1.0, 2.0)

    await run(loaded, tmp_path / "r", script=script)

    (previous,) = script.asked[1]
    assert previous.value.points() == ({"x": -1.0},)
    assert previous.rejected_by == "low"
    assert previous.reasons == ("x is -1, must be at least 0",)


async def test_a_verifier_rejects_what_its_level_does_not_accept(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})

    _, found = await run(loaded, tmp_path / "r", script=Script(9.0, 2.0))

    refused = next(c for c in of(CheckJudged, found) if c.check == "cheap")
    assert not refused.passed
    assert refused.reasons == ("y is 36, must be below 30",)
    assert refused.observables == ({"y": 36.0},)


async def test_out_of_attempts_the_surrogates_batch_is_taken_and_marked(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})

    _, found = await run(loaded, tmp_path / "r", script=Script(-1.0))

    (decision,) = of(DecisionMade, found)
    assert (decision.disposition, decision.cause) == ("fallback", "rejected")
    assert decision.attempts == 2
    assert loaded.problems(decision.candidates[0].candidate) == []


async def test_a_twin_of_a_running_or_evaluated_candidate_is_rejected_by_name(
    tmp_path: Path,
) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 2})

    _, found = await run(loaded, tmp_path / "r", script=Script(2.0, 2.0, 4.0))

    twin = next(c for c in of(CheckJudged, found) if c.check == "duplicate" and not c.passed)
    assert "repeats " in twin.reasons[0]
    assert len({job.fingerprint for job in of(JobPlanned, found)}) == 2


async def test_a_candidate_that_a_verifier_refused_is_known(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1}, producer={"attempts": 3})

    _, found = await run(loaded, tmp_path / "r", script=Script(9.0, 9.0, 2.0))

    second = [c for c in of(CheckJudged, found) if c.attempt == 2]
    assert second[-1].check == "duplicate"
    assert second[-1].reasons == (
        "repeats D1.1, which was refused by a verifier; choose another point",
    )


async def test_tolerance_makes_twins_of_neighbours(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 2}, duplicates={"tolerance": 0.05})

    _, found = await run(loaded, tmp_path / "r", script=Script(2.0, 2.9, 4.0))

    twin = next(c for c in of(CheckJudged, found) if c.check == "duplicate" and not c.passed)
    assert "lies within 0.05 of the range of" in twin.reasons[0]


async def test_the_reasons_of_a_batch_say_which_candidate_they_mean(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 2}, producer={"batch": 2})

    _, found = await run(loaded, tmp_path / "r", script=Script([2.0, -1.0], [2.0, 4.0]))

    rejected = next(c for c in of(CheckJudged, found) if c.check == "low" and not c.passed)
    assert rejected.reasons == ("candidate 2: x is -1, must be at least 0",)
    assert rejected.refused == (loaded.space.fingerprint({"x": -1.0}),)


async def test_a_candidate_that_stands_twice_in_a_proposal_is_rejected(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 2}, producer={"batch": 2})

    _, found = await run(loaded, tmp_path / "r", script=Script([2.0, 2.0], [2.0, 4.0]))

    rejected = next(c for c in of(CheckJudged, found) if not c.passed)
    assert rejected.reasons == ("candidate 2: stands twice in the proposal",)


async def test_a_producers_own_rejection_is_recorded_with_what_it_said(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    refusal = Rejected("it refused", check="refusal", value="I'm sorry \ud800")

    _, found = await run(loaded, tmp_path / "r", script=Script(refusal, 2.0))

    (rejected,) = of(ProposalRejected, found)
    assert (rejected.stage, rejected.reasons) == ("refusal", ("it refused",))
    assert rejected.value == {"$s": "I'm sorry \\ud800"}


async def test_a_producer_that_fails_leaves_the_decision_to_the_surrogate(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})

    _, found = await run(
        loaded, tmp_path / "r", script=Script(ProducerError("no answer", "timeout"))
    )

    (failure,) = of(FailureRecorded, found)
    assert (failure.kind, failure.what) == ("producer", "timeout")
    (decision,) = of(DecisionMade, found)
    assert (decision.disposition, decision.cause) == ("fallback", "producer")


async def test_a_verifier_that_failed_is_run_again_and_then_ends_the_decision(
    tmp_path: Path,
) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    broken = [TaskEnd(End.WORKER_LOST, error="gone")] * 2
    flow = InlineFlow(ends=lambda task: broken.pop() if broken else None)

    _, found = await run(loaded, tmp_path / "r", script=Script(2.0, 4.0), flow=flow)

    failures = of(FailureRecorded, found)
    assert [(f.kind, f.what, f.again) for f in failures] == [
        ("verifier", "worker_lost", True),
        ("verifier", "worker_lost", False),
    ]
    assert [d.disposition for d in of(DecisionMade, found)] == ["failed", "accepted"]


@pytest.mark.parametrize("odd", [None, 3, [], {}, "text", {str(i): 1.0 for i in range(101)}])
async def test_a_verifier_that_returns_something_odd_is_no_pass(tmp_path: Path, odd: Any) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1}, failure={"in_a_row": 4})
    flow = InlineFlow(ends=lambda task: TaskEnd(End.COMPLETED, value=odd))

    stop, found = await run(loaded, tmp_path / "r", script=Script(2.0), flow=flow)

    assert stop is not None
    assert (stop.rule, stop.failed) == ("failures", True)
    assert of(JobPlanned, found) == []
    assert {f.what for f in of(FailureRecorded, found)} >= {"odd_result"}


async def test_a_verifiers_nan_is_a_rejection(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    odd = [TaskEnd(End.COMPLETED, value={"y": float("nan")})]
    flow = InlineFlow(ends=lambda task: odd.pop() if odd else None)

    _, found = await run(loaded, tmp_path / "r", script=Script(2.0, 4.0), flow=flow)

    refused = next(c for c in of(CheckJudged, found) if not c.passed)
    assert refused.reasons == ("y is nan, must be a finite number",)
    assert refused.observables == ({"y": {"$f": "nan"}},)


async def test_a_check_that_crashes_lets_nothing_through_and_is_named(tmp_path: Path) -> None:
    code = CODE.replace('if candidate["x"] < 0', 'if candidate["nope"] < 0')
    loaded = campaign(tmp_path / "c", code=code, failure={"in_a_row": 3})

    stop, found = await run(loaded, tmp_path / "r", script=Script(2.0))

    assert stop is not None
    assert stop.failed
    assert stop.reason == "3 check failures in a row"
    assert [(f.kind, f.what) for f in of(FailureRecorded, found)] == [("check", "low")] * 3
    assert of(JobPlanned, found) == []


async def test_slots_run_jobs_together_and_never_more(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 6}, producer={"decisions": 4})
    flow = InlineFlow(delay_s=0.05)
    script = Script(*[i / 10 for i in range(1, 40)])

    await run(loaded, tmp_path / "r", script=script, flow=flow, slots=3)

    assert flow.together == 3
    assert len(flow.jobs) == 6


async def test_a_slot_that_would_idle_gets_the_surrogates_candidate(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 2}, fallback={"idle_s": 0, "start_s": 0})

    async with runner(loaded, tmp_path / "r", script=Script(2.0), slots=2) as made:
        assert made.model is not None
        made.model.producer = None  # the server is still starting
        await made.run()

    decisions = of(DecisionMade, events(tmp_path / "r"))
    assert {(d.disposition, d.cause) for d in decisions} == {("fallback", "idle")}


async def test_without_a_model_the_surrogate_does_it_all(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 4})

    stop, found = await run(loaded, tmp_path / "r", script=None, slots=2)

    assert stop is not None
    assert stop.rule == "jobs"
    assert len(of(ResultAccepted, found)) == 4


async def test_reservations_never_exceed_the_grant(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 50, "node_h": 0.025})
    flow = InlineFlow(delay_s=0.01)
    script = Script(*[i / 10 for i in range(1, 90)])

    async with runner(loaded, tmp_path / "r", script=script, flow=flow, slots=8) as made:
        most: list[float] = []

        def note(state: State) -> bool:
            most.append(state.charged_node_h + state.reserved_node_h)
            return False

        _when(made, note, lambda: None)
        stop = await made.run()

    assert stop is not None
    assert max(most) <= 0.025
    assert flow.together <= 2


async def test_a_job_that_exits_with_0_and_leaves_no_result_failed(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    flow = InlineFlow(ends=_jobs(lambda: TaskEnd(End.COMPLETED, exit_code=0)))

    _, found = await run(loaded, tmp_path / "r", script=Script(2.0), flow=flow)

    first, second = of(JobEnded, found)
    assert first.state is second.state is JobState.FAILED
    assert first.error == "it exited with 0 and left no result"
    assert (first.again, second.again) == (True, False)
    assert of(ResultAccepted, found) == []


async def test_a_job_that_used_up_its_walltime_is_not_run_again(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    flow = InlineFlow(ends=_jobs(lambda: TaskEnd(End.TIMED_OUT, started_at=10, ended_at=46)))

    _, found = await run(loaded, tmp_path / "r", script=Script(2.0), flow=flow)

    (ended,) = of(JobEnded, found)
    assert (ended.state, ended.end, ended.again) == (JobState.FAILED, End.TIMED_OUT, False)
    assert ended.charged_node_h == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ('return {"y": float("nan")}', "y is missing or not a finite number"),
        ('return {"z": 1.0}', "y is missing or not a finite number"),
        ("return 3", "the result is int, must be a mapping"),
    ],
)
async def test_a_result_that_is_none_is_kept_and_never_learned(
    tmp_path: Path, body: str, reason: str
) -> None:
    code = CODE.replace(
        'def full(candidate):\n    return {"y": (candidate["x"] - 3) ** 2}',
        f"def full(candidate):\n    {body}",
    )
    loaded = campaign(tmp_path / "c", code=code, stop={"jobs": 2})
    script = Script(2.0, 4.0)

    _, found = await run(loaded, tmp_path / "r", script=script)

    assert {r.reasons for r in of(ResultRejected, found)} == {(reason,)}
    assert of(ResultAccepted, found) == []
    assert [o.values for o in script.results if o.values] == []


async def test_a_job_result_is_judged_by_its_levels_own_bounds(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    level = loaded.spec.job.model_copy(update={"accept": {"y": loaded.spec.level[0].accept["y"]}})
    loaded = Campaign.of(
        loaded.spec.model_copy(update={"level": (*loaded.spec.verifiers, level)}),
        folder=loaded.folder,
    )
    flow = InlineFlow(
        ends=lambda task: (
            TaskEnd(End.COMPLETED, value={"y": 1.0}) if not isinstance(task, JobSpec) else None
        )
    )

    _, found = await run(loaded, tmp_path / "r", script=Script(9.5), flow=flow)

    assert of(ResultRejected, found)[0].reasons == ("y is 42.25, must be below 30",)


async def test_a_result_that_misses_a_constraint_is_a_result(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1}, constraints={"y": ["LESS_THAN", 0.5]})

    async with runner(loaded, tmp_path / "r", script=Script(2.0)) as made:
        await made.run()

    (result,) = of(ResultAccepted, events(tmp_path / "r"))
    assert not result.feasible
    assert made.state.best is None


@pytest.mark.parametrize(
    ("stop", "rule"),
    [
        ({"jobs": 2}, "jobs"),
        ({"jobs": None, "target": {"y": 1.0}}, "target"),
        ({"jobs": None, "stall": 2}, "stall"),
        ({"jobs": None, "node_h": 0.0100001}, "node_h"),
        ({"jobs": None, "wall_s": 0.3}, "wall_s"),
    ],
)
async def test_each_stop_rule_ends_the_run_and_is_its_last_word(
    tmp_path: Path, stop: dict[str, Any], rule: str
) -> None:
    loaded = campaign(tmp_path / "c", stop={"node_h": 1.0, **stop})
    script = Script(2.0, 4.5, 5.0, 5.5, 6.0, 0.5, 7.0, 1.0, 1.2, 1.4, 6.1, 6.2)
    flow = InlineFlow(delay_s=0.05)

    ended, found = await run(loaded, tmp_path / "r", script=script, flow=flow)

    assert ended is not None
    assert ended.rule == rule
    assert found[-2].type == "run_stopped"
    assert found[-1].type == "segment_closed"


async def test_no_admissible_candidate_ends_the_run(tmp_path: Path) -> None:
    code = CODE.replace('candidate["x"] < 0', 'candidate["x"] < 99')
    loaded = campaign(tmp_path / "c", code=code, stop={"rejected": 3}, failure={"in_a_row": 9})

    ended, found = await run(loaded, tmp_path / "r", script=Script(2.0))

    assert ended is not None
    assert ended.rule == "rejected"
    assert {f.kind for f in of(FailureRecorded, found)} == {"surrogate"}


async def test_a_suspended_run_ends_its_jobs_and_the_next_life_runs_them(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    slow = InlineFlow(delay_s=60)

    async with runner(loaded, tmp_path / "r", script=Script(2.0), flow=slow) as made:
        _when(made, lambda state: bool(state.running), lambda: made.suspend("SIGTERM"))
        assert await made.run() is None
    _, found = await run(loaded, tmp_path / "r", script=Script(4.0))

    first, second = of(JobEnded, found)
    assert (first.state, first.again) == (JobState.CANCELED, True)
    assert second.state is JobState.COMPLETED
    assert len({job.fingerprint for job in of(JobPlanned, found)}) == 1


async def test_a_finished_run_stays_finished_and_goes_on_when_its_rules_are_widened(
    tmp_path: Path,
) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    await run(loaded, tmp_path / "r", script=Script(2.0))

    again, _ = await run(loaded, tmp_path / "r", script=Script(4.0))
    wider = campaign(tmp_path / "c", stop={"jobs": 2})
    more, found = await run(wider, tmp_path / "r", script=Script(4.0))

    assert again is not None
    assert again.rule == "jobs"
    assert more is not None
    assert len(of(ResultAccepted, found)) == 2


async def test_the_run_directory_of_another_campaign_is_refused(tmp_path: Path) -> None:
    await run(campaign(tmp_path / "c"), tmp_path / "r", script=Script(2.0, 4.0, 5.0))
    other = campaign(tmp_path / "d", campaign={"name": "other"}, stop={"jobs": 9})

    with pytest.raises(LedgerMismatchError, match="holds a run of campaign 'square'"):
        await run(other, tmp_path / "r", script=Script(2.0))


async def test_candidates_left_over_at_the_end_are_held_with_the_reason(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1}, producer={"batch": 3})

    _, found = await run(loaded, tmp_path / "r", script=Script([2.0, 4.0, 5.0]))

    assert [held.cause for held in of(CandidateHeld, found)] == ["jobs", "jobs"]


def _jobs(end: Callable[[], TaskEnd]) -> Callable[[Any], TaskEnd | None]:
    return lambda task: end() if isinstance(task, JobSpec) else None


def _when(made: Runner, holds: Callable[[State], bool], then: Callable[[], None]) -> None:
    def observe(entry: Any, state: State) -> None:
        if holds(state):
            then()

    watched = Recorder(made.recorder.ledger, made.recorder.state, observe)
    made.recorder = watched
    made.__post_init__()


async def test_a_proposal_carries_its_answers_id_for_telemetry(tmp_path: Path) -> None:
    loaded = campaign(tmp_path / "c", stop={"jobs": 1})
    script = Script(-1.0, 2.0)

    await run(loaded, tmp_path / "r", script=script)

    (previous,) = script.asked[1]
    assert previous.value.response_metadata == {"id": "r1"}


def test_a_proposal_without_an_answer_has_no_id() -> None:
    assert Proposal().response_metadata == {}
