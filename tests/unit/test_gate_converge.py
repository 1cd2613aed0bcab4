"""`iterate_until_converged`: why it stops, and what it keeps."""

import math

import pytest

from batchgate.gate import Candidate, Gate, iterate_until_converged


def scores(*given, done_at=None):
    """Make work that gives candidates of these scores in turn."""
    return lambda before: Candidate(len(before), given[len(before)], done=len(before) == done_at)


@pytest.mark.parametrize(
    ("work", "stop", "count"),
    [
        (scores(1, 2, 3, done_at=2), "done", 3),
        (scores(1, 100), "optimal", 2),
        (scores(1, 2, 2, 1, 2, 0), "converged", 6),
        (scores(*range(20)), "exhausted", 20),
    ],
)
async def test_it_stops_for_one_of_four_reasons(work, stop, count):
    # S3-45
    end = await iterate_until_converged(work)

    assert (end.stop, len(end.history)) == (stop, count)


@pytest.mark.parametrize(
    ("given", "options", "stop"),
    [
        ({"done_at": 2}, {"perfect_score": 5}, "done"),
        ({}, {"perfect_score": 5}, "optimal"),
        ({}, {"perfect_score": 6}, "converged"),
        ({}, {"perfect_score": 6, "patience": 3}, "exhausted"),
    ],
)
async def test_of_several_reasons_the_first_in_order_is_told(given, options, stop):
    # S3-45: at the third candidate, all that are not ruled out hold at once.
    work = scores(4, 4, 5 if stop in {"done", "optimal"} else 4, **given)

    end = await iterate_until_converged(work, **{"patience": 2, "max_iterations": 3, **options})

    assert (end.stop, len(end.history)) == (stop, 3)


async def test_the_best_so_far_and_the_history_are_kept():
    # S3-45
    end = await iterate_until_converged(scores(3, 9, 9, 1), patience=9, max_iterations=4)

    assert (end.best.value, end.best.score) == (1, 9)
    assert end.scores == (3, 9, 9, 1)


async def test_work_knows_the_candidates_before_and_may_be_async():
    seen = []

    async def work(before):
        seen.append([candidate.value for candidate in before])
        return Candidate(len(before), len(before))

    await iterate_until_converged(work, max_iterations=3)

    assert seen == [[], [0], [0, 1]]


async def test_a_score_that_is_not_finite_is_no_improvement():
    end = await iterate_until_converged(scores(math.nan, 1, math.inf, None), patience=2)

    assert (end.stop, end.best.value) == ("converged", 1)
    assert end.scores == (None, 1, None, None)


async def test_without_any_score_the_first_is_the_best():
    end = await iterate_until_converged(scores(None, None), perfect_score=-math.inf)

    assert (end.stop, end.best.value, len(end.history)) == ("optimal", 0, 1)


async def test_what_the_worker_calls_done_still_has_to_pass_the_gate():
    # S3-44
    end = await iterate_until_converged(scores(40, 60, done_at=1))
    decision = await Gate("review", lambda best: best.score >= 85).decide(end.best)

    assert (end.stop, decision.route) == ("done", "fail")


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ({"patience": 0}, ValueError, "patience is 0, must be at least 1"),
        ({"max_iterations": 0}, ValueError, "max_iterations is 0, must be at least 1"),
        ({"patience": 1.5}, TypeError, "patience is a float, must be an int"),
        ({"max_iterations": True}, TypeError, "max_iterations is a bool, must be an int"),
        ({"perfect_score": math.nan}, ValueError, "perfect_score is nan"),
    ],
)
async def test_a_wrong_bound_is_refused_before_any_work(wrong, error, message):
    with pytest.raises(error, match=message):
        await iterate_until_converged(lambda before: pytest.fail("worked"), **wrong)


async def test_work_that_gives_no_candidate_is_an_error():
    with pytest.raises(TypeError, match="work returned a int, must be a Candidate"):
        await iterate_until_converged(lambda before: 3)  # type: ignore[arg-type, return-value]


def test_a_score_that_is_no_number_is_refused():
    with pytest.raises(TypeError, match="score is a str, must be a number"):
        Candidate("x", "9")  # type: ignore[arg-type]
