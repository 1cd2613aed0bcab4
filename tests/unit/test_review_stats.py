from __future__ import annotations

import pytest

from batchgate.review.stats import masked, wilson


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
