"""A run's live trace beside the one that its ledger is exported as: the same spans."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from opentelemetry import _logs, trace

from batchgate import span_ids
from batchgate.answer import Answer
from batchgate.campaign import Campaign, Proposal
from batchgate.errors import ProducerError
from batchgate.events import AttemptStarted, DecisionOpened, JobPlanned
from batchgate.ledger import Ledger, read
from batchgate.producers.span import chat_span
from batchgate.review.spans import units, write_json
from batchgate.runner import Model, Recorder, Runner
from batchgate.span_ids import SLURM_ATTRIBUTES, slurm_attributes
from batchgate.tracing import open_tracing
from tests.campaigns import InlineFlow, campaign
from tests.synthetic_run import Script

Span = dict[str, Any]


def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a life install providers, which OpenTelemetry allows once in a process's life."""
    for module, name in ((trace, "_TRACER_PROVIDER"), (_logs._internal, "_LOGGER_PROVIDER")):
        once = f"{name}_SET_ONCE"
        monkeypatch.setattr(module, name, None)
        monkeypatch.setattr(module, once, type(getattr(module, once))())


class Chatting:
    """A producer that traces its request as the real one does, and answers by script."""

    name = "model"

    def __init__(self, campaign: Campaign, *answers: float | Exception | None) -> None:
        self.campaign = campaign
        self.answers = list(answers)
        self.asked = asyncio.Event()

    async def propose(self, **_: Any) -> Answer:
        """Give the next answer; `None` waits for ever."""
        answer = self.answers.pop(0)
        with chat_span("m", {}):
            if answer is None:
                self.asked.set()
                await asyncio.Event().wait()
            if isinstance(answer, Exception):
                raise answer
        candidates = [self.campaign.candidate_model(x=answer)]
        return Answer(Proposal(candidates=candidates), response_id="r1", model="m")

    async def aclose(self) -> None:
        """Do nothing."""


async def live(
    made: Campaign, folder: Path, producer: Chatting | None, *, suspended: bool = False
) -> None:
    """Run one life under a live trace."""
    folder.mkdir(exist_ok=True)
    with (
        Ledger.open(folder / "ledger", run="square-1") as ledger,
        open_tracing(folder, segment=ledger.path.stem, resource={}) as telemetry,
        pytest.MonkeyPatch.context() as patch,
    ):
        fresh(patch)
        telemetry.install()
        model = Model("model", producer=producer) if producer else None
        runner = Runner(made, Recorder.of(ledger), InlineFlow(), folder, model=model)
        running = asyncio.create_task(runner.run())
        if suspended:
            assert producer
            await producer.asked.wait()
            runner.suspend("the test")
        await running


def spans_in(*paths: Path) -> list[Span]:
    return list(_records("Spans", "spans", *paths))


def _records(kind: str, name: str, *paths: Path) -> Iterator[dict[str, Any]]:
    for path in paths:
        for line in path.read_text().splitlines():
            for resource in json.loads(line)[f"resource{kind}"]:
                for scope in resource[f"scope{kind}"]:
                    yield from scope[name]


def told(record: Span) -> dict[str, Any]:
    return {a["key"]: next(iter(a["value"].values())) for a in record.get("attributes", ())}


def identities(spans: list[Span]) -> dict[str, tuple[str, str, str]]:
    """Return name, trace and parent of each span by its id, without tasks, which the ledger sums up."""
    found = {
        s["spanId"]: (s["name"], s["traceId"], s.get("parentSpanId", ""))
        for s in spans
        if not s["name"].startswith("task ")
    }
    assert len(found) == len([s for s in spans if not s["name"].startswith("task ")])
    return found


def both(folder: Path) -> tuple[list[Span], list[Span]]:
    """Return the spans of all lives, and those of the ledger."""
    exported = write_json(read(folder / "ledger"), folder / "exported")[0]
    return spans_in(*sorted((folder / "trace").glob("*.traces.jsonl"))), spans_in(exported)


async def test_live_spans_and_exported_ones_are_the_same_spans(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 2})

    await live(made, tmp_path / "r", Chatting(made, -1.0, 2.0, 2.5))

    lived, exported = both(tmp_path / "r")
    assert identities(lived) == identities(exported)
    names = {name for name, *_ in identities(lived).values()}
    assert names == {"accept square", "accept.attempt square", "chat m", "verify cheap", "job full"}


