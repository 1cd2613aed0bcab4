"""What a run's jobs did, counted: the best result, node-hours, slots, verifiers."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator

from ..campaign import CampaignSpec, Space
from .database import Database
from .figures import Best, IdleGap, NodeHours, Rank, Saved, SlotUse, VerifierCount
from .occupancy import Held, Occupancy
from .proposals import fingerprint_of

GAPS = 5
"""Longest idle gaps that are told."""
MIN_PAIRS = 3
"""Pairs below which a rank correlation says nothing."""


def best(run: Database, spec: CampaignSpec) -> Best | None:
    """Return the best feasible result; the earlier one of equal ones."""
    objective, minimise = spec.objective
    pick, direction = ("min", "ASC") if minimise else ("max", "DESC")
    run.make(
        "feasible",
        'SELECT job, source, settled_at, judged_seq, ("values" ->> $objective)::DOUBLE AS value '
        "FROM job WHERE feasible",
        objective=_pointer(objective),
    )
    found = run.rows(
        'SELECT job, decision, job.source, candidate, "values", value '
        f"FROM feasible JOIN job USING (job, judged_seq) ORDER BY value {direction}, judged_seq LIMIT 1"
    )
    if not found:
        return None
    job, decision, source, candidate, values, value = found[0]
    first, of_model, of_surrogate = run.row(
        f"SELECT arg_min(value, settled_at), {pick}(value) FILTER (source = 'model'), "
        f"{pick}(value) FILTER (source = 'surrogate') FROM feasible"
    )
    return Best(
        job=job,
        decision=decision,
        source=source,
        objective=objective,
        minimise=minimise,
        value=value,
        first=first,
        of_model=of_model,
        of_surrogate=of_surrogate,
        candidate=json.loads(candidate),
        units={name: one.unit for name, one in spec.variables.items() if one.unit},
        values=json.loads(values),
    )


def _pointer(name: str) -> str:
    """Return the JSON pointer of a key (RFC 6901)."""
    return "/" + name.replace("~", "~0").replace("/", "~1")


def slots(run: Database) -> SlotUse:
    """Tell how busy the slots were."""
    lives = [Held(*row) for row in run.rows(_LIVES)]
    use = Occupancy.laid(run.rows(_BARS), lives)
    gaps = (IdleGap(gap.lane + 1, gap.start_at, gap.length_s) for gap in use.longest(GAPS))
    most = max((life.slots for life in lives), default=0)
    return SlotUse(most, use.held_s, use.busy_s, use.busy_share, tuple(gaps))


_LIVES = "SELECT number, started_at, ended_at, slots FROM life ORDER BY number"
_BARS = """
SELECT
    if(settled_at IS NULL, planned_at, started_at),
    if(settled_at IS NULL, (SELECT max("at") / 1e9 FROM event), greatest(started_at, ended_at)), NULL
FROM job WHERE settled_at IS NULL OR started_at > 0 ORDER BY 1, 2
"""


def node_hours(run: Database, granted: float) -> NodeHours:
    """Tell where the node-hours went."""
    charged, reserved, model, surrogate = run.row(
        "SELECT coalesce(fsum(charged_node_h), 0), "
        "coalesce(sum(reserved_node_h) FILTER (settled_at IS NULL), 0), "
        "coalesce(fsum(charged_node_h) FILTER (source = 'model'), 0), "
        "coalesce(fsum(charged_node_h) FILTER (source = 'surrogate'), 0) FROM job"
    )
    by_outcome = run.rows(
        "SELECT outcome, fsum(charged_node_h) FROM job WHERE charged_node_h > 0 "
        "GROUP BY 1 ORDER BY 1"
    )
    return NodeHours(
        granted=granted,
        charged=charged,
        reserved=reserved,
        free=granted - charged - reserved,
        verifiers=_verifier_node_h(run),
        by_outcome=dict(by_outcome),
        model=model,
        surrogate=surrogate,
    )


def _verifier_node_h(run: Database) -> float:
    """Return the node-hours that verifiers used."""
    used: float
    (used,) = run.row(
        "SELECT coalesce(fsum(node_h), 0) FROM event WHERE type = 'check_judged' AND verifier"
    )
    return used


def saved(run: Database, verifiers_node_h: float) -> Saved | None:
    """Estimate what the gate saved; `None` while no job has ended."""
    ended, mean_node_h = run.row(
        "SELECT count(*), avg(charged_node_h) FROM job WHERE settled_at IS NOT NULL"
    )
    if not ended:
        return None
    (stopped,) = run.row(
        "SELECT count(*) FROM ("
        "SELECT DISTINCT unnest(refused) AS fingerprint FROM event "
        "WHERE type = 'check_judged' AND hard"
        ") ANTI JOIN job USING (fingerprint)"
    )
    return Saved(stopped=stopped, job_node_h=mean_node_h, cost_node_h=verifiers_node_h)


def verifiers(run: Database, space: Space) -> Iterator[VerifierCount]:
    """Put verdicts of verifiers beside the results of the jobs."""
    _pair(run, space)
    names = [name for (name,) in run.rows(_MEASURED)]
    for verifier, good, bad, unknown, refused_good, refused_bad, refused_unknown in run.rows(
        _CONFUSION
    ):
        ranks = (_rank(run, verifier, name) for name in names)
        yield VerifierCount(
            name=verifier,
            passed_good=good,
            passed_bad=bad,
            passed_unknown=unknown,
            refused_good=refused_good,
            refused_bad=refused_bad,
            refused_unknown=refused_unknown,
            ranks=tuple(rank for rank in ranks if rank.pairs),
        )


# A candidate that was let through as it stands has its fingerprint beside it; for the others it is
# worked out here.
_VERIFIED = """
WITH
    said AS (SELECT decision, attempt, others FROM event WHERE type = 'proposal_made'),
    judged AS (
        SELECT
            decision, "check", seq, passed, refused,
            CASE WHEN json_valid(observables) THEN observables::JSON[] END AS observables,
            CASE WHEN sample > 1
                THEN json_extract(said.others, '/' || (sample - 2)) ELSE proposal
            END AS proposal
        FROM (SELECT * EXCLUDE (proposal, others) FROM event WHERE type = 'check_judged' AND verifier)
        JOIN (SELECT decision, attempt, proposal FROM attempt) USING (decision, attempt)
        LEFT JOIN said USING (decision, attempt)
    ),
    listed AS (
        SELECT *, json_extract(proposal, '/candidates')::JSON[] AS candidates
        FROM judged WHERE json_type(proposal, '/candidates') = 'ARRAY'
    ),
    placed AS (SELECT *, unnest(generate_series(1, len(candidates))) AS place FROM listed)
