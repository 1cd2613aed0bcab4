"""What other checks would have done: the proposals of a run, judged by another campaign's gate.

Only what is known is told. A refusal is certain: the proposal is there, and so is what the
verifiers measured of it. What would have been proposed in its place nobody knows, and it is
counted as unknown, never guessed.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from .. import ledger
from ..campaign import Campaign, CampaignSpec, Proposal, Value
from ..errors import ConfigError, LedgerError
from ..events import CheckJudged, Chosen, DecisionMade, Entry, Plain, ProposalMade
from ..review.record import RunRecord
from ..review.rows import AttemptRow, DecisionRow, JobRow
from ..state import Known, State
from .gate import Gate, NotHere


@dataclass(frozen=True, slots=True)
class Stopped:
    """A candidate that was launched and would not have been.

    Attributes:
        decision: Number of the decision that let it through.
        fingerprint: Its identity.
        candidate: Its values.
        by: Check or verifier that refuses its proposal; `schema` when it does not fit the other
            campaign's space; `earlier` when an earlier proposal of the decision would have been
            taken.
        reason: Why.
        outcome: What its last job came to, as `JobRow.outcome` has it.
        charged_node_h: Node-hours that all its jobs were charged.
    """

    decision: int
    fingerprint: str
    candidate: Mapping[str, Value]
    by: str
    reason: str
    outcome: str
    charged_node_h: float


@dataclass(frozen=True, slots=True)
class Added:
    """A candidate that was refused and would have been launched. Nobody knows its result.

    Attributes:
        decision: Number of the decision.
        attempt: Number of the attempt that proposed it.
        fingerprint: Its identity.
        candidate: Its values.
    """

    decision: int
    attempt: int
    fingerprint: str
    candidate: Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Against:
    """A run, decided once more by other checks. Make it with `decide_against`.

    Attributes:
        run: The run's name.
        digest: Digest of the other campaign.
        decisions: Decisions that were decided once more.
        launched: Candidates that were launched.
        stopped: Those that would not have been.
        added: Those that would have been launched instead.
        saved_node_h: Node-hours that the jobs of the stopped ones were charged.
        good_lost: Stopped ones whose result is feasible.
        bad_stopped: Stopped ones whose result is not, or that gave none.
        best: The best feasible objective of the run; `None` without one.
        best_kept: The best among those that would have been launched all the same.
        unknown: By decision, what would have followed and cannot be known.
    """

    run: str
    digest: str
    decisions: int
    launched: int
    stopped: tuple[Stopped, ...]
    added: tuple[Added, ...]
    saved_node_h: float
    good_lost: int
    bad_stopped: int
    best: float | None
    best_kept: float | None
    unknown: Mapping[int, str]

    def to_json(self) -> str:
        """Return it as strict JSON, one object, keys named like the attributes."""
        return json.dumps(asdict(self), indent=2, allow_nan=False)


async def decide_against(run_dir: str | Path, campaign: Campaign) -> Against:
    """Decide a run once more with another campaign's space, checks and thresholds.

    A proposal that the other gate refuses takes all its candidates with it, as in a run.

    Args:
        run_dir: The run's directory.
        campaign: The other campaign; it must have the run's variables.

    Raises:
        ConfigError: It has other variables, or another objective.
        LedgerCorruptError: The ledger was damaged; the error says where.
        LedgerError: There is no ledger, or nothing was started in it.
    """
    order = _Order()
    record = RunRecord.of(order.watch(ledger.read(ledger.folder_of(run_dir))))
    if record.spec is None:
        raise LedgerError(f"{run_dir} was never started, so there is nothing to decide again")
    _require_comparable(record.spec, campaign.spec)
    again = _Again(record, campaign)
    for kind, key in order.steps:
        if kind == "judge":
            await again.judge(*key)
        else:
            again.close(key[0])
    return again.finish()


def _require_comparable(recorded: CampaignSpec, other: CampaignSpec) -> None:
    if recorded.variables.keys() != other.variables.keys():
        raise ConfigError(
            f"the run has the variables {sorted(recorded.variables)}, the campaign "
            f"{sorted(other.variables)}; only checks, bounds and thresholds may differ"
        )
    if recorded.objective != other.objective:
        raise ConfigError(
            f"the run's objective is {recorded.objective[0]!r}, the campaign's "
            f"{other.objective[0]!r}; they must be the same"
        )


class _Order:
    """The order in which attempts met the known candidates, and decisions made some known."""

    def __init__(self) -> None:
        self._judged: dict[tuple[int, int], int] = {}
        self._closed: dict[int, int] = {}

    def watch(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Pass entries on and note what matters."""
        for entry in entries:
            match entry.event:
                case ProposalMade(decision=decision, attempt=attempt):
                    self._judged[decision, attempt] = entry.seq
                case CheckJudged(check="duplicate", decision=decision, attempt=attempt):
                    self._judged[decision, attempt] = entry.seq
                case DecisionMade(decision=decision):
                    self._closed[decision] = entry.seq
                case _:
                    pass
            yield entry

    @property
    def steps(self) -> list[tuple[Literal["judge", "close"], tuple[int, ...]]]:
        """Attempts to judge and decisions to close, in the order of the record."""
        steps: list[tuple[int, Literal["judge", "close"], tuple[int, ...]]] = [
            *((seq, "judge", key) for key, seq in self._judged.items()),
            *((seq, "close", (number,)) for number, seq in self._closed.items()),
        ]
        return [(kind, key) for _, kind, key in sorted(steps)]


