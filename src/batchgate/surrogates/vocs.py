"""Between a campaign's data and gest-api's VOCS, which any generator of that standard reads.

VOCS has no logarithms and no order of listed values; a `Space` has both. Whole numbers become
continuous variables of dtype `int`.
"""

from __future__ import annotations

from gest_api.vocs import (
    VOCS,
    BoundsConstraint,
    ContextualVariable,
    ContinuousVariable,
    DiscreteVariable,
    GreaterThanConstraint,
    LessThanConstraint,
    MaximizeObjective,
    MinimizeObjective,
)

from ..campaign import CampaignSpec, Constraint, Space, Variable


def vocs_of(spec: CampaignSpec) -> VOCS:
    """Return a campaign's variables, constants, objective and constraints as VOCS."""
    return VOCS(
        variables={name: _gest_variable(v) for name, v in spec.variables.items()},
        constants=dict(spec.constants),
        objectives=dict(spec.objectives),
        constraints={name: c.to_list() for name, c in spec.constraints.items()},
    )


def space_of(vocs: VOCS) -> Space:
    """Return the space of a VOCS; its listed values are sorted, as a set has no order.

    Raises:
        ValueError: A variable is contextual, so it cannot be chosen.
    """
    return Space(variables={name: _variable(name, v) for name, v in vocs.variables.items()})


def constraints_of(vocs: VOCS) -> dict[str, Constraint]:
    """Return the constraints of a VOCS."""
    return {name: _constraint(name, constraint) for name, constraint in vocs.constraints.items()}


def objective_of(vocs: VOCS) -> tuple[str, bool]:
    """Return the objective's name, and whether it is minimised.

    Raises:
        ValueError: There is not exactly one objective to minimise or maximise.
    """
    known = {MinimizeObjective: True, MaximizeObjective: False}
    found = [(name, known.get(type(objective))) for name, objective in vocs.objectives.items()]
    if len(found) != 1 or found[0][1] is None:
        raise ValueError(f"needs one objective to minimise or maximise, not {vocs.objective_names}")
    name, minimised = found[0]
    assert minimised is not None
    return name, minimised


def _gest_variable(variable: Variable) -> ContinuousVariable | DiscreteVariable:
    if variable.values is not None:
        return DiscreteVariable(values=set(variable.values))
    return ContinuousVariable(
        domain=list(variable.limits), dtype=int if variable.integer else float
    )


def _variable(name: str, variable: ContinuousVariable | DiscreteVariable) -> Variable:
    if isinstance(variable, ContextualVariable):
        raise ValueError(f"{name} is contextual, so it cannot be chosen")
    if isinstance(variable, DiscreteVariable):
        ordered = sorted(variable.values, key=lambda value: (str(type(value)), value))
        return Variable(values=tuple(ordered))
    return Variable(domain=tuple(variable.domain), integer=variable.dtype in (int, "int"))


def _constraint(name: str, constraint: object) -> Constraint:
    match constraint:
        case LessThanConstraint():
            return Constraint("LESS_THAN", (constraint.value,))
        case GreaterThanConstraint():
            return Constraint("GREATER_THAN", (constraint.value,))
        case BoundsConstraint():
            return Constraint("BOUNDS", tuple(constraint.range))
        case _:
            raise ValueError(f"constraint {name} is a {type(constraint).__name__}")
