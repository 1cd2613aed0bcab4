from __future__ import annotations

import json
import math
from typing import Any

import pytest

from batchgate.events import (
    AttemptStarted,
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
)
from batchgate.job import End, JobState
from batchgate.review.figures import Judged, ReasonCount, Summary
from batchgate.review.record import RunRecord
from tests.synthetic_run import START_AT, Script, chosen, figures, night, opened


def summary(script: Script) -> Summary:
    return figures(script.entries)


class Scene(Script):
    """A script that writes whole decisions and jobs."""

    def __init__(self, **changes: Any) -> None:
        super().__init__()
        self.begin(**changes)
        self.decision = 0

    def decide(self, *attempts: str, disposition: Any = "", cause: str = "") -> Scene:
        """Write a decision.

        An attempt is `x1`, or `x1!check` when that check rejects it, or `!stage`.
        """
        self.decision += 1
        self.add(DecisionOpened(decision=self.decision))
        for number, attempt in enumerate(attempts, start=1):
            self._attempt(number, *attempt.split("!"))
        last = attempts[-1].partition("!")
        disposition = disposition or ("fallback" if last[1] else "accepted")
        taken = {"accepted": last[0], "fallback": "9"}.get(disposition)
        candidates = (chosen(x1=float(taken), x2=2.0),) if taken else ()
        made = DecisionMade(
            decision=self.decision, disposition=disposition, candidates=candidates, cause=cause
        )
        self.add(made)
        return self

    def _attempt(self, number: int, value: str, rejected_by: str = "") -> None:
        where = {"decision": self.decision, "attempt": number}
        self.add(AttemptStarted(**where))
        if not value:
            self.add(ProposalRejected(**where, stage=rejected_by, reasons=("no JSON",)))
            return
        proposal = {"candidates": [{"x1": float(value), "x2": 2.0}]}
        self.add(ProposalMade(**where, proposal=proposal, input_tokens=100, output_tokens=10))
        for name in ("disc", "spacing"):
            bad = name == rejected_by
            reasons = (f"x1={value} is bad",) if bad else ()
            self.add(
                CheckJudged(**where, check=name, passed=not bad, reasons=reasons, elapsed_s=0.5)
            )
            if bad:
                return

    def run(self, y: float | None = None, *, feasible: bool = True, **end: Any) -> Scene:
        """Launch what the last decision let through; without `y` it ends as `end` says."""
        made = self.entries[-1].event
        assert isinstance(made, DecisionMade)
        one, job = made.candidates[0], f"j{self.decision}"
        plan = JobPlanned(
            job=job,
            decision=self.decision,
            fingerprint=one.fingerprint,
            candidate=one.candidate,
            level="fine",
            reserved_node_h=0.5,
            walltime_s=600,
        )
        self.add(plan)
        ended = {"state": JobState.COMPLETED, "end": End.COMPLETED, "charged_node_h": 0.25} | end
        self.add(JobEnded(job=job, **ended))
        if y is not None:
            self.add(
                ResultAccepted(
                    job=job, fingerprint=one.fingerprint, values={"y": y}, feasible=feasible
                )
            )
        return self

    def verify(self, x1: float, cheap: float, *, passed: bool = True) -> Scene:
        """Open a decision whose verifier measured `cheap`, and let its candidate through."""
        self.decision += 1
        one = chosen(x1=x1, x2=2.0)
        where = {"decision": self.decision, "attempt": 1}
        self.add(
            DecisionOpened(decision=self.decision),
            AttemptStarted(**where),
            ProposalMade(**where, proposal={"candidates": [dict(one.candidate)]}),
            CheckJudged(
                **where,
                check="coarse",
                passed=passed,
                refused=() if passed else (one.fingerprint,),
                verifier=True,
                observables=({"y": cheap, "label": "text"},),
                node_h=0.01,
            ),
            DecisionMade(decision=self.decision, disposition="accepted", candidates=(one,)),
        )
        return self


# --- how it ended --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("events", "how", "reason"),
    [
        ((), "open", "it runs still, or its runner was killed"),
        ((SegmentClosed(),), "closed", "its runner ended in order, on an error"),
        ((RunSuspended(reason="SIGTERM"), SegmentClosed()), "suspended", "SIGTERM"),
        ((RunStopped(rule="jobs", reason="8 jobs"), SegmentClosed()), "stopped", "8 jobs"),
        (
            (RunStopped(rule="failures", reason="5 in a row", failed=True), SegmentClosed()),
            "failed",
            "5 in a row",
        ),
        (
            (
                RunStopped(rule="jobs", reason="8 jobs"),
                SegmentClosed(),
                opened(2),
                RunResumed(version="0.1.0"),
            ),
            "open",
            "it runs still, or its runner was killed",
        ),
    ],
)
def test_the_ending_is_that_of_the_last_life(
    events: tuple[Event, ...], how: str, reason: str
) -> None:
    ending = summary(Scene().add(*events)).ending

    assert (ending.how, ending.reason) == (how, reason)


