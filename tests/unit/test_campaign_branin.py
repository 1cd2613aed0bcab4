"""The Branin campaign: its function, its checks, and the failures it makes on demand."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from batchgate.campaign import Campaign, load, unmet

FOLDER = Path(__file__).parents[2] / "campaigns" / "branin"
MINIMISERS = [(-math.pi, 12.275), (math.pi, 2.275), (9.42478, 2.475)]


def loaded(**overrides: Any) -> Campaign:
    return load(FOLDER, overrides={"constants.pause_s": 0.0} | overrides)


def function(campaign: Campaign, name: str) -> Any:
    return campaign.resolve(f"campaign:{name}", what="test")


def candidates(count: int) -> list[dict[str, Any]]:
    return [{"x1": -5 + 15 * i / count, "x2": 15 * i * 0.618 % 15} for i in range(count)]


@pytest.mark.parametrize("point", MINIMISERS)
def test_the_three_minimisers_pass_every_layer_with_the_known_minimum(point: tuple[float, float]):
    campaign = loaded()
    candidate = dict(zip(("x1", "x2"), point, strict=True))
    inputs = campaign.inputs(candidate)

    estimate = function(campaign, "estimate")(inputs, **campaign.spec.verifiers[0].args)
    result = function(campaign, "simulate")(inputs)

    assert campaign.problems(candidate) == []
    assert list(unmet(campaign.spec.verifiers[0].accept, estimate)) == []
    assert result["y"] == pytest.approx(0.397887, abs=1e-6)
    assert list(unmet(campaign.spec.job.accept, result)) == []


def test_each_layer_refuses_some_candidates():
    campaign = loaded()
    estimate = function(campaign, "estimate")
    grid = candidates(200)

    checked = [c for c in grid if not campaign.problems(c)]
    verified = [
        c
        for c in checked
        if not list(
            unmet(campaign.spec.verifiers[0].accept, estimate(campaign.inputs(c), fidelity=0.5))
        )
    ]

    assert 0.6 < len(checked) / len(grid) < 0.95
    assert 0.4 < len(verified) / len(checked) < 0.9


def test_the_verifier_ranks_nearly_as_the_job_does():
    campaign = loaded()
    estimate, simulate = function(campaign, "estimate"), function(campaign, "simulate")
    points = [campaign.inputs(c) for c in candidates(200)]

    low = ranks([estimate(p, fidelity=0.5)["y_low"] for p in points])
    high = ranks([simulate(p)["y"] for p in points])

    difference = sum((a - b) ** 2 for a, b in zip(low, high, strict=True))
    spearman = 1 - 6 * difference / (len(points) * (len(points) ** 2 - 1))
    assert 0.8 < spearman < 0.99


def ranks(values: list[float]) -> list[int]:
    order = sorted(range(len(values)), key=values.__getitem__)
    return [order.index(i) for i in range(len(values))]


def test_checks_say_what_and_by_how_much():
    campaign = loaded()

    (far,) = campaign.problems({"x1": 9.0, "x2": 14.0})
    (low,) = campaign.problems({"x1": -3.0, "x2": 1.5})

    assert far == (
        "x1 + x2 is 23.00 mm, but the spindle that both hang on has 20 mm. "
        "Lower x1 or x2 by 3.01 mm."
    )
    assert low == (
        "x1=-3.00, x2=1.50: the frame resonates where x1 < 0 and x2 < 5 mm. "
        "Raise x1 to 0 or more, or x2 to 5 or more."
    )


def test_no_fault_is_the_default():
    campaign = load(FOLDER)

    assert campaign.spec.constants["fault"] == "none"
    assert not any(function(campaign, "strikes")(campaign.inputs(c)) for c in candidates(50))


def test_a_fault_strikes_its_share_and_always_the_same_candidates():
    campaign = loaded(**{"constants.fault": "nan", "constants.fault_share": 0.3})
    strikes = function(campaign, "strikes")

    struck = [strikes(campaign.inputs(c)) for c in candidates(500)]

    assert struck == [strikes(campaign.inputs(c)) for c in candidates(500)]
    assert 0.22 < sum(struck) / 500 < 0.38


def test_a_fault_strikes_the_level_that_is_named():
    verifier = loaded(
        **{
            "constants.fault": "nan",
            "constants.fault_share": 1.0,
            "constants.fault_level": "verify",
        }
    )
    inputs = verifier.inputs({"x1": 1.0, "x2": 1.0})

    assert math.isnan(function(verifier, "estimate")(inputs)["y_low"])
    assert math.isfinite(function(verifier, "simulate")(inputs)["y"])


def test_a_wrong_result_is_caught_by_the_result_gate():
    campaign = loaded(**{"constants.fault": "wrong", "constants.fault_share": 1.0})

    result = function(campaign, "simulate")(campaign.inputs({"x1": 1.0, "x2": 1.0}))

    assert math.isfinite(result["y"])
    assert list(unmet(campaign.spec.job.accept, result)) != []


def test_a_raise_raises_and_an_unknown_fault_is_told():
    raising = loaded(**{"constants.fault": "raise", "constants.fault_share": 1.0})
    odd = loaded(**{"constants.fault": "explode", "constants.fault_share": 1.0})
    inputs = {"x1": 1.0, "x2": 1.0}

    with pytest.raises(ArithmeticError, match="did not converge"):
        function(raising, "simulate")(raising.inputs(inputs))
    with pytest.raises(ValueError, match="fault is 'explode', must be"):
        function(odd, "simulate")(odd.inputs(inputs))


def test_a_slow_job_takes_ten_pauses_more():
    campaign = loaded(
        **{"constants.fault": "slow", "constants.fault_share": 1.0, "constants.pause_s": 0.01}
    )

    began = time.monotonic()
    function(campaign, "simulate")(campaign.inputs({"x1": 1.0, "x2": 1.0}))

    assert time.monotonic() - began >= 0.11


def alone(fault: str) -> subprocess.Popen[str]:
    """Run the job in a process of its own, with nothing of this package in sight."""
    inputs = {"x1": 1.0, "x2": 1.0, "pause_s": 0.0, "fault": fault}
    inputs |= {"fault_share": 1.0, "fault_level": "job"}
    code = """
import json, sys, campaign
print("ready", flush=True)
print(campaign.simulate(json.loads(sys.argv[1])))
"""
    return subprocess.Popen(
        [sys.executable, "-c", code, json.dumps(inputs)],
        cwd=FOLDER,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_functions_run_without_this_package():
    output, _ = alone("none").communicate(timeout=60)

    assert output.startswith("ready\n{'y': 2")


def test_a_crash_ends_the_process_by_a_signal():
    process = alone("crash")
    process.communicate(timeout=60)

    assert process.returncode == -signal.SIGKILL


def test_a_hang_lasts_until_it_is_killed():
    process = alone("hang")
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == "ready\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=1)
    finally:
        process.kill()
        process.communicate(timeout=60)
