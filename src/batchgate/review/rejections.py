"""What was rejected in a run, by which check, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from .database import Database
from .stats import masked


@dataclass(frozen=True, slots=True)
class Rejection:
    """One check, verifier or stage of the producer that rejected an attempt.

    Attributes:
        decision: Number of the decision.
        attempt: Number of the attempt.
        check: Who rejected it.
        kind: `stage` for the producer's own, `check` or `verifier`.
        at: When, in seconds since the epoch.
        reasons: Why.
    """

    decision: int
    attempt: int
    check: str
    kind: str
    at: float
    reasons: tuple[str, ...]

    @property
    def name(self) -> str:
        """The attempt as `batchgate show` takes it: `D17.2`."""
        return f"D{self.decision}.{self.attempt}"


def rejections(run_dir: str | Path, *, check: str = "") -> list[Rejection]:
    """Return the rejections of a run, oldest first.

    Args:
        run_dir: The run's directory.
        check: Only those of this check, verifier or stage.

    Raises:
        LedgerError: There is no ledger, or it cannot be read.
    """
    with Database.of(run_dir, *_COLUMNS) as run:
        rows = run.rows(_ROWS, check=check)
    return [
        Rejection(decision, attempt, who, kind, at, tuple(reasons))
        for decision, attempt, who, kind, at, reasons in rows
    ]


_COLUMNS = ("decision", "attempt", "stage", "check", "passed", "hard", "verifier", "reasons")
_ROWS = """
SELECT
    decision, attempt, coalesce(stage, "check") AS who,
    CASE WHEN stage IS NOT NULL THEN 'stage' WHEN verifier THEN 'verifier' ELSE 'check' END,
    "at" / 1e9, reasons
FROM event
WHERE (type = 'proposal_rejected' OR (type = 'check_judged' AND hard AND NOT passed))
    AND $check IN ('', who)
ORDER BY seq
"""


def by_reason(found: list[Rejection]) -> list[tuple[str, str, int]]:
    """Count rejections by check and reason, numbers masked, the most frequent first."""
    counts = Counter(
        (one.check, masked(reason)) for one in found for reason in one.reasons or ("",)
    )
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(check, reason, count) for (check, reason), count in ranked]
