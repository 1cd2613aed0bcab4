"""What a producer returns, and what the runner expects of one.

A producer is asked once for each attempt. What the model says badly is `Rejected`, an answer to be
asked again; a model that does not answer is a `ProducerError`, a failure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from .breach import Lesson
from .campaign import Proposal
from .campaign.observation import Observation
from .decision import Attempt


@dataclass(frozen=True, slots=True)
class Answer:
    """One proposal, and how it came about.

    Attributes:
        proposal: What the model proposes; meets the campaign's model of a proposal.
        others: Further proposals of the same answer. They are judged as the first one is, and the
            first in this order that passes every check is taken.
        response_id: The provider's id of the answer, `""` when there is none.
        request_id: Our id of the request; vLLM's own is `chatcmpl-` and this one.
        model: Name under which the model says it served.
        finish_reasons: Why each sample ended, in the order of the samples.
        usage: `input_tokens` and `output_tokens`, where the provider counted them.
        temperature: Temperature that was asked for.
        elapsed_s: Seconds from the request to the whole answer.
        samples_valid: Samples that were valid and distinct.
        samples_total: Samples that came.
    """

    proposal: Proposal
    others: tuple[Proposal, ...] = ()
    response_id: str = ""
    request_id: str = ""
    model: str = ""
    finish_reasons: tuple[str, ...] = ()
    usage: Mapping[str, int] = field(default_factory=dict)
    temperature: float | None = None
    elapsed_s: float = 0.0
    samples_valid: int = 1
    samples_total: int = 1


class Producer(Protocol):
    """Whatever proposes: a model behind vLLM, a script."""

    @property
    def name(self) -> str:
        """Names it in every record."""
        ...

    async def propose(
        self,
        *,
        decision: int,
        results: Sequence[Observation],
        previous: Sequence[Attempt[Proposal]],
        lessons: Sequence[Lesson] = (),
    ) -> Answer:
        """Propose once.

        Args:
            decision: Number of the decision.
            results: What is known, oldest first.
            previous: The rejected attempts of this decision, oldest first.
            lessons: What was rejected again and again in the whole run, the most frequent first.

        Raises:
            Rejected: The model answered, and what it said is no proposal.
            ProducerError: The model did not answer.
        """
        ...

    async def aclose(self) -> None:
        """Close connections; nothing is asked afterwards."""
        ...
