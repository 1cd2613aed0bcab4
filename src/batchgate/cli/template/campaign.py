"""A cantilever beam of rectangular cross-section: plain functions, testable on their own."""

DENSITY = 7850.0  # kg/m3
MODULUS = {"S235": 210e9, "S355": 212e9}  # Pa
LOAD = 1000.0  # N, at the tip
GRAVITY = 9.81  # m/s2


def slender(candidate):
    """Yield a problem for a cross-section for which beam theory does not hold."""
    for name in ("width", "height"):
        if candidate[name] > candidate["length"] / 10:
            yield (
                f"{name}={candidate[name]:.3f} m is more than a tenth of the length, so the beam "
                f"is not slender; choose at most {candidate['length'] / 10:.2f} m"
            )
    if candidate["height"] > 6 * candidate["width"]:
        yield "height is more than 6 times the width: the section would buckle sideways; widen it"


def mass(candidate):
    """Return the beam's mass in kg."""
    return DENSITY * candidate["width"] * candidate["height"] * candidate["length"]


def estimate(candidate):
    """Return the closed-form deflection (m) and the mass (kg): cheap, the verifier."""
    inertia = candidate["width"] * candidate["height"] ** 3 / 12
    stiffness = MODULUS[candidate["steel"]] * inertia
    weight = mass(candidate) * GRAVITY / candidate["length"]
    length = candidate["length"]
    tip = LOAD * length**3 / (3 * stiffness) + weight * length**4 / (8 * stiffness)
    return {"deflection": tip, "mass": mass(candidate)}


def beam(candidate, elements):
    """Integrate the beam's curvature along its length: stands for the expensive simulation."""
    length = candidate["length"]
    stiffness = MODULUS[candidate["steel"]] * candidate["width"] * candidate["height"] ** 3 / 12
    weight = mass(candidate) * GRAVITY / length
    step, slope, tip = length / elements, 0.0, 0.0
    for i in range(elements):
        left = length - (i + 0.5) * step
        moment = LOAD * left + weight * left**2 / 2
        tip += slope * step + moment / stiffness * step**2 / 2
        slope += moment / stiffness * step
    return {"deflection": tip, "mass": mass(candidate)}
