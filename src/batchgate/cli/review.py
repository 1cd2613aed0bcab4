"""`batchgate summary`, `report` and `verify`: a run after the fact, from its files alone."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import click
from rich.console import Console

from ..ledger import check_run
from ..review import rendered, summarise
from . import exits
from .runs import run_argument, run_folder, working


@click.command()
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exits.reported
def summary(run: Path, *, as_json: bool) -> None:
    """Tell what happened in RUN: decisions, rejections, jobs, the best result, where time went."""
    with working(run_folder(run), "counting"):
        told = summarise(run)
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
    from ..review.report import write_report  # the page's many parts take a while to import

    with working(run_folder(run), "writing the report"):
        path = write_report(run, output)
    click.echo(path)


@click.command()
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exits.reported
def verify(run: Path, *, as_json: bool) -> None:
    """Check that RUN's record is whole: its hash chain, its order, and what its jobs refer to.

    Exit code 1 when anything is found.
    """
    with working(run_folder(run), "checking"):
        findings = check_run(run)
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings], indent=2))
    else:
        for finding in findings:
            click.echo(f"{finding.where}: {finding.kind}: {finding.message}")
        click.echo("the record is whole" if not findings else f"{len(findings)} findings")
    raise SystemExit(exits.FAILED if findings else exits.FINISHED)
