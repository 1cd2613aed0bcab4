"""Encoding, VOCS, acquisition and the Gaussian process, each alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from gest_api.vocs import VOCS, BaseConstraint
from scipy import integrate, stats

from batchgate.campaign import CampaignSpec, Constraint, Space, Variable
from batchgate.surrogates.acquisition import (
    log_expected_improvement,
    log_probability,
)
from batchgate.surrogates.encoding import Encoding
from batchgate.surrogates.model import Model
from batchgate.surrogates.vocs import constraints_of, objective_of, space_of, vocs_of

MIXED = Space(
    variables={
        "width": Variable(domain=(0, 10)),
        "dose": Variable(domain=(1, 100), log=True),
        "layers": Variable(domain=(1, 5), integer=True),
        "metal": Variable(values=("Cu", "Ni", "Al")),
    }
)


class TestEncoding:
    def test_a_candidate_and_its_point_are_one(self):
        encoding = Encoding(MIXED)
        candidate: dict[str, Any] = {"width": 2.5, "dose": 10.0, "layers": 3, "metal": "Ni"}

        points = encoding.points([candidate])

        assert points.tolist() == [[0.25, 0.5, 0.5, 0.5]]
        assert encoding.candidate(points[0]) == {**candidate, "dose": pytest.approx(10)}

    def test_features_are_shares_and_a_column_for_each_listed_value(self):
        features = Encoding(MIXED).features(np.array([[0.25, 0.5, 0.49, 0.99], [0, 0, 1, 0]]))

        # Share 0.49 of five whole numbers is the middle one.
        assert features.tolist() == [[0.25, 0.5, 0.5, 0, 0, 1], [0, 0, 1, 1, 0, 0]]

    def test_equal_values_of_other_types_are_other_columns(self):
        encoding = Encoding(Space(variables={"a": Variable(values=(0, "0", False))}))

        points = encoding.points([{"a": 0}, {"a": "0"}, {"a": False}])

        assert encoding.features(points).tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]

    def test_no_candidates_give_no_points(self):
        assert Encoding(MIXED).points([]).shape == (0, 4)


class TestVocs:
    def test_a_campaign_is_told_in_vocs(self):
        spec = CampaignSpec.model_validate(
            {
                "campaign": {"name": "test"},
                "variables": {
                    "x": {"domain": [0, 1], "log": False},
                    "n": {"domain": [1, 4], "integer": True},
                    "m": {"values": ["a", "b"]},
                },
                "constants": {"c": 2},
                "objectives": {"y": "MAXIMIZE"},
                "constraints": {
                    "z": ["BOUNDS", 0, 1],
                    "w": ["LESS_THAN", 3],
                    "v": ["GREATER_THAN", 1],
                },
                "level": [{"name": "job", "use": "math:fsum", "timeout_s": 1}],
                "fallback": {},
                "stop": {"node_h": 1},
            }
        )

        vocs = vocs_of(spec)

        assert vocs.variable_names == ["x", "n", "m"]
        assert vocs.variables["n"].dtype is int
        assert vocs.variables["m"].values == {"a", "b"}
        assert vocs.constants["c"].value == 2
        assert objective_of(vocs) == ("y", False)
        assert constraints_of(vocs) == dict(spec.constraints)

    def test_a_space_comes_back_from_vocs(self):
        vocs = VOCS(variables={"x": [0.0, 1.0], "m": {"b", "a"}}, objectives={"y": "MINIMIZE"})

        space = space_of(vocs)

        assert space.variables["x"] == Variable(domain=(0, 1))
        assert space.variables["m"] == Variable(values=("a", "b"))

    @pytest.mark.parametrize(
        "objectives", [{}, {"y": "EXPLORE"}, {"a": "MINIMIZE", "b": "MINIMIZE"}]
    )
    def test_other_than_one_objective_is_refused(self, objectives):
        with pytest.raises(ValueError, match="needs one objective to minimise or maximise"):
            objective_of(VOCS(variables={"x": [0, 1]}, objectives=objectives))

    def test_a_constraint_of_a_kind_to_come_is_refused(self):
        vocs = VOCS(variables={"x": [0, 1]}, constraints={"z": BaseConstraint()})

        with pytest.raises(ValueError, match="constraint z is a BaseConstraint"):
            constraints_of(vocs)

    def test_a_contextual_variable_is_refused(self):
        vocs = VOCS(variables={"x": "CONTEXTUAL"}, objectives={"y": "MINIMIZE"})

        with pytest.raises(ValueError, match="x is contextual"):
            space_of(vocs)


class TestAcquisition:
    @pytest.mark.parametrize("z", [3.0, 0.0, -0.5, -1.0, -1.5, -3.0, -6.0])
    def test_expected_improvement_is_the_integral_it_stands_for(self, z):
        mean, std = 2.0, 0.5
        best = mean + z * std
        found = log_expected_improvement(np.array([mean]), np.array([std]), best)

        expected, _ = integrate.quad(
            lambda t: (best - mean - std * t) * stats.norm.pdf(t), -40, z, epsabs=0, epsrel=1e-10
        )
        assert found[0] == pytest.approx(math.log(expected), rel=1e-6)

    def test_hopeless_points_still_have_an_order(self):
        mean = np.array([1e1, 1e2, 1e4, 1e6, 1e20, 1e90])

        found = log_expected_improvement(mean, np.full(6, 0.1), 0.0)

        assert np.isfinite(found).all()
        assert (np.diff(found) < 0).all()

    def test_far_tail_joins_its_limit(self):
        near = log_expected_improvement(np.array([1e5 - 1, 1e5 + 1]), np.ones(2), 0.0)

        # d log(pdf(z)/z^2)/dz is about -z.
        assert near[0] - near[1] == pytest.approx(2e5, rel=1e-6)

    @pytest.mark.parametrize(
        ("kind", "bounds", "probability"),
        [
            ("LESS_THAN", (1.0,), stats.norm.cdf(1)),
            ("GREATER_THAN", (1.0,), stats.norm.sf(1)),
            ("BOUNDS", (-1.0, 2.0), stats.norm.cdf(2) - stats.norm.cdf(-1)),
            ("BOUNDS", (7.0, 8.0), stats.norm.sf(7) - stats.norm.sf(8)),
            ("BOUNDS", (-8.0, -7.0), stats.norm.sf(7) - stats.norm.sf(8)),
        ],
    )
    def test_a_constraint_holds_with_its_normal_probability(self, kind, bounds, probability):
        found = log_probability(Constraint(kind, bounds), np.zeros(1), np.ones(1))

        assert found[0] == pytest.approx(math.log(probability), rel=1e-9)

    @pytest.mark.parametrize("bounds", [(1e80, 2e80), (-2e80, -1e80), (0.0, 1e-90)])
    def test_an_impossible_constraint_stays_finite(self, bounds):
        found = log_probability(Constraint("BOUNDS", bounds), np.zeros(1), np.ones(1))

        assert np.isfinite(found).all()
        assert found[0] < -30


class TestModel:
    def test_it_returns_what_was_observed_and_doubts_what_was_not(self):
        where = np.linspace(0, 1, 9)[:, None]
        values = np.sin(6 * where[:, 0])

        mean, std = Model(where, values).predict(np.array([[0.5], [0.55]]))

        assert mean == pytest.approx(np.sin([3.0, 3.3]), abs=0.02)
        assert std[0] < std[1] < 0.1

    def test_a_variable_without_influence_gets_a_long_length_scale(self):
        rng = np.random.default_rng(1)
        where = rng.random((40, 2))

        model = Model(where, np.sin(6 * where[:, 0]))

        (there, _), (beside, _) = (model.predict(np.array([[0.3, s]])) for s in (0.1, 0.9))
        assert there == pytest.approx(beside, abs=0.05)

    @pytest.mark.parametrize("values", [[5.0, 5.0, 5.0], [1e99, -1e99, 0.0], [1e-200, 0.0, 0.0]])
    def test_values_of_any_size_are_fitted_without_warning(self, values):
        mean, std = Model(np.array([[0.1], [0.5], [0.9]]), np.array(values)).predict(np.eye(1))

        assert np.isfinite(mean).all()
        assert (std > 0).all()

    def test_the_same_place_twice_is_fitted(self):
        mean, std = Model(np.full((5, 2), 0.5), np.arange(5.0)).predict(np.full((1, 2), 0.5))

        assert mean[0] == pytest.approx(2.0, abs=0.1)
        assert std[0] > 0

    def test_a_believed_point_removes_doubt_and_moves_nothing(self):
        model = Model(np.array([[0.0], [0.2], [1.0]]), np.array([0.0, 1.0, 0.5]))
        place = np.array([[0.6]])
        (mean,), (std,) = model.predict(place)

        believed = model.believe(place[0])

        (after,), (doubt,) = model.predict(place)
        assert believed == pytest.approx(mean)
        assert after == pytest.approx(mean, abs=1e-3)
        assert doubt < std / 10
