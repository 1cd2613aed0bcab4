"""Whether a server works: a busy one is told from a hung one."""

from __future__ import annotations

import itertools

import pytest

from batchgate.producers.connection import Connection
from batchgate.producers.probe import Probe
from batchgate.testing import Reply, ScriptedServer, completion, cut, hang

CANARY = completion("7", finish_reason="length")


def metrics(tokens: float) -> Reply:
    return Reply(
        b"# HELP x y\n"
        b'vllm:num_requests_running{engine="0"} 9.0\n'
        b'vllm:prompt_tokens_total{engine="0",model_name="m"} 10.0\n'
        + f'vllm:generation_tokens_total{{engine="0",model_name="m"}} {tokens:g}\n'.encode()
    )


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


async def problems(server, clock, *, times_s, answer_s=60.0):
    """Look at a server at some times; return what was found."""
    connection = Connection(server.url)
    probe = Probe(connection, "m", answer_s=answer_s, stall_s=100, clock=clock)
    found = []
    for at_s in times_s:
        clock.now_s = at_s
        found.append(await probe.problem())
    await connection.aclose()
    return found


async def test_server_that_answers_has_no_problem(clock):
    async with ScriptedServer([CANARY] * 3, model="m") as server:
        assert await problems(server, clock, times_s=(0, 500, 1000)) == [None] * 3


async def test_question_is_one_token_under_a_schema(clock):
    async with ScriptedServer([CANARY], model="m") as server:
        await problems(server, clock, times_s=(0,))

    (body,) = server.asked
    assert body["max_tokens"] == 1
    assert body["response_format"]["json_schema"]["schema"] == {"const": 7}


async def test_busy_server_is_left_alone_however_long_it_takes(clock):
    counts = itertools.count(1)
    routes = {"/metrics": lambda _: metrics(next(counts))}

    async with ScriptedServer(itertools.repeat(cut()), model="m", routes=routes) as server:
        assert await problems(server, clock, times_s=(0, 500, 1000, 5000)) == [None] * 4


@pytest.mark.parametrize("page", [metrics(5), Reply(status=404), cut()])
async def test_server_without_a_token_for_long_is_hung(clock, page):
    routes = {"/metrics": page}

    async with ScriptedServer(itertools.repeat(cut()), model="m", routes=routes) as server:
        *before, last = await problems(server, clock, times_s=(0, 60, 99, 161))

    assert before == [None] * 3
    assert "no token for 161 s" in last


async def test_server_that_does_not_even_tell_its_counters_is_hung(clock):
    routes = {"/metrics": hang()}

    async with ScriptedServer(itertools.repeat(hang()), model="m", routes=routes) as server:
        *before, last = await problems(server, clock, times_s=(0, 161), answer_s=0.05)

    assert before == [None]
    assert "did not answer within 0.05 s" in last


async def test_answer_between_starts_the_count_anew(clock):
    script = [cut(), CANARY, cut(), cut()]

    async with ScriptedServer(script, model="m") as server:
        found = await problems(server, clock, times_s=(50, 90, 180, 200))

    assert found[:3] == [None] * 3
    assert "no token for 110 s" in found[3]


async def test_refused_questions_for_long_are_a_problem(clock):
    script = [Reply(b"engine dead", status=500), cut(), Reply(b"engine dead", status=500)]

    async with ScriptedServer(script, model="m") as server:
        *before, last = await problems(server, clock, times_s=(0, 50, 200))

    assert before == [None, None]
    assert "engine dead" in last


async def test_server_that_ignores_the_schema_is_a_problem_at_once(clock):
    async with ScriptedServer([completion("Hello")], model="m") as server:
        (found,) = await problems(server, clock, times_s=(0,))

    assert "ignores the schema" in found


@pytest.mark.parametrize(
    ("script", "routes", "why"),
    [
        ([CANARY], {}, None),
        ([], {"/v1/models": Reply(b'{"data":[{"id":"other"}]}')}, "serves other, not m"),
        ([], {"/v1/models": Reply(b'{"data":[]}')}, "serves nothing, not m"),
        ([], {"/v1/models": Reply(b"[]")}, "does not list models"),
        ([], {"/health": Reply(status=503)}, "HTTP 503"),
        ([cut()], {}, "no answer"),
        ([completion("Hello")], {}, "ignores the schema"),
        ([completion(None)], {}, "ignores the schema"),
    ],
)
async def test_what_is_missing_for_readiness_is_told(script, routes, why):
    async with ScriptedServer(script, model="m", routes=routes) as server:
        connection = Connection(server.url)
        missing = await Probe(connection, "m").readiness()
        await connection.aclose()

    assert (missing is None) == (why is None)
    assert (why or "") in (missing or "")
