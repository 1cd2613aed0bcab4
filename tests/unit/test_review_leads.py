from __future__ import annotations

from dataclasses import replace

import pytest

from batchgate.review.leads import SPOTS, Lead, leads
from batchgate.review.record import RunRecord
from tests.synthetic_run import Script, night


@pytest.fixture(scope="module")
def record() -> RunRecord:
    return RunRecord.of(night(decisions=90, everything=True))


def named(found: tuple[Lead, ...], rule: str) -> Lead:
    return next(lead for lead in found if rule in lead.rule)


def test_a_run_without_decisions_has_nothing_to_look_at() -> None:
    assert leads(RunRecord.of(Script().begin().entries)) == ()


def test_what_waits_for_a_person_comes_first_and_then_where_the_gate_was_wrong(
    record: RunRecord,
) -> None:
    rules = [lead.rule for lead in leads(record)]

    assert rules[:3] == [
        "waits for a person",
        "accepted, and the result is bad",
        "rejected, and an audit found it good",
    ]


def test_a_rule_counts_all_and_names_the_first(record: RunRecord) -> None:
    lead = named(leads(record), "the result is bad")

    assert lead.count > len(lead.spots) == SPOTS
    assert lead.spots[0].told.startswith(("infeasible, ", "invalid, "))


def test_a_result_that_was_rejected_and_ran_again_is_judged_by_its_last_run(
    record: RunRecord,
) -> None:
    again = {job.fingerprint for job in record.jobs if job.rerun and job.feasible}
    bad = {j.decision for j in record.jobs if j.outcome == "invalid" and j.fingerprint in again}

    lead = named(leads(record), "the result is bad")

    assert bad
    assert lead.count == len(
        {j.fingerprint: j for j in record.jobs if j.source == "model"}.keys()
        & {
            j.fingerprint
            for j in record.jobs
            if j.source == "model" and not j.audited and j.outcome in {"infeasible", "invalid"}
        }
        - again
    )


def test_a_slow_answer_is_told_beside_what_is_usual(record: RunRecord) -> None:
    first, *others = record.decisions
    slow = replace(first.attempts[0], answer_s=500.0)
    changed = replace(first, attempts=(slow, *first.attempts[1:]))

    lead = named(leads(replace(record, decisions=(changed, *others))), "as long as usual")

    assert (lead.count, lead.spots[0].decision) == (1, first.number)
    assert lead.spots[0].told.startswith("8 min 20 s; usual are ")


def test_a_measurement_near_a_limit_is_told_with_the_limit(record: RunRecord) -> None:
    attempt = next(attempt for attempt in record.attempts if attempt.outcome == "accepted")
    decision = record.decisions[attempt.decision - 1]
    checks = tuple(
        check.model_copy(update={"observables": ({"y": 59.4},)}) if check.verifier else check
        for check in attempt.checks
    )
    near = replace(decision, attempts=(replace(attempt, checks=checks),))

    lead = named(leads(replace(record, decisions=(near,))), "of a verifier's limit")

    assert lead.spots[0].told == "coarse: y is 59.4, the limit is 60"
