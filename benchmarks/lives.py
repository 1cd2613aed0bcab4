"""Lives of a runner, one after the other, each ended where it is told.

`Lives` keeps a process (`benchmarks.mortal`) that has imported everything and forks a child for
each life, which spares 2 to 3 seconds of imports. The child calls the real `batchgate run`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

LAUNCH = "launch"
"""Kind of a fate that strikes around `Flow.execute` and not at an event."""

ANY = "any"
"""Kind of a fate that counts events of every kind."""


@dataclass(frozen=True, slots=True)
class Fate:
    """When a life ends.

    Attributes:
        kind: Type of an event, `LAUNCH`, or `ANY`.
        when: `before` or `after` it; `torn`: in the middle of the event's line; `amid`: some
            milliseconds into the launched job.
        nth: Which of its kind in this life, from 1.
        share: For `torn` the share of the line that is written, from one byte at 0 to all but the
            newline at 1; for `amid` seconds.
    """

    kind: str
    when: str
    nth: int = 1
    share: float = 0.5


@dataclass(frozen=True, slots=True)
class Life:
    """What one life is to do.

    Attributes:
        argv: Arguments of `batchgate`.
        output: File for what it prints.
        memo: File for what it knew of the run in the end, see `Memo`.
        fates: What kills it, whichever comes first; none lets it live.
        kill_after_s: Seconds after which it is killed from outside.
        suspend_at: Sends itself SIGTERM at this event, counted from 1; 0 for never.
        script: Seed of a producer's answers; `None` leaves all to the surrogate.
    """

    argv: tuple[str, ...]
    output: str
    memo: str
    fates: tuple[Fate, ...] = ()
    kill_after_s: float | None = None
    suspend_at: int = 0
    script: int | None = None


@dataclass(frozen=True, slots=True)
class Memo:
    """What a life knew at its end.

    Attributes:
        entries: Lines of the ledger that its state had taken into account.
        state: `repr` of its state.
    """

    entries: int
    state: str


@dataclass(frozen=True, slots=True)
class Death:
    """How a life ended.

    Attributes:
        code: Exit code, or a negative signal number.
        struck: Kind and moment of the fate that struck.
        left: Processes that it left behind.
        hung: Whether it had to be ended because it did not end.
    """

    code: int
    struck: tuple[str, str] | None
    left: int
    hung: bool

    @property
    def killed(self) -> bool:
        """Whether it was killed as planned."""
        return self.code == -signal.SIGKILL and not self.hung


class Lives:
    """Lives one after the other, in a process that is ready for the next. A context manager."""

    def __enter__(self) -> Self:
        threads = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL")}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.mortal"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
            env={**os.environ, **threads},
        )
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        exc_traceback: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def live(self, life: Life) -> Death:
        """Let a runner live, and tell how it ended.

        Raises:
            RuntimeError: The process that forks them has died.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(dataclasses.asdict(life)) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the process of the lives ended with {self._process.wait()}")
        code, struck, left, hung = json.loads(line)
        return Death(code, tuple(struck) if struck else None, left, hung)
