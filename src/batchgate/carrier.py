"""The trace context as environment variables, so that a task's own spans join ours.

`TRACEPARENT` and `TRACESTATE`, upper case, as OpenTelemetry's "Environment Variables as Context
Propagation Carriers" has them; the API's own carrier is private as of 1.45.
"""

from __future__ import annotations

from opentelemetry import propagate


def environment() -> dict[str, str]:
    """Return the variables that carry the current trace context; none without a tracer."""
    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return {name.upper().replace("-", "_"): value for name, value in carrier.items()}
