"""Regret and CPU time of the fallback on three standard functions: `python -m benchmarks.surrogate`.

Each run is a campaign as the runner drives it: a design of 10 points, then batches through
`batchgate.surrogates.propose`, 30 evaluations in all. Simple regret is the distance of the best
value to the known optimum. CPU seconds are of one batch, hyper-parameters fitted anew.

Functions and optima: Surjanovic, Bingham, Virtual Library of Simulation Experiments
(https://www.sfu.ca/~ssurjano). Borehole is maximised over its box there; here its negative is
minimised.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from batchgate.campaign import Campaign, Observation
from batchgate.surrogates import propose

Point = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Function:
    """A test function with the domain of each input and its lowest value."""

    name: str
    call: Callable[[Point], float]
    domains: Mapping[str, tuple[float, float]]
    optimum: float


def branin(p: Point) -> float:
    curve = p["x2"] - 5.1 / (4 * math.pi**2) * p["x1"] ** 2 + 5 / math.pi * p["x1"] - 6
    return float(curve**2 + 10 * (1 - 1 / (8 * math.pi)) * math.cos(p["x1"]) + 10)


HARTMANN = (
    (1.0, (10, 3, 17, 3.5, 1.7, 8), (1312, 1696, 5569, 124, 8283, 5886)),
    (1.2, (0.05, 10, 17, 0.1, 8, 14), (2329, 4135, 8307, 3736, 1004, 9991)),
    (3.0, (3, 3.5, 1.7, 10, 17, 8), (2348, 1451, 3522, 2883, 3047, 6650)),
    (3.2, (17, 8, 0.05, 10, 0.1, 14), (4047, 8828, 8732, 5743, 1091, 381)),
)


def hartmann6(p: Point) -> float:
    x = [p[f"x{i}"] for i in range(1, 7)]
    return -sum(
        height
        * math.exp(-sum(w * (v - c / 1e4) ** 2 for w, v, c in zip(widths, x, centre, strict=True)))
        for height, widths, centre in HARTMANN
    )


def borehole(p: Point) -> float:
    spread = math.log(p["r"] / p["rw"])
    leak = 2 * p["L"] * p["Tu"] / (spread * p["rw"] ** 2 * p["Kw"])
    flow = 2 * math.pi * p["Tu"] * (p["Hu"] - p["Hl"]) / (spread * (1 + leak + p["Tu"] / p["Tl"]))
    return -float(flow)


FUNCTIONS = (
    Function("Branin", branin, {"x1": (-5, 10), "x2": (0, 15)}, 0.397887),
    Function("Hartmann-6", hartmann6, {f"x{i}": (0, 1) for i in range(1, 7)}, -3.32237),
    Function(
        "Borehole",
        borehole,
        {
            "rw": (0.05, 0.15),
            "r": (100, 50_000),
            "Tu": (63_070, 115_600),
            "Hu": (990, 1_110),
            "Tl": (63.1, 116),
            "Hl": (700, 820),
            "L": (1_120, 1_680),
            "Kw": (9_855, 12_045),
        },
        -309.5756,
    ),
)


def campaign_of(function: Function, *, generator: str, seed: int) -> Campaign:
    """Return a campaign that minimises a function with one of our generators."""
    return Campaign.of(
        {
            "campaign": {"name": "benchmark", "seed": seed},
            "variables": {name: {"domain": d} for name, d in function.domains.items()},
            "objectives": {"y": "MINIMIZE"},
            "level": [{"name": "job", "use": "math:fsum", "timeout_s": 1}],
            "fallback": {"use": f"batchgate.surrogates:{generator}", "warmup": 10},
            "stop": {"node_h": 1},
        }
    )


def regret(function: Function, *, generator: str, seed: int, batch: int) -> tuple[float, float]:
    """Return the regret after 30 evaluations, and the CPU seconds of a batch after the design."""
    campaign = campaign_of(function, generator=generator, seed=seed)
    known: list[Observation] = []
    cpu_s: list[float] = []
    for batch_number, n in enumerate((10, *[batch] * (20 // batch))):
        began = time.process_time()
        chosen = propose(campaign, observations=known, n=n, batch_number=batch_number)
        cpu_s.append(time.process_time() - began)
        known += [Observation(c, {"y": function.call(c)}, feasible=True) for c in chosen]
    best = min(observation.values["y"] for observation in known)
    return best - function.optimum, statistics.mean(cpu_s[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition(":")[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, default=5, help="campaign seeds of each row")
    seeds = range(parser.parse_args().seeds)
    print(f"30 evaluations, {len(seeds)} seeds: median simple regret (worst), CPU s of a batch")
    print(f"{'function':<12}{'generator':<17}{'batch':>5}{'regret':>10}{'(worst)':>11}{'CPU s':>8}")
    for function in FUNCTIONS:
        for generator, batch in (("Sobol", 4), ("GaussianProcess", 4), ("GaussianProcess", 1)):
            runs = [regret(function, generator=generator, seed=s, batch=batch) for s in seeds]
            regrets, cpu_s = zip(*runs, strict=True)
            median, worst = statistics.median(regrets), f"({max(regrets):.3f})"
            print(
                f"{function.name:<12}{generator:<17}{batch:>5}"
                f"{median:>10.4f}{worst:>11}{statistics.median(cpu_s):>8.3f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
