"""Slots for function tasks, shared out: the one that was used last comes first, being warm."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from ..job import End, FunctionTask, TaskEnd
from .ends import BY_RUNNER, ended_now
from .waiting import first


class FunctionSlot(Protocol):
    """Runs one function task at a time."""

    async def call(self, task: FunctionTask, *, stop: asyncio.Future[None]) -> TaskEnd:
        """Call a function. Once `stop` is done, the call is ended."""
        ...

    async def close(self) -> None:
        """End what it holds.

        Raises:
            FlowError: It cannot be ended.
        """
        ...


class Pool:
    """Hands function tasks to slots; those that find none free wait in their order.

    Args:
        slots: As many as tasks may run at once.
    """

    def __init__(self, slots: Iterable[FunctionSlot]) -> None:
        self._slots = tuple(slots)
        self._free: asyncio.LifoQueue[FunctionSlot] = asyncio.LifoQueue()
        for slot in reversed(self._slots):
            self._free.put_nowait(slot)

    async def call(
        self, task: FunctionTask, *, stop: asyncio.Future[None], started: Callable[[], None]
    ) -> TaskEnd:
        """Call a function in the next slot that is free.

        Args:
            task: The call.
            stop: Ends it once done.
            started: Called when it has its slot.
        """
        slot = await self._take(stop)
        if slot is None:
            return ended_now(End.CANCELED, BY_RUNNER, started_at=0.0)
        try:
            started()
            return await slot.call(task, stop=stop)
        finally:
            self._free.put_nowait(slot)

    async def close(self) -> None:
        """Close every slot.

        Raises:
            FlowError: One of them holds what cannot be ended.
        """
        closed = await asyncio.gather(
            *(slot.close() for slot in self._slots), return_exceptions=True
        )
        for error in closed:
            if error is not None:
                raise error

    async def _take(self, stop: asyncio.Future[None]) -> FunctionSlot | None:
        """Wait for a free slot; `None` when `stop` was done before."""
        free = asyncio.ensure_future(self._free.get())
        await first(free, stop)
        if free.done():
            return free.result()
        free.cancel()
        return None