async def test_their_own_attributes_agree_too(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 2})

    await live(made, tmp_path / "r", Chatting(made, -1.0, 2.0, 2.5))

    lived, exported = both(tmp_path / "r")
    written = {s["spanId"]: told(s) for s in exported}
    for span in lived:
        if span["name"].startswith(("accept", "job")):
            ours, theirs = told(span), written[span["spanId"]]
            same = {"batchgate.verdicts", "batchgate.decision", "batchgate.attempt"}
            for key in (ours.keys() & theirs.keys()) | (same & (ours.keys() | theirs.keys())):
                assert ours[key] == theirs[key], key


async def test_a_requeue_goes_on_in_the_same_trace_with_a_link(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1}, producer={"attempts": 3})
    await live(made, tmp_path / "r", Chatting(made, -1.0, None), suspended=True)

    await live(made, tmp_path / "r", Chatting(made, 2.0))
    lived, exported = both(tmp_path / "r")

    roots = [s for s in lived if s["name"] == "accept square"]
    assert [told(s)["batchgate.life"] for s in roots] == ["1", "2"]
    assert len({s["traceId"] for s in roots}) == 1
    assert roots[1]["links"][0]["spanId"] == roots[0]["spanId"]
    decided = [s for s in identities(exported).values() if not s[0].startswith("chat")]
    assert sorted(decided) == sorted(
        s for s in identities(lived).values() if not s[0].startswith("chat")
    )
    first, second = (s for s in exported if s["name"] == "accept square")
    assert told(first)["error.type"] == "interrupted"
    assert told(second)["flowgentic.accept.disposition"] == "accepted"
    assert second["links"] == [{**second["links"][0], "spanId": first["spanId"]}]


async def test_a_decision_of_the_surrogate_alone_is_a_trace_too(tmp_path: Path) -> None:
    made = campaign(
        tmp_path / "c", stop={"jobs": 1}, fallback={"use": "batchgate.surrogates:Sobol"}
    )

    await live(made, tmp_path / "r", None)

    lived, exported = both(tmp_path / "r")
    assert identities(lived) == identities(exported)
    (root,) = [s for s in lived if s["name"] == "accept square"]
    assert told(root)["flowgentic.accept.disposition"] == "fallback"
    assert told(root)["batchgate.cause"] == "idle"


async def test_a_job_is_linked_to_its_decision_also_when_a_producer_failed(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1})
    failure = ProducerError("no answer", "timeout")

    await live(made, tmp_path / "r", Chatting(made, failure))

    lived, _ = both(tmp_path / "r")
    (job,) = [s for s in lived if s["name"] == "job full"]
    (root,) = [s for s in lived if s["name"] == "accept square"]
    assert [(x["traceId"], x["spanId"]) for x in job["links"]] == [
        (root["traceId"], root["spanId"])
    ]
    (plan,) = [e.event for e in read(tmp_path / "r/ledger") if isinstance(e.event, JobPlanned)]
    assert told(job)["batchgate.job"] == plan.job


def test_a_place_is_given_once_and_only_in_its_block() -> None:
    with span_ids.about(span_ids.Subject("run", "D1")):
        assert span_ids.next_span_id() is None
        with span_ids.placed("accept"):
            first, again = span_ids.next_span_id(), span_ids.next_span_id()

    assert first == span_ids.first_span("run", "D1").span_id
    assert again is None
    with span_ids.placed("accept"):
        assert span_ids.next_span_id() is None
    assert span_ids.next_trace_id() is None


def test_every_fact_of_slurm_is_an_attribute() -> None:
    facts = dict.fromkeys(SLURM_ATTRIBUTES, "x")

    found = slurm_attributes(facts)

    assert {"slurm.job.id", "slurm.job.restart_count", "slurm.job.partition"} <= set(found)
    assert {"slurm.job.nodes", "slurm.job.node_list"} <= set(found)
    assert len(found) == len(facts)


def test_a_foreign_id_is_linked_and_not_taken(tmp_path: Path) -> None:
    script = Script().begin()
    script.add(
        DecisionOpened(decision=1),
        AttemptStarted(decision=1, attempt=1, trace_id="ab" * 16, span_id="cd" * 8),
    )

    (unit,) = units(script.entries)

    (attempt,) = [s for s in unit.spans if s.name.startswith("accept.attempt")]
    assert attempt.links[0].span_id.hex() == "cd" * 8
