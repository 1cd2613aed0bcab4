"""A job as a task of a RADICAL pilot that takes the whole allocation.

RADICAL-Pilot hangs rather than fails: it waits for ever for a pilot that died, and reports a task
whose node died as done. So the client is a process that can be killed, every wait has a bound, and
how a job ended is taken from the file that `hosted` wrote and from nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import json
import os
import re
import shutil
import socket
import sys
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from ..errors import ConfigError, FlowError
from ..job import End, JobSpec, TaskEnd
from ..slurm import end_steps, find_steps, in_allocation, memory_per_cpu_mb
from . import hosted
from .ends import BY_RUNNER, ended_now, not_started
from .output import Pump
from .processes import Family, environment
from .waiting import first

START_S = 600.0
"""Seconds until the pilot is active: RADICAL-Pilot 1.103 takes 30 to 80 s on two busy cores."""
QUEUE_S = 3600.0
"""Seconds that a job may wait for its turn in the pilot."""
_SLACK_S = 120.0
"""Seconds beyond a job's own limits until its end must be known."""
_CLOSE_S = 60.0
_FINAL = {"DONE", "FAILED", "CANCELED"}
_ACTIVE = "PMGR_ACTIVE"
_RUNNING = "AGENT_EXECUTING"
_PLAIN_PATH = re.compile(r"[A-Za-z0-9_./@+=,:-]+")
_RUNTIME_MIN = 60 * 24 * 7
"""The pilot's own limit must never come before the allocation's: its tasks would run on, unseen."""


@dataclass(slots=True, eq=False)
class _Task:
    """What the client said of a task."""

    begun: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    final: asyncio.Future[str] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    error: str = ""

    def hear(self, state: str, error: str) -> None:
        if state == _RUNNING and not self.begun.done():
            self.begun.set_result(None)
        if state in _FINAL and not self.final.done():
            self.error = error
            self.final.set_result(state)


