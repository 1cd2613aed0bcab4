import asyncio
import contextvars
import dataclasses
import functools
import pickle
import threading
from typing import Annotated, Any, get_args

import numpy as np
import pydantic
import pydantic.v1
import pydantic_core
import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from batchgate.checks import (
    Check,
    as_check,
    check,
    name_of,
    validation_reasons,
    verdict_of,
)
from batchgate.decision import (
    Attempt,
    Fail,
    Rejected,
    Ruling,
    Verdict,
    cut,
    escalation_of,
    feedback_of,
)
from batchgate.outcome import NotAccepted, Outcome, attempts_of


class Box(BaseModel):
    width: Annotated[int, Field(gt=0)]
    label: str = ""


def invalid(data: Any) -> ValidationError:
    with pytest.raises(ValidationError) as caught:
        Box.model_validate(data)
    return caught.value


def judged(*rulings: Ruling) -> Attempt[int]:
    return Attempt.judged(1, 5, rulings)


def rejected_attempt(index: int = 1, *reasons: str) -> Attempt[int]:
    return Attempt.judged(index, 0, [Ruling("shape", 1, True, Fail(*reasons or ("too big",)))])


def answering(said: Any) -> Check[int]:
    def answer(value: int) -> Any:
        return said

    return as_check(answer)


class TestVerdict:
    def test_is_false_when_not_passed(self):
        # S4-1
        assert Verdict(True)
        assert not Verdict(False)
        assert not Fail()

    def test_takes_numpys_bool_and_stores_pythons(self):
        passed: Any = np.bool_(True)

        assert Verdict(passed).passed is True

    @pytest.mark.parametrize("passed", ["yes", 1, 0, None, [], np.array([True])])
    def test_takes_nothing_else_for_a_bool(self, passed):
        # S3-2: fail closed
        with pytest.raises(TypeError, match=r"passed is a .*, must be a bool"):
            Verdict(passed)

    def test_one_text_is_one_reason(self):
        # S3-6
        assert Verdict(False, reasons="too short").reasons == ("too short",)

    def test_reasons_are_flattened_and_blank_ones_dropped(self):
        # S4-3, C-26
        assert Fail(["x", ("y",)], "z", " ", "", None).reasons == ("x", "y", "z", "None")

    @pytest.mark.parametrize("score", [float("nan"), float("inf"), 10**400])
    def test_a_score_that_is_not_finite_is_none(self, score):
        # S3-31, S0-79
        assert Verdict(True, score).score is None

    def test_a_score_becomes_a_python_float(self):
        score: Any = np.float32(0.5)

        assert type(Verdict(True, score).score) is float

    @pytest.mark.parametrize(
        "wrong",
        [
            {"score": "0.5"},
            {"score": []},
            {"feedback": 7},
            {"check": 7},
            {"measured": 7},
            {"measured": {"energy_ev": "low"}},
        ],
    )
    def test_refuses_other_types(self, wrong):
        with pytest.raises(TypeError):
            Verdict(False, **wrong)

    def test_keeps_only_finite_measurements(self):
        verdict = Verdict(True, measured={"energy_ev": np.float64(1.5), "drift": float("nan")})

        assert verdict.measured == {"energy_ev": 1.5}

    def test_equals_a_fail_with_the_same_content(self):
        # S4-2
        assert Fail("a", score=1) == Verdict(False, 1, ("a",))
        assert hash(Fail("a", score=1)) == hash(Verdict(False, 1, ("a",)))
        assert Fail("a") != Fail("b")
        assert Fail("a") != "a"

    def test_cannot_be_changed(self):
        with pytest.raises(dataclasses.FrozenInstanceError):
            Fail("a").passed = True  # type: ignore[misc]

    @pytest.mark.parametrize(
        "verdict",
        [Fail("a", score=0.5, feedback="do b", measured={"x": 1.0}), Verdict(True, check="part")],
    )
    def test_survives_pickling_and_plain_data(self, verdict):
        # S4-4
        assert pickle.loads(pickle.dumps(verdict)) == verdict
        assert Verdict.from_dict(verdict.to_dict()) == verdict

    def test_as_plain_data_has_the_four_documented_keys(self):
        # S3-3
        assert Fail("a").to_dict() == {
            "passed": False,
            "score": None,
            "reasons": ["a"],
            "feedback": None,
        }


