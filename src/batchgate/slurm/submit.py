"""From a batch script to a job: what Slurm thinks of it, and its submission."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path

from ..errors import ConfigError, FlowError
from .commands import Run, run
from .fields import fields_of, seconds_of
from .script import JobScript, time_text

_KEPT = {"SLURM_CONF", "SLURM_CLUSTERS"}


async def try_out(script: JobScript, *, run: Run = run) -> str | None:
    """Ask Slurm whether it would ever start a job, without submitting it.

    Returns:
        `None` when it would, else why nobody can say.

    Raises:
        ConfigError: It would not. The message has Slurm's own words or the limit.
    """
    options = script.options()
    shown = await run(["scontrol", "-o", "show", "partition"])
    if shown.code is None:
        return shown.error
    _check_time(script, [fields_of(line) for line in shown.out.splitlines()])
    answer = await run(["sbatch", "--test-only", *options, "--wrap", "true"])
    if answer.code is None:
        return answer.error
    if not answer.ok:
        raise ConfigError(f"Slurm would not start the job: {answer.error}")
    return None


def _check_time(script: JobScript, partitions: list[dict[str, str]]) -> None:
    """Refuse a time above the partition's. `sbatch` takes it, and the job waits for ever (22.05)."""
    for partition in partitions:
        name = partition.get("PartitionName")
        default = script.partition is None and partition.get("Default") == "YES"
        limit_s = seconds_of(partition.get("MaxTime", ""))
        if (default or name == script.partition) and script.time_s > (limit_s or math.inf):
            raise ConfigError(
                f"--time is {time_text(script.time_s)}, partition {name} allows at most "
                f"{partition['MaxTime']}"
            )


async def submit(
    script: JobScript,
    path: Path,
    *,
    run: Run = run,
    environ: Mapping[str, str] = os.environ,
) -> str:
    """Submit a script that was written to a file, and return the job's id.

    The flags are said on the command line as well, where no `SBATCH_*` variable outweighs them.

    Raises:
        ConfigError: Slurm refused it.
        FlowError: Slurm did not answer; it may have taken the job all the same.
    """
    # What describes the job that we may be in ourselves is not for the new one.
    env = {k: v for k, v in environ.items() if not k.startswith("SLURM_") or k in _KEPT}
    answer = await run(["sbatch", "--parsable", *script.options(), str(path)], env=env)
    job_id = answer.out.strip().partition(";")[0]
    if answer.ok and job_id.isascii() and job_id.isdecimal():
        return job_id
    if answer.code is None:
        raise FlowError(
            f"Slurm did not answer ({answer.error}); before you submit again, look whether it has "
            f"the job: squeue --me --name {script.name}"
        )
    raise ConfigError(f"Slurm refused the job: {answer.error}")
