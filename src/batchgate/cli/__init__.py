"""The command `batchgate`: puts the parts together, and turns errors into exit codes."""

from __future__ import annotations

from importlib import import_module

import click

from .. import __version__
from ..collector import collector_at_rest

_COMMANDS = {
    "check": "campaigns",
    "compare": "look",
    "export": "export",
    "hours": "hours",
    "new": "campaigns",
    "parked": "parked",
    "rejections": "look",
    "replay": "replay",
    "report": "review",
    "report-card": "replay",
    "run": "run",
    "show": "look",
    "status": "status",
    "submit": "submit",
    "summary": "review",
    "timeline": "look",
    "verify": "review",
    "vllm-env": "site",
    "watch": "status",
}
"""Every command, and the module here that has it."""


class Commands(click.Group):
    """Commands that are imported when they are asked for: all of them take 2 s, one takes half."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command; `None` when there is none of that name."""
        if cmd_name not in _COMMANDS:
            return None
        with collector_at_rest():
            module = import_module(f".{_COMMANDS[cmd_name]}", __package__)
        command: click.Command = getattr(module, cmd_name.replace("-", "_"))
        return command


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="batchgate")
def main() -> None:
    """Decide which of a model's proposals may cost node-hours.

    Start with `batchgate new NAME`, then `batchgate check NAME` and `batchgate run NAME`.
    """
