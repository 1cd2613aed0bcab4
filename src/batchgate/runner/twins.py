"""Whether a candidate is known already: evaluated, running, waiting, refused or broken."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..campaign import Campaign, Candidate
from ..state import Known, State

_TOLD = {
    "chosen": "was let through and waits for a slot",
    "running": "is running",
    "finished": "has its result already",
    "failed": "was run and gave no valid result",
    "refused": "was refused by a verifier",
}


@dataclass(frozen=True, slots=True)
class Twins:
    """The known candidates at one moment.

    A snapshot, because a surrogate searches in a thread while the run goes on.

    Attributes:
        campaign: Says when two candidates are the same.
        known: Fingerprint to candidate.
    """

    campaign: Campaign
    known: dict[str, Known]

    @classmethod
    def now(cls, campaign: Campaign, state: State, claimed: Iterable[Candidate] = ()) -> Twins:
        """Take the state's known candidates, and those that are about to become known."""
        known = dict(state.known)
        for candidate in claimed:
            fingerprint = campaign.space.fingerprint(candidate)
            known.setdefault(fingerprint, Known(candidate, "chosen", "the surrogate's batch"))
        return cls(campaign, known)

    def problem(self, candidate: Candidate) -> str | None:
        """Name the candidate's twin, in words the producer can act on, or return `None`."""
        space = self.campaign.space
        twin = self.known.get(space.fingerprint(candidate))
        if twin is not None:
            return f"repeats {twin.name}, which {_TOLD[twin.where]}; choose another point"
        tolerance = self.campaign.spec.duplicates.tolerance
        if not tolerance:
            return None
        for twin in self.known.values():
            if space.distance(candidate, twin.candidate) <= tolerance:
                return (
                    f"lies within {tolerance:.2g} of the range of {twin.name} in every variable, "
                    f"which {_TOLD[twin.where]}; move further away"
                )
        return None

    def in_flight(self) -> list[Candidate]:
        """Return the candidates whose results are still to come."""
        return [k.candidate for k in self.known.values() if k.where in {"chosen", "running"}]

    def has(self, candidate: Candidate) -> bool:
        """Whether the candidate has a twin."""
        return self.problem(candidate) is not None
