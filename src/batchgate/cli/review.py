"""`batchgate summary`, `report` and `verify`: a run after the fact, from its files alone."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from ..errors import ConfigError
from ..ledger import check_run
from ..review import open_run, rendered, summarise, write_report
from . import exits

run_argument = click.argument(
    "run", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="RUN"
)


@click.command()
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exits.reported
def summary(run: Path, *, as_json: bool) -> None:
    """Tell what happened in RUN: decisions, rejections, jobs, the best result, where time went."""
    told = summarise(open_run(run_folder(run)))
    if as_json:
        click.echo(told.to_json())
    else:
        Console().print(rendered(told))


@click.command()
@run_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    help="RUN/report.html by default.",
)
@exits.reported
def report(run: Path, *, output: Path | None) -> None:
    """Write RUN's report: one HTML file that needs no network."""
    click.echo(write_report(run_folder(run), output))


@click.command()
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exits.reported
def verify(run: Path, *, as_json: bool) -> None:
    """Check that RUN's record is whole: its hash chain, its order, and what its jobs refer to.

    Exit code 1 when anything is found.
    """
    findings = check_run(run_folder(run))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            click.echo(f"{finding.where}: {finding.kind}: {finding.message}")
        click.echo("the record is whole" if not findings else f"{len(findings)} findings")
    raise SystemExit(exits.FAILED if findings else exits.FINISHED)


def run_folder(folder: Path) -> Path:
    """Return the directory of a run.

    Raises:
        ConfigError: It holds none.
    """
    if not (folder / "ledger").is_dir():
        raise ConfigError(f"{folder} holds no run: it has no ledger")
    return folder
