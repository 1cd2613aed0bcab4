"""The spans and events of `accept`, as an SDK sees them."""

import asyncio
import contextvars
import functools
import gc
import json
import logging
import math
import subprocess
import sys
import textwrap
import threading
from collections.abc import Coroutine, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from opentelemetry import _logs, context, trace
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, Sampler
from opentelemetry.trace import SpanKind, StatusCode
from pydantic import BaseModel, TypeAdapter, ValidationError

from batchgate import Attempt, Fail, NotAccepted, Rejected, Verdict, accept, accept_sync, check
from batchgate import accept_telemetry as module

SWITCH = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


class Seen:
    """What an SDK recorded."""

    def __init__(self, spans: InMemorySpanExporter, events: InMemoryLogRecordExporter) -> None:
        self._spans = spans
        self._events = events

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self._spans.get_finished_spans())

    @property
    def call(self) -> ReadableSpan:
        (span,) = [s for s in self.spans if s.name.startswith("accept ")]
        return span

    @property
    def attempts(self) -> list[ReadableSpan]:
        return [s for s in self.spans if s.name.startswith("accept.attempt ")]

    def named(self, name: str) -> ReadableSpan:
        (span,) = [s for s in self.spans if s.name == name]
        return span

    @property
    def records(self) -> list[Any]:
        return [data.log_record for data in self._events.get_finished_logs()]

    @property
    def events(self) -> list[dict[str, Any]]:
        return [dict(record.attributes) for record in self.records]


def install(monkeypatch: pytest.MonkeyPatch, tracers: Any, loggers: Any) -> None:
    # As a program does once with set_tracer_provider() and set_logger_provider().
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracers)
    monkeypatch.setattr(_logs._internal, "_LOGGER_PROVIDER", loggers)


@pytest.fixture(autouse=True)
def no_sdk(monkeypatch):
    """Start without providers, and without warnings told before."""
    install(monkeypatch, None, None)
    monkeypatch.delenv(SWITCH, raising=False)
    module._log_once.cache_clear()


@pytest.fixture
def seen(monkeypatch, no_sdk):
    spans, events = InMemorySpanExporter(), InMemoryLogRecordExporter()
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(events))
    install(monkeypatch, tracers, loggers)
    yield Seen(spans, events)
    tracers.shutdown()
    loggers.shutdown()


def script(*answers: Any) -> Any:
    """Return a producer that gives or raises these, one after the other."""
    left = iter(answers)

    def planner(previous: tuple[Attempt[Any], ...]) -> Any:
        answer = next(left)
        if isinstance(answer, BaseException):
            raise answer
        return answer

    return planner


def positive(value: Any) -> None:
    if not value > 0:
        raise Rejected(f"{value} is not above 0")


def anything(value: Any) -> None:
    """Pass."""


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


def own_span(name: str) -> Any:
    """Start a span of the test's own, made by the provider of the moment."""
    return trace.get_tracer("test").start_as_current_span(name)


def parent_id(span: ReadableSpan) -> int | None:
    return span.parent.span_id if span.parent else None


def span_id(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.span_id)


def drive(coroutine: Coroutine[Any, Any, Any]) -> Any:
    try:
        coroutine.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


