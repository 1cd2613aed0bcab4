import datetime
import decimal
import enum
import json
import math
import pathlib
import subprocess
import sys
import types
import uuid
from collections import OrderedDict, deque, namedtuple
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from pydantic import BaseModel, SecretStr

from batchgate.plain import MAX_DEPTH, MAX_REPR, Opaque, dumps, loads, plain, restore, shown


class Point(BaseModel):
    x: float


class Batch(BaseModel):
    candidates: Sequence[BaseModel] = ()


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    LOW = 1


class Name(str):
    """A text of a type of its own."""


class Count(int):
    """A number of a type of its own."""


Pair = namedtuple("Pair", "a b")


@dataclass
class Node:
    name: str
    children: list["Node"] = field(default_factory=list)
    parent: "Node | None" = None


class Unspeakable:
    def __repr__(self):
        raise RuntimeError("no")


class Undumpable:
    def model_dump(self, **_: Any) -> dict[str, Any]:
        raise RuntimeError("no")

    def __repr__(self):
        return "Undumpable()"


def test_plain_data_is_left_as_it_is():
    data = {"name": "a", "n": 1, "x": 1.5, "on": True, "off": None, "of": [1, [2.0, "é"]]}

    assert plain(data) == data
    assert dumps(data) == json.dumps(data, separators=(",", ":"))


@pytest.mark.parametrize(
    ("value", "tagged"),
    [
        (math.nan, {"$f": "nan"}),
        (math.inf, {"$f": "inf"}),
        (-math.inf, {"$f": "-inf"}),
        (2**53, {"$i": "9007199254740992"}),
        (-(2**63), {"$i": "-9223372036854775808"}),
        ("a\ud800", {"$s": "a\\ud800"}),
        ({"$f": "nan"}, {"$m": [["$f", "nan"]]}),
        ({1: "one", "two": 2}, {"$m": [[1, "one"], ["two", 2]]}),
        ({(1, 2): None}, {"$m": [[[1, 2], None]]}),
        ({"\ud800": 1}, {"$m": [[{"$s": "\\ud800"}, 1]]}),
    ],
)
def test_what_json_cannot_say_is_tagged(value, tagged):
    assert plain(value) == tagged
    assert json.loads(dumps(value)) == tagged


def test_the_largest_exact_integer_needs_no_tag():
    assert plain(2**53 - 1) == 2**53 - 1
    assert plain(1 - 2**53) == 1 - 2**53


def test_an_integer_too_long_for_decimal_digits_is_restored():
    huge = 7**20_000

    assert loads(dumps(huge)) == huge


def test_two_lone_surrogates_do_not_become_one_character():
    pair = "\ud83d" + "\ude00"

    assert loads(dumps(pair)) == pair


def test_negative_zero_keeps_its_sign():
    assert math.copysign(1, loads(dumps(-0.0))) == -1


def test_a_nan_within_a_model_is_not_turned_into_null():
    # S0-86
    assert dumps(Point(x=math.nan)) == '{"x":{"$f":"nan"}}'


def test_models_in_a_field_of_a_base_type_keep_their_content():
    batch = Batch(candidates=[Point(x=1), Point(x=math.inf)])

    assert plain(batch) == {"candidates": [{"x": 1.0}, {"x": {"$f": "inf"}}]}


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ((1, (2,)), [1, [2]]),
        (Pair(1, 2), [1, 2]),
        (deque([1]), [1]),
        (range(3), [0, 1, 2]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset({"b", "a"}), ["a", "b"]),
        (OrderedDict(a=1), {"a": 1}),
        (types.MappingProxyType({"a": math.nan}), {"a": {"$f": "nan"}}),
        (Colour.RED, "red"),
        (Level.LOW, 1),
        (Node("n"), {"name": "n", "children": [], "parent": None}),
        (b"text", "text"),
        (bytearray(b"text"), "text"),
        (np.float64(0.5), 0.5),
        (np.float64("nan"), {"$f": "nan"}),
        (np.int64(7), 7),
        (np.bool_(True), True),
        (np.array([[1.0, math.nan]]), [[1.0, {"$f": "nan"}]]),
        (datetime.date(2030, 1, 2), "2030-01-02"),
        (decimal.Decimal("1.10"), "1.10"),
        (pathlib.Path("/a/b"), "/a/b"),
        (Name("n"), "n"),
        (Count(2**60), {"$i": str(2**60)}),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (SecretStr("hush"), "**********"),
    ],
)
def test_other_types_keep_their_content(value, kept):
    assert plain(value) == kept
    assert type(plain(value)) is type(kept)