@dataclass(frozen=True, slots=True)
class _Verdict:
    """What the other gate says of an attempt's proposal."""

    points: tuple[Mapping[str, Value], ...] = ()
    by: str = ""
    reason: str = ""
    unknown: str = ""

    @property
    def passed(self) -> bool:
        return not self.by and not self.unknown


class _Again:
    """A run while it is decided once more."""

    def __init__(self, record: RunRecord, campaign: Campaign) -> None:
        self.record = record
        self.campaign = campaign
        self.gate = Gate.of(campaign, State())
        self.decisions = {row.number: row for row in record.decisions}
        self.let_through = {c.fingerprint for d in record.decisions for c in _through(d)}
        self.jobs: dict[str, list[JobRow]] = {}
        for job in record.jobs:
            if job.fingerprint in self.let_through:
                self.jobs.setdefault(job.fingerprint, []).append(job)
        self.verdicts: dict[tuple[int, int], _Verdict] = {}
        self.taken: set[str] = set()
        self.stopped: list[Stopped] = []
        self.added: list[Added] = []
        self.unknown: dict[int, str] = {}
        self.decided = 0

    async def judge(self, decision: int, attempt: int) -> None:
        """Judge a proposal with the other gate, by what is known by then."""
        row = next(a for a in self.decisions[decision].attempts if a.number == attempt)
        self.verdicts[decision, attempt] = await self._verdict(row)

    async def _verdict(self, row: AttemptRow) -> _Verdict:
        """Judge the samples of an answer in order; the first that passes, or is unknown, counts."""
        verdict = _Verdict(by="schema", reason="it does not fit the campaign's space")
        for number, value in enumerate((row.proposal, *row.others), start=1):
            proposal = self.gate.proposal(value)
            if proposal is None:
                continue
            verdict = await self._of_sample(row, number, proposal)
            if not verdict.by:
                break
        return verdict

    async def _of_sample(self, row: AttemptRow, number: int, proposal: Proposal) -> _Verdict:
        unknown = ""
        judged = {check.check: check for check in row.checks if check.sample == number}
        for step in self.gate.steps(row.decision, row.number):
            measured = self._measured(judged.get(step.name))
            try:
                now = await self.gate.judge(step, proposal, measured=measured)
            except NotHere:
                unknown = unknown or f"{step.name} never judged a proposal of it"
                continue
            except Exception as exc:  # noqa: BLE001 - a campaign's own code; nothing passes
                unknown = unknown or f"{step.name} fails: {type(exc).__name__}: {exc}"
                continue
            if now.hard and not now.passed:
                self._refuse(now, proposal)
                return _Verdict(by=step.name, reason="; ".join(now.reasons))
        return _Verdict(proposal.points(), unknown=unknown)

    def _measured(self, judged: CheckJudged | None) -> tuple[Plain, ...]:
        """Return what a verifier measured, if it would measure the same now."""
        if judged is None or not judged.verifier:
            return ()
        assert self.record.spec is not None
        then, now = (
            [(v.use, v.args) for v in spec.verifiers if v.name == judged.check]
            for spec in (self.record.spec, self.campaign.spec)
        )
        return judged.observables if then == now else ()

    def _refuse(self, judged: CheckJudged, proposal: Proposal) -> None:
        if not judged.verifier:
            return
        known, space = self.gate.listener.state.known, self.campaign.space
        for point in proposal.points():
            if (fingerprint := space.fingerprint(point)) in judged.refused:
                name = f"D{judged.decision}.{judged.attempt}"
                known.setdefault(fingerprint, Known(point, "refused", name))

    def close(self, number: int) -> None:
        """Decide a decision once more, and count what it would have launched."""
        row = self.decisions[number]
        if row.disposition not in {"accepted", "fallback"}:
            return
        self.decided += 1
        refused: _Verdict | None = None
        for attempt in row.attempts:
            verdict = self.verdicts.get((number, attempt.number))
            if verdict is None:  # no proposal came of it
                continue
            if verdict.unknown:
                self.unknown[number] = verdict.unknown
                return
            if verdict.passed:
                self._take(row, attempt.number, verdict)
                return
            refused = verdict
        if row.disposition == "accepted":
            assert refused is not None
            self._stop(row, refused.by, refused.reason)
            self.unknown[number] = "another proposal would have been asked for"
        else:
            self._fall_back(row)

    def _take(self, row: DecisionRow, attempt: int, verdict: _Verdict) -> None:
        taken = {self.campaign.space.fingerprint(p): p for p in verdict.points}
        self._know(row, taken)
        self._stop(row, "earlier", f"attempt {attempt} would have been accepted", keep=taken)
        for fingerprint, point in taken.items():
            if fingerprint not in self.let_through:
                self.added.append(Added(row.number, attempt, fingerprint, point))

    def _fall_back(self, row: DecisionRow) -> None:
        """Keep the surrogate's candidates that the other checks allow too."""
        kept = {}
        for chosen in _through(row):
            try:
                problems = self.campaign.problems(chosen.candidate)
            except Exception as exc:  # noqa: BLE001 - a campaign's own code; nothing passes
                self.unknown[row.number] = f"a check fails: {type(exc).__name__}: {exc}"
                return
            if problems:
                self._stop(row, "surrogate", problems[0], only={chosen.fingerprint})
                self.unknown[row.number] = "the surrogate would have given another candidate"
            else:
                kept[chosen.fingerprint] = chosen.candidate
        self._know(row, kept)

    def _know(self, row: DecisionRow, candidates: Mapping[str, Mapping[str, Value]]) -> None:
        known = self.gate.listener.state.known
        for fingerprint, candidate in candidates.items():
            known.setdefault(fingerprint, Known(candidate, "finished", f"D{row.number}"))
            self.taken.add(fingerprint)

    def _stop(
        self,
        row: DecisionRow,
        by: str,
        reason: str,
        *,
        keep: Collection[str] = (),
        only: Collection[str] = (),
    ) -> None:
        through = {chosen.fingerprint: chosen.candidate for chosen in _through(row)}
        for fingerprint in dict.fromkeys(only or through):
            jobs = [j for j in self.jobs.get(fingerprint, ()) if j.decision == row.number]
            if not jobs or fingerprint in keep:
                continue
            charged = sum(job.charged_node_h for job in jobs)
            self.stopped.append(
                Stopped(
                    decision=row.number,
                    fingerprint=fingerprint,
                    candidate=through[fingerprint],
                    by=by,
                    reason=reason,
                    outcome=jobs[-1].outcome,
                    charged_node_h=charged,
                )
            )

    def finish(self) -> Against:
        stopped = [one for one in self.stopped if one.fingerprint not in self.taken]
        gone = {one.fingerprint for one in stopped}
        good = sum(one.outcome == "feasible" for one in stopped)
        bad = {"infeasible", "invalid", "no_result", "timed_out", "exit", "signal", "exception"}
        return Against(
            run=self.record.state.run,
            digest=self.campaign.spec.digest,
            decisions=self.decided,
            launched=len(self.jobs),
            stopped=tuple(stopped),
            added=tuple(self.added),
            saved_node_h=sum(one.charged_node_h for one in stopped),
            good_lost=good,
            bad_stopped=sum(one.outcome in bad for one in stopped),
            best=self._best(set()),
            best_kept=self._best(gone),
            unknown=dict(sorted(self.unknown.items())),
        )

    def _best(self, without: set[str]) -> float | None:
        name, minimise = self.campaign.spec.objective
        found: list[float] = [
            _values(job)[name]
            for job in self.record.jobs
            if job.feasible and job.fingerprint not in without
        ]
        pick = min if minimise else max
        return pick(found, default=None)


def _through(row: DecisionRow) -> list[Chosen]:
    """Return what a decision let through; what it launches to learn no gate has let pass."""
    return [chosen for chosen in row.candidates if chosen.audit_probability is None]


def _values(job: JobRow) -> Mapping[str, Any]:
    return job.values or {}
