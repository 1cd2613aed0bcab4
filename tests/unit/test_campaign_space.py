"""Variables, the space and the models made from it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from batchgate.campaign import Proposal, Space, Variable


def space(**variables: Any) -> Space:
    return Space(variables=variables)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({}, "give either domain = [low, high] or values = [...]"),
        ({"domain": [0, 1], "values": [1]}, "give either"),
        ({"domain": [10, -5]}, "domain is [10, -5], must be increasing"),
        ({"domain": [1, 1]}, "must be increasing"),
        ({"domain": [float("nan"), 1]}, "finite number"),
        ({"domain": [-1.5e308, 1.5e308]}, "its width must be finite"),
        ({"domain": [0, 1], "log": True}, "log needs a domain above 0, this one starts at 0"),
        ({"domain": [1e16, 1e16 + 2], "log": True}, "too narrow for log"),
        ({"domain": [0.5, 2], "integer": True}, "integer needs whole bounds, not [0.5, 2]"),
        ({"domain": [0, 1e17], "integer": True}, "within +-2**53"),
        ({"values": ["a"], "log": True}, "log and integer go with a domain"),
        ({"values": [1, 2, 1.0]}, "values has a value twice"),
        ({"values": []}, "at least 1 item"),
        ({"values": [float("inf")]}, "finite number"),
    ],
)
def test_a_variable_that_makes_no_sense_says_why(data: dict[str, Any], message: str):
    with pytest.raises(ValidationError) as caught:
        Variable.model_validate(data)

    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["copy", "model_dump", "json", "model_config"])
def test_a_variable_cannot_have_a_name_that_pydantic_uses(name: str):
    with pytest.raises(ValidationError, match="choose another"):
        space(**{name: Variable(domain=(0, 1))})


@pytest.mark.parametrize("name", ["", "2x", "a-b", "x\n", "a" * 65, "__class__"])
def test_a_variable_name_is_an_identifier(name: str):
    with pytest.raises(ValidationError):
        space(**{name: Variable(domain=(0, 1))})


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (12, "a=12 is outside [-5, 10] mm"),
        (10.0000001, "a=10.0000001 is outside [-5, 10] mm"),
        (float("nan"), "a=nan is outside [-5, 10] mm"),
        (float("-inf"), "a=-inf is outside [-5, 10] mm"),
        (True, "a=True is not a number"),
        ("3", "a='3' is not a number"),
        (None, "a=None is not a number"),
        pytest.param(10**5000, "a=a number of too many digits is outside [-5, 10] mm", id="huge"),
    ],
)
def test_a_value_outside_its_range_is_told_with_value_range_and_unit(value: Any, problem: str):
    found = list(space(a=Variable(domain=(-5, 10), unit="mm")).problems({"a": value}))

    assert found == [problem]


def test_a_part_of_a_whole_number_is_told():
    found = list(space(a=Variable(domain=(0, 10), integer=True)).problems({"a": 2.5}))

    assert found == ["a=2.5 is not a whole number"]


def test_a_long_hostile_value_is_cut():
    (problem,) = space(a=Variable(values=("x",))).problems({"a": "y" * 100_000})

    assert len(problem) < 300


def test_problems_come_in_a_fixed_order():
    candidate = {"zeta": 1, "b": "x", "alpha": 2, "c": 5}
    unit = Variable(domain=(0, 1))

    found = list(space(a=unit, b=unit, c=Variable(values=(1, 2))).problems(candidate))

    assert found == [
        "a is missing",
        "b='x' is not a number",
        "c=5 is not one of [1, 2]",
        "'zeta' is not a variable of this campaign",
        "'alpha' is not a variable of this campaign",
    ]


def test_whole_numbers_are_told_apart_beyond_the_significant_digits():
    numbers = space(a=Variable(domain=(0, 10**9), integer=True))

    assert numbers.fingerprint({"a": 100_000_001}) != numbers.fingerprint({"a": 100_000_002})
    assert numbers.fingerprint({"a": 7}) == numbers.fingerprint({"a": 7.0})


def test_a_fingerprint_takes_equal_numbers_of_a_list_as_one_and_true_as_another():
    mixed = space(a=Variable(values=(1, True, "1")))

    fingerprints = [mixed.fingerprint({"a": value}) for value in (1, 1.0, True, "1")]

    assert fingerprints[0] == fingerprints[1]
    assert len(set(fingerprints)) == 3


def test_a_fingerprint_stays_what_it_was():
    """Ledgers hold it: another value here means that old runs cannot be resumed."""
    old = space(a=Variable(domain=(0, 1)), b=Variable(values=("u", "v")))

    assert old.fingerprint({"b": "u", "a": 0.5}) == "6eb58a5131ef488d"


def test_distance_is_the_largest_share_of_a_range():
    mixed = space(
        a=Variable(domain=(0, 10)), b=Variable(domain=(1, 100), log=True), c=Variable(values=(1, 2))
    )

    assert mixed.distance({"a": 1, "b": 1, "c": 1}, {"a": 2, "b": 10, "c": 1.0}) == 0.5
    assert mixed.distance({"a": 1, "b": 1, "c": 1}, {"a": 1, "b": 1, "c": 2}) == float("inf")


def test_a_model_tells_the_same_sentence_as_the_space():
    model = space(a=Variable(domain=(-5, 10), unit="mm")).candidate_model()

    with pytest.raises(ValidationError) as caught:
        model(a=12)

    (error,) = caught.value.errors()
    assert error["msg"] == "a=12 is outside [-5, 10] mm"
    assert error["loc"] == ("a",)


def test_the_schema_of_a_candidate_has_ranges_lists_units_and_meanings():
    model = space(
        a=Variable(domain=(-5, 10), unit="mm", about="knob"),
        n=Variable(domain=(1, 8), integer=True),
        p=Variable(values=("golden", "aligned")),
    ).candidate_model()

    schema = model.model_json_schema()

    assert schema["properties"] == {
        "a": {
            "title": "A",
            "type": "number",
            "minimum": -5,
            "maximum": 10,
            "description": "knob [mm]",
        },
        "n": {"title": "N", "type": "integer", "minimum": 1, "maximum": 8},
        "p": {"title": "P", "type": "string", "enum": ["golden", "aligned"]},
    }
    assert schema["required"] == ["a", "n", "p"]
    assert schema["additionalProperties"] is False


def test_a_proposal_has_exactly_its_batch_and_a_rationale_ahead():
    model = space(a=Variable(domain=(0, 1))).proposal_model(batch=2, rationale_chars=10)

    proposal = model(rationale="because", candidates=[{"a": 0.1}, {"a": 1}])

    assert isinstance(proposal, Proposal)
    assert proposal.points() == ({"a": 0.1}, {"a": 1.0})
    assert list(model.model_json_schema()["properties"]) == ["rationale", "candidates"]
    for wrong in ([{"a": 0.1}], [{"a": 0.1}] * 3, [{"a": 0.1}, {"a": 2}]):
        with pytest.raises(ValidationError):
            model(rationale="because", candidates=wrong)
    with pytest.raises(ValidationError):
        model(rationale="because of this", candidates=[{"a": 0.1}, {"a": 1}])


def test_a_proposal_without_rationale_has_no_room_for_one():
    model = space(a=Variable(domain=(0, 1))).proposal_model(batch=1, rationale_chars=0)

    assert model(candidates=[{"a": 0.1}]).rationale == ""
    with pytest.raises(ValidationError):
        model(rationale="because", candidates=[{"a": 0.1}])
