"""The review of a run: what its ledger tells, as tables, figures, a terminal's text and a page.

`open_run` reads a run's directory as tables, for pandas and pyarrow, and `RunRecord.read` as rows.
`summarise` counts it, `rendered` shows the figures on a terminal, `write_report` writes the page.
Nothing here changes a run, and a run that is still going on can be reviewed.
"""

from .figures import Summary
from .record import RunRecord
from .report import write_report
from .summary import summarise
from .tables import Run, open_run
from .terminal import rendered

__all__ = ["Run", "RunRecord", "Summary", "open_run", "rendered", "summarise", "write_report"]