def test_a_run_without_events_is_empty() -> None:
    found = figures([])

    assert found.ending.how == "empty"
    assert (found.best, found.wall_s, found.slots.busy_share) == (None, 0, None)
    assert json.loads(found.to_json())["decisions"] == {}


# --- the gate ------------------------------------------------------------------------------------


def test_decisions_are_counted_by_how_they_ended() -> None:
    scene = Scene()
    scene.decide("1").decide("2!disc", cause="rejected").decide("3!disc", cause="rejected")
    scene.decide("4", disposition="failed", cause="verifier")
    scene.add(DecisionOpened(decision=9))

    found = summary(scene)

    assert found.decisions == {"fallback": 2, "accepted": 1, "failed": 1, "open": 1}
    assert found.causes == {"rejected": 2}
    assert found.attempts == {"rejected": 2, "accepted": 1, "failed": 1}


def test_verdicts_are_counted_by_check_and_attempt_in_the_order_of_the_gate() -> None:
    scene = Scene().decide("1!disc", "2!spacing", "3").decide("4!disc", "!schema", "5!spacing")

    found = {check.name: check for check in summary(scene).checks}

    assert list(found) == ["schema", "disc", "spacing"]
    assert [check.kind for check in found.values()] == ["stage", "check", "check"]
    assert found["schema"].by_attempt == (Judged(1, 2, 0), Judged(2, 2, 1), Judged(3, 2, 0))
    assert found["disc"].by_attempt == (Judged(1, 2, 2), Judged(2, 1, 0), Judged(3, 2, 0))
    assert found["spacing"].by_attempt == (Judged(2, 1, 1), Judged(3, 2, 1))
    assert (found["spacing"].judged, found["spacing"].rejected) == (3, 2)
    assert found["spacing"].elapsed_s == pytest.approx(1.5)


def test_reasons_that_differ_in_numbers_only_count_as_one() -> None:
    scene = Scene().decide("1!disc", "2!disc", "3!disc")

    (disc,) = (check for check in summary(scene).checks if check.name == "disc")

    assert disc.reasons == (ReasonCount("x1=# is bad", "x1=1 is bad", 3),)


def test_acceptance_is_told_by_attempt_number_with_its_interval() -> None:
    scene = Scene().decide("1").decide("2!disc", "3").decide("4!disc", "5!disc")

    first, second = summary(scene).asks

    assert (first.attempt, first.asked, first.accepted) == (1, 3, 1)
    assert (second.attempt, second.asked, second.accepted) == (2, 2, 1)
    assert (second.low, second.high) == pytest.approx((0.0945, 0.9055), abs=1e-3)


def test_what_followed_a_rejection_is_told() -> None:
    scene = Scene()
    scene.decide("1!disc", "2")
    scene.decide("3!disc", "3!disc", "4!spacing")
    scene.decide("5!disc", "6!disc", "7", disposition="failed")

    assert summary(scene).reasks == {
        "accepted": 1,
        "other_check": 1,
        "repeated": 1,
        "same_check": 1,
        "unjudged": 1,
    }


def test_tokens_are_added_up() -> None:
    found = summary(Scene().decide("1!disc", "2"))

    assert (found.input_tokens, found.output_tokens) == (200, 20)


# --- jobs and results ----------------------------------------------------------------------------


def test_the_best_result_tells_where_it_came_from_and_how_far_it_got() -> None:
    scene = (
        Scene().decide("1").run(5.0).decide("2!disc").run(3.0).decide("3").run(1.0, feasible=False)
    )
    scene.decide("4").run(4.0)

    best = summary(scene).best

    assert best is not None
    assert (best.job, best.decision, best.source) == ("j2", 2, "surrogate")
    assert (best.objective, best.minimise, best.value, best.first) == ("y", True, 3.0, 5.0)
    assert (best.of_model, best.of_surrogate) == (4.0, 3.0)
    assert best.candidate == {"x1": 9.0, "x2": 2.0}
    assert best.units == {"x1": "mm", "x2": "mm"}


def test_the_best_of_a_maximised_objective_is_the_highest() -> None:
    scene = Scene(objectives={"y": "MAXIMIZE"}).decide("1").run(5.0).decide("2").run(7.0)

    best = summary(scene).best

    assert best is not None
    assert (best.value, best.first, best.of_model, best.of_surrogate) == (7.0, 5.0, 7.0, None)


def test_node_hours_are_told_by_outcome_and_source() -> None:
    scene = Scene().decide("1").run(5.0).decide("2!disc").run(3.0)
    scene.decide("3").run(state=JobState.FAILED, end=End.TIMED_OUT, charged_node_h=0.5)
    scene.verify(4.0, 1.0)

    spent = summary(scene).node_h

    assert (spent.granted, spent.charged, spent.reserved, spent.free) == (20, 1.0, 0, 19)
    assert spent.by_outcome == {"feasible": 0.5, "timed_out": 0.5}
    assert (spent.model, spent.surrogate, spent.verifiers) == (0.75, 0.25, 0.01)


