"""Laws of the replay: every run agrees with its own, and no forged record does."""

from __future__ import annotations

import asyncio
import math
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchgate.campaign import Campaign
from batchgate.errors import BatchGateError
from batchgate.events import EVENT, DecisionMade, JobEnded, JobPlanned, ResultAccepted
from batchgate.ledger import check_run
from batchgate.replay import decide_against, replay
from tests.campaigns import InlineFlow
from tests.recorded_run import (
    TABLES,
    Flaky,
    Place,
    Said,
    edited,
    events_of,
    forge,
    leaves,
    record,
)

FREE = {
    "segment_opened": {"run", "host", "pid", "process_started", "boot", "monotonic_ns", "slurm"},
    "run_started": {"version", "producer", "settings", "slots", "files.campaign.py"},
    "allocation_seen": {"nodes", "started_at", "ends_at", "job_id", "restart_count"},
    "attempt_started": {"trace_id", "span_id"},
    "proposal_made": {
        "proposal.rationale",
        "others.rationale",
        "response_id",
        "model",
        "temperature",
        "input_tokens",
        "output_tokens",
        "samples_total",
        "elapsed_s",
        "proposal.candidates.x",
        "others.candidates.x",
    },
    "proposal_rejected": {"stage", "reasons", "value", "breaches", "elapsed_s"},
    "check_judged": {"elapsed_s", "node_h", "observables.y"},
    "failure_recorded": {"what", "message"},
    "job_ended": {"error", "host"},
    "result_rejected": {"values.y"},
    "surrogate_asked": {"observations", "elapsed_s"},
}
"""What nothing can work out anew, so that a forger who hashes all lines anew may change it.

Times, tokens, labels and the words of strangers; and numbers that could be others without another
verdict following from them.
"""

answers = st.lists(
    st.floats(-4, 9).map(lambda x: round(x, 1))
    | st.lists(st.floats(-4, 9), min_size=2, max_size=3)
    | st.tuples(st.floats(-4, 9), st.floats(0, 9), st.floats(0, 9)),
    max_size=12,
)
few = settings(deadline=None, max_examples=8, suppress_health_check=[HealthCheck.too_slow])


def run(work: Any) -> Any:
    return asyncio.run(work)


@few
@given(
    said=answers,
    seed=st.integers(0, 99),
    slots=st.integers(1, 3),
    flow=st.sampled_from([InlineFlow, Flaky]),
    suspend_after=st.none() | st.integers(5, 60),
    tolerance=st.sampled_from([0.0, 0.02]),
    audited=st.sampled_from([0.0, 0.5]),
    parks=st.booleans(),
)
def test_every_run_agrees_with_its_replay(
    *,
    said: list[Said],
    seed: int,
    slots: int,
    flow: Callable[[], InlineFlow],
    suspend_after: int | None,
    tolerance: float,
    audited: float,
    parks: bool,
) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables: dict[str, Any] = {
            "duplicates": {"tolerance": tolerance},
            "producer": {"decisions": 3},
            "audit": {"share": audited, "node_h": 0.1, "never": ["odd"]} if audited else {},
            "park": {"decisions": parks, "results": parks, "expire_s": 0.001},
        }
        run(
            record(
                folder,
                said,
                seed=seed,
                slots=slots,
                flow=flow,
                suspend_after=suspend_after,
                **tables,
            )
        )

        found = run(replay(folder / "run", campaign=folder / "campaign"))

    assert found.mismatches == ()
    assert found.end == "stopped"
    assert found.skipped == {}


@few
@given(
    said=st.lists(st.floats(-9, 9).map(lambda x: round(x, 2)), max_size=8, unique=True),
    low=st.floats(-5, 5),
    high=st.floats(0, 60),
)
def test_what_other_checks_would_have_stopped_is_what_brute_force_finds(
    said: list[Said], low: float, high: float
) -> None:
    """Over a pool in which every proposal was launched and evaluated."""
    open_gate = {
        **TABLES,
        "check": [],
        "level": [
            {**TABLES["level"][0], "accept": {"y": ["LESS_THAN", 1000.0]}},
            TABLES["level"][1],
        ],
        "producer": {"attempts": 1},
        "stop": {"jobs": 8},
    }
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tables = {k: v for k, v in open_gate.items() if k != "constraints"}
        pool = run(record(folder, said, seed=3, **tables))
        spec = pool.spec.model_dump(mode="json")
        spec["check"] = [{"use": "campaign:above", "args": {"low": low}}]
        spec["level"][0]["accept"] = {"y": ["LESS_THAN", high]}
        code = folder / "other"
        code.mkdir()
        (code / "campaign.py").write_text(
            (folder / "campaign" / "campaign.py").read_text()
            + "\ndef above(candidate, low):\n"
            + "    return 'too low' if candidate['x'] < low else None\n"
        )
        jobs = _jobs(folder / "run")

        found = run(decide_against(folder / "run", Campaign.of(spec, folder=code)))

    by_surrogate = {x for x, (source, _, _) in jobs.items() if source == "surrogate"}
    refused = {x for x in jobs if x < low or (x not in by_surrogate and not (x - 3) ** 2 < high)}
    assert {one.candidate["x"] for one in found.stopped} == refused
    assert found.good_lost == sum(jobs[x][1] for x in refused)
    assert math.isclose(found.saved_node_h, math.fsum(jobs[x][2] for x in refused), abs_tol=1e-12)
    assert found.launched == len(jobs)
    assert found.added == ()