class TestSpans:
    async def test_one_for_the_call_and_one_for_each_attempt_below_it(self, seen):
        # S0-61, S0-68, S0-72
        await accept(script(-1, 2), checks=[positive], attempts=3)

        assert [s.name for s in seen.spans] == [
            "accept.attempt planner",
            "accept.attempt planner",
            "accept planner",
        ]
        assert {s.kind for s in seen.spans} == {SpanKind.INTERNAL}
        assert {parent_id(s) for s in seen.attempts} == {span_id(seen.call)}
        assert [attributes(s)["flowgentic.accept.attempt"] for s in seen.attempts] == [1, 2]

    @pytest.mark.parametrize(
        ("answers", "fallback", "disposition"),
        [((-1, 2), None, "accepted"), ((-1, -1), lambda: 0, "fallback")],
    )
    async def test_the_calls_says_how_it_ended(self, seen, answers, fallback, disposition):
        # S0-62, S0-67
        await accept(
            script(*answers), checks=[positive], attempts=2, fallback=fallback, name="planner"
        )

        assert attributes(seen.call) == {
            "flowgentic.accept.name": "planner",
            "flowgentic.accept.attempts.max": 2,
            "flowgentic.accept.attempts.used": 2,
            "flowgentic.accept.disposition": disposition,
        }
        assert seen.call.status.status_code is StatusCode.UNSET

    @pytest.mark.parametrize("escalate", [False, True])
    async def test_not_accepted_is_an_error_raised_or_not(self, seen, escalate):
        # S0-62, S0-63, S0-64, C-5
        try:
            await accept(script(-1), checks=[positive], escalate=escalate)
        except NotAccepted:
            assert not escalate

        assert attributes(seen.call) == {
            "flowgentic.accept.name": "planner",
            "flowgentic.accept.attempts.max": 1,
            "flowgentic.accept.attempts.used": 1,
            "flowgentic.accept.disposition": "not_accepted",
            "error.type": "batchgate.outcome.NotAccepted",
        }
        assert seen.call.status.status_code is StatusCode.ERROR
        assert seen.call.status.description == (
            "not accepted after 1 attempt(s): -1 is not above 0"
        )
        assert not seen.call.events

    async def test_a_rejected_attempt_is_no_error_and_says_why(self, seen):
        # S0-69, S0-85
        def broken(value: Any) -> None:
            raise Rejected("x" * 10_000, check="part") from ValueError("y")

        await accept(script(Rejected("garbled"), 1), checks=[broken], attempts=2, fallback=int)

        first, second = seen.attempts
        assert [s.status.status_code for s in seen.spans] == [StatusCode.UNSET] * 3
        assert not any(s.events for s in seen.spans)
        assert attributes(first) == {
            "flowgentic.accept.attempt": 1,
            "flowgentic.accept.rejected_by": "producer",
            "flowgentic.accept.reason": "garbled",
            "batchgate.verdicts": ("producer: fail, garbled",),
        }
        assert attributes(second)["flowgentic.accept.rejected_by"] == "part"
        assert len(attributes(second)["flowgentic.accept.reason"].encode()) == 4096

    async def test_an_accepted_attempt_says_nothing_more(self, seen):
        await accept(script(1), checks=[positive])

        assert attributes(seen.attempts[0]) == {
            "flowgentic.accept.attempt": 1,
            "batchgate.verdicts": ("positive: pass",),
        }

    async def test_a_failure_in_an_attempt_is_told_once(self, seen):
        # S0-63, S0-64, S0-65, S0-70
        def broken(value: Any) -> None:
            raise TimeoutError("solver")

        with pytest.raises(TimeoutError):
            await accept(script(-1, 1), checks=[positive, broken], attempts=3)

        _, failed = seen.attempts
        for span in (failed, seen.call):
            assert span.status.status_code is StatusCode.ERROR
            assert span.status.description == "solver"
            assert attributes(span)["error.type"] == "TimeoutError"
        (event,) = failed.events
        assert event.name == "exception"
        assert event.attributes is not None
        assert event.attributes["exception.type"] == "TimeoutError"
        assert event.attributes["exception.message"] == "solver"
        assert "in broken" in str(event.attributes["exception.stacktrace"])
        assert not seen.call.events
        assert attributes(seen.call)["flowgentic.accept.attempts.used"] == 2
        assert "flowgentic.accept.disposition" not in attributes(seen.call)

    async def test_a_failure_of_the_fallback_is_told_on_the_calls(self, seen):
        # S0-56, S0-58, S0-65
        def narrow() -> int:
            raise ValueError("the bounds are too narrow")

        with pytest.raises(ValueError, match="narrow"):
            await accept(script(-1), checks=[positive], fallback=narrow)

        assert seen.attempts[0].status.status_code is StatusCode.UNSET
        assert [e.name for e in seen.call.events] == ["exception"]
        assert attributes(seen.call)["error.type"] == "ValueError"

    async def test_error_types_are_named_as_opentelemetry_names_them(self, seen):
        # S0-64
        class Local(Exception):
            """An error of a test."""

        with pytest.raises(Local):
            await accept(script(Local()))

        with pytest.raises(Local), own_span("theirs"):
            raise Local
        (theirs,) = seen.named("theirs").events
        assert theirs.attributes is not None
        assert attributes(seen.call)["error.type"] == theirs.attributes["exception.type"]

    @pytest.mark.parametrize(
        ("error", "kind"),
        [
            (asyncio.CancelledError(), "asyncio.exceptions.CancelledError"),
            (KeyboardInterrupt(), "KeyboardInterrupt"),
            (SystemExit(1), "SystemExit"),
        ],
    )
    def test_an_interruption_ends_both_as_an_error(self, seen, error, kind):
        # S0-12, S0-66
        with pytest.raises(type(error)):
            drive(accept(script(error)))

        assert [s.name for s in seen.spans] == ["accept.attempt planner", "accept planner"]
        for span in seen.spans:
            assert span.status.status_code is StatusCode.ERROR
            assert attributes(span)["error.type"] == kind

    async def test_a_cancelled_fallback_ends_the_calls(self, seen):
        # S0-12, S0-66
        began = asyncio.Event()

        async def stuck() -> int:
            began.set()
            await asyncio.Event().wait()
            return 0

        task = asyncio.create_task(accept(script(-1), checks=[positive], fallback=stuck))
        await began.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert attributes(seen.call)["error.type"] == "asyncio.exceptions.CancelledError"

    async def test_private_input_does_not_leak_with_a_failing_validation(self, seen):
        # S0-46, C-13
        def bug(value: Any) -> None:
            TypeAdapter(int).validate_python("private")

        with pytest.raises(ValidationError):
            await accept(script(1), checks=[check(rejects=(Rejected,))(bug)])

        assert seen.spans
        for span in seen.spans:
            assert "private" not in json.dumps([attributes(span), span.status.description])
            for event in span.events:
                told = dict(event.attributes or {})
                assert "private" not in told["exception.message"]

    async def test_an_error_is_told_within_bounds(self, seen):
        # O-13
        class Mute(Exception):
            def __str__(self):
                raise RuntimeError("no")

        for error in (RuntimeError("x" * 10**6), Mute()):
            with pytest.raises(type(error)):
                await accept(script(error))

        for span in seen.attempts:
            (event,) = span.events
            told = [*attributes(span).values(), *(event.attributes or {}).values()]
            assert max(len(str(text).encode()) for text in told) <= 16 * 1024
            assert span.status.status_code is StatusCode.ERROR

    async def test_the_end_of_a_long_stack_is_kept(self, seen):
        # O-13
        def ping(left: int) -> None:
            pong(left - 1)

        def pong(left: int) -> None:
            ping(left) if left else innermost()

        def innermost() -> None:
            raise RecursionError("deep")

        with pytest.raises(RecursionError):
            await accept(script(1), checks=[lambda value: ping(200)])

        (event,) = seen.attempts[0].events
        stack = str((event.attributes or {})["exception.stacktrace"])
        assert len(stack.encode()) <= 16 * 1024
        assert "in innermost" in stack

    async def test_surrogates_reach_no_name_status_or_attribute(self, seen):
        # S0-74
        name, text = "plan\ud800" * 100, "bad \udfff"

        def strange(value: Any) -> None:
            raise Rejected(text, check=text)

        with pytest.raises(NotAccepted):
            await accept(script(-1), checks=[strange], name=name)
        with pytest.raises(RuntimeError):
            await accept(script(RuntimeError(text)), name=name)

        for span in seen.spans:
            said = [span.name, span.status.description or "", *map(str, attributes(span).values())]
            "".join(said).encode()
            assert len(span.name.encode()) <= 220
        for event in seen.events:
            "".join(map(str, event.values())).encode()
        assert seen.events[0]["gen_ai.evaluation.explanation"] == "bad \\udfff"


