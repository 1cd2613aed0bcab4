"""Judges one value per visit, and says which of three ways to go: pass, fail, escalate.

`accept` holds the whole loop of asking again. A `Gate` is one turn of that loop, for programs that
draw the loop themselves: the same checks, the same verdicts, a count of attempts that ends in an
escalation. `batchgate.langgraph` puts one into a graph.
"""

from .converge import Candidate, Convergence, iterate_until_converged
from .event import GateEvent, JsonLines, Sink, read_events
from .gate import Gate
from .review import QualityGateReview, interrupt_type
from .turn import Decision, GateState, Reset, Route, merge_by_gate

__all__ = [
    "Candidate",
    "Convergence",
    "Decision",
    "Gate",
    "GateEvent",
    "GateState",
    "JsonLines",
    "QualityGateReview",
    "Reset",
    "Route",
    "Sink",
    "interrupt_type",
    "iterate_until_converged",
    "merge_by_gate",
    "read_events",
]
