"""`batchgate vllm-env`: a model to ask, on a machine that has none."""

from __future__ import annotations

from pathlib import Path

import click

from ..producers.environment import make
from . import exits


@click.command("vllm-env")
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where to make it; under ~/.cache/batchgate by default.",
)
@exits.reported
def vllm_env(*, folder: Path | None) -> None:
    """Make an environment with vLLM and a small real model, for rehearsals and tests.

    About 4 GB and a few minutes; what is there already is kept. On a host with a GPU it installs
    the GPU build.
    """
    found = make(folder, say=click.echo)
    click.echo(f"ready: {' '.join(found.command)} {found.model}")
