"""A job as a step of the Slurm allocation that the runner is in.

What is known of a step comes from `srun -v`, whose own words have a channel apart from what the
job prints, so that no simulation can speak for it. Its exit code says nothing: Slurm 22.05 returns
0 when the step's node died. So a job ended by itself only when Slurm told how each of its processes
ended; any other end is `UNKNOWN`.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import re
import shutil
import time
from dataclasses import dataclass, field, replace
from typing import Self

from ..errors import ConfigError, FlowError
from ..job import End, JobSpec, TaskEnd
from ..slurm import (
    Step,
    down_nodes,
    end_steps,
    find_steps,
    in_allocation,
    memory_per_cpu_mb,
    no_contact,
)
from .ends import BY_RUNNER, by_itself, ended_now, in_words, not_started, with_last_line
from .output import Pump, one_line
from .processes import Family, environment
from .waiting import first

PROGRAMS = ("srun", "squeue", "scancel", "scontrol", "sinfo")
_STRAGGLERS_S = 10.0
"""Seconds for Slurm to end a job's other ranks when one failed. It misses one that starts just then
(22.05), which would hold its nodes until the walltime."""
_RETRY_S = 2.0
"""Pause before a job is launched again that Slurm could not be asked to launch."""
_LAUNCHING = re.compile(r"launching StepId=(\S+) on host (\S+), ")
_TASKS_ENDED = re.compile(
    r"task exit notification for (\d+) tasks? of \S+ \(status=0x([0-9a-f]+)\)"
)
_NODE_DIED = re.compile(r"\bnode fail", re.IGNORECASE)
_COMPLAINT = re.compile(r"srun: (?:error|fatal): (.*)")
_NO_PROGRAM = re.compile(r"slurmstepd\S*: error: execve\(\): (.*)")


def _future() -> asyncio.Future[None]:
    return asyncio.get_running_loop().create_future()


@dataclass(slots=True, eq=False)
class Account:
    """What `srun` said of a step so far.

    Attributes:
        launched: Done when its processes are being started.
        failed: Done when one of them has failed.
        hosts: Nodes it runs on.
        started_at: When it was launched, seconds since the epoch; 0.0 before.
        codes: How its processes ended: exit codes, or negative signal numbers.
        node_died: Whether a node of it died.
        complaint: The last error.
    """

    launched: asyncio.Future[None] = field(default_factory=_future)
    failed: asyncio.Future[None] = field(default_factory=_future)
    hosts: list[str] = field(default_factory=list)
    started_at: float = 0.0
    codes: list[int] = field(default_factory=list)
    node_died: bool = False
    complaint: str = ""

    def hear(self, line: str) -> None:
        """Take a line that `srun` printed."""
        if found := _LAUNCHING.search(line):
            self.hosts.append(found[2])
            if not self.launched.done():
                self.started_at = time.time()
                self.launched.set_result(None)
        elif found := _TASKS_ENDED.search(line):
            code = os.waitstatus_to_exitcode(int(found[2], 16))
            self.codes.extend([code] * int(found[1]))
            if code and not self.failed.done():
                self.failed.set_result(None)
        elif found := _COMPLAINT.search(line):
            self.complaint = found[1].strip()
            self.node_died |= bool(_NODE_DIED.search(line))

    def code(self, processes: int) -> int | None:
        """Return the first code that is not 0; `None` when not all processes are known to end."""
        if self.node_died or len(self.codes) < processes:
            return None
        return next((code for code in self.codes if code), 0)


@dataclass(frozen=True, slots=True)
class Steps:
    """Runs jobs as Slurm steps.

    Attributes:
        marker: Names the steps, together with the job's id.
        grace_s: Seconds between SIGTERM and `scancel`.
        memory_per_cpu_mb: What a step gets of the memory for each of its CPUs; `None` leaves it to
            Slurm. Without it the first step would hold all of a node's.
        dead: Nodes that died under a job.
    """

    marker: str
    grace_s: float
    memory_per_cpu_mb: int | None
    dead: set[str] = field(default_factory=set)

    @classmethod
    async def open(cls, *, marker: str, grace_s: float) -> Self:
        """Look at the allocation.

        Raises:
            ConfigError: This is no allocation, or Slurm's commands are not there.
            FlowError: Slurm does not answer.
        """
        if not in_allocation():
            raise ConfigError(
                "jobs_on is 'srun' and SLURM_JOB_ID is not set: "
                "run it inside an allocation (sbatch or salloc), or with jobs_on = 'local'"
            )
        if missing := [name for name in PROGRAMS if shutil.which(name) is None]:
            raise ConfigError(
                f"jobs_on is 'srun' and {', '.join(missing)} is not on the path; load Slurm's module"
            )
        return cls(marker, grace_s, await memory_per_cpu_mb())

    async def run(self, spec: JobSpec, *, stop: asyncio.Future[None]) -> TaskEnd:
        """Run a job as a step, to its end. Its time counts from when Slurm launches it.

        While Slurm does not answer, as when its controller starts anew, the job waits.
        """
        if not spec.argv:
            return not_started("argv is empty, must name a program")
        while True:
            account = Account()
            end = await self._run(spec, account, stop)
            if end.end is not End.NOT_STARTED or not no_contact(account.complaint):
                return end
            await first(stop, timeout_s=_RETRY_S)
            if stop.done():
                return ended_now(End.CANCELED, BY_RUNNER, started_at=0.0)

    async def _run(self, spec: JobSpec, account: Account, stop: asyncio.Future[None]) -> TaskEnd:
        tag = f"{self.marker}/{spec.id}"
        with contextlib.ExitStack() as stack:
            try:
                stdout = stack.enter_context(Pump(spec.folder / "stdout"))
                stderr = stack.enter_context(Pump(spec.folder / "stderr"))
                process = await self._start(spec, tag, stdout, stderr)
            except (OSError, ValueError) as exc:  # ValueError: a NUL byte in argv or env
                return not_started(f"cannot start {spec.argv[0]}: {exc}")
            end = await self._watch(process, spec, account, Family(tag, process.pid), stop)
            stderr.drain()
            return _explained(end, stderr.log.tail, account)

    async def close(self) -> None:
        """End every step that is still there.

        Raises:
            FlowError: One cannot be ended.
        """
        await end_steps(lambda: find_steps(self.marker), grace_s=0)

    def argv(self, spec: JobSpec, stdout: int, stderr: int) -> tuple[str, ...]:
        """Return the `srun` line of a job.

        Args:
            spec: The job.
            stdout: Descriptor for what it prints; likewise `stderr`.
            stderr: See `stdout`.
        """
        memory = self.memory_per_cpu_mb
        return (
            # Slurm 22.05 counts the steps of a dead node, for ever, against the CPUs of those that
            # live: a step of its own CPUs would wait without end.
            *("srun", "--verbose", "--overlap" if self.dead else "--exact"),
            *("--export=ALL", "--input=none"),
            *("--kill-on-bad-exit=1", f"--job-name={self.marker}/{spec.id}"),
            *(f"--output=/dev/fd/{stdout}", f"--error=/dev/fd/{stderr}"),
            *(f"--nodes={math.ceil(spec.nodes)}", f"--ntasks={spec.ranks}"),
            f"--cpus-per-task={spec.cores_per_rank}",
            f"--gpus-per-task={spec.gpus_per_rank}" if spec.gpus_per_rank else "--gres=none",
            *((f"--mem-per-cpu={memory}M",) if memory else ()),
            *("--", *spec.argv),
        )

    async def _start(
        self, spec: JobSpec, tag: str, stdout: Pump, stderr: Pump
    ) -> asyncio.subprocess.Process:
        variables = environment(tag, spec.env)
        # The allocation's would contradict ours: srun takes one way to ask for memory only.
        given = {k: v for k, v in variables.items() if not k.startswith("SLURM_MEM_PER_")}
        try:
            return await asyncio.create_subprocess_exec(
                *self.argv(spec, stdout.write_end, stderr.write_end),
                pass_fds=(stdout.write_end, stderr.write_end),
                cwd=spec.folder,
                env=given,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        finally:
            stdout.started()
            stderr.started()

    async def _watch(
        self,
        process: asyncio.subprocess.Process,
        spec: JobSpec,
        account: Account,
        family: Family,
        stop: asyncio.Future[None],
    ) -> TaskEnd:
        exited = asyncio.ensure_future(_heard(process, account))
        try:
            await first(exited, account.launched, stop)
            if account.launched.done():
                await first(exited, stop, account.failed, timeout_s=spec.walltime_s)
            if account.failed.done():
                await first(exited, stop, timeout_s=_STRAGGLERS_S)
            if account.failed.done() and not exited.done() and not stop.done():
                await self._end(spec.id, family)
                await first(exited, stop)
            end, error, code = _why(exited, stop, account, spec)
            if end in {End.TIMED_OUT, End.CANCELED, End.UNKNOWN}:
                await self._end(spec.id, family)
            # Until Slurm calls a node dead, `srun` is silent, and a walltime may pass meanwhile.
            if end is End.TIMED_OUT and (died := await down_nodes() & set(account.hosts)):
                end, error = End.UNKNOWN, f"its end is not known: {', '.join(sorted(died))} is down"
                account.node_died = True
            if account.node_died:
                self.dead.update(account.hosts)
            await family.end(grace_s=0)
            await exited
        except FlowError as exc:
            end, error, code = End.UNKNOWN, str(exc), None
        except asyncio.CancelledError:  # the event loop is going down under us
            family.kill()
            raise
        finally:
            exited.cancel()
        ended = ended_now(end, error, started_at=account.started_at, returncode=code)
        return replace(ended, host=",".join(account.hosts))

    async def _end(self, job: str, family: Family) -> None:
        """End a step and its `srun`."""

        async def find() -> list[Step]:
            return [step for step in await find_steps(self.marker) if step.uid == job]

        await end_steps(find, grace_s=self.grace_s)
        await family.end(grace_s=self.grace_s)
        # One that waited for its CPUs until a moment ago may have got them.
        await end_steps(find, grace_s=0)


async def _heard(process: asyncio.subprocess.Process, account: Account) -> None:
    """Listen to `srun` until it has ended."""
    assert process.stderr is not None
    while not process.stderr.at_eof():
        try:
            line = await process.stderr.readline()
        except ValueError:  # longer than a stream holds, 64 KiB, as nothing of Slurm's is
            continue
        account.hear(line.decode("utf-8", "replace"))
    await process.wait()


def _why(
    exited: asyncio.Future[None], stop: asyncio.Future[None], account: Account, spec: JobSpec
) -> tuple[End, str, int | None]:
    code = account.code(spec.ranks)
    if code is not None:  # an `srun` that cannot reach the controller may go on all the same
        end = by_itself(code)
        return end, "" if end is End.COMPLETED else in_words(code), code
    if exited.done():
        exited.result()
        if not account.launched.done():
            return End.NOT_STARTED, f"no step: {account.complaint}", None
        return End.UNKNOWN, f"its end is not known: {account.complaint}", None
    if stop.done():
        return End.CANCELED, BY_RUNNER, None
    return End.TIMED_OUT, f"ended after its walltime of {spec.walltime_s:g} s", None


def _explained(end: TaskEnd, stderr: str, account: Account) -> TaskEnd:
    """Add why, in words."""
    if end.end is End.EXIT and (found := _NO_PROGRAM.search(stderr)):
        return replace(
            end, end=End.NOT_STARTED, exit_code=None, error=one_line(f"cannot start {found[1]}")
        )
    return with_last_line(end, stderr)
