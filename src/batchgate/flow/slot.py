"""A slot for function tasks: one warm worker at a time, replaced when it was lost or ended.

A worker runs code that a hostile simulation may have influenced. So what it sends is JSON of
bounded size, is validated, and has to echo the request's id; anything else ends the worker.

A process that a function leaves behind lives as long as the function's worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import sys
import uuid
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, FiniteFloat, TypeAdapter

from ..errors import FlowError
from ..job import End, FunctionTask, TaskEnd
from .ends import BY_RUNNER, ended_now, in_words, not_started
from .function import RESULT_BYTES, TRACEBACK_CHARS
from .output import Pump, one_line
from .processes import Family, environment
from .waiting import first

IMPORT_S = 600.0
"""Seconds for a worker to start and to import a campaign's module, before the task's own deadline.

A cold import from a parallel file system takes minutes.
"""
_LOG_BYTES = 1 << 20


class _Line(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    id: str
    started_at: FiniteFloat


class _Started(_Line):
    """First line of an answer."""


class _Ended(_Line):
    """Last line of an answer; the only one when there is no such function."""

    end: Literal["completed", "exception"]
    value: Any = None
    error: str = ""
    traceback: str = ""
    ended_at: FiniteFloat


_FIRST = TypeAdapter[_Started | _Ended](_Started | _Ended)
_LAST = TypeAdapter(_Ended)
_L = TypeVar("_L", bound=_Line)


class Slot:
    """Runs one function task at a time.

    Args:
        folder: Working folder of its workers; what they print goes to `<folder>.log`, which
            holds the latest call's.
        marker: Marks their processes.
        grace_s: Seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, folder: Path, *, marker: str, grace_s: float) -> None:
        self._folder = folder
        self._marker = marker
        self._grace_s = grace_s
        self._worker: _Worker | None = None

    async def call(self, task: FunctionTask, *, stop: asyncio.Future[None]) -> TaskEnd:
        """Call a function. Once `stop` is done, the call is ended, and its worker with it."""
        request_id = uuid.uuid4().hex
        try:
            request = _request(request_id, task)
            worker = await self._ready()
        except (OSError, TypeError, ValueError, RecursionError) as exc:
            return not_started(f"cannot start {task.use}: {exc}")
        worker.ask(request)
        begun = await worker.answer(_FIRST, request_id, stop=stop, timeout_s=IMPORT_S)
        if isinstance(begun, _Ended):
            return _task_end(begun)
        if isinstance(begun, End):
            late = f"not imported within {IMPORT_S:g} s"
            return await self._give_up(worker, begun, late, started_at=0.0)
        ended = await worker.answer(_LAST, request_id, stop=stop, timeout_s=task.timeout_s)
        if isinstance(ended, _Ended):
            return _task_end(ended)
        late = f"ended after its deadline of {task.timeout_s:g} s"
        return await self._give_up(worker, ended, late, started_at=begun.started_at)

    async def close(self) -> None:
        """End the worker at once.

        Raises:
            FlowError: It cannot be ended.
        """
        if self._worker is not None:
            worker, self._worker = self._worker, None
            await worker.end(grace_s=0)

    async def _ready(self) -> _Worker:
        if self._worker is not None and self._worker.exited.done():
            await self.close()
        if self._worker is None:
            self._worker = await _Worker.start(self._folder, marker=self._marker)
        return self._worker

    async def _give_up(self, worker: _Worker, end: End, late: str, *, started_at: float) -> TaskEnd:
        """End a worker that gave no answer. The next call starts another one."""
        self._worker = None
        code = await worker.exit_code() if end is End.WORKER_LOST else None
        match end:
            case End.TIMED_OUT:
                error = late
            case End.CANCELED:
                error = BY_RUNNER
            case _ if code is None:
                error = "its worker sent what is no answer"
            case _:
                error = f"its worker died: {in_words(code)}"
        try:
            await worker.end(grace_s=self._grace_s)
        except FlowError as exc:
            end, error = End.UNKNOWN, str(exc)
        tail = worker.pump.log.tail[-TRACEBACK_CHARS:]
        return ended_now(end, error, started_at=started_at, returncode=code, traceback=tail)


