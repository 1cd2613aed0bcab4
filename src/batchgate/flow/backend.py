"""The execution backend behind AsyncFlow: hands each task to where it runs.

It is what AsyncFlow 0.6 asks of a backend and no more. Where function tasks run is a `Pool`'s
affair, and where jobs run that of a `Jobs`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from ..job import End, FunctionTask, JobSpec, TaskEnd
from .ends import BY_RUNNER, ended_now
from .pool import Pool


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


class Jobs(Protocol):
    """A place where jobs run."""

    async def run(self, spec: JobSpec, *, stop: asyncio.Future[None]) -> TaskEnd:
        """Run a job to its end. Once `stop` is done, the job is ended.

        Nothing of the job runs any more when this returns, unless its end is `UNKNOWN`.
        """
        ...

    async def close(self) -> None:
        """Give the place back, when no job runs any more.

        Raises:
            FlowError: Something is left in it that cannot be ended.
        """
        ...


class Backend:
    """Hands each `Work` to where it runs. AsyncFlow's engine calls it, hence its methods' names.

    Args:
        functions: Where function tasks run.
        jobs: Where jobs run.
    """

    supports_implicit_data_linking = False
    supports_explicit_data_linking = False

    def __init__(self, *, functions: Pool, jobs: Jobs) -> None:
        self.name = "batchgate"
        self.is_attached = False
        self.attached_to: list[str] = []
        self._functions = functions
        self._jobs = jobs
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
        """End every task, then where they ran; nothing is left running afterwards.

        Raises:
            FlowError: Something cannot be ended.
        """
        again, self._closed = self._closed, True
        for work, _ in self._running.values():
            work.cancel()
        while self._running:
            await asyncio.wait([driver for _, driver in self._running.values()])
        if again:  # AsyncFlow's engine calls it too, when it ends
            return
        try:
            await self._functions.close()
        finally:
            await self._jobs.close()

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

        def started() -> None:
            self._report(task, TaskStates.RUNNING)

        if isinstance(work.payload, FunctionTask):
            return await self._functions.call(work.payload, stop=work.stop, started=started)
        started()
        return await self._jobs.run(work.payload, stop=work.stop)


def _state(end: End) -> str:
    match end:
        case End.COMPLETED:
            return TaskStates.DONE
        case End.CANCELED:
            return TaskStates.CANCELED
        case _:
            return TaskStates.FAILED
