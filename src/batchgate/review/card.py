"""The report card: how often checks and verifiers were wrong, as far as jobs have told.

A result is *good* when it is feasible and *bad* when it is infeasible or was rejected; a job that
broke says nothing. Of what a check lets pass, the share that is bad is its *false-accept* share;
of what it rejects, the share that is good is its *false-reject* share. The second is known only
for soft checks, whose rejects are launched, and where a campaign launches a share of the rejected
candidates on purpose (`Chosen.audit_probability`). Numbers are of the newest era, the time since
model, prompt or check changed last. Nothing is changed by looking.
"""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

from .. import ledger
from ..campaign import CampaignSpec
from ..events import CheckJudged, Chosen, Entry, RunResumed, RunStarted
from .estimate import Seen, Share
from .proposals import candidates_of, fingerprint_of
from .record import RunRecord
from .rows import AttemptRow, DecisionRow
from .threshold import Measured, Suggestion, suggest

GATE = "gate"
"""Name under which the gate as a whole is told: what every check let pass."""


@dataclass(frozen=True, slots=True)
class Era:
    """A time in which nothing changed that a share depends on.

    Attributes:
        since_at: When its first verdict was given, in seconds since the epoch.
        changed: What had changed: `model`, `prompt`, `check`; empty for the first era.
        false_accept: Share of what it let pass that is bad.
        false_reject: Share of what it rejected that is good.
    """

    since_at: float
    changed: tuple[str, ...]
    false_accept: Share
    false_reject: Share


@dataclass(frozen=True, slots=True)
class CheckCard:
    """How one check, verifier or the gate as a whole did.

    Attributes:
        name: Its name.
        kind: `gate`, `check`, `soft` or `verifier`.
        passed: Candidates that it let pass, in the newest era.
        rejected: Candidates that it rejected, in the newest era.
        eras: Its eras, oldest first; at least one.
        suggestions: Thresholds that its verdicts and the results speak for.
    """

    name: str
    kind: Literal["gate", "check", "soft", "verifier"]
    passed: int
    rejected: int
    eras: tuple[Era, ...]
    suggestions: tuple[Suggestion, ...]

    @property
    def false_accept(self) -> Share:
        """Its false-accept share of the newest era."""
        return self.eras[-1].false_accept

    @property
    def false_reject(self) -> Share:
        """Its false-reject share of the newest era."""
        return self.eras[-1].false_reject

    @property
    def calibrated(self) -> bool:
        """Whether enough results are there to believe its false-accept share."""
        return self.false_accept.calibrated

    @property
    def drifted(self) -> bool:
        """Whether the newest era is surely another than the one before."""
        if len(self.eras) < 2:  # noqa: PLR2004 - two eras to compare
            return False
        before, now = self.eras[-2:]
        return now.false_accept.apart(before.false_accept) or now.false_reject.apart(
            before.false_reject
        )


@dataclass(frozen=True, slots=True)
class ReportCard:
    """How the gate of a run did. Make it with `report_card`.

    Attributes:
        run: The run's name.
        checks: The gate as a whole first, then its checks in the order in which they judge.
        audited: Rejected candidates that were launched on purpose.
    """

    run: str
    checks: tuple[CheckCard, ...]
    audited: int

    def to_json(self) -> str:
        """Return it as strict JSON; each check also tells whether it is calibrated, or drifted."""
        told = asdict(self)
        for check, card in zip(told["checks"], self.checks, strict=True):
            check |= {"calibrated": card.calibrated, "drifted": card.drifted}
        return json.dumps(told, indent=2, allow_nan=False)


def report_card(run_dir: str | Path) -> ReportCard:
    """Judge the checks of a run by the results of its jobs.

    Raises:
        LedgerError: There is no ledger.
        LedgerCorruptError: The ledger was damaged; the error says where.
    """
    return card_of(ledger.read(ledger.folder_of(run_dir)))


def card_of(entries: Iterable[Entry]) -> ReportCard:
    """Judge the checks of a run from its entries, oldest first."""
    campaigns = Campaigns()
    return judged(RunRecord.of(campaigns.watch(entries)), campaigns)


def judged(record: RunRecord, campaigns: Campaigns) -> ReportCard:
    """Judge the checks of a run from its record, and from the campaigns seen in its entries."""
    goods = dict(_goods(record))
    trials: dict[str, list[_Trial]] = {GATE: []}
    for decision in record.decisions:
        for trial in _trials(decision, campaigns, record, goods):
            trials.setdefault(trial.check, []).append(trial)
    spec = record.spec
    return ReportCard(
        run=record.state.run,
        checks=tuple(_card(name, found, spec) for name, found in trials.items() if found),
        audited=sum(len(_audited(decision)) for decision in record.decisions),
    )


@dataclass(frozen=True, slots=True)
class _Trial:
    """What one check said of one candidate, and what is known of it."""

    check: str
    kind: Literal["gate", "check", "soft", "verifier"]
    at: float
    key: tuple[str, str, str]
    passed: bool
    good: bool | None
    probability: float
    observables: Mapping[str, Any]


