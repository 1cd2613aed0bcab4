"""HTTP to one OpenAI-compatible server, over TCP or a Unix socket, with bounds on everything.

One client, so that connections are used again; one deadline for a whole request; an answer is read
up to a limit and no further. Proxies of the environment are not used: on clusters they catch
loopback too.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx

from ..errors import ConfigError, ProducerError

API_KEY_ENV = "BATCHGATE_API_KEY"
"""Variable that holds the key of an endpoint that wants one."""
MAX_BYTES = 16 * 1024 * 1024
"""Longest answer that is read: 256 samples of 400 tokens are under 1 MiB."""

# uvicorn closes an idle connection after 5 s (vLLM 0.32: VLLM_HTTP_TIMEOUT_KEEP_ALIVE); a request
# sent into one that is being closed is lost.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=64, keepalive_expiry=2.0)
_MAX_TOLD = 300


class Connection:
    """A server's address and the shared client for it.

    Args:
        endpoint: `http://host:port`, `https://...`, or `unix:/path/of/the/socket`. A trailing `/v1`
            is taken off.
        api_key: Sent as bearer token, never shown.

    Raises:
        ConfigError: The endpoint or the key cannot be used as they are.
    """

    def __init__(self, endpoint: str, *, api_key: str | None = None) -> None:
        self.endpoint = endpoint
        base, transport = _address(endpoint)
        self.address: str = endpoint.removeprefix("unix:") if transport else base.host
        """Host, or path of the socket."""
        self.port: int | None = None if transport else (base.port or _PORTS[base.scheme])
        self._client = httpx.AsyncClient(
            base_url=base,
            transport=transport or httpx.AsyncHTTPTransport(limits=_LIMITS),
            headers={"Accept-Encoding": "identity", **_authorization(api_key)},
            timeout=None,  # noqa: S113 - `request` has one deadline for the whole
            trust_env=False,
        )

    async def request(
        self,
        method: str,
        path: str,
        *,
        deadline_s: float,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> bytes:
        """Send one request, once, and return the body of the answer.

        Args:
            method: `GET` or `POST`.
            path: Path on the server, `/v1/...`.
            deadline_s: Seconds until the whole answer must be here.
            body: Sent as JSON.
            headers: Further headers.

        Raises:
            ProducerError: No answer in time, none at all, an HTTP error, or one without an end.
        """
        content = None if body is None else json.dumps(body, allow_nan=False).encode()
        request = self._client.build_request(method, path, content=content, headers=headers)
        if content is not None:
            request.headers["Content-Type"] = "application/json"
        try:
            async with asyncio.timeout(deadline_s):
                response = await self._client.send(request, stream=True)
                try:
                    return await self._read(response)
                finally:
                    await response.aclose()
        except TimeoutError:
            raise ProducerError(
                f"{self.endpoint}{path} did not answer within {deadline_s:g} s", "timeout"
            ) from None
        except httpx.TransportError as exc:
            raise ProducerError(
                f"{self.endpoint}{path}: no answer ({type(exc).__name__}: {exc}); "
                "see whether the server runs",
                "connection",
            ) from exc

    async def aclose(self) -> None:
        """Close all connections."""
        await self._client.aclose()

    async def _read(self, response: httpx.Response) -> bytes:
        # Never decoded: a few compressed bytes could fill the memory.
        encoding = response.headers.get("Content-Encoding", "identity")
        if encoding != "identity":
            raise ProducerError(
                f"{self.endpoint} answers in {one_line(encoding)}, which was not asked for",
                "protocol",
            )
        raw = bytearray()
        async for chunk in response.aiter_raw():
            raw += chunk
            if len(raw) > MAX_BYTES:
                raise ProducerError(
                    f"{self.endpoint} answers with more than {MAX_BYTES} bytes", "protocol"
                )
        if response.status_code != httpx.codes.OK:
            told = one_line(bytes(raw[: 4 * _MAX_TOLD]).decode("utf-8", "replace"))
            raise ProducerError(
                f"{self.endpoint} answers HTTP {response.status_code}: {told or 'nothing more'}",
                "status",
            )
        return bytes(raw)


def one_line(text: str) -> str:
    """Return foreign text fit for a message: printable, on one line, at most 300 characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= _MAX_TOLD else line[: _MAX_TOLD - 3] + "..."


_PORTS = {"http": 80, "https": 443}


def _address(endpoint: str) -> tuple[httpx.URL, httpx.AsyncHTTPTransport | None]:
    scheme, _, path = endpoint.partition(":")
    if scheme == "unix":
        if not path.startswith("/"):
            raise ConfigError(f"endpoint is {endpoint!r}, must be unix:/path/of/the/socket")
        return httpx.URL("http://localhost"), httpx.AsyncHTTPTransport(uds=path, limits=_LIMITS)
    try:
        url = httpx.URL(endpoint.rstrip("/").removesuffix("/v1"))
    except httpx.InvalidURL as exc:
        raise ConfigError(f"endpoint is {endpoint!r}: {exc}") from exc
    if url.userinfo:
        raise ConfigError("endpoint holds a user or a password; give the key in a variable")
    if url.scheme not in _PORTS or not url.host:
        raise ConfigError(f"endpoint is {endpoint!r}, must be http://host:port or unix:/path")
    return url, None


def _authorization(api_key: str | None) -> dict[str, str]:
    if not api_key:
        return {}
    if not (api_key.isascii() and api_key.isprintable()):
        raise ConfigError("the API key has characters that no HTTP header may have")
    return {"Authorization": f"Bearer {api_key}"}