SELECT
    "check", seq, passed, refused, observables[place] AS measured,
    candidates[place]::VARCHAR AS candidate, any_value(chosen.fingerprint) AS fingerprint
FROM placed
LEFT JOIN chosen ON chosen.decision = placed.decision AND chosen.candidate = candidates[place]
WHERE json_type(candidates[place]) = 'OBJECT'
GROUP BY ALL
"""

# The last result of a candidate counts; one that was rejected is not good, and measured nothing.
_PAIR = """
WITH
    result AS (
        SELECT
            fingerprint, arg_max(feasible, seq) AS good,
            arg_max(coalesce("values", '{}'), seq) AS found
        FROM job WHERE "values" IS NOT NULL OR invalid GROUP BY 1
    )
SELECT
    verified."check", verified.seq, measured, good, found,
    passed OR (len(refused) > 0 AND NOT list_contains(refused, print)) AS passed
FROM (
    SELECT verified.*, coalesce(verified.fingerprint, told.fingerprint) AS print
    FROM verified LEFT JOIN told USING (candidate)
) AS verified
LEFT JOIN result ON result.fingerprint = print
"""

_CONFUSION = """
SELECT
    "check",
    count(*) FILTER (passed AND good), count(*) FILTER (passed AND NOT good), count(*) FILTER (passed AND good IS NULL),
    count(*) FILTER (NOT passed AND good), count(*) FILTER (NOT passed AND NOT good),
    count(*) FILTER (NOT passed AND good IS NULL)
FROM pair GROUP BY 1 ORDER BY min(seq)
"""

_MEASURED = "SELECT DISTINCT unnest(json_keys(found)) AS name FROM pair ORDER BY name"

# Pearson's coefficient of the ranks, equal values sharing their mean rank: Spearman (1904), Am. J.
# Psychol. 15, 72-101.
_SPEARMAN = """
WITH
    measurement AS (
        SELECT (measured ->> $name)::DOUBLE AS cheap, (found ->> $name)::DOUBLE AS dear
        FROM pair
        WHERE "check" = $verifier AND json_exists(found, $name)
            AND json_type(measured, $name) IN ('BIGINT', 'UBIGINT', 'DOUBLE')
    ),
    ranked AS (
        SELECT
            rank() OVER (ORDER BY cheap) + count(*) OVER (PARTITION BY cheap) / 2 AS one,
            rank() OVER (ORDER BY dear) + count(*) OVER (PARTITION BY dear) / 2 AS other
        FROM measurement
    )
SELECT count(*), corr(one, other) FROM ranked
"""


def _pair(run: Database, space: Space) -> None:
    """Make the table `pair`: a row for each candidate that a verifier judged."""
    run.make("verified", _VERIFIED)
    unknown = run.rows("SELECT DISTINCT candidate FROM verified WHERE fingerprint IS NULL")
    candidates = [candidate for (candidate,) in unknown]
    prints = [fingerprint_of(space, json.loads(candidate)) for candidate in candidates]
    run.make(
        "told",
        "SELECT unnest($one) AS candidate, unnest($other) AS fingerprint",
        one=candidates,
        other=prints,
    )
    run.make("pair", _PAIR)


def _rank(run: Database, verifier: str, name: str) -> Rank:
    pairs, spearman = run.row(_SPEARMAN, name=_pointer(name), verifier=verifier)
    known = pairs >= MIN_PAIRS and spearman is not None and math.isfinite(spearman)
    return Rank(name, pairs, spearman if known else None)
