"""What reasons are worth to a model that is asked again: `python -m benchmarks.reask`.

The decisions of a small campaign, made by the runner's own `Decider` with the same seeds in every
row. Rows differ in what the model is given after a rejection: nothing, the reasons, the typed
reasons of the whole run as lessons, and the bounds of variables in its grammar as well. Two further
rows spend the same answers one by one and as samples of one request.

The model is the small one that `batchgate vllm-env` made; its start takes minutes on CPU. With
`--scripted` a server takes its place that draws every number evenly from the range of the schema
and reads no word, so that what is left is the effect of the schema alone.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchgate import Fail
from batchgate.answer import Answer, Producer
from batchgate.breach import Lesson
from batchgate.campaign import Campaign, Observation, Proposal
from batchgate.decision import Attempt
from batchgate.events import (
    DecisionMade,
    Event,
    ProposalMade,
    ProposalRejected,
    RunStarted,
)
from batchgate.job import FunctionTask, JobSpec, TaskEnd
from batchgate.ledger import Ledger, read
from batchgate.producers import VllmProducer, VllmServer
from batchgate.producers.environment import find
from batchgate.runner.decide import Decider
from batchgate.runner.recorder import Recorder
from batchgate.runner.verify import Judges
from batchgate.testing import Reply, Request, ScriptedServer, completion

SPACINGS = ("d1", "d2", "d3")
LEAST, MOST_ECC, MOST_SUM = 3.46, 0.03, 24.0


def apart(candidate: Mapping[str, Any]) -> Iterator[Fail]:
    """Neighbours keep their distance: one bound for each variable."""
    for name in SPACINGS:
        value = candidate[name]
        if value < LEAST:
            reason = f"{name}={value:.2f} is below {LEAST} Hill radii; raise {name}"
            yield Fail(reason, measured=value, bound=LEAST, field=name)


def round_enough(candidate: Mapping[str, Any]) -> Iterator[Fail]:
    """Orbits are nearly circular."""
    ecc = candidate["ecc"]
    if ecc > MOST_ECC:
        reason = f"ecc={ecc:.3f} is above {MOST_ECC}; lower ecc"
        yield Fail(reason, measured=ecc, bound=MOST_ECC, field="ecc")


def compact(candidate: Mapping[str, Any]) -> Iterator[Fail]:
    """The whole is not too wide: a bound of no variable alone."""
    total = sum(candidate[name] for name in SPACINGS)
    if total > MOST_SUM:
        reason = f"d1 + d2 + d3 = {total:.1f} is above {MOST_SUM:g}; make them smaller"
        yield Fail(reason, measured=total, bound=MOST_SUM, field="total")


PROMPT = (
    "You design compact planetary systems. Each spacing d1 to d3 is the distance of two neighbours "
    "in mutual Hill radii. Neighbours that are too close collide; the whole must stay compact."
)


def campaign_of(**producer: Any) -> Campaign:
    spacing = {"domain": [0.5, 12.0], "unit": "mutual Hill radii"}
    return Campaign.of(
        {
            "campaign": {"name": "reask"},
            "variables": {
                **dict.fromkeys(SPACINGS, spacing),
                "ecc": {"domain": [0.0, 0.05], "about": "eccentricity of every orbit"},
            },
            "objectives": {"extent": "MINIMIZE"},
            "check": [
                {"use": f"benchmarks.reask:{c}"} for c in ("apart", "round_enough", "compact")
            ],
            "duplicates": {"tolerance": 0.02},
            "level": [{"name": "job", "use": "math:fsum", "timeout_s": 1}],
            "producer": {
                "form": "samples",
                "samples": 1,
                "attempts": 3,
                "temperature": 0.9,
                "temperature_step": 0.1,
                "prompt_tokens": 1200,
                "answer_tokens": 96,
                **producer,
            },
            "fallback": {"use": "batchgate.surrogates:Sobol"},
            "stop": {"node_h": 1},
        },
        prompt=PROMPT,
    )


@dataclass(frozen=True, slots=True)
class Row:
    """One row of the table: how the campaign asks, and what the model is told."""

    name: str
    ask: Mapping[str, Any]
    reasons: bool = True
    lessons: bool = False


REASONS = (
    Row("no reasons", {"tighten_after": 0}, reasons=False),
    Row("raw reasons", {"tighten_after": 0}),
    Row("typed reasons", {"tighten_after": 0}, lessons=True),
    Row("and in the schema", {"tighten_after": 2}, lessons=True),
)
SAMPLES = (
    Row("8 one by one", {"attempts": 8, "tighten_after": 0}),
    Row("8 samples", {"attempts": 1, "samples": 8, "tighten_after": 0}),
)


@dataclass(frozen=True, slots=True)
class Told:
    """A producer that passes on no more than its row says."""

    inner: Producer
    row: Row

    @property
    def name(self) -> str:
        return self.inner.name

    async def propose(
        self,
        *,
        decision: int,
        results: Sequence[Observation],
        previous: Sequence[Attempt[Proposal]],
        lessons: Sequence[Lesson] = (),
    ) -> Answer:
        if not self.row.reasons:
            previous = [replace(attempt, feedback=()) for attempt in previous]
        return await self.inner.propose(
            decision=decision,
            results=results,
            previous=previous,
            lessons=lessons if self.row.lessons else (),
        )

    async def aclose(self) -> None:
        await self.inner.aclose()


class NoFlow:
    """There is no verifier and no job here."""

    async def call(self, task: FunctionTask) -> TaskEnd:
        raise AssertionError(task.use)

    async def execute(self, spec: JobSpec) -> TaskEnd:
        raise AssertionError(spec)


async def events_of(row: Row, url: str, model: str, *, decisions: int, seed: int) -> list[Event]:
    """Make a row's decisions, one after another, and return their ledger."""
    campaign = campaign_of(**row.ask)
    with tempfile.TemporaryDirectory() as folder:
        with Ledger.open(Path(folder) / "ledger", run="reask") as ledger:
            recorder = Recorder.of(ledger)
            spec = campaign.spec
            recorder.record(
                RunStarted(
                    campaign=spec.campaign.name,
                    digest=spec.digest,
                    spec=spec.model_dump(mode="json"),
                    version="benchmark",
                    seed=seed,
                    granted_node_h=spec.stop.node_h,
                )
            )
            decider = Decider(campaign, recorder, Judges(campaign, recorder, NoFlow()))
            producer = Told(VllmProducer(url, model, campaign, seed=seed, environ={}), row)
            try:
                for number in range(1, decisions + 1):
                    await decider.ask(number, producer)
            finally:
                await producer.aclose()
        return [entry.event for entry in read(Path(folder) / "ledger")]


