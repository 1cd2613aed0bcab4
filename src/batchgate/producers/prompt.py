"""What the model is told: the campaign, what is known and learned, what was just rejected, the task.

The prompt never has more tokens than its budget, whatever the model said before. A byte-level
tokenizer makes at most one token of a byte, so text that others wrote is counted in bytes. Of the
campaign's own text, runs of ASCII letters are counted at three letters a token and everything else
in bytes: digits are one token each in many vocabularies.

No text of a simulation enters; results are numbers. Earlier answers and the reasons against them
are hostile: one line each, cut, without control characters and without anything in which a chat
template or tokenizer would find a marker. Texts are joined, never used as templates.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import chain
from typing import Any, Literal

from ..breach import MAX_FIELD, Lesson
from ..campaign import Campaign, Constraint, Proposal, Variable
from ..campaign.observation import Observation
from ..decision import Attempt
from ..errors import ConfigError
from .schema import PortableSchema, Shift, shifted

Message = dict[str, str]
"""One chat message: `role` and `content`."""
Powers = Mapping[str | int, Shift]
"""Variables that are told in powers of ten."""

_ROLE = (
    "You propose candidates for a simulation campaign on a supercomputer. Every candidate that is "
    "accepted costs hours of computing time. Answer with JSON only."
)
# What a chat template adds around two messages (14 tokens with SmolLM2, some 40 with Llama 3), and
# the numbers: of the task, and of what is not shown.
_RESERVE_TOKENS = 128
_RESULTS = "# Results, best first", "No result is known yet."
_REJECTED = "# Rejected just now, newest first", "None."
_WITHOUT_RESULT = {
    "rejected": "gives no valid result",
    "failed": "makes the simulation fail",
    "timed_out": "takes longer than a job may",
}
_LEARNED = "# Rejected again and again in this run"
_DIGITS = 6
_MIN_ENTRY_BYTES = 80
_RUN = re.compile(r" ?[A-Za-z]+")
# "<|im_start|>", "</s>", "<start_of_turn>"; "[INST]", "[/INST]", "[TOOL_CALLS]".
_MARKER = re.compile(r"<(?=\S)|\[(?=[A-Z/])")


def messages(
    campaign: Campaign,
    asked: PortableSchema,
    *,
    results: Sequence[Observation],
    previous: Sequence[Attempt[Any]],
    lessons: Sequence[Lesson] = (),
    budget_tokens: int,
    lessons_tokens: int = 0,
    form: Literal["batch", "samples"],
    decision: int,
) -> list[Message]:
    """Write the prompt of one request.

    Lessons come first, up to their own budget and a third of what the campaign's own text leaves;
    then the newest rejections, up to two thirds of the rest, and the best and the latest results.
    What does not fit is counted, not shown.

    Args:
        campaign: What is searched, and for what.
        asked: Schema of one answer; numbers are shown in its units.
        results: What is known, oldest first.
        previous: Rejected attempts of this decision, oldest first.
        lessons: What was rejected again and again in the whole run, the most frequent first.
        budget_tokens: Most tokens of the prompt, with what the chat template adds.
        lessons_tokens: Most tokens of the lessons among them.
        form: Whether an answer is a whole proposal or one candidate.
        decision: Number of the decision; makes the requests of two decisions differ.

    Raises:
        ConfigError: The campaign's own text alone does not fit.
    """
    shift = _candidate_shift(asked.shift, form)
    system = "\n\n".join(filter(None, (_ROLE, campaign.prompt.strip())))
    head = "\n".join(_head(campaign, shift))
    task = _task(campaign, asked, form)
    own = sum(map(token_bound, (system, head, *_RESULTS, *_REJECTED, task))) + _RESERVE_TOKENS
    room = budget_tokens - own
    if room < 0:
        raise ConfigError(
            f"producer.prompt_tokens is {budget_tokens}, but the campaign's own text needs up to "
            f"{own}: raise it, or shorten {campaign.spec.campaign.prompt} and the descriptions"
        )
    learned = _learned(shift, lessons, min(lessons_tokens, room // 3))
    room -= sum(token_bound(line) + 1 for line in learned)
    rejected = _rejections(shift, previous, room * 2 // 3)
    known = _results(campaign, shift, results, room - sum(map(_size, rejected)))
    told = chain(_section(_RESULTS, known, results), _section(_REJECTED, rejected, previous))
    title = f"# Task {decision}.{len(previous) + 1}"
    return [
        {"role": "system", "content": system},
        {"role": "user", "content": "\n".join((head, *learned, *told, title, task))},
    ]


def token_bound(text: str) -> int:
    """Return an upper estimate of a text's tokens, for text that the campaign's author wrote."""
    words = sum(math.ceil(len(run.lstrip()) / 3) for run in _RUN.findall(text))
    return words + len(_RUN.sub("", text).encode("utf-8", "replace"))


def harmless(text: str, most: int) -> str:
    """Return hostile text as one line of at most `most` bytes, free of control and markers.

    What a chat template or a tokenizer takes for a marker is broken by a space after its bracket.
    """
    # Normalised first: some tokenizers make "<|" of its full-width look-alike.
    text = unicodedata.normalize("NFKC", text[: 4 * most])
    text = "".join(" " if unicodedata.category(char)[0] == "C" else char for char in text)
    text = " ".join(_MARKER.sub(r"\g<0> ", text).split())
    return _cut(text, most)


def _cut(text: str, most: int) -> str:
    raw = text.encode()
    # With a space, so that a bracket at the cut does not meet a dot.
    return text if len(raw) <= most else raw[: max(most - 4, 0)].decode("utf-8", "ignore") + " ..."


def _size(line: str) -> int:
    return len(line.encode()) + len("\n")


def _head(campaign: Campaign, shift: Powers) -> Iterator[str]:
    spec = campaign.spec
    yield "# Variables"
    for name, variable in spec.variables.items():
        power = shift.get(name)
        yield f"{name}: {_told(variable, power if isinstance(power, int) else 0)}"
    name, minimise = spec.objective
    yield "\n# Objective"
    yield f"{'Minimise' if minimise else 'Maximise'} {name}."
    if needs := _needs(campaign):
        wanted = "; ".join(_wanted(observable, bound) for observable, bound in needs.items())
        yield f"Every result must have: {wanted}."
    if spec.constants:
        yield f"Fixed: {', '.join(f'{k} = {_literal(v)}' for k, v in spec.constants.items())}."
    yield ""


def _told(variable: Variable, power: int) -> str:
    if variable.values is not None:
        allowed = f"one of {', '.join(map(_literal, variable.values))}"
    else:
        assert variable.domain is not None
        low, high = (_plain(bound, power) for bound in variable.domain)
        allowed = f"{'whole number from ' if variable.integer else ''}{low} to {high}"
    unit = " ".join(filter(None, (f"1e{power}" if power else "", variable.unit)))
    in_units = f", in units of {unit}" if power else f" {unit}" if unit else ""
    about = f". {variable.about}" if variable.about else ""
    return f"{allowed}{in_units}{', varies over decades' if variable.log else ''}{about}"


def _needs(campaign: Campaign) -> dict[str, Constraint]:
    found: dict[str, Constraint] = {}
    for level in campaign.spec.level:
        found |= level.accept
    return found | dict(campaign.spec.constraints)


def _wanted(name: str, constraint: Constraint) -> str:
    match constraint.kind:
        case "LESS_THAN":
            return f"{name} below {constraint.bounds[0]:g}"
        case "GREATER_THAN":
            return f"{name} above {constraint.bounds[0]:g}"
        case "BOUNDS":
            return f"{name} from {constraint.bounds[0]:g} to {constraint.bounds[1]:g}"


def _task(campaign: Campaign, asked: PortableSchema, form: str) -> str:
    batch = campaign.spec.producer.batch
    one = form == "samples" or batch == 1
    what = "one new candidate" if one else f"{batch} new candidates, different from each other"
    keys = ", ".join(map(_literal, asked.schema.get("properties", {})))
    return (
        f"Propose {what}, unlike all those above, inside every range, and without the faults of "
        f"the rejected.\nAnswer with one JSON object with the keys {keys}."
    )


def _section(heading: tuple[str, str], lines: Sequence[str], of: Sequence[object]) -> Iterator[str]:
    title, empty = heading
    yield title
    yield from lines
    if not of:
        yield empty
    elif len(of) > len(lines):
        yield f"{len(of) - len(lines)} more are not shown."
    yield ""


def _learned(shift: Powers, lessons: Sequence[Lesson], room: int) -> list[str]:
    """Write the most frequent lessons that fit, with their heading; nothing when none does."""
    lines: list[str] = []
    room -= token_bound(_LEARNED) + len("\n\n")
    for lesson in lessons:
        line = _lesson(lesson, shift)
        room -= token_bound(line) + len("\n")
        if room < 0:
            break
        lines.append(line)
    return [_LEARNED, *lines, ""] if lines else []


def _lesson(lesson: Lesson, shift: Powers) -> str:
    """Say in our own words what a lesson says in numbers; of a foreign text it has the names only."""
    power = shift.get(lesson.field) if lesson.own else None
    bound, measured = (_span(ends, power) for ends in (lesson.bound, lesson.measured))
    where = ""
    if (region := lesson.region) is not None:
        where = f", mostly where {region.variable} is {_literal(region.low)}"
        if region.low != region.high:
            ends = region.low, region.high
            where = f", mostly where {region.variable} is {_span(ends, shift.get(region.variable))}"
    name = harmless(lesson.field, MAX_FIELD)
    return f"{name} {lesson.kind} {bound}: {lesson.count} times, at {measured}{where}"


def _span(ends: tuple[Any, Any], power: Shift | None) -> str:
    """Write two numbers as a span, one when they look the same; briefly, however large they are."""
    low, high = (
        _plain(float(end), power) if isinstance(power, int) else f"{float(end):.6g}" for end in ends
    )
    return low if low == high else f"{low} to {high}"


def _rejections(shift: Powers, previous: Sequence[Attempt[Any]], room: int) -> list[str]:
    """Write the newest rejections; each may take half of what those before it left."""
    lines: list[str] = []
    for older in reversed(range(len(previous))):
        most = room // 2 if older else room
        if most < _MIN_ENTRY_BYTES:
            break
        line = _rejection(previous[older], shift, most)
        room -= _size(line)
        lines.append(line)
    return lines


def _rejection(attempt: Attempt[Any], shift: Powers, most: int) -> str:
    reasons = harmless("; ".join(attempt.feedback), most // 2)
    value = harmless(_said(attempt.value, shift), most - len(reasons.encode()) - 3)
    return f"{value} : {reasons}"


def _said(value: object, shift: Powers) -> str:
    if isinstance(value, Proposal):
        return ", ".join(_json(point, shift) for point in value.points())
    return value if isinstance(value, str) else ""


def _results(
    campaign: Campaign, shift: Powers, results: Sequence[Observation], room: int
) -> list[str]:
    """Write the best and the latest results in turn while there is room, best first."""
    objective, minimise = campaign.spec.objective
    observables = (objective, *_needs(campaign).keys() - {objective})

    def rank(index: int) -> tuple[bool, float]:
        value = results[index].values.get(objective, math.inf if minimise else -math.inf)
        return not results[index].feasible, value if minimise else -value

    best = sorted(range(len(results)), key=rank)
    latest = reversed(range(len(results)))
    lines: dict[int, str] = {}
    for index in chain.from_iterable(zip(best, latest, strict=True)):
        if index in lines:
            continue
        line = _result(results[index], shift, observables)
        room -= token_bound(line) + 1
        if room < 0:
            break
        lines[index] = line
    return [lines[index] for index in best if index in lines]


def _result(result: Observation, shift: Powers, observables: Iterable[str]) -> str:
    if result.outcome != "result":
        return f"{_json(result.candidate, shift)} {_WITHOUT_RESULT[result.outcome]}"
    values = ", ".join(
        f"{name} {result.values[name]:.5g}" for name in observables if name in result.values
    )
    verdict = "" if result.feasible else " (not allowed)"
    return f"{_json(result.candidate, shift)} gives {values}{verdict}"


def _json(point: Mapping[str, object], shift: Powers) -> str:
    scaled = shifted(dict(point), shift, -1)
    return "{" + ",".join(f"{_literal(k)}:{_literal(v)}" for k, v in scaled.items()) + "}"


def _literal(value: object) -> str:
    if isinstance(value, float):
        return _plain(value)
    return json.dumps(value, ensure_ascii=False, default=str)


def _plain(number: float, power: int = 0) -> str:
    """Write a number in units of a power of ten, rounded and without an exponent."""
    rounded = Decimal(f"{Decimal(repr(number)).scaleb(-power):.{_DIGITS}g}")
    return f"{rounded.normalize():f}"


def _candidate_shift(shift: Shift | None, form: str) -> Powers:
    if form == "batch" and isinstance(shift, Mapping):
        items = shift.get("candidates")
        shift = items[0] if isinstance(items, tuple) else None
    return shift if isinstance(shift, Mapping) else {}
