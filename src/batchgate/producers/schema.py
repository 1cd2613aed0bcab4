"""The JSON schema of a pydantic model, in the words that a grammar can enforce.

What the server's grammar cannot say is left out of the schema sent and stays with pydantic, so
whatever `PortableSchema.restore` returns has passed the whole model. What has no bound is bounded
or refused: an unbounded number, string or list is an answer without an end.

Numbers are sent in powers of ten where they must be. xgrammar 0.2.8 writes a number with at most
6 decimals and no exponent; for 5e-8...1e-7 vLLM 0.32 answers `{"x":,}` with HTTP 200.
"""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from typing import Any, TypeAlias

from pydantic import BaseModel, ValidationError
from pydantic.errors import PydanticInvalidForJsonSchema

from ..checks import validation_reasons
from ..decision import Rejected, cut
from ..errors import ConfigError

log = logging.getLogger(__name__)

MAX_CHARS = 400
"""Longest string where the model has no bound; compiling its grammar costs 4 CPU-seconds once."""
MAX_RAW_BYTES = 64 * 1024
"""Most of an answer that does not parse which is kept."""

STEP = Decimal("0.000001")
"""Distance of two numbers that can be written."""
# A range is sent as it is when it holds at least 10,000 writable numbers, when its end next to
# zero can be told to 1 %, and when no number of it needs more than 10 digits before the point.
MIN_WIDTH = Decimal("0.01")
_MIN_SIZE = Decimal("0.0001")
_MAX_SIZE = Decimal("1e9")
_MAX_INTEGER = 2**63 - 1
_LOWER = ("minimum", "exclusiveMinimum")
_UPPER = ("maximum", "exclusiveMaximum")

_FORMATS = frozenset({"date", "time", "date-time", "uuid"})
_ANNOTATIONS = frozenset({"$defs", "default", "deprecated", "description", "discriminator"})
_ANNOTATIONS |= {"examples", "readOnly", "title", "type", "writeOnly"}

Shift: TypeAlias = "int | tuple[Shift] | Mapping[str | int, Shift]"
"""Where numbers are sent in powers of ten: the power, for each item, or by key or position."""
Sent: TypeAlias = "tuple[dict[str, Any], Shift | None]"
"""A node as it is sent, and what in it is sent in powers of ten."""


@dataclass(frozen=True, slots=True)
class PortableSchema:
    """What is sent to the server in place of a model, and the way back. `portable` makes it.

    Attributes:
        model: The model that every answer must meet.
        schema: The JSON schema sent.
        shift: Where the numbers sent are to be multiplied by powers of ten; `None` for nowhere.
    """

    model: type[BaseModel]
    schema: Mapping[str, Any]
    shift: Shift | None = field(default=None)

    def restore(self, text: str) -> BaseModel:
        """Read an answer: strict JSON, in the model's own units, valid.

        Raises:
            Rejected: It is none; stage `schema`, the text kept up to 64 KiB.
        """
        try:
            plain = json.dumps(shifted(_parsed(text), self.shift, 1), allow_nan=False)
            return self.model.model_validate_json(plain)
        except ValidationError as exc:
            reasons = validation_reasons(exc)
        except (ValueError, RecursionError) as exc:
            reasons = (cut(f"it is not JSON: {exc}"),)
        raise Rejected(*reasons, check="schema", value=bounded(text))

    def scaled(self, value: Any) -> Any:
        """Return plain data of the model in the units of the schema sent."""
        return shifted(value, self.shift, -1)


def portable(model: type[BaseModel]) -> PortableSchema:
    """Make the schema to send for a model. The same model always gives the same schema.

    Raises:
        ConfigError: The model asks for something without a bound, or for something that no
            grammar can say; the message names the field.
    """
    try:
        whole = model.model_json_schema()
    except PydanticInvalidForJsonSchema as exc:
        raise ConfigError(f"{model.__name__} has no JSON schema: {exc.message}") from exc
    schema, shift = _Walk(whole.get("$defs", {})).convert(whole, model.__name__)
    return PortableSchema(model, schema, shift)


def bounded(text: str) -> str:
    """Return the beginning of a text, at most 64 KiB as UTF-8."""
    raw = text.encode("utf-8", "backslashreplace")
    return text if len(raw) <= MAX_RAW_BYTES else raw[:MAX_RAW_BYTES].decode("utf-8", "ignore")


