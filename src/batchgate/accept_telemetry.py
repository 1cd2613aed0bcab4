"""Spans and evaluation events of `accept`, through the OpenTelemetry API alone.

One span `accept <name>` for a call, below it one `accept.attempt <name>` for each attempt, which is
current while the producer and the checks run, and one log event `gen_ai.evaluation.result` for
each ruling. Telemetry never changes an outcome: whatever it raises is swallowed, and logged once.
Without an SDK nothing is computed. A text is cut to a bound, and a lone surrogate is escaped: in a
span's name or status one would make the OTLP encoder drop the whole batch (OpenTelemetry 1.45).

The names of events and attributes are written out, since the GenAI conventions have no stable
package of them (https://github.com/open-telemetry/semantic-conventions-genai, status Development).
"""

from __future__ import annotations

import functools
import logging
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, ParamSpec, Protocol, Self

from opentelemetry import trace
from opentelemetry._logs import Logger, LoggerProvider, get_logger_provider
from opentelemetry.context import Context, attach, get_current
from opentelemetry.trace import (
    Link,
    NonRecordingSpan,
    Span,
    Status,
    StatusCode,
    Tracer,
    TracerProvider,
)
from pydantic import ValidationError

from . import span_ids
from .checks import validation_reasons
from .decision import Attempt, Disposition, Ruling
from .plain import dumps

SCOPE: Final = "batchgate.accept"
EVENT: Final = "gen_ai.evaluation.result"
NOT_ACCEPTED: Final = "batchgate.outcome.NotAccepted"
"""The error that stands for a call without an end, also where none is raised."""
CAPTURE_SWITCH: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"

MAX_VERDICTS: Final = 32
"""Verdicts told on an attempt's span."""
MAX_NAME: Final = 200
"""Bytes of a span's or a check's name."""
MAX_TEXT: Final = 4 * 1024
"""Bytes of a reason, or of an error's message."""
MAX_STACK: Final = 16 * 1024
"""Bytes of a stack trace."""
MAX_VALUE: Final = 64 * 1024
"""Bytes of a rejected value's JSON."""

_ON_SPANS: Final = {
    "NO_CONTENT": False,
    "EVENT_ONLY": False,
    "SPAN_ONLY": True,
    "SPAN_AND_EVENT": True,
}
_LOGS_API: Final = sys.modules[get_logger_provider.__module__]
_NO_PROVIDER: Final = (trace.ProxyTracerProvider, trace.NoOpTracerProvider)
_log: Final = logging.getLogger(__name__)
P = ParamSpec("P")


class Ended(Protocol):
    """What of an outcome is told."""

    @property
    def disposition(self) -> Disposition:
        """See `batchgate.Outcome`."""

    @property
    def escalation(self) -> str | None:
        """See `batchgate.Outcome`."""


class Silent:
    """What stands for `CallTrace` and `AttemptTrace` when nobody listens."""

    def attempt(self, index: int) -> Silent:
        """See `CallTrace`, as for the rest."""
        return self

    def fallback(self) -> Silent:
        """See `CallTrace`."""
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def ruled(self, ruling: Ruling, value: object) -> None:
        """See `AttemptTrace`."""

    def check_failed(self, name: str, error: Exception) -> None:
        """See `AttemptTrace`."""

    def rejected(self, attempt: Attempt[Any]) -> None:
        """See `AttemptTrace`."""

    def ended(self, outcome: Ended) -> None:
        """See `CallTrace`."""

    def failed(self, error: BaseException) -> None:
        """See `CallTrace`."""


SILENT: Final = Silent()


def start_call(name: str, attempts: int) -> CallTrace | Silent:
    """Start the span of one call.

    Args:
        name: Name of the decision.
        attempts: Its budget.
    """
    if _nobody_listens():
        return SILENT
    try:
        # Asked for at each call, so that a provider that is installed late is used.
        provider = trace.get_tracer_provider()
        tracer, logger = _instruments(provider, get_logger_provider())
        listens = logger.enabled(event_name=EVENT)
        if isinstance(provider, _NO_PROVIDER) and not listens:
            return SILENT
    except Exception as exc:  # noqa: BLE001 - telemetry never changes an outcome
        _log_once(f"no telemetry, for the provider raised {_type_name(exc)}")
        return SILENT
    return CallTrace(tracer, logger, listens, _clean(name, MAX_NAME), attempts)


def _nobody_listens() -> bool:
    # What the API's own getters look at first. They then read the environment, at each call, and
    # that is a tenth of an attempt (OpenTelemetry 1.45). Should the API ever keep its providers
    # elsewhere, this is False, and the getters are asked.
    _ask_environment()
    return (
        getattr(trace, "_TRACER_PROVIDER", trace) is None
        and getattr(_LOGS_API, "_LOGGER_PROVIDER", trace) is None
    )


@functools.cache
def _ask_environment() -> None:
    """Let the getters install the providers that the environment names, if it does."""
    with suppress(Exception):
        trace.get_tracer_provider()
        get_logger_provider()


