"""What a decision costs: `python -m benchmarks.accept`.

Every contender does the same: a fake model, which takes one turn of the event loop and no time,
answers with JSON; pydantic parses it; it is rejected since a candidate lies out of bounds; the
model is asked again with the reason; its second answer is accepted. So a decision has two attempts,
and all costs are per attempt.

- `bare loop` is what one would write by hand with asyncio: the same producer and checks, sync or
  async, the same two kinds of rejection, the same meaning of an answer, a list of attempts.
- `accept` is this package without an OpenTelemetry SDK, `accept, SDK` with one.
- `accept, record` is `accept` with `record=True`: the value is written as JSON before the checks and
  compared after each, the attempts are hashed, the record is written at the end.
- `bare loop, SDK` is the bare loop with the very records of `accept, SDK` written by hand: three
  spans with their attributes, the attempt's one current, six events. What that adds to the bare loop
  is the SDK's own cost. Processors do nothing, so exporting is not part of either.
- `instructor` patches a fake client, with the bounds as a pydantic validator, which is its way.
- `pydantic-ai` runs an agent over a `FunctionModel`, with the bounds as an output validator, which
  is its way. Neither has telemetry on.

Costs are the process's CPU time, which other programs disturb less than the time of day. The
contenders run in one process, in turn; each repetition gives a cost of each and the ratios. Ratios
are medians. Bounds in microseconds are held against the fastest repetition, for the median of a
shared machine tells of the neighbours as much as of the code; both are shown. The peers live in a virtual environment of their own, made at
the first run in the user's cache directory.
"""

from __future__ import annotations

import asyncio
import gc
import hashlib
import importlib.util
import inspect
import os
import subprocess
import sys
import venv
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from time import process_time
from typing import Any
from unittest.mock import patch

from opentelemetry import context, trace
from opentelemetry.sdk._logs import LoggerProvider, LogRecordProcessor
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel, ValidationError, field_validator

from batchgate import Rejected, accept

from .promises import Promise, ratio, repetitions, report

ROOT = Path(__file__).resolve().parents[1]
REQUIREMENTS = Path(__file__).with_name("requirements-accept.txt")
REPLIES = ('{"candidates": [0.1, 3.0, 0.2]}', '{"candidates": [0.1, 0.2, 0.3]}')
ATTEMPTS = 2
WITH_SDK = "accept, SDK"
TURN_S = 0.03
"""Seconds that a contender runs in one repetition, roughly."""

Decide = Callable[[], Awaitable[Any]]


class Plan(BaseModel):
    candidates: list[float]


# The workload of `accept` and of the bare loop.


async def producer(previous: Sequence[Any]) -> Plan:
    await asyncio.sleep(0)
    return Plan.model_validate_json(REPLIES[len(previous)])


def batch_size(plan: Plan) -> None:
    if len(plan.candidates) != 3:
        raise Rejected(f"{len(plan.candidates)} candidates; the batch takes exactly 3")


def within_bounds(plan: Plan) -> None:
    outside = [v for v in plan.candidates if not 0 <= v <= 1]
    if outside:
        raise Rejected(f"{outside} lie outside [0, 1]")


def distinct(plan: Plan) -> bool:
    return len(set(plan.candidates)) == len(plan.candidates)


async def stable(plan: Plan) -> None:
    """Stand for a verifier."""


CHECKS: Sequence[Callable[[Plan], Any]] = (batch_size, within_bounds, distinct, stable)


async def with_accept() -> Plan:
    return (await accept(producer, checks=CHECKS, attempts=ATTEMPTS, name="planner")).value


async def with_record() -> Plan:
    outcome = await accept(producer, checks=CHECKS, attempts=ATTEMPTS, name="planner", record=True)
    return outcome.value


@dataclass(frozen=True)
class Tried:
    index: int
    value: Any
    rejected_by: str | None = None
    reason: str | None = None


async def with_bare_loop() -> Plan:
    tried: list[Tried] = []
    for index in range(1, ATTEMPTS + 1):
        name, value = "producer", None
        try:
            value = await producer(tuple(tried))
            for check in CHECKS:
                name = check.__name__
                said = check(value)
                if inspect.isawaitable(said):
                    said = await said
                if said is False:
                    raise Rejected(f"{name} is false")
                if not (said is None or said is True):
                    raise TypeError(f"{name} returned {said!r}")
        except (Rejected, ValidationError) as exc:
            tried.append(Tried(index, value, name, str(exc)))
        else:
            tried.append(Tried(index, value))
            return value
    raise RuntimeError("not accepted")


