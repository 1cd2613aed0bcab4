"""The record of a decision: what it holds, and that no edit of it goes unseen."""

import asyncio
import copy
import dataclasses
import datetime
import hashlib
import json
import pickle
from collections.abc import Callable, Iterator
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel

from batchgate import (
    Attempt,
    Check,
    Fail,
    NotAccepted,
    Record,
    Rejected,
    accept,
    accept_sync,
    check,
)
from batchgate.errors import ConfigError
from batchgate.loop import MAX_VALUE
from batchgate.record import Mismatch
from batchgate.record.format import MAX_TEXT


def small(value: Any) -> Any:
    return value < 10 or Fail(
        f"{value} is not small", score=value, measured=float(value), bound=10.0, field="x"
    )


def even(value: Any) -> bool:
    return bool(value % 2 == 0)


@check(hard=False)
def near_zero(value: Any) -> Any:
    return Fail("far", score=abs(value)) if value else True


CHECKS: Any = [[small, even], near_zero]


class Script:
    """A producer that gives or raises what it was told, one after the other."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def __call__(self, previous: tuple[Attempt[Any], ...]) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer


async def recorded(*answers: Any, checks: Any = CHECKS, **options: Any) -> Record:
    options.setdefault("escalate", True)
    outcome = await accept(
        Script(*answers),
        checks=checks,
        attempts=options.pop("attempts", len(answers)),
        name="plan",
        record=True,
        **options,
    )
    record: Record | None = outcome.record
    assert record is not None
    return record


def made(*answers: Any, **options: Any) -> Record:
    return asyncio.run(recorded(*answers, **options))


RUNS: dict[str, Callable[[], Record]] = {
    # Rejected by two checks of a stage, by the producer itself, accepted; with attempts left.
    "accepted": lambda: made(13, Rejected("not JSON", value="{", score=0.5), 4, attempts=5),
    "not accepted": lambda: made(13, 15),
    "fallback": lambda: made(13, 5, fallback=lambda: 0),
}


def hashed(before: str, content: dict[str, Any], *without: str) -> str:
    """Write the documented hash down a second time, as a forger would."""
    kept = {key: part for key, part in content.items() if key not in without}
    text = json.dumps(kept, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(f"{before}{text}".encode()).hexdigest()


def resealed(data: dict[str, Any]) -> dict[str, Any]:
    """Return the data with every hash computed anew."""
    data = json.loads(json.dumps(data))
    head = data["history"]["head"]
    for entry in data["attempts"]:
        head = entry["hash"] = hashed(head, entry, "hash")
    data["hash"] = hashed(head, data, "hash", "attempts")
    return data


def is_found(data: Any) -> bool:
    """Say whether reading or verifying tells that it is no record as `accept` made it."""
    try:
        return not Record.from_dict(data).verify()
    except ValueError:
        return True


def is_found_by_replay(data: dict[str, Any], checks: Any = CHECKS) -> bool:
    """Say whether it is found by a replay, though every hash is right."""
    try:
        record = Record.from_dict(resealed(data))
    except ValueError:
        return True
    assert record.verify()
    return not asyncio.run(record.replay(checks)).ok


Path = tuple[str | int, ...]


def leaves(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    if isinstance(data, dict):
        for key, item in data.items():
            yield from leaves(item, (*path, key))
    elif isinstance(data, list):
        for place, item in enumerate(data):
            yield from leaves(item, (*path, place))
    else:
        yield path, data


def nodes(data: Any, kind: type, path: Path = ()) -> Iterator[Path]:
    if isinstance(data, kind):
        yield path
    if isinstance(data, (dict, list)):
        for key, item in data.items() if isinstance(data, dict) else enumerate(data):
            yield from nodes(item, kind, (*path, key))


def at(data: Any, path: Path) -> Any:
    for step in path:
        data = data[step]
    return data


def with_(data: dict[str, Any], path: Path, put: Any) -> dict[str, Any]:
    data = copy.deepcopy(data)
    at(data, path[:-1])[path[-1]] = put
    return data


def other_values(value: Any) -> list[Any]:
    """Return values of the same type and of others, all different from this one as JSON."""
    candidates: list[Any] = [None, True, False, 0, 1, 7, 1.0, 2.5, "", "x", "0" * 64, [], {}]
    if isinstance(value, str):
        candidates += [value + "x", value[:-1], "accepted", "not_accepted", "fallback"]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        candidates += [value + 1, -value, float(value)]
    return [other for other in candidates if json.dumps(other) != json.dumps(value)]


def list_edits(items: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    """Yield every drop, duplicate and swap, the empty list, and every truncation."""
    for place, item in enumerate(items):
        yield "drop", items[:place] + items[place + 1 :]
        yield "duplicate", [*items[:place], item, *items[place:]]
        yield "truncate", items[:place]
        for other in range(place):
            swapped = items.copy()
            swapped[place], swapped[other] = swapped[other], swapped[place]
            yield "swap", swapped
    yield "empty", []


class TestRecord:
    async def test_holds_what_was_proposed_said_told_and_decided(self):
        # S4-5, S4-25, S4-26, S4-27, S4-28: the last attempt's feedback is there too
        record = await recorded(13, 15)

        data = record.to_dict()
        assert data["name"] == record.name == "plan"
        assert data["disposition"] == record.disposition == "not_accepted"
        assert data["attempts_max"] == 2
        assert data["checks"] == [
            {"name": "small", "stage": 1, "hard": True},
            {"name": "even", "stage": 1, "hard": True},
            {"name": "near_zero", "stage": 2, "hard": False},
        ]
        assert data["escalation"] == (
            "not accepted after 2 attempt(s): 15 is not small; even is false"
        )
        assert [entry["feedback"] for entry in data["attempts"]] == [
            ["13 is not small", "even is false"],
            ["15 is not small", "even is false"],
        ]
        assert [said["check"] for said in data["attempts"][0]["rulings"]] == ["small", "even"]

    async def test_is_kept_only_when_asked_for(self):
        outcome = await accept(Script(4), checks=CHECKS)

        assert outcome.record is None

    def test_is_kept_by_the_sync_form_too(self):
        outcome = accept_sync(Script(4), checks=CHECKS, record=True)

        assert outcome.record is not None
        assert outcome.record.verify()

    async def test_is_on_the_error_when_nothing_is_accepted(self):
        with pytest.raises(NotAccepted) as caught:
            await recorded(13, escalate=False)

        again = pickle.loads(pickle.dumps(caught.value))
        assert caught.value.record is not None
        assert caught.value.record.verify()
        assert again.record == caught.value.record

    @pytest.mark.parametrize("run", RUNS)
    async def test_is_read_back_as_it_was_written(self, run):
        # S4-27, S4-33, S4-36: it is kept where the application wants, with its chain of hashes
        record = await asyncio.to_thread(RUNS[run])

        assert Record.from_json(record.to_json()) == record
        assert Record.from_json(record.to_json().encode()) == record
        assert Record.from_dict(record.to_dict()) == record
        assert pickle.loads(pickle.dumps(record)) == record
        assert record.verify()

    async def test_is_true_whatever_the_order_of_its_keys(self):
        record = await recorded(13, 4)

        text = json.dumps(record.to_dict(), sort_keys=True)

        assert Record.from_json(text).verify()

    async def test_is_small(self):
        # S4-33: some 2.3 kB a round were observed
        record = await recorded(13, 15, 4)

        assert len(record.to_json()) < 3 * 1000

    async def test_gives_its_attempts_with_plain_values(self):
        class Plan(BaseModel):
            x: float

        plan = Plan(x=3.0)

        record = await recorded(plan, checks=[lambda plan: Fail("no")])

        (attempt,) = record.attempts
        assert attempt.value == {"x": 3.0}
        assert attempt.rejected_by == "lambda"
        assert attempt.reasons == attempt.feedback == ("no",)

    async def test_cannot_be_changed_through_what_it_gave(self):
        # S4-21
        record = await recorded([13], checks=[lambda value: False])

        record.to_dict()["attempts"].clear()
        record.attempts[0].value.append(99)

        assert record.attempts[0].value == [13]
        assert record.verify()

    async def test_shows_its_end_and_the_start_of_its_hash(self):
        record = await recorded(13, 4)

        assert repr(record) == (
            f"Record('plan', 'accepted', attempts=2, hash='{record.hash[:12]}')"
        )

    async def test_equal_calls_leave_equal_records(self):
        assert await recorded(13, 4) == await recorded(13, 4)
        assert (await recorded(13, 4)).hash != (await recorded(15, 4)).hash

    async def test_checks_of_one_name_are_told_apart(self):
        record = await recorded(4, checks=[even, even])

        assert [said["name"] for said in record.to_dict()["checks"]] == ["even", "even#2"]


class TestValues:
    @pytest.mark.parametrize(
        ("value", "written"),
        [
            (float("nan"), {"$f": "nan"}),
            (float("-inf"), {"$f": "-inf"}),
            ("a\ud800", {"$s": "a\\ud800"}),
            ((1, 2), [1, 2]),
            ({2: "two"}, {"$m": [[2, "two"]]}),
            ({"b", "a"}, ["a", "b"]),
            (b"ab", "ab"),
            (datetime.date(2026, 11, 30), "2026-11-30"),
            (Decimal("1.5"), "1.5"),
            (np.float64(1.5), 1.5),
            (np.array([1, 2]), [1, 2]),
            (2**60, {"$i": str(2**60)}),
        ],
    )
    async def test_of_any_type_are_strict_json(self, value, written):
        # S4-34, S4-23: nothing raises after the loop has run, and nothing is invalid JSON
        record = await recorded(value, checks=[lambda _: True])

        (entry,) = json.loads(record.to_json(), parse_constant=pytest.fail)["attempts"]
        assert entry["value"] == written
        assert record.verify()
        assert Record.from_json(record.to_json()) == record
        assert (await record.replay([lambda _: True])).ok

    async def test_of_a_foreign_class_are_shown(self):
        class Odd:
            def __repr__(self) -> str:
                return "Odd()"

        record = await recorded(Odd(), checks=[])

        assert record.to_dict()["attempts"][0]["value"] == {"$r": "Odd()"}
        assert (await record.replay(restore=lambda _: Odd())).ok

    async def test_that_are_too_large_are_rejected_and_asked_for_again(self):
        # S4-39
        seen: list[Any] = []

        record = await recorded("x" * MAX_VALUE, 4, checks=[seen.append])

        first, second = record.attempts
        assert first.rejected_by == "record"
        assert first.reason == (
            f"the value has {MAX_VALUE + 2} bytes as JSON, must have at most {MAX_VALUE}"
        )
        assert second.accepted
        assert seen == [4]
        assert len(record.to_json()) < 5000
        assert (await record.replay([seen.append])).ok

    async def test_that_are_rejected_or_fallen_back_to_are_bounded_too(self):
        huge = "x" * MAX_VALUE

        record = await recorded(Rejected("garbled", value=huge), fallback=lambda: huge)

        data = record.to_dict()
        assert len(data["attempts"][0]["value"]["$r"]) <= 1000
        assert len(data["fallback"]["$r"]) <= 1000

    async def test_are_those_that_the_checks_were_given(self):
        # S4-22: a producer that changes an earlier value rewrites no history
        values = [[1], [2]]

        def producer(previous: tuple[Attempt[list[int]], ...]) -> list[int]:
            for attempt in previous:
                attempt.value.append(99)
            return values[len(previous)]

        outcome = await accept(
            producer, checks=[lambda value: value == [2]], attempts=2, record=True
        )

        assert outcome.record is not None
        assert [attempt.value for attempt in outcome.record.attempts] == [[1], [2]]
        assert outcome.attempts[0].value == [1, 99]

    async def test_that_a_check_changes_are_a_failure_that_names_it(self):
        # C-22, S0-53, S4-22
        def sorts(value: list[int]) -> None:
            value.sort()

        with pytest.raises(ConfigError, match="check 'sorts' changed the value it judges"):
            await recorded([2, 1], checks=[lambda value: True, sorts])

    async def test_that_a_check_changes_are_nobodys_business_without_a_record(self):
        outcome = await accept(Script([2, 1]), checks=[lambda value: value.sort()])

        assert outcome.value == [1, 2]

    async def test_that_become_equal_in_python_only_are_changed(self):
        def widens(value: list[Any]) -> None:
            value[0] = 1.0

        with pytest.raises(ConfigError, match="'widens'"):
            await recorded([1], checks=[widens])

    async def test_that_accept_when_changes_are_a_failure_too(self):
        def accept_when(attempt: Attempt[list[int]]) -> bool:
            attempt.value.clear()
            return True

        with pytest.raises(ConfigError, match="'accept_when'"):
            await recorded([2, 1], checks=[], accept_when=accept_when)


class TestTexts:
    async def test_are_bounded(self):
        # S4-39, S4-41, C-20: a reason of 1 MB made 6 MB of JSON
        reason = "x" * 1_000_000

        record = await recorded(4, checks=[lambda _: Fail(reason, feedback=reason)])

        data = record.to_dict()
        (ruling,) = data["attempts"][0]["rulings"]
        assert len(ruling["verdict"]["reasons"][0]) == MAX_TEXT
        assert ruling["verdict"]["reasons"][0].endswith("x…")
        assert len(data["escalation"]) < 600
        assert len(record.to_json()) < 4 * MAX_TEXT
        assert (await record.replay([lambda _: Fail(reason, feedback=reason)])).ok

    @pytest.mark.parametrize("reason", ["a\ud800b", "\ud800" * MAX_TEXT, "é" * 600])
    async def test_are_whole_unicode(self, reason):
        # S4-23
        outcome = await accept(
            Script(Rejected(reason, check=reason), 4),
            checks=[lambda _: Fail(reason)],
            attempts=2,
            name=reason,
            record=True,
            escalate=True,
        )

        record = outcome.record
        assert record is not None
        assert record.to_json().encode()
        assert record.verify()
        assert Record.from_json(record.to_json()) == record
        assert (await record.replay([lambda _: Fail(reason)])).ok


class TestFromDict:
    @pytest.mark.parametrize(
        ("data", "message"),
        [
            ({}, "format: Field required"),
            ([], "Input should be an object"),
            (None, "Input should be an object"),
            ({1, 2}, "not JSON serializable"),
            (float("nan"), "not JSON compliant"),
        ],
    )
    def test_refuses_what_is_no_record(self, data, message):
        with pytest.raises(ValueError, match=f"^not a record: .*{message}"):
            Record.from_dict(data)

    async def test_refuses_another_format(self):
        data = {**(await recorded(4)).to_dict(), "format": 2}

        with pytest.raises(ValueError, match="format: Input should be less than or equal to 1"):
            Record.from_dict(data)

    async def test_refuses_a_value_that_is_not_written_so(self):
        data = with_((await recorded(4)).to_dict(), ("attempts", 0, "value"), {"$f": "3"})

        with pytest.raises(ValueError, match="not a record: '\\$f' is no tag"):
            Record.from_dict(data)

    async def test_refuses_a_history_that_is_none(self):
        data = with_((await recorded(4)).to_dict(), ("history", "count"), 1)

        with pytest.raises(ValueError, match="count without a head"):
            Record.from_dict(data)

    @pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"format": NaN}', "\ud800", b"\xff"])
    def test_refuses_a_text_that_is_no_json(self, text):
        with pytest.raises(ValueError, match=r"^not a record: "):
            Record.from_json(text)

    async def test_refuses_a_value_nested_too_deep_to_be_one(self):
        text = (await recorded(4)).to_json()
        deep = text.replace('"value":4', f'"value":{"[" * 190}{"]" * 190}')

        with pytest.raises(ValueError, match=r"^not a record: "):
            Record.from_json(deep)


class TestVerify:
    @pytest.mark.parametrize("run", RUNS)
    def test_finds_every_edit_of_one_leaf(self, run):
        # S4-43, S4-44, S4-45: 258 of 456 leaves could be edited unseen
        data = RUNS[run]().to_dict()

        missed = [
            (path, other)
            for path, value in leaves(data)
            for other in other_values(value)
            if not is_found(with_(data, path, other))
        ]

        assert missed == []

    @pytest.mark.parametrize("run", RUNS)
    def test_finds_every_drop_swap_duplicate_truncation_and_emptying(self, run):
        # S4-46
        data = RUNS[run]().to_dict()

        missed = [
            (path, how)
            for path in nodes(data, list)
            for how, items in list_edits(at(data, path))
            if items != at(data, path) and not is_found(with_(data, path, items))
        ]

        assert missed == []

    @pytest.mark.parametrize("run", RUNS)
    def test_finds_every_key_that_is_missing_or_too_much(self, run):
        # S4-46
        data = RUNS[run]().to_dict()
        missed: list[Any] = []

        for path in nodes(data, dict):
            for key in at(data, path):
                edited = copy.deepcopy(data)
                del at(edited, path)[key]
                missed += [(path, key)] if not is_found(edited) else []
            edited = copy.deepcopy(data)
            at(edited, path)["extra"] = 1
            missed += [path] if not is_found(edited) else []

        assert missed == []

    def test_finds_an_attempt_of_another_record(self):
        ours, theirs = RUNS["accepted"]().to_dict(), RUNS["not accepted"]().to_dict()
        ours["attempts"][0] = theirs["attempts"][1]

        assert is_found(ours)


class TestReplay:
    @pytest.mark.parametrize("run", RUNS)
    async def test_of_an_untouched_record_finds_nothing(self, run):
        # S4-42
        record = await asyncio.to_thread(RUNS[run])

        replay = await record.replay(CHECKS)

        assert replay.mismatches == ()
        assert replay.ok
        assert replay.attempts == len(record.attempts)

    async def test_says_what_nothing_can_compute_again(self):
        # S4-42
        record = await recorded(Rejected("garbled"), fallback=lambda: 0, history=[Attempt(1, 3)])

        replay = await record.replay(CHECKS)

        assert replay.unchecked == (
            "the history",
            "attempt 1: the producer's own rejection",
            "the fallback's value",
        )

    async def test_with_other_checks_says_what_they_would_have_changed(self):
        record = await recorded(13, 4)

        zero: Check[Any] = Check("zero", lambda value: bool(value == 0))
        stricter: list[Any] = [[small, even], zero]

        replay = await record.replay(stricter)

        assert [(found.attempt, found.what) for found in replay.mismatches] == [
            (None, "checks"),
            (2, "feedback"),
            (2, "near_zero"),
            (None, "disposition"),
        ]
        assert replay.mismatches[-1] == Mismatch(
            None, "disposition", "recorded 'accepted', accepted now: False"
        )

    async def test_tells_a_check_that_raises(self):
        def breaks(value: int) -> bool:
            raise ValueError("boom")

        record = await recorded(13, 4)

        replay = await record.replay([breaks])

        assert Mismatch(1, "raised", "ValueError: boom") in replay.mismatches
        assert Mismatch(2, "raised", "ValueError: boom") in replay.mismatches

    async def test_is_interrupted_by_a_cancellation(self):
        async def hangs(value: int) -> bool:
            raise asyncio.CancelledError

        record = await recorded(4)

        with pytest.raises(asyncio.CancelledError):
            await record.replay([hangs])

    async def test_judges_what_is_restored(self):
        class Plan(BaseModel):
            x: float

        def positive(plan: Plan) -> bool:
            return plan.x > 0

        record = await recorded(Plan(x=-1.0), Plan(x=1.0), checks=[positive])

        assert (await record.replay([positive], restore=Plan.model_validate)).ok
        assert [found.what for found in (await record.replay([positive])).mismatches] == [
            "raised",
            "raised",
        ]

    async def test_needs_the_functions_that_worded_and_accepted(self):
        # S4-35: a renamed function does not switch its check off
        def politely(attempt: Attempt[int]) -> str:
            return f"please: {attempt.reason}"

        def eventually(attempt: Attempt[int]) -> bool:
            return attempt.value == 4

        record = await recorded(2, 4, feedback=politely, accept_when=eventually)

        assert (await record.replay(CHECKS, feedback=politely, accept_when=eventually)).ok
        found = (await record.replay(CHECKS, accept_when=eventually)).mismatches
        assert [(one.attempt, one.what) for one in found] == [
            (None, "feedback_by"),
            (1, "feedback"),
        ]
        found = (await record.replay(CHECKS, feedback=politely)).mismatches
        assert (1, "accept_when") in [(one.attempt, one.what) for one in found]
        assert (1, "order") in [(one.attempt, one.what) for one in found]

    async def test_refuses_what_accept_refuses(self):
        record = await recorded(4)

        with pytest.raises(TypeError, match="feedback is a str, must be a function"):
            await record.replay(CHECKS, feedback="please")  # type: ignore[arg-type]

    async def test_finds_a_record_whose_hashes_are_wrong(self):
        data = with_((await recorded(13, 4)).to_dict(), ("hash",), "0" * 64)

        (found,) = (await Record.from_dict(data).replay(CHECKS)).mismatches

        assert found == Mismatch(None, "hash", "the hashes are not those of the content")


class TestForger:
    """Somebody who edits a record and computes all its hashes anew."""

    @pytest.mark.parametrize("run", RUNS)
    def test_is_found_with_every_drop_swap_duplicate_truncation_and_emptying(self, run):
        # S4-46, S4-47
        data = RUNS[run]().to_dict()

        missed = [
            (path, how)
            for path in nodes(data, list)
            for how, items in list_edits(at(data, path))
            if items != at(data, path) and not is_found_by_replay(with_(data, path, items))
        ]

        assert missed == []

    @pytest.mark.parametrize(
        ("run", "free"),
        [
            (
                "accepted",
                {
                    "name",
                    "attempts_max",
                    "attempts.1.value",
                    "attempts.1.rulings.0.check",
                    "attempts.1.rulings.0.verdict.score",
                    "attempts.2.value",  # -4 has the verdicts of 4
                },
            ),
            ("not accepted", {"name"}),
            ("fallback", {"name", "fallback", "attempts.1.value"}),  # 7 has those of 5
        ],
    )
    def test_can_edit_only_what_nothing_computes_again(self, run, free):
        # S4-47: labels, a budget that was not used up, what the producer itself said
        data = RUNS[run]().to_dict()

        missed = {
            ".".join(map(str, path))
            for path, value in leaves(data)
            if path[-1] != "hash"
            for other in other_values(value)
            if not is_found_by_replay(with_(data, path, other))
        }

        assert missed == free

    async def test_cannot_keep_the_hash(self):
        record = await recorded(13, 4)

        forged = Record.from_dict(resealed(with_(record.to_dict(), ("name",), "other")))

        assert forged.verify()
        assert forged.hash != record.hash

    def test_is_found_with_an_attempt_after_an_accepted_one(self):
        # S4-46
        data = RUNS["accepted"]().to_dict()
        data["attempts"].append({**copy.deepcopy(data["attempts"][0]), "index": 4})

        assert is_found_by_replay(data)

    def test_is_found_when_the_accepted_attempt_is_dropped_and_the_end_changed(self):
        # S4-46: any error counted as a legal early stop
        data = RUNS["accepted"]().to_dict()
        data["attempts"].pop()
        data |= {"disposition": "not_accepted", "escalation": "x"}

        assert is_found_by_replay(data)

    def test_is_found_with_more_attempts_than_the_budget(self):
        # S4-45: fewer rounds allowed than there are
        data = with_(RUNS["accepted"]().to_dict(), ("attempts_max",), 2)

        assert is_found_by_replay(data)

    def test_is_found_with_a_feedback_that_is_gone(self):
        # S4-46
        data = with_(RUNS["not accepted"]().to_dict(), ("attempts", 0, "feedback"), [])

        assert is_found_by_replay(data)


class TestHistory:
    async def test_of_a_record_is_shown_and_bound_by_its_last_hash(self):
        # C-19, S4-29, S4-30
        seen: list[tuple[Attempt[int], ...]] = []

        def producer(previous: tuple[Attempt[int], ...]) -> int:
            seen.append(previous)
            return 4

        first = await recorded(13, 15)

        outcome = await accept(producer, checks=CHECKS, history=first, record=True)

        second = outcome.record
        assert second is not None
        assert seen == [first.attempts]
        assert second.to_dict()["history"] == {
            "count": 2,
            "head": first.to_dict()["attempts"][-1]["hash"],
        }
        assert [attempt.index for attempt in second.attempts] == [1]
        assert (await second.replay(CHECKS, history=first)).ok
        assert (await second.replay(CHECKS)).unchecked == ("the history",)

    async def test_of_attempts_is_that_of_their_record(self):
        # C-19
        outcome = await accept(
            Script(13, 15), checks=CHECKS, attempts=2, escalate=True, record=True
        )

        by_attempts = await recorded(4, history=outcome.attempts)
        by_record = await recorded(4, history=outcome.record)

        assert by_attempts == by_record

    async def test_goes_on_over_several_records(self):
        first = await recorded(13)
        second = await recorded(15, history=first)

        third = await recorded(4, history=second)

        assert third.to_dict()["history"]["count"] == 2
        assert third == await recorded(4, history=(*first.attempts, *second.attempts))

    async def test_that_is_another_is_found(self):
        # C-19
        second = await recorded(4, history=await recorded(13))

        for other in (await recorded(15), (), await recorded(13, 15)):
            (found,) = (await second.replay(CHECKS, history=other)).mismatches
            assert found.what == "history"

    async def test_that_is_claimed_where_there_is_none_is_found(self):
        first, second = await recorded(4), await recorded(13)

        assert not (await first.replay(CHECKS, history=second)).ok

    async def test_of_a_record_that_was_changed_is_refused(self):
        producer = Script(4)
        changed = Record.from_dict(with_((await recorded(13)).to_dict(), ("name",), "other"))

        with pytest.raises(ValueError, match=r"^history is Record\('other', .*was changed"):
            await accept(producer, history=changed)

        assert producer.answers == [4]

    async def test_of_a_record_without_attempts_is_its_own_history(self):
        # No `accept` makes such a record, and a reader may be handed one.
        data = (await recorded(4, history=[Attempt(1, 3)])).to_dict()
        empty = Record.from_dict(resealed({**data, "attempts": []}))

        assert (await recorded(4, history=empty)).to_dict()["history"] == data["history"]


async def test_many_records_at_once_do_not_mix():
    # S4-24
    async def one(number: int) -> Record:
        @check
        async def slow(value: int) -> bool:
            await asyncio.sleep(0)
            return value == number

        return await recorded(number - 1, number, checks=[slow])

    records = await asyncio.gather(*map(one, range(50)))

    assert [[a.value for a in record.attempts] for record in records] == [
        [number - 1, number] for number in range(50)
    ]


def test_a_replays_findings_are_frozen():
    found = Mismatch(1, "even", "recorded False, now True")

    with pytest.raises(dataclasses.FrozenInstanceError):
        found.why = ""  # type: ignore[misc]
