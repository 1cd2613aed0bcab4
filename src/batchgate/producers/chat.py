"""One chat completion: the envelope that a server answers with, and what a choice in it says.

HTTP 200 proves nothing. vLLM 0.32 answers 200 for a truncated answer, for one that is no JSON, and
for one that ignored the schema; so a choice is text to be judged, never data.
"""

from __future__ import annotations

from typing import Annotated

from opentelemetry.util.types import AttributeValue
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ..decision import Rejected
from ..errors import ProducerError
from . import span
from .connection import one_line
from .schema import bounded

Label = Annotated[str, BeforeValidator(lambda value: one_line(value or ""))]
"""A short foreign text that goes into records."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class Said(_Part):
    """A choice's message. Reasoning beside it is not read: what counts is the content."""

    content: str | None = None
    refusal: str | None = None


class Choice(_Part):
    """One sample."""

    message: Said
    finish_reason: Label = ""


class Usage(_Part):
    """Tokens as the server counted them."""

    prompt_tokens: int = Field(default=0, ge=0)
    completion_tokens: int = Field(default=0, ge=0)


class Completion(_Part):
    """The part of a chat completion's envelope that is used."""

    id: Label = ""
    model: Label = ""
    choices: tuple[Choice, ...] = Field(min_length=1)
    usage: Usage | None = None

    @property
    def tokens(self) -> dict[str, int]:
        """Tokens by direction; empty when the server did not count."""
        if self.usage is None:
            return {}
        return {
            "input_tokens": self.usage.prompt_tokens,
            "output_tokens": self.usage.completion_tokens,
        }

    def attributes(self) -> dict[str, AttributeValue]:
        """Return what the span of the request says of the answer."""
        return {
            span.RESPONSE_ID: self.id,
            span.RESPONSE_MODEL: self.model,
            span.FINISH_REASONS: [choice.finish_reason for choice in self.choices],
            **{f"{span.USAGE}.{name}": count for name, count in self.tokens.items()},
        }

    @classmethod
    def read(cls, raw: bytes) -> Completion:
        """Read the envelope.

        Raises:
            ProducerError: It is none, so a wrong server, or a broken one, has answered.
        """
        try:
            return cls.model_validate_json(raw)
        except ValidationError as exc:
            first = exc.errors(include_url=False, include_input=False)[0]
            at = ".".join(map(str, first["loc"])) or "the answer"
            raise ProducerError(
                f"the server's answer is no chat completion ({at}: {one_line(first['msg'])}); "
                "see whether the endpoint is an OpenAI-compatible server",
                "protocol",
            ) from None


def text_of(choice: Choice) -> str:
    """Return the text of a complete answer.

    Raises:
        Rejected: The model refused (`refusal`), was cut (`truncation`) or said nothing (`schema`).
        ProducerError: The server gave the request up.
    """
    text = choice.message.content or ""
    refusal, reason = choice.message.refusal, choice.finish_reason
    if refusal or reason == "content_filter":
        why = f"the model refused: {one_line(refusal or reason)}"
        raise Rejected(why, check="refusal", value=bounded(text or refusal or ""))
    if reason == "length":
        raise Rejected(_cut_how(text), check="truncation", value=bounded(text))
    if reason in {"abort", "error"}:
        raise ProducerError(f"the server ended the request with {reason!r}", "protocol")
    if not text.strip():
        raise Rejected("it is empty", check="schema", value=bounded(text))
    return text


def _cut_how(text: str) -> str:
    # A grammar that allows white space lets a small model fill its tokens with it.
    if len(text.rstrip()) < len(text) / 2:
        return "it ran away into blanks until it was cut"
    return "it was too long and was cut before its end"
