"""Laws of `accept`, for any script of proposals, checks and interruptions."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry import _logs, context, trace
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from batchgate import Attempt, Check, Fail, NotAccepted, Outcome, Rejected, accept, attempts_of


@dataclass(frozen=True)
class Scripted:
    """What one check does with the values of the attempts, in their order.

    Each deed is `pass`, `false`, `fail`, `raise`, `async`, or `error`.
    """

    deeds: tuple[str, ...]
    hard: bool


deeds = st.sampled_from(["pass", "pass", "pass", "false", "fail", "raise", "async", "error"])
productions = st.lists(
    st.sampled_from(["value", "value", "value", "async", "reject", "error"]), min_size=1, max_size=5
)
stages = st.lists(
    st.lists(
        st.builds(Scripted, st.lists(deeds, min_size=5, max_size=5).map(tuple), st.booleans()),
        min_size=1,
        max_size=3,
    ),
    max_size=3,
)


class Boom(Exception):
    """A failure."""


class Run:
    """One call of `accept` over a script, and what was called in it."""

    def __init__(self, productions: Sequence[str], stages: Sequence[Sequence[Scripted]]) -> None:
        self.productions = productions
        self.asked = 0
        self.reached: list[tuple[int, int, int]] = []  # attempt, stage, place in the stage
        self.fallbacks = 0
        self.awaits = 0
        self.stages = [
            [
                Check(f"check{s}.{c}", self._check(s, c, scripted), hard=scripted.hard)
                for c, scripted in enumerate(stage, start=1)
            ]
            for s, stage in enumerate(stages, start=1)
        ]

    async def pause(self) -> None:
        self.awaits += 1
        await asyncio.sleep(0)

    async def producer(self, previous: tuple[Attempt[int], ...]) -> int:
        self.asked += 1
        assert len(previous) == self.asked - 1
        match self.productions[self.asked - 1]:
            case "async":
                await self.pause()
            case "reject":
                raise Rejected("garbled", check="schema")
            case "error":
                raise Boom
            case _:
                pass
        return self.asked

    async def fallback(self) -> int:
        self.fallbacks += 1
        await self.pause()
        return 0

    def _check(self, stage: int, place: int, scripted: Scripted) -> Callable[[int], Any]:
        def check(value: int) -> Any:
            self.reached.append((value, stage, place))
            match scripted.deeds[value - 1]:
                case "false":
                    return False
                case "fail":
                    return Fail("a", "b")
                case "raise":
                    raise Rejected("c")
                case "async":
                    return self.pause()
                case "error":
                    raise Boom
                case _:
                    return None

        return check

    def start(self, *, fallback: bool) -> Any:
        return accept(
            self.producer,
            checks=self.stages,
            attempts=len(self.productions),
            fallback=self.fallback if fallback else None,
            name="law",
        )


@pytest.fixture(scope="module")
def sdk():
    """Record what every call of this module emits; each example clears it first."""
    spans, events = InMemorySpanExporter(), InMemoryLogRecordExporter()
    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(events))
    with pytest.MonkeyPatch.context() as monkeypatch:
        # As set_tracer_provider() and set_logger_provider() do, once in a process's life.
        monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracers)
        monkeypatch.setattr(_logs._internal, "_LOGGER_PROVIDER", loggers)
        yield spans, events
    tracers.shutdown()
    loggers.shutdown()


async def ended(call: Any) -> tuple[Outcome[int] | None, BaseException | None]:
    try:
        return await call, None
    except (NotAccepted, Boom) as exc:
        return None, exc


def names(attempts: Sequence[Attempt[Any]]) -> list[str]:
    return [ruling.check for attempt in attempts for ruling in attempt.rulings]


@settings(deadline=None)
@given(productions, stages, st.booleans())
def test_calls_stay_within_the_budget_and_stop_at_the_stage_that_rejects(
    productions, stages, fallback
):
    # Law 1; S0-21, S0-24
    run = Run(productions, stages)

    outcome, error = asyncio.run(ended(run.start(fallback=fallback)))

    assert run.asked <= len(productions)
    assert len(run.reached) == len(set(run.reached))
    assert run.reached == sorted(run.reached)
    attempts = outcome.attempts if outcome else attempts_of(error or Boom())
    for attempt in attempts:
        for ruling in attempt.rulings:
            assert not ruling.rejects or ruling.stage == attempt.rulings[-1].stage
    if outcome and outcome.accepted:
        assert run.asked == len(outcome.attempts)
        assert outcome.value == run.asked
        complete = [(s, c) for s, stage in enumerate(stages, 1) for c, _ in enumerate(stage, 1)]
        assert [(s, c) for value, s, c in run.reached if value == outcome.value] == complete


@settings(deadline=None)
@given(productions, stages, st.booleans())
def test_the_disposition_follows_from_the_last_attempt_and_the_fallback(
    productions, stages, fallback
):
    # Law 3; S0-49, S0-50, S0-54
    run = Run(productions, stages)

    outcome, error = asyncio.run(ended(run.start(fallback=fallback)))

    if outcome is not None:
        accepted = outcome.attempts[-1].accepted
        assert outcome.disposition == ("accepted" if accepted else "fallback")
        assert run.fallbacks == (not accepted)
    else:
        assert run.fallbacks == 0
        assert isinstance(error, Boom) or not fallback
        # S0-15
        assert len(attempts_of(error or Boom())) == run.asked - isinstance(error, Boom)
    attempts = outcome.attempts if outcome else attempts_of(error or Boom())
    expected = attempts[:-1] if outcome and outcome.accepted else attempts
    assert not any(attempt.accepted for attempt in expected)
    assert all(attempt.reason and attempt.feedback for attempt in expected)


@settings(deadline=None)
@given(productions, stages, st.booleans())
def test_every_ruling_has_its_event_in_order_on_its_attempts_span(
    sdk, productions, stages, fallback
):
    # Law 2; S0-77, S0-80, S0-81, S0-87
    spans, events = sdk
    spans.clear()
    events.clear()
    run = Run(productions, stages)

    outcome, error = asyncio.run(ended(run.start(fallback=fallback)))

    attempts = outcome.attempts if outcome else attempts_of(error or Boom())
    of_attempts = {
        span.context.span_id: span.attributes["flowgentic.accept.attempt"]
        for span in spans.get_finished_spans()
        if span.name == "accept.attempt law"
    }
    emitted = [
        (of_attempts[record.span_id], record.attributes["gen_ai.evaluation.name"])
        for record in (data.log_record for data in events.get_finished_logs())
    ]
    complete = [(a.index, name) for a in attempts for name in names([a])]
    assert emitted[: len(complete)] == complete
    # What follows belongs to the attempt that failed, if one did.
    assert {index for index, _ in emitted[len(complete) :]} <= {len(attempts) + 1}
    assert outcome is None or len(emitted) == len(complete)


@settings(deadline=None)
@given(productions, stages, st.data())
def test_a_cancellation_at_any_point_ends_the_spans_and_asks_for_nothing_more(
    sdk, productions, stages, data
):
    # Law 6; S0-12, S0-66, S0-73
    spans, _ = sdk
    whole = Run(productions, stages)
    asyncio.run(ended(whole.start(fallback=True)))
    at = data.draw(st.integers(0, whole.awaits))
    spans.clear()
    run = Run(productions, stages)
    before = context.get_current()

    async def cancelled_at() -> tuple[bool, int, int]:
        within = []

        async def watched() -> None:
            try:
                await ended(run.start(fallback=True))
            finally:
                within.append(context.get_current())

        task = asyncio.create_task(watched())
        while run.awaits < at and not task.done():
            await asyncio.sleep(0)
        asked, fallbacks = run.asked, run.fallbacks
        task.cancel()
        await asyncio.wait([task])
        assert all(left == before for left in within)
        return task.cancelled(), run.asked - asked, run.fallbacks - fallbacks

    was_cancelled, asked_after, fallbacks_after = asyncio.run(cancelled_at())

    if was_cancelled and at:
        assert (asked_after, fallbacks_after) == (0, 0)
        finished = spans.get_finished_spans()
        calls = [s for s in finished if s.name == "accept law"]
        assert len(calls) == 1
        assert len([s for s in finished if s.name == "accept.attempt law"]) == run.asked
        assert calls[0].status.status_code is StatusCode.ERROR
        assert calls[0].attributes["error.type"] == "asyncio.exceptions.CancelledError"
        assert "flowgentic.accept.disposition" not in calls[0].attributes
