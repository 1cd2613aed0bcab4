"""Rejected candidates that are launched all the same, so that a check's errors become known.

Who is drawn follows from the campaign's seed and the candidate alone: neither its rank nor the
time matters, so that the probability is what the record says, and a resumed run draws the same.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..campaign import Campaign, Candidate
from ..events import Chosen
from ..state import Past, State
from .twins import Twins


def drawn(campaign: Campaign, state: State, number: int, chosen: Sequence[Chosen]) -> list[Chosen]:
    """Draw from the rejected candidates of a decision that is about to be closed.

    Args:
        campaign: Says how many may be launched, and which never.
        state: The run.
        number: The decision.
        chosen: What it lets through; none of these is drawn.
    """
    audit, job = campaign.spec.audit, campaign.spec.job
    if not audit.share:
        return []
    found: dict[str, Chosen] = {}
    left_node_h = audit.node_h - state.audit_node_h
    taken = {one.fingerprint for one in chosen}
    for past in state.decisions[number].attempts:
        for fingerprint, candidate in _refused(campaign, past):
            if left_node_h < job.node_h:
                return list(found.values())
            if fingerprint in taken or not _wins(campaign, fingerprint):
                continue
            taken.add(fingerprint)
            if _safe(campaign, state, candidate):
                left_node_h -= job.node_h
                found[fingerprint] = Chosen(
                    fingerprint=fingerprint,
                    candidate=dict(candidate),
                    audit_probability=audit.share,
                )
    return list(found.values())


def _refused(campaign: Campaign, past: Past) -> Iterator[tuple[str, Candidate]]:
    for proposal in (past.proposal, *past.others):
        for candidate in proposal.get("candidates", ()) if _is_proposal(proposal) else ():
            if any(campaign.space.problems(candidate)):
                continue
            fingerprint = campaign.space.fingerprint(candidate)
            if fingerprint in past.refused:
                yield fingerprint, candidate


def _is_proposal(value: Any) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("candidates"), (list, tuple))


def _wins(campaign: Campaign, fingerprint: str) -> bool:
    seed = f"audit {campaign.spec.campaign.seed} {fingerprint}"
    return random.Random(seed).random() < campaign.spec.audit.share  # noqa: S311 - no secret


def _safe(campaign: Campaign, state: State, candidate: Candidate) -> bool:
    """Whether neither a safety check nor a twin forbids it."""
    known = {f: k for f, k in state.known.items() if k.where != "refused"}
    if Twins(campaign, known).problem(candidate) is not None:
        return False
    inputs = campaign.inputs(candidate)
    never = [check for check in campaign.checks if check.name in campaign.spec.audit.never]
    return not any(check.judge(inputs).reasons for check in never)
