"""A producer: a model behind vLLM, asked with the proposal's JSON schema as its grammar.

One call of `propose` is one request. The grammar makes valid answers likely, and every answer is
judged as if there were none. What the model says badly is `Rejected`, with the text it said; a
server that does not answer is a `ProducerError`. Nothing is retried here.
"""

from __future__ import annotations

import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from ..answer import Answer
from ..breach import Lesson
from ..campaign import Campaign, Proposal
from ..campaign.observation import Observation
from ..checks import validation_reasons
from ..decision import Attempt, Rejected
from ..errors import ConfigError
from ..guard import bounds
from . import span
from .chat import Choice, Completion, text_of
from .connection import API_KEY_ENV, Connection
from .narrow import narrowed
from .prompt import messages
from .schema import bounded, portable


class VllmProducer:
    """Asks a served model for proposals.

    Args:
        endpoint: `http://host:port` or `unix:/path/of/the/socket`.
        model: Name under which the server lists the model.
        campaign: What is searched; its `[producer]` table says how to ask.
        api_key_env: Variable that holds the endpoint's key. The key is never shown.
        seed: Base of a seed for every request; none by default. vLLM 0.32 on CPU dies of a seeded
            request whose prompt it splits ("CPU Generator does not use offset"); give the server
            a seed instead.
        environ: Where the key is looked up; the process's own by default.
        clock: Seconds, monotonic.

    Raises:
        ConfigError: The endpoint or the campaign cannot be asked like this; the message says what
            to change.
    """

    def __init__(
        self,
        endpoint: str,
        model: str,
        campaign: Campaign,
        *,
        api_key_env: str = API_KEY_ENV,
        seed: int | None = None,
        environ: Mapping[str, str] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ask = campaign.spec.producer
        self._samples = self._ask.answers
        _require_askable(campaign, self._samples)
        self._campaign = campaign
        self._model = model
        self._seed = seed
        self._clock = clock
        self._asked = portable(
            campaign.candidate_model if self._ask.form == "samples" else campaign.proposal_model
        )
        self._messages(decision=0, results=(), previous=())
        key = (os.environ if environ is None else environ).get(api_key_env)
        self._connection = Connection(endpoint, api_key=key)

    @property
    def name(self) -> str:
        """`vllm:` and the model's name."""
        return f"vllm:{self._model}"

    async def propose(
        self,
        *,
        decision: int,
        results: Sequence[Observation],
        previous: Sequence[Attempt[Proposal]],
        lessons: Sequence[Lesson] = (),
    ) -> Answer:
        """Ask once. No two requests of a decision are the same: later ones are hotter, and numbered.

        Args:
            decision: Number of the decision.
            results: What is known, oldest first.
            previous: Rejected attempts of this decision, oldest first.
            lessons: What was rejected again and again in the whole run. It is told, and a bound
                of a variable that was always the same one is put into the grammar.

        Raises:
            Rejected: The answer is no proposal: stage `refusal`, `truncation`, `schema` or, with
                samples, `distinct`. The value is the text, up to 64 KiB.
            ProducerError: There was no answer in time, or none that is a chat completion.
        """
        body = self._body(decision=decision, results=results, previous=previous, lessons=lessons)
        request_id = f"{decision}-{len(previous) + 1}-{uuid.uuid4().hex[:12]}"
        started = self._clock()
        completion = await self._complete(body, request_id)
        elapsed_s = self._clock() - started
        choices = completion.choices[: self._samples]
        (proposal, *others), valid = self._judge(choices)
        return Answer(
            proposal=proposal,
            others=tuple(others),
            response_id=completion.id,
            request_id=request_id,
            model=completion.model,
            finish_reasons=tuple(choice.finish_reason for choice in choices),
            usage=completion.tokens,
            temperature=body["temperature"],
            elapsed_s=elapsed_s,
            samples_valid=valid,
            samples_total=len(choices),
        )

    async def aclose(self) -> None:
        """Close the connections."""
        await self._connection.aclose()

    def _messages(
        self,
        *,
        decision: int,
        results: Sequence[Observation],
        previous: Sequence[Attempt[Proposal]],
        lessons: Sequence[Lesson] = (),
    ) -> list[dict[str, str]]:
        return messages(
            self._campaign,
            self._asked,
            results=results,
            previous=previous,
            lessons=lessons,
            budget_tokens=self._ask.prompt_tokens,
            lessons_tokens=self._ask.lessons_tokens,
            form=self._ask.form,
            decision=decision,
        )

    def _body(
        self,
        *,
        decision: int,
        results: Sequence[Observation],
        previous: Sequence[Attempt[Proposal]],
        lessons: Sequence[Lesson],
    ) -> dict[str, Any]:
        variables = self._campaign.spec.variables
        asked = narrowed(self._asked, bounds(lessons, variables, after=self._ask.tighten_after))
        # Never guided_json, which vLLM ignores since 0.12 (HTTP 200, unconstrained), and never
        # stop, which cuts inside a JSON string.
        return {
            "model": self._model,
            "messages": self._messages(
                decision=decision, results=results, previous=previous, lessons=lessons
            ),
            "temperature": self._temperature(len(previous)),
            "max_tokens": self._ask.answer_tokens,
            "n": self._samples,
            "response_format": {
                "type": "json_schema",
                "json_schema": {
                    "name": self._asked.model.__name__,
                    "schema": asked.schema,
                    "strict": True,
                },
            },
            **(
                {} if self._seed is None else {"seed": self._seed + 1000 * decision + len(previous)}
            ),
        }

    def _temperature(self, rejected: int) -> float:
        hottest = max(self._ask.temperature, self._ask.temperature_max)
        return min(self._ask.temperature + rejected * self._ask.temperature_step, hottest)

    async def _complete(self, body: Mapping[str, Any], request_id: str) -> Completion:
        attributes = {
            span.REQUEST_MODEL: self._model,
            span.REQUEST_TEMPERATURE: body["temperature"],
            span.REQUEST_MAX_TOKENS: body["max_tokens"],
            span.REQUEST_CHOICES: self._samples if self._samples > 1 else None,
            span.REQUEST_SEED: body.get("seed"),
            span.SERVER_ADDRESS: self._connection.address,
            span.SERVER_PORT: self._connection.port,
        }
        with span.chat_span(self._model, attributes) as current:
            raw = await self._connection.request(
                "POST",
                "/v1/chat/completions",
                body=body,
                # vLLM answers with this id when it was started with --enable-request-id-headers.
                headers={"X-Request-Id": request_id, **span.trace_headers()},
                deadline_s=self._ask.timeout_s,
            )
            completion = Completion.read(raw)
            current.set_attributes(completion.attributes())
            return completion

    def _judge(self, choices: Sequence[Choice]) -> tuple[list[Proposal], int]:
        """Return the proposals that the samples make, and how many of those were good."""
        if self._samples == 1 and self._ask.form == "batch":
            return [self._whole(choices[0])], 1
        found: dict[str, BaseModel] = {}
        faults: Counter[tuple[str, str]] = Counter()
        for choice in choices:
            try:
                sample = self._asked.restore(text_of(choice))
            except Rejected as exc:
                faults[exc.check or "schema", exc.reason] += 1
                continue
            identity = self._identity(sample)
            if identity in found:
                faults["distinct", "it repeats another answer"] += 1
            found.setdefault(identity, sample)
        said = bounded("\n".join(choice.message.content or "" for choice in choices))
        size = 1 if self._ask.form == "batch" else self._ask.batch
        if len(found) < size:
            raise _too_few(len(found), size, len(choices), faults, said)
        return self._proposals(list(found.values()), size, said), len(found)

    def _whole(self, choice: Choice) -> Proposal:
        proposal = self._asked.restore(text_of(choice))
        assert isinstance(proposal, Proposal)
        return proposal

    def _identity(self, sample: BaseModel) -> str:
        points = sample.points() if isinstance(sample, Proposal) else [sample.model_dump()]
        return " ".join(map(self._campaign.space.fingerprint, points))

    def _proposals(self, samples: Sequence[BaseModel], size: int, said: str) -> list[Proposal]:
        """Make proposals of the samples in their order; what is left over makes none.

        Raises:
            Rejected: The campaign's own model refuses all of them.
        """
        found: list[Proposal] = []
        reasons: tuple[str, ...] = ()
        for first in range(0, len(samples) - size + 1, size):
            sample = samples[first]
            if isinstance(sample, Proposal):
                found.append(sample)
                continue
            taken = [one.model_dump() for one in samples[first : first + size]]
            try:
                found.append(self._campaign.proposal_model.model_validate({"candidates": taken}))
            except ValidationError as exc:
                reasons = reasons or validation_reasons(exc)
        if not found:
            raise Rejected(*reasons, check="schema", value=said)
        return found


def _too_few(
    found: int, batch: int, asked: int, faults: Counter[tuple[str, str]], said: str
) -> Rejected:
    stages: Counter[str] = Counter()
    for (stage, _), count in faults.items():
        stages[stage] += count
    return Rejected(
        f"{found} of {asked} answers are valid and distinct, {batch} are needed",
        *(f"{count} of {asked}: {reason}" for (_, reason), count in faults.most_common()),
        check=stages.most_common(1)[0][0] if stages else "schema",
        value=said,
    )


def _require_askable(campaign: Campaign, samples: int) -> None:
    ask = campaign.spec.producer
    if ask.temperature == 0 and samples > 1:
        raise ConfigError(
            f"producer.temperature is 0, so {samples} samples would be one answer repeated, and "
            "the server refuses that: raise it, or set form = 'batch' and samples = 1"
        )
    if ask.form != "samples":
        return
    needed = [
        name for name, field in campaign.proposal_model.model_fields.items() if field.is_required()
    ]
    if others := sorted(set(needed) - {"candidates"}):
        raise ConfigError(
            f"a sample is one candidate and nothing else, but the proposal needs {others} as well: "
            "set producer.rationale_chars = 0, or form = 'batch'"
        )
