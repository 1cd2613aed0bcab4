"""What a person is asked when a gate escalates, as the plain payload of an interrupt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ..plain import plain

_TYPES: Final = ("quality_gate", "clarification", "permission")


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityGateReview:
    """A question to a person: may this artifact go on?

    Attributes:
        artifact: What failed.
        criteria: What it is to be judged by.
        auto_score: The evaluator's score.
        reasons: The evaluator's reasons.
        gate: Name of the gate.
    """

    artifact: Any
    criteria: Sequence[str] = ()
    auto_score: float | None = None
    reasons: Sequence[str] = ()
    gate: str | None = None

    def to_payload(self) -> dict[str, Any]:
        """Return strict JSON data, for `interrupt` and any checkpointer; see `batchgate.plain`."""
        payload: dict[str, Any] = plain(
            {
                "type": "quality_gate",
                "artifact": self.artifact,
                "criteria": self.criteria,
                "auto_score": self.auto_score,
                "reasons": self.reasons,
                "gate": self.gate,
            }
        )
        return payload


def interrupt_type(payload: object) -> str | None:
    """Return what an interrupt asks for, by the payload's `type`.

    Returns:
        `quality_gate`, `clarification` or `permission`; `None` for any other payload.
    """
    kind = payload.get("type") if isinstance(payload, Mapping) else getattr(payload, "type", None)
    return kind if isinstance(kind, str) and kind in _TYPES else None
