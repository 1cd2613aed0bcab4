"""The review of a run: what its ledger tells, as rows, figures, a terminal's text and a page.

`open_run` reads a run's directory, `summarise` counts it, `rendered` shows the figures on a
terminal, `write_report` writes the page. Nothing here changes a run, and a run that is still going
on can be reviewed.
"""

from .figures import Summary
from .record import RunRecord, open_run
from .report import write_report
from .summary import summarise
from .terminal import rendered

__all__ = ["RunRecord", "Summary", "open_run", "rendered", "summarise", "write_report"]
