"""The doubles that ship with the package."""

from __future__ import annotations

import itertools

import pytest

from batchgate.answer import Answer, Producer
from batchgate.campaign.observation import Observation
from batchgate.decision import Rejected
from batchgate.testing import Call, ScriptedProducer
from tests.producer_campaign import campaign, proposal, rejected


async def ask(producer: Producer, decision=1, results=(), previous=()) -> Answer:
    return await producer.propose(decision=decision, results=results, previous=previous)


async def test_lines_are_given_in_order_and_calls_are_kept():
    made = campaign(producer={"batch": 1})
    one, two = proposal(made, 6e-8), proposal(made, 7e-8)
    producer = ScriptedProducer([one, Answer(proposal=two, response_id="x")])
    known = Observation({"gap": 6e-8, "layers": 3, "phase": "a"}, {"energy_ev": 1.0}, True)
    said = rejected(one, "no")

    first = await ask(producer, results=[known])
    second = await ask(producer, decision=2, previous=[said])

    assert (first.proposal, first.response_id) == (one, "scripted-1-1")
    assert (second.proposal, second.response_id) == (two, "x")
    assert producer.calls == [Call(1, (known,), ()), Call(2, (), (said,))]


async def test_exception_is_raised():
    producer = ScriptedProducer([Rejected("no"), TimeoutError()])

    with pytest.raises(Rejected):
        await ask(producer)
    with pytest.raises(TimeoutError):
        await ask(producer)


async def test_function_says_what_is_proposed():
    made = campaign(producer={"batch": 1})
    producer = ScriptedProducer(
        itertools.repeat(lambda call: proposal(made, (50 + call.decision) / 1e9)), name="line"
    )

    answers = [await ask(producer, decision=d) for d in (1, 2)]

    assert [a.proposal.points()[0]["gap"] for a in answers] == [5.1e-8, 5.2e-8]
    assert answers[0].model == "line"


async def test_call_after_the_end_is_a_mistake_of_the_test():
    with pytest.raises(AssertionError, match="call 1 comes after the script's end"):
        await ask(ScriptedProducer([]))


async def test_closing_is_remembered():
    producer = ScriptedProducer([])

    await producer.aclose()

    assert producer.closed


@pytest.mark.parametrize("value", [float("nan"), float("inf"), True, "1"])
def test_observation_takes_finite_numbers_only(value):
    with pytest.raises(ValueError, match="must be a finite number"):
        Observation({"x": 1.0}, {"y": value}, True)