# The same with an SDK, and its records by hand.


class NoLogs(LogRecordProcessor):
    def on_emit(self, log_record: Any) -> None:
        """Do nothing with it."""

    def shutdown(self) -> None:
        """End."""

    def force_flush(self, timeout_millis: int = 30000) -> bool:
        return True


class SDK:
    """Providers whose processors do nothing."""

    def __init__(self) -> None:
        self.tracers = TracerProvider()
        self.loggers = LoggerProvider()
        self.loggers.add_log_record_processor(NoLogs())
        self.tracer = self.tracers.get_tracer("by hand")
        self.logger = self.loggers.get_logger("by hand")

    @contextmanager
    def installed(self) -> Iterator[None]:
        # A process may install providers once; here they come and go.
        with (
            patch("opentelemetry.trace._TRACER_PROVIDER", self.tracers),
            patch("opentelemetry._logs._internal._LOGGER_PROVIDER", self.loggers),
        ):
            yield

    async def with_bare_loop(self) -> Plan:
        """Do what `with_bare_loop` does, and record it."""
        call = self.tracer.start_span(
            "accept planner",
            attributes={
                "flowgentic.accept.name": "planner",
                "flowgentic.accept.attempts.max": ATTEMPTS,
            },
        )
        outer = trace.set_span_in_context(call)
        tried: list[Tried] = []
        for index in range(1, ATTEMPTS + 1):
            attempt = self.tracer.start_span(
                "accept.attempt planner",
                context=outer,
                attributes={"flowgentic.accept.attempt": index},
            )
            inner = trace.set_span_in_context(attempt, outer)
            token = context.attach(inner)
            name, value = "producer", None
            try:
                value = await producer(tuple(tried))
                for check in CHECKS:
                    name = check.__name__
                    said = check(value)
                    if inspect.isawaitable(said):
                        said = await said
                    if said is False:
                        raise Rejected(f"{name} is false")
                    if not (said is None or said is True):
                        raise TypeError(f"{name} returned {said!r}")
                    self.event(inner, name)
            except (Rejected, ValidationError) as exc:
                reason = str(exc)
                tried.append(Tried(index, value, name, reason))
                self.event(inner, name, reason)
                attempt.set_attributes(
                    {"flowgentic.accept.rejected_by": name, "flowgentic.accept.reason": reason}
                )
            else:
                tried.append(Tried(index, value))
                call.set_attributes(
                    {
                        "flowgentic.accept.attempts.used": index,
                        "flowgentic.accept.disposition": "accepted",
                    }
                )
                call.end()
                return value
            finally:
                attempt.end()
                context.detach(token)
        raise RuntimeError("not accepted")

    def event(self, within: context.Context, name: str, reason: str | None = None) -> None:
        attributes = {
            "gen_ai.evaluation.name": name,
            "gen_ai.evaluation.score.label": "fail" if reason else "pass",
        }
        if reason:
            attributes["gen_ai.evaluation.explanation"] = reason
        self.logger.emit(
            event_name="gen_ai.evaluation.result", context=within, attributes=attributes
        )


# The peers.


def with_instructor() -> Decide:
    import instructor  # type: ignore[import-not-found]
    from openai.types.chat import ChatCompletion  # type: ignore[import-not-found]

    class BoundedPlan(Plan):
        @field_validator("candidates")
        @classmethod
        def _within_bounds(cls, candidates: list[float]) -> list[float]:
            outside = [v for v in candidates if not 0 <= v <= 1]
            if outside:
                raise ValueError(f"{outside} lie outside [0, 1]")
            return candidates

    def completion(text: str) -> Any:
        message = {"role": "assistant", "content": text}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        data = {"id": "1", "object": "chat.completion", "created": 1, "model": "fake"}
        return ChatCompletion.model_validate({**data, "choices": [choice]})

    completions = [completion(text) for text in REPLIES]

    async def create(*_: Any, messages: Sequence[Mapping[str, Any]], **__: Any) -> Any:
        await asyncio.sleep(0)
        return completions[any(message["role"] == "assistant" for message in messages)]

    ask = instructor.patch(create=create, mode=instructor.Mode.JSON)

    async def decide() -> Any:
        messages = [{"role": "user", "content": "Propose three candidates."}]
        return await ask(
            response_model=BoundedPlan, max_retries=ATTEMPTS, messages=messages, model="fake"
        )

    return decide


