"""What a Slurm job is billed: nodes held times seconds held, over all its lives.

Slurm keeps a row for each life of a requeued job and for each size of one that lost nodes. Without
`-D` its `sacct` shows the last of them only (Slurm 22.05: 0.0100 instead of 0.0189 node-hours).
One thing it cannot show: a life that follows a lost node has no row of its own in Slurm 22.05, and
is counted with the nodes of the one before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from .commands import Run, run
from .fields import at_of, count_of

_COLUMNS = "Start,ElapsedRaw,AllocNodes,State"
_WINDOW_S = 365 * 86400.0
"""How far back rows are looked for. Job ids begin again at 1 some day, so there must be a bound."""


@dataclass(frozen=True, slots=True)
class Row:
    """A time in which a job held the same nodes.

    Attributes:
        started_at: Its start, epoch seconds; `None` when the job never started.
        elapsed_s: Seconds so far.
        nodes: Nodes held.
        state: How it ended: `COMPLETED`, `REQUEUED`, `RESIZING`, `NODE_FAIL`, ...; or `RUNNING`.
    """

    started_at: float | None
    elapsed_s: int
    nodes: int
    state: str


@dataclass(frozen=True, slots=True)
class Bill:
    """All rows of a job, oldest first.

    Attributes:
        rows: At least one.
    """

    rows: tuple[Row, ...]

    @property
    def node_s(self) -> int:
        """Node-seconds so far; 3,600 of them are a node-hour."""
        return sum(row.elapsed_s * row.nodes for row in self.rows)


async def billed(
    job_id: str, *, run: Run = run, clock: Callable[[], float] = time.time
) -> Bill | None:
    """Return what a job has been billed so far.

    Returns:
        `None` when nobody knows: accounting is off or does not answer, or has no row yet.
    """
    since = datetime.fromtimestamp(clock() - _WINDOW_S, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    answer = await run(["sacct", "-D", "-X", "-n", "-P", "-j", job_id, "-S", since, "-o", _COLUMNS])
    rows = tuple(map(_row, answer.out.splitlines())) if answer.ok else ()
    return Bill(rows) if rows else None


def _row(line: str) -> Row:
    start, elapsed, nodes, state = (*line.split("|"), "", "", "", "")[:4]
    return Row(at_of(start), count_of(elapsed), count_of(nodes), (state.split() or [""])[0])
