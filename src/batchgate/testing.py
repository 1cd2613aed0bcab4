"""Doubles for tests of campaigns: no model, no waiting, no network beyond loopback.

They ship with the package, so that a campaign's own tests can use them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .answer import Answer
from .breach import Lesson
from .campaign import Proposal
from .campaign.observation import Observation
from .decision import Attempt


@dataclass(frozen=True, slots=True)
class Call:
    """What a producer was asked with.

    Attributes:
        decision: Number of the decision.
        results: What was known.
        previous: The rejected attempts.
        lessons: What the run had learned.
    """

    decision: int
    results: tuple[Observation, ...]
    previous: tuple[Attempt[Proposal], ...]
    lessons: tuple[Lesson, ...] = ()


Line = Proposal | Answer | BaseException | Callable[[Call], "Line"]
"""One line of a script: what is proposed, what is raised, or a function that says which."""


class ScriptedProducer:
    """Proposes what a script says, one line a call, and keeps the calls.

    Args:
        script: The lines; read as they are needed, so it may be endless.
        name: Its name in every record.

    Attributes:
        calls: What it was asked with, in order.
        closed: Whether it was closed.
    """

    def __init__(self, script: Iterable[Line], *, name: str = "scripted") -> None:
        self.name = name
        self.calls: list[Call] = []
        self.closed = False
        self._script: Iterator[Line] = iter(script)

    async def propose(
        self,
        *,
        decision: int,
        results: Sequence[Observation],
        previous: Sequence[Attempt[Proposal]],
        lessons: Sequence[Lesson] = (),
    ) -> Answer:
        """Give the next line.

        Raises:
            AssertionError: The script is over.
            BaseException: The line says so.
        """
        call = Call(decision, tuple(results), tuple(previous), tuple(lessons))
        self.calls.append(call)
        try:
            line = next(self._script)
        except StopIteration:
            raise AssertionError(f"call {len(self.calls)} comes after the script's end") from None
        while not isinstance(line, (Proposal, Answer, BaseException)):
            line = line(call)
        if isinstance(line, BaseException):
            raise line
        if isinstance(line, Answer):
            return line
        number = f"{decision}-{len(previous) + 1}"
        return Answer(proposal=line, response_id=f"{self.name}-{number}", model=self.name)

    async def aclose(self) -> None:
        """Remember that it was closed."""
        self.closed = True


@dataclass(frozen=True, slots=True)
class Request:
    """An HTTP request as it came.

    Attributes:
        method: `GET`, `POST`, ...
        path: Path with its query.
        headers: Names in lower case.
        body: The bytes.
    """

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """Return the body as data."""
        return json.loads(self.body)


@dataclass(frozen=True, slots=True)
class Reply:
    """An HTTP answer to give.

    Attributes:
        body: Bytes of the body; several pieces are sent one by one, and may be endless.
        status: Status code.
        headers: Headers; without a `Content-Length` the end of the connection ends the body.
        after: Waited for before anything is sent; one that is never set makes the server hang.
        raw: Sent in place of everything, then the connection is cut.
    """

    body: bytes | Iterable[bytes] = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    after: asyncio.Event | None = None
    raw: bytes | None = None


def cut() -> Reply:
    """Return the answer of a server that dies: none."""
    return Reply(raw=b"")


def hang() -> Reply:
    """Return the answer of a server that never answers."""
    return Reply(after=asyncio.Event())


def completion(
    *contents: str | None,
    finish_reason: str = "stop",
    refusal: str | None = None,
    response_id: str = "chatcmpl-1",
    model: str = "scripted",
) -> Reply:
    """Return a chat completion with one choice for each content."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": content, "refusal": refusal},
            "finish_reason": finish_reason,
        }
        for index, content in enumerate(contents)
    ]
    usage = {"prompt_tokens": 10, "completion_tokens": 5 * len(choices)}
    envelope = {"id": response_id, "model": model, "choices": choices, "usage": usage}
    return Reply(json.dumps({"object": "chat.completion", **envelope}).encode())


class ScriptedServer:
    """An OpenAI-compatible server that says what a script says, over TCP or a Unix socket.

    `/health`, `/v1/models` and `/metrics` are answered as vLLM does; `routes` changes that. Chat
    completions come from the script, one line a request.

    Args:
        script: Answers to chat completions, or functions of the request that give one.
        model: Name that it lists.
        routes: Path to its answer, in place of the usual one.
        socket: Path of a Unix socket to listen on; loopback by default.

    Attributes:
        requests: All requests, in order.
        url: Where it listens, once it was entered.
        sent: Bytes of bodies handed to the network.
    """

    def __init__(
        self,
        script: Iterable[Reply | Callable[[Request], Reply]] = (),
        *,
        model: str = "scripted",
        routes: Mapping[str, Reply | Callable[[Request], Reply]] | None = None,
        socket: Path | None = None,
    ) -> None:
        self.requests: list[Request] = []
        self.url = ""
        self.sent = 0
        self.connections = 0
        self._script = iter(script)
        self._socket = socket
        models = json.dumps({"object": "list", "data": [{"id": model}]}).encode()
        usual = {"/health": Reply(), "/v1/models": Reply(models), "/metrics": Reply()}
        self._routes = {**usual, **(routes or {})}
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> ScriptedServer:
        if self._socket is not None:
            self._server = await asyncio.start_unix_server(self._accept, self._socket)
            self.url = f"unix:{self._socket}"
        else:
            self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
            self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def asked(self) -> list[Any]:
        """Bodies of the chat completions asked for, in order."""
        return [r.json() for r in self.requests if r.path == "/v1/chat/completions"]

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._handlers.add(task)
        self.connections += 1
        try:
            # A client that goes away is none of our business.
            with contextlib.suppress(OSError, asyncio.CancelledError):
                async for request in _requests(reader):
                    self.requests.append(request)
                    if not await self._answer(request, writer):
                        break
        finally:
            self._handlers.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> bool:
        """Answer one request; say whether the connection goes on."""
        reply = self._routes.get(request.path) or next(self._script, _OVER)
        if not isinstance(reply, Reply):
            reply = reply(request)
        if reply.after is not None:
            await reply.after.wait()
        if reply.raw is not None:
            writer.write(reply.raw)
            await writer.drain()
            return False
        whole = isinstance(reply.body, bytes)
        headers = {"content-length": str(len(reply.body))} if isinstance(reply.body, bytes) else {}
        lines = [f"{name}: {value}\r\n" for name, value in {**headers, **reply.headers}.items()]
        writer.write(f"HTTP/1.1 {reply.status} X\r\n{''.join(lines)}\r\n".encode())
        for piece in (reply.body,) if isinstance(reply.body, bytes) else reply.body:
            writer.write(piece)
            await writer.drain()
            self.sent += len(piece)
            # An endless body must not keep the loop for itself: drain returns at once while the
            # buffers take more.
            await asyncio.sleep(0)
        return whole


_OVER = Reply(b'{"error": "the script is over"}', status=500)


async def _requests(reader: asyncio.StreamReader) -> AsyncIterator[Request]:
    """Yield the requests of a connection until it ends, be it amid one."""
    with contextlib.suppress(asyncio.IncompleteReadError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            first, *rest = head.rstrip("\r\n").split("\r\n")
            method, path, _ = first.split(" ")
            pairs = (line.partition(":") for line in rest)
            headers = {name.lower(): value.strip() for name, _, value in pairs}
            body = await reader.readexactly(int(headers.get("content-length", "0")))
            yield Request(method, path, headers, body)
