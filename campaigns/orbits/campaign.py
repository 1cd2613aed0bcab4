"""Compact planetary systems: REBOUND as the verifier (1e3 orbits) and as the long job.

Planets of equal mass circle a star of one solar mass. A short integration with the chaos
indicator MEGNO predicts how a long one ends: Tamayo et al. (2020), PNAS 117, 18194.
Lengths are in AU, times in years, masses in solar masses.
"""

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from batchgate import Fail

Inputs = Mapping[str, Any]
"""A candidate together with the campaign's constants."""

SPACINGS = ("d1", "d2", "d3", "d4")
GLADMAN = 2 * math.sqrt(3)
"""Spacing in mutual Hill radii below which two planets on circular orbits are not Hill stable:
Gladman (1993), Icarus 106, 247."""
STEPS_AT_PERICENTRE = 16
"""Steps in the effective period at pericentre that a Wisdom-Holman map needs: Wisdom (2015),
AJ 150, 127; Hernandez, Zeebe, Hadden (2022), MNRAS 510, 4302."""
ANOMALIES_RAD = {
    "golden": [i * math.pi * (3 - math.sqrt(5)) for i in range(5)],
    "scattered": [(0.3 + 1.7 * i) ** 2 for i in range(5)],
    "aligned": [0.0] * 5,
}
"""True anomaly of each planet at the start."""
MAX_ENERGY_ERROR = 1e-4
"""Systems that lasted had 5e-6 at most (20 steps an orbit, 2e4 orbits, n=60). An encounter alone
can change it by 3e-3, so it says nothing of a system that broke."""
MAX_RESULT_BYTES = 64 * 1024


def hill_ratio(mass_msun: float) -> float:
    """Return the mutual Hill radius of two planets in their mean semi-major axis."""
    return math.cbrt(2 * mass_msun / 3)


def axes_au(candidate: Inputs) -> list[float]:
    """Return the semi-major axes, the first being 1 AU."""
    axes = [1.0]
    for name in SPACINGS:
        half = candidate[name] * hill_ratio(candidate["mass_msun"]) / 2
        axes.append(axes[-1] * (1 + half) / (1 - half))
    return axes


def hill_spacing(candidate: Inputs) -> Iterator[Fail]:
    """Neighbours need at least the two-planet Hill limit."""
    for name in SPACINGS:
        if candidate[name] < GLADMAN:
            yield Fail(
                f"{name}={candidate[name]:.2f} is below 2*sqrt(3)=3.46 mutual Hill radii (Gladman "
                f"1993): that pair is not Hill stable. Raise {name} to 3.5 or more; five planets "
                "usually need 6 or more.",
                measured=candidate[name],
                bound=GLADMAN,
                field=name,
            )


def orbit_crossing(candidate: Inputs) -> Iterator[Fail]:
    """Neighbouring orbits must not cross, wherever their pericentres lie."""
    axes, ecc = axes_au(candidate), candidate["ecc"]
    for name, inner, outer in zip(SPACINGS, axes, axes[1:], strict=False):
        gap_au = outer * (1 - ecc) - inner * (1 + ecc)
        if gap_au <= 0:
            limit = math.floor(1000 * (outer - inner) / (outer + inner)) / 1000
            yield Fail(
                f"ecc={ecc:.3f} with {name}={candidate[name]:.2f}: the orbits cross, the gap is "
                f"{gap_au:.4f} AU. Lower ecc below {limit:.3f} or raise {name}.",
                measured=ecc,
                bound=limit,
                field="ecc",
            )


def timestep(candidate: Inputs) -> Iterator[Fail]:
    """The integration step must resolve the passage of pericentre."""
    ecc, steps = candidate["ecc"], candidate["steps_per_orbit"]
    passage = (1 - ecc) ** 1.5 / (1 + ecc) ** 0.5
    if steps * passage < STEPS_AT_PERICENTRE:
        yield Fail(
            f"ecc={ecc:.3f}: {steps} steps an orbit are {steps * passage:.1f} in the effective "
            f"period at pericentre, and WHFast needs {STEPS_AT_PERICENTRE}. Lower ecc.",
            measured=steps * passage,
            bound=STEPS_AT_PERICENTRE,
            field="steps_at_pericentre",
        )


