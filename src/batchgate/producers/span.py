"""The client span of one inference, in OpenTelemetry's GenAI conventions.

The names are literals: the conventions moved to a repository of their own (status Development), and
the constants in `opentelemetry-semantic-conventions` 0.66b2 are deprecated. No prompt and no answer
is recorded here; both are in the ledger.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from opentelemetry.trace import Span, SpanKind, Status, StatusCode
from opentelemetry.util.types import AttributeValue

from .. import span_ids
from ..carrier import context
from ..errors import ProducerError

OPERATION = "gen_ai.operation.name"
PROVIDER = "gen_ai.provider.name"
OUTPUT_TYPE = "gen_ai.output.type"
REQUEST_MODEL = "gen_ai.request.model"
REQUEST_TEMPERATURE = "gen_ai.request.temperature"
REQUEST_MAX_TOKENS = "gen_ai.request.max_tokens"
REQUEST_CHOICES = "gen_ai.request.choice.count"
REQUEST_SEED = "gen_ai.request.seed"
RESPONSE_ID = "gen_ai.response.id"
RESPONSE_MODEL = "gen_ai.response.model"
FINISH_REASONS = "gen_ai.response.finish_reasons"
USAGE = "gen_ai.usage"
"""Followed by `.input_tokens` and `.output_tokens`."""
SERVER_ADDRESS = "server.address"
SERVER_PORT = "server.port"
ERROR_TYPE = "error.type"


@contextmanager
def chat_span(model: str, attributes: Mapping[str, AttributeValue | None]) -> Iterator[Span]:
    """Open the span `chat MODEL`; a failure or a cancellation in it marks it as an error.

    Args:
        model: Name of the model asked.
        attributes: Further attributes; those that are `None` are left out.
    """
    given = {name: value for name, value in attributes.items() if value is not None}
    with span_ids.started(
        f"chat {model}",
        span_ids.in_attempt("chat"),
        kind=SpanKind.CLIENT,
        attributes={OPERATION: "chat", PROVIDER: "vllm", OUTPUT_TYPE: "json", **given},
        record_exception=False,
        set_status_on_exception=False,
    ) as span:
        try:
            yield span
        except BaseException as exc:
            span.set_status(Status(StatusCode.ERROR, str(exc)))
            span.set_attribute(ERROR_TYPE, _error_type(exc))
            raise


def trace_headers() -> dict[str, str]:
    """Return the headers that join the server's own span to the current one."""
    return context()


def _error_type(error: BaseException) -> str:
    if isinstance(error, ProducerError):
        return error.kind
    kind = type(error)
    builtin = kind.__module__ == "builtins"
    return kind.__qualname__ if builtin else f"{kind.__module__}.{kind.__qualname__}"
