"""`batchgate replay` and `report-card`: whether a record is right, and whether the gate was."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..campaign import load
from ..errors import ConfigError
from ..replay import Against, RunReplay, decide_against
from ..replay import replay as replay_run
from ..review import phrases, text
from ..review.card import ReportCard
from ..review.card import report_card as card_of_run
from ..review.estimate import Share
from . import exits
from .options import overrides_option, parse_overrides
from .runs import run_argument, working

SHOWN = 50
"""Mismatches and candidates that are told one by one; `--json` has them all."""


@click.command()
@run_argument
@click.option(
    "--campaign",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Folder with the campaign.py that the run had, so that its checks can be run again.",
)
@click.option("--against", help="Another campaign: tell what its checks would have launched.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@overrides_option
@exits.reported
def replay(
    run: Path,
    *,
    campaign: Path | None,
    against: str | None,
    as_json: bool,
    overrides: tuple[str, ...],
) -> None:
    """Decide RUN's record once more, and tell where it does not agree with itself.

    Runs every in-process check on the stored proposals again, works verifiers' verdicts out from
    what they measured then, and holds the record against the runner's own rules: attempts,
    dispositions, launches, charges, results, the end. Verifiers and jobs are not run again.
    Exit code 1 when anything disagrees.

    With --against nothing is held against anything: it tells which launches another campaign's
    checks and thresholds would have stopped, what that would have saved, and what it would have
    cost. --set changes values of that campaign.
    """
    if against is not None:
        if campaign is not None:
            raise ConfigError("--campaign and --against are two questions; ask one of them")
        other = load(against, overrides=parse_overrides(overrides))
        with working(run, "deciding once more"):
            found = asyncio.run(decide_against(run, other))
        _say(found.to_json() if as_json else _told_against(found))
        return
    if overrides:
        raise ConfigError("--set goes with --against: a replay takes the campaign of the record")
    with working(run, "replaying"):
        replayed = asyncio.run(replay_run(run, campaign=campaign))
    _say(replayed.to_json() if as_json else _told(replayed))
    raise SystemExit(exits.FINISHED if replayed.ok else exits.FAILED)


def _say(told: str | Iterator[str]) -> None:
    for line in [told] if isinstance(told, str) else told:
        click.echo(line)


def _told(found: RunReplay) -> Iterator[str]:
    for one in found.mismatches[:SHOWN]:
        yield f"{one.where}: {one.kind}: {text.visible(one.message)}"
    if len(found.mismatches) > SHOWN:
        yield f"and {len(found.mismatches) - SHOWN} more"
    yield (
        f"{found.decisions} decisions with {found.attempts} attempts replayed: "
        f"{found.rerun} verdicts of checks given again, {found.measured} of verifiers worked out "
        "from their measurements; no verifier and no job was run"
    )
    if found.skipped:
        skipped = ", ".join(f"{count} of {name}" for name, count in found.skipped.items())
        yield f"verdicts not given again, since the checks' code is not here: {skipped}"
        yield "give it with --campaign FOLDER"
    if found.end == "open":
        yield "the record has no end: the run goes on, was killed, or lost its last lines"
    if found.ok:
        yield "the record agrees with its replay"
    else:
        yield f"{len(found.mismatches)} mismatches"


def _told_against(found: Against) -> Iterator[str]:
    for one in found.stopped[:SHOWN]:
        candidate = text.clipped(text.compact(one.candidate), 200)
        reason = text.clipped(one.reason, 200)
        yield f"D{one.decision} {one.outcome}, stopped by {one.by}: {candidate}: {reason}"
    if len(found.stopped) > SHOWN:
        yield f"and {len(found.stopped) - SHOWN} more"
    yield (
        f"{len(found.stopped)} of {found.launched} launched candidates would have been stopped: "
        f"{found.bad_stopped} bad, {found.good_lost} good"
    )
    yield f"node-hours saved: {found.saved_node_h:.4g}"
    if found.best is not None:
        kept = "lost" if found.best_kept is None else f"{found.best_kept:.6g}"
        yield f"best feasible objective: {found.best:.6g} in the run, {kept} without them"
    if found.added:
        yield (
            f"{len(found.added)} refused candidates would have been launched; "
            "nobody knows their results"
        )
    if found.unknown:
        yield f"{len(found.unknown)} of {found.decisions} decisions go on in ways nobody knows:"
        for number, why in list(found.unknown.items())[:SHOWN]:
            yield f"  D{number}: {text.clipped(why, 200)}"


@click.command("report-card")
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exits.reported
def report_card(run: Path, *, as_json: bool) -> None:
    """Tell how often RUN's checks and verifiers were wrong, as far as its jobs can tell.

    Suggests thresholds, and changes none.
    """
    with working(run, "comparing verdicts with results"):
        card = card_of_run(run)
    if as_json:
        click.echo(card.to_json())
        return
    console = Console()
    console.print(_card(card))
    for line in phrases.remarks(card):
        console.print(Text(text.visible(line)))


def _card(card: ReportCard) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in ("Check", "", "passed", "of these bad", "rejected", "of these good"):
        table.add_column(name, overflow="fold", justify="right" if "ed" in name else "left")
    for check in card.checks:
        table.add_row(
            Text(text.visible(check.name)),
            check.kind,
            str(check.passed),
            _share(check.false_accept),
            str(check.rejected),
            _share(check.false_reject),
        )
    return table


def _share(share: Share) -> str:
    if share.value is None:
        return "unknown"
    told = f"{share.value:.0%} ({share.low:.0%} to {share.high:.0%}), {share.hits} of {share.seen}"
    return told if share.calibrated else f"{told}, uncalibrated"
