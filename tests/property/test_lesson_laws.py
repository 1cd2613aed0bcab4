"""Laws of what a run learns from rejections, whatever was rejected."""

from __future__ import annotations

import json
import math
import pickle
from decimal import Decimal
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batchgate.breach import Breach, Lesson, Region
from batchgate.campaign import Space, Variable
from batchgate.decision import Fail, Verdict
from batchgate.events import (
    EVENT,
    BrokenBound,
    CheckJudged,
    Chosen,
    DecisionMade,
    Event,
    ProposalMade,
    RunStarted,
)
from batchgate.guard import MAX_LESSONS, Guard, bounds
from batchgate.producers.narrow import narrowed
from batchgate.producers.prompt import messages, token_bound
from batchgate.producers.schema import portable
from tests.producer_campaign import campaign

fast = settings(deadline=None, max_examples=40)
finite = st.floats(allow_nan=False, allow_infinity=False)
sides = st.sampled_from(["below", "above"])
names = st.sampled_from(["gap", "layers", "phase", "drift", "not a name", "x" * 200])

MADE = campaign()
STARTED = RunStarted(
    campaign="films",
    digest="d",
    spec=MADE.spec.model_dump(mode="json"),
    version="1",
    seed=0,
    granted_node_h=1,
)


@fast
@given(st.text(max_size=100), st.floats(), st.floats(), st.none() | sides)
def test_a_told_bound_comes_back_from_json_and_from_a_pickle(field, measured, bound, kind):
    verdict = Fail("no", measured=measured, bound=bound, field=field, kind=kind)

    told = json.loads(json.dumps(verdict.to_dict(), allow_nan=False))

    assert Verdict.from_dict(told) == verdict
    assert pickle.loads(pickle.dumps(verdict)) == verdict
    assert hash(Verdict.from_dict(told)) == hash(verdict)
    for breach in verdict.breaches:
        assert math.isfinite(breach.measured)
        assert math.isfinite(breach.bound)
        event = BrokenBound(**breach.to_dict())
        assert BrokenBound.model_validate_json(event.model_dump_json()) == event


candidates = st.fixed_dictionaries(
    {"gap": st.floats(5e-8, 1e-7), "layers": st.integers(1, 9), "phase": st.sampled_from("ab")}
)


@st.composite
def judgements(draw: Any) -> list[Event]:
    """Draw a proposal, what a check says of it, and perhaps the end of its decision."""
    points = draw(st.lists(candidates, min_size=1, max_size=3))
    decision, sample = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    broken = [
        BrokenBound(
            candidate=draw(st.integers(0, 4)),
            **Breach(draw(names)[:64], draw(measured(points)), draw(edges), draw(sides)).to_dict(),
        )
        for _ in range(draw(st.integers(0, 3)))
    ]
    made = ProposalMade(
        decision=decision,
        attempt=1,
        proposal={"candidates": points},
        others=draw(st.lists(st.just({"candidates": points}), max_size=2)),
    )
    word = CheckJudged(
        decision=decision,
        attempt=1,
        check=draw(st.sampled_from(["one", "two"])),
        sample=sample,
        passed=not broken,
        breaches=broken,
        refused=[MADE.space.fingerprint(points[0])] if broken else [],
    )
    end = DecisionMade(
        decision=decision,
        disposition="fallback",
        candidates=[Chosen(fingerprint="f", candidate=points[-1])],
    )
    return [made, word, *draw(st.sampled_from([[], [end]]))]


edges = st.sampled_from([6e-8, 7e-8, 5.0, 1e-9, 1.0]) | finite


def measured(points: list[dict[str, Any]]) -> st.SearchStrategy[float]:
    return st.sampled_from([float(points[0]["gap"]), float(points[0]["layers"])]) | finite


@fast
@given(st.lists(judgements(), max_size=20), st.integers(0, 60))
def test_the_fold_is_the_same_through_a_resume_and_its_ranges_lie_in_the_campaigns(groups, stop):
    events = [STARTED, *(event for group in groups for event in group)]
    whole, resumed = Guard(), Guard()
    for event in events:
        whole.apply(event)
    for event in events[:stop]:
        resumed.apply(EVENT.validate_json(EVENT.dump_json(event)))
    for event in events[stop:]:
        resumed.apply(event)

    lessons = whole.lessons()
    assert resumed.lessons() == lessons
    assert len(lessons) <= MAX_LESSONS
    for name, (low, high) in bounds(lessons, MADE.spec.variables, after=2).items():
        least, most = MADE.spec.variables[name].limits
        assert least <= low < high <= most


ends = st.tuples(finite, finite)


@fast
@given(
    st.floats(-1e20, 1e20),
    st.floats(1e-4, 1e4),
    st.dictionaries(st.sampled_from(["x", "k", "c", "other"]), ends, max_size=4),
)
def test_a_tightened_schema_lies_in_the_one_before_and_can_be_written(low, share, ranges):
    width = share * max(abs(low), 1e-12)
    space = Space(
        variables={
            "x": Variable(domain=(low, low + width)),
            "k": Variable(domain=(-3, 9), integer=True),
            "c": Variable(values=("a", "b")),
        }
    )
    schema = portable(space.candidate_model())

    smaller = narrowed(schema, ranges)

    for name, node in schema.schema["properties"].items():
        now = smaller.schema["properties"][name]
        assert now.keys() == node.keys()
        if "minimum" in node:
            assert node["minimum"] <= now["minimum"] <= now["maximum"] <= node["maximum"]
            for key in ("minimum", "maximum"):
                exact = Decimal(repr(now[key]))
                assert exact == exact.quantize(Decimal("0.000001"))
        else:
            assert now == node
    assert smaller.shift == schema.shift


lessons = st.builds(
    Lesson,
    check=st.just("c"),
    field=names | st.text(max_size=80),
    kind=sides,
    count=st.integers(2, 10**9),
    measured=ends,
    bound=ends,
    own=st.booleans(),
    region=st.none()
    | st.builds(Region, st.just("gap"), st.floats(5e-8, 1e-7), st.floats(5e-8, 1e-7)),
)


@fast
@given(
    found=st.lists(lessons, max_size=30),
    budget=st.integers(550, 3000),
    mine=st.integers(0, 800),
    form=st.sampled_from(["samples", "batch"]),
)
def test_lessons_and_prompt_stay_within_their_budgets(found, budget, mine, form):
    made = campaign(producer={"batch": 2, "form": form})
    asked = portable(made.candidate_model if form == "samples" else made.proposal_model)

    system, user = messages(
        made,
        asked,
        results=(),
        previous=(),
        lessons=found,
        budget_tokens=budget,
        lessons_tokens=mine,
        form=form,
        decision=3,
    )

    whole = token_bound(system["content"]) + token_bound(user["content"])
    told = user["content"].partition("# Rejected again")[2].partition("\n\n")[0]
    assert whole <= budget
    assert token_bound(told) <= mine
    assert told.isascii() or all(line.isprintable() for line in told.splitlines())
    assert "<|" not in told