class TestNesting:
    async def test_spans_of_producer_checks_tasks_and_threads_lie_below_the_attempt(self, seen):
        # S0-25, S0-71, I-15
        async def in_a_task() -> None:
            with own_span("task"):
                await asyncio.sleep(0)

        async def planner(previous: tuple[Attempt[int], ...]) -> int:
            with own_span("model"):
                await asyncio.create_task(in_a_task())
            return 1

        @check(thread=True)
        def solver(value: int) -> None:
            with own_span("solver"):
                pass

        async def verifier(value: int) -> None:
            await asyncio.create_task(in_a_verifier())

        async def in_a_verifier() -> None:
            with own_span("verifier"):
                await asyncio.sleep(0)

        await accept(planner, checks=[solver, verifier])

        (attempt,) = seen.attempts
        for name in ("model", "solver", "verifier"):
            assert parent_id(seen.named(name)) == span_id(attempt)
        assert parent_id(seen.named("task")) == span_id(seen.named("model"))

    async def test_the_fallback_lies_below_the_call_and_outside_every_attempt(self, seen):
        # S0-58
        def fallback() -> int:
            with own_span("surrogate"):
                pass
            return 0

        await accept(script(-1), checks=[positive], fallback=fallback)

        assert parent_id(seen.named("surrogate")) == span_id(seen.call)

    async def test_the_call_lies_below_the_span_that_was_current(self, seen):
        with own_span("campaign"):
            await accept(script(1))

        assert parent_id(seen.call) == span_id(seen.named("campaign"))

    async def test_nested_calls_nest(self, seen):
        # S0-35
        async def outer(previous: tuple[Attempt[int], ...]) -> int:
            return int((await accept(script(1), name="inner")).value)

        await accept(outer, name="outer")

        assert parent_id(seen.named("accept inner")) == span_id(seen.named("accept.attempt outer"))

    async def test_a_sampled_out_call_keeps_its_children_sampled_out(self, seen, monkeypatch):
        spans = InMemorySpanExporter()
        tracers = TracerProvider(sampler=ALWAYS_OFF)
        tracers.add_span_processor(SimpleSpanProcessor(spans))
        install(monkeypatch, tracers, _logs.get_logger_provider())
        found = []

        def look(value: int) -> None:
            found.append(trace.get_current_span().get_span_context())

        await accept(script(1), checks=[look])

        assert found[0].is_valid
        assert not found[0].trace_flags.sampled
        assert seen.records[0].span_id == found[0].span_id


