"""Laws of the surrogate: whatever is known, a batch is valid, new and repeatable."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from batchgate.campaign import Campaign, Observation
from batchgate.errors import SurrogateError
from batchgate.surrogates import propose

SETTINGS = settings(deadline=None, max_examples=25)

ranges = st.sampled_from([(0.0, 1.0), (-1e9, 1e9), (1e-9, 1e-6), (5.0, 5.001), (-3.0, 1e4)])
variables = st.one_of(
    ranges.map(lambda domain: {"domain": domain}),
    st.sampled_from([{"domain": (1e-9, 1.0), "log": True}, {"domain": (1, 1e6), "log": True}]),
    st.integers(1, 9).map(lambda n: {"domain": (0, n), "integer": True}),
    st.sampled_from([("a", "b"), (1, 2.5, 7), (True, False), ("only",), (0, "0", False)]).map(
        lambda values: {"values": values}
    ),
)
values = st.one_of(
    st.floats(-10, 10),
    st.sampled_from([0.0, -0.0, 1e-300, 1e100, -1e300, 1.7e308]),
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[Campaign, list[Observation]]:
    campaign = Campaign.of(
        {
            "campaign": {"name": "law", "seed": draw(st.integers(0, 3))},
            "variables": draw(st.dictionaries(st.sampled_from("abc"), variables, min_size=1)),
            "objectives": {"y": draw(st.sampled_from(["MINIMIZE", "MAXIMIZE"]))},
            "constraints": draw(
                st.sampled_from([{}, {"z": ["LESS_THAN", 0]}, {"z": ["BOUNDS", -1e-3, 1e-3]}])
            ),
            "level": [{"name": "job", "use": "math:fsum", "timeout_s": 1}],
            "fallback": {
                "use": f"batchgate.surrogates:{draw(st.sampled_from(['GaussianProcess', 'Sobol']))}",
                "warmup": 3,
            },
            "stop": {"node_h": 1},
        }
    )
    shares = st.lists(st.floats(0, 1), min_size=3, max_size=3)
    observed = st.dictionaries(st.sampled_from("yz"), values)
    known = []
    for point, found in draw(st.lists(st.tuples(shares, observed), max_size=12)):
        names = campaign.space.variables
        candidate = {n: campaign.space.at_unit(n, u) for n, u in zip(names, point, strict=False)}
        known.append(Observation(candidate, found, feasible=bool(found)))
    return campaign, known


def batch(campaign: Campaign, known: list[Observation], **options: Any) -> list[dict[str, Any]]:
    try:
        return propose(campaign, observations=known, batch_number=1, **options)
    except SurrogateError:
        return []


@SETTINGS
@given(situations(), st.integers(1, 4))
def test_a_batch_is_valid_new_and_without_repetition(situation: Any, n: int):
    campaign, known = situation
    taken = {campaign.space.fingerprint(o.candidate) for o in known}

    found = batch(campaign, known, n=n)

    fingerprints = [campaign.space.fingerprint(candidate) for candidate in found]
    assert len(found) <= n
    assert not any(campaign.problems(candidate) for candidate in found)
    assert all(type(v) in (bool, int, float, str) for c in found for v in c.values())
    assert len(set(fingerprints)) == len(fingerprints)
    assert not taken & set(fingerprints)


@SETTINGS
@given(situations())
def test_the_same_situation_gives_the_same_batch(situation: Any):
    campaign, known = situation

    assert batch(campaign, known, n=2) == batch(campaign, known, n=2)


@SETTINGS
@given(situations(), st.integers(0, 10))
def test_what_is_to_be_avoided_is_never_proposed(situation: Any, bit: int):
    campaign, known = situation

    def avoid(candidate: Any) -> bool:
        return bool(int(campaign.space.fingerprint(candidate), 16) >> bit & 1)

    assert not any(avoid(c) for c in batch(campaign, known, n=2, avoid=avoid))


@SETTINGS
@given(situations())
def test_a_batch_is_missing_only_where_the_space_is_used_up(situation: Any):
    campaign, known = situation
    sizes = [
        len(v.values) if v.values else int(v.limits[1]) + 1 if v.integer else math.inf
        for v in campaign.space.variables.values()
    ]
    taken = {campaign.space.fingerprint(o.candidate) for o in known}
    left = math.prod(sizes) - len(taken)

    found = batch(campaign, known, n=2)

    assert len(found) == min(2, left)
