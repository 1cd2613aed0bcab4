"""The command `batchgate`: puts the parts together, and turns errors into exit codes."""

from __future__ import annotations

import click

from .. import __version__
from .campaigns import check, new
from .export import export
from .hours import hours
from .look import compare, rejections, show, timeline
from .parked import parked
from .replay import replay, report_card
from .review import report, summary, verify
from .run import run
from .site import vllm_env
from .status import status, watch
from .submit import submit


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="batchgate")
def main() -> None:
    """Decide which of a model's proposals may cost node-hours.

    Start with `batchgate new NAME`, then `batchgate check NAME` and `batchgate run NAME`.
    """


for command in (
    check,
    compare,
    export,
    hours,
    new,
    parked,
    rejections,
    replay,
    report,
    report_card,
    run,
    show,
    status,
    submit,
    summary,
    timeline,
    verify,
    vllm_env,
    watch,
):
    main.add_command(command)
