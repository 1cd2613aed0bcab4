"""The planner that the acceptance primitive is known by: a model proposes a batch of candidates."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry import _logs, trace
from opentelemetry.sdk._logs import LoggerProvider, ReadWriteLogRecord
from opentelemetry.sdk._logs.export import InMemoryLogRecordExporter, SimpleLogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

from batchgate import Attempt, NotAccepted, Outcome, Rejected, accept, attempts_of, check, judge

BATCH = 3
LOW, HIGH = 0.0, 10.0


class PlannerDecision(BaseModel):
    candidates: list[float]


def batch_size(decision: PlannerDecision) -> None:
    n = len(decision.candidates)
    if n != BATCH:
        raise Rejected(f"{n} candidates; the batch takes exactly {BATCH}")


def within_bounds(decision: PlannerDecision) -> None:
    # Written so that NaN lies outside.
    outside = [v for v in decision.candidates if not LOW <= v <= HIGH]
    if outside:
        raise Rejected(f"{outside} lie outside [{LOW}, {HIGH}]")


def distinct(decision: PlannerDecision) -> None:
    if len({round(v, 10) for v in decision.candidates}) < len(decision.candidates):
        raise Rejected("the batch repeats a candidate")


CHECKS = [batch_size, within_bounds, distinct]


class LengthFinishReasonError(Exception):
    """What a provider's client raises when the answer was cut."""


@dataclass
class Reply:
    """What a provider's client returns."""

    content: str | None
    refusal: str | None = None
    finish_reason: str = "stop"


