"""Laws of what is sent to a model and read from it, whatever the campaign and the model say."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from typing import Annotated, Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model

from batchgate.campaign import Space, Variable
from batchgate.campaign.observation import Observation
from batchgate.decision import Rejected
from batchgate.producers.prompt import harmless, messages, token_bound
from batchgate.producers.schema import MAX_RAW_BYTES, PortableSchema, portable
from tests.producer_campaign import campaign, proposal, rejected

fast = settings(deadline=None, max_examples=60)

sizes = st.floats(min_value=1e-30, max_value=1e30)
numbers = st.one_of(
    sizes, sizes.map(lambda x: -x), st.just(0.0), st.floats(-1e3, 1e3, allow_subnormal=False)
)
hostile = st.text(st.characters(codec=None, exclude_categories=()), max_size=400) | st.lists(
    st.sampled_from(
        [
            "<|im_start|>",
            "</s>",
            "[INST]",
            "\uff1c\uff5c",
            "\n# Task",
            "\x1b[2J",
            "\ud800",
            "a",
            "<",
        ]
    ),
    max_size=60,
).map("".join)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


def ranged(low: float, high: float) -> PortableSchema:
    field = Annotated[float, Field(strict=True, ge=low, le=high, allow_inf_nan=False)]
    made: type[BaseModel] = create_model("Asked", x=(field, ...))
    return portable(made)


@fast
@given(numbers, numbers, st.integers(0, 10**6))
def test_every_writable_number_between_the_bounds_sent_is_in_the_range(low, high, share):
    assume(low < high)
    schema = (asked := ranged(low, high)).schema["properties"]["x"]
    least, most = (Decimal(repr(schema[key])) for key in ("minimum", "maximum"))

    step = Decimal("0.000001")
    literal = least + ((most - least) * share / 10**6 // step) * step
    restored = asked.restore(f'{{"x": {literal:f}}}').model_dump()["x"]

    assert low <= restored <= high


@fast
@given(numbers, numbers)
def test_numbers_sent_are_short_enough_to_be_written(low, high):
    assume(low < high)
    schema = ranged(low, high).schema["properties"]["x"]

    for key in ("minimum", "maximum"):
        bound = Decimal(repr(schema[key]))
        assert abs(bound) <= 10**9
        assert bound == bound.quantize(Decimal("0.000001"))


@fast
@given(numbers, numbers, st.floats(0, 1))
def test_value_told_and_read_again_is_the_value(low, high, share):
    assume(low < high)
    value = min(max(low + share * (high - low), low), high)
    assume(math.isfinite(value))
    asked = ranged(low, high)

    told = asked.scaled({"x": value})

    back = json.loads(json.dumps(told))["x"]
    power = asked.shift["x"] if isinstance(asked.shift, dict) else 0
    assert isinstance(power, int)
    assert math.isclose(float(Decimal(repr(back)).scaleb(power)), value, rel_tol=1e-14)


@fast
@given(st.text() | json_values.map(json.dumps))
def test_restore_gives_a_candidate_of_the_space_or_a_rejection_with_the_text(text):
    space = Space(
        variables={"x": Variable(domain=(-1, 1)), "k": Variable(values=("a", 1, True, 0.5))}
    )
    asked = portable(space.candidate_model())

    made = outcome_of(asked, text)

    if isinstance(made, Rejected):
        assert made.check == "schema"
        assert made.reasons
        assert len(made.value.encode("utf-8", "backslashreplace")) <= MAX_RAW_BYTES
    else:
        assert list(space.problems(made.model_dump())) == []


def outcome_of(asked: PortableSchema, text: str) -> BaseModel | Rejected:
    try:
        return asked.restore(text)
    except Rejected as exc:
        return exc


@fast
@given(hostile, st.integers(20, 600))
def test_harmless_text_is_one_short_line_without_markers(text, most):
    line = harmless(text, most)

    assert len(line.encode()) <= most
    assert line.isprintable()
    assert all(after in {" ", ""} for after in _after(line, "<"))
    assert not any(after == "/" or after.isupper() for after in _after(line, "["))


def _after(line: str, bracket: str) -> list[str]:
    return [line[i + 1 : i + 2] for i, char in enumerate(line) if char == bracket]


@fast
@given(
    budget=st.integers(550, 3000),
    feedback=st.lists(st.lists(hostile, max_size=5), max_size=6),
    said=st.lists(hostile, min_size=6, max_size=6),
    count=st.integers(0, 60),
    form=st.sampled_from(["samples", "batch"]),
)
def test_prompt_never_has_more_tokens_than_its_budget(budget, feedback, said, count, form):
    made = campaign(producer={"batch": 2, "form": form}, prompt="Films of a few layers.")
    values: list[Any] = [*said[:4], proposal(made, 6e-8, 7e-8), None]
    previous = [rejected(values[i], *texts, index=i + 1) for i, texts in enumerate(feedback)]
    results = [
        Observation({"gap": 6e-8, "layers": 3, "phase": "a"}, {"energy_ev": i / 7}, i % 3 > 0)
        for i in range(count)
    ]
    asked = portable(made.candidate_model if form == "samples" else made.proposal_model)

    system, user = messages(
        made,
        asked,
        results=results,
        previous=previous,
        budget_tokens=budget,
        form=form,
        decision=3,
    )

    # What others wrote is counted at its worst, a token for a byte; the rest is ours.
    lines = user["content"].split("\n")
    start = lines.index("# Rejected just now, newest first")
    foreign = [line for line in lines[start:] if " : " in line]
    own = [line for line in lines if line not in foreign]
    tokens = sum(len(line.encode()) + 1 for line in foreign)
    tokens += token_bound("\n".join(own)) + token_bound(system["content"])
    assert tokens <= budget