class TestRejected:
    def test_has_a_reason_and_a_check(self):
        # S0-36
        error = Rejected("does not parse", check="schema")

        assert (error.reason, error.check) == ("does not parse", "schema")
        assert str(error) == "does not parse"
        assert Rejected("x").check is None

    def test_joins_several_reasons(self):
        # C-8
        error = Rejected("a", ["b", ""])

        assert error.reasons == ("a", "b")
        assert error.reason == "a; b"

    def test_survives_pickling(self):
        # S0-43
        error = pickle.loads(pickle.dumps(Rejected("a", "b", check="c", value=[1], score=0.5)))

        assert (error.reasons, error.check, error.value, error.score) == (
            ("a", "b"),
            "c",
            [1],
            0.5,
        )

    def test_a_subclass_that_forgets_super_is_whole(self):
        # S0-13
        class TooHot(Rejected):
            def __init__(self, kelvin: float) -> None:
                self.kelvin = kelvin

        error = TooHot(900)

        assert (error.reasons, error.check, error.value, error.score) == (
            ("900",),
            None,
            None,
            None,
        )


class TestAttempt:
    def test_accepted_has_no_reason(self):
        # S0-48
        attempt = judged(Ruling("shape", 1, True, Verdict(True)))

        assert attempt.accepted
        assert (attempt.rejected_by, attempt.reason, attempt.reasons) == (None, None, ())
        assert attempt.feedback == ()

    def test_rejected_names_the_first_check_and_all_reasons(self):
        # S0-47, C-8
        attempt = judged(
            Ruling("shape", 1, True, Verdict(True)),
            Ruling("low", 2, True, Fail("a", "b")),
            Ruling("taste", 2, False, Fail("dull")),
            Ruling("high", 2, True, Fail("c", feedback="go lower")),
        )

        assert not attempt.accepted
        assert attempt.rejected_by == "low"
        assert attempt.reasons == ("a", "b", "c")
        assert attempt.reason == "a; b; c"
        assert attempt.feedback == ("a", "b", "go lower")  # C-9

    def test_a_soft_ruling_rejects_nothing(self):
        assert judged(Ruling("taste", 1, False, Fail("dull"))).accepted

    def test_is_frozen_and_compared_by_content(self):
        # S0-51
        attempt = rejected_attempt()

        assert attempt == rejected_attempt()
        assert attempt != rejected_attempt(2)
        assert hash(attempt) == hash(rejected_attempt())
        with pytest.raises(dataclasses.FrozenInstanceError):
            attempt.index = 2  # type: ignore[misc]

    def test_shows_the_start_of_a_large_value_only(self):
        # S0-51
        large: Attempt[str] = Attempt(1, "x" * 10**6)

        assert len(repr(large)) < 300
        assert "accepted" in repr(large)
        assert "rejected_by='shape'" in repr(rejected_attempt())
        assert len(repr(Outcome("x" * 10**6, "accepted", (large,)))) < 300

    def test_is_generic_at_run_time_too(self):
        # S0-5
        assert get_args(tuple[Attempt[int], ...]) == (Attempt[int], ...)
        assert Attempt[int](1, 5).value == 5
        assert Outcome[int](5, "accepted", ()).value == 5

    def test_survives_pickling_with_its_outcome(self):
        # S0-43
        outcome = Outcome(3, "fallback", (rejected_attempt(),))

        assert pickle.loads(pickle.dumps(outcome)) == outcome

    def test_feedback_of_several_is_one_list(self):
        # S4-18
        attempts = [rejected_attempt(1, "a", "b"), Attempt(2, 0), rejected_attempt(3, "c")]

        assert feedback_of(attempts) == ["a", "b", "c"]