def test_a_set_is_written_in_the_same_order_by_every_process():
    program = "from batchgate.plain import dumps; print(dumps(set('abcdefgh')))"

    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }

    assert texts == {b'["a","b","c","d","e","f","g","h"]\n'}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\xff", "b'\\xff'"),
        (object, "<class 'object'>"),
        (Undumpable(), "Undumpable()"),
    ],
)
def test_what_cannot_be_written_is_marked_and_shown_by_its_repr(value, text):
    # S0-86
    assert plain(value) == {"$r": text}
    assert loads(dumps(value)) == text
    assert type(loads(dumps(value))) is Opaque


def test_one_odd_object_does_not_hide_the_rest():
    assert plain({"a": 1, "b": Undumpable()}) == {"a": 1, "b": {"$r": "Undumpable()"}}


def test_an_object_without_a_repr_is_written_all_the_same():
    assert "Unspeakable" in plain(Unspeakable())["$r"]


def test_an_iterator_is_not_used_up():
    numbers = iter([1, 2])

    assert "$r" in plain(numbers)
    assert list(numbers) == [1, 2]


def test_a_cycle_of_containers_ends():
    # S0-86
    cycle: list[Any] = [1]
    cycle += [cycle, {"again": cycle}]

    first, second, third = plain(cycle)
    assert (first, list(second), list(third["again"])) == (1, ["$r"], ["$r"])


def test_a_cycle_of_objects_ends_where_it_closes():
    root = Node("root")
    root.children = [Node("left", parent=root), Node("right", parent=root)]

    assert [list(child["parent"]) for child in plain(root)["children"]] == [["$r"], ["$r"]]
    assert len(dumps(root)) < 5_000


def test_a_value_that_occurs_twice_is_no_cycle():
    shared = [1]

    assert plain([shared, shared]) == [[1], [1]]


def test_deep_nesting_is_cut_and_can_be_read_back():
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]

    text = dumps(deep)

    assert text.startswith("[" * MAX_DEPTH + '{"$r":')
    assert plain(loads(text)) == plain(deep)


def test_a_mapping_that_changes_while_it_is_read_raises_nothing():
    outer: dict[str, Any] = {}

    class Meddler:
        def model_dump(self, **_: Any) -> dict[str, Any]:
            outer["late"] = 1
            return {}

    outer["meddler"] = Meddler()

    assert list(plain(outer)) == ["$r"]


def test_a_repr_is_bounded():
    class Wordy:
        def __repr__(self):
            return "w" * 10**6

    assert len(plain(Wordy())["$r"]) <= MAX_REPR
    assert shown("a" * 1000, 10).endswith("…")


def test_a_repr_holds_no_lone_surrogate():
    class Odd:
        def __repr__(self):
            return "\ud800"

    assert shown(Odd()) == "\\ud800"


def test_opaque_text_stays_opaque():
    assert plain(Opaque("object at 0x1")) == {"$r": "object at 0x1"}


def test_the_text_is_one_line_of_ascii():
    text = dumps({"note": "a\nb\x1b[31m\u202e é 😀"})

    assert text.isascii()
    assert text.isprintable()


def test_bytes_are_read_like_text():
    assert loads(b'{"a":[{"$f":"nan"}]}')["a"][0] != 0


@pytest.mark.parametrize(
    "text",
    [
        "NaN",
        "[Infinity]",
        "1e999",
        "{",
        "",
        '{"$x": 1}',
        '{"$f": "0.5"}',
        '{"$f": []}',
        '{"$i": 5}',
        '{"$i": "five"}',
        '{"$s": "\\u00e9"}',
        '{"$m": [[1]]}',
        '{"$m": [[{}, 1]]}',
        '{"$r": 5}',
        b"\xff",
        "[" * 100_000,
    ],
)
def test_what_dumps_does_not_write_is_refused(text):
    with pytest.raises(ValueError, match=r".+"):
        loads(text)


def test_restore_refuses_what_plain_does_not_make():
    with pytest.raises(ValueError, match=r"'\$x' is no tag"):
        restore([{"$x": 1}])


def test_restore_undoes_plain_without_the_text():
    value = {"a": [math.inf, 2**80, {"$": {1: "\ud800"}}], "b": "c", "d": None}

    assert restore(plain(value)) == value


def test_a_mapping_with_a_tag_among_other_keys_is_one_mapping():
    value = {"$f": "nan", "x": 1}

    assert plain(value) == {"$m": [["$f", "nan"], ["x", 1]]}
    assert loads('{"$f":"nan","x":1}') == value
