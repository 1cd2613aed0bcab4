"""The batch script of a campaign: `#SBATCH` lines, the site's own lines, and the runner.

Nothing in it is left to a shell's imagination: what a value may hold is checked, words are quoted,
and the last line replaces the shell by the runner, so that Slurm's signals reach the runner itself.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ..errors import ConfigError

FILE: Final = "submit.sbatch"
"""Its name in the run's directory."""
SIGNAL_EARLY_S: Final = 60
"""Slurm may send its warning so many seconds before it was asked to (man sbatch, `--signal`)."""

_FLAG = re.compile(r"--([a-z][a-z0-9-]*)(?:=.*)?", re.DOTALL)
_TAKEN: Final = frozenset(
    {"array", "chdir", "dependency", "job-name", "no-requeue", "open-mode", "requeue", "signal"}
    | {"account", "nodes", "output", "partition", "time"}
    | {"help", "parsable", "test-only", "usage", "version", "wait", "wrap"}
)
"""Flags of sbatch that have an option of their own here, or would break what is relied on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobScript:
    """A campaign's batch job.

    Attributes:
        name: The job's name. Of two jobs with the same name only one runs at a time.
        command: The runner and its arguments.
        run_dir: The run's directory; gets the job's output as `slurm-ID.log`.
        work_dir: Folder in which the runner starts.
        nodes: Nodes.
        time_s: Seconds until the job is killed; Slurm rounds up to minutes.
        account: Who pays; `None` for the user's default.
        partition: Where it waits; `None` for the site's default.
        signal_s: Seconds before the end at which the runner is told by USR1. Slurm sends it up to
            60 s earlier.
        requeue: Whether it may be started again under its id.
        exclusive: Whether it gets whole nodes.
        setup: Shell lines of the site that come before the runner, `module load ...`.
        extra: Further flags of sbatch.
    """

    name: str
    command: tuple[str, ...]
    run_dir: Path
    work_dir: Path
    nodes: int = 1
    time_s: int = 4 * 3600
    account: str | None = None
    partition: str | None = None
    signal_s: int = 120
    requeue: bool = True
    exclusive: bool = True
    setup: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    def options(self) -> tuple[str, ...]:
        """Return the flags of sbatch.

        Raises:
            ConfigError: One of them cannot be said in a batch script, or is not free to choose.
        """
        log = str(self.run_dir / "slurm-%j.log").replace("%", "%%").replace("%%j.log", "%j.log")
        flags = [
            f"--job-name={self.name}",
            f"--nodes={self.nodes}",
            f"--time={time_text(self.time_s)}",
            f"--signal=B:USR1@{self.signal_s}",
            "--requeue" if self.requeue else "--no-requeue",
            # Two lives of a run would only wait for each other's lease.
            "--dependency=singleton",
            # A requeued job would else begin its log anew.
            "--open-mode=append",
            f"--output={log}",
            f"--chdir={self.work_dir}",
        ]
        flags += [f"--account={self.account}"] if self.account is not None else []
        flags += [f"--partition={self.partition}"] if self.partition is not None else []
        flags += ["--exclusive"] if self.exclusive else []
        return (*map(_sayable, flags), *map(_free, self.extra))

    def text(self) -> str:
        """Return the script.

        Raises:
            ConfigError: As `options`.
        """
        lines = [
            "#!/bin/bash",
            "# Made by `batchgate submit`. To take the run up again: sbatch this file.",
            *(f"#SBATCH {_quoted(flag)}" for flag in self.options()),
            "",
            "set -e",
            *self.setup,
            "# exec: Slurm's signals go to the script's own process, which is the runner from here.",
            f"exec {shlex.join(self.command)}",
        ]
        return "\n".join(lines) + "\n"


def time_text(time_s: int) -> str:
    """Return a span as Slurm reads it, `H:MM:SS`."""
    return f"{time_s // 3600}:{time_s // 60 % 60:02}:{time_s % 60:02}"


def _quoted(flag: str) -> str:
    return flag if re.fullmatch(r"[\w@%+=:,./-]*", flag, re.ASCII) else f'"{flag}"'


def _sayable(flag: str) -> str:
    """Refuse what sbatch would read differently in a `#SBATCH` line."""
    if not flag.isprintable() or set(flag) & set("\"'\\"):
        raise ConfigError(
            f"{flag!r} cannot be said to sbatch; use no quotes, backslashes or line breaks"
        )
    return flag


def _free(flag: str) -> str:
    """Refuse a further flag that is no long one, or that is not free to choose."""
    match = _FLAG.fullmatch(flag)
    if match is None:
        raise ConfigError(f"--sbatch {flag!r}: write a long flag of sbatch, --NAME or --NAME=VALUE")
    if match[1] in _TAKEN:
        raise ConfigError(f"--sbatch {flag}: --{match[1]} is set by batchgate submit itself")
    return _sayable(flag)
