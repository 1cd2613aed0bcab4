"""The orbits campaign with REBOUND itself: theory, the verifier's worth, and repeatability."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from batchgate.campaign import Campaign, load, unmet

FOLDER = Path(__file__).parents[2] / "campaigns" / "orbits"


@pytest.fixture(scope="module")
def orbits() -> Campaign:
    return load(FOLDER, overrides={"constants.n_orb": 1e4})


def function(campaign: Campaign, name: str) -> Any:
    return campaign.resolve(f"campaign:{name}", what="test")


def inputs(campaign: Campaign, *spacings: float, **more: Any) -> dict[str, Any]:
    names = ("d1", "d2", "d3", "d4")
    values = dict(zip(names, spacings * 4 if len(spacings) == 1 else spacings, strict=True))
    return campaign.inputs({**values, "ecc": 0.0, "phase": "golden", **more})


@pytest.mark.parametrize(
    ("spacing", "broken"), [(3.0, 4), (3.6, 0), (4.2, 0)], ids=["below", "above", "well-above"]
)
def test_two_planets_break_below_gladmans_limit_and_last_above(
    orbits: Campaign, spacing: float, broken: int
):
    """Gladman (1993), Icarus 106, 247: the limit is 2*sqrt(3) = 3.464 mutual Hill radii."""
    system, survived = function(orbits, "system"), function(orbits, "orbits_survived")
    half = spacing * function(orbits, "hill_ratio")(1e-5) / 2

    lives = [
        survived(
            system(
                [1.0, (1 + half) / (1 - half)],
                ecc=0.0,
                anomalies_rad=[0.0, phase * math.pi / 2 + 0.3],
                mass_msun=1e-5,
                steps_per_orbit=20,
            ),
            2e4,
        )
        for phase in range(4)
    ]

    assert sum(life < 2e4 for life in lives) == broken


def test_life_grows_with_the_spacing(orbits: Campaign):
    """Chambers, Wetherill, Boss (1996), Icarus 119, 261: log life is linear in the spacing."""
    integrate = function(orbits, "integrate")

    lives = [integrate(inputs(orbits, spacing))["log10life"] for spacing in (3, 4, 6)]

    assert lives[0] + 0.5 < lives[1] < lives[2] - 0.5
    assert lives[2] == pytest.approx(4.0)


def test_the_verifier_ranks_as_the_job_does(orbits: Campaign):
    verify, integrate = function(orbits, "verify"), function(orbits, "integrate")
    draw = random.Random(11)
    systems = [inputs(orbits, *(draw.uniform(3.5, 7) for _ in range(4))) for _ in range(16)]

    # Of those that last a thousand orbits, the more regular ones should last longer.
    predicted = [
        v["log10life"] + 1 / max(v["megno"], 1.9) for v in (verify(s, n_orb=1e3) for s in systems)
    ]
    lives = [integrate(s)["log10life"] for s in systems]

    pairs = [(i, j) for i in range(16) for j in range(i) if lives[i] != lives[j]]
    agree = sum((predicted[i] - predicted[j]) * (lives[i] - lives[j]) > 0 for i, j in pairs)
    assert len(pairs) > 60
    assert agree / len(pairs) > 0.75


def test_the_gate_lets_a_safe_system_pass_and_refuses_a_chaotic_one(orbits: Campaign):
    verify, accept = function(orbits, "verify"), orbits.spec.verifiers[0].accept

    assert list(unmet(accept, verify(inputs(orbits, 9), n_orb=1e3))) == []
    assert list(unmet(accept, verify(inputs(orbits, 4), n_orb=1e3))) != []


def test_energy_is_kept_where_nothing_happens(orbits: Campaign):
    result = function(orbits, "integrate")(inputs(orbits, 9, ecc=0.02))

    assert result["lasted"] == 1
    assert result["energy_error"] < 1e-6


def test_a_system_has_one_result(orbits: Campaign):
    verify, integrate = function(orbits, "verify"), function(orbits, "integrate")
    system = inputs(orbits, 4.5, 5, 5, 6, ecc=0.01, phase="scattered")

    assert verify(system, n_orb=1e3) == verify(system, n_orb=1e3)
    assert integrate(system) == integrate(system)


def test_the_job_is_a_program_of_its_own_whose_result_is_read(orbits: Campaign, tmp_path: Path):
    candidate, result = tmp_path / "candidate.json", tmp_path / "result.json"
    candidate.write_text(json.dumps(inputs(orbits, 9)))
    places = {"{python}": sys.executable, "{candidate}": str(candidate), "{result}": str(result)}
    assert orbits.spec.job.command is not None
    command = [places.get(part, part) for part in orbits.spec.job.command]

    subprocess.run(command, check=True, cwd=tmp_path, env={"PYTHONPATH": str(FOLDER)}, timeout=60)

    assert orbits.parse(orbits.spec.job)(result) == function(orbits, "integrate")(inputs(orbits, 9))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["candidate.json", "result.json"]