def _jobs(run_dir: Path) -> dict[float, tuple[str, bool, float]]:
    """Return source, whether good, and charge of each candidate, read off the events by hand."""
    found: dict[float, tuple[str, bool, float]] = {}
    where: dict[str, float] = {}
    how: dict[int, str] = {}
    for event in events_of(run_dir):
        match event:
            case DecisionMade():
                how[event.decision] = event.disposition
            case JobPlanned():
                x = where[event.job] = float(event.candidate["x"])
                source = "model" if how[event.decision] == "accepted" else "surrogate"
                found[x] = (source, False, 0.0)
            case JobEnded():
                source, good, _ = found[where[event.job]]
                found[where[event.job]] = (source, good, event.charged_node_h)
            case ResultAccepted():
                source, _, charged = found[where[event.job]]
                found[where[event.job]] = (source, event.feasible, charged)
            case _:
                pass
    return found


async def test_a_run_decided_against_its_own_campaign_changes_nothing(tmp_path: Path) -> None:
    loaded = await record(tmp_path, slots=3)

    found = await decide_against(tmp_path / "run", loaded)

    assert (found.stopped, found.added, found.saved_node_h) == ((), (), 0.0)
    assert found.best == found.best_kept


# --- forged records ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a run with every turn that a decision can take, and its campaign beside it."""
    folder = tmp_path_factory.mktemp("recorded")
    run(record(folder, stop={"jobs": 5}))
    return folder


async def is_found(folder: Path) -> bool:
    try:
        if check_run(folder / "run"):
            return True
        return not (await replay(folder / "run", campaign=folder / "campaign")).ok
    except BatchGateError:
        return True


def raw_events(folder: Path) -> list[dict[str, Any]]:
    return [EVENT.dump_python(event, mode="json") for event in events_of(folder / "run")]


def forged(recorded: Path, change: Callable[[list[dict[str, Any]]], None]) -> bool | None:
    """Forge a copy of a run and say whether it is found; `None` when it is no record at all."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(recorded, folder, dirs_exist_ok=True)
        try:
            forge(folder / "run", change)
        except ValueError:
            return None
        return bool(run(is_found(folder)))


def test_an_honest_copy_is_not_found(recorded: Path) -> None:
    assert forged(recorded, lambda raw: None) is False


def test_no_edit_of_a_leaf_goes_unnoticed_even_if_all_hashes_are_made_to_fit(
    recorded: Path,
) -> None:
    unnoticed: set[tuple[str, str]] = set()
    tried: set[tuple[str, str]] = set()
    for place, fields in enumerate(raw_events(recorded)):
        for at in leaves(fields):
            kind, name = fields["type"], dotted(at)
            if name in FREE.get(kind, ()) or (kind, name) in tried:
                continue
            tried.add((kind, name))
            if forged(recorded, lambda raw, p=place, a=at: edited(raw[p], a)) is False:  # type: ignore[misc]
                unnoticed.add((kind, name))

    assert len(tried) > 60
    assert unnoticed == set()


def dotted(at: Place) -> str:
    return ".".join(str(part) for part in at if not isinstance(part, int))


def test_no_event_can_be_dropped_unnoticed_but_the_last_ones(recorded: Path) -> None:
    raw = raw_events(recorded)

    def drop(place: int) -> Callable[[list[dict[str, Any]]], None]:
        return lambda events: events.__delitem__(place)

    unnoticed = [raw[n]["type"] for n in range(len(raw)) if forged(recorded, drop(n)) is False]

    # A runner that was killed leaves such a record too.
    assert set(unnoticed) <= {"allocation_seen", "run_stopped", "segment_closed"}


def test_no_event_can_stand_twice_unnoticed(recorded: Path) -> None:
    raw = raw_events(recorded)

    def repeat(place: int) -> Callable[[list[dict[str, Any]]], None]:
        return lambda events: events.insert(place, events[place])

    unnoticed = [raw[n]["type"] for n in range(len(raw)) if forged(recorded, repeat(n)) is False]

    assert set(unnoticed) <= {"allocation_seen"}


def test_no_two_events_of_one_decision_or_job_can_be_swapped_unnoticed(recorded: Path) -> None:
    raw = raw_events(recorded)

    def swap(place: int) -> Callable[[list[dict[str, Any]]], None]:
        def change(events: list[dict[str, Any]]) -> None:
            events[place : place + 2] = reversed(events[place : place + 2])

        return change

    pairs = [
        n
        for n in range(len(raw) - 1)
        if any(raw[n].get(k) == raw[n + 1].get(k) is not None for k in ("decision", "job"))
    ]

    assert len(pairs) > 20
    assert [raw[n]["type"] for n in pairs if forged(recorded, swap(n)) is False] == []


def test_lines_cut_off_before_a_launch_are_found_by_its_gate(recorded: Path) -> None:
    (path,) = (recorded / "run" / "ledger").glob("*.jsonl")
    lines = path.read_bytes().splitlines(keepends=True)
    last = max(n for n, line in enumerate(lines) if b'"type":"job_planned"' in line)
    for kept in range(1, last + 1):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            shutil.copytree(recorded, folder, dirs_exist_ok=True)
            (folder / "run" / "ledger" / path.name).write_bytes(b"".join(lines[:kept]))

            assert run(is_found(folder)), f"{kept} of {len(lines)} lines"


@settings(deadline=None, max_examples=20)
@given(data=st.data())
def test_no_byte_of_a_record_can_be_changed_unnoticed(recorded: Path, data: st.DataObject) -> None:
    (path,) = (recorded / "run" / "ledger").glob("*.jsonl")
    content = path.read_bytes()
    place = data.draw(st.integers(0, len(content) - 2))  # half a last line is no line
    other = data.draw(st.integers(0, 255).filter(lambda byte: byte != content[place]))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shutil.copytree(recorded, folder, dirs_exist_ok=True)
        changed = content[:place] + bytes([other]) + content[place + 1 :]
        (folder / "run" / "ledger" / path.name).write_bytes(changed)

        assert run(is_found(folder))
