"""The review of a run: what its ledger tells, as tables, figures, a terminal's text and a page.

`open_run` reads a run's directory as tables, for pandas and pyarrow, and `RunRecord.read` as rows.
`summarise` counts it, `rendered` shows the figures on a terminal, `write_report` writes the page.
Nothing here changes a run, and a run that is still going on can be reviewed.
"""

from typing import TYPE_CHECKING, Any

from .figures import Summary
from .record import RunRecord
from .summary import summarise
from .terminal import rendered

if TYPE_CHECKING:
    from .report import write_report
    from .tables import Run, open_run

__all__ = ["Run", "RunRecord", "Summary", "open_run", "rendered", "summarise", "write_report"]

if not TYPE_CHECKING:  # A type checker would take any name for one of ours.

    def __getattr__(name: str) -> Any:
        # Late, since the page's many parts are not needed by a command that is asked one question.
        if name == "write_report":
            from .report import write_report

            return write_report
        if name in {"Run", "open_run"}:
            from . import tables

            return getattr(tables, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
