"""Our gest-api generators, used as any program of that standard would."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
from gest_api import Generator
from gest_api.vocs import VOCS

import batchgate.surrogates
from batchgate.campaign import Space, Variable
from batchgate.errors import ConfigError, SurrogateError
from batchgate.surrogates import GaussianProcess, Sobol

BOWL = VOCS(
    variables={"a": [0.0, 1.0], "b": [0.0, 1.0]},
    objectives={"y": "MINIMIZE"},
    constants={"depth": 3},
)
GENERATORS = [GaussianProcess, Sobol]


def bowl(point):
    return (point["a"] - 0.3) ** 2 + (point["b"] - 0.7) ** 2


def measured(points: list[dict[str, Any]], of: Any = bowl) -> list[dict[str, Any]]:
    return [{**point, "y": of(point)} for point in points]


def inside(point):
    return 0 <= point["a"] <= 1 and 0 <= point["b"] <= 1


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_generator_suggests_as_many_points_as_asked_with_constants(kind):
    generator = kind(BOWL, seed=1)

    points = generator.suggest(5)

    assert isinstance(generator, Generator)
    assert len(points) == 5
    assert all(inside(point) and point["depth"] == 3 for point in points)
    assert len({point["a"] for point in points}) == 5
    assert len(generator.suggest()) == 1


@pytest.mark.parametrize("kind", GENERATORS)
def test_the_same_seed_and_data_give_the_same_points_bit_for_bit(kind):
    known = measured(Sobol(BOWL, seed=9).suggest(12))

    def suggested(seed):
        generator = kind(BOWL, seed=seed)
        generator.ingest(known)
        return generator.suggest(4)

    assert suggested(1) == suggested(1)
    assert suggested(1) != suggested(2)


def test_asking_one_by_one_gives_the_batch():
    known = measured(Sobol(BOWL, seed=9).suggest(12))
    together, apart = GaussianProcess(BOWL, seed=1), GaussianProcess(BOWL, seed=1)
    together.ingest(known)
    apart.ingest(known)

    assert together.suggest(3) == [apart.suggest(1)[0] for _ in range(3)]


def test_the_design_goes_on_where_the_known_points_end():
    whole = Sobol(BOWL, seed=3).suggest(6)

    later = GaussianProcess(BOWL, seed=3, batch_number=7)
    later.ingest(measured(whole[:4]))

    assert later.suggest(2) == whole[4:]


def test_another_batch_number_gives_other_points_of_the_model_only():
    known = measured(Sobol(BOWL, seed=3).suggest(10))

    def suggested(batch_number: int, warmup: int) -> list[dict[str, Any]]:
        generator = GaussianProcess(BOWL, seed=3, batch_number=batch_number, warmup=warmup)
        generator.ingest(known)
        return generator.suggest(1)

    assert suggested(0, warmup=8) != suggested(1, warmup=8)
    assert suggested(0, warmup=11) == suggested(1, warmup=11)


def test_the_gaussian_process_goes_to_the_minimum():
    generator = GaussianProcess(BOWL, seed=1)
    known: list[dict[str, Any]] = []
    for n in (8, 2, 2, 2):
        points = measured(generator.suggest(n))
        generator.ingest(points)
        known += points

    assert min(point["y"] for point in known) < 1e-3


def test_maximising_is_the_mirror_of_minimising():
    mirrored = VOCS(variables=dict(BOWL.variables), objectives={"y": "MAXIMIZE"})
    low, high = GaussianProcess(BOWL, seed=1), GaussianProcess(mirrored, seed=1)
    known = Sobol(BOWL, seed=9).suggest(12)
    low.ingest(measured(known))
    high.ingest(measured(known, of=lambda point: -bowl(point)))

    (one,), (other,) = low.suggest(1), high.suggest(1)

    assert (one["a"], one["b"]) == (other["a"], other["b"])


def test_nothing_that_is_not_feasible_is_suggested():
    def feasible(point):
        return point["a"] + point["b"] > 1.2

    generator = GaussianProcess(BOWL, seed=1, feasible=feasible)
    generator.ingest(measured(Sobol(BOWL, seed=9).suggest(12)))

    points = generator.suggest(4)

    # The minimum lies at a + b = 1, so the best allowed point is at the edge.
    assert all(feasible(point) for point in points)
    assert min(point["a"] + point["b"] for point in points) < 1.3


@pytest.mark.parametrize("known", [0, 12])
def test_a_space_without_a_feasible_point_is_an_error(known):
    generator = GaussianProcess(BOWL, seed=1, feasible=lambda _: False)
    generator.ingest(measured(Sobol(BOWL, seed=9).suggest(known or 1))[:known])

    with pytest.raises(SurrogateError, match="both new and allowed"):
        generator.suggest(1)


@pytest.mark.parametrize("kind", GENERATORS)
def test_a_finite_space_is_used_up_without_a_repetition(kind):
    vocs = VOCS(variables={"m": {"a", "b", "c"}, "k": {1, 2, 3, 4}}, objectives={"y": "MINIMIZE"})
    generator = kind(vocs, seed=1, warmup=3)
    seen = []

    for _ in range(12):
        (point,) = generator.suggest(1)
        generator.ingest([{**point, "y": point["k"]}])
        seen.append((point["m"], point["k"]))

    assert len(set(seen)) == 12
    with pytest.raises(SurrogateError):
        generator.suggest(1)


def test_running_candidates_are_neither_suggested_nor_crowded():
    known = measured(Sobol(BOWL, seed=9).suggest(12))
    alone = GaussianProcess(BOWL, seed=1)
    alone.ingest(known)
    (first,) = alone.suggest(1)

    beside = GaussianProcess(BOWL, seed=1, running=[first])
    beside.ingest(known)
    (second,) = beside.suggest(1)

    assert math.dist((first["a"], first["b"]), (second["a"], second["b"])) > 0.02


def test_a_result_replaces_what_was_believed_of_it():
    known = measured(Sobol(BOWL, seed=9).suggest(12))
    one, other = GaussianProcess(BOWL, seed=1), GaussianProcess(BOWL, seed=1)
    one.ingest(known)
    result = measured(one.suggest(1))

    one.ingest(result)
    other.ingest(known)
    other.ingest(result)

    assert one.suggest(2) == other.suggest(2)


def test_where_runs_failed_no_more_are_suggested():
    # Everything in the half that holds the minimum fails.
    def half(point: dict[str, Any]) -> float:
        return math.nan if point["a"] < 0.5 else bowl(point)

    generator = GaussianProcess(BOWL, seed=1)
    generator.ingest(measured(Sobol(BOWL, seed=9).suggest(16), of=half))

    points = generator.suggest(4)

    assert sum(point["a"] >= 0.45 for point in points) >= 3


@pytest.mark.parametrize("missing", [{}, {"y": None}, {"y": math.inf}, {"y": "fast"}, {"y": 1e200}])
def test_a_result_without_an_objective_is_a_failure_and_its_place_is_taken(missing):
    generator = GaussianProcess(BOWL, seed=1, warmup=2)
    first, *others = Sobol(BOWL, seed=1).suggest(4)
    generator.ingest([{**first, **missing}, *measured(others)])

    assert first not in generator.suggest(3)


def test_nothing_but_failures_leaves_the_design():
    design = Sobol(BOWL, seed=1).suggest(12)
    generator = GaussianProcess(BOWL, seed=1)
    generator.ingest(design[:10])

    assert generator.suggest(2) == design[10:]


def test_a_constraint_on_an_observable_is_learned():
    vocs = VOCS(
        variables=dict(BOWL.variables),
        objectives={"y": "MINIMIZE"},
        constraints={"z": ["GREATER_THAN", 0.6]},
    )
    generator = GaussianProcess(vocs, seed=1)
    known = measured(Sobol(BOWL, seed=9).suggest(12))
    generator.ingest([{**point, "z": point["a"]} for point in known])

    points = generator.suggest(3)

    # The minimum at a=0.3 is forbidden; the best allowed value is at the bound.
    assert all(0.55 < point["a"] < 0.75 for point in points)


def test_without_a_feasible_result_feasibility_comes_first():
    vocs = VOCS(
        variables=dict(BOWL.variables),
        objectives={"y": "MINIMIZE"},
        constraints={"z": ["LESS_THAN", -0.9]},
    )
    generator = GaussianProcess(vocs, seed=1)
    known = [p for p in measured(Sobol(BOWL, seed=9).suggest(24)) if p["a"] < 0.85]
    generator.ingest([{**point, "z": -point["a"]} for point in known])

    (point,) = generator.suggest(1)

    assert point["a"] > 0.9


def test_a_space_adds_logarithms_and_whole_numbers():
    space = Space(
        variables={
            "a": Variable(domain=(1e-6, 1), log=True),
            "n": Variable(domain=(1, 8), integer=True),
        }
    )
    vocs = VOCS(variables={"a": [1e-6, 1.0], "n": [1, 8]}, objectives={"y": "MINIMIZE"})
    generator = GaussianProcess(vocs, seed=1, space=space)

    points = generator.suggest(8)
    generator.ingest([{**p, "y": abs(math.log10(p["a"]) + 4) + p["n"]} for p in points])
    points += generator.suggest(4)

    assert all(type(point["n"]) is int for point in points)
    assert sum(point["a"] < 1e-3 for point in points) >= 4
    assert all(point["n"] <= 3 for point in points[8:10])


def test_many_results_are_thinned_and_the_best_are_kept():
    generator = GaussianProcess(BOWL, seed=1)
    generator.ingest(measured(Sobol(BOWL, seed=9).suggest(700)))

    (point,) = generator.suggest(1)

    assert bowl(point) < 2e-3


def test_thousands_of_listed_values_are_searched():
    vocs = VOCS(
        variables={"m": {f"material {i}" for i in range(900)}, "a": [0.0, 1.0]},
        objectives={"y": "MINIMIZE"},
    )
    generator = GaussianProcess(vocs, seed=1, warmup=4)
    generator.ingest([{**point, "y": point["a"]} for point in generator.suggest(6)])

    assert generator.suggest(1)[0]["a"] < 0.2


def test_a_problem_that_is_not_theirs_is_refused():
    with pytest.raises(ValueError, match="needs one objective"):
        GaussianProcess(VOCS(variables={"a": [0, 1]}, objectives={"y": "EXPLORE"}))


@pytest.mark.parametrize("library", ["gest_api", "sklearn", "scipy"])
def test_a_missing_library_is_told_with_the_command_that_installs_it(
    library, monkeypatch: pytest.MonkeyPatch
):
    for name in [n for n in sys.modules if n.startswith("batchgate.surrogates.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [n for n in sys.modules if n.partition(".")[0] == library]:
        monkeypatch.setitem(sys.modules, name, None)

    with pytest.raises(ConfigError, match=rf"needs {library}: pip install .batchgate\[surrogate\]"):
        _ = batchgate.surrogates.GaussianProcess


def test_another_missing_module_is_not_blamed_on_the_extra(monkeypatch: pytest.MonkeyPatch):
    for name in [n for n in sys.modules if n.startswith("batchgate.surrogates.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "batchgate.surrogates.encoding", None)

    with pytest.raises(ModuleNotFoundError):
        _ = batchgate.surrogates.GaussianProcess


def test_other_names_are_no_attributes():
    assert dir(batchgate.surrogates) == ["GaussianProcess", "Sobol", "propose"]
    with pytest.raises(AttributeError, match="has no attribute 'Gaussian'"):
        _ = batchgate.surrogates.Gaussian
