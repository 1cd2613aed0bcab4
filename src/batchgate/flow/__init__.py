"""The execution side: functions in warm workers, jobs as processes, submitted through AsyncFlow.

`open_flow` gives a `batchgate.job.Flow`. Whatever a task does and wherever it runs, its end is a
value; whatever happens to the runner, `find_orphans` and `end_orphans` find what it left. Linux
only: processes are found in `/proc`.
"""

from .open import open_flow
from .orphans import end_orphans
from .processes import Orphan, find_orphans

__all__ = ["Orphan", "end_orphans", "find_orphans", "open_flow"]
