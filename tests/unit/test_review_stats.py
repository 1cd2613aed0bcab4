from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchgate.review.stats import masked, spearman, wilson

NUMBERS = st.floats(-1e6, 1e6)
PAIRS = st.lists(st.tuples(NUMBERS, NUMBERS), min_size=3, max_size=40)


def test_ranks_of_the_same_order_correlate_fully() -> None:
    assert spearman([(1, 10), (2, 100), (3, 1000)]) == pytest.approx(1)
    assert spearman([(1, 1000), (2, 100), (3, 10)]) == pytest.approx(-1)


def test_spearman_of_a_worked_example() -> None:
    # IQ and hours of television: 1 - 6 * 194 / (10 * 99) = -29/165.
    iq = [106, 86, 100, 101, 99, 103, 97, 113, 112, 110]
    hours = [7, 0, 27, 50, 28, 29, 20, 12, 6, 17]

    assert spearman(list(zip(iq, hours, strict=True))) == pytest.approx(-29 / 165)


def test_equal_values_share_their_mean_rank() -> None:
    # Ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5).
    assert spearman([(1, 1), (2, 2), (2, 3), (3, 4)]) == pytest.approx(4.5 / math.sqrt(4.5 * 5))


@pytest.mark.parametrize("pairs", [[], [(1, 2), (3, 4)], [(1, 1), (1, 2), (1, 3)]])
def test_nothing_to_rank_gives_no_correlation(pairs: list[tuple[float, float]]) -> None:
    assert spearman(pairs) is None


@given(PAIRS)
def test_a_rank_correlation_lies_in_its_bounds_and_is_symmetric(
    pairs: list[tuple[float, float]],
) -> None:
    found = spearman(pairs)
    swapped = spearman([(b, a) for a, b in pairs])

    assert (found is None) == (swapped is None)
    if found is not None and swapped is not None:
        assert -1 - 1e-9 <= found <= 1 + 1e-9
        assert found == pytest.approx(swapped)


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"),
    [(0, 0, 0, 1), (0, 10, 0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1)],
)
def test_wilson_intervals_are_those_of_the_tables(
    hits: int, trials: int, low: float, high: float
) -> None:
    assert wilson(hits, trials) == pytest.approx((low, high), abs=1e-4)


@pytest.mark.parametrize(
    ("reason", "template"),
    [
        ("d1=3.10 is below 3.46", "d1=# is below #"),
        ("y is -1.5e-07, must be below .5", "y is #, must be below #"),
        ("x2 is nan", "x2 is nan"),
        ("outside [3, 12]", "outside [#, #]"),
        ("after 600s", "after #s"),
    ],
)
def test_numbers_are_masked_and_names_are_kept(reason: str, template: str) -> None:
    assert masked(reason) == template
