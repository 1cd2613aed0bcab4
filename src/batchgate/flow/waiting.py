"""Two ways to wait that neither cancel nor lose what is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

_T = TypeVar("_T")


async def first(*futures: asyncio.Future[Any], timeout_s: float | None = None) -> None:
    """Return when one of the futures is done, or the time has passed; all are left as they are."""
    await asyncio.wait(futures, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)


async def finished(awaitable: Awaitable[_T]) -> _T:
    """Await to the end. A cancellation that comes meanwhile is raised afterwards."""
    future = asyncio.ensure_future(awaitable)
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await first(future)
        except asyncio.CancelledError as exc:
            cancelled = exc
    if cancelled is not None:
        raise cancelled
    return future.result()
