"""The loop of `accept`: who is called, how often, with what, and what comes of it."""

import asyncio
import functools
import inspect
import pickle
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import pytest
from pydantic import BaseModel, TypeAdapter, ValidationError

from batchgate import (
    Attempt,
    Check,
    Fail,
    NotAccepted,
    Rejected,
    Verdict,
    accept,
    accept_sync,
    attempts_of,
    check,
    judge,
)


class Script:
    """A producer that gives or raises what it was told, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[Attempt[Any], ...]] = []

    def __call__(self, previous: tuple[Attempt[Any], ...]) -> Any:
        self.seen.append(previous)
        answer = self.answers[len(self.seen) - 1]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    @property
    def calls(self) -> int:
        return len(self.seen)


class Spy:
    """A check that passes what `passes` says, and remembers what it saw."""

    def __init__(self, passes: Callable[[Any], Any] = lambda value: True) -> None:
        self.passes = passes
        self.seen: list[Any] = []

    def __call__(self, value: Any) -> Any:
        self.seen.append(value)
        return self.passes(value)


def positive(value: Any) -> None:
    if not value > 0:
        raise Rejected(f"{value} is not above 0")


def refuse(value: Any) -> bool:
    return False


def never() -> Any:
    raise AssertionError("the fallback was called")


def invalid() -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(int).validate_python("x")
    return caught.value


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """Run a coroutine that waits for nothing, without a loop."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


class TestSignature:
    def test_has_exactly_these_parameters(self):
        # S0-3, S0-19. Also S0-16, S0-20, S0-33, S0-34: there is no parameter for a retry, a
        # back-off, a time, token or cost budget, a policy over valid values, a vote, a judge
        # model, a fallback model or a message builder.
        parameters = inspect.signature(accept).parameters

        assert {name: p.default for name, p in parameters.items() if name != "producer"} == {
            "checks": (),
            "attempts": 1,
            "fallback": None,
            "name": None,
            "history": (),
            "feedback": None,
            "accept_when": None,
            "record": False,
            "escalate": False,
        }
        assert inspect.iscoroutinefunction(accept)

    def test_takes_only_the_producer_by_position(self):
        # S0-3
        kinds = [p.kind for p in inspect.signature(accept).parameters.values()]

        assert kinds == [inspect.Parameter.POSITIONAL_OR_KEYWORD] + [
            inspect.Parameter.KEYWORD_ONLY
        ] * (len(kinds) - 1)

    @pytest.mark.parametrize("attempts", [True, 1.0, "3", None])
    async def test_attempts_must_be_an_int(self, attempts):
        # S0-29, S3-9
        producer = Script(1)

        with pytest.raises(TypeError, match="attempts is a"):
            await accept(producer, attempts=attempts)
        assert producer.calls == 0

    @pytest.mark.parametrize("attempts", [0, -1])
    async def test_attempts_must_be_at_least_one(self, attempts):
        # S0-29
        producer = Script(1)

        with pytest.raises(ValueError, match=f"attempts is {attempts}, must be at least 1"):
            await accept(producer, attempts=attempts)
        assert producer.calls == 0

    @pytest.mark.parametrize(
        "wrong",
        [
            {"checks": "shape"},
            {"checks": [[[refuse]]]},
            {"checks": refuse},
            {"checks": None},
            {"fallback": 5},
            {"feedback": "no"},
            {"name": 5},
            {"history": [5]},
            {"history": 5},
        ],
    )
    async def test_wrong_arguments_are_refused_before_the_producer_is_called(self, wrong):
        producer = Script(1)

        with pytest.raises(TypeError):
            await accept(producer, **wrong)
        assert producer.calls == 0

    async def test_a_producer_must_be_callable(self):
        with pytest.raises(TypeError, match="producer is a int, must be a function"):
            await accept(5)  # type: ignore[call-overload]


