"""The execution backend behind AsyncFlow: hands each task to a slot, or starts its process.

It is what AsyncFlow 0.6 asks of a backend and no more. Another backend (Slurm steps,
RADICAL-Pilot, Dask) goes beside this one and fills `Work.end` in the same way.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..job import End, FunctionTask, JobSpec, TaskEnd
from .ends import BY_RUNNER, ended_now
from .process import run_process
from .slot import Slot
from .waiting import first


class TaskStates:
    """AsyncFlow's words for a task's state."""

    RUNNING = "RUNNING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    terminal_states = frozenset({DONE, FAILED, CANCELED})


@dataclass(slots=True, eq=False)
class Work:
    """One task on its way through AsyncFlow: the only argument of the function submitted there.

    Its end is written here and not carried by AsyncFlow: a task's end then cannot reach another
    task, whatever AsyncFlow's ids do.

    Attributes:
        payload: What to do.
        stop: Done when the task is to be ended.
        end: How it ended.
    """

    payload: FunctionTask | JobSpec
    stop: asyncio.Future[None]
    end: TaskEnd | None = None

    def cancel(self) -> None:
        """Have the task ended."""
        if not self.stop.done():
            self.stop.set_result(None)


class Backend:
    """Runs `Work` on this node. AsyncFlow's engine calls it, hence its methods' names.

    Args:
        workers: Function tasks at once.
        work_dir: Folder for what workers print and leave.
        marker: Marks every process.
        grace_s: Seconds between SIGTERM and SIGKILL.
    """

    supports_implicit_data_linking = False
    supports_explicit_data_linking = False

    def __init__(self, *, workers: int, work_dir: Path, marker: str, grace_s: float) -> None:
        self.name = "batchgate"
        self.is_attached = False
        self.attached_to: list[str] = []
        self._marker = marker
        self._grace_s = grace_s
        self._slots = tuple(
            Slot(work_dir / f"worker-{number}", marker=marker, grace_s=grace_s)
            for number in range(workers)
        )
        # The slot used last comes first: its worker is warm.
        self._free: asyncio.LifoQueue[Slot] = asyncio.LifoQueue()
        for slot in reversed(self._slots):
            self._free.put_nowait(slot)
        self._closed = False
        self._running: dict[str, tuple[Work, asyncio.Task[None]]] = {}
        self._report: Callable[[dict[str, Any], str], None] = lambda task, state: None

    def get_task_states_map(self) -> type[TaskStates]:
        """Return AsyncFlow's words for states."""
        return TaskStates

    def register_callback(self, callback: Callable[[dict[str, Any], str], None]) -> None:
        """Take the function that is told each change of a task's state."""
        self._report = callback

    async def submit_tasks(self, tasks: Sequence[dict[str, Any]]) -> None:
        """Start tasks. Raises nothing: AsyncFlow 0.6.0 ends every task when this does."""
        for task in tasks:
            work: Work = task["args"][0]
            if self._closed:
                work.cancel()
            driver = asyncio.create_task(self._drive(task, work))
            self._running[task["uid"]] = (work, driver)

    async def cancel_task(self, uid: str) -> bool:
        """Have a task ended; False when it is not running."""
        if running := self._running.get(uid):
            running[0].cancel()
        return running is not None

    async def shutdown(self) -> None:
        """End every task and every worker; no process is left afterwards.

        Raises:
            FlowError: A process cannot be ended.
        """
        self._closed = True
        for work, _ in self._running.values():
            work.cancel()
        while self._running:
            await asyncio.wait([driver for _, driver in self._running.values()])
        ended = await asyncio.gather(
            *(slot.close() for slot in self._slots), return_exceptions=True
        )
        for error in ended:
            if error is not None:
                raise error

    async def _drive(self, task: dict[str, Any], work: Work) -> None:
        try:
            work.end = await self._end_of(task, work)
        except Exception as exc:  # noqa: BLE001 - a fault of ours is an end too: nobody may hang
            work.end = ended_now(End.UNKNOWN, f"{type(exc).__name__}: {exc}", started_at=0.0)
        finally:
            del self._running[task["uid"]]
        task["return_value"] = task["stdout"] = work.end.end.value
        task["stderr"] = work.end.error
        self._report(task, _state(work.end.end))

    async def _end_of(self, task: dict[str, Any], work: Work) -> TaskEnd:
        if work.stop.done():
            return ended_now(End.CANCELED, BY_RUNNER, started_at=0.0)
        if isinstance(work.payload, FunctionTask):
            return await self._call(task, work, work.payload)
        self._report(task, TaskStates.RUNNING)
        return await run_process(
            work.payload, marker=self._marker, stop=work.stop, grace_s=self._grace_s
        )

    async def _call(self, task: dict[str, Any], work: Work, call: FunctionTask) -> TaskEnd:
        slot = await self._take(work.stop)
        if slot is None:
            return ended_now(End.CANCELED, BY_RUNNER, started_at=0.0)
        try:
            self._report(task, TaskStates.RUNNING)
            return await slot.call(call, stop=work.stop)
        finally:
            self._free.put_nowait(slot)

    async def _take(self, stop: asyncio.Future[None]) -> Slot | None:
        """Wait for a free slot; `None` when `stop` was done before."""
        free = asyncio.ensure_future(self._free.get())
        await first(free, stop)
        if free.done():
            return free.result()
        free.cancel()
        return None


def _state(end: End) -> str:
    match end:
        case End.COMPLETED:
            return TaskStates.DONE
        case End.CANCELED:
            return TaskStates.CANCELED
        case _:
            return TaskStates.FAILED
