"""`batchgate export`: a run as tables, as OTLP files, or in a collector."""

from __future__ import annotations

from pathlib import Path

import click

from .. import ledger
from ..errors import ConfigError
from ..review import RunRecord, open_run
from ..review.push import push
from ..review.spans import write_json
from ..review.tables import write_csv, write_parquet
from . import exits
from .runs import run_argument, working

_folder = click.Path(path_type=Path, file_okay=False)


@click.command()
@run_argument
@click.option("--csv", type=_folder, help="Write its tables as CSV into this folder.")
@click.option("--parquet", type=_folder, help="Write its tables as Parquet into this folder.")
@click.option("--otlp-json", type=_folder, help="Write its spans and events as OTLP JSON lines.")
@click.option(
    "--otlp",
    metavar="URL",
    help="Send its spans and events to a collector: http://host:4318 or grpc://host:4317. "
    "What has arrived is not sent again.",
)
@exits.reported
def export(
    run: Path, *, csv: Path | None, parquet: Path | None, otlp_json: Path | None, otlp: str | None
) -> None:
    """Write RUN in forms that other programs read. Its ledger stays as it is.

    Tables are attempts, verdicts, decisions, jobs and results.
    """
    if not (csv or parquet or otlp_json or otlp):
        raise ConfigError("say where to: --csv, --parquet, --otlp-json or --otlp")
    written: list[Path] = []
    with working(run, "writing"):
        if csv or parquet:
            tables = open_run(run)
            written += write_csv(tables, csv) if csv else []
            written += write_parquet(tables, parquet) if parquet else []
        if otlp_json:
            RunRecord.read(run)  # tells what is wrong with the record before anything is written
            written += write_json(ledger.read(run / "ledger"), otlp_json)
    for path in written:
        click.echo(path)
    if otlp:
        with working(run, "sending"):
            sent = push(run, otlp)
        click.echo(f"{sent.traces} decisions and jobs have arrived, {sent.incomplete} go on still")
        for signal in sent.not_taken:
            click.echo(f"the collector takes no {signal}")
