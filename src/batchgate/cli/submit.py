"""`batchgate submit`: a campaign as a job of Slurm, refused before it waits in vain."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import shutil
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..campaign import Campaign, load
from ..errors import ConfigError, LedgerWriteError
from ..producers import VllmServer
from ..settings import Settings, SlurmSettings, load_settings
from ..slurm import FILE, SIGNAL_EARLY_S, JobScript, time_text, try_out
from ..slurm import submit as submit_script
from .exits import reported
from .options import parse_overrides
from .run import run as run_command
from .wiring import Plan, model_server

_TIME = re.compile(r"(?:(\d{1,4})-)?(\d{1,4}):([0-5]\d):([0-5]\d)")

EXITS = """\b
Exit codes:
0  Slurm has the job
2  campaign, settings or call are wrong, or Slurm refused: nothing was submitted
4  the run directory cannot be written
6  Slurm did not answer: look whether it has the job before you submit again
"""


@click.command(epilog=EXITS)
@click.argument("campaign")
@click.argument("run_options", nargs=-1, type=click.UNPROCESSED, metavar="[-- RUN_OPTIONS...]")
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The run's directory, on a file system that every node sees. "
    "By default a new one under runs/NAME.",
)
@click.option("--nodes", type=click.IntRange(1, 100_000), help="Nodes.")
@click.option("--time", metavar="H:MM:SS", help="Time limit; also D-HH:MM:SS.")
@click.option("--account", help="Who pays.")
@click.option("--partition", help="Where the job waits.")
@click.option(
    "--signal-s",
    type=click.IntRange(10, 65_535),
    help="Seconds before the limit at which the runner stops in order.",
)
@click.option(
    "--requeue/--no-requeue",
    default=None,
    help="Whether the job starts again under its id when it is out of time or lost a node.",
)
@click.option(
    "--chain",
    type=click.IntRange(2, 100),
    help="Submit so many jobs that go on one after the other, instead of requeueing one.",
)
@click.option(
    "--sbatch",
    "extra",
    multiple=True,
    metavar="FLAG",
    help="A further flag of sbatch, --sbatch=--gpus-per-node=4. May be given several times.",
)
@click.option("--dry-run", is_flag=True, help="Show the script; write and submit nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print what was done as JSON.")
@reported
def submit(
    campaign: str,
    *,
    run_options: tuple[str, ...],
    folder: Path | None,
    chain: int | None,
    dry_run: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Submit CAMPAIGN to Slurm. What comes after `--` goes to `batchgate run`.

    The campaign, the settings and the limits of the partition are checked first, and the script
    that is submitted is kept in the run's directory.
    """
    if not dry_run and shutil.which("sbatch") is None:
        raise ConfigError("there is no sbatch here; submit from a login node, or see --dry-run")
    params = _run_params(campaign, run_options)
    settings = load_settings({k: v for k, v in params.items() if k in Settings.model_fields})
    asked = _asked(settings.slurm, flags, chained=chain is not None)
    loaded = load(campaign, overrides=parse_overrides(params["overrides"]))
    folder = _run_folder(folder, loaded, settings)
    if params["producer"] != "none":
        _check_model(Plan(loaded, folder, settings, ask_model=True))
    where = str(loaded.folder) if Path(campaign).is_dir() else campaign
    script = _script(asked, folder, _name(loaded, folder), where, run_options)
    _check_room(script, loaded, settings)
    unknown = asyncio.run(try_out(script))
    if unknown is not None:
        click.echo(
            f"batchgate: Slurm could not be asked whether it would start: {unknown}", err=True
        )
    jobs = [] if dry_run else _submitted(script, count=chain or 1)
    _tell(script, jobs, as_json=as_json)


def _run_params(campaign: str, options: tuple[str, ...]) -> dict[str, Any]:
    """Read the options of `batchgate run` as it will itself.

    Raises:
        ConfigError: They name another directory.
        click.UsageError: They are not its options.
    """
    params = run_command.make_context("batchgate run", [campaign, *options]).params
    if params["folder"] is not None:
        raise ConfigError("give --run before the --, the job's script is kept there")
    return params


def _asked(site: SlurmSettings, flags: Mapping[str, Any], *, chained: bool) -> SlurmSettings:
    """Return the site's settings with the flags that were given."""
    given = {k: v for k, v in flags.items() if v is not None}
    given["extra"] = (*site.extra, *given["extra"])
    if chained:
        if given.get("requeue"):
            raise ConfigError("--chain goes on with another job, --requeue with the same: take one")
        given["requeue"] = False
    return site.model_copy(update=given)


