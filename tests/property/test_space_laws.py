"""Laws of the search space: identity, maps to the unit interval, and one notion of membership."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from batchgate.campaign import Constraint, Space, Variable

finite = st.floats(allow_nan=False, allow_infinity=False)
calm = st.floats(-1e6, 1e6)
names = st.sampled_from(["a", "b", "c", "d"])
texts = st.text(max_size=8)


@st.composite
def ranged(draw: st.DrawFn) -> Variable:
    low = draw(calm)
    return Variable(domain=(low, low + draw(st.floats(1e-3, 1e6))))


@st.composite
def logged(draw: st.DrawFn) -> Variable:
    low = draw(st.floats(1e-9, 1e3))
    return Variable(domain=(low, low * draw(st.floats(1.01, 1e9))), log=True)


@st.composite
def whole(draw: st.DrawFn) -> Variable:
    low = draw(st.integers(-(10**6), 10**6))
    return Variable(domain=(low, low + draw(st.integers(1, 10**6))), integer=True)


@st.composite
def whole_logged(draw: st.DrawFn) -> Variable:
    low = draw(st.integers(1, 1000))
    return Variable(domain=(low, low + draw(st.integers(1, 10**6))), integer=True, log=True)


listed = st.lists(
    st.one_of(st.integers(-5, 5), st.booleans(), st.sampled_from(["a", "1", "True", ""]), calm),
    min_size=1,
    max_size=5,
    unique_by=lambda value: (isinstance(value, bool), isinstance(value, str), value),
).map(lambda values: Variable(values=tuple(values)))

variables = st.one_of(ranged(), logged(), whole(), whole_logged(), listed)
spaces = st.dictionaries(names, variables, min_size=1).map(lambda found: Space(variables=found))
shares = st.floats(0, 1)
anything = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-6, 6),
    st.floats(),
    st.floats(-6, 6),
    texts,
    st.just(10**400),
    st.just("1"),
    st.lists(st.integers(), max_size=2),
)


def at(space: Space, share: float) -> dict[str, Any]:
    return {name: space.at_unit(name, share) for name in space.variables}


@settings(deadline=None)
@given(spaces, shares)
def test_every_share_gives_a_candidate_of_the_space(space: Space, share: float):
    assert list(space.problems(at(space, share))) == []


@settings(deadline=None)
@given(st.one_of(ranged(), logged()), shares)
def test_unit_undoes_at_unit(variable: Variable, share: float):
    space = Space(variables={"a": variable})

    value = space.at_unit("a", share)

    assert isinstance(value, float)
    assert math.isclose(space.unit("a", value), share, abs_tol=1e-6)


@settings(deadline=None)
@given(st.one_of(whole(), whole_logged()), st.integers(0, 10**6))
def test_at_unit_finds_every_whole_number_again(variable: Variable, steps: int):
    space = Space(variables={"a": variable})
    low, high = variable.limits
    number = min(int(low) + steps, int(high))

    found = space.at_unit("a", space.unit("a", number))

    assert found == number
    assert type(found) is int


@settings(deadline=None)
@given(st.one_of(whole(), listed), st.integers(0, 10**7))
def test_whole_numbers_and_listed_values_get_equal_parts(variable: Variable, place: int):
    space = Space(variables={"a": variable})
    if variable.values is None:
        low, high = map(int, variable.limits)
        values: Any = range(low, high + 1)
    else:
        values = variable.values
    place %= len(values)

    assert space.at_unit("a", (place + 0.5) / len(values)) == values[place]


@settings(deadline=None)
@given(spaces, shares, st.randoms())
def test_the_order_of_keys_does_not_change_a_fingerprint(space: Space, share: float, random: Any):
    candidate = at(space, share)
    items = list(candidate.items())
    random.shuffle(items)

    assert space.fingerprint(dict(items)) == space.fingerprint(candidate)


@settings(deadline=None)
@given(st.floats(-1e9, 1e9), st.integers(1, 15))
def test_a_fingerprint_is_that_of_the_rounded_value(value: float, digits: int):
    space = Space(variables={"a": Variable(domain=(-1e10, 1e10))}, digits=digits)
    rounded = float(f"{value:.{digits - 1}e}")

    assert space.fingerprint({"a": value}) == space.fingerprint({"a": rounded})


def test_minus_zero_is_zero():
    space = Space(variables={"a": Variable(domain=(-1, 1))})

    assert space.fingerprint({"a": -0.0}) == space.fingerprint({"a": 0.0})
    assert math.copysign(1, space.candidate_model()(a=-0.0).model_dump()["a"]) == 1


@settings(deadline=None)
@given(spaces, shares, shares)
def test_equal_fingerprints_of_whole_numbers_and_lists_are_equal_candidates(
    space: Space, one: float, other: float
):
    exact = {n for n, v in space.variables.items() if v.values is not None or v.integer}
    first, second = at(space, one), at(space, other)

    if space.fingerprint(first) == space.fingerprint(second):
        assert {n: first[n] for n in exact} == {n: second[n] for n in exact}


@settings(deadline=None, max_examples=300)
@given(spaces, shares, st.dictionaries(st.one_of(names, texts), anything, max_size=3))
def test_the_model_accepts_what_has_no_problems(
    space: Space, share: float, changes: Mapping[str, Any]
):
    candidate: dict[str, Any] = {**at(space, share), **changes}
    problems = list(space.problems(candidate))

    try:
        accepted = space.candidate_model()(**candidate).model_dump()
    except ValidationError:
        assert problems
    else:
        assert not problems
        assert space.fingerprint(accepted) == space.fingerprint(candidate)
        assert all(_as_listed(space.variables[n], value) for n, value in accepted.items())


def _as_listed(variable: Variable, value: Any) -> bool:
    if variable.values is None:
        return type(value) is (int if variable.integer else float)
    return any(type(value) is type(v) and value == v for v in variable.values)


@settings(deadline=None)
@given(spaces, shares, shares)
def test_distance_is_symmetric_and_zero_to_itself(space: Space, one: float, other: float):
    first, second = at(space, one), at(space, other)

    assert space.distance(first, first) == 0
    assert space.distance(first, second) == space.distance(second, first)


@settings(deadline=None)
@given(spaces, st.dictionaries(st.one_of(names, texts), anything, max_size=3))
def test_problems_are_short_sentences_whatever_the_value(
    space: Space, candidate: Mapping[str, Any]
):
    for problem in space.problems(candidate):
        assert len(problem) < 600


@settings(deadline=None)
@given(
    st.sampled_from(["LESS_THAN", "GREATER_THAN", "less_than"]),
    finite,
    anything,
)
def test_a_one_sided_constraint_holds_exactly_where_its_comparison_does(
    kind: str, bound: float, value: Any
):
    constraint = Constraint.parse([kind, bound])
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    number = number and abs(value) <= sys.float_info.max

    holds = constraint.problem("y", value) is None

    if not number:
        assert not holds
    elif kind.upper() == "LESS_THAN":
        assert holds == (value < bound)
    else:
        assert holds == (value > bound)


@settings(deadline=None)
@given(finite, finite, finite)
def test_bounds_hold_at_both_ends(low: float, high: float, value: float):
    assume(low < high)
    constraint = Constraint.parse(["BOUNDS", low, high])

    assert constraint.problem("y", low) is None
    assert constraint.problem("y", high) is None
    assert (constraint.problem("y", value) is None) == (low <= value <= high)


@settings(deadline=None)
@given(st.sampled_from(["LESS_THAN", "GREATER_THAN"]), finite)
def test_a_constraint_reads_what_it_writes(kind: str, bound: float):
    constraint = Constraint.parse([kind, bound])

    assert Constraint.parse(constraint.to_list()) == constraint
