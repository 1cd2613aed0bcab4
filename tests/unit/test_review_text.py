from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchgate.review import text


@given(st.text())
def test_visible_text_has_no_character_that_hides_or_acts(value: str) -> None:
    shown = text.visible(value)

    assert not {unicodedata.category(char) for char in shown} & {"Cc", "Cf", "Cs", "Zl", "Zp"}
    assert text.visible(shown) == shown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("plain text", "plain text"),
        ("naïve 漢字", "naïve 漢字"),
        ("two\nlines\tand a tab", "two↵lines⇥and a tab"),
        ("\x1b[31mred\x1b[0m", "[U+001B][31mred[U+001B][0m"),
        ("abc\u202edef", "abc[U+202E]def"),
        ("zero\u200bwidth", "zero[U+200B]width"),
        ("lone \ud800", "lone [U+D800]"),
        ("\x00\x7f\x85", "[U+0000][U+007F][U+0085]"),
    ],
)
def test_what_cannot_be_seen_is_named(value: str, shown: str) -> None:
    assert text.visible(value) == shown


def test_clipped_text_says_how_much_is_missing() -> None:
    assert text.clipped("a" * 10, 10) == "a" * 10
    assert text.clipped("a" * 13, 10) == "a" * 10 + "… (+3 characters)"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({"x1": 2.5, "n": 7, "phase": "golden", "on": True}, "x1=2.5 n=7 phase=golden on=true"),
        ({"x1": {"$f": "nan"}}, "x1=nan"),
        ({"$i": "9007199254740993"}, "9007199254740993"),
        ([1, "two"], '[1, "two"]'),
        (None, "null"),
        (1 / 3, "0.333333"),
        ({}, ""),
    ],
)
def test_values_are_told_on_one_line(value: object, told: str) -> None:
    assert text.compact(value) == told


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.0, "0 s"),
        (0.0123, "0.0123 s"),
        (59.4, "59.4 s"),
        (59.9, "1 min 00 s"),
        (3599.0, "59 min 59 s"),
        (3600.0, "1 h 00 min"),
        (90_061.0, "1 d 01 h"),
    ],
)
def test_a_length_of_time_has_its_two_largest_units(seconds: float, told: str) -> None:
    assert text.span(seconds) == told


def test_instants_are_in_utc() -> None:
    assert text.instant(1_780_000_000.0) == "2026-05-28 20:26:40 UTC"
    assert text.instant(0.0) == "never"


def test_node_hours_have_three_digits_and_never_lose_whole_ones() -> None:
    assert text.hours(0.0123456) == "0.0123"
    assert text.hours(12.345) == "12.3"
    assert text.hours(123_456.7) == "123,457"


def test_counts_are_told_in_words() -> None:
    assert text.words({"timed_out": 2, "feasible": 1}) == "2 timed out, 1 feasible"
    assert text.words({}) == "none"