class TestProducer:
    async def test_may_be_anything_that_gives_a_value(self):
        # S0-4
        def plainly(previous: tuple[Attempt[int], ...]) -> int:
            return 1

        async def asynchronously(previous: tuple[Attempt[int], ...]) -> int:
            await asyncio.sleep(0)
            return 2

        def as_a_task(previous: tuple[Attempt[int], ...]) -> asyncio.Task[int]:
            return asyncio.create_task(asynchronously(previous))

        def as_a_future(previous: tuple[Attempt[int], ...]) -> asyncio.Future[int]:
            future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
            future.set_result(3)
            return future

        def with_more(extra: int, previous: tuple[Attempt[int], ...]) -> int:
            return extra

        producers: list[Callable[[tuple[Attempt[int], ...]], Any]] = [
            plainly,
            asynchronously,
            as_a_task,
            as_a_future,
            functools.partial(with_more, 4),
            Script(5),
        ]

        assert [(await accept(p)).value for p in producers] == [1, 2, 2, 3, 4, 5]

    async def test_gets_every_earlier_attempt_and_nothing_else(self):
        # S0-22, S0-23
        producer = Script(-1, -2, 3)

        outcome = await accept(producer, checks=[positive], attempts=3)

        assert producer.seen[0] == ()
        for k, seen in enumerate(producer.seen):
            assert isinstance(seen, tuple)
            assert len(seen) == k
            assert all(a is b for a, b in zip(seen, outcome.attempts[:k], strict=True))

    async def test_cannot_change_what_happened(self):
        # S0-23, S4-21, I-6
        def meddler(previous: tuple[Attempt[int], ...]) -> int:
            for attempt in previous:
                with suppress(FrozenInstanceError):
                    attempt.rulings = ()  # type: ignore[misc]
            return -1

        with pytest.raises(NotAccepted) as caught:
            await accept(meddler, checks=[positive], attempts=2)
        assert [a.rejected_by for a in caught.value.attempts] == ["positive", "positive"]

    async def test_sees_the_history_before_its_own_attempts_at_no_cost(self):
        # S4-29
        earlier = (await accept(Script(-5), checks=[positive], escalate=True)).attempts
        producer = Script(-1, 2)

        outcome = await accept(producer, checks=[positive], attempts=2, history=list(earlier))

        assert [[a.value for a in seen] for seen in producer.seen] == [[-5], [-5, -1]]
        assert [(a.index, a.value) for a in outcome.attempts] == [(1, -1), (2, 2)]

    async def test_is_called_as_often_as_needed_and_allowed(self):
        # S0-8, S0-21
        enough = Script(-1, -2, 3, 4)
        short = Script(-1, -2, 3, 4)

        await accept(enough, checks=[positive], attempts=4)
        with pytest.raises(NotAccepted):
            await accept(short, checks=[positive], attempts=2)

        assert (enough.calls, short.calls) == (3, 2)

    async def test_is_asked_once_unless_told_otherwise(self):
        # S0-19
        producer = Script(-1, 2)

        with pytest.raises(NotAccepted):
            await accept(producer, checks=[positive])
        assert producer.calls == 1

    async def test_an_error_that_it_returns_is_judged_like_any_value(self):
        # S0-17
        outcome = await accept(Script({"error": "rate limit"}), checks=[Spy()])

        assert outcome.value == {"error": "rate limit"}

    async def test_can_reject_its_own_output(self):
        # S0-7, S0-38
        unnamed, named = Rejected("garbled"), Rejected("cut", check="truncation")
        judged = Spy()

        outcome = await accept(
            Script(unnamed, named, invalid(), 4), checks=[judged], attempts=4, name="p"
        )

        assert [(a.rejected_by, a.reason) for a in outcome.attempts[:3]] == [
            ("producer", "garbled"),
            ("truncation", "cut"),
            ("schema", "Input should be a valid integer, unable to parse string as an integer"),
        ]
        assert judged.seen == [4]

    async def test_can_keep_what_it_rejects(self):
        # S0-42, S0-48
        outcome = await accept(Script(Rejected("x", value='{"a":'), Rejected("x"), 1), attempts=3)

        assert [a.value for a in outcome.attempts] == ['{"a":', None, 1]

    async def test_that_rejects_without_a_reason_gets_one(self):
        # S0-41
        outcome = await accept(Script(Rejected(), Rejected(check="refusal"), 1), attempts=3)

        assert [a.reason for a in outcome.attempts[:2]] == [
            "rejected by producer",
            "rejected by refusal",
        ]

    @pytest.mark.parametrize("value", [None, False, 0, [], ""])
    async def test_may_give_any_value(self, value):
        # S0-31
        assert (await accept(Script(value), checks=[Spy()])).value == value


