"""`batchgate rejections`, `show`, `timeline` and `compare`: single questions, answered at once."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..events import CheckJudged
from ..review import text
from ..review.compare import Line
from ..review.compare import compare as compare_runs
from ..review.look import find
from ..review.rejections import Rejection, by_reason
from ..review.rejections import rejections as rejections_of
from ..review.rows import AttemptRow, DecisionRow, JobRow
from ..review.timeline import Timeline
from ..review.timeline import timeline as timeline_of
from . import exits
from .runs import run_argument

REASON = 300
"""Longest reason that is told, in characters."""

_run = click.Path(path_type=Path, exists=True, file_okay=False)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command()
@run_argument
@click.option("--check", default="", help="Only those of this check, verifier or stage.")
@click.option("--last", default=20, show_default=True, help="Rejections told one by one.")
@json_option
@exits.reported
def rejections(run: Path, *, check: str, last: int, as_json: bool) -> None:
    """Tell what was rejected in RUN, by which check and why: counted, and the newest one by one."""
    found = rejections_of(run, check=check)
    if as_json:
        _print_json([{"name": one.name, **asdict(one)} for one in found])
        return
    table = _table("rejected", "by", "reason (# is a number)")
    for name, reason, count in by_reason(found)[: max(last, 0)]:
        table.add_row(str(count), _text(name), _text(text.clipped(reason, REASON)))
    console = Console()
    if found:
        console.print(table)
    for one in found[-last:] if last > 0 else ():
        console.print(_text(_rejection(one)))
    console.print(f"{len(found)} rejections")


def _rejection(one: Rejection) -> str:
    return f"{one.name} {text.instant(one.at)} {one.check}: {_reasons(one.reasons)}"


@click.command()
@run_argument
@click.argument("name", metavar="D17.2")
@json_option
@exits.reported
def show(run: Path, name: str, *, as_json: bool) -> None:
    """Show one attempt of RUN, or all of a decision (D17): proposal, verdicts, jobs."""
    decision, attempts, jobs = find(run, name)
    if as_json:
        told = {**_plain(decision), "attempts": list(map(_plain, attempts))}
        _print_json({"decision": told, "jobs": list(map(_plain, jobs))})
        return
    console = Console()
    for line in _shown(decision, attempts, jobs):
        console.print(_text(line))


def _shown(
    decision: DecisionRow, attempts: Iterable[AttemptRow], jobs: Iterable[JobRow]
) -> Iterator[str]:
    cause = f" because of {decision.cause}" if decision.cause else ""
    yield f"D{decision.number} {decision.disposition or 'open'}{cause}, asked: {decision.source}"
    for attempt in attempts:
        yield f"D{attempt.decision}.{attempt.number} {attempt.outcome}"
        yield (
            f"  asked {text.instant(attempt.started_at)}, answered after {attempt.answer_s:.3g} s "
            f"by {attempt.model or 'a model without a name'}"
        )
        candidates = attempt.candidates
        for candidate in candidates:
            yield f"  candidate {text.clipped(text.compact(candidate), REASON)}"
        if not candidates:
            yield f"  said {text.clipped(text.scalar(attempt.proposal), REASON)}"
        if not attempt.checks and attempt.reasons:
            yield f"  rejected by {', '.join(attempt.rejected_by)}: {_reasons(attempt.reasons)}"
        for check in attempt.checks:
            yield f"  {_verdict(check)}"
        if attempt.trace_id:
            yield f"  trace {attempt.trace_id}, span {attempt.span_id}"
    for job in jobs:
        told = f"job {job.job}: {job.outcome}, {text.hours(job.charged_node_h)} node-hours"
        values = text.compact(job.values) if job.values else _reasons(job.reasons) or job.error
        yield f"{told}: {text.clipped(values, REASON)}" if values else told


def _verdict(check: CheckJudged) -> str:
    said = "passes" if check.passed else f"rejects: {_reasons(check.reasons)}"
    soft = "" if check.hard else " (soft)"
    found = "; ".join(text.compact(one) for one in check.observables)
    measured = f"; measured {text.clipped(found, REASON)}" if found else ""
    return f"{check.check}{soft} {said}{measured}"


@click.command()
@run_argument
@click.option(
    "--last", default=20, show_default=True, help="Failures and server events told one by one."
)
@json_option
@exits.reported
def timeline(run: Path, *, last: int, as_json: bool) -> None:
    """Tell RUN along its time: what happened in each stretch, what broke, what stopped it."""
    found = timeline_of(run)
    if as_json:
        _print_json(asdict(found))
        return
    console = Console()
    console.print(_stretches(found))
    frequent = [place for place, one in enumerate(found.milestones) if not one.of_a_life]
    left_out = set(frequent[:-last] if last > 0 else frequent)
    if left_out:
        told = f"{len(left_out)} failures and server events are left out; --last tells more"
        console.print(told)
    for place, one in enumerate(found.milestones):
        if place not in left_out:
            line = f"{text.instant(one.at)} {text.plain_word(one.what)}: {one.told}"
            console.print(_text(text.clipped(line, REASON)))


def _stretches(found: Timeline) -> Table:
    head = ("asked", "accepted", "fallback", "launched", "results", "invalid")
    table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold")
    for name in ("from (UTC)", *head, "node-h", "running"):
        table.add_column(name, justify="left" if name.startswith("from") else "right", no_wrap=True)
    for one in found.stretches:
        counts = (str(one.counts.get(name, "")) for name in head)
        charged = text.hours(one.charged_node_h) if one.charged_node_h else ""
        start = text.instant(one.start_at).removesuffix(" UTC")[5:]
        table.add_row(start, *counts, charged, str(one.running))
    return table


@click.command()
@click.argument("one", type=_run, metavar="RUN")
@click.argument("other", type=_run, metavar="OTHER")
@json_option
@exits.reported
def compare(one: Path, other: Path, *, as_json: bool) -> None:
    """Put two runs side by side. A * marks what differs by more than chance."""
    lines = compare_runs(one, other)
    if as_json:
        _print_json([asdict(line) for line in lines])
        return
    table = _table("", "RUN", "OTHER", "")
    for line in lines:
        table.add_row(
            _text(line.name), _figure(line, line.one), _figure(line, line.other),
            "*" if line.apart else "",
        )  # fmt: skip
    Console().print(table)


def _figure(line: Line, value: float | str | None) -> Text:
    if isinstance(value, float):
        return Text(f"{value:.1%}" if line.name.startswith("share ") else f"{value:.6g}")
    return _text("-" if value is None else str(value))


def _reasons(reasons: Sequence[str]) -> str:
    return text.clipped("; ".join(reasons), REASON)


def _text(told: str) -> Text:
    return Text(text.visible(told), overflow="fold")


def _table(*head: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    for name in head:
        table.add_column(name, overflow="fold")
    return table


def _plain(row: Any) -> dict[str, Any]:
    return {name: getattr(row, name) for name in row.__dataclass_fields__}


def _print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2, allow_nan=False, default=_data))


def _data(value: Any) -> Any:
    """Return what JSON has no word for as data: events, rows, mappings."""
    if hasattr(value, "model_dump"):
        return value.model_dump(mode="json")
    return _plain(value) if hasattr(value, "__dataclass_fields__") else dict(value)
