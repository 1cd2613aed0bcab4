"""The trace context, for requests and for the environment of tasks: their spans join ours.

`TRACEPARENT` and `TRACESTATE`, upper case, as OpenTelemetry's "Environment Variables as Context
Propagation Carriers" has them; the API's own carrier is private as of 1.45.
"""

from __future__ import annotations

from opentelemetry import propagate


def context() -> dict[str, str]:
    """Return the current trace context under the names of HTTP headers; empty without a tracer."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier


def environment() -> dict[str, str]:
    """Return the variables that carry the current trace context; none without a tracer."""
    return {name.upper().replace("-", "_"): value for name, value in context().items()}