class Pilot:
    """Runs jobs in a pilot. `open` makes one."""

    def __init__(self, folder: Path, *, marker: str, grace_s: float) -> None:
        self._folder = folder
        self._marker = marker
        self._grace_s = grace_s
        self._memory_per_cpu_mb: int | None = None
        self._tasks: dict[str, _Task] = {}
        loop = asyncio.get_running_loop()
        self._active: asyncio.Future[None] = loop.create_future()
        self._down: asyncio.Future[str] = loop.create_future()
        self._undo = contextlib.AsyncExitStack()

    @classmethod
    async def open(cls, *, folder: Path, marker: str, grace_s: float, resource: str) -> Self:
        """Start a pilot and wait until it is active.

        Args:
            folder: For the client's log, and how each job ended; every node has to see it.
            marker: Marks every process.
            grace_s: Seconds between SIGTERM and SIGKILL.
            resource: RADICAL-Pilot's label of this machine.

        Raises:
            ConfigError: What it needs is not there.
            FlowError: It did not become active.
        """
        _preflight(folder)
        pilot = cls(folder / "pilot", marker=marker, grace_s=grace_s)
        try:
            if in_allocation():
                pilot._memory_per_cpu_mb = await memory_per_cpu_mb()
            await pilot._start(resource)
            await first(pilot._active, pilot._down, timeout_s=START_S)
            if not pilot._active.done() or pilot._down.done():
                why = pilot._down.result() if pilot._down.done() else f"not within {START_S:g} s"
                raise FlowError(
                    f"the pilot on {resource} did not become active: {why}; "
                    f"see {folder / 'pilot' / 'client.log'}"
                )
        except BaseException:
            await asyncio.shield(pilot.close())
            raise
        return pilot

    async def run(self, spec: JobSpec, *, stop: asyncio.Future[None]) -> TaskEnd:
        """Run a job as a task, to its end. Its time counts from when its process starts."""
        uid = f"{self._marker}@{spec.id}@{uuid.uuid4().hex[:8]}"
        folder = self._folder / uid
        try:
            hosted.place(folder, hosted.Order(spec, self._marker, self._grace_s))
        except (OSError, ValueError) as exc:
            return not_started(f"cannot place the order of {spec.id}: {exc}")
        if self._down.done():
            return ended_now(End.UNKNOWN, f"the pilot is gone: {self._down.result()}", started_at=0)
        task = self._tasks[uid] = _Task()
        try:
            command = hosted.command(folder)
            self._ask(_description(uid, spec, command, memory_per_cpu_mb=self._memory_per_cpu_mb))
            await self._watch(uid, task, spec, stop)
            return await self._end_of(folder, task, spec, stop)
        finally:
            del self._tasks[uid]

    async def close(self) -> None:
        """End the pilot, and whatever runs of it or of its tasks.

        Raises:
            FlowError: Something cannot be ended.
        """
        await self._undo.aclose()

    async def _start(self, resource: str) -> None:
        tag = f"{self._marker}/pilot"
        self._folder.mkdir(parents=True, exist_ok=True)
        with contextlib.ExitStack() as undo:
            ours, theirs = socket.socketpair()
            undo.callback(ours.close)
            log = undo.enter_context(Pump(self._folder / "client.log"))
            with theirs:
                process = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-P", "-m", "batchgate.flow.pilot_client"),
                    *(str(theirs.fileno()), json.dumps(_pilot(resource))),
                    pass_fds=(theirs.fileno(),),
                    cwd=self._folder,
                    env=environment(tag, _variables(self._folder)),
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log.write_end,
                    stderr=log.write_end,
                    start_new_session=True,
                )
            log.started()
            reader, self._writer = await asyncio.open_unix_connection(sock=ours)
            self._undo.enter_context(undo.pop_all())
        listener = asyncio.ensure_future(self._listen(reader))
        self._undo.push_async_callback(self._end, process, Family(tag, process.pid), listener)

    async def _end(
        self, process: asyncio.subprocess.Process, family: Family, listener: asyncio.Future[None]
    ) -> None:
        exited = asyncio.ensure_future(process.wait())
        try:
            self._writer.write_eof()
            await first(exited, timeout_s=_CLOSE_S)
            if in_allocation():
                await end_steps(lambda: find_steps(self._marker), grace_s=0)
            await family.end(grace_s=self._grace_s)
            await exited
        finally:
            exited.cancel()
            listener.cancel()
            self._writer.close()

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            said = json.loads(line)
            if (state := said.get("pilot")) is not None:
                self._hear_pilot(state)
            elif (task := self._tasks.get(said["task"])) is not None:
                task.hear(said["state"], said["error"])
        self._hear_pilot("its client ended")

    def _hear_pilot(self, state: str) -> None:
        if state == _ACTIVE:
            if not self._active.done():
                self._active.set_result(None)
        elif (state in _FINAL or " " in state) and not self._down.done():
            self._down.set_result(state)

    async def _watch(
        self, uid: str, task: _Task, spec: JobSpec, stop: asyncio.Future[None]
    ) -> None:
        """Wait until a task is over, as far as the client knows."""
        over = (task.final, self._down, stop)
        await first(*over, task.begun, timeout_s=QUEUE_S)
        if task.begun.done() and not any(future.done() for future in over):
            limit_s = spec.walltime_s + 2 * self._grace_s + _SLACK_S
            await first(*over, timeout_s=limit_s)
        if task.final.done() or self._down.done():
            return
        hosted.stop(self._folder / uid)
        await first(
            task.final, self._down, timeout_s=2 * self._grace_s + 5 if task.begun.done() else 0
        )
        if not task.final.done():
            self._ask({"cancel": uid})
            await first(task.final, self._down, timeout_s=_SLACK_S)

    async def _end_of(
        self, folder: Path, task: _Task, spec: JobSpec, stop: asyncio.Future[None]
    ) -> TaskEnd:
        end = hosted.end_of(folder, ranks=spec.ranks)
        if end is not None:
            return end
        # Whatever is left of it must not run beside its successor.
        hosted.stop(folder)
        if stop.done() and not task.begun.done() and task.final.done():
            return ended_now(End.CANCELED, BY_RUNNER, started_at=0)
        if self._down.done():
            why = f"the pilot is gone: {self._down.result()}"
        elif not task.final.done():
            why = "RADICAL-Pilot does not tell its end"
        else:
            state = task.final.result()
            if state == "FAILED" and not task.begun.done():
                return not_started(f"RADICAL-Pilot did not start it: {task.error}")
            why = f"RADICAL-Pilot says {state}, and it left no word of its end"
        return ended_now(End.UNKNOWN, why, started_at=0)

    def _ask(self, request: dict[str, Any]) -> None:
        self._writer.write(json.dumps(request).encode() + b"\n")


