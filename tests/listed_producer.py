"""Producers for tests of the runner that need more than one line of script."""

from __future__ import annotations

from typing import Any

from batchgate.answer import Answer
from batchgate.campaign import Campaign, Proposal


class Listed:
    """Proposes lists of points in turn, and from the end of the list on 2.0, 2.1, and so on."""

    name = "listed"

    def __init__(self, campaign: Campaign, *points: list[float]) -> None:
        self.campaign = campaign
        self.points = list(points)
        self.more = 0

    async def propose(self, **_: Any) -> Answer:
        """Return the next proposal."""
        if self.points:
            xs = self.points.pop(0)
        else:
            self.more += 1
            xs = [1.9 + self.more / 10]
        return Answer(Proposal(candidates=[self.campaign.candidate_model(x=x) for x in xs]))

    async def aclose(self) -> None:
        """Do nothing."""
