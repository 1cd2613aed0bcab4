"""The producer and the supervisor against a real vLLM with a real small model.

One server for all of them, since its start takes a minute or more of CPU; it is restarted by the
last ones. The environment is made first where it is missing.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import TracerProvider
from pydantic import BaseModel, Field

from batchgate.breach import Lesson
from batchgate.campaign import Campaign
from batchgate.campaign.observation import Observation
from batchgate.decision import Rejected
from batchgate.errors import ProducerError
from batchgate.producers import Endpoint, VllmProducer, VllmServer, group
from batchgate.producers.connection import Connection
from batchgate.producers.environment import make
from batchgate.producers.prompt import messages, token_bound
from batchgate.producers.schema import portable
from batchgate.producers.span import trace_headers
from tests.producer_campaign import rejected

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(1800), pytest.mark.asyncio(loop_scope="module")]


def campaign(**producer: Any) -> Campaign:
    ask = {"form": "samples", "samples": 8, "batch": 2, "temperature": 1.2}
    ask |= {"answer_tokens": 120, "timeout_s": 280}
    return Campaign.of(
        {
            "campaign": {"name": "films"},
            "variables": {
                "thickness": {"domain": [0.5, 20], "unit": "nm", "about": "Thickness of the film."},
                "gap": {"domain": [5e-8, 1e-7], "unit": "m", "about": "Gap between the plates."},
                "layers": {"domain": [1, 9], "integer": True},
                "phase": {"values": ["cubic", "hexagonal"]},
            },
            "objectives": {"energy_ev": "MINIMIZE"},
            "level": [{"name": "full", "use": "math:sin", "timeout_s": 60}],
            "producer": {**ask, **producer},
            "fallback": {},
            "stop": {"node_h": 10},
        },
        prompt="Thin films between two plates; thick films with a small gap bend.",
    )


RUNNING = "vllm:num_requests_running{"
KNOWN = [
    Observation(
        {"thickness": 1.5 * i + 0.5, "gap": 5e-8 + i * 4e-9, "layers": i + 1, "phase": "cubic"},
        {"energy_ev": -1.0 / (i + 1)},
        feasible=True,
    )
    for i in range(8)
]


@pytest.fixture(scope="module")
def environment():
    return make()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(environment, tmp_path_factory):
    log = tmp_path_factory.mktemp("vllm") / "vllm.log"
    made = VllmServer(
        path=str(environment.model),
        command=environment.command,
        flags=environment.flags,
        env=environment.variables,
        log=log,
        look_s=1.0,
        answer_s=5.0,
        stall_s=15.0,
        backoff_s=0.0,
    )
    async with made:
        yield made
        assert len(group.marked(str(log))) > 1
    assert group.marked(str(log)) == []


async def ask(server, *, decision=1, previous=(), results=KNOWN, lessons=(), **producer):
    producing = VllmProducer(server.url, server.model, campaign(**producer), environ={})
    try:
        return await producing.propose(
            decision=decision, results=results, previous=previous, lessons=lessons
        )
    finally:
        await producing.aclose()


async def until_asked(server):
    """Wait until a request is under way in the engine."""
    connection = Connection(server.url)
    while True:
        raw = await connection.request("GET", "/metrics", deadline_s=30)
        running = [line for line in raw.decode().splitlines() if RUNNING in line]
        if any(not line.endswith(" 0.0") for line in running):
            break
        await asyncio.sleep(0.1)
    await connection.aclose()


def processes(server, title: str) -> list[int]:
    found = group.marked(str(server.log))
    return [p for p in found if title.encode() in Path(f"/proc/{p}/cmdline").read_bytes()]


async def test_samples_make_a_proposal_inside_the_space(server):
    made = campaign()

    answer = await ask(server)

    points = answer.proposal.points()
    assert len(points) == 2
    assert [list(made.space.problems(point)) for point in points] == [[], []]
    assert 2 <= answer.samples_valid <= answer.samples_total == 8
    assert answer.usage["output_tokens"] > 8


async def test_every_sample_is_a_proposal_and_keeps_to_a_bound_that_was_learned(server):
    thin = Lesson("thin", "thickness", "above", 5, (3.0, 20.0), (2.0, 2.0), own=True)

    answer = await ask(server, lessons=[thin], batch=1, samples=6)

    samples = [point for p in (answer.proposal, *answer.others) for point in p.points()]
    assert answer.samples_total == 6
    assert len(samples) == answer.samples_valid >= 2
    assert all(0.5 <= point["thickness"] <= 2.0 for point in samples)


async def test_traced_request_is_answered_under_our_id(server):
    with TracerProvider().get_tracer("test").start_as_current_span("attempt"):
        assert "traceparent" in trace_headers()
        answer = await ask(server)

    assert answer.response_id == f"chatcmpl-{answer.request_id}"
    assert answer.model == server.model


async def test_prompt_has_no_more_tokens_than_its_budget(server):
    hostile = [rejected("\u4f60\U0001f9ea" * 400, "no " * 400, index=i) for i in range(1, 4)]
    made = campaign(prompt_tokens=900)

    answer = await ask(server, previous=hostile, results=KNOWN * 40, prompt_tokens=900)

    asked = portable(made.candidate_model)
    written = messages(
        made,
        asked,
        results=KNOWN * 40,
        previous=hostile,
        budget_tokens=900,
        form="samples",
        decision=1,
    )
    estimate = sum(token_bound(message["content"]) for message in written)
    assert answer.usage["input_tokens"] <= 900
    assert answer.usage["input_tokens"] <= estimate + 64


async def test_whole_proposal_in_one_answer_meets_its_model(server):
    answer = await ask(server, form="batch", batch=3, rationale_chars=40, answer_tokens=300)

    assert len(answer.proposal.points()) == 3
    assert len(answer.proposal.rationale) <= 40


async def test_asking_again_is_hotter_and_gives_something_else(server):
    cool = {"batch": 1, "temperature": 0.01, "temperature_step": 1.2}
    first = await ask(server, samples=2, **cool)
    said = rejected(first.proposal, "thickness must be above 5")

    second = await ask(server, samples=8, previous=[said], **cool)

    assert (first.temperature, second.temperature) == (0.01, 1.21)
    assert second.proposal != first.proposal


async def test_answer_cut_short_is_rejected_with_what_came(server):
    with pytest.raises(Rejected) as caught:
        await ask(server, form="batch", answer_tokens=16)

    assert caught.value.check == "truncation"
    assert caught.value.value.startswith("{")


async def test_request_that_it_refuses_is_a_failure(server):
    with pytest.raises(ProducerError, match="HTTP 400") as caught:
        await ask(server, answer_tokens=100_000)

    assert caught.value.kind == "status"


async def test_every_schema_that_is_sent_is_taken(server):
    """What vLLM cannot compile it refuses with HTTP 400."""

    class Odd(BaseModel):
        step: Annotated[float, Field(ge=0, lt=1, multiple_of=0.25)]
        code: Annotated[str, Field(pattern="^[a-z]+$", max_length=9)]
        names: Annotated[set[Annotated[str, Field(max_length=3)]], Field(max_length=3)]
        when: date
        pair: tuple[Annotated[float, Field(gt=1e-9, le=2e-9)], Literal["x", 1, True, None]]
        choice: Annotated[float, Field(ge=0, le=1e12)] | None

    asked = portable(Odd)
    connection = Connection(server.url)
    raw = await connection.request(
        "POST",
        "/v1/chat/completions",
        body={
            "model": server.model,
            "messages": [{"role": "user", "content": "Say hello."}],
            "max_tokens": 200,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "odd", "schema": asked.schema, "strict": True},
            },
        },
        deadline_s=250,
    )
    await connection.aclose()

    said = json.loads(json.loads(raw)["choices"][0]["message"]["content"])
    assert list(said) == ["step", "code", "names", "when", "pair", "choice"]


async def test_endpoint_of_another_is_ready_too(server):
    endpoint = Endpoint(url=server.url, model=server.model)

    assert await endpoint.start() < 120
    await endpoint.stop()


async def test_server_killed_in_a_request_is_a_failure_and_comes_back(server):
    asking = asyncio.create_task(ask(server, form="batch", batch=20, answer_tokens=3000))
    await until_asked(server)
    watching = asyncio.create_task(server.watch())
    os.kill(server._running.process.pid, signal.SIGKILL)

    with pytest.raises(ProducerError) as caught:
        await asking
    assert caught.value.kind == "connection"
    assert "SIGKILL" in await watching
    # Its engine and workers do not notice; they must not outlive the restart.
    before = group.marked(str(server.log))
    await server.restart()

    assert set(group.marked(str(server.log))).isdisjoint(before)
    assert (await ask(server)).samples_valid >= 2


async def test_hung_engine_is_seen_though_its_health_page_is_fine(server):
    workers = processes(server, "VLLM::Worker") or processes(server, "VLLM::EngineCore")
    for pid in workers:
        os.kill(pid, signal.SIGSTOP)
    connection = Connection(server.url)
    try:
        problem = await asyncio.wait_for(server.watch(), 300)
        health = await connection.request("GET", "/health", deadline_s=30)
    finally:
        await connection.aclose()
        for pid in workers:
            os.kill(pid, signal.SIGCONT)

    assert workers
    assert "no token for" in problem
    assert health == b""