class TestContext:
    @pytest.mark.parametrize(
        "answers",
        [(1,), (-1, 1), (-1, -1), (RuntimeError("x"),), (Rejected("x"), asyncio.CancelledError())],
    )
    def test_is_put_back_on_every_way_out(self, seen, answers, caplog):
        # S0-73
        before = context.get_current()

        with suppress(RuntimeError, asyncio.CancelledError):
            drive(accept(script(*answers), checks=[positive], attempts=2, fallback=int))

        assert context.get_current() is before
        assert not caplog.records

    async def test_is_put_back_after_a_check_that_changed_it(self, seen):
        # S0-73, S0-81
        async def meddler(value: int) -> None:
            await asyncio.sleep(0)
            context.attach(trace.set_span_in_context(trace.get_tracer("test").start_span("leaked")))

        before = context.get_current()
        await accept(script(1), checks=[meddler, anything])

        assert context.get_current() is before
        assert {r.span_id for r in seen.records} == {span_id(seen.attempts[0])}

    def test_is_put_back_when_the_coroutine_is_closed(self, seen, caplog):
        # S0-12, S0-73
        async def planner(previous: tuple[Attempt[int], ...]) -> int:
            await asyncio.Event().wait()
            return 1

        before = context.get_current()
        running = accept(planner)
        loop = asyncio.new_event_loop()
        asyncio._set_running_loop(loop)
        try:
            running.send(None)
            running.close()
        finally:
            asyncio._set_running_loop(None)
            loop.close()

        assert context.get_current() is before
        assert [attributes(s)["error.type"] for s in seen.spans] == ["GeneratorExit"] * 2
        assert not caplog.records

    def test_of_another_is_left_alone_when_the_coroutine_is_closed_from_there(self, seen, caplog):
        # S0-12, S0-73, I-16
        class Pause:
            def __await__(self):
                yield

        async def planner(previous: tuple[Attempt[int], ...]) -> int:
            await Pause()
            return 1

        running = accept(planner)
        contextvars.copy_context().run(running.send, None)
        with own_span("elsewhere") as elsewhere:
            running.close()
            gc.collect()
            assert trace.get_current_span() is elsewhere

        assert [s.name for s in seen.spans[:2]] == ["accept.attempt planner", "accept planner"]
        assert not caplog.records


