"""A job as a process of its own: started, bounded in time and output, and ended as a whole.

However a job ends, that is a value. When `run_process` returns, no process of the job is left:
what a program leaves running behind it is ended too.

`argv` is run as it is: `JobSpec.ranks` and the like are for those who launch elsewhere.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass

from ..errors import FlowError
from ..job import End, JobSpec, TaskEnd
from .ends import BY_RUNNER, by_itself, ended_now, in_words, not_started, with_last_line
from .output import Pump
from .processes import Family, environment
from .waiting import first


@dataclass(frozen=True, slots=True)
class Processes:
    """Runs jobs on this node.

    Attributes:
        marker: Marks their processes, together with the job's id.
        grace_s: Seconds between SIGTERM and SIGKILL.
    """

    marker: str
    grace_s: float

    async def run(self, spec: JobSpec, *, stop: asyncio.Future[None]) -> TaskEnd:
        """Run a job to its end."""
        return await run_process(spec, marker=self.marker, stop=stop, grace_s=self.grace_s)

    async def close(self) -> None:
        """Do nothing: no process outlives its job."""


async def run_process(
    spec: JobSpec, *, marker: str, stop: asyncio.Future[None], grace_s: float, suffix: str = ""
) -> TaskEnd:
    """Run a job to its end.

    Args:
        spec: The job. Its folder must exist; `stdout` and `stderr` are made anew in it.
        marker: Marks its processes, together with the job's id.
        stop: Ends the job once it is done.
        grace_s: Seconds between SIGTERM and SIGKILL.
        suffix: Of the names of `stdout` and `stderr`, for one rank of several.
    """
    if not spec.argv:
        return not_started("argv is empty, must name a program")
    tag = f"{marker}/{spec.id}"
    with contextlib.ExitStack() as stack:
        try:
            stdout = stack.enter_context(Pump(spec.folder / f"stdout{suffix}"))
            stderr = stack.enter_context(Pump(spec.folder / f"stderr{suffix}"))
            process = await _start(spec, tag, stdout, stderr)
        except (OSError, ValueError) as exc:  # ValueError: a NUL byte in argv or env
            return not_started(f"cannot start {spec.argv[0]}: {exc}")
        end = await _watch(process, spec, Family(tag, process.pid), stop, grace_s)
        stderr.drain()
        return with_last_line(end, stderr.log.tail)


async def _start(spec: JobSpec, tag: str, stdout: Pump, stderr: Pump) -> asyncio.subprocess.Process:
    try:
        return await asyncio.create_subprocess_exec(
            *spec.argv,
            cwd=spec.folder,
            env=environment(tag, spec.env),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdout.write_end,
            stderr=stderr.write_end,
            start_new_session=True,
        )
    finally:
        stdout.started()
        stderr.started()


async def _watch(
    process: asyncio.subprocess.Process,
    spec: JobSpec,
    family: Family,
    stop: asyncio.Future[None],
    grace_s: float,
) -> TaskEnd:
    started_at = time.time()
    exited = asyncio.ensure_future(process.wait())
    try:
        await first(exited, stop, timeout_s=spec.walltime_s)
        end, error = _why(exited, stop, spec.walltime_s)
        await family.end(grace_s=grace_s)
        await exited
    except FlowError as exc:
        end, error = End.UNKNOWN, str(exc)
    except asyncio.CancelledError:  # the event loop is going down under us
        family.kill()
        raise
    finally:
        exited.cancel()
    return ended_now(end, error, started_at=started_at, returncode=process.returncode)


def _why(
    exited: asyncio.Future[int], stop: asyncio.Future[None], walltime_s: float
) -> tuple[End, str]:
    if exited.done():
        end = by_itself(exited.result())
        return end, "" if end is End.COMPLETED else in_words(exited.result())
    if stop.done():
        return End.CANCELED, BY_RUNNER
    return End.TIMED_OUT, f"ended after its walltime of {walltime_s:g} s"