def verify(candidate: Inputs, n_orb: float) -> dict[str, float]:
    """Verifier: a short integration that also measures chaos.

    Returns:
        extent: Semi-major axis of the outermost planet, in that of the innermost.
        log10life: Decadic logarithm of the orbits survived, at most that of `n_orb`.
        megno: 2 on regular orbits, larger on chaotic ones.
    """
    simulation = system_of(candidate)
    simulation.init_megno(seed=1)
    life = orbits_survived(simulation, n_orb)
    return {
        "extent": axes_au(candidate)[-1],
        "log10life": math.log10(life),
        "megno": simulation.megno(),
    }


def integrate(candidate: Inputs) -> dict[str, float]:
    """Job: the long integration.

    Returns:
        extent: As of the verifier.
        log10life: As of the verifier.
        energy_error: Relative change of the energy.
        lasted: 1 if there was no encounter and no escape, else 0.
    """
    simulation = system_of(candidate)
    before = simulation.energy()
    life = orbits_survived(simulation, candidate["n_orb"])
    return {
        "extent": axes_au(candidate)[-1],
        "log10life": math.log10(life),
        "energy_error": abs(simulation.energy() / before - 1),
        "lasted": float(life == candidate["n_orb"]),
    }


def read_result(path: str | Path) -> dict[str, float]:
    """Read a job's result and judge whether the integration can be trusted.

    Raises:
        ValueError: It cannot; the message says why.
    """
    with Path(path).open("rb") as file:
        text = file.read(MAX_RESULT_BYTES + 1)
    if len(text) > MAX_RESULT_BYTES:
        raise ValueError(f"the result has more than {MAX_RESULT_BYTES} bytes")
    result = json.loads(text)
    names = ("extent", "log10life", "energy_error", "lasted")
    values = {name: float(result[name]) for name in names}
    if unusable := [name for name in names if not math.isfinite(values[name])]:
        raise ValueError(f"{', '.join(unusable)} must be finite")
    if values["lasted"] and values["energy_error"] > MAX_ENERGY_ERROR:
        raise ValueError(
            f"the energy changed by {values['energy_error']:.1e}, must be at most "
            f"{MAX_ENERGY_ERROR:.0e}: the step is too long"
        )
    return values


def system_of(candidate: Inputs) -> Any:
    """Return the REBOUND simulation of a candidate."""
    return system(
        axes_au(candidate),
        ecc=candidate["ecc"],
        anomalies_rad=ANOMALIES_RAD[candidate["phase"]],
        mass_msun=candidate["mass_msun"],
        steps_per_orbit=candidate["steps_per_orbit"],
    )


def system(
    axes: Sequence[float],
    *,
    ecc: float,
    anomalies_rad: Sequence[float],
    mass_msun: float,
    steps_per_orbit: float,
) -> Any:
    """Return a REBOUND simulation of planets with these semi-major axes, in AU.

    It ends when two bodies come closer than a mutual Hill radius at 1 AU, or one is 10 AU away.
    """
    import rebound

    simulation = rebound.Simulation()
    simulation.units = ("yr", "AU", "Msun")
    simulation.add(m=1.0)
    for axis, anomaly in zip(axes, anomalies_rad, strict=False):
        simulation.add(m=mass_msun, a=axis, e=ecc, f=anomaly % (2 * math.pi))
    simulation.move_to_com()
    simulation.integrator = "whfast"
    simulation.dt = simulation.particles[1].P / steps_per_orbit
    simulation.exit_min_distance = hill_ratio(mass_msun)
    simulation.exit_max_distance = 10.0
    return simulation


def orbits_survived(simulation: Any, n_orb: float) -> float:
    """Integrate; return the orbits of the innermost planet until an encounter, an escape or the end.

    An encounter is a result, not a failure. At least 1.
    """
    import rebound

    period = simulation.particles[1].P
    try:
        simulation.integrate(n_orb * period)
    except (rebound.Encounter, rebound.Escape):
        return max(1.0, float(simulation.t / period))
    return n_orb


if __name__ == "__main__":
    candidate_path, result_path = map(Path, sys.argv[1:])
    observables = integrate(json.loads(candidate_path.read_text(encoding="utf-8")))
    # A reader finds the whole result or none, also when the job is killed here.
    unfinished = result_path.with_suffix(".unfinished")
    unfinished.write_text(json.dumps(observables), encoding="utf-8")
    unfinished.replace(result_path)