def _run_folder(folder: Path | None, campaign: Campaign, settings: Settings) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return (folder or settings.runs_dir / campaign.spec.campaign.name / stamp).absolute()


def _name(campaign: Campaign, folder: Path) -> str:
    """Return a name that is the same for every job of a run, and another for other runs."""
    digest = hashlib.sha256(os.fsencode(folder)).hexdigest()
    return f"batchgate-{campaign.spec.campaign.name}-{digest[:8]}"


def _check_model(plan: Plan) -> None:
    """Refuse a run that could ask no model, or whose model is not there."""
    server = model_server(plan, click.echo)
    if not isinstance(server, VllmServer):
        return
    path = Path(server.path).expanduser()
    # "owner/name" is one of the Hugging Face cache, which only the server can look up.
    if (path.is_absolute() or server.path.startswith(".")) and not path.exists():
        raise ConfigError(f"model is {server.path}, which does not exist")


def _script(
    asked: SlurmSettings, folder: Path, name: str, campaign: str, run_options: tuple[str, ...]
) -> JobScript:
    start = asked.command or (sys.executable, "-m", "batchgate")
    return JobScript(
        name=name,
        command=(*start, "run", campaign, "--run", str(folder), *run_options),
        run_dir=folder,
        work_dir=Path.cwd(),
        nodes=asked.nodes,
        time_s=_seconds(asked.time),
        account=asked.account,
        partition=asked.partition,
        signal_s=asked.signal_s,
        requeue=asked.requeue,
        exclusive=asked.exclusive,
        setup=asked.setup,
        extra=asked.extra,
    )


def _seconds(text: str) -> int:
    match = _TIME.fullmatch(text)
    if match is None or not any(map(int, filter(None, match.groups()))):
        raise ConfigError(f"time is {text!r}, must be H:MM:SS or D-HH:MM:SS, for example 4:00:00")
    days, hours, minutes, seconds = (int(number or 0) for number in match.groups())
    return ((24 * days + hours) * 60 + minutes) * 60 + seconds


def _check_room(script: JobScript, campaign: Campaign, settings: Settings) -> None:
    """Refuse an allocation in which the runner would never launch a job."""
    level = campaign.spec.job
    left_s = script.time_s - script.signal_s - SIGNAL_EARLY_S
    if level.timeout_s >= left_s:
        raise ConfigError(
            f"--time is {time_text(script.time_s)}, and the last {script.signal_s} s and up to "
            f"{SIGNAL_EARLY_S} s before them are for stopping; a job of level {level.name!r} may "
            f"take {level.timeout_s:g} s, so none would be launched"
        )
    if level.resources.nodes > script.nodes:
        raise ConfigError(
            f"--nodes is {script.nodes}, a job of level {level.name!r} holds "
            f"{level.resources.nodes:g}"
        )
    if script.nodes > 1 and settings.jobs_on == settings.verifiers_on == "local":
        raise ConfigError(
            f"--nodes is {script.nodes}, and jobs and verifiers run on the first of them only; "
            "set jobs_on or verifiers_on in the site's settings, or take one node"
        )


def _submitted(script: JobScript, *, count: int) -> list[str]:
    """Keep the script in the run's directory, submit it, and return the jobs' ids."""
    path = script.run_dir / FILE
    try:
        script.run_dir.mkdir(parents=True, exist_ok=True)
        path.write_text(script.text(), encoding="utf-8")
    except OSError as exc:
        raise LedgerWriteError(
            f"{path} cannot be written: {exc.strerror}; choose another directory with --run"
        ) from exc
    return [asyncio.run(submit_script(script, path)) for _ in range(count)]


def _tell(script: JobScript, jobs: list[str], *, as_json: bool) -> None:
    if as_json:
        told = {
            "jobs": jobs,
            "name": script.name,
            "run": str(script.run_dir),
            "options": script.options(),
            "command": script.command,
        }
        click.echo(json.dumps(told, indent=2))
    elif not jobs:
        click.echo(script.text(), nl=False)
    else:
        click.echo(f"submitted {script.name} as job {', '.join(jobs)}")
        click.echo(f"  script  {script.run_dir / FILE}")
        click.echo(f"  queue   squeue --me --name {script.name}")
        click.echo(f"  watch   tail -F {script.run_dir / 'run.log'}")
        click.echo(f"  result  batchgate summary {script.run_dir}")
        click.echo(f"  cancel  scancel {' '.join(jobs)}")
