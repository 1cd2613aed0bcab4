"""The augmented Branin function as a campaign: no simulator, and every failure on demand.

The verifier computes it at a lower fidelity, where the valley lies elsewhere: at 0.5 it ranks
points nearly, and not quite, as the job does. Which candidates a fault strikes is a hash of the
candidate, so a failure is the same in every run.

Source: Branin's function as in Surjanovic and Bingham, Virtual Library of Simulation Experiments;
the fidelity as in BoTorch's `AugmentedBranin`, which lowers b by 0.1 (1 - fidelity).
"""

import hashlib
import json
import math
import os
import signal
import time
from collections.abc import Iterator, Mapping
from typing import Any

Inputs = Mapping[str, Any]
"""A candidate together with the campaign's constants."""

MAX_TRAVEL_MM = 20.0
SLOWER = 10
"""How many pauses more a job takes when the fault is slow."""


def travel(candidate: Inputs) -> Iterator[str]:
    """Both knobs hang on one spindle of 20 mm."""
    over_mm = candidate["x1"] + candidate["x2"] - MAX_TRAVEL_MM
    if over_mm > 0:
        yield (
            f"x1 + x2 is {MAX_TRAVEL_MM + over_mm:.2f} mm, but the spindle that both hang on has "
            f"{MAX_TRAVEL_MM:g} mm. Lower x1 or x2 by {over_mm + 0.01:.2f} mm."
        )


def resonance(candidate: Inputs) -> Iterator[str]:
    """The frame resonates where x1 is below 0 and x2 below 5 mm."""
    if candidate["x1"] < 0 and candidate["x2"] < 5:
        yield (
            f"x1={candidate['x1']:.2f}, x2={candidate['x2']:.2f}: the frame resonates where "
            "x1 < 0 and x2 < 5 mm. Raise x1 to 0 or more, or x2 to 5 or more."
        )


def branin(x1: float, x2: float, fidelity: float = 1.0) -> float:
    """Return the function at a point; at fidelity 1 its minimum is 0.397887."""
    b = 5.1 / (4 * math.pi**2) - 0.1 * (1 - fidelity)
    valley = (x2 - b * x1**2 + 5 / math.pi * x1 - 6) ** 2
    return valley + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x1) + 10


def estimate(candidate: Inputs, fidelity: float = 0.5) -> dict[str, float]:
    """Verifier: the function at a lower fidelity, at once."""
    y_low = branin(candidate["x1"], candidate["x2"], fidelity)
    return {"y_low": disturbed(candidate, y_low, level="verify")}


def simulate(candidate: Inputs) -> dict[str, float]:
    """Job: the function itself, after the campaign's pause."""
    time.sleep(candidate["pause_s"])
    y = branin(candidate["x1"], candidate["x2"])
    return {"y": disturbed(candidate, y, level="job")}


def disturbed(candidate: Inputs, value: float, *, level: str) -> float:
    """Return the value, or do to it what the campaign's fault does to this candidate."""
    if level != candidate["fault_level"] or not strikes(candidate):
        return value
    match candidate["fault"]:
        case "crash":  # as the kernel does when memory runs out
            os.kill(os.getpid(), signal.SIGKILL)
        case "raise":
            raise ArithmeticError("the solver did not converge")
        case "nan":
            return math.nan
        case "hang":
            while True:
                time.sleep(60)
        case "slow":
            time.sleep(SLOWER * candidate["pause_s"])
        case "wrong":  # plausible to a program, impossible for the function
            return value - 1000
        case other:
            raise ValueError(f"fault is {other!r}, must be crash, raise, nan, hang, slow or wrong")
    return value


def strikes(candidate: Inputs) -> bool:
    """Whether the campaign's fault strikes a candidate."""
    if candidate["fault"] == "none":
        return False
    text = json.dumps([candidate["fault"], candidate["x1"], candidate["x2"]])
    draw = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / 2**64
    return bool(draw < candidate["fault_share"])