def _description(
    uid: str, spec: JobSpec, argv: tuple[str, ...], *, memory_per_cpu_mb: int | None
) -> dict[str, Any]:
    """Return a task as rhapsody takes it; a key that RADICAL-Pilot does not know ends the pilot."""
    # RADICAL-Pilot 1.103 asks srun for this, or for all memory of a node, which has one task wait
    # for the other; for several ranks on a node it would be too little.
    mb = (memory_per_cpu_mb or 0) * spec.cores_per_rank if spec.ranks == 1 else 0
    return {
        "uid": uid,
        "executable": argv[0],
        "arguments": list(argv[1:]),
        "function": None,
        "task_backend_specific_kwargs": {
            "ranks": spec.ranks,
            "cores_per_rank": spec.cores_per_rank,
            "gpus_per_rank": spec.gpus_per_rank,
            "mem_per_rank": mb,
            # A step that says nothing takes the GPUs of its node, and the next one waits for them.
            "pre_launch": [] if spec.gpus_per_rank else ["export SLURM_STEP_GRES=none"],
        },
    }


def _pilot(resource: str) -> dict[str, Any]:
    nodes = int(os.environ.get("SLURM_JOB_NUM_NODES", "1"))
    return {"resource": resource, "nodes": nodes, "runtime": _RUNTIME_MIN, "exit_on_error": False}


def _variables(folder: Path) -> dict[str, str]:
    """Return what RADICAL-Pilot reads from the environment."""
    programs = str(Path(sys.executable).parent)
    return {
        # It makes its session's folder here, and not in the working directory.
        "PWD": str(folder),
        # Its agent starts in a login shell, which forgets PATH and takes this.
        "VIRTUAL_ENV": sys.prefix,
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", os.defpath)]),
        "RADICAL_REPORT": "FALSE",
        "RADICAL_PROFILE": "FALSE",
    }


def _preflight(folder: Path) -> None:
    """Look for what makes RADICAL-Pilot hang when it is missing.

    Raises:
        ConfigError: Something is.
    """
    for module in ("radical.pilot", "rhapsody"):
        if importlib.util.find_spec(module) is None:
            raise ConfigError(
                f"jobs_on is 'radical_pilot' and {module} is not installed; "
                "install batchgate with its extra `radical`"
            )
    programs = Path(sys.executable).parent
    if shutil.which("radical-pilot-bridge", path=str(programs)) is None:
        raise ConfigError(f"radical-pilot-bridge is not in {programs}; install radical.pilot there")
    for path in (sys.executable, str(folder)):
        if not _PLAIN_PATH.fullmatch(path):
            raise ConfigError(
                f"the path {path!r} goes through RADICAL-Pilot's shell scripts; "
                "use one of letters, digits and _ . / @ + = , : -"
            )
    if not os.access(Path.home(), os.W_OK):
        raise ConfigError(f"RADICAL-Pilot writes to {Path.home()}, which is not writable")
