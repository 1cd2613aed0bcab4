"""The model server: a `vllm serve` of our own under supervision, or one that runs already.

Both are started (waited for), watched and stopped in the same way. A server counts as ready, and
as alive, when it gives a real constrained answer (`Probe`). Of an own server no process is left
when `stop` returns, also when its parent was killed before.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import shutil
import signal
import socket
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

from ..errors import ConfigError, ServerError
from . import group, leftovers
from .connection import API_KEY_ENV, Connection, one_line
from .probe import Probe, wait_until_ready

logger = logging.getLogger(__name__)

_FLAGS = (
    # Named, since `auto` judges by one backend and enforces with another; without white space,
    # since a small model fills its tokens with it where a grammar lets it.
    *("--structured-outputs-config", '{"backend":"xgrammar","disable_any_whitespace":true}'),
    "--enable-request-id-headers",
    "--enable-prompt-tokens-details",
    "--disable-uvicorn-access-log",
)
_VARIABLES = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_HOST_IP": "127.0.0.1",
    # Without it the processes overwrite their environment with a title, and the mark in it.
    "SPT_NOENV": "1",
}
# Python's would lead the server's interpreter astray; a port set for all would collide.
_NOT_INHERITED = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "VLLM_PORT")
_SOCKET = "vllm.sock"
# Linux takes 107 bytes for the path of a socket; vLLM names its inner ones by UUIDs.
_MAX_FOLDER_BYTES = 107 - len("/01234567-89ab-cdef-0123-456789abcdef")
_KILL_S = 10.0
_MAX_BACKOFF_S = 60.0
_TAIL_BYTES = 4000


class ModelServer(Protocol):
    """A model server as the runner sees it."""

    @property
    def url(self) -> str:
        """Where it is asked."""
        ...

    @property
    def model(self) -> str:
        """Name under which it lists the model."""
        ...

    async def start(self) -> float:
        """Return once it is ready, with the seconds that took.

        Raises:
            ServerError: It is not ready in time, or died.
        """
        ...

    async def watch(self) -> str:
        """Return once the server must be given up, and say why."""
        ...

    async def restart(self) -> float:
        """End what is left of it and start it again, later each time.

        Raises:
            ServerError: It was started too often, or does not start.
        """
        ...

    async def stop(self) -> None:
        """End it."""
        ...


@dataclass(kw_only=True, eq=False)
class VllmServer:
    """A `vllm serve` that we start, watch and end.

    It listens on a Unix socket in a folder that only we may enter. With `port` it listens on
    loopback instead, where every user of the node can ask it.

    Attributes:
        path: Folder of the model, or a name in the Hugging Face cache.
        log: File that gets what the server prints. It also names the server: what an earlier life
            of the same run left over is found by it.
        command: Program and arguments up to the model: `(".../bin/vllm", "serve")`,
            `(python, "-m", "vllm.entrypoints.openai.api_server")`, or either within a container.
        model: Name under which the model is listed; the last part of `path` by default.
        flags: Further flags, those of `VllmEnvironment` on a CPU.
        env: Further variables.
        port: Port on loopback, 0 for a free one, `None` for a socket.
        ready_s: Seconds until it must be ready.
        grace_s: Seconds that it may take to end before it is killed.
        restarts: How often it may be started again.
        backoff_s: Seconds before the first restart, twice as many before each further one.
        look_s: Seconds between two looks at it.
        answer_s: See `Probe`.
        stall_s: See `Probe`.
        progress: Gets a line now and then while it starts.
        environ: What it inherits.
    """

    path: str
    log: Path
    command: Sequence[str] = ("vllm", "serve")
    model: str = ""
    flags: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    port: int | None = None
    ready_s: float = 900.0
    grace_s: float = 30.0
    restarts: int = 3
    backoff_s: float = 2.0
    look_s: float = 15.0
    answer_s: float = 20.0
    stall_s: float = 120.0
    progress: Callable[[str], None] = logger.info
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    url: str = field(default="", init=False)
    """Where it is asked; stays the same over restarts. Empty until it is started."""
    _starts: int = field(default=0, init=False)
    _folder: Path | None = field(default=None, init=False)
    _running: _Running | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self.model = self.model or Path(self.path).name
        self.log = self.log.resolve()

    async def start(self) -> float:
        """Start it, and return the seconds until it was ready.

        Raises:
            ConfigError: There is no such program or model, the port is taken, or there is no
                place for the socket.
            ServerError: It died, or is not ready in time; the message names the log.
        """
        _require_program(self.command, self.environ)
        _require_model(self.path)
        if left := group.marked(self._mark):
            logger.warning("ending %d processes that an earlier life left over", len(left))
            await group.kill(self._mark, within_s=_KILL_S)
        if removed := leftovers.clear(self._note, keep=self._folder):
            logger.warning("removed what an earlier server left over: %s", ", ".join(removed))
        if self._folder is None:
            loopback = None if self.port is None else _loopback(self.port)
            self._folder = _private_folder(self.environ)
            self.url = loopback or f"unix:{self._folder / _SOCKET}"
        # A server that was killed leaves its socket, and the next one cannot bind to it.
        (self._folder / _SOCKET).unlink(missing_ok=True)
        self._starts += 1
        ready = False
        try:
            self._running = running = await self._spawn()
            elapsed_s = await wait_until_ready(
                self._probe(running),
                ready_s=self.ready_s,
                alive=self._alive,
                progress=self.progress,
            )
            ready = True
            leftovers.note(self._note, group.marked(self._mark), self._folder)
            return elapsed_s
        except ServerError as exc:
            raise ServerError(f"{exc}; see {self.log}: {_tail(self.log)}") from exc
        finally:
            if not ready:
                # Killed at once: vLLM 0.32 loses a SIGTERM while it loads a model.
                await self._end(grace_s=0)

    async def watch(self) -> str:
        """Return once the server must be given up, and say why."""
        running = self._require_running()
        probe = self._probe(running)
        while True:
            await asyncio.wait({running.exited}, timeout=self.look_s)
            if running.exited.done():
                return _how_it_ended(running.exited.result())
            if problem := await probe.problem():
                return problem

    async def restart(self) -> float:
        """End what is left of it and start it again, later each time.

        Raises:
            ServerError: It was started too often, or does not start.
        """
        if self._starts > self.restarts:
            raise ServerError(f"the model server was started {self._starts} times; see {self.log}")
        await self._end(grace_s=self.grace_s)
        await asyncio.sleep(min(self.backoff_s * 2 ** (self._starts - 1), _MAX_BACKOFF_S))
        return await self.start()

    async def stop(self) -> None:
        """End it, and remove its socket. Does nothing when it is not running.

        Raises:
            ServerError: A process of it cannot be ended; the message has their numbers.
        """
        try:
            await self._end(grace_s=self.grace_s)
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)
            self._folder, self.url = None, ""
            leftovers.clear(self._note)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.stop()
            raise
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    @property
    def _mark(self) -> str:
        return str(self.log)

    @property
    def _note(self) -> Path:
        # One for each host: shared memory is the node's, and the run's directory is all nodes'.
        return self.log.with_suffix(f".{socket.gethostname()}.json")

    def _require_running(self) -> _Running:
        if self._running is None:
            raise ServerError("the model server is not running: start it first")
        return self._running

    async def _spawn(self) -> _Running:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                *self._argv(),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=descriptor,
                stderr=descriptor,
                env=self._variables(),
                start_new_session=True,
            )
        except OSError as exc:
            raise ServerError(f"{self.command[0]} cannot be started: {exc}") from exc
        finally:
            os.close(descriptor)
        return _Running(process, asyncio.create_task(process.wait()), Connection(self.url))

    def _probe(self, running: _Running) -> Probe:
        return Probe(running.connection, self.model, answer_s=self.answer_s, stall_s=self.stall_s)

    def _argv(self) -> list[str]:
        model = (self.path,) if self.command[-1] == "serve" else ("--model", self.path)
        drain_s = str(math.floor(self.grace_s / 2))
        named = ("--served-model-name", self.model, "--shutdown-timeout", drain_s)
        return [*self.command, *model, *self._bind(), *named, *_FLAGS, *self.flags]

    def _bind(self) -> tuple[str, ...]:
        scheme, _, where = self.url.partition(":")
        if scheme == "unix":
            return "--uds", where
        return "--host", "127.0.0.1", "--port", where.rpartition(":")[2]

    def _variables(self) -> dict[str, str]:
        inherited = {
            name: value
            for name, value in self.environ.items()
            if name not in _NOT_INHERITED and not name.startswith("BATCHGATE_")
        }
        # vLLM leaves empty folders and, when killed, sockets among the temporary files.
        private = {"TMPDIR": str(self._folder), group.MARK: self._mark}
        return {**inherited, **_VARIABLES, **self.env, **private}

    async def _alive(self, within_s: float) -> None:
        exited = self._require_running().exited
        await asyncio.wait({exited}, timeout=within_s)
        if exited.done():
            raise ServerError(f"the model server did not start: {_how_it_ended(exited.result())}")

    async def _end(self, *, grace_s: float) -> None:
        """Ask it to end, kill what is left after a while, and make sure that nothing is."""
        running, self._running = self._running, None
        if running is None:
            return
        session = running.process.pid
        try:
            # Asked first: an engine that was told to end frees its devices in order. Without the
            # process that can be asked, nothing ends by itself.
            if grace_s and not running.exited.done():
                running.process.terminate()
                await group.gone(self._mark, session, within_s=grace_s)
        finally:
            left = await group.kill(self._mark, session, within_s=_KILL_S)
            await running.connection.aclose()
        if left:
            raise ServerError(
                f"processes {left} of the model server cannot be ended: end them by hand"
            )
        await running.exited


@dataclass(frozen=True, slots=True)
class _Running:
    process: asyncio.subprocess.Process
    exited: asyncio.Task[int]
    connection: Connection


@dataclass(kw_only=True, eq=False)
class Endpoint:
    """A server that somebody else runs. It is asked the same questions, and left as it is.

    Attributes:
        url: `http://host:port` or `unix:/path/of/the/socket`.
        model: Name under which it lists the model.
        api_key_env: Variable that holds its key.
        ready_s: Seconds until it must answer.
        restarts: How often it may be waited for again.
        look_s: Seconds between two looks at it.
        answer_s: See `Probe`.
        stall_s: See `Probe`.
        progress: Gets a line now and then while it is waited for.
        environ: Where the key is looked up.
    """

    url: str
    model: str
    api_key_env: str = API_KEY_ENV
    ready_s: float = 300.0
    restarts: int = 3
    look_s: float = 15.0
    answer_s: float = 20.0
    stall_s: float = 120.0
    progress: Callable[[str], None] = logger.info
    environ: Mapping[str, str] = field(default_factory=lambda: dict(os.environ), repr=False)
    _starts: int = field(default=0, init=False)
    _connection: Connection | None = field(default=None, init=False)

    async def start(self) -> float:
        """Wait until it answers as it should, and return the seconds that took.

        Raises:
            ConfigError: The URL cannot be used.
            ServerError: It does not answer, or not as it should, in time.
        """
        self._starts += 1
        return await wait_until_ready(
            self._probe(), ready_s=self.ready_s, alive=asyncio.sleep, progress=self.progress
        )

    async def watch(self) -> str:
        """Return once the server must be given up, and say why."""
        probe = self._probe()
        while True:
            await asyncio.sleep(self.look_s)
            if problem := await probe.problem():
                return problem

    async def restart(self) -> float:
        """Wait for it again.

        Raises:
            ServerError: It was waited for too often, or does not answer in time.
        """
        if self._starts > self.restarts:
            raise ServerError(f"{self.url} was waited for {self._starts} times")
        return await self.start()

    async def stop(self) -> None:
        """Close our connections to it."""
        if self._connection is not None:
            await self._connection.aclose()
            self._connection = None

    def _probe(self) -> Probe:
        if self._connection is None:
            key = self.environ.get(self.api_key_env)
            self._connection = Connection(self.url, api_key=key)
        return Probe(self._connection, self.model, answer_s=self.answer_s, stall_s=self.stall_s)


def _require_program(command: Sequence[str], environ: Mapping[str, str]) -> None:
    if not command:
        raise ConfigError("the server's command is empty, must be (program, 'serve')")
    if shutil.which(command[0], path=environ.get("PATH")) is None:
        raise ConfigError(
            f"there is no program {command[0]!r}: install vLLM with `pip install batchgate[vllm]` "
            "on a GPU host, or make the CPU one with `batchgate vllm-env`"
        )


def _require_model(path: str) -> None:
    # A relative name without a dot may be one of the Hugging Face cache, which vLLM looks up.
    if path.startswith(("/", ".")) and not Path(path).exists():
        raise ConfigError(
            f"there is no model at {path}: give its folder, or make the small one with "
            "`batchgate vllm-env`"
        )


def _loopback(port: int) -> str:
    """Return the URL of a port on loopback that is free; 0 chooses one."""
    with socket.socket() as probe:
        # As the server itself binds, so that a port in TIME_WAIT counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as exc:
            raise ConfigError(f"port {port} cannot be used ({exc}): choose another, or 0") from exc
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def _private_folder(environ: Mapping[str, str]) -> Path:
    """Make a folder that only we may enter, with a name short enough for sockets in it."""
    tried = [environ.get("TMPDIR"), "/tmp", environ.get("XDG_RUNTIME_DIR"), "/dev/shm"]  # noqa: S108 - mkdtemp makes it ours alone
    for parent in filter(None, tried):
        # Clusters have long TMPDIRs.
        if len(os.fsencode(parent)) > _MAX_FOLDER_BYTES - len(f"/{leftovers.PREFIX}12345678"):
            continue
        with contextlib.suppress(OSError):
            return Path(tempfile.mkdtemp(prefix=leftovers.PREFIX, dir=parent))
    raise ConfigError(f"none of {[t for t in tried if t]} can hold a socket: set a short TMPDIR")


def _how_it_ended(code: int) -> str:
    if code >= 0:
        return f"it exited with {code}"
    hint = ", perhaps for want of memory" if code == -signal.SIGKILL else ""
    return f"it was ended by {signal.Signals(-code).name}{hint}"


def _tail(path: Path) -> str:
    """Return the last lines of a log on one line."""
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _TAIL_BYTES))
            lines = file.read().decode("utf-8", "replace").split("\n")
    except OSError:
        return "there is no log"
    said = [one_line(line) for line in lines if line.strip()]
    return " | ".join(said[-3:]) or "it said nothing"
