"""`accept_when`, and what else `accept` takes over from a loop of rounds with collected reasons."""

import asyncio
import inspect
from typing import Any

import pytest

from batchgate import (
    Attempt,
    Check,
    Fail,
    NotAccepted,
    Rejected,
    Verdict,
    accept,
    attempts_of,
    check,
    feedback_of,
    judge,
)


class Script:
    """A producer that gives or raises what it was told, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = answers
        self.seen: list[tuple[Attempt[Any], ...]] = []

    def __call__(self, previous: tuple[Attempt[Any], ...]) -> Any:
        self.seen.append(previous)
        answer = self.answers[len(self.seen) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@check(hard=False)
def quality(value: float) -> Verdict:
    return Verdict(True, score=value)


def small(value: float) -> Any:
    return value < 10 or Fail(f"{value} is not small")


def even(value: float) -> bool:
    return value % 2 == 0


def good_enough(attempt: Attempt[float]) -> Any:
    (score,) = [said.verdict.score for said in attempt.rulings if said.check == "quality"]
    return (score or 0) >= 4 or Fail(f"quality is {score}, must be at least 4")


class TestAcceptWhen:
    async def test_judges_the_attempt_by_all_its_answers(self):
        # S4-9, S4-12
        producer = Script(2, 4)

        outcome = await accept(
            producer, checks=[small, quality], attempts=2, accept_when=good_enough
        )

        assert outcome.value == 4
        (first, second) = outcome.attempts
        assert first.rejected_by == "accept_when"
        assert first.feedback == ("quality is 2.0, must be at least 4",)
        assert [(said.check, said.stage, said.hard) for said in second.rulings] == [
            ("small", 1, True),
            ("quality", 2, False),
            ("accept_when", 3, True),
        ]

    async def test_cannot_accept_what_a_check_rejected(self):
        # S4-9: every hard check is evaluated and passed
        asked: list[Attempt[float]] = []

        def accept_when(attempt: Attempt[float]) -> bool:
            asked.append(attempt)
            return True

        outcome = await accept(
            Script(13), checks=[small], accept_when=accept_when, fallback=lambda: 0.0
        )

        assert outcome.disposition == "fallback"
        assert asked == []

    async def test_is_given_the_attempt_as_it_is_so_far(self):
        asked: list[Attempt[float]] = []

        def accept_when(attempt: Attempt[float]) -> bool:
            asked.append(attempt)
            return True

        await accept(Script(4), checks=[small], accept_when=accept_when)

        (attempt,) = asked
        assert attempt == await judge(4, [small])

    async def test_may_be_async_and_may_reject_by_raising(self):
        async def accept_when(attempt: Attempt[float]) -> bool:
            await asyncio.sleep(0)
            if attempt.index == 1:
                raise Rejected("not the first")
            return attempt.index == 3

        outcome = await accept(Script(1, 2, 3), attempts=3, accept_when=accept_when)

        assert [attempt.reason for attempt in outcome.attempts] == [
            "not the first",
            "accept_when is false",
            None,
        ]

    @pytest.mark.parametrize("answer", [None, 1, "yes"])
    async def test_accepts_with_nothing_but_true(self, answer):
        # S4-7: a forgotten return accepts nothing
        with pytest.raises(TypeError, match="accept_when"):
            await accept(Script(4), accept_when=lambda attempt: answer)

    async def test_that_fails_is_a_failure_with_the_attempts_before_it(self):
        def accept_when(attempt: Attempt[float]) -> bool:
            if attempt.index == 2:
                raise RuntimeError("boom")
            return False

        with pytest.raises(RuntimeError, match="boom") as caught:
            await accept(Script(1, 2), attempts=2, accept_when=accept_when)

        assert [attempt.value for attempt in attempts_of(caught.value)] == [1]

    async def test_must_be_a_function(self):
        with pytest.raises(TypeError, match="accept_when is a str, must be a function"):
            await accept(Script(4), accept_when="checks")  # type: ignore[call-overload]


class TestRounds:
    async def test_a_check_can_turn_its_exceptions_into_rejections(self):
        # S4-13, C-1
        def breaks(value: float) -> bool:
            raise RuntimeError("boom")

        outcome = await accept(
            Script(4), checks=[Check("breaks", breaks, rejects=(Exception,))], escalate=True
        )

        assert outcome.attempts[0].reason == "breaks: RuntimeError: boom"

    async def test_the_producer_knows_every_earlier_round(self):
        # S4-8, S4-15, S4-18: `feedback_of` gives one flat list
        producer = Script(13, 15, 4, 6)

        outcome = await accept(producer, checks=[[small, even]], attempts=4)

        assert producer.seen == [(), *(outcome.attempts[:count] for count in (1, 2))]
        assert feedback_of(producer.seen[-1]) == [
            "13 is not small",
            "even is false",
            "15 is not small",
            "even is false",
        ]

    async def test_a_reply_that_the_producer_rejects_is_a_round(self):
        # S4-16
        outcome = await accept(Script(Rejected("not JSON", value="{"), 4), attempts=2)

        first = outcome.attempts[0]
        assert (first.rejected_by, first.reason, first.value) == ("producer", "not JSON", "{")

    async def test_a_producer_that_fails_otherwise_ends_the_loop_with_its_error(self):
        # S4-17, C-2: an escalation there
        error = TimeoutError("no answer")

        with pytest.raises(TimeoutError) as caught:
            await accept(Script(13, error), checks=[small], attempts=3, fallback=lambda: 0.0)

        assert caught.value is error
        assert [attempt.value for attempt in attempts_of(error)] == [13]

    @pytest.mark.parametrize("attempts", ["2", 2.9, 0])
    async def test_the_number_of_rounds_is_an_integer_from_one(self, attempts):
        # S4-19
        with pytest.raises((TypeError, ValueError), match=r"^attempts is "):
            await accept(Script(4), attempts=attempts)

    async def test_an_async_producer_is_awaited(self):
        # S4-20
        async def producer(previous: tuple[Attempt[float], ...]) -> float:
            return 4

        assert (await accept(producer, checks=[small])).value == 4

    async def test_the_escalation_has_the_last_three_reasons_each_of_them_cut(self):
        # S4-37, S4-38, S4-39, S4-41
        reasons = ["x" * 1_000_000, "b", "c", "d"]

        with pytest.raises(NotAccepted) as caught:
            await accept(Script(1, 2, 3), checks=[lambda value: Fail(reasons)], attempts=3)

        said = f"{'x' * 499}…; b; c"
        assert caught.value.escalation == f"not accepted after 3 attempt(s): {said}"

    async def test_an_accepted_round_has_no_escalation(self):
        # S4-38
        assert (await accept(Script(4))).escalation is None

    def test_there_is_no_other_budget_and_no_search(self):
        # S4-32, S4-40
        parameters = inspect.signature(accept).parameters

        assert "attempts" in parameters
        assert not {"budget", "timeout_s", "cost", "rank", "alternatives"} & set(parameters)

    async def test_which_checks_failed_and_why_is_on_the_attempt(self):
        # S4-25, S4-26, S4-31
        attempt = await judge(13, [[small, even, quality]])

        assert not attempt.accepted
        assert [said.check for said in attempt.rejections] == ["small", "even"]
        assert attempt.reasons == ("13 is not small", "even is false")
