"""Tables of a run beside `event`: a row an attempt, a decision, a job, a life.

They say of each what the rows of a `RunRecord` say (`batchgate.review.rows`), for counting.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from .database import Database

COLUMNS = (
    *("decision", "attempt", "proposal", "others", "value", "stage", "reasons", "input_tokens"),
    *("output_tokens", "check", "sample", "passed", "hard", "verifier", "refused", "observables"),
    *("elapsed_s", "node_h", "kind", "what", "again", "disposition", "cause", "candidates"),
    *("job", "fingerprint", "reserved_node_h", "state", "end", "started_at", "ended_at", "slots"),
    *("charged_node_h", "values", "feasible", "candidate", "spec"),
)
"""Fields of events that the tables are made of."""

# The newest question about something is the one that an answer is to.
_WAITING = """
SELECT what FROM (
    SELECT coalesce(what, job, 'D' || decision) AS what, arg_max(type, seq) AS newest
    FROM event WHERE type IN ('decision_parked', 'result_parked', 'parked_resolved') GROUP BY 1
) WHERE newest <> 'parked_resolved'
"""

_DECISION = """
SELECT
    opened.decision, opened.seq, made.seq AS closed_seq, made.cause, made.disposition, made.sample,
    'D' || opened.decision IN (FROM waiting) AS waits
FROM (SELECT * FROM event WHERE type = 'decision_opened') AS opened
LEFT JOIN (SELECT * FROM event WHERE type = 'decision_made') AS made USING (decision)
"""

# An attempt that was under way when another runner took over was interrupted, unless it had broken.
# Of the samples of an accepted answer, the one that was taken counts.
_ATTEMPT = """
WITH
    resumed AS (SELECT seq FROM event WHERE type = 'run_resumed'),
    last AS (
        SELECT decision, max(attempt) AS attempt
        FROM event WHERE type = 'attempt_started' GROUP BY ALL
    ),
    asked AS (
        SELECT
            decision, event.attempt, event.seq, opened.seq AS place, closed_seq, opened.disposition,
            event.attempt = last.attempt AS is_last,
            if(is_last AND opened.disposition = 'accepted', opened.sample, NULL) AS taken
        FROM event JOIN last USING (decision) JOIN decision AS opened USING (decision)
        WHERE type = 'attempt_started'
    ),
    answered AS (
        SELECT
            decision, attempt,
            any_value(coalesce(proposal, value)) AS proposal,
            any_value(stage) AS stage, any_value(reasons) AS reasons,
            sum(input_tokens) AS input_tokens, sum(output_tokens) AS output_tokens
        FROM event WHERE type IN ('proposal_made', 'proposal_rejected') GROUP BY ALL
    ),
    broken AS (
        SELECT decision, attempt, min(seq) AS seq
        FROM event WHERE type = 'failure_recorded' AND NOT again GROUP BY ALL
    ),
    judged AS (
        SELECT decision, attempt, count(*) AS checks
        FROM event WHERE type = 'check_judged' GROUP BY ALL
    ),
    refused AS (
        SELECT
            decision, attempt, list("check" ORDER BY event.seq) AS checks,
            flatten(list(reasons ORDER BY event.seq)) AS reasons
        FROM event JOIN asked USING (decision, attempt)
        WHERE type = 'check_judged' AND hard AND NOT passed
            AND event.sample = coalesce(taken, event.sample)
        GROUP BY ALL
    ),
    row AS (
        SELECT
            decision, attempt, place, taken, proposal, stage, is_last, disposition,
            coalesce(input_tokens, 0) AS input_tokens, coalesce(output_tokens, 0) AS output_tokens,
            coalesce(judged.checks, 0) AS checks,
            coalesce(refused.checks, if(stage IS NULL, [], [stage])) AS rejected_by,
            coalesce(refused.reasons, answered.reasons) AS reasons,
            broken.seq IS NOT NULL AS failed,
            EXISTS (
                FROM resumed WHERE resumed.seq > asked.seq
                    AND resumed.seq < coalesce(least(closed_seq, broken.seq), resumed.seq + 1)
            ) AS interrupted
        FROM asked
        LEFT JOIN answered USING (decision, attempt)
        LEFT JOIN judged USING (decision, attempt)
        LEFT JOIN refused USING (decision, attempt)
        LEFT JOIN broken USING (decision, attempt)
    )
