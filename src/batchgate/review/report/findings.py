"""What a report is made of: a run's record and the figures taken from its ledger."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from ..card import Campaigns, ReportCard, judged
from ..figures import Summary
from ..hours import Hours, Meter
from ..leads import Lead, leads
from ..record import RunRecord
from ..summary import summarise


@dataclass(frozen=True, slots=True)
class Findings:
    """What is known of a run. Make it with `Findings.read`.

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
    def read(cls, run_dir: str | Path) -> Findings:
        """Take findings from a run's directory.

        Raises:
            LedgerError: There is no ledger, or it is damaged.
        """
        meter, campaigns = Meter(), Campaigns()
        record = RunRecord.read(
            run_dir, through=lambda entries: campaigns.watch(meter.watch(entries))
        )
        return cls(
            record=record,
            figures=summarise(run_dir),
            hours=meter.hours(),
            card=judged(record, campaigns),
            leads=leads(record),
        )
