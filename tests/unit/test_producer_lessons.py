"""Lessons of a run in the prompt and in the grammar, and several samples of one request."""

from __future__ import annotations

import json
from typing import Any

import pytest

from batchgate.breach import Lesson, Region
from batchgate.campaign import Campaign
from batchgate.decision import Rejected
from batchgate.errors import ConfigError
from batchgate.producers import VllmProducer
from batchgate.producers.narrow import narrowed
from batchgate.producers.prompt import messages, token_bound
from batchgate.producers.schema import PortableSchema, portable
from batchgate.testing import ScriptedServer, completion
from tests.producer_campaign import GOOD, campaign

HEADING = "# Rejected again and again in this run"
GAP = Lesson("wide", "gap", "below", 5, (5e-8, 6.5e-8), (7e-8, 7e-8), own=True)
DRIFT = Lesson(
    "v", "drift", "above", 3, (2.0, 1e300), (1.0, 1.5), region=Region("gap", 5e-8, 6.6e-8)
)
PHASE = Lesson("v", "megno", "above", 2, (3.5, 3.5), (3.0, 3.0), region=Region("phase", "a", "a"))


def told(made: Campaign, *lessons: Lesson, tokens: int = 400, budget: int = 3000) -> list[str]:
    """Return the lines of the lessons in the prompt."""
    samples = made.spec.producer.form == "samples"
    _, user = messages(
        made,
        portable(made.candidate_model if samples else made.proposal_model),
        results=(),
        previous=(),
        lessons=lessons,
        budget_tokens=budget,
        lessons_tokens=tokens,
        form=made.spec.producer.form,
        decision=3,
    )
    _, _, after = user["content"].partition(HEADING)
    return after.partition("\n\n")[0].strip().splitlines()


class TestPrompt:
    def test_lessons_are_told_in_the_units_of_the_answer(self):
        assert told(campaign(), GAP) == ["gap below 0.7: 5 times, at 0.5 to 0.65"]

    def test_quantities_that_are_no_variables_are_told_as_they_are(self):
        assert told(campaign(), DRIFT, PHASE) == [
            "drift above 1 to 1.5: 3 times, at 2 to 1e+300, mostly where gap is 0.5 to 0.66",
            'megno above 3: 2 times, at 3.5, mostly where phase is "a"',
        ]

    def test_without_lessons_nothing_is_said(self):
        assert told(campaign()) == []

    def test_lessons_stay_within_their_budget_the_first_ones_first(self):
        many = [Lesson("c", f"q{i}", "above", 99 - i, (1, 2), (0, 0)) for i in range(50)]

        lines = told(campaign(), *many, tokens=150)

        assert lines[0].startswith("q0 above 0: 99 times")
        assert sum(token_bound(line) + 1 for line in [HEADING, *lines, ""]) <= 150
        assert 1 < len(lines) < 50

    def test_a_budget_too_small_for_one_says_nothing_at_all(self):
        assert told(campaign(), GAP, tokens=15) == []
        assert told(campaign(), GAP, tokens=0) == []

    def test_lessons_leave_room_for_results(self):
        made = campaign()
        with pytest.raises(ConfigError) as caught:
            told(made, budget=1)
        least = int(str(caught.value).split("up to ")[1].split(":")[0])

        lines = told(made, *[GAP] * 50, tokens=10_000, budget=least + 300)

        assert sum(token_bound(line) + 1 for line in [HEADING, *lines, ""]) <= 100


def asked(made: Campaign, form: str = "samples") -> PortableSchema:
    return portable(made.candidate_model if form == "samples" else made.proposal_model)


def candidate(schema: PortableSchema) -> Any:
    properties = schema.schema["properties"]
    found = (
        properties["candidates"]["items"]["properties"]
        if "candidates" in properties
        else properties
    )
    return {name: (node.get("minimum"), node.get("maximum")) for name, node in found.items()}


