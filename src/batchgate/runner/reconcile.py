"""What became of the jobs of a runner that died: asked of the disk before anything is launched.

A job's result file is the only proof. Where there is one the job is adopted and never run again;
where there is none and its processes have certainly ended, its lost hours are charged and it is
launched again up to its limit; where nobody can say, the campaign's policy decides.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from ..job import End, TaskEnd
from .launch import Launcher


def reconcile(launcher: Launcher, *, gone: bool) -> list[Coroutine[Any, Any, None]]:
    """Settle the jobs that the ledger left open, as far as anybody can say what became of them.

    The charge of one without a result is an upper bound: from its plan to the last thing its
    runner wrote, at most its walltime.

    Args:
        launcher: Settles and judges.
        gone: Whether every process of the earlier life is certain to have ended. If not, a job
            without a result may still be running somewhere, and `failure.lost` says what to do.

    Returns:
        What is left to be done while the run goes on: results to judge, lost jobs to wait for.
    """
    state = launcher.recorder.state
    later = []
    for job in state.running:
        planned_at, path = job.planned_at, launcher.result_path(job.plan)
        if path.is_file():
            end = TaskEnd(End.COMPLETED, started_at=planned_at, ended_at=path.stat().st_mtime)
            launcher.settle(job.plan, end, adopted=True)
            continue
        last_seen_at = min(state.last_life_ended_at, planned_at + job.plan.walltime_s)
        end = TaskEnd(
            End.ORPHANED if gone else End.UNKNOWN,
            error="its runner died, and it left no result",
            started_at=planned_at,
            ended_at=max(planned_at, last_seen_at),
        )
        if gone:
            launcher.settle(job.plan, end)
        else:
            later.append(launcher.await_lost(job.plan, end))
    return [*(launcher.judge(job.plan) for job in state.unjudged), *later]