def test_jobs_and_failures_are_counted() -> None:
    scene = Scene().decide("1").run(5.0).decide("2").run(state=JobState.FAILED, end=End.TIMED_OUT)
    scene.add(FailureRecorded(kind="job", what="timed_out", message="killed"))

    found = summary(scene)

    assert found.jobs == {"feasible": 1, "timed_out": 1}
    assert found.failures == {"job: timed_out": 1}


def test_slots_tell_their_longest_idle_gaps() -> None:
    found = summary(Scene(slots=2).add(SegmentClosed(), after_s=10)).slots

    assert (found.slots, found.held_s, found.busy_s, found.busy_share) == (2, 20, 0, 0)
    assert [(gap.slot, gap.start_at, gap.length_s) for gap in found.gaps] == [
        (1, START_AT, 10),
        (2, START_AT, 10),
    ]


# --- verifiers -----------------------------------------------------------------------------------


def test_a_verifier_is_compared_with_the_results_of_jobs() -> None:
    scene = Scene().verify(1.0, 10).run(1.0).verify(2.0, 20).run(2.0, feasible=False)
    scene.verify(3.0, 30).verify(4.0, 90, passed=False).run(4.0)
    scene.verify(5.0, 95, passed=False)
    scene.verify(6.0, 50).run()
    fingerprint = chosen(x1=6.0, x2=2.0).fingerprint
    scene.add(ResultRejected(job="j6", fingerprint=fingerprint, reasons=("diverged",)))

    (found,) = summary(scene).verifiers

    assert (found.passed_good, found.passed_bad, found.passed_unknown) == (1, 2, 1)
    assert (found.refused_good, found.refused_bad, found.refused_unknown) == (1, 0, 1)
    (rank,) = found.ranks
    assert (rank.observable, rank.pairs) == ("y", 3)
    assert rank.spearman == pytest.approx(1)


# IQ and hours of television: 1 - 6 * 194 / (10 * 99) = -29/165.
IQ = [106, 86, 100, 101, 99, 103, 97, 113, 112, 110]
HOURS = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17]


@pytest.mark.parametrize(
    ("cheap", "dear", "correlation"),
    [
        ([1, 2, 3], [10, 100, 1000], 1),
        ([1, 2, 3], [1000, 100, 10], -1),
        (IQ, HOURS, -29 / 165),
        # Equal values share their mean rank, 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
        ([1, 2, 2, 3], [1, 2, 3, 4], 4.5 / math.sqrt(4.5 * 5)),
        ([1, 3], [2, 4], None),  # too few
        ([1, 1, 1], [1, 2, 3], None),  # one side never varies
    ],
)
def test_a_verifier_is_told_by_the_rank_correlation_of_what_both_measured(
    cheap: list[float], dear: list[float], correlation: float | None
) -> None:
    scene = Scene()
    for place, (one, other) in enumerate(zip(cheap, dear, strict=True)):
        scene.verify(float(place), one).run(float(other))

    ((rank,),) = (found.ranks for found in summary(scene).verifiers)

    assert rank.spearman == (None if correlation is None else pytest.approx(correlation))


@pytest.mark.parametrize(("pairs", "warned"), [(9, False), (10, True)])
def test_a_verifier_that_does_not_rank_is_warned_of_from_ten_pairs_on(
    pairs: int, warned: bool
) -> None:
    scene = Scene()
    for place in range(pairs):
        scene.verify(float(place), cheap=(place * 7) % 5).run(float(place))

    found = summary(scene)

    assert found.verifiers[0].ranks[0].poor is warned
    assert any("does not rank y" in warning for warning in found.warnings) is warned


def test_a_verifier_that_ranks_well_is_not_warned_of() -> None:
    scene = Scene()
    for place in range(10):
        scene.verify(float(place), cheap=place * 2.0).run(float(place))

    assert summary(scene).warnings == ()


# --- warnings ------------------------------------------------------------------------------------


def test_failures_that_ended_the_run_are_warned_of_first() -> None:
    scene = Scene().add(RunStopped(rule="failures", reason="5 in a row", failed=True), after_s=99)

    first, second = summary(scene).warnings

    assert first == "Failures ended the run: 5 in a row"
    assert second == "The slots were busy only 0% of the time."


def test_a_model_that_repeats_itself_is_warned_of() -> None:
    scene = Scene().decide("1!disc", "1!disc", "1!disc", "1!disc")

    assert summary(scene).warnings == (
        "3 of 3 re-asks brought the same value again. Raise producer.temperature_step.",
    )


# --- as JSON -------------------------------------------------------------------------------------


def test_a_summary_is_strict_json_with_the_names_of_its_attributes() -> None:
    found = figures(night())

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    told = json.loads(found.to_json(), parse_constant=refuse)

    assert set(told) == set(Summary.__dataclass_fields__)
    assert told["ending"]["how"] == "stopped"
    assert told["best"]["value"] == found.best.value if found.best else None
    assert sum(told["decisions"].values()) == len(RunRecord.of(night()).decisions)
