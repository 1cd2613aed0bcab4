"""A run as the argument of a command, and what is told while its ledger is read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.markup import escape

from ..errors import ConfigError

LONG = 20_000_000
"""Bytes of a ledger from which on reading it may take some seconds, and a person wants to know."""

run_argument = click.argument(
    "run", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="RUN"
)


def run_folder(folder: Path) -> Path:
    """Return the directory of a run.

    Raises:
        ConfigError: It holds none.
    """
    if not (folder / "ledger").is_dir():
        raise ConfigError(f"{folder} holds no run: it has no ledger")
    return folder


@contextmanager
def working(run: Path, what: str) -> Iterator[None]:
    """Tell on a terminal what is being done while a long ledger is read.

    Standard output stays as it is, so that it can be read by a program.
    """
    size = sum(path.stat().st_size for path in (run / "ledger").glob("*.jsonl"))
    console = Console(stderr=True)
    if size < LONG or not console.is_terminal:
        yield
        return
    with console.status(f"{escape(what)}: {size / 1e6:.0f} MB of ledger"):
        yield
