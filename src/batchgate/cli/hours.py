"""`batchgate hours`: what a run cost the account, and on what."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from ..ledger import read
from ..review.hours import Hours
from ..slurm import billed
from . import exits
from .runs import run_argument, run_folder, working

Bills = Mapping[str, float | None]
"""What Slurm's accounting says of each job, in node-hours; `None` when it says nothing."""


@click.command()
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exits.reported
def hours(run: Path, *, as_json: bool) -> None:
    """Tell what RUN was billed, nodes times time over all its lives, and what it went on.

    Under Slurm the accounting is asked as well, and its number stands beside the ledger's own,
    which ends with the last event and so is a few seconds lower for each life.
    """
    with working(run_folder(run), "adding up"):
        found = Hours.of(read(run / "ledger"))
    bills = asyncio.run(_bills(found.job_ids))
    if as_json:
        click.echo(json.dumps({**found.to_dict(), "slurm_node_h": bills}, indent=2))
        return
    console = Console()
    console.print(_table(found))
    for told in _told(found, bills):
        console.print(told, highlight=False, soft_wrap=True)


async def _bills(job_ids: tuple[str, ...]) -> Bills:
    found = await asyncio.gather(*map(billed, job_ids))
    return {
        job_id: bill.node_s / 3600 if bill else None
        for job_id, bill in zip(job_ids, found, strict=True)
    }


def _table(found: Hours) -> Table:
    table = Table(box=None, padding=(0, 2), pad_edge=False)
    table.add_column("Node-hours", no_wrap=True)
    table.add_column("", justify="right", no_wrap=True)
    table.add_column("share", justify="right", no_wrap=True)
    for label, node_h in _rows(found):
        share = f"{node_h / found.billed:.1%}" if found.billed else ""
        table.add_row(label, f"{node_h:.4f}", share)
    return table


def _rows(found: Hours) -> Iterator[tuple[str, float]]:
    lives = len({held.life for held in found.held})
    yield f"billed, {lives} {'life' if lives == 1 else 'lives'}", found.billed
    for end, node_h in found.jobs.items():
        yield f"  jobs {end.replace('_', ' ')}", node_h
    yield "  verifiers", found.verifiers
    yield "  model server", found.server
    yield "  idle", found.idle


def _told(found: Hours, bills: Bills) -> Iterator[str]:
    yield (
        f"jobs were charged {found.charged:.4f} of {found.granted:g} granted; "
        f"{found.running:.4f} are reserved for running ones"
    )
    for job_id, node_h in bills.items():
        if node_h is None:
            yield f"Slurm's accounting says nothing of job {job_id}: the ledger's own numbers stand"
        else:
            yield f"Slurm's accounting bills job {job_id} {node_h:.4f} node-hours"
