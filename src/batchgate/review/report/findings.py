"""What a report is made of: a run's record and the figures taken from it, in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from ...events import Entry
from ..card import Campaigns, ReportCard, judged
from ..figures import Summary
from ..hours import Hours, Meter
from ..leads import Lead, leads
from ..record import RunRecord, open_run
from ..summary import summarise


@dataclass(frozen=True, slots=True)
class Findings:
    """What is known of a run. Make it with `Findings.read` or `Findings.of`.

    Attributes:
        record: Its rows.
        figures: Its counts and shares.
        hours: Where its node-hours went.
        card: How its gate did.
        leads: Where to look first.
    """

    record: RunRecord
    figures: Summary
    hours: Hours
    card: ReportCard
    leads: tuple[Lead, ...]

    @classmethod
    def of(cls, entries: Iterable[Entry]) -> Findings:
        """Take findings from a run's entries, oldest first."""
        return cls._from(lambda through: RunRecord.of(through(entries)))

    @classmethod
    def read(cls, run_dir: str | Path) -> Findings:
        """Take findings from a run's directory.

        Raises:
            LedgerError: There is no ledger, or it is damaged.
        """
        return cls._from(lambda through: open_run(run_dir, through=through))

    @classmethod
    def _from(
        cls, read: Callable[[Callable[[Iterable[Entry]], Iterable[Entry]]], RunRecord]
    ) -> Findings:
        meter, campaigns = Meter(), Campaigns()
        record = read(lambda entries: campaigns.watch(meter.watch(entries)))
        return cls(
            record=record,
            figures=summarise(record),
            hours=meter.hours(),
            card=judged(record, campaigns),
            leads=leads(record),
        )
