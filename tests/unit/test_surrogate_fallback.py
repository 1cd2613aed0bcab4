"""The fallback as the runner calls it: with our generators and with foreign ones."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from batchgate.campaign import Campaign, Observation
from batchgate.errors import ConfigError, SurrogateError
from batchgate.surrogates import propose

VARIABLES = {
    "x": {"domain": [-10, 10]},
    "n": {"domain": [1, 6], "integer": True},
    "m": {"values": ["Cu", "Ni", 3]},
}
CODE = '''
import numpy as np


def low(candidate):
    if candidate["x"] < 0:
        yield f"x is {candidate['x']:g}, must be at least 0"


def broken(candidate):
    raise KeyError("z")


class Scripted:
    """A generator of another house: it suggests what its script says, batch after batch."""

    def __init__(self, vocs, batches=(), seed=None):
        self.vocs, self.batches, self.seed, self.known = vocs, list(batches), seed, None

    def ingest(self, results):
        self.known = results

    def suggest(self, n):
        return self.batches.pop(0) if self.batches else []


class Random(Scripted):
    def suggest(self, n):
        drawn = np.random.default_rng(self.seed).random(n).astype(np.float32)
        return [{"x": 10 * u, "n": 1 + 5 * u, "m": np.str_("Cu")} for u in drawn]


class Rounding(Scripted):
    def suggest(self, n):
        return [{"x": np.float32(10.000001), "n": np.int64(3), "m": "Cu", "shift": 1, "_id": 7}]


class Broken(Scripted):
    def suggest(self, n):
        raise RuntimeError("no licence")


class Seedless:
    def __init__(self, vocs):
        pass

    def suggest(self, n):
        return [{"x": 1.0, "n": 1, "m": "Cu"}]


class Memory(Scripted):
    def suggest(self, n):
        return [{"x": float(len(self.known)), "n": 1, "m": "Cu"}]

'''


def campaign(folder: Path, **tables: Any) -> Campaign:
    folder.mkdir(exist_ok=True)
    (folder / "campaign.py").write_text(CODE)
    data = {
        "campaign": {"name": "test", "seed": 5},
        "variables": VARIABLES,
        "constants": {"shift": 1},
        "objectives": {"y": "MINIMIZE"},
        "check": [{"use": "campaign:low"}],
        "level": [{"name": "job", "use": "campaign:low", "timeout_s": 1}],
        "fallback": {"warmup": 6},
        "stop": {"node_h": 1},
    }
    return Campaign.of({**data, **tables}, folder=folder)


def scripted(folder: Path, *batches: list[dict[str, Any]], **tables: Any) -> Campaign:
    fallback = {"use": "campaign:Scripted", "args": {"batches": batches}}
    return campaign(folder, fallback=fallback, **tables)


def point(x: Any = 1.0, n: Any = 2, m: Any = "Ni", **more: Any) -> dict[str, Any]:
    return {"x": x, "n": n, "m": m, **more}


def observed(made: Campaign, count: int) -> list[Observation]:
    batch = propose(made, observations=[], n=count, batch_number=0)
    return [Observation(c, {"y": cost(c)}, feasible=True) for c in batch]


def cost(candidate: Mapping[str, Any]):
    return (candidate["x"] - 3) ** 2 + candidate["n"]


def test_a_batch_lies_in_the_space_and_passes_the_checks(tmp_path: Path):
    made = campaign(tmp_path)

    for observations in ([], observed(made, 10)):
        batch = propose(made, observations=observations, n=4, batch_number=1)

        assert len(batch) == 4
        assert not any(made.problems(candidate) for candidate in batch)
        assert all(list(c) == ["x", "n", "m"] for c in batch)
        assert all(type(c["x"]) is float and type(c["n"]) is int for c in batch)
        assert all(any(c["m"] is v for v in ("Cu", "Ni", 3)) for c in batch)


def test_the_same_arguments_give_the_same_batch(tmp_path: Path):
    known = observed(campaign(tmp_path / "a"), 10)

    def batch(folder: str, number: int) -> list[dict[str, Any]]:
        made = campaign(tmp_path / folder)
        return propose(made, observations=known, n=2, batch_number=number)

    assert batch("b", 3) == batch("c", 3)
    assert batch("b", 3) != batch("b", 4)


def test_the_model_finds_what_is_best(tmp_path: Path):
    made = campaign(tmp_path)
    known = observed(made, 8)

    for number in range(1, 6):
        batch = propose(made, observations=known, n=2, batch_number=number)
        known += [Observation(c, {"y": cost(c)}, feasible=True) for c in batch]

    assert min(o.values["y"] for o in known) < 1.1


def test_a_twin_of_what_is_known_is_never_proposed(tmp_path: Path):
    made = campaign(tmp_path)
    known = observed(made, 10)

    def twin(candidate: Any) -> bool:
        return any(abs(candidate["x"] - o.candidate["x"]) < 0.5 for o in known) or (
            abs(candidate["x"] - 3) < 2
        )

    batch = propose(made, observations=known, n=4, batch_number=1, avoid=twin)

    assert not any(twin(candidate) for candidate in batch)


def test_what_runs_is_neither_proposed_nor_crowded(tmp_path: Path):
    made = campaign(tmp_path)
    known = observed(made, 10)
    (first,) = propose(made, observations=known, n=1, batch_number=1)

    (second,) = propose(made, observations=known, n=1, batch_number=1, running=[first])

    assert made.space.distance(first, second) > 0.01


def test_no_two_candidates_of_a_batch_are_twins(tmp_path: Path):
    made = campaign(
        tmp_path,
        variables={"x": {"domain": [1, 2]}},
        duplicates={"tolerance": 0.2},
    )
    known = [Observation({"x": x}, {"y": (x - 1.5) ** 2}, feasible=True) for x in VISITED]

    batch: Any = propose(made, observations=known, n=8, batch_number=1)

    found = sorted(candidate["x"] for candidate in batch)
    assert 2 <= len(found) <= 5
    assert min(b - a for a, b in pairwise(found)) > 0.2


VISITED = (1.0, 1.1, 1.2, 1.3, 1.7, 1.8, 1.9, 2.0)


def test_a_failed_job_is_learned_as_a_place_without_a_result(tmp_path: Path):
    made = campaign(tmp_path)
    known = observed(made, 10)
    failed = Observation(point(x=3.0, n=1, m="Cu"), {}, feasible=False)

    batch = propose(made, observations=[*known, failed], n=4, batch_number=1)

    assert failed.candidate not in batch


def test_constraints_of_the_campaign_are_respected(tmp_path: Path):
    made = campaign(tmp_path, constraints={"z": ["GREATER_THAN", 5]})
    known = [
        Observation(o.candidate, {**o.values, "z": x}, feasible=x > 5)
        for o in observed(made, 14)
        if isinstance(x := o.candidate["x"], float)
    ]

    batch: Any = propose(made, observations=known, n=2, batch_number=1)

    # The cost falls towards x=3, which is forbidden.
    assert all(4.5 < candidate["x"] < 7.5 for candidate in batch)


def test_fewer_are_proposed_when_no_more_are_left(tmp_path: Path):
    made = campaign(tmp_path, variables={"x": {"values": [-1, 1, 2, 3]}})

    batch = propose(made, observations=[], n=8, batch_number=0)

    assert sorted(candidate["x"] for candidate in batch) == [1, 2, 3]


def test_nothing_left_is_an_error_that_names_the_check(tmp_path: Path):
    made = campaign(tmp_path, variables={"x": {"domain": [-9, -8]}})

    with pytest.raises(SurrogateError, match=r"refused as 'x is -8\.\d+, must be at least 0'"):
        propose(made, observations=[], n=1, batch_number=0)


def test_nothing_new_is_an_error_that_says_so(tmp_path: Path):
    made = campaign(tmp_path, variables={"x": {"domain": [1, 2]}})

    with pytest.raises(SurrogateError, match="refused as a twin of a known one"):
        propose(made, observations=[], n=1, batch_number=0, avoid=lambda _: True)


def test_an_exception_of_a_check_is_not_a_rejection(tmp_path: Path):
    made = campaign(tmp_path, check=[{"use": "campaign:broken"}])

    with pytest.raises(KeyError):
        propose(made, observations=[], n=1, batch_number=0)


def test_arguments_of_the_campaign_reach_the_generator(tmp_path: Path):
    use = "batchgate.surrogates:GaussianProcess"
    fallback = {"use": use, "warmup": 6, "args": {"warmup": 99}}
    made = campaign(tmp_path / "a", fallback=fallback)
    design = propose(made, observations=[], n=12, batch_number=0)
    known = [Observation(c, {"y": cost(c)}, feasible=True) for c in design[:10]]

    assert propose(made, observations=known, n=2, batch_number=1) == design[10:]


class TestForeign:
    def test_its_batch_is_taken_as_candidates(self, tmp_path: Path):
        made = scripted(tmp_path, [point(x=2, n=2.0), point(x=3, shift=1, _id=7)])

        batch = propose(made, observations=[], n=2, batch_number=0)

        assert batch == [point(x=2.0), point(x=3.0)]
        assert [type(value) for value in batch[0].values()] == [float, int, str]

    def test_rounding_of_numpy_and_32_bits_is_undone(self, tmp_path: Path):
        made = campaign(tmp_path, fallback={"use": "campaign:Rounding"})

        (candidate,) = propose(made, observations=[], n=1, batch_number=0)

        assert candidate == point(10.0, 3, "Cu")
        assert [type(value) for value in candidate.values()] == [float, int, str]

    def test_it_is_asked_again_for_what_the_checks_refuse(self, tmp_path: Path):
        made = scripted(tmp_path, [point(x=-1), point(x=1)], [point(x=-2)], [point(x=2)])

        batch = propose(made, observations=[], n=2, batch_number=0)

        assert [candidate["x"] for candidate in batch] == [1.0, 2.0]

    @pytest.mark.parametrize(
        "wrong",
        [
            {},
            point(x=11),
            point(x=None),
            point(x="1"),
            point(x=True),
            point(n=0),
            point(m="Al"),
            point(m=None),
        ],
    )
    def test_what_lies_outside_the_space_is_left_out(self, tmp_path: Path, wrong: dict[str, Any]):
        made = scripted(tmp_path, [wrong, point(x=4)])

        assert propose(made, observations=[], n=1, batch_number=0) == [point(x=4.0)]

    def test_repetitions_and_twins_are_left_out(self, tmp_path: Path):
        made = scripted(tmp_path, [point(x=1), point(x=1), point(x=2), point(x=3)])

        batch = propose(made, observations=[], n=2, batch_number=0, avoid=lambda c: c["x"] == 2)

        assert [candidate["x"] for candidate in batch] == [1.0, 3.0]

    def test_it_is_asked_a_bounded_number_of_times(self, tmp_path: Path):
        made = scripted(tmp_path, *[[point(x=-1)]] * 100)

        with pytest.raises(SurrogateError, match="campaign:Scripted found no candidate"):
            propose(made, observations=[], n=1, batch_number=0)

    def test_its_seed_comes_from_campaign_and_batch(self, tmp_path: Path):
        made = campaign(tmp_path, fallback={"use": "campaign:Random"})

        def batch(number: int) -> list[dict[str, Any]]:
            return propose(made, observations=[], n=2, batch_number=number)

        assert batch(0) == batch(0)
        assert batch(0) != batch(1)

    def test_one_without_seed_and_memory_serves_as_well(self, tmp_path: Path):
        made = campaign(tmp_path, fallback={"use": "campaign:Seedless"})

        assert propose(made, observations=[], n=1, batch_number=0) == [point(1.0, 1, "Cu")]

    def test_it_learns_complete_results_only(self, tmp_path: Path):
        made = campaign(
            tmp_path,
            fallback={"use": "campaign:Memory"},
            constraints={"z": ["LESS_THAN", 1]},
        )
        known = [
            Observation(point(), {"y": 1.0, "z": 0.0, "other": 2.0}, feasible=True),
            Observation(point(x=2.0), {"y": 1.0, "z": 3.0}, feasible=False),
            Observation(point(x=3.0), {"y": 1.0}, feasible=False),
            Observation(point(x=4.0), {}, feasible=False),
        ]

        assert propose(made, observations=known, n=1, batch_number=0)[0]["x"] == 2.0

    def test_its_exception_is_a_surrogate_error(self, tmp_path: Path):
        made = campaign(tmp_path, fallback={"use": "campaign:Broken"})

        with pytest.raises(SurrogateError, match="campaign:Broken failed: RuntimeError: no lic"):
            propose(made, observations=[], n=1, batch_number=0)


@pytest.mark.parametrize(
    ("fallback", "message"),
    [
        ({"use": "batchgate.surrogates:GausianProcess"}, "did you mean 'GaussianProcess'"),
        ({"use": "no_such_house:Generator"}, "No module named 'no_such_house'"),
        ({"use": "campaign:Nobody"}, "fallback: campaign has no 'Nobody'"),
        ({"args": {"kernel": "rbf"}}, r"cannot be made with args \['kernel'\]: TypeError"),
        ({"use": "campaign:Scripted", "args": {"size": 1}}, "cannot be made with args"),
    ],
)
def test_a_generator_that_cannot_be_made_is_told(
    tmp_path: Path, fallback: dict[str, Any], message: str
):
    made = campaign(tmp_path, fallback=fallback)

    with pytest.raises(ConfigError, match=message):
        propose(made, observations=[], n=1, batch_number=0)