class TestChecks:
    async def test_the_first_rejection_stops_the_attempt(self):
        # S0-24
        cheap, dear = Spy(lambda value: value > 0), Spy()

        await accept(Script(-1, 1), checks=[cheap, dear], attempts=2)

        assert (cheap.seen, dear.seen) == ([-1, 1], [1])

    async def test_run_one_after_the_other_sync_and_async(self):
        # S0-25
        order = []

        async def slow(value: int) -> None:
            order.append("slow begins")
            await asyncio.sleep(0)
            order.append("slow ends")

        def quick(value: int) -> None:
            order.append("quick")

        await accept(Script(1), checks=[slow, quick, slow])

        assert order == ["slow begins", "slow ends", "quick", "slow begins", "slow ends"]

    async def test_none_at_all_accept_the_first_value(self):
        # S0-28
        assert (await accept(Script(-1))).disposition == "accepted"

    async def test_are_read_once_before_the_first_attempt(self):
        # S0-30
        producer = Script(-1, -1, 1)

        outcome = await accept(producer, checks=(c for c in [positive]), attempts=3)

        assert [a.accepted for a in outcome.attempts] == [False, False, True]

    async def test_of_a_stage_all_run_and_all_tell_their_reasons(self):
        # C-3, S4-10, S4-11
        def even(value: int) -> bool:
            return value % 2 == 0

        later = Spy()
        outcome = await accept(Script(-1, 2), checks=[[positive, even], (later,)], attempts=2)

        first, second = outcome.attempts
        assert first.reasons == ("-1 is not above 0", "even is false")
        assert first.rejected_by == "positive"
        assert [(r.check, r.stage) for r in second.rulings] == [
            ("positive", 1),
            ("even", 1),
            ("Spy", 2),
        ]
        assert later.seen == [2]

    async def test_that_are_soft_are_recorded_and_never_gate(self):
        # S0-93, C-11
        @check(hard=False)
        def elegant(value: int) -> Verdict:
            return Fail("clumsy", score=0.2)

        after = Spy()
        outcome = await accept(Script(1), checks=[elegant, after])

        assert outcome.accepted
        assert after.seen == [1]
        ruling = outcome.attempts[0].rulings[0]
        assert (ruling.check, ruling.hard, ruling.verdict.score) == ("elegant", False, 0.2)

    async def test_run_from_shape_to_soft_signal(self):
        # S0-93: the order is the caller's list
        ran: list[str] = []

        def layer(name: str, *, hard: bool = True) -> Check[int]:
            def run(value: int) -> bool:
                ran.append(name)
                return hard

            return check(name=name, hard=hard)(run)

        names = ["shape", "schema", "domain", "verifier"]
        await accept(Script(1), checks=[*map(layer, names), layer("soft", hard=False)])

        assert ran == [*names, "soft"]

    async def test_named_by_a_part_of_theirs_reject_in_its_name(self):
        # S0-37
        def composite(value: int) -> None:
            raise Rejected("x", check="upper")

        outcome = await accept(Script(1), checks=[composite], escalate=True)

        assert outcome.attempts[0].rejected_by == "upper"

    async def test_of_one_name_are_told_apart_in_the_records(self):
        # S0-60
        checks = [
            check(name="limit")(Spy()),
            check(name="limit")(Spy()),
            check(name="limit#2")(Spy()),
            check(name="limit")(refuse),
        ]

        outcome = await accept(Script(1), checks=checks, escalate=True)

        assert [r.check for r in outcome.attempts[0].rulings] == [
            "limit",
            "limit#2",
            "limit#2#2",
            "limit#3",
        ]

    async def test_can_see_a_value_that_they_change_without_being_noticed(self):
        # S0-53
        def meddle(value: list[int]) -> None:
            value.append(2)

        outcome = await accept(Script([1]), checks=[meddle])

        assert outcome.value == [1, 2]


