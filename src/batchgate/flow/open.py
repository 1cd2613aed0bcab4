"""Opening and closing the execution side of a run."""

from __future__ import annotations

import contextlib
import importlib.util
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..errors import ConfigError, FlowError
from ..job import Flow, JobsOn, VerifiersOn
from .processes import check_marker
from .waiting import finished

if TYPE_CHECKING:
    from .backend import Jobs
    from .pool import Pool


@contextlib.asynccontextmanager
async def open_flow(
    *,
    workers: int,
    jobs: int,
    work_dir: Path,
    marker: str,
    grace_s: float = 5.0,
    jobs_on: JobsOn = "local",
    verifiers_on: VerifiersOn = "local",
    dask_scheduler: str | None = None,
    pilot_resource: str = "local.localhost",
) -> AsyncIterator[Flow]:
    """Open the execution side. On leaving, every task is ended and no process is left.

    Args:
        workers: Function tasks at once, each in a warm process; at least 1.
        jobs: Jobs at once; at least 1.
        work_dir: Folder for what workers print and leave; one for each life of a run.
        marker: Names the run in the environment of every process, so that `find_orphans` finds
            what a killed runner left; the same in each life of a run, and no other run's.
        grace_s: Seconds between SIGTERM and SIGKILL, when a task is ended.
        jobs_on: Where jobs run.
        verifiers_on: Where functions run.
        dask_scheduler: For `verifiers_on="dask"`: address of the scheduler, or its scheduler file.
        pilot_resource: For `jobs_on="radical_pilot"`: RADICAL-Pilot's label of this machine.

    Raises:
        ConfigError: An argument is out of its range, or what a backend needs is missing.
        FlowError: The folder cannot be made, or a backend does not answer; on leaving, something
            could not be ended.
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
    pool = await _pool(
        verifiers_on,
        workers=workers,
        folder=folder,
        marker=marker,
        grace_s=grace_s,
        scheduler=dask_scheduler,
    )
    try:
        place = await _place(
            jobs_on, folder=folder, marker=marker, grace_s=grace_s, resource=pilot_resource
        )
    except BaseException:
        await finished(pool.close())
        raise
    engine = await Engine.of(Backend(functions=pool, jobs=place), work_dir=folder)
    try:
        yield AsyncFlow(engine, jobs=jobs)
    finally:
        await finished(engine.close())


async def _pool(
    verifiers_on: VerifiersOn,
    *,
    workers: int,
    folder: Path,
    marker: str,
    grace_s: float,
    scheduler: str | None,
) -> Pool:
    if verifiers_on == "dask":
        if importlib.util.find_spec("distributed") is None:
            raise ConfigError(
                "verifiers_on is 'dask' and distributed is not installed; "
                "install batchgate with its extra `dask`"
            )
        from .dask import open_dask

        return await open_dask(
            workers=workers, folder=folder, marker=marker, grace_s=grace_s, scheduler=scheduler
        )
    from .pool import Pool
    from .slot import Slot

    return Pool(
        Slot(folder / f"worker-{number}", marker=marker, grace_s=grace_s)
        for number in range(workers)
    )


async def _place(
    jobs_on: JobsOn, *, folder: Path, marker: str, grace_s: float, resource: str
) -> Jobs:
    match jobs_on:
        case "srun":
            from .srun import Steps

            return await Steps.open(marker=marker, grace_s=grace_s)
        case "radical_pilot":
            from .pilot import Pilot

            return await Pilot.open(
                folder=folder, marker=marker, grace_s=grace_s, resource=resource
            )
        case _:
            from .process import Processes

            return Processes(marker, grace_s)
