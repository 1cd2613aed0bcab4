"""What a person sees while a campaign runs: a live table on a terminal, lines everywhere else.

The log file gets the same lines whatever the terminal is, so that a batch job's progress can be
followed from a login node with `tail -f`.
"""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from ..events import AllocationSeen, Entry
from ..state import State
from .lines import line

RECENT = 8
"""Lines shown under the live table."""


class Progress:
    """Shows a run's events as they happen. Use it as a context manager.

    Args:
        log: File that gets every line; appended to over the lives of a run.
        console: Where a person looks.
        quiet: Whether only the log file is written.
        clock: Seconds since the epoch.
    """

    def __init__(
        self,
        log: Path,
        *,
        console: Console,
        quiet: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._log_path = log
        self._console = console
        self._quiet = quiet
        self._clock = clock
        self._recent: deque[str] = deque(maxlen=RECENT)
        self._state = State()
        self._note = ""
        self._file: TextIO | None = None
        self._live: Live | None = None

    def __enter__(self) -> Self:
        with contextlib.suppress(
            OSError
        ):  # a directory that takes no log is the ledger's to report
            self._file = self._log_path.open("a", encoding="utf-8", errors="backslashreplace")
        if self._console.is_terminal and not self._quiet:
            self._live = Live(
                get_renderable=self._render, console=self._console, refresh_per_second=2
            )
            self._live.start()
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def observe(self, entry: Entry, state: State) -> None:
        """Take an event that was written. Never raises: a full disk is the ledger's to report."""
        self._state = state
        if (text := line(entry.event, state)) is not None:
            self._write(text, at=entry.at)

    def say(self, text: str) -> None:
        """Show a line that is no event, such as a server's start-up."""
        self._note = text
        self._write(text, at=self._clock())

    def _write(self, text: str, *, at: float) -> None:
        stamp = time.strftime("%H:%M:%S", time.localtime(at))
        self._recent.append(f"{stamp}  {text}")
        if self._file is not None:
            try:
                self._file.write(f"{time.strftime('%Y-%m-%dT')}{stamp}  {text}\n")
                self._file.flush()
            except OSError:
                self._file = None
        if self._live is None and not self._quiet:
            self._console.print(f"{stamp}  {text}", markup=False, highlight=False, soft_wrap=True)

    def _render(self) -> Group:
        table = Table.grid(padding=(0, 2))
        table.add_column(style="dim", no_wrap=True)
        table.add_column()
        for name, value in rows(self._state, self._clock()):
            table.add_row(name, escape(value))
        lines = [Text(text, overflow="ellipsis", no_wrap=True) for text in self._recent]
        return Group(table, Text(""), *lines)


def rows(state: State, now: float) -> list[tuple[str, str]]:
    """Return where a run stands, as (name, value).

    Args:
        state: The run.
        now: Seconds since the epoch.
    """
    spec = state.spec
    if spec is None:
        return [("campaign", "starting")]
    disposed = "  ".join(f"{count} {name}" for name, count in sorted(state.dispositions.items()))
    deciding = ", ".join(f"D{d.number}.{max(d.spent, 1)}" for d in state.open) or "-"
    running = ", ".join(job.plan.job for job in state.running) or "-"
    parked = ", ".join(state.parked)
    return [
        ("campaign", f"{spec.campaign.name}: {spec.campaign.title}"),
        *([("allocation", _allocation(state.allocation, now))] if state.allocation else []),
        ("deciding", deciding),
        ("decided", disposed or "none yet"),
        ("running", f"{running}   ({len(state.ready)} waiting)"),
        ("best", best(state)),
        (
            "node-hours",
            (
                f"{state.charged_node_h:.4g} charged, {state.reserved_node_h:.4g} reserved "
                f"of {state.granted_node_h:g}"
            ),
        ),
        ("left", _left(state, now)),
        *([("parked", f"{parked}: see `batchgate parked`")] if parked else []),
    ]


def _allocation(seen: AllocationSeen, now: float) -> str:
    job = f"Slurm job {seen.job_id}, " if seen.job_id else ""
    again = f"requeue {seen.restart_count}, " if seen.restart_count else ""
    end = "" if seen.ends_at is None else f", {_span(max(0.0, seen.ends_at - now))} left"
    return f"{job}{again}{len(seen.nodes)} node{'s' * (len(seen.nodes) > 1)}{end}"


def best(state: State) -> str:
    """Return the best result so far, in words."""
    if state.spec is None or state.best is None:
        return "none yet"
    name, _ = state.spec.objective
    values = state.jobs[state.best].values or {}
    return f"{name} = {values[name]:.6g}  (job {state.best})"


def _left(state: State, now: float) -> str:
    assert state.spec is not None
    stop, parts = state.spec.stop, []
    elapsed_s = state.wall_s + now - state.updated_at
    if stop.jobs is not None:
        parts.append(f"{max(0, stop.jobs - state.evaluated)} of {stop.jobs} jobs")
        if state.evaluated:
            left_s = (stop.jobs - state.evaluated) * elapsed_s / state.evaluated
            parts.append(f"about {_span(max(0.0, left_s))}")
    if stop.wall_s is not None:
        parts.append(f"at most {_span(max(0.0, stop.wall_s - elapsed_s))}")
    return ", ".join(parts) or f"{state.free_node_h:.4g} node-hours"


def _span(seconds: float) -> str:
    hours, rest = divmod(round(seconds), 3600)
    minutes, seconds = divmod(rest, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {seconds:02d} s"
