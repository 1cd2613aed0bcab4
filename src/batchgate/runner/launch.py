"""One job, from plan to settled result.

`JobPlanned` is on the disk, with its reservation, before anything is launched. The job's own
result file, written atomically, is the only proof that it succeeded: an exit code of 0 proves
nothing, and a result that is there counts whatever became of the process or of the runner.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opentelemetry.trace import Link

from .. import span_ids
from ..campaign import Campaign, Level, unmet
from ..carrier import environment
from ..errors import LedgerWriteError
from ..events import Chosen, JobEnded, JobPlanned, ResultAccepted, ResultParked, ResultRejected
from ..files import write_whole
from ..flow.entry import command as function_job
from ..job import End, Flow, FunctionTask, JobSpec, JobState, TaskEnd
from ..ledger import Appended
from ..plain import loads, plain
from .ends import runs_again, state_of
from .recorder import Recorder

MAX_RESULT_BYTES = 8 * 1024 * 1024
"""Largest result file that is read; a result is a handful of numbers."""

PARSE_TIMEOUT_S = 120.0
"""Seconds that a campaign's `parse` may take."""

LOOK_S = 2.0
"""Seconds between two looks for the result of a job that was lost."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A job that is written down and not launched yet.

    Attributes:
        job: The plan.
        gate: The line of the ledger that allows it.
    """

    job: JobPlanned
    gate: Appended