class TestNotAccepted:
    def test_says_name_number_and_last_reasons(self):
        # S0-44, S0-45, S4-41
        attempts = (rejected_attempt(1, "no"), rejected_attempt(2, "a", "b", "c", "d"))
        error = NotAccepted("planner", attempts, escalation_of(attempts))

        assert str(error) == "planner: not accepted after 2 attempt(s): a; b; c"
        assert error.attempts == attempts

    def test_cuts_each_reason(self):
        # S0-45, C-20
        text = escalation_of([rejected_attempt(1, "r" * 10**6, "s")])

        assert len(text) < 600
        assert text.endswith("…; s")

    def test_survives_pickling(self):
        # S0-43
        error = pickle.loads(pickle.dumps(NotAccepted("n", (rejected_attempt(),), "why")))

        assert (error.name, error.attempts, error.escalation) == ("n", (rejected_attempt(),), "why")

    def test_its_attempts_are_found_like_those_of_a_failure(self):
        attempts = (rejected_attempt(),)

        assert attempts_of(NotAccepted("n", attempts, "")) == attempts


def test_a_strange_error_has_no_attempts_even_when_its_causes_go_in_a_circle():
    one, other = ValueError(), KeyError()
    one.__cause__, other.__cause__ = other, one

    assert attempts_of(one) == ()


class TestName:
    @pytest.mark.parametrize(
        ("function", "name"),
        [
            (len, "len"),
            (lambda value: None, "lambda"),
            (functools.partial(functools.partial(max, 1), 2), "max"),
            ("".join, "join"),
            (Box, "Box"),
        ],
    )
    def test_is_the_functions_own(self, function, name):
        # S0-59, S0-60
        assert name_of(function) == name
        assert as_check(function).name == name

    def test_of_a_method_is_the_methods_and_of_an_object_its_class(self):
        # S0-60
        class Limit:
            def judge(self, value: int) -> None:
                """Judge nothing."""

            def __call__(self, value: int) -> None:
                """Judge nothing."""

        assert name_of(Limit().judge) == "judge"
        assert name_of(Limit()) == "Limit"

    def test_can_be_given(self):
        # S0-60
        assert check(name="bounds")(len).name == "bounds"  # type: ignore[arg-type]


