"""What a run's gate did, counted: verdicts, reasons, and what became of asking again."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from .database import Database
from .figures import AskCount, CheckCount, Judged, ReasonCount, Transition
from .proposals import identity_of
from .stats import counted, masked, wilson

REASONS = 5
"""Most frequent reasons that are told of each check."""


def checks(run: Database) -> tuple[CheckCount, ...]:
    """Count verdicts: the producer's own stages first, then checks in the order of the gate."""
    return (*_stages(run), *_checks(run))


def _stages(run: Database) -> Iterator[CheckCount]:
    """Count answers that the producer rejected itself, so that no check saw them."""
    judged = run.rows(
        "SELECT attempt, count(*) FROM attempt WHERE checks > 0 OR len(rejected_by) > 0 "
        "GROUP BY 1 ORDER BY 1"
    )
    rejected: defaultdict[str, Counter[int]] = defaultdict(Counter)
    for stage, attempt, count in run.rows(
        "SELECT stage, attempt, count(*) FROM attempt WHERE checks = 0 AND stage IS NOT NULL "
        "GROUP BY ALL ORDER BY ALL"
    ):
        rejected[stage][attempt] = count
    reasons = _reasons(
        run,
        "SELECT stage, reasons, count(*) FROM attempt WHERE checks = 0 AND stage IS NOT NULL "
        "GROUP BY ALL ORDER BY min((decision, attempt))",
    )
    for stage, counts in rejected.items():
        by_attempt = tuple(Judged(number, count, counts[number]) for number, count in judged)
        yield CheckCount(stage, "stage", by_attempt, reasons[stage], 0.0, 0.0)


def _checks(run: Database) -> Iterator[CheckCount]:
    by_attempt: defaultdict[str, list[Judged]] = defaultdict(list)
    for check, *counts in run.rows(
        'SELECT "check", attempt, count(*), count(*) FILTER (NOT passed) FROM event '
        "WHERE type = 'check_judged' GROUP BY ALL ORDER BY ALL"
    ):
        by_attempt[check].append(Judged(*counts))
    reasons = _reasons(
        run,
        'SELECT "check", reasons, count(*) FROM event '
        "WHERE type = 'check_judged' AND NOT passed "
        "GROUP BY ALL ORDER BY min((decision, attempt, seq))",
    )
    for check, kind, elapsed_s, node_h in run.rows(_IN_ORDER):
        yield CheckCount(check, kind, tuple(by_attempt[check]), reasons[check], elapsed_s, node_h)


_IN_ORDER = """
WITH verdict AS (
    SELECT *, row_number() OVER (PARTITION BY decision, attempt ORDER BY seq) AS place
    FROM event WHERE type = 'check_judged'
)
SELECT
    "check",
    arg_min(if(verifier, 'verifier', if(hard, 'check', 'soft')), seq),
    fsum(elapsed_s), fsum(node_h)
FROM verdict GROUP BY 1 ORDER BY max(place), min(seq)
"""


def _reasons(run: Database, query: str) -> Mapping[str, tuple[ReasonCount, ...]]:
    """Count reasons by who gave them; the query gives both and how often, oldest first."""
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    examples: dict[tuple[str, str], str] = {}
    for name, reasons, count in run.rows(query):
        for reason in reasons or ():
            template = masked(reason)
            counts[name][template] += count
            examples.setdefault((name, template), reason)
    found: defaultdict[str, tuple[ReasonCount, ...]] = defaultdict(tuple)
    for name, templates in counts.items():
        ranked = list(counted(templates).items())[:REASONS]
        found[name] = tuple(ReasonCount(t, examples[name, t], count) for t, count in ranked)
    return found


def asks(run: Database) -> Iterator[AskCount]:
    """Count how attempts fared, by their number."""
    for attempt, asked, accepted in run.rows(
        "SELECT attempt, count(*), count(*) FILTER (outcome = 'accepted') FROM attempt "
        "GROUP BY 1 ORDER BY 1"
    ):
        yield AskCount(attempt, asked, accepted, *wilson(accepted, asked))


# Proposals whose text tells what is to know of them, alike or beside the point, are left out.
_REASKED = """
WITH
    row AS (
        SELECT
            outcome, rejected_by, proposal, lead(outcome) OVER decision AS then_outcome,
            lead(rejected_by) OVER decision AS then_rejected_by, lead(proposal) OVER decision AS again
        FROM attempt WINDOW decision AS (PARTITION BY decision ORDER BY attempt)
    ),
    reasked AS (
        SELECT *, then_outcome <> 'rejected' OR proposal IS NOT DISTINCT FROM again AS known
        FROM row WHERE outcome = 'rejected' AND then_outcome IS NOT NULL
    )
SELECT
    rejected_by, then_outcome, then_rejected_by,
    if(known, NULL, proposal), if(known, NULL, again), count(*)
FROM reasked GROUP BY ALL
"""


def reasks(run: Database) -> tuple[Mapping[str, int], tuple[Transition, ...]]:
    """Count what followed a rejection: over all, and by the check that had rejected."""
    everywhere: Counter[str] = Counter()
    by_check: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one, outcome, other, proposal, again, count in run.rows(_REASKED):
        word = _followed(one, outcome, other, proposal, again)
        everywhere[word] += count
        for check in set(one):
            by_check[check][word] += count
    ranked = sorted(by_check.items(), key=lambda item: (-item[1].total(), item[0]))
    return counted(everywhere), tuple(Transition(check, counted(c)) for check, c in ranked)


def _followed(
    one: Sequence[str], outcome: str, other: Sequence[str], proposal: str, again: str
) -> str:
    """Say how an attempt ended that followed a rejected one; see `Summary.reasks`."""
    if outcome == "accepted":
        return "accepted"
    if outcome != "rejected":
        return "unjudged"
    if proposal == again or _identity(proposal) == _identity(again):
        return "repeated"
    return "same_check" if {*one} & {*other} else "other_check"


def _identity(proposal: str | None) -> str:
    return identity_of(None if proposal is None else json.loads(proposal))