class _Walk:
    """Converts a schema node by node; `at` names the node in messages."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._entered: list[str] = []
        self._writers: dict[str, Callable[[Mapping[str, Any], str], Sent]] = {
            "object": self._object,
            "array": self._array,
            "number": _number,
            "integer": _integer,
            "string": _string,
            "boolean": _plain,
            "null": _plain,
        }

    def convert(self, node: Mapping[str, Any], at: str) -> Sent:
        if "$ref" in node:
            return self._reference(node, at)
        sent, shift = self._body(node, at)
        if isinstance(shift, int):
            unit = f"in units of 1e{shift}"
            sent["description"] = f"{node.get('description', '')} ({unit})".strip()
        elif "description" in node:
            sent["description"] = node["description"]
        for keyword in sorted(node.keys() - sent.keys() - _ANNOTATIONS):
            log.debug("%s: %r is not sent as it is, pydantic checks it", at, keyword)
        return sent, shift

    def _body(self, node: Mapping[str, Any], at: str) -> Sent:
        for keyword in ("const", "enum"):
            if keyword in node:
                return {keyword: node[keyword]}, None
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                return self._union(node[keyword], at)
        kind = node.get("type")
        if isinstance(kind, list):
            return self._union([{**node, "type": one} for one in kind], at)
        if kind not in self._writers:
            raise ConfigError(f"{at} may be anything: give it a type that can be generated")
        return self._writers[kind](node, at)

    def _reference(self, node: Mapping[str, Any], at: str) -> Sent:
        name = str(node["$ref"]).removeprefix("#/$defs/")
        if name not in self._definitions:
            raise ConfigError(
                f"{at} refers to {node['$ref']!r}, which is not in the model's schema"
            )
        if name in self._entered:
            raise ConfigError(f"{at} nests {name} in itself: a proposal must have a bounded depth")
        beside = {key: value for key, value in node.items() if key != "$ref"}
        self._entered.append(name)
        try:
            return self.convert({**self._definitions[name], **beside}, at)
        finally:
            self._entered.pop()

    def _union(self, branches: Sequence[Mapping[str, Any]], at: str) -> Sent:
        converted = [self.convert(branch, at) for branch in branches]
        marked = [(sent, shift) for sent, shift in converted if shift is not None]
        for sent, _ in marked:
            alike = sum(not _kinds(sent).isdisjoint(_kinds(other)) for other, _ in converted)
            if len(marked) > 1 or alike > 1:
                raise ConfigError(
                    f"{at} is a choice in which a number must be sent in powers of ten, and the "
                    "answer would not tell which branch it is: use other units"
                )
        # xgrammar 0.2.8 takes oneOf for anyOf without a word; sent as what it is.
        return {"anyOf": [sent for sent, _ in converted]}, marked[0][1] if marked else None

    def _object(self, node: Mapping[str, Any], at: str) -> Sent:
        if not node.get("properties") and node.get("additionalProperties", False) is not False:
            raise ConfigError(f"{at} takes any key: name its fields, a grammar needs them")
        required = set(node.get("required", ()))
        properties: dict[str, Any] = {}
        shifts: dict[str | int, Shift] = {}
        for name, inner in node.get("properties", {}).items():
            # Nobody asked for a text that may be absent and has no bound: it would only cost.
            if name not in required and _endless(inner):
                log.debug("%s.%s has a default and no bound, and is not asked for", at, name)
                continue
            try:
                properties[name], shift = self.convert(inner, f"{at}.{name}")
            except ConfigError as exc:
                if name in required:
                    raise
                log.debug("%s.%s has a default and is not asked for: %s", at, name, exc)
                continue
            if shift is not None:
                shifts[name] = shift
        sent = {
            "type": "object",
            "properties": properties,
            "required": [name for name in properties if name in required],
            "additionalProperties": False,
        }
        return sent, shifts or None

    def _array(self, node: Mapping[str, Any], at: str) -> Sent:
        if "maxItems" not in node:
            raise ConfigError(f"{at} has no largest length: give it Field(max_length=...)")
        sent: dict[str, Any] = {"type": "array", "minItems": node.get("minItems", 0)}
        sent["maxItems"] = node["maxItems"]
        if "prefixItems" not in node:
            sent["items"], shift = self.convert(node.get("items", {}), f"{at}[]")
            return sent, None if shift is None else (shift,)
        converted = [self.convert(e, f"{at}[{i}]") for i, e in enumerate(node["prefixItems"])]
        sent["prefixItems"] = [one for one, _ in converted]
        if sent["maxItems"] > len(converted):
            raise ConfigError(f"{at} is a tuple with an open end: give every place its type")
        by_place: dict[str | int, Shift] = {
            i: shift for i, (_, shift) in enumerate(converted) if shift is not None
        }
        return sent, by_place or None


def _number(node: Mapping[str, Any], at: str) -> Sent:
    (low, above), (high, below) = _lower(node, at), _upper(node, at)
    if low == high and not (above or below):
        return {"const": float(low)}, None
    power = _power(low, high)
    least = low.scaleb(-power).quantize(STEP, ROUND_CEILING)
    most = high.scaleb(-power).quantize(STEP, ROUND_FLOOR)
    least += STEP * (above and least == low.scaleb(-power))
    most -= STEP * (below and most == high.scaleb(-power))
    if least > most:
        raise ConfigError(f"{at} is between {low} and {high}: no number there can be written")
    return {"type": "number", "minimum": float(least), "maximum": float(most)}, power or None


def _integer(node: Mapping[str, Any], at: str) -> Sent:
    (low, above), (high, below) = _lower(node, at), _upper(node, at)
    least = math.ceil(low) + (above and low == math.ceil(low))
    most = math.floor(high) - (below and high == math.floor(high))
    if least > most or max(-least, most) > _MAX_INTEGER:
        raise ConfigError(f"{at} is an integer from {least} to {most}; 64 bits must hold it")
    return {"type": "integer", "minimum": least, "maximum": most}, None


def _string(node: Mapping[str, Any], _at: str) -> Sent:
    # vLLM 0.32 refuses a length beside a format or a pattern; a length is what ends an answer.
    if node.get("format") in _FORMATS:
        return {"type": "string", "format": node["format"]}, None
    least = node.get("minLength", 0)
    most = node.get("maxLength", max(MAX_CHARS, least))
    return {"type": "string", "minLength": least, "maxLength": most}, None


def _endless(node: Mapping[str, Any]) -> bool:
    return node.get("type") == "string" and "maxLength" not in node


def _plain(node: Mapping[str, Any], _at: str) -> Sent:
    return {"type": node["type"]}, None


def _lower(node: Mapping[str, Any], at: str) -> tuple[Decimal, bool]:
    """Return the lower bound, and whether it is itself forbidden."""
    bounds = [(exact(node[k]), k != "minimum") for k in _LOWER if k in node]
    if not bounds:
        raise ConfigError(f"{at} has no lower bound: give it Field(ge=...)")
    return max(bounds)


def _upper(node: Mapping[str, Any], at: str) -> tuple[Decimal, bool]:
    """Return the upper bound, and whether it is itself forbidden."""
    bounds = [(exact(node[k]), k == "maximum") for k in _UPPER if k in node]
    if not bounds:
        raise ConfigError(f"{at} has no upper bound: give it Field(le=...)")
    bound, allowed = min(bounds)
    return bound, not allowed


def _power(low: Decimal, high: Decimal) -> int:
    """Return the power of ten in which a range is best written; 0 when it is fine as it is."""
    size = max(abs(low), abs(high))
    smallest = min(abs(low), abs(high)) if low * high > 0 else None

    def fits(power: int) -> bool:
        return (
            (high - low).scaleb(-power) >= MIN_WIDTH
            and (smallest is None or smallest.scaleb(-power) >= _MIN_SIZE)
            and size.scaleb(-power) <= _MAX_SIZE
        )

    natural = size.adjusted()
    finest = natural - _MAX_SIZE.adjusted() + 1
    powers = (0, *range(natural, finest, -1))
    return next((power for power in powers if fits(power)), finest)


def exact(number: float) -> Decimal:
    """Return a number as the decimal that people write."""
    # Through repr: the decimal that people wrote, whose powers of ten are exact.
    return Decimal(repr(number))


def _kinds(sent: Mapping[str, Any]) -> set[str]:
    """Return the JSON types that a converted node allows, integers as numbers."""
    if "anyOf" in sent:
        return {kind for branch in sent["anyOf"] for kind in _kinds(branch)}
    if "type" in sent:
        return {sent["type"].replace("integer", "number")}
    return {_kind(value) for value in sent.get("enum", [sent.get("const")])}


def _kind(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case _:
            return "string"


def shifted(value: Any, shift: Shift | None, sign: int) -> Any:
    """Return plain data with the numbers that `shift` marks in other units.

    Args:
        value: The data, numbers, lists and dicts.
        shift: Where to change a number.
        sign: 1 from the units of the schema sent to the model's own, -1 the other way.
    """
    match shift, value:
        case int(power), (int() | float()) if not isinstance(value, bool):
            # In decimals, so that a bound comes back as exactly the float it was.
            return float(exact(value).scaleb(sign * power))
        case (inner,), list():
            return [shifted(one, inner, sign) for one in value]
        case Mapping(), dict():
            return {key: shifted(one, shift.get(key), sign) for key, one in value.items()}
        case Mapping(), list():
            return [shifted(one, shift.get(place), sign) for place, one in enumerate(value)]
        case _:
            return value


def _parsed(text: str) -> Any:
    return json.loads(
        text, object_pairs_hook=_unique, parse_constant=_no_constant, parse_float=_finite
    )


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _finite(literal: str) -> float:
    number = float(literal)
    if not math.isfinite(number):
        raise ValueError("a number is too large")
    return number