class TestCheck:
    def test_decorated_keeps_its_function_callable(self):
        @check
        def positive(value: int) -> bool:
            return value > 0

        assert isinstance(positive, Check)
        assert positive(3) is True
        assert as_check(positive) is positive

    def test_takes_its_rules_from_the_decorator(self):
        @check(name="taste", hard=False, thread=True, rejects=(Rejected, ValueError))
        def dull(value: int) -> None:
            """Like anything."""

        assert (dull.name, dull.hard, dull.thread) == ("taste", False, True)
        assert dull.rejects == (Rejected, ValueError)

    @pytest.mark.parametrize(
        "rejects", [Rejected, [Rejected], (asyncio.CancelledError,), (KeyboardInterrupt,), ("x",)]
    )
    def test_cannot_take_a_cancellation_for_a_rejection(self, rejects):
        # S0-12
        with pytest.raises(TypeError, match="rejects"):
            check(rejects=rejects)(len)  # type: ignore[arg-type]

    @pytest.mark.parametrize("function", ["name", None, 5, [len]])
    def test_must_be_callable(self, function):
        with pytest.raises(TypeError, match="must be a function of the value"):
            as_check(function)

    @pytest.mark.parametrize("answer", [None, True, np.bool_(True), np.True_, Verdict(True, 0.9)])
    async def test_passes_on(self, answer):
        # S0-27, C-6
        assert (await answering(answer).judge(0)).passed

    @pytest.mark.parametrize("answer", [False, np.bool_(False), Fail(), Verdict(False)])
    async def test_does_not_pass_on(self, answer):
        # S0-27, C-6
        verdict = await answering(answer).judge(0)

        assert not verdict.passed
        assert verdict.reasons == ("answer is false",)

    @pytest.mark.parametrize(
        "answer", [1, 0, "passed", "", [], np.array([True]), np.float64(1), object(), ("True",)]
    )
    async def test_fails_on_any_other_answer(self, answer):
        # S0-27, C-7, I-14: never a pass, and never a re-ask
        with pytest.raises(TypeError, match=r"check 'answer' returned a .*; return None or True"):
            await answering(answer).judge(0)

    @pytest.mark.filterwarnings("ignore:coroutine .* was never awaited:RuntimeWarning")
    async def test_an_answer_forgotten_to_be_awaited_twice_is_no_pass(self):
        # S0-27
        async def inner(value: int) -> bool:
            return True

        async def outer(value: int) -> Any:
            return inner(value)

        with pytest.raises(TypeError, match="returned a coroutine"):
            await as_check(outer).judge(0)

    async def test_async_and_future_answers_are_awaited(self):
        # S0-25
        async def later(value: int) -> bool:
            await asyncio.sleep(0)
            return value > 1

        def as_a_task(value: int) -> asyncio.Task[bool]:
            return asyncio.create_task(later(value))

        assert (await as_check(later).judge(2)).passed
        assert not (await as_check(as_a_task).judge(1)).passed

    async def test_false_tells_the_first_line_of_the_docstring(self):
        # C-7, S4-6
        def even(value: int) -> bool:
            """

            Must be even.

            More words.
            """
            return value % 2 == 0

        assert (await as_check(even).judge(1)).reasons == ("Must be even.",)
        assert (await as_check(functools.partial(even)).judge(1)).reasons == ("Must be even.",)

    async def test_a_verdict_without_reasons_keeps_its_other_fields(self):
        def nearly(value: int) -> Verdict:
            return Verdict(False, 0.4, feedback="more", measured={"x": 1.0}, check="part")

        verdict = await as_check(nearly).judge(0)

        assert verdict == Verdict(
            False, 0.4, "nearly is false", "more", measured={"x": 1.0}, check="part"
        )

    async def test_raising_rejected_tells_its_reasons_score_and_part(self):
        # S0-6, S0-37
        def bounds(value: int) -> None:
            raise Rejected("a", "b", check="upper", score=0.1)

        assert await as_check(bounds).judge(0) == Verdict(False, 0.1, ("a", "b"), check="upper")

    async def test_raising_rejected_without_a_reason_gets_one(self):
        # S0-41
        def bounds(value: int) -> None:
            raise Rejected

        assert (await as_check(bounds).judge(0)).reasons == ("rejected by bounds",)

    async def test_a_rejection_in_a_subclass_own_words_is_told_in_them(self):
        # S0-13, S0-40
        class TooHot(Rejected):
            def __str__(self):
                return f"{self.args[0]} K is too hot"

        def cool(value: int) -> None:
            raise TooHot(900) from ValueError("melted")

        assert (await as_check(cool).judge(0)).reasons == ("900 K is too hot",)

    async def test_raising_a_validation_error_rejects(self):
        # S0-6, S0-46
        def boxed(value: Any) -> None:
            Box.model_validate(value)

        verdict = await as_check(boxed).judge({"width": 0})

        assert verdict.reasons == ("width: Input should be greater than 0",)

    def test_pydantics_error_is_the_same_class_everywhere(self):
        # I-10, S0-13
        assert pydantic.ValidationError is pydantic_core.ValidationError is ValidationError

    async def test_the_error_of_the_old_pydantic_is_a_failure(self):
        # S0-13
        def old(value: Any) -> None:
            pydantic.v1.parse_obj_as(int, value)

        with pytest.raises(pydantic.v1.ValidationError):
            await as_check(old).judge("x")

    async def test_any_other_exception_is_a_failure_as_it_is(self):
        # S0-9, S0-11
        error = TimeoutError("solver")

        def solver(value: int) -> None:
            raise error

        with pytest.raises(TimeoutError) as caught:
            await as_check(solver).judge(0)
        assert caught.value is error

    async def test_a_group_of_rejections_is_a_failure(self):
        # S0-14
        async def both(value: int) -> None:
            async def reject() -> None:
                raise Rejected("no")

            async with asyncio.TaskGroup() as group:
                group.create_task(reject())

        with pytest.raises(ExceptionGroup) as caught:
            await as_check(both).judge(0)
        assert caught.group_contains(Rejected)

    async def test_rejects_can_be_narrowed(self):
        # I-9, C-24
        def boxed(value: Any) -> None:
            Box.model_validate(value)

        with pytest.raises(ValidationError):
            await check(rejects=(Rejected,))(boxed).judge({})

    async def test_rejects_can_be_widened(self):
        # C-1
        def fragile(value: int) -> None:
            raise RuntimeError("boom" * 1000)

        (reason,) = (await check(rejects=(Exception,))(fragile).judge(0)).reasons

        assert reason.startswith("fragile: RuntimeError: boomboom")
        assert len(reason) == 500

    async def test_runs_in_the_loops_thread_by_default_and_in_another_on_demand(self):
        # S0-26
        variable = contextvars.ContextVar("variable", default="lost")
        seen = []

        def look(value: int) -> None:
            seen.append((threading.current_thread(), variable.get()))

        variable.set("kept")
        await as_check(look).judge(0)
        await check(thread=True)(look).judge(0)

        (here, _), (there, kept) = seen
        assert here is threading.current_thread()
        assert there is not here
        assert kept == "kept"

    async def test_an_async_function_started_in_a_thread_is_awaited_in_the_loop(self):
        async def later(value: int) -> bool:
            return asyncio.get_running_loop() is loop

        loop = asyncio.get_running_loop()

        assert (await check(thread=True)(later).judge(0)).passed

    @pytest.mark.parametrize("thread", [False, True])
    async def test_stop_iteration_is_a_failure_and_never_a_hang(self, thread):
        # S0-18
        def empty(value: int) -> None:
            next(iter(()))

        with pytest.raises(RuntimeError, match="raised StopIteration"):
            await check(thread=thread)(empty).judge(0)

    async def test_can_be_wrapped_without_changing_its_verdict(self):
        heard = []

        @check(name="even", hard=False, rejects=(Exception,))
        def inner(value: int) -> bool:
            return value % 2 == 0

        async def recorded(value: int) -> Verdict:
            heard.append(await inner.judge(value))
            return heard[-1]

        outer = dataclasses.replace(inner, function=recorded, thread=False, rejects=())

        assert await outer.judge(3) is heard[0]
        assert (outer.name, outer.hard) == ("even", False)