@dataclass(frozen=True, slots=True)
class Count:
    """What a row's events say."""

    decisions: int
    first: int
    later: int
    proposals: int
    repeats: int
    input_tokens: int
    output_tokens: int
    elapsed_s: float

    @classmethod
    def of(cls, events: Sequence[Event]) -> Count:
        made = [e for e in events if isinstance(e, DecisionMade)]
        answers = [e for e in events if isinstance(e, ProposalMade)]
        accepted = [e.attempts for e in made if e.disposition == "accepted"]
        said = [json.dumps(answer) for e in answers for answer in (e.proposal, *e.others)]
        return cls(
            decisions=len(made),
            first=accepted.count(1),
            later=len(accepted) - accepted.count(1),
            proposals=len(said),
            repeats=len(said) - len(set(said)),
            input_tokens=sum(e.input_tokens for e in answers),
            output_tokens=sum(e.output_tokens for e in answers),
            elapsed_s=sum(
                e.elapsed_s for e in events if isinstance(e, (ProposalMade, ProposalRejected))
            ),
        )

    @property
    def accepted(self) -> int:
        return self.first + self.later

    def line(self, name: str) -> str:
        asked_again = self.decisions - self.first
        return (
            f"{name:<18}{self.first:>4}/{self.decisions:<4}{self.later:>4}/{asked_again:<4}"
            f"{100 * self.repeats / max(self.proposals, 1):>11.1f}"
            f"{self.input_tokens / self.decisions:>10.0f}{self.output_tokens / self.decisions:>8.0f}"
            f"{self.elapsed_s:>9.1f}{self.accepted / max(self.elapsed_s, 1e-9):>10.3f}"
        )


HEADER = (
    f"{'':<18}{'1st ask':>8} {'re-ask':>8}{'repeats/100':>12}{'in tok/d':>10}{'out':>8}"
    f"{'infer s':>9}{'acc/s':>10}"
)


async def measure(
    url: str, model: str, *, decisions: int, seed: int, together: bool
) -> AsyncIterator[tuple[str, Count]]:
    """Measure every row; those of the reasons at the same time, to fill the server's batch."""

    async def counted(row: Row) -> tuple[str, Count]:
        return row.name, Count.of(await events_of(row, url, model, decisions=decisions, seed=seed))

    if together:
        for found in await asyncio.gather(*map(counted, REASONS)):
            yield found
    for row in SAMPLES if together else (*REASONS, *SAMPLES):
        yield await counted(row)


def uniform(request: Request) -> Reply:
    """Answer as a model that draws evenly from the ranges of the schema, by the request's seed."""
    body = request.json()
    drawn = random.Random(body["seed"])
    properties = body["response_format"]["json_schema"]["schema"]["properties"]

    def answer() -> str:
        return json.dumps(
            {n: round(drawn.uniform(p["minimum"], p["maximum"]), 6) for n, p in properties.items()}
        )

    return completion(*(answer() for _ in range(body["n"])))


@asynccontextmanager
async def scripted() -> AsyncIterator[tuple[str, str]]:
    def endless() -> Iterator[Any]:
        while True:
            yield uniform

    async with ScriptedServer(endless()) as server:
        yield server.url, "scripted"


@asynccontextmanager
async def real() -> AsyncIterator[tuple[str, str]]:
    made = find()
    if made is None:
        raise SystemExit("there is no small model: make it with `batchgate vllm-env`")
    async with AsyncExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        server = VllmServer(
            path=str(made.model),
            command=made.command,
            flags=made.flags,
            env=made.variables,
            log=Path(folder) / "vllm.log",
        )
        await stack.enter_async_context(server)
        yield server.url, server.model


async def run(*, decisions: int, seed: int, use_script: bool) -> AsyncIterator[tuple[str, Count]]:
    """Start the model, or what takes its place, and yield the rows."""
    async with scripted() if use_script else real() as (url, model):
        rows = measure(url, model, decisions=decisions, seed=seed, together=not use_script)
        async for row in rows:
            yield row


async def table(*, decisions: int, seed: int, use_script: bool) -> None:
    print(f"{decisions} decisions a row, seed {seed}\n{HEADER}", flush=True)
    async for name, count in run(decisions=decisions, seed=seed, use_script=use_script):
        print(count.line(name), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="few decisions")
    parser.add_argument("--decisions", type=int, default=24, help="decisions of each row")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scripted", action="store_true", help="without a model")
    given = parser.parse_args()
    decisions = min(given.decisions, 8) if given.quick else given.decisions
    asyncio.run(table(decisions=decisions, seed=given.seed, use_script=given.scripted))


if __name__ == "__main__":
    main()