class Planner:
    """A producer around a model: names each way in which an answer is none."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.replies = list(replies)
        self.prompts: list[str] = []

    async def __call__(self, previous: tuple[Attempt[PlannerDecision], ...]) -> PlannerDecision:
        self.prompts.append("; ".join(attempt.reason or "" for attempt in previous))
        try:
            reply = await self.ask()
        except LengthFinishReasonError as exc:
            raise Rejected("the answer was cut short", check="truncation") from exc
        if reply.refusal:
            raise Rejected(reply.refusal, check="refusal")
        if reply.finish_reason == "length":
            raise Rejected("the answer was cut short", check="truncation", value=reply.content)
        return PlannerDecision.model_validate_json(reply.content or "")

    async def ask(self) -> Reply:
        reply = self.replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def batch(*candidates: float) -> Reply:
    return Reply(json.dumps({"candidates": candidates}))


class Surrogate:
    """A fallback that is right by construction, or raises."""

    def __init__(self, proposal: Sequence[float], *, low: float = LOW, high: float = HIGH) -> None:
        self.proposal = proposal
        self.low = low
        self.high = high

    async def __call__(self) -> PlannerDecision:
        step = (self.high - self.low) / (BATCH - 1)
        spaced = [self.low + i * step for i in range(BATCH)]
        for candidates in (self.proposal, spaced):
            decision = PlannerDecision(candidates=list(candidates))
            if (await judge(decision, CHECKS)).accepted:
                return decision
        raise ValueError(f"no {BATCH} candidates fit between {self.low} and {self.high}")


@pytest.mark.parametrize(
    ("candidates", "check", "reason"),
    [
        ([1.0], "batch_size", "1 candidates; the batch takes exactly 3"),
        ([1.0, 11.0, -0.5], "within_bounds", "[11.0, -0.5] lie outside [0.0, 10.0]"),
        ([1.0, float("nan"), 2.0], "within_bounds", "[nan] lie outside [0.0, 10.0]"),
        ([1.0, 2.0, 1.0 + 1e-12], "distinct", "the batch repeats a candidate"),
    ],
)
async def test_each_check_says_what_is_wrong(candidates, check, reason):
    # S0-94
    attempt = await judge(PlannerDecision(candidates=candidates), CHECKS)

    assert (attempt.rejected_by, attempt.reason) == (check, reason)


async def test_a_batch_that_differs_in_the_tenth_digit_is_distinct():
    # S0-94
    assert (await judge(PlannerDecision(candidates=[1.0, 2.0, 1.0 + 1e-9]), CHECKS)).accepted


async def test_every_kind_of_bad_answer_is_named_and_told_and_the_good_one_taken():
    # S0-8, S0-39, S0-40
    planner = Planner(
        Reply(None, refusal="I cannot help with that"),
        LengthFinishReasonError(),
        Reply('{"candidates": [1', finish_reason="length"),
        Reply("not JSON"),
        batch(1, 2),
        batch(1, 2, 3),
    )

    outcome = await accept(planner, checks=CHECKS, attempts=6, name="planner")

    assert [a.rejected_by for a in outcome.attempts] == [
        "refusal",
        "truncation",
        "truncation",
        "schema",
        "batch_size",
        None,
    ]
    assert outcome.attempts[1].reason == "the answer was cut short"
    assert outcome.attempts[2].value == '{"candidates": [1'
    assert outcome.value.candidates == [1, 2, 3]
    assert planner.prompts[-1].endswith("2 candidates; the batch takes exactly 3")


async def test_the_fallback_is_the_surrogates_batch():
    # S0-95
    outcome = await accept(Planner(batch(1)), checks=CHECKS, fallback=Surrogate([4, 5, 6]))

    assert (outcome.disposition, outcome.value.candidates) == ("fallback", [4, 5, 6])


async def test_the_fallback_is_evenly_spaced_when_the_surrogates_batch_fails_the_checks():
    # S0-95
    outcome = await accept(Planner(batch(1)), checks=CHECKS, fallback=Surrogate([4, 4, 99]))

    assert outcome.value.candidates == [0, 5, 10]


async def test_no_unchecked_batch_leaves_bounds_that_are_too_narrow():
    # S0-56, S0-95
    with pytest.raises(ValueError, match="no 3 candidates fit") as caught:
        await accept(Planner(batch(1)), checks=CHECKS, fallback=Surrogate([], low=5, high=5))

    assert [a.rejected_by for a in attempts_of(caught.value)] == ["batch_size"]


async def test_a_verifier_behind_the_cheap_checks_and_a_soft_signal_last():
    # S0-93
    verified = []

    async def stable(decision: PlannerDecision) -> bool:
        verified.append(decision.candidates)
        return True

    @check(hard=False)
    def spread(decision: PlannerDecision) -> bool:
        return max(decision.candidates) - min(decision.candidates) > 5

    outcome = await accept(
        Planner(batch(1), batch(1, 2, 3)), checks=[*CHECKS, stable, spread], attempts=2
    )

    assert verified == [[1, 2, 3]]
    assert outcome.accepted
    assert [r.check for r in outcome.attempts[1].rulings if not r.verdict.passed] == ["spread"]


def trace_line(outcome: Outcome[Any]) -> dict[str, Any]:
    rejected = [attempt for attempt in outcome.attempts if not attempt.accepted]
    return {
        "disposition": outcome.disposition,
        "rejected": [{"by": a.rejected_by, "reason": a.reason} for a in rejected],
    }


async def test_an_outcome_holds_what_the_agents_trace_and_the_runner_tell():
    # S0-96
    outcome = await accept(
        Planner(batch(1), batch(1, 1, 2)), checks=CHECKS, attempts=2, fallback=Surrogate([4, 5, 6])
    )

    assert trace_line(outcome) == {
        "disposition": "fallback",
        "rejected": [
            {"by": "batch_size", "reason": "1 candidates; the batch takes exactly 3"},
            {"by": "distinct", "reason": "the batch repeats a candidate"},
        ],
    }
    assert f"{len(trace_line(outcome)['rejected'])} rejected" == "2 rejected"


async def test_spans_and_events_of_one_run_can_go_to_one_place(monkeypatch):
    # S0-96
    written: list[str] = []

    class Spans(InMemorySpanExporter):
        def export(self, spans: Any) -> Any:
            written.extend(f"span {span.name}" for span in spans)
            return super().export(spans)

    class Events(InMemoryLogRecordExporter):
        def export(self, batch: Sequence[ReadWriteLogRecord]) -> Any:  # type: ignore[override]
            written.extend(f"event {data.log_record.event_name}" for data in batch)
            return super().export(batch)  # type: ignore[arg-type]

    tracers, loggers = TracerProvider(), LoggerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(Spans()))
    loggers.add_log_record_processor(SimpleLogRecordProcessor(Events()))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", tracers)
    monkeypatch.setattr(_logs._internal, "_LOGGER_PROVIDER", loggers)

    with pytest.raises(NotAccepted):
        await accept(Planner(batch(1)), checks=CHECKS, name="planner")

    tracers.shutdown()
    loggers.shutdown()
    assert written == [
        "event gen_ai.evaluation.result",
        "span accept.attempt planner",
        "span accept planner",
    ]