class TestValidationReasons:
    def test_tell_place_and_message_and_never_the_input(self):
        # S0-46, C-13
        reasons = validation_reasons(invalid({"width": "secret", "label": 7}))

        assert reasons == (
            "width: Input should be a valid integer, unable to parse string as an integer",
            "label: Input should be a valid string",
        )

    def test_of_the_whole_value_have_no_place(self):
        # S0-46
        assert validation_reasons(invalid("secret")) == (
            "Input should be a valid dictionary or instance of Box",
        )

    def test_are_few_and_short_whatever_the_input(self):
        many = TypeAdapter(dict[str, int])
        with pytest.raises(ValidationError) as caught:
            many.validate_python({f"{n}" * 10_000: "x" for n in range(50)})

        reasons = validation_reasons(caught.value)

        assert len(reasons) == 21
        assert reasons[-1] == "and 30 more errors"
        assert max(map(len, reasons)) == 500

    def test_an_error_without_errors_still_gives_a_reason(self):
        empty = ValidationError.from_exception_data("Box", [])

        assert verdict_of(empty, by="schema").reasons == ("rejected by schema",)


def test_a_cut_text_shows_that_it_was_cut():
    assert cut("abcdef", 6) == "abcdef"
    assert cut("abcdefg", 6) == "abcde…"
