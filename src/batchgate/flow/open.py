"""Opening and closing the execution side of a run."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from ..errors import ConfigError, FlowError
from ..job import Flow
from .processes import check_marker
from .waiting import finished


@contextlib.asynccontextmanager
async def open_flow(
    *, workers: int, jobs: int, work_dir: Path, marker: str, grace_s: float = 5.0
) -> AsyncIterator[Flow]:
    """Open the execution side. On leaving, every task is ended and no process is left.

    Args:
        workers: Function tasks at once, each in a warm process; at least 1.
        jobs: Jobs at once; at least 1.
        work_dir: Folder for what workers print and leave; one for each life of a run.
        marker: Names the run in the environment of every process, so that `find_orphans` finds
            what a killed runner left; the same in each life of a run, and no other run's.
        grace_s: Seconds between SIGTERM and SIGKILL, when a task is ended.

    Raises:
        ConfigError: An argument is out of its range.
        FlowError: The folder cannot be made; on leaving, a process could not be ended.
    """
    for name, number in {"workers": workers, "jobs": jobs}.items():
        if number < 1:
            raise ConfigError(f"{name} is {number}, must be at least 1")
    check_marker(marker)
    # Here and not above: it takes half a second, which a worker, importing this package, has not.
    from .backend import Backend
    from .engine import AsyncFlow, Engine

    folder = work_dir.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise FlowError(f"the workers' folder {folder} cannot be made: {exc.strerror}") from exc
    backend = Backend(workers=workers, work_dir=folder, marker=marker, grace_s=grace_s)
    engine = await Engine.of(backend, work_dir=folder)
    try:
        yield AsyncFlow(engine, jobs=jobs)
    finally:
        await finished(engine.close())
