"""From a run's ledger to its figures, at a speed that does not make one wait for a long run."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from ..campaign import CampaignSpec
from ..collector import collector_at_rest
from . import gate_tallies, job_tallies
from .database import Database
from .figures import POOR_RANK, Ending, SlotUse, Summary, VerifierCount
from .recorded import recorded_spec
from .views import COLUMNS, make_tables

MANY_REPEATS = 3
"""Re-asks with the same value from which on repeating is worth a warning."""
BUSY = 0.5
"""Share of busy slots below which idling is worth a warning."""

_COLUMNS = (*COLUMNS, "run", "campaign", "rule", "reason", "failed")


def summarise(run_dir: str | Path) -> Summary:
    """Count a run. One that is still going on can be counted too.

    Args:
        run_dir: The run's directory, which holds its `ledger` folder.

    Raises:
        LedgerError: There is no ledger in it, it is damaged, or its campaign is none that this
            version knows.
    """
    with Database.of(run_dir, *_COLUMNS) as run, collector_at_rest():
        make_tables(run)
        return _summary(run, run_dir)


def _summary(run: Database, run_dir: str | Path) -> Summary:
    spec = recorded_spec(run, run_dir)
    ending = _ending(run)
    node_h = job_tallies.node_hours(run, spec.stop.node_h if spec else 0.0)
    with ThreadPoolExecutor(1) as beside:  # while this thread lays jobs on lanes
        counted = beside.submit(_verifiers, run, spec)
        slots = job_tallies.slots(run)
        reasks, transitions = gate_tallies.reasks(run)
        checks = gate_tallies.checks(run)
        verifiers = counted.result()
    input_tokens, output_tokens = run.row(
        "SELECT coalesce(sum(input_tokens), 0)::BIGINT, coalesce(sum(output_tokens), 0)::BIGINT "
        "FROM attempt"
    )
    name, campaign, started_at, wall_s, lives = run.row(_RUN)
    return Summary(
        run=name,
        campaign=campaign,
        title=spec.campaign.title if spec else "",
        ending=ending,
        started_at=started_at,
        wall_s=wall_s,
        lives=lives,
        decisions=_counts(run, "if(waits, 'parked', coalesce(disposition, 'open'))", "decision"),
        causes=_counts(run, "cause", "decision WHERE disposition = 'fallback'"),
        attempts=_counts(run, "outcome", "attempt"),
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        checks=checks,
        asks=tuple(gate_tallies.asks(run)),
        reasks=reasks,
        transitions=transitions,
        jobs=_counts(run, "if(job IN (FROM waiting), 'parked', outcome)", "job"),
        held=_counts(run, "cause", "event WHERE type = 'candidate_held'"),
        best=job_tallies.best(run, spec) if spec else None,
        slots=slots,
        node_h=node_h,
        saved=job_tallies.saved(run, node_h.verifiers),
        verifiers=verifiers,
        failures=_counts(run, "kind || ': ' || what", "event WHERE type = 'failure_recorded'"),
        warnings=tuple(_warnings(ending, verifiers, reasks, slots)),
    )


def _verifiers(run: Database, spec: CampaignSpec | None) -> tuple[VerifierCount, ...]:
    return tuple(job_tallies.verifiers(run, spec.space)) if spec else ()


_RUN = """
SELECT
    coalesce(max(run) FILTER (type = 'segment_opened'), ''),
    coalesce(max(campaign) FILTER (type = 'run_started'), ''),
    coalesce(max("at") FILTER (type = 'run_started') / 1e9, 0.0),
    coalesce((SELECT sum(ended_at - started_at) FROM life), 0.0),
    count(*) FILTER (type = 'segment_opened')
FROM event WHERE type IN ('segment_opened', 'run_started')
"""


def _counts(run: Database, word: str, table: str) -> dict[str, int]:
    """Count words, the most frequent first, equal ones by the alphabet."""
    return dict(
        run.rows(
            f"SELECT {word} AS word, count(*) AS n FROM {table} GROUP BY 1 ORDER BY n DESC, word"
        )
    )


_LAST_LIFE = """
SELECT
    arg_max(type, seq) FILTER (type <> 'segment_closed'),
    arg_max(rule, seq) FILTER (type = 'run_stopped'),
    arg_max(reason, seq) FILTER (type <> 'segment_closed'),
    arg_max(failed, seq) FILTER (type = 'run_stopped'),
    count(*) FILTER (type = 'segment_closed')
FROM event
WHERE type IN ('run_stopped', 'run_suspended', 'segment_closed')
    AND seq > (SELECT max(seq) FROM event WHERE type = 'segment_opened')
"""


def _ending(run: Database) -> Ending:
    (at,) = run.row('SELECT coalesce(max("at") / 1e9, 0.0) FROM event')
    if not at:
        return Ending("empty", "", "nothing was recorded", at)
    how, rule, reason, failed, closed = run.row(_LAST_LIFE)
    match how:
        case "run_stopped":
            return Ending("failed" if failed else "stopped", rule, reason, at)
        case "run_suspended":
            return Ending("suspended", "", reason, at)
        case _ if closed:
            return Ending("closed", "", "its runner ended in order, on an error", at)
        case _:
            return Ending("open", "", "it runs still, or its runner was killed", at)


def _warnings(
    ending: Ending,
    verifiers: Iterable[VerifierCount],
    reasks: Mapping[str, int],
    slots: SlotUse,
) -> Iterator[str]:
    if ending.how == "failed":
        yield f"Failures ended the run: {ending.reason}"
    for verifier in verifiers:
        for rank in verifier.ranks:
            if rank.poor:
                yield (
                    f"Verifier {verifier.name!r} does not rank {rank.observable} as the jobs do: "
                    f"Spearman {rank.spearman:.2f} over {rank.pairs} pairs, below {POOR_RANK}. "
                    "Node-hours are being spent blind."
                )
    repeated, after = reasks.get("repeated", 0), sum(reasks.values())
    if repeated >= MANY_REPEATS and repeated > after / 4:
        yield (
            f"{repeated} of {after} re-asks brought the same value again. "
            "Raise producer.temperature_step."
        )
    if ending.how != "open" and slots.busy_share is not None and slots.busy_share < BUSY:
        yield f"The slots were busy only {slots.busy_share:.0%} of the time."
