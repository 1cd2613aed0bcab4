"""Exit codes of the command, and how an error becomes one."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import click

from ..errors import (
    BatchGateError,
    ConfigError,
    FlowError,
    LedgerError,
    LedgerHeldError,
    LedgerMismatchError,
    ServerError,
)

TABLE = """\b
Exit codes:
0  the campaign came to its end: read the summary
1  failures in a row stopped it: mend what the last lines name, run again
2  campaign, settings or call are wrong: mend them, nothing was started
3  suspended by a signal or the allocation's end: the same command goes on
4  the record could not be kept or read: free or mend the disk, run again
5  another runner holds the run directory: wait for it, or end it
6  the model server or the execution side broke down: see the log it names
"""
"""The codes as `--help` shows them; click leaves lines after `\\b` as they are."""

FINISHED = 0
FAILED = 1
WRONG = 2
SUSPENDED = 3
NO_RECORD = 4
HELD = 5
BROKEN = 6

P = ParamSpec("P")
T = TypeVar("T")


def code_of(error: BatchGateError) -> int:
    """Return the exit code that an error stands for."""
    match error:
        case ConfigError() | LedgerMismatchError():
            return WRONG
        case LedgerHeldError():
            return HELD
        case LedgerError():
            return NO_RECORD
        case ServerError() | FlowError():
            return BROKEN
        case _:
            return FAILED


def reported(command: Callable[P, T]) -> Callable[P, T]:
    """Turn an error of ours into a message on stderr and its exit code, without a traceback."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return command(*args, **kwargs)
        except BatchGateError as error:
            click.echo(f"batchgate: {error}", err=True)
            sys.exit(code_of(error))

    return run
