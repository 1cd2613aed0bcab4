"""A summary is counted by SQL; the rows of a run's record, made event by event, say the same."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple
from itertools import pairwise

import pytest

from batchgate.review import summarise
from batchgate.review.figures import Summary
from batchgate.review.occupancy import Occupancy
from batchgate.review.record import RunRecord
from batchgate.review.rows import AttemptRow
from tests.synthetic_run import hostile, kept, night

NIGHTS = [night(seed=seed, decisions=60, everything=True) for seed in range(1, 5)]
RUNS = [
    *NIGHTS,
    night(seed=5, decisions=40),
    hostile(),
    # Runs that still go on, or were killed: cut off anywhere.
    *(NIGHTS[cut % 4][: cut * 37] for cut in range(1, 9)),
]


@pytest.fixture(scope="module", params=[*range(len(RUNS)), "bare"])
def both(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[RunRecord, Summary]:
    run = tmp_path_factory.mktemp("run") / "run"
    bare = request.param == "bare"
    entries = NIGHTS[0] if bare else RUNS[request.param]
    return RunRecord.of(entries), summarise(kept(entries, run, bare=bare))


def test_decisions_attempts_and_jobs_are_those_of_the_rows(both: tuple[RunRecord, Summary]) -> None:
    record, found = both
    waiting = {q.what for q in record.questions if q.answered_at is None}

    assert found.decisions == Counter(
        "parked" if f"D{d.number}" in waiting else d.disposition or "open" for d in record.decisions
    )
    assert found.attempts == Counter(a.outcome for a in record.attempts)
    assert found.jobs == Counter("parked" if j.job in waiting else j.outcome for j in record.jobs)
    assert found.held == Counter(h.cause for h in record.held)
    assert found.failures == Counter(f"{f.kind}: {f.what}" for f in record.failures)
    assert found.input_tokens == sum(a.input_tokens for a in record.attempts)
    assert found.output_tokens == sum(a.output_tokens for a in record.attempts)


def test_verdicts_and_reasons_are_those_of_the_rows(both: tuple[RunRecord, Summary]) -> None:
    record, found = both
    judged = Counter((c.check, a.number) for a in record.attempts for c in a.checks)
    bad = Counter((c.check, a.number) for a in record.attempts for c in a.checks if not c.passed)

    checks = [check for check in found.checks if check.kind != "stage"]

    assert {(c.name, j.attempt): j.judged for c in checks for j in c.by_attempt} == judged
    assert {
        (c.name, j.attempt): j.rejected for c in checks for j in c.by_attempt if j.rejected
    } == (bad)
    for check in checks:
        told = [c.reasons for a in record.attempts for c in a.checks if c.check == check.name]
        assert sum(r.count for r in check.reasons) <= sum(map(len, told))
        assert {r.example for r in check.reasons} <= {r for reasons in told for r in reasons}
    stages = Counter(a.rejected_by[0] for a in record.attempts if a.rejected_by and not a.checks)
    assert {c.name: c.rejected for c in found.checks if c.kind == "stage"} == stages


def test_what_followed_a_rejection_is_that_of_the_rows(both: tuple[RunRecord, Summary]) -> None:
    record, found = both
    after = [
        (one, _followed(one, other))
        for decision in record.decisions
        for one, other in pairwise(decision.attempts)
        if one.outcome == "rejected"
    ]

    assert found.reasks == Counter(word for _, word in after)
    assert {t.check: dict(t.followed) for t in found.transitions} == {
        check: Counter(word for one, word in after if check in one.rejected_by)
        for one, _ in after
        for check in one.rejected_by
    }


def _followed(one: AttemptRow, other: AttemptRow) -> str:
    if other.outcome != "rejected":
        return "accepted" if other.outcome == "accepted" else "unjudged"
    if one.identity == other.identity:
        return "repeated"
    return "same_check" if {*one.rejected_by} & {*other.rejected_by} else "other_check"


def test_node_hours_time_and_the_best_are_those_of_the_rows(
    both: tuple[RunRecord, Summary],
) -> None:
    record, found = both
    state, spent = record.state, found.node_h

    assert (found.run, found.campaign, found.lives) == (
        state.run,
        record.campaign,
        len(record.lives),
    )
    assert (found.started_at, found.wall_s) == pytest.approx((state.started_at, state.wall_s))
    assert (spent.granted, spent.charged, spent.reserved, spent.free, spent.verifiers) == (
        pytest.approx(
            (
                state.granted_node_h,
                state.charged_node_h,
                state.reserved_node_h,
                state.free_node_h,
                state.verifier_node_h,
            )
        )
    )
    by_outcome: Counter[str] = Counter()
    for job in record.jobs:
        by_outcome[job.outcome] += job.charged_node_h  # type: ignore[assignment]
    assert spent.by_outcome == pytest.approx({k: v for k, v in by_outcome.items() if v})
    assert (found.best.job if found.best else None) == state.best
    if found.best:
        assert record.best is not None
        assert found.best.source == record.best.source
        assert found.best.candidate == record.best.candidate
        assert found.best.values == record.best.values


def test_slots_are_those_of_the_lanes(both: tuple[RunRecord, Summary]) -> None:
    record, found = both
    use = Occupancy.of(record)

    assert found.slots.held_s == pytest.approx(use.held_s)
    assert found.slots.busy_s == pytest.approx(use.busy_s)
    assert [g.slot for g in found.slots.gaps] == [g.lane + 1 for g in use.longest(5)]
    assert [g.start_at for g in found.slots.gaps] == pytest.approx(
        [g.start_at for g in use.longest(5)]
    )


def test_verifiers_are_compared_as_the_pairs_say(both: tuple[RunRecord, Summary]) -> None:
    record, found = both
    counts = Counter((p.verifier, p.passed, p.good) for p in record.pairs)

    told = {
        (v.name, passed, good): n
        for v in found.verifiers
        for passed, good, n in (
            (True, True, v.passed_good),
            (True, False, v.passed_bad),
            (True, None, v.passed_unknown),
            (False, True, v.refused_good),
            (False, False, v.refused_bad),
            (False, None, v.refused_unknown),
        )
        if n
    }

    assert told == counts
    assert None not in [n for v in found.verifiers for n in astuple(v)]
    for verifier in found.verifiers:
        for rank in verifier.ranks:
            assert rank.pairs == sum(
                p.verifier == verifier.name
                and rank.observable in p.values
                and isinstance(p.observables.get(rank.observable), (int, float))
                for p in record.pairs
            )
