"""Laws of a record, for any script of proposals and checks, and for any edit of it."""

import asyncio
import copy
import hashlib
import json
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from batchgate import Attempt, Check, Fail, Record, Rejected, Verdict, accept

LISTS = ("drop", "duplicate", "swap", "truncate", "empty")
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
deeds = st.sampled_from(["pass", "pass", "false", "fail", "raise", "score"])
stages = st.lists(
    st.lists(st.tuples(st.lists(deeds, min_size=4, max_size=4), st.booleans()), max_size=3),
    max_size=3,
)
productions = st.lists(
    st.tuples(st.sampled_from(["value", "value", "reject"]), values), min_size=1, max_size=4
)


def done(deed: str, reason: str) -> Any:
    match deed:
        case "false":
            return False
        case "fail":
            return Fail(reason, "b", feedback="told")
        case "raise":
            raise Rejected(reason, score=0.5)
        case "score":
            return Verdict(True, score=0.25, measured={"energy_ev": -1.5})
        case _:
            return None


class Run:
    """One recorded call over a script; what a check says depends on the number of the attempt."""

    def __init__(self, productions: list[Any], stages: list[Any], reason: str) -> None:
        self.productions = productions
        self.scripted = stages
        self.reason = reason

    def checks(self) -> Any:
        """Return the checks as they are before the first attempt."""
        return [
            [
                Check(f"check{place}", self._check(iter(deeds)), hard=hard)
                for place, (deeds, hard) in enumerate(stage)
            ]
            for stage in self.scripted
        ]

    def _check(self, deeds: Any) -> Any:
        return lambda value: done(next(deeds), self.reason)

    def producer(self, previous: tuple[Attempt[Any], ...]) -> Any:
        kind, value = self.productions[len(previous)]
        if kind == "reject":
            raise Rejected(self.reason, check="schema", value=value)
        return value

    def record(self, *, fallback: bool) -> Record:
        outcome = asyncio.run(
            accept(
                self.producer,
                checks=self.checks(),
                attempts=len(self.productions),
                fallback=(lambda: self.productions[0][1]) if fallback else None,
                name=self.reason,
                escalate=True,
                record=True,
            )
        )
        assert outcome.record is not None
        return outcome.record


runs = st.builds(Run, productions, stages, st.text(st.characters(), min_size=1))


def leaf_paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    if isinstance(data, (dict, list)) and data:
        steps = data.items() if isinstance(data, dict) else enumerate(data)
        return [found for key, item in steps for found in leaf_paths(item, (*path, key))]
    return [path]


def list_paths(data: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    found = [path] if isinstance(data, list) and data else []
    if isinstance(data, (dict, list)):
        for key, item in data.items() if isinstance(data, dict) else enumerate(data):
            found += list_paths(item, (*path, key))
    return found


def at(data: Any, path: tuple[Any, ...]) -> Any:
    for step in path:
        data = data[step]
    return data


def edited(items: list[Any], how: str, place: int) -> list[Any]:
    place %= len(items)
    match how:
        case "drop":
            return items[:place] + items[place + 1 :]
        case "duplicate":
            return [*items[:place], items[place], *items[place:]]
        case "swap":
            swapped = items.copy()
            swapped[place], swapped[-1] = swapped[-1], swapped[place]
            return swapped
        case "truncate":
            return items[:place]
        case _:
            return []


def is_found(data: Any) -> bool:
    try:
        return not Record.from_dict(data).verify()
    except ValueError:
        return True


def resealed(data: Any) -> Any:
    def hashed(before: str, content: dict[str, Any], *without: str) -> str:
        kept = {key: part for key, part in content.items() if key not in without}
        text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256((before + text).encode()).hexdigest()

    data = json.loads(json.dumps(data))
    head = data["history"]["head"]
    for entry in data["attempts"]:
        head = entry["hash"] = hashed(head, entry, "hash")
    data["hash"] = hashed(head, data, "hash", "attempts")
    return data


@given(runs, st.booleans())
@settings(deadline=None)
def test_every_record_is_true_is_strict_json_and_reads_back(run, fallback):
    record = run.record(fallback=fallback)

    data = json.loads(record.to_json().encode(), parse_constant=lambda name: 1 / 0)
    assert record.verify()
    assert Record.from_dict(data) == record


@given(runs, st.booleans())
@settings(deadline=None)
def test_every_record_replays(run, fallback):
    # S4-42
    record = run.record(fallback=fallback)
    # A replay judges every value but a producer's own rejection, as the call did.
    replay = asyncio.run(record.replay(run.checks()))

    assert replay.mismatches == ()


@given(runs, st.data())
@settings(deadline=None)
def test_every_edit_of_a_leaf_is_found(run, draw):
    # S4-43, S4-45, S4-47
    data = run.record(fallback=draw.draw(st.booleans())).to_dict()
    path = draw.draw(st.sampled_from(leaf_paths(data)))
    put = draw.draw(values)
    assume(json.dumps(at(data, path)) != json.dumps(put))

    at(data, path[:-1])[path[-1]] = put

    assert is_found(data)


@given(runs, st.sampled_from(LISTS), st.data())
@settings(deadline=None)
def test_every_drop_duplicate_swap_truncation_and_emptying_is_found(run, how, draw):
    # S4-46, S4-47
    data = run.record(fallback=draw.draw(st.booleans())).to_dict()
    path = draw.draw(st.sampled_from(list_paths(data)))
    before = copy.deepcopy(at(data, path))

    at(data, path)[:] = edited(before, how, draw.draw(st.integers(0, 5)))

    assume(at(data, path) != before)
    assert is_found(data)


@given(runs, st.sampled_from(LISTS), st.data())
@settings(deadline=None)
def test_a_forger_cannot_drop_duplicate_swap_truncate_or_empty_the_attempts(run, how, draw):
    # S4-46, S4-47: with every hash computed anew
    data = run.record(fallback=draw.draw(st.booleans())).to_dict()
    before = copy.deepcopy(data["attempts"])

    data["attempts"][:] = edited(before, how, draw.draw(st.integers(0, 5)))

    assume(data["attempts"] != before)
    forged = Record.from_dict(resealed(data))
    assert forged.verify()
    assert not asyncio.run(forged.replay(run.checks())).ok