def with_pydantic_ai() -> Decide:
    from pydantic_ai import Agent, ModelRetry  # type: ignore[import-not-found]
    from pydantic_ai.messages import ModelResponse, ToolCallPart  # type: ignore[import-not-found]
    from pydantic_ai.models.function import FunctionModel  # type: ignore[import-not-found]

    async def model(messages: Sequence[Any], info: Any) -> Any:
        await asyncio.sleep(0)
        reply = REPLIES[len(messages) > 1]
        return ModelResponse(parts=[ToolCallPart(info.output_tools[0].name, reply)])

    agent = Agent(FunctionModel(model), output_type=Plan, retries=ATTEMPTS)

    def within_bounds(plan: Plan) -> Plan:
        outside = [v for v in plan.candidates if not 0 <= v <= 1]
        if outside:
            raise ModelRetry(f"{outside} lie outside [0, 1]")
        return plan

    agent.output_validator(within_bounds)

    async def decide() -> Any:
        return (await agent.run("Propose three candidates.")).output

    return decide


def run_with_peers() -> None:
    """Make the environment with the peers, once, and go on in it."""
    digest = hashlib.sha256(REQUIREMENTS.read_bytes() + sys.version.encode()).hexdigest()[:12]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "batchgate" / f"benchmark-accept-{digest}"
    python, done = folder / "bin" / "python", folder / "done"
    if Path(sys.executable) == python:
        sys.exit(f"{folder} has no instructor; remove it and try again")
    if not done.exists():
        print(f"installing {REQUIREMENTS.name} into {folder}, once; this takes a minute or two")
        venv.create(folder, with_pip=True, clear=True)
        install: list[str | Path] = [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--requirement",
            REQUIREMENTS,
        ]
        if subprocess.run(install, check=False).returncode:
            sys.exit(
                "the peers could not be installed. Install them into any environment with\n"
                f"  python -m pip install -r {REQUIREMENTS}\n"
                f"and run its Python with PYTHONPATH={ROOT / 'src'}"
            )
        done.touch()
    os.chdir(ROOT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    os.execve(python, [str(python), "-m", "benchmarks.accept", *sys.argv[1:]], environment)


async def measure(repetitions: int) -> dict[str, list[float]]:
    """Return each contender's microseconds per attempt, one number for each repetition."""
    sdk = SDK()
    contenders: dict[str, Decide] = {
        "bare loop": with_bare_loop,
        "accept": with_accept,
        "accept, record": with_record,
        "bare loop, SDK": sdk.with_bare_loop,
        WITH_SDK: with_accept,
        "instructor": with_instructor(),
        "pydantic-ai": with_pydantic_ai(),
    }
    times = {}
    for name, decide in contenders.items():
        made = await decide()
        assert made.candidates == [0.1, 0.2, 0.3], (name, made)
        times[name] = max(2, int(TURN_S / await turn(decide, 10) / ATTEMPTS * 1e6))
    costs: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(repetitions):
        for name, decide in contenders.items():
            with sdk.installed() if name == WITH_SDK else nullcontext():
                costs[name].append(await turn(decide, times[name]))
    return costs


async def turn(decide: Decide, times: int) -> float:
    gc.collect()
    gc.disable()
    began = process_time()
    for _ in range(times):
        await decide()
    elapsed_s = process_time() - began
    gc.enable()
    return elapsed_s / times / ATTEMPTS * 1e6


def judged(costs: dict[str, list[float]]) -> int:
    costs["the SDK's own"] = [
        both - bare for both, bare in zip(costs["bare loop, SDK"], costs["bare loop"], strict=True)
    ]
    fastest = min(costs["accept"])
    recording = min(costs["accept, record"]) - fastest
    promises = (
        Promise("accept, us per attempt, fastest", fastest, 35),
        Promise("record, us more, fastest", recording, 110),
        Promise("accept / bare loop", ratio(costs, "accept", "bare loop"), 3),
        Promise("accept, SDK / the SDK's own", ratio(costs, WITH_SDK, "the SDK's own"), 1.8),
        Promise("instructor / accept", ratio(costs, "instructor", "accept"), 15, at_most=False),
        Promise("pydantic-ai / accept", ratio(costs, "pydantic-ai", "accept"), 100, at_most=False),
    )
    return report(costs, "us per attempt", promises)


def main() -> int:
    times = repetitions("benchmarks.accept", __doc__)
    if importlib.util.find_spec("instructor") is None:
        run_with_peers()
    return judged(asyncio.run(measure(times)))


if __name__ == "__main__":
    sys.exit(main())