class _Worker:
    """A worker's process and the socket to it."""

    def __init__(
        self,
        process: asyncio.subprocess.Process,
        streams: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        pump: Pump,
        family: Family,
    ) -> None:
        self.pump = pump
        self.exited = asyncio.ensure_future(process.wait())
        self._reader, self._writer = streams
        self._family = family

    @classmethod
    async def start(cls, folder: Path, *, marker: str) -> _Worker:
        """Start a worker.

        Raises:
            OSError: It could not be started.
        """
        folder.mkdir(parents=True, exist_ok=True)
        family_tag = f"{marker}/worker.{uuid.uuid4().hex}"
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            log = folder.with_name(f"{folder.name}.log")
            pump = undo.enter_context(Pump(log, head_bytes=_LOG_BYTES))
            with theirs:
                # -P: what a function leaves in the folder must not be imported by the next one.
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-u", "-m", "batchgate.flow.worker"),
                    *(str(theirs.fileno()), str(os.getpid())),
                    pass_fds=(theirs.fileno(),),
                    cwd=folder,
                    env=environment(family_tag, {}),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=pump.write_end,
                    stderr=pump.write_end,
                    start_new_session=True,
                )
            pump.started()
            streams = await asyncio.open_unix_connection(sock=ours, limit=RESULT_BYTES + 1)
            undo.pop_all()
        return cls(process, streams, pump, Family(family_tag, process.pid))

    def ask(self, request: bytes) -> None:
        """Send a request. The log holds what is printed from now on."""
        self.pump.drain()
        self.pump.log.restart()
        self._writer.write(request)

    async def answer(
        self,
        lines: TypeAdapter[_L],
        request_id: str,
        *,
        stop: asyncio.Future[None],
        timeout_s: float,
    ) -> _L | End:
        """Return the next line, or how it ended without one."""
        line = asyncio.ensure_future(self._reader.readline())
        await first(line, self.exited, stop, timeout_s=timeout_s)
        if line.done():
            return _parsed(line, lines, request_id)
        line.cancel()
        if stop.done():
            return End.CANCELED
        return End.WORKER_LOST if self.exited.done() else End.TIMED_OUT

    async def exit_code(self) -> int | None:
        """Return its exit code, `None` when it is still there a second later."""
        # The socket closes a moment before the exit code is known.
        await first(self.exited, timeout_s=1.0)
        return self.exited.result() if self.exited.done() else None

    async def end(self, *, grace_s: float) -> None:
        """End it and what it started.

        Raises:
            FlowError: It cannot be ended.
        """
        try:
            await self._family.end(grace_s=grace_s)
            await self.exited
        finally:
            self.exited.cancel()
            self._writer.close()
            self.pump.close()


def _request(request_id: str, task: FunctionTask) -> bytes:
    request = {
        "id": request_id,
        "folder": None if task.folder is None else str(task.folder),
        "use": task.use,
        "value": task.value,
        "args": dict(task.args),
        "env": dict(task.env),
    }
    return json.dumps(request).encode() + b"\n"


def _parsed(
    line: asyncio.Future[bytes], lines: TypeAdapter[_L], request_id: str
) -> _L | Literal[End.WORKER_LOST]:
    try:
        answer = lines.validate_python(json.loads(line.result()))
    except (OSError, ValueError, RecursionError):  # closed, too long, or no line of an answer
        return End.WORKER_LOST
    return answer if answer.id == request_id else End.WORKER_LOST


def _task_end(answer: _Ended) -> TaskEnd:
    return TaskEnd(
        End(answer.end),
        value=answer.value,
        error=one_line(answer.error),
        traceback=answer.traceback[-TRACEBACK_CHARS:],
        started_at=answer.started_at,
        ended_at=answer.ended_at,
        host=socket.gethostname(),
    )
