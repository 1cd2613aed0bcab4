"""`batchgate run`: a campaign from its start, or from where it stopped, to its end."""

from __future__ import annotations

import asyncio
import contextlib
import time
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..campaign import Campaign, load
from ..errors import BatchGateError, LedgerWriteError
from ..review import rendered, summarise, write_report
from ..settings import Settings, load_settings
from ..slurm import requeue
from . import exits
from .options import overrides_option, parse_overrides
from .progress import Progress
from .wiring import Ended, Plan
from .wiring import run as run_plan


@click.command(epilog=exits.TABLE)
@click.argument("campaign")
@click.option(
    "--run",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="The run's directory. One that holds a run goes on where it stopped. "
    "By default a new one under runs/NAME.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Seed instead of the campaign's.")
@click.option("--max-jobs", type=click.IntRange(min=1), help="Stop after this many jobs.")
@click.option("--model", help="Folder of the model, or its name at --endpoint.")
@click.option("--endpoint", help="A server that runs already: http://host:port or unix:/path.")
@click.option(
    "--producer",
    type=click.Choice(["vllm", "none"]),
    default="vllm",
    show_default=True,
    help="Who proposes; with none the surrogate does it all.",
)
@click.option("--slots", type=click.IntRange(min=1), help="Jobs at once.")
@click.option("--workers", type=click.IntRange(min=1), help="Verifiers at once.")
@click.option("--quiet", is_flag=True, help="Write progress to the log file only.")
@click.option("--json", "as_json", is_flag=True, help="Print the summary as JSON; implies --quiet.")
@overrides_option
@exits.reported
def run(
    campaign: str,
    *,
    folder: Path | None,
    seed: int | None,
    max_jobs: int | None,
    producer: str,
    quiet: bool,
    as_json: bool,
    overrides: tuple[str, ...],
    **flags: Any,
) -> None:
    """Run CAMPAIGN, a folder or an installed campaign.

    Ctrl-C or SIGTERM ends what runs and leaves a run that the same command takes up again:
    candidates whose jobs have finished are never run twice.
    """
    settings = load_settings(flags)
    loaded = load(campaign, overrides=_overrides(overrides, seed=seed, max_jobs=max_jobs))
    folder = _run_folder(folder, loaded, settings)
    plan = Plan(loaded, folder, settings, ask_model=producer == "vllm")
    console = Console(stderr=as_json)
    with Progress(folder / "run.log", console=console, quiet=quiet or as_json) as progress:
        progress.say(f"run directory {folder}")
        ended = asyncio.run(run_plan(plan, progress))
    _review(folder, console, as_json=as_json)
    code = _code(ended, settings, folder, campaign, console)
    if ended.requeue:
        # The last thing of all: Slurm ends this process a second after it was asked.
        asyncio.run(requeue(ended.requeue))
    raise SystemExit(code)


def _overrides(given: tuple[str, ...], *, seed: int | None, max_jobs: int | None) -> dict[str, Any]:
    found = parse_overrides(given)
    if seed is not None:
        found["campaign.seed"] = seed
    if max_jobs is not None:
        found["stop.jobs"] = max_jobs
    return found


def _run_folder(folder: Path | None, campaign: Campaign, settings: Settings) -> Path:
    """Make the run's directory; nothing else is written when it cannot be."""
    if folder is None:
        stamp = time.strftime("%Y%m%d-%H%M%S")
        folder = settings.runs_dir / campaign.spec.campaign.name / stamp
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise LedgerWriteError(
            f"the run directory {folder} cannot be made: {exc.strerror}; choose another with --run"
        ) from exc
    return folder.resolve()


def _review(folder: Path, console: Console, *, as_json: bool) -> None:
    """Show what happened. The record is complete by now, so nothing here may fail the run."""
    with contextlib.suppress(BatchGateError, OSError):
        summary = summarise(folder)
        if as_json:
            click.echo(summary.to_json())
        else:
            console.print(rendered(summary))
        console.print(f"report: {write_report(folder)}", highlight=False, soft_wrap=True)


def _code(ended: Ended, settings: Settings, folder: Path, campaign: str, console: Console) -> int:
    if ended.stop is not None:
        return exits.FAILED if ended.stop.failed else exits.FINISHED
    told = (
        f"suspended; Slurm starts job {ended.requeue} again"
        if ended.requeue
        else f"suspended; go on with: batchgate run {campaign} --run {folder}"
    )
    console.print(told, highlight=False, soft_wrap=True)
    return settings.suspended_exit
