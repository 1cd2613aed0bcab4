"""Asks a server whether it really works: with a small constrained answer, never by its health page.

vLLM 0.32 says 200 at `/health` while its engine hangs or drains. A busy server answers slowly
instead; it is told from a hung one by its counters of tokens, which go on.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Awaitable, Callable

from ..errors import ProducerError, ServerError
from .chat import Completion
from .connection import Connection

# A model left alone does not answer "Say hello." with 7: that it does shows the grammar at work.
_CANARY = 7
_LOOK_S = 1.0
_TELL_S = 15.0
_COUNTERS = re.compile(
    r"^vllm:(?:generation|prompt)_tokens_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE
)


async def wait_until_ready(
    probe: Probe,
    *,
    ready_s: float,
    alive: Callable[[float], Awaitable[None]],
    progress: Callable[[str], None],
    clock: Callable[[], float] = time.monotonic,
) -> float:
    """Wait for a server to answer as it should.

    Args:
        probe: Asks it.
        ready_s: Seconds until it must be ready.
        alive: Waits so many seconds between two looks; raises when there is no use in waiting.
        progress: Gets a line every 15 s.
        clock: Seconds, monotonic.

    Returns:
        Seconds it took.

    Raises:
        ServerError: It was not ready in time.
    """
    started, told, missing = clock(), clock(), None
    try:
        async with asyncio.timeout(ready_s):
            while (missing := await probe.readiness()) is not None:
                if clock() - told >= _TELL_S:
                    told = clock()
                    progress(f"the model server starts, {told - started:.0f} s so far")
                await alive(_LOOK_S)
    except TimeoutError:
        raise ServerError(f"the model server is not ready after {ready_s:g} s: {missing}") from None
    return clock() - started


class Probe:
    """Judges one server over time.

    Args:
        connection: The server.
        model: Name that it must list.
        answer_s: Seconds within which a server that is not busy answers one token.
        stall_s: Seconds without an answer and without a token for anybody after which it counts as
            hung. Must be longer than its longest step: reading a prompt of 1,800 tokens takes 18 s
            on one CPU core.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        connection: Connection,
        model: str,
        *,
        answer_s: float = 20.0,
        stall_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = connection
        self._model = model
        self._answer_s = answer_s
        self._stall_s = stall_s
        self._clock = clock
        self._tokens: float | None = None
        self._progress_at = clock()

    async def readiness(self) -> str | None:
        """Say what is still missing before the server can be asked; `None` when it is ready."""
        try:
            await self._connection.request("GET", "/health", deadline_s=self._answer_s)
            served = await self._served()
            if self._model not in served:
                return f"it serves {', '.join(served) or 'nothing'}, not {self._model}"
            return await self._canary(self._stall_s)
        except ProducerError as exc:
            return str(exc)

    async def problem(self) -> str | None:
        """Say why the server must be given up; `None` while it answers or is only busy."""
        try:
            if wrong := await self._canary(self._answer_s):
                return wrong
            self._progress_at = self._clock()
            return None
        except ProducerError as exc:
            return await self._stalled(exc)

    async def _stalled(self, error: ProducerError) -> str | None:
        tokens = await self._count_tokens()
        if tokens is not None and tokens != self._tokens:
            self._tokens, self._progress_at = tokens, self._clock()
        idle_s = self._clock() - self._progress_at
        if idle_s < self._stall_s:
            return None
        return f"no token for {idle_s:.0f} s ({error})"

    async def _served(self) -> list[str]:
        raw = await self._connection.request("GET", "/v1/models", deadline_s=self._answer_s)
        try:
            return [str(entry["id"]) for entry in json.loads(raw)["data"]]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise ProducerError("/v1/models does not list models", "protocol") from None

    async def _canary(self, deadline_s: float) -> str | None:
        body = {
            "model": self._model,
            "messages": [{"role": "user", "content": "Say hello."}],
            "max_tokens": 1,
            "temperature": 0,
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "canary", "schema": {"const": _CANARY}, "strict": True},
            },
        }
        raw = await self._connection.request(
            "POST", "/v1/chat/completions", body=body, deadline_s=deadline_s
        )
        said = Completion.read(raw).choices[0].message.content or ""
        if said.strip() == str(_CANARY):
            return None
        return "it ignores the schema of an answer, so nothing it says would be constrained"

    async def _count_tokens(self) -> float | None:
        try:
            raw = await self._connection.request("GET", "/metrics", deadline_s=self._answer_s)
        except ProducerError:
            return None
        return sum(map(float, _COUNTERS.findall(raw.decode("utf-8", "replace"))))