SELECT *,
    CASE
        WHEN len(rejected_by) > 0 THEN 'rejected'
        WHEN interrupted OR (is_last AND disposition = 'abandoned') THEN 'interrupted'
        WHEN is_last AND disposition = 'accepted' THEN 'accepted'
        WHEN is_last AND disposition IS NULL AND NOT failed THEN 'open'
        ELSE 'failed'
    END AS outcome
FROM row
"""

_CHOSEN = """
SELECT
    decision, one ->> 'fingerprint' AS fingerprint, one -> 'candidate' AS candidate,
    (one ->> 'audit_probability')::DOUBLE AS audit_probability
FROM (
    SELECT decision, unnest(candidates::JSON[]) AS one FROM event WHERE type = 'decision_made'
)
"""

_JOB = """
WITH
    audit AS (SELECT decision, fingerprint FROM chosen WHERE audit_probability > 0),
    row AS (
        SELECT
            job, plan.seq, plan."at" / 1e9 AS planned_at, plan.decision, plan.fingerprint,
            plan.candidate, plan.reserved_node_h, ended."at" / 1e9 AS settled_at, ended.state,
            ended."end", ended.started_at, ended.ended_at,
            coalesce(ended.charged_node_h, 0) AS charged_node_h, found."values", found.seq AS judged_seq,
            coalesce(found.feasible, FALSE) AS feasible, len(bad.reasons) > 0 AS invalid,
            if(decision.disposition = 'accepted' OR audit.decision IS NOT NULL, 'model', 'surrogate')
                AS source
        FROM (SELECT * FROM event WHERE type = 'job_planned') AS plan
        LEFT JOIN (SELECT * FROM event WHERE type = 'job_ended') AS ended USING (job)
        LEFT JOIN (SELECT * FROM event WHERE type = 'result_accepted') AS found USING (job)
        LEFT JOIN (SELECT * FROM event WHERE type = 'result_rejected') AS bad USING (job)
        LEFT JOIN decision ON decision.decision = plan.decision
        LEFT JOIN audit ON audit.decision = plan.decision
            AND audit.fingerprint = plan.fingerprint
    )
SELECT *,
    CASE
        WHEN "values" IS NOT NULL THEN if(feasible, 'feasible', 'infeasible')
        WHEN invalid THEN 'invalid'
        WHEN "end" IS NULL THEN 'running'
        WHEN state = 'completed' THEN 'unjudged'
        WHEN "end" = 'completed' THEN 'no_result'
        ELSE "end"
    END AS outcome
FROM row
"""

_LIFE = """
SELECT
    row_number() OVER (ORDER BY opened.seq) AS number, opened."at" / 1e9 AS started_at,
    last."at" / 1e9 AS ended_at,
    coalesce((
        SELECT arg_max(slots, seq) FROM event
        WHERE type IN ('run_started', 'run_resumed') AND seq BETWEEN opened.seq AND last.seq
    ), 0) AS slots
FROM (
    SELECT seq, "at", coalesce(lead(seq) OVER (ORDER BY seq) - 1, (SELECT max(seq) FROM event)) AS newest
    FROM event WHERE type = 'segment_opened'
) AS opened
JOIN event AS last ON last.seq = opened.newest
"""


def make_tables(run: Database) -> None:
    """Make the tables `waiting`, `decision`, `attempt`, `chosen`, `job` and `life`."""
    run.make("waiting", _WAITING)
    run.make("decision", _DECISION)
    with ThreadPoolExecutor(1) as beside:
        attempts = beside.submit(run.make, "attempt", _ATTEMPT)
        run.make("chosen", _CHOSEN)
        run.make("job", _JOB)
        run.make("life", _LIFE)
        attempts.result()
