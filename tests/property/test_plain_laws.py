"""Laws of strict JSON: what is written is strict, and comes back."""

import json
import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batchgate.plain import dumps, loads, plain, restore

any_text = st.text(st.characters(exclude_categories=()), max_size=12)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | any_text
    | st.just("$f")
)
keys = any_text | st.integers() | st.none() | st.tuples(st.integers(), any_text)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(keys, inner, max_size=4)
        | st.dictionaries(st.sampled_from(["$f", "$i", "$s", "$m", "$r", "$"]), inner, max_size=1)
    ),
    max_leaves=20,
)
odd = st.recursive(
    scalars | st.floats() | st.binary(max_size=4) | st.complex_numbers() | st.dates(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.sets(any_text, max_size=3)
        | st.dictionaries(keys, inner, max_size=3)
    ),
    max_leaves=15,
)


def refuse(name: str) -> Any:
    raise AssertionError(f"{name} in strict JSON")


@settings(deadline=None)
@given(values)
def test_a_value_of_json_types_comes_back_equal(value):
    assert loads(dumps(value)) == value
    assert restore(plain(value)) == value


@settings(deadline=None)
@given(odd)
def test_any_value_is_written_as_strict_json_and_stays_what_it_became(value):
    text = dumps(value)

    assert json.loads(text, parse_constant=refuse) == plain(value)
    text.encode("ascii")
    assert dumps(loads(text)) == text
    assert plain(restore(plain(value))) == plain(value)


@settings(deadline=None)
@given(st.floats())
def test_every_float_comes_back_to_the_bit(number):
    back = loads(dumps([number]))[0]

    assert (
        math.isnan(back)
        if math.isnan(number)
        else (back, math.copysign(1, back))
        == (
            number,
            math.copysign(1, number),
        )
    )


@settings(deadline=None)
@given(st.text(max_size=40))
def test_no_text_crashes_the_reader(text):
    try:
        value = loads(text)
    except ValueError:
        return
    assert plain(loads(dumps(value))) == plain(value)
