"""The ways a task ends, as `TaskEnd` values stamped with this host and the time now."""

from __future__ import annotations

import signal
import socket
import time
from dataclasses import replace

from ..job import End, TaskEnd
from .output import one_line

BY_RUNNER = "ended by the runner"


def not_started(error: str) -> TaskEnd:
    """Return the end of a task that never ran."""
    return TaskEnd(End.NOT_STARTED, error=one_line(error), host=socket.gethostname())


def ended_now(
    end: End,
    error: str,
    *,
    started_at: float,
    returncode: int | None = None,
    traceback: str = "",
) -> TaskEnd:
    """Return the end of a task whose process has just ended.

    Args:
        end: How.
        error: Why, in words.
        started_at: When it started, seconds since the epoch; 0.0 when it did not.
        returncode: Of its process: an exit code, or a negative signal number.
        traceback: Tail of what is known of where it was.
    """
    return TaskEnd(
        end,
        exit_code=returncode if returncode is not None and returncode >= 0 else None,
        signal=-returncode if returncode is not None and returncode < 0 else None,
        error=one_line(error),
        traceback=traceback,
        started_at=started_at,
        ended_at=time.time() if started_at else 0.0,
        host=socket.gethostname(),
    )


def by_itself(returncode: int) -> End:
    """Return how a process ended that nobody here ended."""
    if returncode == 0:
        return End.COMPLETED
    return End.SIGNAL if returncode < 0 else End.EXIT


def in_words(returncode: int) -> str:
    """Return an exit code or a negative signal number in words."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        return f"killed by {signal.Signals(-returncode).name}"
    except ValueError:  # a real-time signal
        return f"killed by signal {-returncode}"


def with_last_line(end: TaskEnd, stderr: str) -> TaskEnd:
    """Add the last line of stderr to the error: it mostly says why."""
    last = stderr.strip().rpartition("\n")[2]
    if end.end is End.COMPLETED or not last:
        return end
    return replace(end, error=one_line(f"{end.error}: {last}"))