@functools.lru_cache(maxsize=1)
def _instruments(tracers: TracerProvider, loggers: LoggerProvider) -> tuple[Tracer, Logger]:
    # Kept, since making them costs more than the rest of a call without an SDK.
    return tracers.get_tracer(SCOPE), loggers.get_logger(SCOPE)


def _guarded(method: Callable[P, None]) -> Callable[P, None]:
    """Let no error of telemetry through."""

    @functools.wraps(method)
    def guarded(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            method(*args, **kwargs)
        except Exception as exc:  # noqa: BLE001 - telemetry never changes an outcome
            _log_once(f"some telemetry is lost, for {method.__qualname__} raised {_type_name(exc)}")

    return guarded


class Current:
    """Makes a context current for a block, and puts the one before it back."""

    def __init__(self, context: Context, outside: Context) -> None:
        self.context = context
        self.outside = outside

    def __enter__(self) -> Self:
        attach(self.context)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        # Set back, not detached by token: a coroutine that is closed by the garbage collector
        # ends in a foreign context, where a token is refused with an error in the log. There is
        # nothing to put back there.
        if kind is not GeneratorExit or get_current() is self.context:
            attach(self.outside)


class CallTrace:
    """The span of one call."""

    def __init__(
        self, tracer: Tracer, logger: Logger, listens: bool, name: str, attempts: int
    ) -> None:
        self.tracer = tracer
        self.logger = logger
        self.listens = listens
        self.name = name
        self.outside = get_current()
        self.subject = span_ids.current()
        self.span = _start_span(
            tracer,
            f"accept {name}",
            self.outside,
            {
                "flowgentic.accept.name": name,
                "flowgentic.accept.attempts.max": attempts,
                **(self.subject.attributes if self.subject else {}),
            },
            place=self.subject.root if self.subject else "",
            links=self.subject.links() if self.subject else (),
        )
        self.context = trace.set_span_in_context(self.span, self.outside)
        self.captures = self.span.is_recording() and _captures_values()
        self.used = 0
        self.told = False

    def attempt(self, index: int) -> AttemptTrace:
        """Start the span of an attempt; the block ends it."""
        self.used = index
        if self.subject is not None:
            self.subject.attempt = self.subject.spent + index
        return AttemptTrace(self, index)

    def fallback(self) -> Current:
        """Make this span current while the fallback runs."""
        return Current(self.context, self.outside)

    @_guarded
    def ended(self, outcome: Ended) -> None:
        """End the span with the disposition. Only `not_accepted` is an error."""
        attributes: dict[str, Any] = {
            "flowgentic.accept.attempts.used": self.used,
            "flowgentic.accept.disposition": outcome.disposition,
        }
        try:
            if outcome.disposition == "not_accepted":
                attributes["error.type"] = NOT_ACCEPTED
                _set_error(self.span, outcome.escalation or "")
            self.span.set_attributes(attributes)
        finally:
            self.span.end()

    @_guarded
    def failed(self, error: BaseException) -> None:
        """End the span with a failure; an attempt's span has told the exception already."""
        try:
            self.span.set_attribute("flowgentic.accept.attempts.used", self.used)
            _tell_failure(self.span, error, event=not self.told)
        finally:
            self.span.end()


class AttemptTrace(Current):
    """The span of one attempt, current within the block."""

    def __init__(self, call: CallTrace, index: int) -> None:
        self.call = call
        self.span = _start_span(
            call.tracer,
            f"accept.attempt {call.name}",
            call.context,
            {"flowgentic.accept.attempt": index},
            place=f"attempt {call.subject.attempt}" if call.subject else "",
        )
        context = trace.set_span_in_context(self.span, call.context)
        super().__init__(context, call.outside)
        self.listens = call.listens
        self.value: object = None
        self.response_id = ""
        self.verdicts: list[str] = []

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        stack: TracebackType | None,
    ) -> None:
        self._end(error)
        super().__exit__(kind, error, stack)

    @_guarded
    def ruled(self, ruling: Ruling, value: object) -> None:
        """Emit the event of a ruling, and keep it for the span."""
        verdict = ruling.verdict
        self._keep(ruling.check, "pass" if verdict.passed else "fail", "; ".join(verdict.reasons))
        if not self.listens:
            return
        attributes: dict[str, Any] = {
            "gen_ai.evaluation.name": _clean(ruling.check, MAX_NAME),
            "gen_ai.evaluation.score.label": "pass" if verdict.passed else "fail",
        }
        if response_id := self._response_id(value):
            attributes["gen_ai.response.id"] = response_id
        if verdict.score is not None:
            attributes["gen_ai.evaluation.score.value"] = verdict.score
        if not verdict.passed:
            attributes["gen_ai.evaluation.explanation"] = _clean("; ".join(verdict.reasons))
        self._emit(attributes)

    @_guarded
    def check_failed(self, name: str, error: Exception) -> None:
        """Emit the event of a check that judged nothing, and keep it for the span."""
        self._keep(name, "error", _type_name(error))
        if self.listens:
            self._emit(
                {"gen_ai.evaluation.name": _clean(name, MAX_NAME), "error.type": _type_name(error)}
            )

    @_guarded
    def rejected(self, attempt: Attempt[Any]) -> None:
        """Say on the span what rejected the value, and with the switch on the value too.

        On the span as well as in the events, for several viewers show no log records. A rejection
        is no error: the status stays unset.
        """
        if not self.span.is_recording():
            return
        self.span.set_attributes(
            {
                "flowgentic.accept.rejected_by": _clean(attempt.rejected_by or "", MAX_NAME),
                "flowgentic.accept.reason": _clean(attempt.reason or ""),
            }
        )
        if self.call.captures:
            text = dumps(attempt.value)
            self.span.set_attribute("flowgentic.accept.value", text[:MAX_VALUE])
            if len(text) > MAX_VALUE:
                self.span.set_attribute("flowgentic.accept.value.truncated", True)

    @_guarded
    def _end(self, error: BaseException | None) -> None:
        try:
            if self.verdicts:
                self.span.set_attribute("batchgate.verdicts", self.verdicts)
            if error is not None:
                self.call.told = True
                _tell_failure(self.span, error, event=True)
        finally:
            self.span.end()

    def _keep(self, check: str, said: str, why: str) -> None:
        # On the span as well, for several viewers show no log records.
        if self.span.is_recording() and len(self.verdicts) < MAX_VERDICTS:
            told = f"{check}: {said}, {why}" if why else f"{check}: {said}"
            self.verdicts.append(_clean(told, MAX_NAME))

    def _response_id(self, value: object) -> str:
        # Once for a value, as several checks judge it.
        if value is not self.value:
            self.value, self.response_id = value, _response_id(value)
        return self.response_id

    def _emit(self, attributes: Mapping[str, Any]) -> None:
        # In the attempt's context, whatever a check has made current.
        self.call.logger.emit(event_name=EVENT, context=self.context, attributes=attributes)


