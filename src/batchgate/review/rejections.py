"""What was rejected in a run, by which check, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from .scan import Raw, scan
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
    found = map(_rejection, _raw(run_dir))
    return [one for one in found if not check or one.check == check]


def _raw(run_dir: str | Path) -> Iterator[Raw]:
    for raw in scan(run_dir, {"check_judged", "proposal_rejected"}, sieve=_may_reject):
        if raw["type"] == "proposal_rejected" or (raw["hard"] and not raw["passed"]):
            yield raw


def _may_reject(line: bytes) -> bool:
    return b'"passed":true,"hard"' not in line


def _rejection(raw: Raw) -> Rejection:
    stage = raw["type"] == "proposal_rejected"
    return Rejection(
        decision=raw["decision"],
        attempt=raw["attempt"],
        check=raw["stage" if stage else "check"],
        kind="stage" if stage else "verifier" if raw["verifier"] else "check",
        at=raw["at"],
        reasons=tuple(raw["reasons"]),
    )


def by_reason(found: list[Rejection]) -> list[tuple[str, str, int]]:
    """Count rejections by check and reason, numbers masked, the most frequent first."""
    counts = Counter(
        (one.check, masked(reason)) for one in found for reason in one.reasons or ("",)
    )
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    return [(check, reason, count) for (check, reason), count in ranked]
