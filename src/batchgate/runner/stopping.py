"""The stop rules: when a campaign is over, read off the state and nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..campaign import CampaignSpec
from ..events import HoldCause
from ..state import State


@dataclass(frozen=True, slots=True)
class Stop:
    """A rule that holds.

    Attributes:
        rule: Its name, as `campaign.toml` has it.
        reason: A sentence for people.
        failed: Whether it means that something is broken.
    """

    rule: str
    reason: str
    failed: bool = False


_HELD_FOR: Mapping[str, HoldCause] = {
    "node_h": "node_h",
    "billed_node_h": "node_h",
    "lives": "time",
    "wall_s": "time",
}


def held_for(rule: str) -> HoldCause:
    """Return why a candidate that waits when a rule ends the run is not launched."""
    return _HELD_FOR.get(rule, "jobs")


def stop_rule(spec: CampaignSpec, state: State, *, now: float) -> Stop | None:
    """Return the first stop rule that holds, or `None` to go on.

    Args:
        spec: The campaign.
        state: Where the run stands.
        now: Seconds since the epoch.
    """
    return next(_holding(spec, state, now), None)


def _holding(spec: CampaignSpec, state: State, now: float) -> Iterator[Stop]:
    rules = spec.stop
    for kind, count in state.failures.items():
        if count >= spec.failure.in_a_row:
            yield Stop("failures", f"{count} {kind} failures in a row", failed=True)
    if (reached := _target(spec, state)) is not None:
        yield Stop("target", reached)
    if rules.jobs is not None and state.evaluated >= rules.jobs:
        yield Stop("jobs", f"{state.evaluated} candidates were evaluated")
    if rules.wall_s is not None and state.wall_s + now - state.updated_at >= rules.wall_s:
        yield Stop("wall_s", f"the run has taken {rules.wall_s:g} s")
    if rules.lives is not None and state.lives > rules.lives:
        yield Stop("lives", f"life {rules.lives} was the last one allowed")
    if rules.billed_node_h is not None and state.billed_node_h >= rules.billed_node_h:
        yield Stop(
            "billed_node_h",
            f"{state.billed_node_h:.3g} node-hours were billed, {rules.billed_node_h:g} allowed",
        )
    if rules.stall is not None and state.since_best >= rules.stall:
        yield Stop("stall", f"{state.since_best} results in a row were no better")
    if state.fruitless >= rules.rejected:
        yield Stop("rejected", f"{state.fruitless} decisions in a row let nothing through")
    if not state.running and state.free_node_h < spec.job.node_h:
        yield Stop(
            "node_h",
            f"{state.free_node_h:.3g} of {state.granted_node_h:g} node-hours are left, "
            f"a job needs {spec.job.node_h:.3g}",
        )


def _target(spec: CampaignSpec, state: State) -> str | None:
    if not spec.stop.target or state.best is None:
        return None
    values = state.jobs[state.best].values or {}
    name, minimise = spec.objective
    goal, value = spec.stop.target[name], values[name]
    if (value <= goal) if minimise else (value >= goal):
        return f"{name} is {value:.6g}, the target was {goal:g}"
    return None
