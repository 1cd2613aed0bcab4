"""The search space: variables, candidates, their identity and their pydantic models.

A candidate is a plain mapping from variable to value. Its *fingerprint* is its identity in every
record: two candidates that agree in the campaign's significant digits are one and the same job.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    WrapValidator,
    create_model,
    model_validator,
)
from pydantic_core import PydanticCustomError

Value = float | int | str | bool
"""A variable's value."""
Candidate = Mapping[str, Value]
"""One point of the space: every variable, nothing else."""

_NAME = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"
Name = Annotated[str, Field(pattern=_NAME)]
"""An identifier: it becomes a keyword, a schema property and a column."""

MAX_TEXT = 200
"""Longest value shown in a sentence, in characters."""
MAX_INTEGER = 2**53
"""Largest whole number up to which every one has a float of its own."""


class Variable(BaseModel):
    """One dimension: a range of numbers, or a list of values.

    Attributes:
        domain: Lowest and highest value, both allowed.
        values: Allowed values, when the variable is no range.
        unit: Shown to people and to the model.
        about: What it is, in one line, shown to people and to the model.
        log: Whether samplers and surrogates see its logarithm (needs a domain above 0).
        integer: Whether only whole numbers are allowed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    domain: tuple[float, float] | None = None
    values: tuple[Value, ...] | None = Field(default=None, min_length=1, max_length=1000)
    unit: str = ""
    about: str = ""
    log: bool = False
    integer: bool = False

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if (self.domain is None) == (self.values is None):
            raise ValueError("give either domain = [low, high] or values = [...]")
        if self.domain is not None:
            low, high = self.domain
            if not low < high:
                raise ValueError(f"domain is [{low:g}, {high:g}], must be increasing")
            if not math.isfinite(high - low):
                raise ValueError(f"domain is [{low:g}, {high:g}], its width must be finite")
            if self.log and low <= 0:
                raise ValueError(f"log needs a domain above 0, this one starts at {low:g}")
            if self.log and math.log(low) == math.log(high):
                raise ValueError(f"domain is [{low!r}, {high!r}], too narrow for log")
            if self.integer and (low != int(low) or high != int(high)):
                raise ValueError(f"integer needs whole bounds, not [{low:g}, {high:g}]")
            if self.integer and max(-low, high) > MAX_INTEGER:
                raise ValueError(f"integer needs bounds within +-2**53, not [{low:g}, {high:g}]")
        elif self.log or self.integer:
            raise ValueError("log and integer go with a domain, not with values")
        elif len(set(map(_typed, self.values or ()))) != len(self.values or ()):
            raise ValueError("values has a value twice")
        return self

    def problem(self, name: str, value: object) -> str | None:
        """Say what is wrong with a value, or `None`."""
        unit = f" {self.unit}" if self.unit else ""
        if self.values is not None:
            if any(_typed(value) == _typed(v) for v in self.values):
                return None
            return f"{name}={_short(value)} is not one of {list(self.values)}"
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return f"{name}={_short(value)} is not a number"
        low, high = self.limits
        # Written so that NaN lies outside.
        if not low <= value <= high:
            return f"{name}={_short(value)} is outside [{low:g}, {high:g}]{unit}"
        if self.integer and value != int(value):
            return f"{name}={_short(value)} is not a whole number"
        return None

    def canonical(self, value: Value) -> Value:
        """Return an allowed value in the one form that is recorded.

        A listed value as it is listed, whole numbers as `int`, other numbers as `float`.
        """
        if self.values is not None:
            return next(v for v in self.values if _typed(v) == _typed(value))
        # + 0.0 makes one of -0.0 and 0.0.
        return int(value) if self.integer else float(value) + 0.0

    @property
    def limits(self) -> tuple[float, float]:
        """The domain of a variable that has one."""
        assert self.domain is not None
        return self.domain


def _usable(variables: Mapping[str, Variable]) -> Mapping[str, Variable]:
    for name in variables:
        if hasattr(BaseModel, name):
            raise ValueError(f"{name!r} is a name of pydantic's models; choose another")
    return variables


Variables = Annotated[
    Mapping[Name, Variable], Field(min_length=1, max_length=200), AfterValidator(_usable)
]
"""Name to variable, in the order shown everywhere."""


class Space(BaseModel):
    """The variables of a campaign, and what makes two candidates the same.

    Attributes:
        variables: Name to variable, in the order shown everywhere.
        digits: Significant digits in which candidates are told apart.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    variables: Variables
    digits: int = Field(default=6, ge=1, le=15)

    def problems(self, candidate: Mapping[str, object]) -> Iterator[str]:
        """Yield what keeps a mapping from being a candidate of this space."""
        for name, variable in self.variables.items():
            if name not in candidate:
                yield f"{name} is missing"
            elif problem := variable.problem(name, candidate[name]):
                yield problem
        for name in candidate:
            if name not in self.variables:
                yield f"{_short(name)} is not a variable of this campaign"

    def fingerprint(self, candidate: Candidate) -> str:
        """Return a candidate's identity: 16 hex digits of the SHA-256 of its rounded values."""
        rounded = [[name, self._rounded(name, candidate[name])] for name in sorted(self.variables)]
        text = json.dumps(rounded, ensure_ascii=True, allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def distance(self, one: Candidate, other: Candidate) -> float:
        """Return the largest difference of two candidates in any variable.

        In shares of the variable's range (of its logarithm, where the variable says so); values
        that are no range differ by 0 or infinity.
        """
        return max(self._apart(name, one[name], other[name]) for name in self.variables)

    def unit(self, name: str, value: float) -> float:
        """Map a value of a ranged variable to 0...1."""
        variable = self.variables[name]
        low, high = variable.limits
        if variable.log:
            return (math.log(value) - math.log(low)) / (math.log(high) - math.log(low))
        return (value - low) / (high - low)

    def at_unit(self, name: str, share: float) -> Value:
        """Map 0...1 back to a value of any variable; the inverse of `unit` for ranges.

        Listed values and whole numbers (without `log`) get equal parts of 0...1.
        """
        variable = self.variables[name]
        share = min(max(share, 0.0), 1.0)
        if variable.values is not None:
            return variable.values[_part(share, len(variable.values))]
        low, high = variable.limits
        if variable.log:
            value = math.exp(math.log(low) + share * (math.log(high) - math.log(low)))
        elif variable.integer:
            return int(low) + _part(share, int(high) - int(low) + 1)
        else:
            value = low + share * (high - low)
        # Rounding in the last bit must not leave the domain.
        value = min(max(value, low), high)
        return round(value) if variable.integer else value

    def candidate_model(self) -> type[BaseModel]:
        """Return the pydantic model of one candidate.

        Bounds and values are in its schema. It accepts what `problems` accepts, and its values
        are canonical.
        """
        fields: dict[str, Any] = {
            name: (_annotation(name, variable), Field(description=_describe(variable)))
            for name, variable in self.variables.items()
        }
        model: type[BaseModel] = create_model("Candidate", __config__=_STRICT, **fields)
        return model

    def proposal_model(self, *, batch: int, rationale_chars: int) -> type[Proposal]:
        """Return the pydantic model of a proposal of `batch` candidates.

        Args:
            batch: Candidates in it, exactly.
            rationale_chars: Longest rationale, 0 for none. It stands ahead of the candidates,
                so that a model reasons before it chooses.
        """
        fields: dict[str, Any] = {}
        if rationale_chars:
            fields["rationale"] = (Annotated[str, Field(max_length=rationale_chars)], ...)
        else:
            fields["rationale"] = (Literal[""], "")
        fields["candidates"] = (
            Annotated[
                tuple[self.candidate_model(), ...],  # type: ignore[misc]
                Field(min_length=batch, max_length=batch),
            ],
            ...,
        )
        model: type[Proposal] = create_model("Proposal", __base__=Proposal, **fields)
        return model

    def _rounded(self, name: str, value: Value) -> Value:
        value = self.variables[name].canonical(value)
        # Whole numbers and listed values are never rounded: 1000001 and 1000002 are two jobs.
        if isinstance(value, float) and self.variables[name].values is None:
            return f"{value:.{self.digits - 1}e}"
        return value

    def _apart(self, name: str, one: Value, other: Value) -> float:
        if self.variables[name].values is not None:
            return 0.0 if _typed(one) == _typed(other) else math.inf
        return abs(self.unit(name, float(one)) - self.unit(name, float(other)))


_STRICT = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Proposal(BaseModel):
    """What a producer returns: candidates, usually with a rationale ahead of them.

    A campaign's own proposal model derives from this one; its `candidates` must be a sequence of
    pydantic models with the space's variables.
    """

    model_config = _STRICT

    rationale: str = ""
    candidates: Sequence[BaseModel] = ()

    _response_id: str = PrivateAttr(default="")

    def answered_by(self, response_id: str) -> None:
        """Remember the provider's id of the answer, so that telemetry can name it."""
        self._response_id = response_id

    @property
    def response_metadata(self) -> dict[str, str]:
        """The answer's id as LangChain's messages carry it, which is where `accept` looks."""
        return {"id": self._response_id} if self._response_id else {}

    def points(self) -> tuple[dict[str, Value], ...]:
        """Return the candidates as plain mappings."""
        return tuple(candidate.model_dump() for candidate in self.candidates)


def _annotation(name: str, variable: Variable) -> Any:
    # Pydantic's own rules differ, so its type gives only the schema: Literal[1] takes True,
    # Literal[0.0, False] makes False of 0.0, a strict int refuses 3.0.
    exact = WrapValidator(lambda value, _: _exact(name, variable, value))
    if variable.values is not None:
        return Annotated[Literal[variable.values], exact]
    low, high = variable.limits
    if variable.integer:
        return Annotated[int, Field(ge=int(low), le=int(high)), exact]
    return Annotated[float, Field(ge=low, le=high), exact]


def _exact(name: str, variable: Variable, value: Any) -> Value:
    if problem := variable.problem(name, value):
        raise PydanticCustomError("candidate", "{problem}", {"problem": problem})
    return variable.canonical(value)


def _describe(variable: Variable) -> str | None:
    text = variable.about
    if variable.unit:
        text = f"{text} [{variable.unit}]".strip()
    return text or None


def _typed(value: object) -> tuple[type, object]:
    # 1, 1.0 and True are equal in Python, and not the same value of a variable; 1 and 1.0 are.
    kind = bool if isinstance(value, bool) else float if isinstance(value, (int, float)) else str
    return kind, value


def _part(share: float, parts: int) -> int:
    return min(int(share * parts), parts - 1)


def _short(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:
        return "a number of too many digits"
    return text if len(text) <= MAX_TEXT else text[: MAX_TEXT - 3] + "..."
