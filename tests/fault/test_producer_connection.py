"""A hostile or dying server: nothing is read without end, and nothing waits without end."""

from __future__ import annotations

import asyncio
import gzip
import itertools
import time

import pytest

from batchgate.errors import ProducerError
from batchgate.producers.connection import MAX_BYTES, Connection
from batchgate.testing import Reply, ScriptedServer, hang


async def failure(reply, *, deadline_s=20.0):
    """Ask once, and return the failure and the server."""
    async with ScriptedServer(routes={"/x": reply}) as server:
        connection = Connection(server.url)
        try:
            with pytest.raises(ProducerError) as caught:
                await connection.request("GET", "/x", deadline_s=deadline_s)
        finally:
            await connection.aclose()
    return caught.value, server


async def test_body_without_end_is_read_up_to_the_limit_only():
    piece = b" " * 65536

    error, server = await failure(Reply(itertools.repeat(piece)))

    assert error.kind == "protocol"
    # What lies in the sockets' buffers was sent and not read.
    assert server.sent < MAX_BYTES + 8 * 1024 * 1024


async def test_error_without_end_is_read_up_to_the_limit_only():
    error, _ = await failure(Reply(itertools.repeat(b" " * 65536), status=500))

    assert error.kind == "protocol"


async def test_compressed_answer_is_not_unpacked():
    bomb = gzip.compress(b" " * 10**7)

    error, _ = await failure(Reply(bomb, headers={"content-encoding": "gzip"}))

    assert error.kind == "protocol"
    assert "gzip" in str(error)


@pytest.mark.parametrize(
    "raw",
    [
        b"junk\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhalf",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nffffffffffff\r\nx",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 10**6,
    ],
)
async def test_answer_that_is_no_http_is_a_failure(raw):
    error, _ = await failure(Reply(raw=raw))

    assert error.kind == "connection"


async def test_server_that_never_answers_ends_at_the_deadline():
    started = time.monotonic()

    error, _ = await failure(hang(), deadline_s=0.2)

    assert error.kind == "timeout"
    assert "within 0.2 s" in str(error)
    assert time.monotonic() - started < 10


async def test_answer_in_drops_ends_at_the_deadline_too():
    """A time-out for each read would never pass."""
    error, _ = await failure(Reply(itertools.repeat(b" ")), deadline_s=0.3)

    assert error.kind == "timeout"


async def test_message_of_the_server_is_told_on_one_short_line():
    error, _ = await failure(Reply(b"\x1b[2Jboom\n" + b"x" * 5000, status=400))

    assert str(error).isprintable()
    assert "boom x" in str(error)
    assert len(str(error)) < 500


async def test_cancelled_request_leaves_no_connection_behind():
    async with ScriptedServer(routes={"/x": hang()}) as server:
        connection = Connection(server.url)
        asking = asyncio.create_task(connection.request("GET", "/x", deadline_s=60))
        while not server.requests:
            await asyncio.sleep(0)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

        answer = await connection.request("GET", "/health", deadline_s=20)
        await connection.aclose()

    assert answer == b""
    assert server.connections == 2


async def test_environment_s_proxies_are_not_used(monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    async with ScriptedServer() as server:
        connection = Connection(server.url)
        answer = await connection.request("GET", "/health", deadline_s=20)
        await connection.aclose()

    assert answer == b""