class TestGrammar:
    @pytest.mark.parametrize("form", ["samples", "batch"])
    def test_ranges_get_smaller_in_the_units_of_the_schema(self, form):
        schema = asked(campaign(), form)

        smaller = narrowed(schema, {"gap": (7e-8, 1e-7), "layers": (2.5, 7.5)})

        assert candidate(smaller) == {"gap": (0.7, 1.0), "layers": (3, 7), "phase": (None, None)}
        assert candidate(schema) == {"gap": (0.5, 1.0), "layers": (1, 9), "phase": (None, None)}

    def test_bounds_are_rounded_to_the_inside(self):
        made = campaign(variables={"d": {"domain": [3, 12]}})

        smaller = narrowed(asked(made), {"d": (2 * 3**0.5, 10 / 3)})
        ends = narrowed(asked(made), {"d": (2 * 3**0.5, 31 / 3)})

        assert candidate(smaller)["d"] == (3, 12)
        assert candidate(ends)["d"] == (3.464102, 10.333333)

    def test_ranges_never_get_wider(self):
        schema = asked(campaign())

        assert narrowed(schema, {"gap": (1e-9, 1.0), "layers": (-5, 50)}) == schema

    def test_a_range_too_small_to_be_written_stays(self):
        schema = asked(campaign())

        assert narrowed(schema, {"gap": (7e-8, 7.00001e-8), "layers": (2.2, 2.8)}) == schema

    def test_what_is_no_number_or_not_there_stays(self):
        schema = asked(campaign())

        assert narrowed(schema, {"phase": (0, 1), "other": (0, 1)}) == schema

    def test_a_variable_may_be_called_candidates(self):
        made = campaign(variables={"candidates": {"domain": [0, 9]}})

        smaller = narrowed(asked(made), {"candidates": (2, 9)})

        assert smaller.schema["properties"]["candidates"]["minimum"] == 2


async def ask(*answers: str, lessons: tuple[Lesson, ...] = (), **producer: Any) -> Any:
    made = campaign(producer={"batch": 1, **producer})
    async with ScriptedServer([completion(*answers)]) as server:
        asking = VllmProducer(server.url, "scripted", made, environ={})
        try:
            answer = await asking.propose(decision=1, results=(), previous=(), lessons=lessons)
        finally:
            await asking.aclose()
    return answer, server.asked[0]


def sent(body: Any) -> Any:
    return body["response_format"]["json_schema"]["schema"]["properties"]


class TestRequest:
    async def test_a_fixed_bound_is_in_the_grammar_and_in_the_prompt(self):
        _, body = await ask(GOOD, form="samples", samples=1, lessons=(GAP,))

        assert (sent(body)["gap"]["minimum"], sent(body)["gap"]["maximum"]) == (0.7, 1.0)
        assert "gap below 0.7: 5 times" in body["messages"][1]["content"]

    async def test_neither_is_there_when_the_campaign_wants_none(self):
        _, body = await ask(
            GOOD, form="samples", samples=1, lessons=(GAP,), lessons_tokens=0, tighten_after=0
        )

        assert sent(body)["gap"]["minimum"] == 0.5
        assert HEADING not in body["messages"][1]["content"]

    async def test_an_answer_outside_the_smaller_range_is_still_judged_by_the_campaigns(self):
        answer, _ = await ask(
            GOOD.replace("0.75", "0.55"), form="samples", samples=1, lessons=(GAP,)
        )

        assert answer.proposal.points()[0]["gap"] == 5.5e-8


def gaps(answer: Any) -> list[list[float]]:
    proposals = [answer.proposal, *answer.others]
    return [[point["gap"] for point in proposal.points()] for proposal in proposals]


def good(gap: str) -> str:
    return GOOD.replace("0.75", gap)


class TestSamples:
    async def test_every_valid_distinct_sample_is_a_proposal(self):
        answer, body = await ask(
            good("0.6"), "{", good("0.6"), good("0.7"), good("0.8"), form="samples", samples=5
        )

        assert gaps(answer) == [[6e-8], [7e-8], [8e-8]]
        assert (answer.samples_valid, answer.samples_total, body["n"]) == (3, 5, 5)

    async def test_samples_make_proposals_of_the_batchs_size(self):
        samples = [good(f"0.{i}") for i in range(5, 10)]

        answer, _ = await ask(*samples, form="samples", samples=5, batch=2)

        assert gaps(answer) == [[5e-8, 6e-8], [7e-8, 8e-8]]

    async def test_whole_proposals_can_be_sampled_too(self):
        whole = [json.dumps({"candidates": [json.loads(good(g))]}) for g in ("0.6", "0.6", "0.7")]

        answer, body = await ask(*whole, form="batch", samples=3)

        assert gaps(answer) == [[6e-8], [7e-8]]
        assert (answer.samples_valid, answer.samples_total, body["n"]) == (2, 3, 3)

    async def test_whole_proposals_none_of_which_is_valid_are_rejected_with_their_faults(self):
        with pytest.raises(Rejected) as caught:
            await ask("{}", "{", form="batch", samples=2)

        assert caught.value.reasons[0] == "0 of 2 answers are valid and distinct, 1 are needed"

    def test_whole_proposals_without_a_temperature_are_one(self):
        made = campaign(producer={"form": "batch", "samples": 2, "temperature": 0})

        with pytest.raises(ConfigError, match="temperature is 0, so 2 samples"):
            VllmProducer("http://h:1", "m", made, environ={})

    def test_one_answer_is_asked_for_where_nothing_else_is_said(self):
        assert campaign(producer={"form": "batch"}).spec.producer.answers == 1
        assert campaign(producer={"form": "samples"}).spec.producer.answers == 8