class TestFailure:
    @pytest.mark.parametrize(
        "error", [RuntimeError("429"), TimeoutError(), ConnectionError(), OSError(28, "full")]
    )
    async def test_of_the_producer_propagates_at_once(self, error):
        # S0-9, S0-10, S0-11, S0-16, I-1
        producer = Script(error, 1)
        spy = Spy()

        with pytest.raises(type(error)) as caught:
            await accept(producer, checks=[spy], attempts=3, fallback=never)

        assert caught.value is error
        assert (producer.calls, spy.seen) == (1, [])

    async def test_of_a_check_propagates_at_once(self):
        # S0-9, S0-10
        error = KeyError("x")

        def broken(value: int) -> None:
            raise error

        producer, after = Script(1, 2), Spy()
        with pytest.raises(KeyError) as caught:
            await accept(producer, checks=[broken, after], attempts=2, fallback=never)

        assert caught.value is error
        assert caught.value.__cause__ is None
        assert (producer.calls, after.seen) == (1, [])

    async def test_of_a_soft_check_is_a_failure_too(self):
        @check(hard=False)
        def broken(value: int) -> None:
            raise RuntimeError("boom")

        with pytest.raises(RuntimeError, match="boom"):
            await accept(Script(1), checks=[broken])

    async def test_a_time_out_within_a_check_is_no_rejection(self):
        # S0-11
        async def verifier(value: int) -> None:
            await asyncio.wait_for(asyncio.Event().wait(), timeout=0.001)

        with pytest.raises(TimeoutError):
            await accept(Script(1), checks=[verifier], attempts=2, fallback=never)

    async def test_an_odd_answer_of_a_check_is_a_failure_naming_it(self):
        # S0-27
        def dry_run(value: int) -> Any:
            return "would have run"

        with pytest.raises(TypeError, match="check 'dry_run' returned a str"):
            await accept(Script(1), checks=[dry_run], attempts=2, fallback=never)

    @pytest.mark.parametrize("where", ["producer", "check", "fallback"])
    async def test_stop_iteration_is_one(self, where):
        # S0-18
        def stop(*_: Any) -> Any:
            raise StopIteration

        calls: dict[str, dict[str, Any]] = {
            "producer": {"producer": stop},
            "check": {"producer": Script(1), "checks": [stop]},
            "fallback": {"producer": Script(1), "checks": [refuse], "fallback": stop},
        }
        with pytest.raises(RuntimeError, match="coroutine raised StopIteration"):
            await accept(**calls[where])

    async def test_keeps_the_attempts_made_before_it(self):
        # S0-15, I-3, I-4
        error = RuntimeError("down")

        with pytest.raises(RuntimeError) as caught:
            await accept(Script(-1, -2, error), checks=[positive], attempts=3, name="planner")

        assert [a.value for a in attempts_of(caught.value)] == [-1, -2]
        assert error.__notes__ == ["accept 'planner': 2 attempt(s) were rejected before this"]

    async def test_that_is_raised_again_keeps_its_latest_attempts_and_one_note(self):
        # S0-15
        error = RuntimeError("the same object each time")
        for script in (Script(-1, error), Script(-2, error)):
            with pytest.raises(RuntimeError):
                await accept(script, checks=[positive], attempts=2, name="p")

        assert [a.value for a in attempts_of(error)] == [-2]
        assert len(error.__notes__) == 1

    async def test_that_refuses_attributes_propagates_all_the_same(self):
        # S0-9, S0-15
        @dataclass(frozen=True)
        class Frozen(Exception):
            code: int

        error = Frozen(7)
        with pytest.raises(Frozen) as caught:
            await accept(Script(error))

        assert caught.value is error
        assert attempts_of(error) == ()

    async def test_of_a_nested_accept_belongs_to_the_outer_one_in_the_end(self):
        # S0-15, S0-35
        async def outer(previous: tuple[Attempt[int], ...]) -> int:
            if not previous:
                return -1
            inner = await accept(Script(-7, RuntimeError("x")), checks=[positive], attempts=2)
            return int(inner.value)

        with pytest.raises(RuntimeError) as caught:
            await accept(outer, checks=[positive], attempts=2)

        assert [a.value for a in attempts_of(caught.value)] == [-1]
        assert len(caught.value.__notes__) == 2

    async def test_still_crosses_processes(self):
        # S0-43
        with pytest.raises(RuntimeError) as caught:
            await accept(Script(-1, RuntimeError("x")), checks=[positive], attempts=2)

        assert [a.value for a in attempts_of(pickle.loads(pickle.dumps(caught.value)))] == [-1]