class Campaigns:
    """Which campaign was in force when."""

    def __init__(self) -> None:
        self._since: list[tuple[float, CampaignSpec, str, Mapping[str, str]]] = []
        self._keys: dict[tuple[int, str], tuple[str, str]] = {}

    def watch(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        """Pass entries on and note every campaign."""
        for entry in entries:
            event = entry.event
            if isinstance(event, (RunStarted, RunResumed)):
                spec = (
                    self._since[-1][1]
                    if event.spec is None
                    else CampaignSpec.model_validate(event.spec, extra="ignore")
                )
                files = event.files or (self._since[-1][3] if self._since else {})
                self._since.append((entry.at, spec, event.version, files))
            yield entry

    def key(self, attempt: AttemptRow, check: str) -> tuple[str, str, str]:
        """Return what a verdict depends on: the model, how it is asked, and the check."""
        place = bisect.bisect_right(self._since, attempt.started_at, key=lambda item: item[0]) - 1
        if (place, check) not in self._keys:
            _, spec, version, files = self._since[place]
            self._keys[place, check] = _versions(spec, version, files, check)
        return attempt.model, *self._keys[place, check]


def _versions(
    spec: CampaignSpec, version: str, files: Mapping[str, str], check: str
) -> tuple[str, str]:
    """Return digests of how the model is asked, and of a check or the whole gate."""
    if check == GATE:
        told = [spec.model_dump(mode="json", include={"check", "level", "duplicates"})]
    else:
        uses = (use for use in spec.check if check in {use.name, use.use.partition(":")[2]})
        levels = (level for level in spec.verifiers if check == level.name)
        told = [one.model_dump(mode="json") for one in (*uses, *levels)]
    prompt = spec.campaign.prompt
    asked = _digest(spec.producer.model_dump(mode="json"), prompt, files.get(prompt))
    return asked, _digest(told, version, files.get("campaign.py"))


def _digest(*parts: Any) -> str:
    text = json.dumps(parts, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _goods(record: RunRecord) -> Iterator[tuple[str, bool]]:
    for job in record.jobs:
        if job.values is not None or job.reasons:
            yield job.fingerprint, job.feasible


def _trials(
    decision: DecisionRow,
    campaigns: Campaigns,
    record: RunRecord,
    goods: Mapping[str, bool],
) -> Iterator[_Trial]:
    """Yield the verdicts of a decision, candidate by candidate.

    A result counts only for the attempt that its candidate was launched for: one that came to
    be run in another way, by the surrogate say, was not drawn from what the check judged.
    """
    assert record.spec is not None
    space = record.spec.space
    audits = {c.fingerprint: c.audit_probability or 1.0 for c in _audited(decision)}
    let_through = {c.fingerprint for c in decision.candidates} - audits.keys()
    for attempt in decision.attempts:
        for sample in range(1, 2 + len(attempt.others)):
            checks = [check for check in attempt.checks if check.sample == sample]
            for place, candidate in enumerate(
                candidates_of(attempt.sampled(sample)) if checks else ()
            ):
                fingerprint = fingerprint_of(space, candidate)
                accepted = attempt.outcome == "accepted" and fingerprint in let_through
                launched = accepted or fingerprint in audits
                base = _Trial(
                    check=GATE,
                    kind="gate",
                    at=attempt.started_at,
                    key=campaigns.key(attempt, GATE),
                    passed=accepted,
                    good=goods.get(fingerprint) if launched else None,
                    probability=1.0 if accepted else audits.get(fingerprint, 1.0),
                    observables={},
                )
                if accepted or any(check.hard and not check.passed for check in checks):
                    yield base
                for check in checks:
                    yield replace(
                        base,
                        check=check.check,
                        kind=_kind(check),
                        key=campaigns.key(attempt, check.check),
                        passed=_let_pass(check, fingerprint),
                        observables=_observables(check, place),
                    )


def _audited(decision: DecisionRow) -> list[Chosen]:
    return [c for c in decision.candidates if c.audit_probability]


def _kind(check: CheckJudged) -> Literal["check", "soft", "verifier"]:
    if check.verifier:
        return "verifier"
    return "check" if check.hard else "soft"


def _let_pass(check: CheckJudged, fingerprint: str) -> bool:
    return check.passed or (bool(check.refused) and fingerprint not in check.refused)


def _observables(check: CheckJudged, place: int) -> Mapping[str, Any]:
    measured = check.observables[place] if place < len(check.observables) else {}
    return measured if isinstance(measured, Mapping) else {}


def _card(name: str, trials: list[_Trial], spec: CampaignSpec | None) -> CheckCard:
    eras: list[list[_Trial]] = []
    for trial in trials:
        if not eras or eras[-1][-1].key != trial.key:
            eras.append([])
        eras[-1].append(trial)
    newest = eras[-1]
    return CheckCard(
        name=name,
        kind=newest[-1].kind,
        passed=sum(trial.passed for trial in newest),
        rejected=sum(not trial.passed for trial in newest),
        eras=tuple(_era(one, before) for one, before in zip(eras, [None, *eras], strict=False)),
        suggestions=tuple(_suggestions(name, newest, spec)),
    )


def _era(trials: list[_Trial], before: list[_Trial] | None) -> Era:
    old = before[-1].key if before else trials[0].key
    named = zip(("model", "prompt", "check"), old, trials[0].key, strict=True)
    return Era(
        since_at=trials[0].at,
        changed=tuple(name for name, was, now in named if was != now),
        false_accept=Share.of(_seen(trials, passed=True)),
        false_reject=Share.of(_seen(trials, passed=False)),
    )


def _seen(trials: Iterable[_Trial], *, passed: bool) -> Iterator[Seen]:
    for trial in trials:
        if trial.passed is passed and trial.good is not None:
            yield Seen(trial.good is not passed, trial.probability)


def _suggestions(
    name: str, trials: Iterable[_Trial], spec: CampaignSpec | None
) -> Iterator[Suggestion]:
    known = [t for t in trials if t.passed and t.good is not None]
    for level in spec.verifiers if spec else ():
        if level.name == name:
            for observable, constraint in level.accept.items():
                pairs = [Measured(t.observables.get(observable), bool(t.good)) for t in known]
                yield from suggest(observable, constraint, pairs)
