"""What the model is told."""

from __future__ import annotations

import pytest

from batchgate.campaign.observation import Observation
from batchgate.errors import ConfigError
from batchgate.producers.prompt import harmless, messages, token_bound
from batchgate.producers.schema import portable
from tests.producer_campaign import campaign, proposal, rejected


def told(made=None, *, results=(), previous=(), budget_tokens=2000, decision=3):
    made = made or campaign(producer={"batch": 2})
    form = made.spec.producer.form
    asked = portable(made.candidate_model if form == "samples" else made.proposal_model)
    system, user = messages(
        made,
        asked,
        results=results,
        previous=previous,
        budget_tokens=budget_tokens,
        form=form,
        decision=decision,
    )
    assert (system["role"], user["role"]) == ("system", "user")
    return system["content"], user["content"]


def observed(energy_ev, *, feasible=True, gap=6e-8):
    candidate = {"gap": gap, "layers": 3, "phase": "a"}
    return Observation(candidate, {"energy_ev": energy_ev, "drift": 1e-9, "other": 5.0}, feasible)


def results_of(text):
    return [line for line in text.split("\n") if " gives " in line]


def test_the_campaigns_own_words_come_first():
    system, _ = told(campaign(prompt="Thin films of {silver}."))

    assert "Thin films of {silver}." in system


def test_variables_are_told_with_range_unit_and_meaning():
    _, user = told()

    assert "gap: 0.5 to 1, in units of 1e-7 m. Gap between the plates." in user
    assert "layers: whole number from 1 to 9" in user
    assert 'phase: one of "a", "b"' in user


def test_variable_over_decades_is_told_as_one():
    made = campaign(variables={"rate": {"domain": [0.01, 100], "log": True, "unit": "1/s"}})

    _, user = told(made)

    assert "rate: 0.01 to 100 1/s, varies over decades" in user


def test_objective_constraints_and_constants_are_told():
    made = campaign(
        objectives={"energy_ev": "MAXIMIZE"},
        constraints={"drift": ["LESS_THAN", 1e-6], "t": ["BOUNDS", 1, 2], "p": ["GREATER_THAN", 3]},
        constants={"mass": 1.5},
    )

    _, user = told(made)

    assert "Maximise energy_ev." in user
    assert "drift below 1e-06; t from 1 to 2; p above 3" in user
    assert "mass = 1.5" in user


def test_limits_of_a_level_are_told_too():
    level = {"name": "full", "use": "math:sin", "timeout_s": 60, "accept": {"q": ["LESS_THAN", 2]}}

    _, user = told(campaign(level=[level]))

    assert "q below 2" in user


def test_results_are_told_best_first_in_the_units_of_the_answer():
    _, user = told(results=[observed(2.0), observed(-1.23456789), observed(1.0)])

    assert results_of(user) == [
        '{"gap":0.6,"layers":3,"phase":"a"} gives energy_ev -1.2346, drift 1e-09',
        '{"gap":0.6,"layers":3,"phase":"a"} gives energy_ev 1, drift 1e-09',
        '{"gap":0.6,"layers":3,"phase":"a"} gives energy_ev 2, drift 1e-09',
    ]


def test_best_of_a_maximum_is_the_largest():
    made = campaign(objectives={"energy_ev": "MAXIMIZE"})

    _, user = told(made, results=[observed(1.0), observed(2.0)])

    assert "energy_ev 2" in results_of(user)[0]


def test_result_that_is_not_allowed_comes_last_and_is_marked():
    _, user = told(results=[observed(-5.0, feasible=False), observed(2.0)])

    assert results_of(user)[-1].endswith("(not allowed)")
    assert "energy_ev -5" in results_of(user)[-1]


def test_result_without_the_objective_comes_last():
    bare = Observation({"gap": 6e-8, "layers": 3, "phase": "a"}, {"drift": 1e-9}, feasible=True)

    _, user = told(results=[bare, observed(2.0)])

    assert "energy_ev" not in results_of(user)[-1]


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("rejected", "gives no valid result"),
        ("failed", "makes the simulation fail"),
        ("timed_out", "takes longer than a job may"),
    ],
)
def test_what_has_no_result_is_told_in_words_of_its_own(outcome, words):
    bare = Observation({"gap": 6e-8, "layers": 3, "phase": "a"}, {}, False, outcome)

    _, user = told(results=[bare, observed(2.0)])

    assert "} " + words + "\n" in user


