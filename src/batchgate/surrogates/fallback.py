"""The fallback: a batch that passes every in-process check, whatever generator makes it.

The generator is made anew for each batch from what is known, and seeded by the campaign's seed
and the batch's number: the same arguments give the same batch, also after a restart.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from ..campaign import Campaign, Candidate, Observation, Space, Value, Variable
from ..campaign.constraint import finite
from ..errors import ConfigError, SurrogateError
from .extra import load_extra

TRIES = 8
"""Times that a foreign generator is asked for a batch."""


def propose(
    campaign: Campaign,
    *,
    observations: Sequence[Observation],
    n: int,
    batch_number: int,
    avoid: Callable[[Candidate], bool] = lambda _: False,
    running: Sequence[Candidate] = (),
) -> list[dict[str, Value]]:
    """Return candidates that the campaign's checks allow, made by its fallback generator.

    It computes for 0.1 to 0.3 s with 50 observations, so call it in a thread. Called once
    without observations before a run, it finds a missing library or a misspelt generator early.

    Args:
        campaign: The campaign; its `[fallback]` names the generator.
        observations: All that is known, failed and infeasible ones too, in a stable order.
        n: Candidates wanted, at least 1.
        batch_number: Number of the batch, at least 0.
        avoid: Whether a candidate is a twin of one that is known or running.
        running: Candidates in flight; a model takes them to come out as it expects.

    Returns:
        1 to `n` candidates inside the space, none a twin of another; fewer than `n` when no more
        can be found.

    Raises:
        SurrogateError: No candidate can be found, or a foreign generator failed.
        ConfigError: The generator cannot be loaded or made.
        Exception: What a check of the campaign raises: a bug in it, not a rejection.
    """
    allowed = _Allowed(campaign, avoid, running)
    use = campaign.spec.fallback.use
    made = campaign.resolve(use, what="fallback")
    base = load_extra(".generator").CampaignGenerator
    if isinstance(made, type) and issubclass(made, base):
        generator = _construct(
            campaign,
            made,
            seed=campaign.spec.campaign.seed,
            batch_number=batch_number,
            warmup=campaign.spec.fallback.warmup,
            space=campaign.space,
            feasible=allowed,
            running=running,
        )
        points = _own_points(campaign, generator, observations)
    else:
        generator = _construct(campaign, made, **_seed(campaign, made, batch_number))
        points = _foreign_points(campaign, generator, observations, n)
    found = _candidates(campaign.space, islice(points, TRIES * n), allowed)
    if not (batch := list(islice(found, n))):
        raise SurrogateError(
            f"{use} found no candidate that is new and passes the checks; the last was refused "
            f"as {allowed.refused or 'known already'}. Widen the space or the checks"
        )
    return batch


class _Allowed:
    """Whether a candidate may be proposed; remembers why the last one may not."""

    def __init__(
        self,
        campaign: Campaign,
        avoid: Callable[[Candidate], bool],
        running: Iterable[Candidate],
    ) -> None:
        self._campaign, self._avoid = campaign, avoid
        self._taken = {campaign.space.fingerprint(candidate): candidate for candidate in running}
        self.refused = ""

    def __call__(self, candidate: Candidate) -> bool:
        if problems := self._campaign.problems(candidate):
            self.refused = repr(problems[0])
        elif self._avoid(candidate) or self._repeats(candidate):
            self.refused = "a twin of a known one"
        else:
            return True
        return False

    def take(self, candidate: Candidate) -> None:
        """Count a candidate as proposed: the batch has no twin of it."""
        self._taken[self._campaign.space.fingerprint(candidate)] = candidate

    def _repeats(self, candidate: Candidate) -> bool:
        space, tolerance = self._campaign.space, self._campaign.spec.duplicates.tolerance
        return space.fingerprint(candidate) in self._taken or (
            tolerance > 0
            and any(space.distance(candidate, other) <= tolerance for other in self._taken.values())
        )


def _own_points(
    campaign: Campaign, generator: Any, observations: Sequence[Observation]
) -> Iterator[Mapping[str, Any]]:
    """Yield what a generator that knows the space suggests; it asks for leave itself."""
    generator.ingest([_result(campaign, observation) for observation in observations])
    # One by one: each suggestion counts as running for the next, and all that are left are had.
    while True:
        try:
            yield from generator.suggest(1)
        except SurrogateError:
            return


def _foreign_points(
    campaign: Campaign, generator: Any, observations: Sequence[Observation], n: int
) -> Iterator[Mapping[str, Any]]:
    """Yield what any gest-api generator suggests, batch after batch.

    It learns complete results only: the standard has no word for a run that failed.
    """
    wanted = {campaign.spec.objective[0], *campaign.spec.constraints}
    known = [_result(campaign, o) for o in observations if wanted <= o.values.keys()]
    with _failing_as_surrogate_error(campaign):
        if known:
            generator.ingest(known)
    for _ in range(TRIES):
        with _failing_as_surrogate_error(campaign):
            batch = [dict(point) for point in generator.suggest(n)]
        yield from batch


def _candidates(
    space: Space, points: Iterable[Mapping[str, Any]], allowed: _Allowed
) -> Iterator[dict[str, Value]]:
    """Yield the candidates among points that lie in the space, differ and are allowed."""
    for point in points:
        candidate = _native(space, point)
        if candidate is not None and allowed(candidate):
            allowed.take(candidate)
            yield candidate


def _seed(campaign: Campaign, made: Callable[..., Any], batch_number: int) -> dict[str, int]:
    """Return a seed for this batch, if the generator takes one."""
    if "seed" not in inspect.signature(made).parameters:
        return {}
    text = f"{campaign.spec.campaign.seed}:{batch_number}"
    return {"seed": int.from_bytes(hashlib.sha256(text.encode()).digest()[:4])}


@contextmanager
def _failing_as_surrogate_error(campaign: Campaign) -> Iterator[None]:
    try:
        yield
    except Exception as exc:
        use = campaign.spec.fallback.use
        raise SurrogateError(f"{use} failed: {type(exc).__name__}: {exc}") from exc


def _construct(campaign: Campaign, made: Callable[..., Any], **options: Any) -> Any:
    fallback = campaign.spec.fallback
    vocs = load_extra(".vocs").vocs_of(campaign.spec)
    try:
        return made(vocs=vocs, **{**options, **fallback.args})
    except Exception as exc:
        raise ConfigError(
            f"fallback: {fallback.use} cannot be made with args {sorted(fallback.args)}: "
            f"{type(exc).__name__}: {exc}"
        ) from exc


def _result(campaign: Campaign, observation: Observation) -> dict[str, Any]:
    """Return an observation as a generator takes it: inputs, and the results that VOCS names."""
    wanted = (campaign.spec.objective[0], *campaign.spec.constraints)
    values = {name: observation.values[name] for name in wanted if name in observation.values}
    return {**campaign.inputs(observation.candidate), **values}


def _native(space: Space, point: Mapping[str, Any]) -> dict[str, Value] | None:
    """Return a foreign suggestion as a candidate, or `None` if it lies outside the space."""
    candidate = {}
    for name, variable in space.variables.items():
        value = _near(variable, point.get(name))
        if variable.problem(name, value):
            return None
        candidate[name] = variable.canonical(value)
    return candidate


def _near(variable: Variable, value: Any) -> Any:
    """Undo what numpy, 32-bit floats and continuous optimisers do to a value."""
    value = value.item() if hasattr(value, "item") else value
    if variable.values is not None or not finite(value):
        return value
    low, high = variable.limits
    slack = 1e-6 * (high - low)
    if low - slack <= value <= high + slack:
        value = min(max(value, low), high)
    return round(value) if variable.integer else value
