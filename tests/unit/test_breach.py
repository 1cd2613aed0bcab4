"""Reasons that are told as numbers: made, carried by verdicts and rejections, read back."""

from __future__ import annotations

import json
import math
import pickle

import pytest

from batchgate import Fail, Rejected, Verdict, accept, check
from batchgate.breach import MAX_FIELD, Breach
from batchgate.campaign import Constraint, breaches

SHORT = Breach("bond", 0.71, 0.9, "below")


def test_a_fail_tells_its_bound_as_numbers():
    verdict = Fail("bond 0.71 below 0.90", measured=0.71, bound=0.90, field="bond")

    assert verdict.breaches == (SHORT,)
    assert verdict.reasons == ("bond 0.71 below 0.90",)
    assert verdict.measured == {}


def test_what_a_fail_measured_may_still_be_a_mapping():
    verdict = Fail("no", measured={"bond": 0.71})

    assert (verdict.measured, verdict.breaches) == ({"bond": 0.71}, ())


async def test_a_rejection_raised_in_a_check_tells_its_bound():
    def bonded(_: object) -> None:
        raise Rejected("bond 0.71 below 0.90", measured=0.71, bound=0.90, field="bond")

    outcome = await accept(lambda _: 1, checks=[bonded], escalate=True)

    assert outcome.attempts[0].rulings[0].verdict.breaches == (SHORT,)


async def test_a_rejection_of_the_producer_tells_its_bound():
    def produce(_: object) -> int:
        raise Rejected("bond 0.71 below 0.90", measured=0.71, bound=0.90, field="bond")

    outcome = await accept(produce, escalate=True)

    assert outcome.attempts[0].rulings[0].verdict.breaches == (SHORT,)


async def test_a_fail_without_a_reason_keeps_its_bound_beside_the_checks_own_words():
    @check
    def bonded(_: object) -> Verdict:
        """Atoms keep their distance."""
        return Fail(measured=0.71, bound=0.90, field="bond")

    outcome = await accept(lambda _: 1, checks=[bonded], escalate=True)

    assert outcome.attempts[0].reasons == ("Atoms keep their distance.",)
    assert outcome.attempts[0].rulings[0].verdict.breaches == (SHORT,)


def test_the_side_follows_from_the_numbers_unless_it_is_told():
    assert Breach.of("x", 3, 2) == Breach("x", 3.0, 2.0, "above")
    assert Breach.of("x", 2, 2, "above") == Breach("x", 2.0, 2.0, "above")
    assert Breach.of("x", 2, 2) is None


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, 10**400])
def test_numbers_that_are_not_finite_tell_nothing(number):
    assert Fail("no", measured=number, bound=0.9, field="bond").breaches == ()
    assert Rejected("no", measured=0.7, bound=number, field="bond").breaches == ()


@pytest.mark.parametrize(
    "half",
    [{"bound": 1.0}, {"field": "x"}, {"measured": 1.0, "bound": 2.0}, {"kind": "below"}],
)
@pytest.mark.parametrize("kind", [Fail, Rejected])
def test_half_a_bound_is_a_mistake(kind, half):
    with pytest.raises(TypeError, match="measured, bound and field go together"):
        kind("no", **half)


def test_a_measured_number_alone_is_a_mistake():
    with pytest.raises(TypeError, match="go together"):
        Rejected("no", measured=1.0)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"measured": "0.7"}, "measured is a str, must be a number"),
        ({"bound": [1]}, "bound is a list, must be a number"),
        ({"field": 3}, "field is a int, must be a name"),
    ],
)
def test_values_of_the_wrong_type_are_mistakes(wrong, error):
    with pytest.raises(TypeError, match=error):
        Fail("no", **({"measured": 0.7, "bound": 0.9, "field": "bond"} | wrong))


def test_a_side_of_another_name_is_a_mistake():
    with pytest.raises(ValueError, match="must be 'below' or 'above'"):
        Breach.of("x", 1, 2, "beside")  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [3, "below", None])
def test_breaches_that_are_none_are_mistakes(wrong):
    with pytest.raises(TypeError, match="must be breaches"):
        Verdict(False, breaches=[wrong])


def test_a_long_name_is_cut():
    assert Breach.of("x" * 1000, 1, 2) == Breach("x" * MAX_FIELD, 1.0, 2.0, "below")


def test_a_verdict_without_bounds_is_recorded_as_before():
    assert Fail("no").to_dict() == {
        "passed": False,
        "score": None,
        "reasons": ["no"],
        "feedback": None,
    }


def test_a_verdict_comes_back_from_json_with_its_bounds():
    verdict = Fail("no", measured=0.71, bound=0.9, field="bond")

    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict
    assert hash(verdict) == hash(Verdict.from_dict(verdict.to_dict()))


def test_rejections_and_fails_are_pickled_with_their_bounds():
    for made in (Fail, Rejected):
        told = made("no", measured=0.71, bound=0.9, field="bond")

        assert pickle.loads(pickle.dumps(told)).breaches == (SHORT,)


def test_a_rejection_that_forgets_its_parent_has_no_bounds():
    class Own(Rejected):
        def __init__(self) -> None:
            pass

    assert Own().breaches == ()


@pytest.mark.parametrize(
    ("constraint", "value", "expected"),
    [
        (["LESS_THAN", 3], 4.0, Breach("q", 4.0, 3.0, "above")),
        (["LESS_THAN", 3], 3.0, Breach("q", 3.0, 3.0, "above")),
        (["LESS_THAN", 3], 2.0, None),
        (["GREATER_THAN", 3], 2.0, Breach("q", 2.0, 3.0, "below")),
        (["BOUNDS", 1, 3], 0.5, Breach("q", 0.5, 1.0, "below")),
        (["BOUNDS", 1, 3], 3.5, Breach("q", 3.5, 3.0, "above")),
        (["LESS_THAN", 3], math.nan, None),
        (["LESS_THAN", 3], "text", None),
    ],
)
def test_a_constraint_tells_its_bound_as_numbers(constraint, value, expected):
    found = breaches({"q": Constraint.parse(constraint)}, {"q": value})

    assert list(found) == ([] if expected is None else [expected])


def test_an_observable_that_is_missing_breaks_no_bound():
    assert list(breaches({"q": Constraint.parse(["LESS_THAN", 3])}, {})) == []