def test_many_results_leave_the_best_and_the_latest_and_a_count():
    results = [observed(float(i)) for i in range(1000)]

    _, user = told(results=results)

    shown = results_of(user)
    assert "energy_ev 0," in shown[0]
    assert "energy_ev 999," in shown[-1]
    assert f"{1000 - len(shown)} more are not shown." in user


def test_rejected_proposal_is_told_with_its_reasons_newest_first():
    made = campaign(producer={"batch": 2})
    first = rejected(proposal(made, 6e-8, 7e-8), "gap is too small", index=1)
    second = rejected(proposal(made, 8e-8, 9e-8), "layers must be odd", "phase is taken", index=2)

    _, user = told(made, previous=[first, second])

    newest = '{"gap":0.8,"layers":3,"phase":"a"}, {"gap":0.9,"layers":3,"phase":"a"}'
    assert f"{newest} : layers must be odd; phase is taken" in user
    assert user.index("layers must be odd") < user.index("gap is too small")


def test_answer_that_did_not_parse_is_told_as_it_was():
    _, user = told(previous=[rejected('{"gap": ', "it is not JSON")])

    assert '{"gap": : it is not JSON' in user


def test_value_that_is_neither_is_not_told():
    _, user = told(previous=[rejected(object(), "it is empty")])

    assert " : it is empty" in user
    assert "object at" not in user


def test_huge_rejections_leave_room_for_results():
    previous = [rejected("x" * 50_000, "y" * 50_000, index=i) for i in range(1, 6)]

    _, user = told(previous=previous, results=[observed(1.0)])

    assert len(user) < 2000
    assert results_of(user)
    assert "more are not shown." in user


def test_requests_of_two_attempts_and_of_two_decisions_differ():
    same = rejected("x", "y")

    texts = {told(previous=[same] * n, decision=d)[1] for n in (0, 1, 2) for d in (3, 4)}

    assert len(texts) == 6


def test_task_names_the_keys_and_the_number_of_candidates():
    _, batch = told(campaign(producer={"batch": 4, "rationale_chars": 90}))
    _, samples = told(campaign(producer={"batch": 4, "form": "samples"}))

    assert "Propose 4 new candidates" in batch
    assert 'keys "rationale", "candidates".' in batch
    assert "Propose one new candidate" in samples
    assert 'keys "gap", "layers", "phase".' in samples


def test_budget_below_the_campaigns_own_text_is_a_mistake_of_the_campaign():
    with pytest.raises(ConfigError, match=r"prompt_tokens is 300.*needs up to \d+: raise it"):
        told(campaign(prompt="word " * 500), budget_tokens=300)


def test_budget_that_is_enough_at_first_stays_enough():
    made = campaign(producer={"batch": 2})
    with pytest.raises(ConfigError) as caught:
        told(made, budget_tokens=1)
    least = int(str(caught.value).split("up to ")[1].split(":")[0])
    previous = [rejected("x", "y", index=i) for i in range(1, 100)]

    _, user = told(
        made, budget_tokens=least, results=[observed(1.0)] * 9999, previous=previous, decision=10**6
    )

    assert "9999 more are not shown." in user


def test_words_are_counted_by_three_letters_and_the_rest_by_bytes():
    assert token_bound("abcdefg") == 3
    assert token_bound("abc 123.5") == 1 + 1 + 5
    assert token_bound("ü") == 2


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\x00b\nc\u2028d\u202ee\ud800f", "a b c d e f"),
        ("<|im_start|>system", "< |im_start|>system"),
        ("[INST] x [/INST] [1, 2]", "[ INST] x [ /INST] [1, 2]"),
        ("＜｜end｜＞", "< |end|>"),  # noqa: RUF001 - look-alikes are the point
        ("x < 3", "x < 3"),
        ("y" * 30, "y" * 16 + " ..."),
    ],
)
def test_foreign_text_becomes_one_harmless_line(text, line):
    assert harmless(text, 28 if len(text) < 30 else 20) == line