@dataclass(frozen=True, slots=True)
class Launcher:
    """Plans, runs and settles jobs.

    Attributes:
        campaign: Its last level says what a job is.
        recorder: Where its life is written down.
        flow: Where it runs.
        folder: The run's directory; each job gets `jobs/<id>` in it.
        lost: Jobs whose results are waited for although nobody can say what became of them.
    """

    campaign: Campaign
    recorder: Recorder
    flow: Flow
    folder: Path
    lost: set[str] = field(default_factory=set)

    @property
    def level(self) -> Level:
        """The level that spends the allocation."""
        return self.campaign.spec.job

    def plan(self, decision: int, chosen: Chosen) -> Planned | None:
        """Reserve a job's worst case and write down that it is about to be launched.

        Nothing is awaited between looking at what is left and reserving it, so that any number
        of decisions at once cannot overshoot the grant.

        Returns:
            The plan, or `None` when the node-hours that are free now are too few for it.
        """
        level, state = self.level, self.recorder.state
        if level.node_h > state.free_node_h:
            return None
        runs = state.runs.get(chosen.fingerprint, ())
        attempt = 1 + len(runs)
        planned = JobPlanned(
            job=f"d{decision:05d}-{chosen.fingerprint[:8]}-{attempt}",
            decision=decision,
            fingerprint=chosen.fingerprint,
            candidate=chosen.candidate,
            level=level.name,
            attempt=attempt,
            rerun=sum(bool(job.rejected) for job in runs),
            reserved_node_h=level.node_h,
            walltime_s=level.timeout_s,
        )
        return Planned(planned, self.recorder.record(planned))

    async def run(self, planned: Planned) -> None:
        """Launch a planned job, wait for its end, and judge its result.

        Cancelling it ends the job; the next life runs the candidate again.

        Args:
            planned: The plan.
        """
        await self.recorder.commit()
        self._prepare(planned)
        await self._run(planned.job)
        await self.recorder.commit()

    def _prepare(self, planned: Planned) -> None:
        """Make the job's folder, with its candidate and the line that allows it."""
        folder = self.job_folder(planned.job.job)
        _make(folder)
        # Before the launch and after the line is safe, so that the record cannot lose the line
        # unnoticed: `check_run` finds a job whose event is missing.
        line = planned.gate
        gate = {"segment": line.segment, "seq": line.entry.seq, "hash": line.hash}
        _write(folder / "gate.json", gate)
        inputs = self.campaign.inputs(planned.job.candidate)
        _write(folder / "candidate.json", plain(inputs))
        _write(folder / "args.json", plain(self._args(planned.job)))

    def _args(self, planned: JobPlanned) -> dict[str, Any]:
        """Return the level's settings, as changed for this rerun of a rejected result."""
        changed = self.level.again[: planned.rerun]
        return {**self.level.args, **(changed[-1] if changed else {})}

    async def _run(self, planned: JobPlanned) -> None:
        run = self.recorder.state.run
        with (
            span_ids.about(span_ids.Subject(run, planned.job)),
            span_ids.started(
                f"job {planned.level}",
                "job",
                links=[Link(span_ids.first_span(run, f"D{planned.decision}"))],
                attributes={
                    "batchgate.job": planned.job,
                    "batchgate.decision": planned.decision,
                    "batchgate.fingerprint": planned.fingerprint,
                    "batchgate.reserved_node_h": planned.reserved_node_h,
                },
            ) as span,
        ):
            try:
                end = await self.flow.execute(self._spec(planned))
            except BaseException:
                self.settle(planned, TaskEnd(End.CANCELED, error="the run was suspended"))
                raise
            span.set_attribute("batchgate.job.end", end.end)
            if end.end is End.UNKNOWN:
                await self._wait_for_result(planned)
            self.settle(planned, end)
            await self.judge(planned)

    async def await_lost(self, planned: JobPlanned, end: TaskEnd) -> None:
        """Settle a job of an earlier life of which nobody can say what became of it.

        With the policy `wait` its result may still come, and is adopted then. Cancelling it
        leaves the job as it is, for the next life to look at.
        """
        await self._wait_for_result(planned)
        self.settle(planned, end, adopted=self.result_path(planned).is_file())
        await self.judge(planned)
        await self.recorder.commit()

    async def _wait_for_result(self, planned: JobPlanned) -> None:
        failure = self.campaign.spec.failure
        if failure.lost != "wait":
            return
        self.lost.add(planned.job)
        until = time.monotonic() + failure.lost_wait_s
        while not self.result_path(planned).is_file() and time.monotonic() < until:
            await asyncio.sleep(min(LOOK_S, max(0.0, until - time.monotonic())))
        self.lost.discard(planned.job)

    def settle(self, planned: JobPlanned, end: TaskEnd, *, adopted: bool = False) -> None:
        """Turn a job's reservation into a charge."""
        found = self.result_path(planned).is_file()
        state = JobState.COMPLETED if found else state_of(end.end)
        error = end.error
        if not found and end.end is End.COMPLETED:
            error = "it exited with 0 and left no result"
        self.recorder.record(
            JobEnded(
                job=planned.job,
                state=state,
                end=end.end,
                exit_code=end.exit_code,
                signal=end.signal,
                error=error[:2000],
                started_at=end.started_at,
                ended_at=end.ended_at,
                host=end.host,
                charged_node_h=self.level.resources.nodes * end.elapsed_s / 3600,
                adopted=adopted,
                again=not found and self._again(planned, end.end),
            )
        )

    async def judge(self, planned: JobPlanned) -> None:
        """Judge the result of a job that completed: finite, converged, physical."""
        job = self.recorder.state.jobs[planned.job]
        if job.settled:
            return
        observables, reasons = await self._result(planned)
        if not reasons:
            reasons = tuple(unmet(self.level.accept, observables)) or self._unusable(observables)
        if not reasons:
            self.accept(planned, observables)
            return
        again, park = planned.rerun < len(self.level.again), self.campaign.spec.park
        if park.results and not again and not self._unusable(observables):
            self.recorder.record(
                ResultParked(
                    job=planned.job,
                    fingerprint=planned.fingerprint,
                    reasons=reasons,
                    values=plain(dict(observables)),
                    expires_at=time.time() + park.expire_s,
                )
            )
            return
        self.refuse(planned, reasons, observables, again=again)

    def accept(self, planned: JobPlanned, observables: Mapping[str, Any]) -> None:
        """Take a result for one; whether it meets the campaign's constraints is another matter."""
        values = _numbers(observables)
        feasible = not any(unmet(self.campaign.spec.constraints, values))
        self.recorder.record(
            ResultAccepted(
                job=planned.job, fingerprint=planned.fingerprint, values=values, feasible=feasible
            )
        )

    def refuse(
        self,
        planned: JobPlanned,
        reasons: tuple[str, ...],
        observables: Mapping[str, Any],
        *,
        again: bool = False,
    ) -> None:
        """Keep a result as one that is none.

        Args:
            planned: Its job.
            reasons: Why it is none.
            observables: What it said.
            again: Whether the candidate runs again with the level's changed settings.
        """
        self.recorder.record(
            ResultRejected(
                job=planned.job,
                fingerprint=planned.fingerprint,
                reasons=reasons,
                values=plain(dict(observables)),
                again=again,
            )
        )

    def job_folder(self, job: str) -> Path:
        """Return a job's own folder."""
        return self.folder / "jobs" / job

    def result_path(self, planned: JobPlanned) -> Path:
        """Return where a job leaves its result."""
        return self.job_folder(planned.job) / "result.json"

    def _again(self, planned: JobPlanned, end: End) -> bool:
        """Whether a job without a result is worth another run."""
        before = [j.end.end for j in self.recorder.state.runs[planned.fingerprint] if j.end]
        return runs_again(self.campaign.spec, end, before)

    def _spec(self, planned: JobPlanned) -> JobSpec:
        level, folder = self.level, self.job_folder(planned.job)
        resources = level.resources
        return JobSpec(
            id=planned.job,
            argv=self._argv(planned, folder),
            folder=folder,
            walltime_s=level.timeout_s,
            env={**environment(), "BATCHGATE_DECISION": str(planned.decision), **self._path()},
            nodes=resources.nodes,
            ranks=resources.ranks,
            cores_per_rank=resources.cores_per_rank,
            gpus_per_rank=resources.gpus_per_rank,
        )

    def _argv(self, planned: JobPlanned, folder: Path) -> tuple[str, ...]:
        candidate, result = folder / "candidate.json", self.result_path(planned)
        if self.level.command is not None:
            known = {
                "{candidate}": str(candidate),
                "{args}": str(folder / "args.json"),
                "{result}": str(result),
                "{python}": sys.executable,
            }
            return tuple(known.get(part, part) for part in self.level.command)
        assert self.level.use is not None
        return function_job(
            folder=self.campaign.folder,
            use=self.level.use,
            candidate=candidate,
            args=folder / "args.json",
            result=result,
        )

    def _path(self) -> dict[str, str]:
        # A campaign's command may be `python -m campaign`.
        if self.campaign.folder is None:
            return {}
        parts = [str(self.campaign.folder), os.environ.get("PYTHONPATH", "")]
        return {"PYTHONPATH": os.pathsep.join(filter(None, parts))}

    async def _result(self, planned: JobPlanned) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """Read a result; return its observables, or the reasons why it is none."""
        path = self.result_path(planned)
        try:
            size = path.stat().st_size
        except OSError as exc:
            return {}, (f"the result cannot be read: {exc.strerror}",)
        if size > MAX_RESULT_BYTES:
            return {}, (f"the result has {size} bytes, at most {MAX_RESULT_BYTES} are read",)
        if self.level.parse is None:
            return _loaded(path)
        # In a worker, because it reads what a simulation wrote, and may hang or crash on it.
        end = await self.flow.call(
            FunctionTask(
                folder=self.campaign.folder,
                use=self.level.parse,
                value=str(path),
                timeout_s=PARSE_TIMEOUT_S,
            )
        )
        if end.end is not End.COMPLETED:
            return {}, (f"parse: {end.error[:500] or end.end.value}",)
        if not isinstance(end.value, Mapping):
            return {}, (f"parse returned {type(end.value).__name__}, must be a mapping",)
        return end.value, ()

    def _unusable(self, observables: Mapping[str, Any]) -> tuple[str, ...]:
        values = _numbers(observables)
        objective, _ = self.campaign.spec.objective
        wanted = (objective, *self.campaign.spec.constraints)
        return tuple(
            f"{name} is missing or not a finite number" for name in wanted if name not in values
        )


def _loaded(path: Path) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    try:
        value = loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as exc:
        return {}, (f"the result is no JSON: {str(exc)[:200]}",)
    if not isinstance(value, Mapping):
        return {}, (f"the result is {type(value).__name__}, must be a mapping",)
    return value, ()


def _numbers(observables: Mapping[str, Any]) -> dict[str, float]:
    return {
        str(name): float(value)
        for name, value in observables.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    }


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise LedgerWriteError(f"{folder} cannot be made: {exc.strerror}") from exc


def _write(path: Path, value: Any) -> None:
    try:
        write_whole(path, json.dumps(value, allow_nan=False))
    except OSError as exc:
        raise LedgerWriteError(
            f"{path} cannot be written: {exc.strerror}; free the disk and run again"
        ) from exc