class TestEvents:
    async def test_one_for_each_check_that_ran_in_their_order(self, seen):
        # S0-77, S0-78, S0-79, S0-81
        def scored(value: int) -> Verdict:
            return Verdict(True, score=0.5)

        async def slow(value: int) -> Verdict:
            await asyncio.sleep(0)
            return Fail("a", "b", score=0.25)

        await accept(script(1), checks=[scored, slow, anything], escalate=True)

        assert {r.event_name for r in seen.records} == {"gen_ai.evaluation.result"}
        assert seen.events == [
            {
                "gen_ai.evaluation.name": "scored",
                "gen_ai.evaluation.score.label": "pass",
                "gen_ai.evaluation.score.value": 0.5,
            },
            {
                "gen_ai.evaluation.name": "slow",
                "gen_ai.evaluation.score.label": "fail",
                "gen_ai.evaluation.score.value": 0.25,
                "gen_ai.evaluation.explanation": "a; b",
            },
        ]

    async def test_one_when_the_producer_rejects_and_none_when_it_gives(self, seen):
        # S0-77
        await accept(script(Rejected("cut", check="truncation"), 1), attempts=2)

        assert seen.events == [
            {
                "gen_ai.evaluation.name": "truncation",
                "gen_ai.evaluation.score.label": "fail",
                "gen_ai.evaluation.explanation": "cut",
            }
        ]

    async def test_none_for_the_fallback(self, seen):
        # S0-55
        await accept(script(-1), checks=[positive], fallback=int)

        assert [e["gen_ai.evaluation.name"] for e in seen.events] == ["positive"]

    async def test_carry_the_ids_of_their_attempt(self, seen):
        # S0-80
        await accept(script(Rejected("x"), -1, 1), checks=[positive], attempts=3)

        ids = [(r.trace_id, r.span_id) for r in seen.records]
        assert ids == [(s.context.trace_id, s.context.span_id) for s in seen.attempts if s.context]
        assert not any(s.events for s in seen.spans)

    async def test_of_many_concurrent_calls_stay_with_their_attempts(self, seen):
        # S0-90
        async def run(number: int) -> None:
            async def later(value: int) -> None:
                await asyncio.sleep(0.001 * (number % 5))

            later.__name__ = f"check{number}"
            await accept(script(-1, 1), checks=[later, positive], attempts=2, name=f"n{number}")

        await asyncio.gather(*map(run, range(50)))

        names = {span_id(s): s.name.removeprefix("accept.attempt n") for s in seen.attempts}
        own = [
            record
            for record in seen.records
            if record.attributes["gen_ai.evaluation.name"] == f"check{names[record.span_id]}"
        ]
        assert (len(seen.records), len(own)) == (200, 100)

    async def test_of_a_check_that_fails_has_no_label(self, seen):
        # S0-87, S0-27
        def odd(value: int) -> Any:
            return "passed"

        with pytest.raises(TypeError):
            await accept(script(1), checks=[anything, odd])

        assert seen.events[1] == {"gen_ai.evaluation.name": "odd", "error.type": "TypeError"}

    async def test_explanations_are_bounded(self, seen):
        # O-13, C-20
        async def verbose(value: int) -> Verdict:
            return Fail("é" * 10**6)

        outcome = await accept(script(1), checks=[verbose], escalate=True)

        text = seen.events[0]["gen_ai.evaluation.explanation"]
        assert text.endswith("…")
        assert 4090 < len(text.encode()) <= 4096
        assert len(outcome.attempts[0].reason or "") == 10**6

    def test_need_a_logger_provider_only(self, seen, monkeypatch):
        # S0-82
        install(monkeypatch, None, _logs.get_logger_provider())

        accept_sync(script(-1, 1), checks=[positive], attempts=2)

        assert [e["gen_ai.evaluation.score.label"] for e in seen.events] == ["fail", "pass"]
        assert seen.records[0].span_id == 0
        assert not seen.spans

    async def test_are_not_built_for_a_logger_that_is_not_enabled(self, seen, monkeypatch):
        # S0-82
        install(monkeypatch, trace.get_tracer_provider(), _logs.NoOpLoggerProvider())

        class Private:
            @property
            def response_metadata(self) -> Any:
                raise AssertionError("an event is built")

        def broken(value: Any) -> None:
            raise KeyError

        await accept(script(Private()), checks=[anything])
        with pytest.raises(KeyError):
            await accept(script(Private()), checks=[broken])

        assert not seen.events

    @pytest.mark.parametrize(
        ("metadata", "found"),
        [
            ({"id": "chatcmpl-abc"}, "chatcmpl-abc"),
            ({"id": None}, None),
            ({"id": ""}, None),
            ({}, None),
            ("chatcmpl-abc", None),
        ],
    )
    async def test_name_the_providers_response(self, seen, metadata, found):
        # S0-78, S0-88
        @dataclass
        class Message:
            response_metadata: Any
            id: str = "lc_run--1234"

        await accept(script(Message(metadata)), checks=[anything])

        assert seen.events[0].get("gen_ai.response.id") == found

    async def test_name_the_response_that_a_producer_rejects(self, seen):
        # S0-42, S0-78
        @dataclass
        class Message:
            response_metadata: Mapping[str, str] = field(
                default_factory=lambda: {"id": "chatcmpl-abc"}
            )

        await accept(script(Rejected("x", value=Message())), escalate=True)

        assert seen.events[0]["gen_ai.response.id"] == "chatcmpl-abc"

    @pytest.mark.filterwarnings("ignore")
    def test_are_named_as_the_conventions_name_them(self):
        # O-8
        from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as names
        from opentelemetry.semconv.attributes.error_attributes import ERROR_TYPE

        assert module.EVENT == "gen_ai.evaluation.result"
        assert [
            names.GEN_AI_EVALUATION_NAME,
            names.GEN_AI_EVALUATION_SCORE_LABEL,
            names.GEN_AI_EVALUATION_SCORE_VALUE,
            names.GEN_AI_EVALUATION_EXPLANATION,
            names.GEN_AI_RESPONSE_ID,
            ERROR_TYPE,
        ] == [
            "gen_ai.evaluation.name",
            "gen_ai.evaluation.score.label",
            "gen_ai.evaluation.score.value",
            "gen_ai.evaluation.explanation",
            "gen_ai.response.id",
            "error.type",
        ]


