"""AsyncFlow's engine with what it does to a long unattended run taken out of the way.

Measured with radical.asyncflow 0.6.0; each private name used here has a contract test.

* Ids come from one counter of the process that any engine's shutdown resets, so that a call could
  be given another one's result: ours are random.
* It takes SIGHUP, SIGTERM and SIGINT, and never gives them back: ours takes none.
* It keeps every task for ever, which costs memory and makes each later one slower: ours forgets a
  task that has ended.
* It accepts tasks after its end, which then never end: `end_of` refuses them.
* A task that is cancelled there runs on: ours is ended by its `Work`, and waited for.
* When it breaks down, its task waits for its own end, which from CPython 3.12 on makes `shutdown`
  fail: ours just ends.
"""

from __future__ import annotations

import asyncio
import shlex
import signal
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from radical.asyncflow import WorkflowEngine

from ..errors import FlowError
from ..job import FunctionTask, JobSpec, TaskEnd
from .backend import Backend, TaskStates, Work
from .waiting import finished, first

WINDOW = 64
"""Function tasks known to AsyncFlow at once: each pass of its loop looks at all of them."""
_SHUTDOWN_S = 10.0


class Engine(WorkflowEngine):  # type: ignore[misc] # radical.asyncflow has no types
    """`WorkflowEngine` for one `Backend`, whose tasks have one `Work` as their argument."""

    _closing = False

    @classmethod
    async def of(cls, backend: Backend, *, work_dir: Path) -> Engine:
        """Create one; its folder is `work_dir`."""
        engine: Engine = await cls.create(
            backend=backend, implicit_data=False, uid=work_dir.name, work_dir=str(work_dir.parent)
        )
        return engine

    @property
    def down(self) -> bool:
        """Whether it takes no more tasks."""
        return self._closing or self._shutdown_event.is_set() or self._run_task.done()

    async def end_of(
        self, submit: Callable[[Work], asyncio.Future[Any]], payload: FunctionTask | JobSpec
    ) -> TaskEnd:
        """Submit a task and wait for its end.

        When cancelled, the task is ended first.

        Args:
            submit: What `function_task` or `executable_task` made.
            payload: The task.

        Raises:
            FlowError: The engine is down.
        """
        if self.down:
            raise FlowError("AsyncFlow's engine is down and takes no tasks; start the run again")
        work = Work(payload, stop=asyncio.get_running_loop().create_future())
        future = submit(work)
        try:
            await self._settled(future)
        except asyncio.CancelledError:
            work.cancel()
            await finished(self._settled(future))
            raise
        if work.end is None:
            raise FlowError("AsyncFlow's engine went down under a task; start the run again")
        return work.end

    async def close(self) -> None:
        """End every task, then the engine. Blocks neither the event loop nor for ever.

        Raises:
            FlowError: A process cannot be ended.
        """
        self._closing = True
        try:
            await self.backend.shutdown()
        finally:
            await asyncio.wait_for(self.shutdown(), _SHUTDOWN_S)

    async def _settled(self, future: asyncio.Future[Any]) -> None:
        """Wait until a task's future or the engine is done, whatever the task's end."""
        await first(future, self._run_task)
        if future.done() and not future.cancelled():
            future.exception()  # its end says more; asyncio warns of one that nobody looked at

    def _assign_uid(self, prefix: str) -> str:
        return f"{prefix}.{uuid.uuid4().hex}"

    def _setup_signal_handlers(self) -> None:
        pass

    async def _handle_shutdown_signal(self, sig: signal.Signals, source: str = "external") -> None:
        """Let the engine's task end, which calls this when it breaks down; `close` does the rest."""
        self._shutdown_event.set()

    def _clear_internal_records(self) -> None:
        """Leave the ids of other engines in this process alone; of ours nothing is kept."""

    def task_callbacks(
        self, task: dict[str, Any], state: str, service_callback: Callable[..., Any] | None = None
    ) -> None:
        """Take a task's new state, and forget the task when it is the last one."""
        super().task_callbacks(task, state, service_callback)
        if state in TaskStates.terminal_states:
            self._forget(task["uid"])

    def _forget(self, uid: str) -> None:
        """Drop what is kept of a task. Nothing may depend on it: we pass values, not futures."""
        self.running.discard(uid)
        self._notify_dependents(uid)
        self.components.pop(uid, None)
        self.dependencies.pop(uid, None)
        self.resolved.discard(uid)


class AsyncFlow:
    """`batchgate.job.Flow` on an `Engine`.

    Args:
        engine: Where tasks are submitted.
        jobs: Jobs at once.
    """

    def __init__(self, engine: Engine, *, jobs: int) -> None:
        self._engine = engine
        self._window = asyncio.Semaphore(WINDOW)
        self._jobs = asyncio.Semaphore(jobs)
        self._function_task = engine.function_task(_function)
        self._executable_task = engine.executable_task(_command)

    async def call(self, task: FunctionTask) -> TaskEnd:
        """Run a function in a warm worker; see `batchgate.job.Flow.call`."""
        async with self._window:
            return await self._engine.end_of(self._function_task, task)

    async def execute(self, spec: JobSpec) -> TaskEnd:
        """Run a process; see `batchgate.job.Flow.execute`."""
        async with self._jobs:
            return await self._engine.end_of(self._executable_task, spec)


async def _function(work: Work) -> None:
    """Stand for a function task: the backend looks at its argument and never calls it."""


async def _command(work: Work) -> str:
    """Stand for a job, under its id: the backend runs `argv` itself.

    AsyncFlow 0.6.0 takes a command as one text and splits it again, which with a long argument
    blocks the event loop for minutes.
    """
    assert isinstance(work.payload, JobSpec)
    return shlex.quote(work.payload.id)
