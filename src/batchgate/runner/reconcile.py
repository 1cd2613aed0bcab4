"""What became of the jobs of a runner that died: asked of the disk before anything is launched.

A job's result file is the only proof. Where there is one the job is adopted and never run again;
where there is none its processes have been ended by the time this is called, so it is certainly
gone, and its lost hours are charged.
"""

from __future__ import annotations

from ..job import End, TaskEnd
from .launch import Launcher


async def reconcile(launcher: Launcher) -> None:
    """Settle every job that the ledger left open, and judge every result not yet judged.

    Its charge is an upper bound: from its plan to the last thing its runner wrote, at most its
    walltime, unless its result says when it ended.
    """
    state = launcher.recorder.state
    for job in state.running:
        planned_at, path = job.planned_at, launcher.result_path(job.plan)
        if path.is_file():
            end = TaskEnd(End.COMPLETED, started_at=planned_at, ended_at=path.stat().st_mtime)
            launcher.settle(job.plan, end, adopted=True)
            continue
        last_seen_at = min(state.last_life_ended_at, planned_at + job.plan.walltime_s)
        end = TaskEnd(
            End.UNKNOWN,
            error="its runner died, and it left no result",
            started_at=planned_at,
            ended_at=max(planned_at, last_seen_at),
        )
        launcher.settle(job.plan, end)
    for job in state.unjudged:
        await launcher.judge(job.plan)
    await launcher.recorder.commit()