def _response_id(value: object) -> str:
    """Return the provider's id of a response, as LangChain's messages carry it, or `""`."""
    # Not `message.id`: after an `invoke` that is LangChain's own (`lc_run--...`, core 1.8).
    name = "response_metadata"
    # Looked for first, since asking a pydantic model for what it lacks takes as long as an event.
    if name not in getattr(value, "__dict__", ()) and not hasattr(type(value), name):
        return ""
    metadata = getattr(value, name)
    found = metadata.get("id") if isinstance(metadata, Mapping) else None
    return _clean(found, MAX_NAME) if isinstance(found, str) else ""


def _start_span(
    tracer: Tracer,
    name: str,
    context: Context,
    attributes: Mapping[str, Any],
    *,
    place: str,
    links: Sequence[Link] = (),
) -> Span:
    try:
        with span_ids.placed(place):
            return tracer.start_span(name, context=context, attributes=attributes, links=links)
    except Exception as exc:  # noqa: BLE001 - telemetry never changes an outcome
        _log_once(f"a span is lost, for a sampler or processor raised {_type_name(exc)}")
        # In its place the parent's ids, so that the spans below it are not lost as well.
        return NonRecordingSpan(trace.get_current_span(context).get_span_context())


def _tell_failure(span: Span, error: BaseException, *, event: bool) -> None:
    if not span.is_recording():
        return
    kind, message = _type_name(error), _message(error)
    span.set_attribute("error.type", kind)
    _set_error(span, message)
    if event:
        # Not record_exception(): it has no bounds, and a ValidationError tells its input.
        frames = "".join(traceback.format_tb(error.__traceback__))
        attributes: dict[str, Any] = {
            "exception.type": kind,
            "exception.message": message,
            "exception.stacktrace": _clean(frames[-MAX_STACK:], MAX_STACK),
        }
        span.add_event("exception", attributes)


def _set_error(span: Span, message: str) -> None:
    span.set_status(Status(StatusCode.ERROR, _clean(message)))


def _type_name(error: BaseException) -> str:
    return _qualified(type(error))


def _qualified(kind: type[BaseException]) -> str:
    # As OpenTelemetry's record_exception names it.
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else f"{kind.__module__}.{kind.__qualname__}"
    )


def _message(error: BaseException) -> str:
    if isinstance(error, ValidationError):
        return _clean("; ".join(validation_reasons(error)))
    try:
        return _clean(str(error))
    except Exception:  # noqa: BLE001 - an error that cannot say what it is
        return ""


def _clean(text: str, limit: int = MAX_TEXT) -> str:
    if len(text) <= limit and text.isascii():
        return text
    raw = text[:limit].encode(errors="backslashreplace")
    if len(text) <= limit and len(raw) <= limit:
        return raw.decode()
    mark = "…"
    return raw[: limit - len(mark.encode())].decode(errors="ignore") + mark


def _captures_values() -> bool:
    said = os.environ.get(CAPTURE_SWITCH, "").strip().upper() or "NO_CONTENT"
    if said not in _ON_SPANS:
        _log_once(
            f"{CAPTURE_SWITCH} is {said[:40]!r}, must be one of {', '.join(_ON_SPANS)}; no content is captured"
        )
    return _ON_SPANS.get(said, False)


@functools.lru_cache(maxsize=100)
def _log_once(message: str) -> None:
    _log.warning("%s", message)