class Candidate(BaseModel):
    x: float


class TestCapture:
    async def capture(self, value: Any, seen: Seen) -> dict[str, Any]:
        await accept(script(value), checks=[lambda value: False], escalate=True)
        return attributes(seen.attempts[-1])

    @pytest.mark.parametrize("switch", ["SPAN_ONLY", " span_and_event\n"])
    async def test_puts_a_rejected_value_on_its_attempt(self, seen, monkeypatch, switch):
        # S0-83, S0-84, S0-86
        monkeypatch.setenv(SWITCH, switch)

        await accept(
            script(Candidate(x=math.nan), Candidate(x=1)),
            checks=[lambda c: not math.isnan(c.x)],
            attempts=2,
        )

        rejected, accepted = seen.attempts
        assert attributes(rejected)["flowgentic.accept.value"] == '{"x":{"$f":"nan"}}'
        assert "flowgentic.accept.value" not in attributes(accepted)
        assert "flowgentic.accept.value.truncated" not in attributes(rejected)
        assert not any("nan" in json.dumps(event) for event in seen.events)

    @pytest.mark.parametrize("switch", [None, "", "NO_CONTENT", "EVENT_ONLY", "true", "1"])
    async def test_is_off_otherwise_and_the_reason_is_told(self, seen, monkeypatch, switch):
        # S0-83, S0-84, S0-85, I-20
        if switch is not None:
            monkeypatch.setenv(SWITCH, switch)

        told = await self.capture(Candidate(x=1), seen)

        assert "flowgentic.accept.value" not in told
        assert told["flowgentic.accept.reason"] == "lambda is false"

    async def test_keeps_rejected_values_in_the_outcome_whatever_the_switch(self, seen):
        # S0-52
        outcome = await accept(script(-7), checks=[positive], escalate=True)

        assert outcome.attempts[0].value == -7

    async def test_reads_the_switch_at_each_call_and_warns_once(self, seen, monkeypatch, caplog):
        # S0-84
        monkeypatch.setenv(SWITCH, "true")
        await self.capture(1, seen)
        await self.capture(1, seen)
        monkeypatch.setenv(SWITCH, "SPAN_ONLY")

        assert (await self.capture(1, seen))["flowgentic.accept.value"] == "1"
        (record,) = caplog.records
        assert "'TRUE'" in record.getMessage()
        assert record.levelno == logging.WARNING

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ({"f": math.inf}, '{"f":{"$f":"inf"}}'),
            (b"\xff", '{"$r":"b\'\\\\xff\'"}'),
            ("\ud800", '{"$s":"\\\\ud800"}'),
            (object, '{"$r":"<class \'object\'>"}'),
        ],
    )
    async def test_writes_any_value_as_strict_json(self, seen, monkeypatch, value, text):
        # S0-86, I-19
        monkeypatch.setenv(SWITCH, "SPAN_ONLY")

        assert (await self.capture(value, seen))["flowgentic.accept.value"] == text

    async def test_is_bounded_and_says_so(self, seen, monkeypatch):
        # S0-86
        monkeypatch.setenv(SWITCH, "SPAN_ONLY")

        told = await self.capture("é" * 10**6, seen)

        assert len(told["flowgentic.accept.value"].encode()) == 64 * 1024
        assert told["flowgentic.accept.value.truncated"] is True


