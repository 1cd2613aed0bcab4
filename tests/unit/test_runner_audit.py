"""Rejected candidates that are launched to learn whether that was right."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from batchgate.campaign import Campaign
from batchgate.errors import ConfigError
from batchgate.events import DecisionMade, Event, JobPlanned, ResultAccepted
from batchgate.ledger import Ledger, check_run, read
from batchgate.runner import Model, Recorder, Runner, Stop
from batchgate.runner.audit import drawn
from batchgate.state import State
from tests.campaigns import CODE, InlineFlow, campaign
from tests.listed_producer import Listed

STEEP = (
    CODE
    + """
def never_above_nine(candidate):
    if candidate["x"] > 9:
        yield "above 9 the vessel bursts"
"""
)


def audited(folder: Path, **tables: Any) -> Campaign:
    """A campaign that rejects x < 0, and launches half of those to learn from them."""
    tables = {
        "check": [{"use": "campaign:low"}, {"use": "campaign:never_above_nine"}],
        "audit": {"share": 0.5, "node_h": 0.5},
        "producer": {"attempts": 1, "decisions": 1},
        "stop": {"jobs": 12, "node_h": 5.0},
        **tables,
    }
    return campaign(folder, code=STEEP, **tables)


async def run(
    loaded: Campaign, folder: Path, *xs: list[float]
) -> tuple[Stop | None, list[Event], State]:
    folder.mkdir(exist_ok=True)
    producer = Listed(loaded, *xs)
    with Ledger.open(folder / "ledger", run="square-1") as ledger:
        recorder = Recorder.of(ledger)
        model = Model("listed", producer=producer)
        runner = Runner(loaded, recorder, InlineFlow(), folder, slots=2, model=model)
        stop = await runner.run()
    return stop, [entry.event for entry in read(folder / "ledger")], recorder.state


def audits(found: list[Event]) -> dict[float, float]:
    """Return the audited points with their probabilities."""
    return {
        float(one.candidate["x"]): one.audit_probability
        for event in found
        if isinstance(event, DecisionMade)
        for one in event.candidates
        if one.audit_probability is not None
    }


REJECTED = [[-float(i)] for i in range(1, 10)]


async def test_a_share_of_the_rejected_is_launched_and_marked_with_its_probability(
    tmp_path: Path,
) -> None:
    stop, found, state = await run(audited(tmp_path / "c"), tmp_path, *REJECTED)

    drawn_points = audits(found)
    assert 0 < len(drawn_points) < len(REJECTED)
    assert set(drawn_points.values()) == {0.5}
    launched = [p.candidate["x"] for p in found if isinstance(p, JobPlanned)]
    assert set(drawn_points) <= set(launched)
    assert stop is not None
    assert stop.rule == "jobs"
    assert state.evaluated == 12  # audits aside
    assert len([r for r in found if isinstance(r, ResultAccepted)]) > 12
    assert check_run(tmp_path) == []


async def test_the_draw_depends_on_the_seed_and_the_candidate_alone(tmp_path: Path) -> None:
    _, forward, _ = await run(audited(tmp_path / "c"), tmp_path / "a", *REJECTED)
    _, backward, _ = await run(audited(tmp_path / "c"), tmp_path / "b", *REJECTED[::-1])
    other = audited(tmp_path / "c", campaign={"seed": 1})
    _, reseeded, _ = await run(other, tmp_path / "d", *REJECTED)

    assert audits(forward) == audits(backward)
    assert audits(forward) != audits(reseeded)


async def test_audits_keep_to_their_own_budget(tmp_path: Path) -> None:
    loaded = audited(tmp_path / "c", audit={"share": 0.5, "node_h": 0.02})

    _, found, state = await run(loaded, tmp_path, *REJECTED)

    assert 1 <= len(audits(found)) <= 8  # a job reserves 0.01 and charges far less
    assert state.audit_node_h <= 0.02


async def test_no_budget_means_no_audit(tmp_path: Path) -> None:
    loaded = audited(tmp_path / "c", audit={"share": 0.5, "node_h": 0.0})

    _, found, _ = await run(loaded, tmp_path, *REJECTED)

    assert audits(found) == {}


async def test_audits_are_off_by_default(tmp_path: Path) -> None:
    loaded = audited(tmp_path / "c", audit={})

    _, found, _ = await run(loaded, tmp_path, *REJECTED)

    assert audits(found) == {}


async def test_what_a_safety_check_forbids_is_never_launched_whoever_rejected_it(
    tmp_path: Path,
) -> None:
    # The verifier refuses everything from 8.5 on; above 9 the safety check would as well.
    points = [[8.5 + i / 20] for i in range(30)]
    free = audited(tmp_path / "c", check=[{"use": "campaign:low"}])
    safe = audited(
        tmp_path / "c", audit={"share": 0.5, "node_h": 0.5, "never": ["never_above_nine"]}
    )

    _, found, _ = await run(free, tmp_path / "free", *points)
    _, spared, _ = await run(safe, tmp_path / "safe", *points)

    assert max(audits(found)) > 9
    assert audits(spared)
    assert max(audits(spared)) <= 9


async def test_what_the_space_rejects_or_a_twin_is_never_launched(tmp_path: Path) -> None:
    points = [[-1.0], [-1.0], [-2.0], [-2.0], [-3.0], [-3.0], [-4.0], [-4.0]]

    _, found, _ = await run(audited(tmp_path / "c"), tmp_path, *points)

    launched = [p.fingerprint for p in found if isinstance(p, JobPlanned)]
    assert len(launched) == len(set(launched))


def test_a_safety_check_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"audit\.never names"):
        audited(tmp_path, audit={"share": 0.1, "never": ["lwo"]})


def test_without_a_share_nothing_is_looked_at(tmp_path: Path) -> None:
    assert drawn(audited(tmp_path, audit={}), State(), 1, []) == []
