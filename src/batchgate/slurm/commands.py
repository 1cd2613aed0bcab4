"""The one place that runs a Slurm program.

Each call is an argument list without a shell, has a deadline and an output of bounded size, and is
asked in the C locale with times in UTC. What comes back is always an `Answer`: a program that is
missing, hangs or talks without end has no exit code, and nothing may be concluded from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO, Final, Protocol

from ..errors import FlowError

DEADLINE_S: Final = 20.0
"""Seconds for one call. Slurm 22.05 gives up on its controller after 9 s by itself."""
MAX_BYTES: Final = 4 << 20
"""Most that is taken of what a call prints."""
MAX_ERROR_CHARS: Final = 500

QUERY: Final = {"LC_ALL": "C", "TZ": "UTC0", "SLURM_TIME_FORMAT": "standard"}
"""Variables under which questions are asked, so that times are ISO 8601 in UTC."""

# Slurm 22.05 with its controller or its accounting down; the exit code is 1, as for a refusal.
_NO_CONTACT = re.compile(
    "unable to contact|timed out|connection refused|connection failure|zero bytes|"
    "problem talking to the database|authentication credential",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Answer:
    """What a Slurm program said.

    Attributes:
        code: Its exit code; `None` when it gave none that says anything of what was asked.
        out: What it printed.
        err: What it complained of, or why there is no exit code.
    """

    code: int | None
    out: str = ""
    err: str = ""

    @property
    def ok(self) -> bool:
        """Whether it did what it was asked."""
        return self.code == 0

    @property
    def error(self) -> str:
        """One printable line for a message."""
        text = self.err.strip() or self.out.strip() or f"exit code {self.code}"
        printable = "".join(char if char.isprintable() else " " for char in text)
        return " ".join(printable.split())[:MAX_ERROR_CHARS]


class Run(Protocol):
    """How a Slurm program is run; tests hand in their own."""

    async def __call__(
        self, argv: Sequence[str], /, *, env: Mapping[str, str] | None = None
    ) -> Answer:
        """Run a program; with `env` in exactly that environment, else as a question."""
        ...


async def run(
    argv: Sequence[str],
    /,
    *,
    env: Mapping[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> Answer:
    """Run a Slurm program to its end or its deadline. Never raises but for a cancellation.

    Args:
        argv: Program and arguments.
        env: Its environment; by default ours with `QUERY`.
        deadline_s: Seconds after which it is killed.
    """
    async with contextlib.AsyncExitStack() as pipes:
        try:
            out, out_end = await pipes.enter_async_context(_pipe())
            err, err_end = await pipes.enter_async_context(_pipe())
            with out_end, err_end:
                process = await asyncio.create_subprocess_exec(
                    *argv,
                    env={**os.environ, **QUERY} if env is None else env,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=out_end,
                    stderr=err_end,
                    start_new_session=True,
                )
        except (OSError, ValueError) as exc:  # ValueError: a NUL in an argument
            return Answer(None, err=f"{argv[0]} cannot be run: {exc}")
        try:
            async with asyncio.timeout(deadline_s):
                said, complaint = await asyncio.gather(_text(out), _text(err))
                code = await process.wait()
                return Answer(None if code and no_contact(complaint) else code, said, complaint)
        except TimeoutError:
            return Answer(None, err=f"{argv[0]} gave no answer in {deadline_s:g} s")
        except _TooLongError:
            return Answer(None, err=f"{argv[0]} printed more than {MAX_BYTES} bytes")
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


def no_contact(error: str) -> bool:
    """Whether a program's complaint is that Slurm cannot be reached, and so no refusal."""
    return _NO_CONTACT.search(error) is not None


async def ask(*argv: str, run: Run = run) -> str:
    """Run a Slurm program where nothing goes on without its answer, and return what it prints.

    Raises:
        FlowError: It cannot be run, refuses, or does not answer in time.
    """
    answer = await run(argv)
    if not answer.ok:
        raise FlowError(f"{argv[0]} failed: {answer.error}")
    return answer.out


@contextlib.asynccontextmanager
async def _pipe() -> AsyncIterator[tuple[asyncio.StreamReader, BinaryIO]]:
    """Give a pipe: what is read from it, and the end that a program is given.

    Not asyncio's own pipes. With these `process.wait()` waits for their end too, and that never
    comes when more was printed than is read, or while a child of the program holds them (CPython
    3.11 to 3.13).
    """
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader()
    with os.fdopen(theirs, "wb", buffering=0) as write_end:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", buffering=0)
        )
        try:
            yield reader, write_end
        finally:
            transport.close()


class _TooLongError(Exception):
    """A program printed more than is taken."""


async def _text(stream: asyncio.StreamReader) -> str:
    try:
        await stream.readexactly(MAX_BYTES)
    except asyncio.IncompleteReadError as end:
        return end.partial.decode("utf-8", "replace")
    raise _TooLongError
