"""A job as somebody else launches it: `python -m batchgate.flow.hosted FOLDER`, for each rank.

The folder holds the order, and gets a file with how each rank ended. So the time limit, the bounds
of what is printed and the word of the end are kept where the job runs, whatever launched it, and
whatever became of that or of the runner. A file named `stop` in the folder ends the job.

What a launcher's scripts see is this program and the folder, never the job's own arguments or
variables: RADICAL-Pilot 1.103 writes variables into a shell script between double quotes, where
`$(...)` is executed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from ..job import End, JobSpec, TaskEnd
from .process import run_process

_POLL_S = 0.2
_END = TypeAdapter(TaskEnd)


@dataclass(frozen=True, slots=True)
class Order:
    """What to run.

    Attributes:
        spec: The job.
        marker: Marks its processes.
        grace_s: Seconds between SIGTERM and SIGKILL.
    """

    spec: JobSpec
    marker: str
    grace_s: float


_ORDER = TypeAdapter(Order)


def command(folder: Path) -> tuple[str, ...]:
    """Return the argv of one rank."""
    return (sys.executable, "-P", "-m", "batchgate.flow.hosted", str(folder))


def place(folder: Path, order: Order) -> None:
    """Make the folder, with the order in it.

    Raises:
        OSError: The disk refused it.
        ValueError: An argument or a variable is no text.
    """
    folder.mkdir(parents=True)
    (folder / "order.json").write_bytes(_ORDER.dump_json(order))


def stop(folder: Path) -> None:
    """Have the job ended."""
    (folder / "stop").touch()


def end_of(folder: Path, *, ranks: int) -> TaskEnd | None:
    """Return how the job ended: as the first rank that failed did; `None` when one has not ended."""
    try:
        texts = [(folder / f"end.{rank}.json").read_bytes() for rank in range(ranks)]
        ends = [_END.validate_json(text) for text in texts]
    except (OSError, ValidationError):
        return None
    return next((end for end in ends if end.end is not End.COMPLETED), ends[0])


def main() -> None:
    """Run one rank of the job to its end, and write how it ended."""
    folder = Path(sys.argv[1])
    rank = int(os.environ.get("RP_RANK", "0"))
    end = asyncio.run(
        _run(_ORDER.validate_json((folder / "order.json").read_bytes()), folder, rank)
    )
    beside = folder / f".end.{rank}.json"
    with beside.open("wb") as file:
        file.write(_END.dump_json(end))
        file.flush()
        os.fsync(file.fileno())
    beside.replace(folder / f"end.{rank}.json")


async def _run(order: Order, folder: Path, rank: int) -> TaskEnd:
    loop = asyncio.get_running_loop()
    stopped: asyncio.Future[None] = loop.create_future()

    def end() -> None:
        if not stopped.done():
            stopped.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, end)

    async def watch() -> None:
        while not (folder / "stop").exists():
            await asyncio.sleep(_POLL_S)
        end()

    watcher = asyncio.ensure_future(watch())
    try:
        return await run_process(
            order.spec,
            marker=order.marker,
            stop=stopped,
            grace_s=order.grace_s,
            suffix=f".{rank}" if rank else "",
        )
    finally:
        watcher.cancel()


if __name__ == "__main__":
    main()