class TestWithoutSDK:
    def test_nothing_is_computed(self, monkeypatch):
        # S0-75
        monkeypatch.setenv(SWITCH, "SPAN_ONLY")
        monkeypatch.setattr(module, "dumps", lambda value: pytest.fail("a value is written"))
        monkeypatch.setattr(module, "_clean", lambda *_: pytest.fail("a text is cleaned"))
        before = context.get_current()
        contexts = []

        def look(value: Any) -> bool:
            contexts.append(context.get_current())
            return False

        def broken(value: Any) -> None:
            raise KeyError

        accept_sync(script(Rejected("x"), 1), checks=[look], attempts=2, fallback=int)
        with pytest.raises(KeyError):
            accept_sync(script(1), checks=[broken])

        assert contexts == [before]

    def test_a_provider_that_is_installed_late_is_used(self):
        # S0-76: in a process of its own, with the functions a program uses
        program = """
            from batchgate import accept_sync
            accept_sync(lambda previous: 1, checks=[lambda value: True], name="early")

            from opentelemetry import trace
            from opentelemetry._logs import set_logger_provider
            from opentelemetry.sdk._logs import LoggerProvider
            from opentelemetry.sdk._logs.export import (
                InMemoryLogRecordExporter, SimpleLogRecordProcessor)
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import SimpleSpanProcessor
            from opentelemetry.sdk.trace.export.in_memory_span_exporter import (
                InMemorySpanExporter)

            spans, events = InMemorySpanExporter(), InMemoryLogRecordExporter()
            tracers, loggers = TracerProvider(), LoggerProvider()
            tracers.add_span_processor(SimpleSpanProcessor(spans))
            loggers.add_log_record_processor(SimpleLogRecordProcessor(events))
            trace.set_tracer_provider(tracers)
            set_logger_provider(loggers)

            accept_sync(lambda previous: 1, checks=[lambda value: True], name="late")
            print([s.name for s in spans.get_finished_spans()], len(events.get_finished_logs()))
        """

        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            check=False,
            capture_output=True,
            text=True,
        )

        assert done.stderr == ""
        assert done.stdout == "['accept.attempt late', 'accept late'] 1\n"

    def test_a_provider_that_the_environment_names_is_used(self):
        # S0-76: OpenTelemetry's own way to configure a process
        program = """
            from opentelemetry import trace
            from batchgate import accept_sync

            def look(value):
                print(trace.get_current_span().name)

            accept_sync(lambda previous: 1, checks=[look], name="configured")
        """

        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(program)],
            env={"OTEL_PYTHON_TRACER_PROVIDER": "sdk_tracer_provider"},
            check=False,
            capture_output=True,
            text=True,
        )

        assert done.stderr == ""
        assert done.stdout == "accept.attempt configured\n"

    def test_nothing_is_recorded_either_if_the_api_kept_its_providers_elsewhere(self, monkeypatch):
        # S0-75
        monkeypatch.setattr(module, "_LOGS_API", object())

        assert module.start_call("planner", 1) is module.SILENT