class TestInterruption:
    @pytest.mark.parametrize(
        "error",
        [asyncio.CancelledError(), KeyboardInterrupt(), SystemExit(3), GeneratorExit()],
        ids=lambda e: type(e).__name__,
    )
    @pytest.mark.parametrize("where", ["producer", "check", "fallback"])
    def test_is_never_a_rejection(self, error, where):
        # S0-12, I-12
        def interrupt(*_: Any) -> Any:
            raise error

        producer = Script(1, 2)
        calls: dict[str, Coroutine[Any, Any, Any]] = {
            "producer": accept(Script(error, 1), attempts=2, fallback=never),
            "check": accept(
                producer,
                checks=[check(rejects=(Exception,))(interrupt)],
                attempts=2,
                fallback=never,
            ),
            "fallback": accept(Script(1), checks=[refuse], fallback=interrupt),
        }
        wanted = calls.pop(where)
        for other in calls.values():
            other.close()

        with pytest.raises(type(error)) as caught:
            drive(wanted)
        assert caught.value is error
        assert producer.calls <= 1

    async def test_asyncio_timeout_around_it_works(self):
        # S0-12
        async def stuck(value: int) -> None:
            await asyncio.Event().wait()

        with pytest.raises(TimeoutError) as caught:
            async with asyncio.timeout(0.001):
                await accept(Script(-1, 2), checks=[positive, stuck], attempts=3, fallback=never)

        # S0-15: the cancellation that caused the time-out passed through accept
        assert [a.value for a in attempts_of(caught.value)] == [-1]

    async def test_of_the_fallback_propagates(self):
        # S0-12
        began = asyncio.Event()

        async def stuck() -> int:
            began.set()
            await asyncio.Event().wait()
            return 0

        task = asyncio.create_task(accept(Script(-1), checks=[positive], fallback=stuck))
        await began.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task


