"""The report card on made-up nights whose truth is known."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from batchgate.campaign import Constraint
from batchgate.errors import LedgerError
from batchgate.events import (
    AttemptStarted,
    CheckJudged,
    Chosen,
    DecisionMade,
    DecisionOpened,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ResultAccepted,
    RunResumed,
)
from batchgate.job import End, JobState
from batchgate.review.card import GATE, CheckCard, ReportCard, card_of, report_card
from batchgate.review.estimate import SUPPORT, Seen, Share
from batchgate.review.threshold import Measured, suggest
from tests.synthetic_run import Script, night, opened, spec


class Campaign:
    """Decides one candidate after the other by a disc of known error rates."""

    def __init__(self, seed: int = 0) -> None:
        self.script = Script().begin()
        self.random = random.Random(seed)
        self.number = 0

    def decide(
        self,
        *,
        passes: bool,
        good: bool,
        audit: float | None = None,
        y: float = 1.0,
        model: str = "m",
    ) -> None:
        self.number += 1
        n = self.number
        point = {"x1": round(-5 + 15 * self.random.random(), 9), "x2": float(n % 15)}
        fingerprint = spec().space.fingerprint(point)
        self.script.add(
            DecisionOpened(decision=n),
            AttemptStarted(decision=n, attempt=1),
            ProposalMade(decision=n, attempt=1, proposal={"candidates": [point]}, model=model),
            CheckJudged(
                decision=n,
                attempt=1,
                check="coarse",
                passed=passes,
                reasons=() if passes else ("no",),
                refused=() if passes else (fingerprint,),
                verifier=True,
                observables=({"y": y},),
            ),
        )
        chosen: tuple[Chosen, ...] = (Chosen(fingerprint=fingerprint, candidate=point),)
        if not passes:
            drawn = audit is not None and self.random.random() < audit
            chosen = (
                (Chosen(fingerprint=fingerprint, candidate=point, audit_probability=audit or 1.0),)
                if drawn
                else ()
            )
        self.script.add(
            DecisionMade(
                decision=n, disposition="accepted" if passes else "fallback", candidates=chosen
            )
        )
        if chosen:
            self.launch(n, fingerprint, point, good=good)

    def launch(self, n: int, fingerprint: str, point: dict[str, float], *, good: bool) -> None:
        self.script.add(
            JobPlanned(
                job=f"j{n}",
                decision=n,
                fingerprint=fingerprint,
                candidate=point,
                level="fine",
                reserved_node_h=0.2,
                walltime_s=600,
            ),
            JobEnded(job=f"j{n}", state=JobState.COMPLETED, end=End.COMPLETED),
            ResultAccepted(job=f"j{n}", fingerprint=fingerprint, values={"y": 1.0}, feasible=good),
        )

    def card(self) -> ReportCard:
        return card_of(self.script.entries)


def named(card: ReportCard, name: str) -> CheckCard:
    (found,) = (check for check in card.checks if check.name == name)
    return found


def test_what_was_let_pass_and_turned_out_bad_is_a_false_accept() -> None:
    campaign = Campaign()
    for n in range(30):
        campaign.decide(passes=True, good=n % 3 != 0)

    card = campaign.card()

    for check in (named(card, "coarse"), named(card, GATE)):
        share = check.false_accept
        assert (share.seen, share.hits) == (30, 10)
        assert share.value == pytest.approx(1 / 3)
        assert share.low < 1 / 3 < share.high
        assert check.calibrated


def test_below_the_minimum_support_a_share_is_uncalibrated() -> None:
    campaign = Campaign()
    for _ in range(SUPPORT - 1):
        campaign.decide(passes=True, good=True)

    assert not named(campaign.card(), "coarse").calibrated

    campaign.decide(passes=True, good=True)

    assert named(campaign.card(), "coarse").calibrated


def test_without_audits_nothing_is_said_of_what_was_rejected() -> None:
    campaign = Campaign()
    for _ in range(30):
        campaign.decide(passes=False, good=True)

    share = named(campaign.card(), "coarse").false_reject

    assert (share.value, share.low, share.high) == (None, 0.0, 1.0)


def test_a_result_that_came_about_in_another_way_is_no_evidence_of_a_wrong_rejection() -> None:
    campaign = Campaign()
    campaign.decide(passes=False, good=True)
    point = {"x1": 1.0, "x2": 2.0}
    fingerprint = spec().space.fingerprint(point)
    campaign.script.add(
        DecisionOpened(decision=2, source="surrogate"),
        DecisionMade(
            decision=2,
            disposition="fallback",
            candidates=(Chosen(fingerprint=fingerprint, candidate=point),),
        ),
    )
    campaign.launch(2, fingerprint, point, good=True)

    card = campaign.card()

    assert named(card, "coarse").false_reject.seen == 0
    assert card.audited == 0


def test_an_audited_rejection_stands_for_those_it_was_drawn_from() -> None:
    """Rare draws weigh more: half of the population is good, though most that was seen is not."""
    seen = [Seen(hit=True, probability=0.1)] * 10 + [Seen(hit=False, probability=1.0)] * 100

    share = Share.of(seen)

    assert share.value == pytest.approx(0.5)
    assert share.support < len(seen)


def test_the_intervals_of_a_whole_campaign_cover_the_known_truth() -> None:
    truth, covered = 0.3, {"reject": 0, "accept": 0}
    for seed in range(100):
        campaign = Campaign(seed)
        draw = random.Random(1000 + seed)
        for _ in range(90):
            passes, good = draw.random() < 0.4, draw.random() < truth
            campaign.decide(passes=passes, good=good, audit=draw.choice((0.3, 1.0)))
        check = named(campaign.card(), "coarse")
        covered["reject"] += check.false_reject.low <= truth <= check.false_reject.high
        covered["accept"] += check.false_accept.low <= 1 - truth <= check.false_accept.high

    assert min(covered.values()) >= 93


@pytest.mark.parametrize(("truth", "rates"), [(0.2, (0.1, 0.5)), (0.1, (0.2,)), (0.5, (0.2, 1.0))])
def test_weighted_intervals_cover_the_known_truth(truth: float, rates: tuple[float, ...]) -> None:
    covered = 0
    for seed in range(100):
        draw = random.Random(seed)
        seen = []
        for _ in range(300):
            good, rate = draw.random() < truth, draw.choice(rates)
            if draw.random() < rate:
                seen.append(Seen(good, rate))
        share = Share.of(seen)
        covered += share.low <= truth <= share.high

    assert covered >= 93


def test_a_soft_check_is_judged_by_what_it_would_have_rejected() -> None:
    campaign = Campaign()
    campaign.decide(passes=True, good=True)
    entries = []
    for entry in campaign.script.entries:
        if isinstance(entry.event, CheckJudged):
            soft = {"passed": False, "hard": False, "verifier": False, "observables": ()}
            event = entry.event.model_copy(update=soft)
            entries.append(entry.model_copy(update={"event": event}))
        else:
            entries.append(entry)

    check = named(card_of(entries), "coarse")

    assert (check.kind, check.false_reject.seen, check.false_reject.hits) == ("soft", 1, 1)


# --- eras ----------------------------------------------------------------------------------------


def test_figures_begin_anew_when_the_model_changes_and_drift_is_told() -> None:
    campaign = Campaign()
    for _ in range(40):
        campaign.decide(passes=True, good=True, model="small")
    for _ in range(40):
        campaign.decide(passes=True, good=False, model="smaller")

    check = named(campaign.card(), "coarse")

    assert [era.changed for era in check.eras] == [(), ("model",)]
    assert (check.false_accept.seen, check.false_accept.value) == (40, 1.0)
    assert check.drifted


def test_a_change_of_a_check_begins_its_era_and_not_that_of_others() -> None:
    campaign = Campaign()
    campaign.decide(passes=True, good=True)
    tighter = spec().model_dump(mode="json")
    tighter["level"][0]["timeout_s"] = 21
    campaign.script.add(opened(2), RunResumed(version="0.1.0", spec=tighter, digest="d"))
    campaign.decide(passes=True, good=True)

    card = campaign.card()

    assert named(card, "coarse").eras[-1].changed == ("check",)
    assert named(card, GATE).eras[-1].changed == ("check",)


def test_a_change_of_how_the_model_is_asked_is_told_as_the_prompts() -> None:
    campaign = Campaign()
    campaign.decide(passes=True, good=True)
    hotter = spec().model_dump(mode="json")
    hotter["producer"]["temperature"] = 1.0
    campaign.script.add(opened(2), RunResumed(version="0.1.0", spec=hotter, digest="d"))
    campaign.decide(passes=True, good=True)

    assert named(campaign.card(), "coarse").eras[-1].changed == ("prompt",)


@pytest.mark.parametrize(("name", "what"), [("prompt.md", "prompt"), ("campaign.py", "check")])
def test_another_file_of_the_campaign_begins_an_era(name: str, what: str) -> None:
    campaign = Campaign()
    for life, digest in ((2, "a"), (3, "a"), (4, "b")):
        resumed = RunResumed(
            version="0.1.0", files={"prompt.md": "a", "campaign.py": "a"} | {name: digest}
        )
        campaign.script.add(opened(life), resumed)
        campaign.decide(passes=True, good=True)

    assert [era.changed for era in named(campaign.card(), "coarse").eras] == [(), (what,)]


# --- thresholds ----------------------------------------------------------------------------------


def measured(good: list[float], bad: list[float]) -> list[Measured]:
    return [*(Measured(v, good=True) for v in good), *(Measured(v, good=False) for v in bad)]


GOOD = [10.0 + n for n in range(SUPPORT)]  # 10 to 29


@pytest.mark.parametrize(
    ("constraint", "bad", "tighter", "stopped"),
    [
        (["LESS_THAN", 99], [15.0, 39.0, 49.0], ("LESS_THAN", 34.0), 2),
        (["GREATER_THAN", 1], [6.0, 15.0], ("GREATER_THAN", 8.0), 1),
        (["BOUNDS", 1, 99], [6.0, 39.0], ("BOUNDS", 8.0, 34.0), 2),
        (["BOUNDS", 1, 99], [39.0], ("BOUNDS", 1.0, 34.0), 1),
    ],
)
def test_a_bound_is_tightened_as_far_as_no_good_candidate_is_lost(
    constraint: list[str | float], bad: list[float], tighter: tuple[str | float, ...], stopped: int
) -> None:
    (found,) = suggest("y", Constraint.parse(constraint), measured(GOOD, bad))

    assert (found.tighter, found.bad_stopped) == (tighter, stopped)
    assert (found.good_kept, found.bad_seen) == (len(GOOD), len(bad))


def test_no_bound_is_suggested_that_stops_nothing_or_rests_on_little() -> None:
    below = Constraint.parse(["LESS_THAN", 99])

    assert list(suggest("y", below, measured(GOOD, [15.0]))) == []
    assert list(suggest("y", below, measured(GOOD[1:], [50.0]))) == []
    assert list(suggest("y", below, [*measured(GOOD, []), Measured("far", good=False)])) == []


def test_a_verifiers_bound_is_suggested_from_its_measurements() -> None:
    campaign = Campaign()
    for n in range(30):
        campaign.decide(passes=True, good=n < 25, y=10.0 if n < 25 else 50.0)
    entries = campaign.script.entries
    raw = spec().model_dump(mode="json")
    raw["level"][0]["accept"] = {"y": ["LESS_THAN", 60]}
    begun = entries[1].event.model_copy(update={"spec": raw})
    entries[1] = entries[1].model_copy(update={"event": begun})

    (found,) = named(card_of(entries), "coarse").suggestions

    assert (found.now, found.tighter) == (("LESS_THAN", 60.0), ("LESS_THAN", 30.0))
    assert (found.bad_stopped, found.bad_seen, found.good_kept) == (5, 5, 25)


# --- whole runs ----------------------------------------------------------------------------------


def test_a_card_is_strict_json() -> None:
    told = json.loads(card_of(night()).to_json())

    assert [check["name"] for check in told["checks"]] == ["gate", "disc", "spacing", "coarse"]
    assert all(isinstance(check["calibrated"], bool) for check in told["checks"])


def test_an_empty_record_has_an_empty_card() -> None:
    assert card_of([]).checks == ()


def test_a_directory_without_a_ledger_has_no_card(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="holds no run"):
        report_card(tmp_path)