class Broken:
    """A processor, sampler or provider of which every method raises."""

    def __getattribute__(self, name: str) -> Any:
        def fail(*_: Any, **__: Any) -> Any:
            raise RuntimeError(name)

        return fail


class BrokenSpanProcessor(SpanProcessor):
    def on_start(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("on_start")

    def on_end(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("on_end")


class BrokenLogProcessor(LogRecordProcessor):
    def on_emit(self, *_: Any) -> None:
        raise RuntimeError("on_emit")

    def shutdown(self) -> None:
        """End."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


class BrokenSampler(Sampler):
    def should_sample(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("should_sample")

    def get_description(self) -> str:
        return "broken"


class EndingOnly(SpanProcessor):
    def on_end(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("on_end")


def providers(*, sampler: Any = None, spans: Any = None, logs: Any = None) -> tuple[Any, Any]:
    tracers, loggers = TracerProvider(sampler=sampler), LoggerProvider()
    if spans:
        tracers.add_span_processor(spans)
    if logs:
        loggers.add_log_record_processor(logs)
    return tracers, loggers


class TestBrokenTelemetry:
    @pytest.mark.parametrize(
        "made",
        [
            functools.partial(providers, spans=BrokenSpanProcessor()),
            functools.partial(providers, spans=EndingOnly()),
            functools.partial(providers, logs=BrokenLogProcessor()),
            functools.partial(providers, sampler=BrokenSampler()),
            lambda: (Broken(), Broken()),
        ],
        ids=["span start", "span end", "log", "sampler", "provider"],
    )
    async def test_never_changes_an_outcome_and_is_told_once(self, monkeypatch, caplog, made):
        # S0-89
        install(monkeypatch, *made())
        before = context.get_current()

        for _ in range(2):
            outcome = await accept(script(-1, 1), checks=[positive], attempts=2)
            fallen = await accept(script(-1), checks=[positive], fallback=int)
            with pytest.raises(KeyError):
                await accept(script(KeyError("x")))

            assert (outcome.value, fallen.value) == (1, 0)

        assert context.get_current() is before
        messages = [record.getMessage() for record in caplog.records]
        assert messages
        assert len(messages) == len(set(messages))
        assert all("RuntimeError" in message for message in messages)

    async def test_an_odd_value_does_not_cost_the_outcome(self, seen, caplog):
        # S0-89
        class Trap:
            @property
            def response_metadata(self) -> Any:
                raise RuntimeError("trap")

        assert (await accept(script(Trap()), checks=[anything])).accepted
        assert [s.name for s in seen.spans] == ["accept.attempt planner", "accept planner"]
        assert len(caplog.records) == 1

    async def test_a_lost_span_leaves_the_one_around_it_alone_and_its_ids_in_force(
        self, seen, monkeypatch
    ):
        # S0-89
        found = []

        def look(value: int) -> bool:
            found.append(trace.get_current_span().get_span_context())
            return False

        with own_span("campaign") as campaign:
            install(monkeypatch, *providers(sampler=BrokenSampler()))
            await accept(script(1), checks=[look], fallback=int)
            assert campaign.is_recording()

        assert found == [campaign.get_span_context()]
        assert not attributes(seen.named("campaign"))


def test_calls_in_several_threads_each_have_their_own_spans(seen):
    # S0-90
    threads = [
        threading.Thread(
            target=accept_sync,
            args=(script(-1, 1),),
            kwargs={"checks": [positive], "attempts": 2, "name": f"t{n}"},
        )
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    calls = {span_id(s): s.name for s in seen.spans if s.name.startswith("accept t")}
    assert len(calls) == 8
    for attempt in seen.attempts:
        parent = parent_id(attempt)
        assert parent is not None
        assert calls[parent].removeprefix("accept ") == attempt.name.removeprefix("accept.attempt ")