class TestOutcome:
    async def test_holds_the_very_object_that_was_produced(self):
        # S0-32
        value = {"x": [1.0000000001]}

        outcome = await accept(Script(value), checks=[Spy()])

        assert outcome.value is value

    async def test_accepted_has_every_attempt_the_accepted_one_last(self):
        # S0-49, S0-52
        outcome = await accept(Script(-1, -2, 3), checks=[positive], attempts=5)

        assert outcome.disposition == "accepted"
        assert outcome.accepted
        assert [(a.index, a.value, a.accepted) for a in outcome.attempts] == [
            (1, -1, False),
            (2, -2, False),
            (3, 3, True),
        ]
        assert outcome.attempts[0].reason == "-1 is not above 0"
        assert outcome.escalation is None

    async def test_out_of_attempts_raises_with_all_of_them(self):
        # S0-44, S0-45, I-5
        with pytest.raises(NotAccepted) as caught:
            await accept(Script(-1, -2), checks=[positive], attempts=2, name="planner")

        assert [a.value for a in caught.value.attempts] == [-1, -2]
        assert str(caught.value) == ("planner: not accepted after 2 attempt(s): -2 is not above 0")

    async def test_out_of_attempts_can_be_a_value(self):
        # C-5
        outcome = await accept(Script(-1), checks=[positive], escalate=True)

        assert (outcome.value, outcome.disposition, outcome.accepted) == (
            None,
            "not_accepted",
            False,
        )
        assert outcome.escalation == "not accepted after 1 attempt(s): -1 is not above 0"

    async def test_is_named_after_the_producer_by_default(self):
        # S0-3
        def planner(previous: tuple[Attempt[int], ...]) -> int:
            return -1

        with pytest.raises(NotAccepted, match=r"^planner: "):
            await accept(planner, checks=[positive])

    async def test_survives_pickling(self):
        # S0-43
        outcome = await accept(Script(-1, 2), checks=[positive], attempts=2)

        assert pickle.loads(pickle.dumps(outcome)) == outcome


class TestFallback:
    async def test_is_called_once_without_arguments_after_the_last_rejection(self):
        # S0-50, S0-54, S0-55
        calls = []

        def fallback(*arguments: Any) -> int:
            calls.append(arguments)
            return -9

        spy = Spy(lambda value: False)
        outcome = await accept(Script(-1, -2), checks=[spy], attempts=2, fallback=fallback)

        assert calls == [()]
        assert (outcome.value, outcome.disposition, outcome.accepted) == (-9, "fallback", False)
        assert [a.accepted for a in outcome.attempts] == [False, False]
        assert spy.seen == [-1, -2]

    async def test_is_not_called_when_a_value_is_accepted(self):
        # S0-54
        assert (await accept(Script(-1, 1), checks=[positive], attempts=2, fallback=never)).accepted

    async def test_may_be_async_and_give_none(self):
        # S0-57
        async def nothing() -> None:
            await asyncio.sleep(0)

        outcome = await accept(Script(-1), checks=[positive], fallback=nothing)

        assert (outcome.value, outcome.disposition) == (None, "fallback")

    @pytest.mark.parametrize("error", [ValueError("too narrow"), Rejected("no"), invalid()])
    async def test_that_raises_is_a_failure_whatever_it_raises(self, error):
        # S0-56, S0-58
        def fallback() -> int:
            raise error

        with pytest.raises(type(error)) as caught:
            await accept(Script(-1), checks=[positive], fallback=fallback)

        assert caught.value is error
        assert [a.value for a in attempts_of(error)] == [-1]


class TestFeedback:
    async def test_is_the_reasons_for_every_rejected_attempt_also_the_last(self):
        # C-9, S4-28
        outcome = await accept(Script(-1, -2), checks=[positive], attempts=2, escalate=True)

        assert [a.feedback for a in outcome.attempts] == [
            ("-1 is not above 0",),
            ("-2 is not above 0",),
        ]

    @pytest.mark.parametrize(
        ("said", "told"),
        [("go up", ("go up",)), (["a", "", "b"], ("a", "b")), (None, ()), ([], ())],
    )
    async def test_can_be_worded(self, said, told):
        # C-9, S4-14
        producer = Script(-1, 1)

        outcome = await accept(
            producer, checks=[positive], attempts=2, feedback=lambda attempt: said
        )

        assert producer.seen[1][0].feedback == told
        assert outcome.attempts[0].feedback == told
        assert outcome.attempts[0].reasons == ("-1 is not above 0",)
        assert outcome.attempts[1].feedback == ()

    @pytest.mark.parametrize("said", [3, [3], {"a": 1}])
    async def test_that_is_no_text_is_a_failure(self, said):
        # S4-14
        with pytest.raises(TypeError, match="feedback gave a") as caught:
            await accept(Script(-1), checks=[positive], feedback=lambda attempt: said)

        assert [a.value for a in attempts_of(caught.value)] == [-1]


