"""`batchgate check` and `batchgate new`: campaigns before anything is run."""

from __future__ import annotations

import json
import random
from importlib import resources
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from ..campaign import Campaign, Candidate, load
from ..errors import ConfigError
from .exits import reported
from .lines import values, visible
from .options import overrides_option, parse_overrides


@click.command()
@click.argument("campaign")
@click.option("--samples", default=8, show_default=True, help="Random candidates to judge.")
@click.option("--seed", default=0, show_default=True, help="Seeds the samples.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@overrides_option
@reported
def check(
    campaign: str, *, samples: int, seed: int, as_json: bool, overrides: tuple[str, ...]
) -> None:
    """Validate a CAMPAIGN and judge a few random candidates with its domain checks.

    Nothing is launched and no model is asked. CAMPAIGN is a folder or an installed campaign.
    """
    loaded = load(campaign, overrides=parse_overrides(overrides))
    judged = [(point, _judged(loaded, point)) for point in _samples(loaded, samples, seed)]
    if as_json:
        click.echo(json.dumps(_as_json(loaded, judged), indent=2))
        return
    console = Console(soft_wrap=False)
    console.print(_about(loaded))
    table = Table(
        title=f"{samples} random candidates, judged by the domain checks", title_justify="left"
    )
    table.add_column("candidate")
    table.add_column("problems")
    for point, problems in judged:
        table.add_row(
            escape(values(point)), escape("\n".join(map(visible, problems))) or "[green]none[/]"
        )
    console.print(table)
    passed = sum(not problems for _, problems in judged)
    console.print(f"{passed} of {samples} pass. The campaign is valid.")


def _judged(campaign: Campaign, point: Candidate) -> list[str]:
    try:
        return campaign.problems(point)
    except Exception as exc:
        raise ConfigError(
            f"a check raised {type(exc).__name__}: {exc}\n  for the candidate {values(point)}"
        ) from exc


def _samples(campaign: Campaign, count: int, seed: int) -> list[dict[str, Any]]:
    rng = random.Random(seed)  # noqa: S311 - sampling, no secret
    space = campaign.space
    return [
        {name: space.at_unit(name, rng.random()) for name in space.variables} for _ in range(count)
    ]


def _about(campaign: Campaign) -> Table:
    spec = campaign.spec
    table = Table(show_header=False, box=None, padding=(0, 2))
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    rows = [("campaign", f"{spec.campaign.name}: {spec.campaign.title}")]
    for name, variable in spec.variables.items():
        span = list(variable.values or variable.domain or ())
        rows.append(("variable", f"{name} in {span} {variable.unit}  {variable.about}".rstrip()))
    objective, minimise = spec.objective
    rows.append(("objective", f"{'minimise' if minimise else 'maximise'} {objective}"))
    rows += [
        ("constraint", f"{name} {constraint.to_list()}")
        for name, constraint in spec.constraints.items()
    ]
    rows += [("check", c.name + ("" if c.hard else " (soft)")) for c in campaign.checks]
    for level in spec.level:
        kind = "job" if level is spec.job else "verifier"
        rows.append(
            (
                kind,
                f"{level.name}: at most {level.timeout_s:g} s on {level.resources.nodes:g} nodes",
            )
        )
    stop = spec.stop.model_dump(exclude_defaults=True)
    rows.append(("stop", ", ".join(f"{k} = {v}" for k, v in stop.items())))
    for name, value in rows:
        table.add_row(name, escape(value))
    return table


def _as_json(campaign: Campaign, judged: list[tuple[dict[str, Any], list[str]]]) -> dict[str, Any]:
    return {
        "campaign": campaign.spec.campaign.name,
        "digest": campaign.spec.digest,
        "spec": campaign.spec.model_dump(mode="json"),
        "samples": [{"candidate": point, "problems": problems} for point, problems in judged],
    }


@click.command()
@click.argument("name")
@click.option(
    "--folder", type=click.Path(path_type=Path), help="Where to write it; ./NAME by default."
)
@reported
def new(name: str, *, folder: Path | None) -> None:
    """Write a small campaign called NAME that runs as it is, to start your own from."""
    folder = folder or Path(name)
    if folder.exists():
        raise ConfigError(f"{folder} exists already; choose another name or --folder")
    template = resources.files(__package__) / "template"
    texts = {
        file: (template / file).read_text(encoding="utf-8")
        for file in ("campaign.toml", "campaign.py", "prompt.md")
    }
    texts["campaign.toml"] = texts["campaign.toml"].replace('"NAME"', json.dumps(name))
    folder.mkdir(parents=True)
    for file, text in texts.items():
        (folder / file).write_text(text, encoding="utf-8")
    try:
        load(folder)
    except ConfigError as exc:
        for file in texts:
            (folder / file).unlink()
        folder.rmdir()
        raise ConfigError(f"{name!r} is no name for a campaign: {exc}") from exc
    click.echo(f"wrote {folder}/campaign.toml, campaign.py and prompt.md")
    click.echo(f"next: batchgate check {folder}, then batchgate run {folder} --producer none")
