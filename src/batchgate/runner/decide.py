"""One decision: ask, judge, ask again, or take the surrogate's candidates.

`accept` runs the loop; here its producer, checks and fallback are made such that each step is an
event. Failures end the decision as the campaign's failure rule says: a producer that failed does
not idle the nodes, so the surrogate's candidates are taken; a check, a verifier or a surrogate
that failed lets nothing through.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import format_span_id, format_trace_id
from pydantic import ValidationError

from .. import span_ids
from ..accept import accept
from ..answer import Producer
from ..campaign import Campaign, Candidate, Proposal
from ..checks import verdict_of
from ..decision import Attempt, Fail, Rejected, Ruling
from ..errors import (
    ConfigError,
    FlowError,
    LedgerError,
    ProducerError,
    SurrogateError,
    VerifierError,
)
from ..events import (
    AttemptStarted,
    BrokenBound,
    Chosen,
    DecisionMade,
    DecisionOpened,
    DecisionParked,
    Disposition,
    FailureKind,
    FailureRecorded,
    ProposalMade,
    ProposalRejected,
    SurrogateAsked,
)
from ..plain import plain
from ..state import Past
from ..surrogates import propose
from .audit import drawn
from .recorder import Recorder
from .twins import Twins
from .verify import Judges, Turn

FATAL = (LedgerError, FlowError, ConfigError)
"""Errors after which no decision can be made at all."""

MAX_VALUE_CHARS = 64 * 1024
"""Longest rejected answer that the ledger keeps."""


@dataclass(slots=True)
class Decider:
    """Makes decisions, any number at once.

    Attributes:
        campaign: Whose space, checks and fallback.
        recorder: Where events go.
        judges: Makes the checks.
    """

    campaign: Campaign
    recorder: Recorder
    judges: Judges
    _claimed: list[Candidate] = field(default_factory=list)
    _surrogate: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, number: int, producer: Producer, *, attempts: int | None = None) -> None:
        """Make a decision by asking the producer; one that is open already goes on.

        Args:
            number: The decision.
            producer: Whom to ask.
            attempts: How often at most; by default what the campaign's budget leaves.

        Raises:
            LedgerError, FlowError, ConfigError: Nothing can be decided any more.
        """
        state, ask = self.recorder.state, self.campaign.spec.producer
        begun = number in state.decisions
        if not begun:
            self.recorder.record(DecisionOpened(decision=number))
        earlier = state.decisions[number]
        turn = Turn(number, attempt=earlier.spent)
        left = ask.attempts - earlier.spent if attempts is None else attempts
        parks = self._parks()
        if left < 1 and parks:
            self._park(number)
            return
        if left < 1:
            await self.fall_back(number, ask.batch, cause="rejected")
            return
        try:
            with span_ids.about(self._subject(turn, begun=begun)):
                outcome = await accept(
                    lambda previous: self._propose(producer, turn, previous),
                    checks=self.judges.checks(turn),
                    attempts=left,
                    fallback=None if parks else lambda: self._batch(turn, ask.batch),
                    escalate=parks,
                    name=self.campaign.spec.campaign.name,
                    history=[self._attempt(i, p) for i, p in enumerate(earlier.attempts, start=1)],
                )
        except FATAL:
            raise
        except ProducerError as exc:
            self._fail("producer", exc.kind, exc, turn)
            await self.fall_back(number, ask.batch, cause="producer")
        except VerifierError as exc:
            self._fail("verifier", exc.end, exc, turn)
            self._close(turn, "failed", cause="verifier")
        except SurrogateError as exc:
            self._fail("surrogate", "exhausted", exc, turn)
            self._close(turn, "failed", cause="surrogate")
        except Exception as exc:  # noqa: BLE001 - a campaign's own code; a broken check is no pass
            self._fail("check", turn.stage, exc, turn)
            self._close(turn, "failed", cause="check")
        else:
            if outcome.value is None:
                self._park(number)
            elif outcome.disposition == "fallback":
                self._close(turn, "fallback", outcome.value.points(), cause="rejected")
            else:
                winner = turn.winner
                points = turn.samples[winner - 1].points()
                self._close(turn, "accepted", points, sample=winner)

    async def fall_back(self, number: int, count: int, *, cause: str) -> None:
        """Close a decision with the surrogate's candidates.

        Args:
            number: The decision; opened here when it is not.
            count: Candidates wanted.
            cause: Why the producer's were not taken.
        """
        begun = number in self.recorder.state.decisions
        if not begun:
            self.recorder.record(DecisionOpened(decision=number, source="surrogate"))
        decision = self.recorder.state.decisions[number]
        turn = Turn(number, attempt=decision.spent)
        try:
            with self._own_span(turn, begun, cause, asked=decision.source == "producer"):
                batch = await self._batch(turn, count)
        except SurrogateError as exc:
            self._fail("surrogate", "exhausted", exc, turn)
            self._close(turn, "failed", cause="surrogate")
        except FATAL:
            raise
        except Exception as exc:  # noqa: BLE001 - a foreign generator, or a campaign's check in it
            self._fail("surrogate", type(exc).__name__, exc, turn)
            self._close(turn, "failed", cause="surrogate")
        else:
            self._close(turn, "fallback", batch.points(), cause=cause)

    def let_pass(self, number: int) -> None:
        """Close a parked decision with its last proposal, because a person says so."""
        turn, model = Turn(number), self.campaign.proposal_model
        for past in reversed(self.recorder.state.decisions[number].attempts):
            with contextlib.suppress(ValidationError):  # this answer was no proposal
                points = model.model_validate(past.proposal).points()
                if not any(any(self.campaign.space.problems(point)) for point in points):
                    self._close(turn, "accepted", points, cause="person")
                    return
        self._close(turn, "refused", cause="nothing that could be launched")

    def refuse(self, number: int) -> None:
        """Close a parked decision without a candidate, because a person says so."""
        self._close(Turn(number), "refused", cause="person")

    def _parks(self) -> bool:
        park, state = self.campaign.spec.park, self.recorder.state
        return park.decisions and len(state.parked) < park.most

    def _park(self, number: int) -> None:
        expires_at = time.time() + self.campaign.spec.park.expire_s
        self.recorder.record(DecisionParked(decision=number, expires_at=expires_at))

    def abandon(self, number: int, *, cause: str) -> None:
        """Close an open decision because the run stops."""
        self._close(Turn(number), "abandoned", cause=cause)

    async def _propose(
        self, producer: Producer, turn: Turn, previous: Sequence[Attempt[Proposal]]
    ) -> Proposal:
        turn.attempt += 1
        turn.stage = "producer"
        span = trace.get_current_span()
        span.set_attributes(
            {"batchgate.decision": turn.decision, "batchgate.attempt": turn.attempt}
        )
        context = span.get_span_context()
        self.recorder.record(
            AttemptStarted(
                decision=turn.decision,
                attempt=turn.attempt,
                trace_id=format_trace_id(context.trace_id) if context.is_valid else "",
                span_id=format_span_id(context.span_id) if context.is_valid else "",
            )
        )
        # An attempt is spent even if the answer kills this process.
        await self.recorder.commit()
        began = perf_counter()
        try:
            answer = await producer.propose(
                decision=turn.decision,
                results=tuple(self.recorder.state.observations()),
                previous=previous,
                lessons=self.recorder.guard.lessons(),
            )
        except (Rejected, ValidationError) as exc:
            self._reject(turn, exc, perf_counter() - began)
            raise
        self.recorder.record(
            ProposalMade(
                decision=turn.decision,
                attempt=turn.attempt,
                proposal=plain(answer.proposal),
                others=tuple(map(plain, answer.others)),
                response_id=answer.response_id,
                model=answer.model,
                temperature=answer.temperature,
                input_tokens=answer.usage.get("input_tokens", 0),
                output_tokens=answer.usage.get("output_tokens", 0),
                samples_valid=answer.samples_valid,
                samples_total=answer.samples_total,
                elapsed_s=perf_counter() - began,
            )
        )
        turn.take((answer.proposal, *answer.others))
        answer.proposal.answered_by(answer.response_id)
        return answer.proposal

    def _reject(self, turn: Turn, exc: Rejected | ValidationError, elapsed_s: float) -> None:
        by = "schema" if isinstance(exc, ValidationError) else "producer"
        verdict = verdict_of(exc, by=by)
        value = exc.value if isinstance(exc, Rejected) else None
        if isinstance(value, str):
            value = value[:MAX_VALUE_CHARS]
        self.recorder.record(
            ProposalRejected(
                decision=turn.decision,
                attempt=turn.attempt,
                stage=verdict.check or by,
                reasons=verdict.reasons,
                breaches=tuple(BrokenBound(candidate=0, **b.to_dict()) for b in verdict.breaches),
                value=plain(value),
                elapsed_s=elapsed_s,
            )
        )

    def _subject(self, turn: Turn, *, begun: bool) -> span_ids.Subject:
        """Say what the spans of a decision are about."""
        state = self.recorder.state
        return span_ids.Subject(
            state.run,
            f"D{turn.decision}",
            life=state.lives if begun else 0,
            spent=turn.attempt,
            attributes={"batchgate.decision": turn.decision, "batchgate.life": state.lives},
        )

    @contextlib.contextmanager
    def _own_span(self, turn: Turn, begun: bool, cause: str, *, asked: bool) -> Iterator[None]:
        """Trace a decision that no producer was asked for, so that `accept` knows nothing of it."""
        if asked:
            yield
            return
        name = self.campaign.spec.campaign.name
        with span_ids.about(self._subject(turn, begun=begun)) as subject:
            told = {
                "flowgentic.accept.name": name,
                "flowgentic.accept.attempts.used": 0,
                "batchgate.cause": cause,
                **subject.attributes,
            }
            with span_ids.started(
                f"accept {name}", subject.root, attributes=told, links=subject.links()
            ) as span:
                yield
                span.set_attribute("flowgentic.accept.disposition", "fallback")

    async def _batch(self, turn: Turn, count: int) -> Proposal:
        """Ask the surrogate; one at a time, so that no two batches hold twins."""
        async with self._surrogate:
            state, began = self.recorder.state, perf_counter()
            observations = tuple(state.observations())
            batch = state.batches
            twins = Twins.now(self.campaign, state, self._claimed)
            points = await asyncio.to_thread(
                propose,
                self.campaign,
                observations=observations,
                n=count,
                batch_number=batch,
                avoid=twins.has,
                running=twins.in_flight(),
            )
            turn.batch = batch
            self._claimed += points
            self.recorder.record(
                SurrogateAsked(
                    batch=batch,
                    observations=len(observations),
                    candidates=len(points),
                    elapsed_s=perf_counter() - began,
                )
            )
        model = self.campaign.candidate_model
        return Proposal(candidates=[model(**point) for point in points])

    def _close(
        self,
        turn: Turn,
        disposition: Disposition,
        points: Sequence[Mapping[str, Any]] = (),
        *,
        cause: str = "",
        sample: int = 1,
    ) -> None:
        space, state = self.campaign.space, self.recorder.state
        chosen = [Chosen(fingerprint=space.fingerprint(p), candidate=dict(p)) for p in points]
        audits = drawn(self.campaign, state, turn.decision, chosen) if chosen else []
        self.recorder.record(
            DecisionMade(
                decision=turn.decision,
                disposition=disposition,
                attempts=state.decisions[turn.decision].spent,
                sample=sample,
                candidates=(*chosen, *audits),
                cause=cause,
                batch=turn.batch if disposition == "fallback" else None,
            )
        )
        if disposition == "fallback":
            self._claimed = [c for c in self._claimed if c not in points]

    def _fail(self, kind: FailureKind, what: str, exc: BaseException, turn: Turn) -> None:
        self.recorder.record(
            FailureRecorded(
                kind=kind,
                what=what,
                message=f"{type(exc).__name__}: {exc}"[:2000],
                decision=turn.decision,
                attempt=turn.attempt or None,
            )
        )

    def _attempt(self, index: int, past: Past) -> Attempt[Any]:
        """Give an attempt of an earlier life back as the producer knew it."""
        value: Any = past.proposal
        with contextlib.suppress(ValidationError):  # what was no proposal stays what it is
            value = self.campaign.proposal_model.model_validate(past.proposal)
        reasons = past.reasons or ("the runner was stopped while this was judged",)
        ruling = Ruling(past.rejected_by, stage=0, hard=True, verdict=Fail(*reasons))
        return Attempt.judged(index, value, [ruling])