class TestConcurrency:
    async def test_calls_share_nothing(self):
        # S0-90, S0-91, I-13
        checks: list[Callable[[Any], Any]] = [positive, Spy()]

        async def run(number: int) -> Any:
            async def producer(previous: tuple[Attempt[int], ...]) -> int:
                await asyncio.sleep(0)
                return number if len(previous) == number % 3 else -number - 1

            return await accept(producer, checks=checks, attempts=3)

        outcomes = await asyncio.gather(*map(run, range(1, 51)))

        assert [o.value for o in outcomes] == list(range(1, 51))
        assert [len(o.attempts) for o in outcomes] == [n % 3 + 1 for n in range(1, 51)]
        assert checks[0] is positive
        assert len(checks) == 2

    def test_loops_in_several_threads_share_nothing(self):
        # S0-90
        found: dict[int, Any] = {}

        def run(number: int) -> None:
            found[number] = accept_sync(Script(-1, number), checks=[positive], attempts=2).value

        threads = [threading.Thread(target=run, args=(n,)) for n in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        assert found == {n: n for n in range(1, 9)}

    async def test_nested_calls_have_budgets_of_their_own(self):
        # S0-35
        async def outer(previous: tuple[Attempt[int], ...]) -> int:
            inner = await accept(Script(-1, -1, len(previous)), checks=[nonnegative], attempts=3)
            return int(inner.value)

        def nonnegative(value: int) -> bool:
            return value >= 0

        outcome = await accept(outer, checks=[positive], attempts=2)

        assert (outcome.value, len(outcome.attempts)) == (1, 2)


class TestSync:
    def test_runs_a_loop_of_its_own(self):
        # S0-92
        outcome = accept_sync(Script(-1, 1), checks=[positive], attempts=2)

        assert (outcome.value, outcome.disposition) == (1, "accepted")

    async def test_refuses_within_a_running_loop(self):
        # S0-92
        producer = Script(1)

        with pytest.raises(RuntimeError, match="await accept"):
            accept_sync(producer)
        assert producer.calls == 0


class TestJudge:
    async def test_gives_one_attempt(self):
        attempt = await judge(-1, [[positive, refuse], refuse])

        assert (attempt.index, attempt.value) == (1, -1)
        assert attempt.reasons == ("-1 is not above 0", "refuse is false")
        assert (await judge(1, [positive])).accepted

    async def test_lets_a_failure_through(self):
        def broken(value: int) -> None:
            raise KeyError("x")

        with pytest.raises(KeyError):
            await judge(1, [broken])


async def test_a_check_can_be_wrapped_to_record_what_it_says():
    said = []

    def recorded(inner: Check[Any]) -> Check[Any]:
        async def function(value: Any) -> Verdict:
            verdict = await inner.judge(value)
            said.append((inner.name, bool(verdict)))
            return verdict

        return replace(inner, function=function, thread=False, rejects=())

    checks = [recorded(check(positive)), recorded(check(Spy()))]
    outcome = await accept(Script(-1, 1), checks=checks, attempts=2)

    assert said == [("positive", False), ("positive", True), ("Spy", True)]
    assert [r.check for a in outcome.attempts for r in a.rulings] == ["positive", "positive", "Spy"]


class Plan(BaseModel):
    x: float


async def test_a_schema_in_the_producer_is_asked_again_with_place_and_message():
    # S0-46, I-8
    def planner(previous: tuple[Attempt[Plan], ...]) -> Plan:
        return Plan.model_validate({"x": 0.5} if previous else {"x": "secret", "y": 1})

    outcome = await accept(planner, attempts=2)

    assert outcome.attempts[0].reason == (
        "x: Input should be a valid number, unable to parse string as a number"
    )
