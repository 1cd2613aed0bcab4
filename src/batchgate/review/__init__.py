"""The review of a run: what its ledger tells, as tables, figures, a terminal's text and a page.

`open_run` reads a run's directory as tables, for pandas and pyarrow, and `RunRecord.read` as rows.
`summarise` counts it, `rendered` shows the figures on a terminal, `write_report` writes the page.
Nothing here changes a run, and a run that is still going on can be reviewed.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .figures import Summary
    from .record import RunRecord
    from .report import write_report
    from .summary import summarise
    from .tables import Run, open_run
    from .terminal import rendered

__all__ = ["Run", "RunRecord", "Summary", "open_run", "rendered", "summarise", "write_report"]

_ROOMS = {
    "Run": ".tables",
    "RunRecord": ".record",
    "Summary": ".figures",
    "open_run": ".tables",
    "rendered": ".terminal",
    "summarise": ".summary",
    "write_report": ".report",
}

if not TYPE_CHECKING:  # A type checker would take any name for one of ours.

    def __getattr__(name: str) -> Any:
        # Late: a command that asks one question needs one room, and each takes a while to import.
        if name in _ROOMS:
            return getattr(import_module(_ROOMS[name], __package__), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
