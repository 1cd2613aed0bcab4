"""`batchgate status` and `watch`: a run while it runs, from its files alone.

Nothing is asked of Slurm or of the runner, so both work from a login node, and for a run whose
runner is dead.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ..events import CheckJudged, Entry, Event, ProposalRejected
from ..lease import LEASE_S, Sign, last_sign
from ..ledger import Reader
from ..state import State
from . import exits
from .lines import line, visible
from .progress import Progress, best, rows
from .runs import run_argument, run_folder, working

REASONS = 5
"""Last rejections that are told."""

POLL_S = 1.0
"""Seconds between two looks at the ledger."""


@click.command()
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@exits.reported
def status(run: Path, *, as_json: bool) -> None:
    """Tell where RUN stands: what runs and since when, time left, decisions, best, last reasons."""
    folder = run_folder(run) / "ledger"
    state, reasons = State(), deque[str](maxlen=REASONS)
    with working(run, "reading"):
        for entry in Reader(folder, verify=False):
            state.apply(entry.event, at=entry.at)
            if _is_rejection(entry.event) and (told := line(entry.event, state)):
                reasons.append(told)
    sign, now = last_sign(folder), time.time()
    if as_json:
        click.echo(json.dumps(_data(state, sign, list(reasons), now), indent=2))
        return
    click.echo(f"{'run':<12}{state.run}, {_standing(state, sign, now)}")
    for name, value in rows(state, now):
        click.echo(f"{name:<12}{visible(value)}")
    for job in state.running:
        click.echo(f"{'':<12}{job.plan.job} since {_clock(job.planned_at)}")
    for told in reasons:
        click.echo(f"{'rejected':<12}{told}")


@click.command()
@run_argument
@click.option(
    "--last",
    type=click.IntRange(min=0),
    default=20,
    show_default=True,
    help="Events of the past that are shown first.",
)
@exits.reported
def watch(run: Path, *, last: int) -> None:
    """Follow RUN's events until the campaign is over; Ctrl-C ends only the watching."""
    reader = Reader(run_folder(run) / "ledger", verify=False)
    state, past = State(), deque[Entry](maxlen=last)
    for entry in reader:
        state.apply(entry.event, at=entry.at)
        past.append(entry)
    with Progress(Path(os.devnull), console=Console()) as progress:
        for entry in past:
            progress.observe(entry, state)
        while state.stopped is None:
            time.sleep(POLL_S)
            for entry in reader:
                state.apply(entry.event, at=entry.at)
                progress.observe(entry, state)


def _is_rejection(event: Event) -> bool:
    return isinstance(event, (CheckJudged, ProposalRejected))


def _standing(state: State, sign: Sign | None, now: float) -> str:
    """Say in words whether the run runs."""
    if state.stopped is not None:
        return f"over since {_clock(state.updated_at)}, rule {state.stopped.rule}"
    if state.suspended and (sign is None or sign.free):
        return f"suspended since {_clock(state.updated_at)}: {visible(state.suspended)}"
    if sign is None or sign.free:
        return f"ended in order on an error, at {_clock(state.updated_at)}; run it again"
    silent_s = max(0.0, now - sign.touched_at)
    if silent_s > LEASE_S:
        return f"probably dead: no sign of {sign.who} for {silent_s:.0f} s; run it again"
    return f"running, {sign.who}, life {state.lives}, {silent_s:.0f} s since its last sign of life"


def _data(state: State, sign: Sign | None, reasons: list[str], now: float) -> dict[str, Any]:
    seen = state.allocation
    return {
        "run": state.run,
        "standing": _standing(state, sign, now),
        "running": sign is not None and not sign.free and now - sign.touched_at <= LEASE_S,
        "life": state.lives,
        "started_at": state.started_at,
        "updated_at": state.updated_at,
        "slurm_job": seen.job_id if seen else "",
        "nodes": list(seen.nodes) if seen else [],
        "ends_at": seen.ends_at if seen else None,
        "left_s": None if seen is None or seen.ends_at is None else max(0.0, seen.ends_at - now),
        "jobs_running": [
            {"job": job.plan.job, "since": job.planned_at, "candidate": dict(job.plan.candidate)}
            for job in state.running
        ],
        "evaluated": state.evaluated,
        "decisions": dict(state.dispositions),
        "deciding": [decision.number for decision in state.open],
        "parked": list(state.parked),
        "best": best(state),
        "charged_node_h": state.charged_node_h,
        "billed_node_h": state.billed_node_h,
        "granted_node_h": state.granted_node_h,
        "stopped": state.stopped.model_dump() if state.stopped else None,
        "suspended": state.suspended,
        "reasons": reasons,
    }


def _clock(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))
