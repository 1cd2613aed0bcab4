"""What the events of an intact run obey: their order, and what they refer to."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from ..events import (
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    DecisionMade,
    DecisionOpened,
    DecisionParked,
    Event,
    JobEnded,
    JobPlanned,
    ParkedResolved,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultParked,
    ResultRejected,
    RunResumed,
    RunStarted,
    RunStopped,
    RunSuspended,
    SegmentOpened,
)

Kind = Literal["chain", "order", "reference", "launch", "gate"]
"""What is wrong.

`chain`: bytes of the ledger are changed or missing. `order`: an event comes where it cannot.
`reference`: an event names something that is not there. `launch`: a job was planned that nothing
allowed. `gate`: a job's folder does not name the line that allowed it.
"""

Problems = Iterator[tuple[Kind, str]]
"""What is wrong, each with a sentence for people."""

Place = tuple[str, int, str]
"""Segment, seq and hash of a line."""


@dataclass(slots=True)
class _Decision:
    attempts: int = 0
    answered: bool = True
    """Whether the last attempt has its answer."""
    proposed: bool = False
    """Whether that answer is a proposal."""
    failed: dict[int, str] = field(default_factory=dict)
    """A hard check that a sample of its last answer failed, by the sample."""
    proposals: int = 0
    """Proposals that it has had."""
    answer: str = "nothing"
    """What a person was asked and said last: `nothing`, `parked`, or the answer's action."""
    made: DecisionMade | None = None

    def chosen(self, fingerprint: str) -> Mapping[str, Any] | None:
        """Candidate that the decision let through, if it did."""
        if self.made is None or self.made.disposition not in {"accepted", "fallback"}:
            return None
        found = (c.candidate for c in self.made.candidates if c.fingerprint == fingerprint)
        return next(found, None)


@dataclass(slots=True)
class Job:
    """A job that was planned.

    Attributes:
        planned: The plan.
        place: Its line.
        ended: How it ended, if it did.
        result: What became of its result, if it has one.
        answer: What a person was asked of it and said; see `_Decision.answer`.
    """

    planned: JobPlanned
    place: Place
    ended: JobEnded | None = None
    result: ResultAccepted | ResultRejected | None = None
    answer: str = "nothing"


class Rules:
    """Judges one event after the other, and remembers what it needs of those before.

    Attributes:
        jobs: Every job that was planned, by its id.
    """

    def __init__(self) -> None:
        self.jobs: dict[str, Job] = {}
        self._started = False
        self._running = False
        self._decisions: dict[int, _Decision] = {}
        self._by_fingerprint: dict[str, list[Job]] = {}
        self._by_kind: dict[type[Any], Callable[[Any], Problems]] = {
            SegmentOpened: self._segment_opened,
            RunStarted: self._run_started,
            RunResumed: self._run_resumed,
            RunSuspended: self._run_ended,
            RunStopped: self._run_ended,
            DecisionOpened: self._decision_opened,
            AttemptStarted: self._attempt_started,
            ProposalMade: self._attempt_answered,
            ProposalRejected: self._attempt_answered,
            CheckJudged: self._check_judged,
            DecisionMade: self._decision_made,
            CandidateHeld: self._candidate_held,
            JobEnded: self._job_ended,
            ResultAccepted: self._result_judged,
            ResultRejected: self._result_judged,
            DecisionParked: self._decision_parked,
            ResultParked: self._result_parked,
            ParkedResolved: self._parked_resolved,
        }

    def judge(self, event: Event, place: Place) -> Problems:
        """Tell what is wrong with the next event.

        Args:
            event: The event.
            place: Its line.
        """
        if isinstance(event, JobPlanned):
            return self._job_planned(event, place)
        rule = self._by_kind.get(type(event))
        return rule(event) if rule else iter(())

    def _segment_opened(self, _: SegmentOpened) -> Problems:
        self._running = False
        yield from ()

    def _run_started(self, _: RunStarted) -> Problems:
        if self._started:
            yield "order", "the run is started a second time"
        self._started = self._running = True

    def _run_resumed(self, _: RunResumed) -> Problems:
        if not self._started:
            yield "order", "the run is resumed and was never started"
        self._running = True

    def _run_ended(self, _: RunSuspended | RunStopped) -> Problems:
        self._running = False
        yield from ()

    def _decision_opened(self, event: DecisionOpened) -> Problems:
        yield from self._outside_a_run()
        if event.decision in self._decisions:
            yield "order", f"decision {event.decision} is opened a second time"
        self._decisions.setdefault(event.decision, _Decision())

    def _attempt_started(self, event: AttemptStarted) -> Problems:
        decision = yield from self._open_decision(event.decision)
        due = decision.attempts + 1
        if event.attempt != due:
            yield "order", f"attempt {event.attempt} is started where {due} is due"
        decision.attempts = event.attempt
        decision.answered = decision.proposed = False
        decision.failed = {}

    def _attempt_answered(self, event: ProposalMade | ProposalRejected) -> Problems:
        decision = yield from self._open_decision(event.decision)
        if event.attempt != decision.attempts:
            yield "reference", f"attempt {event.attempt} is answered and was not started"
        elif decision.answered:
            yield "order", f"attempt {event.attempt} is answered a second time"
        decision.answered = True
        decision.proposed = isinstance(event, ProposalMade)
        decision.proposals += decision.proposed

    def _check_judged(self, event: CheckJudged) -> Problems:
        decision = yield from self._open_decision(event.decision)
        if event.attempt != decision.attempts or not decision.proposed:
            yield "reference", f"attempt {event.attempt} is judged and has no proposal"
        if event.hard and not event.passed:
            decision.failed[event.sample] = event.check

    def _decision_made(self, event: DecisionMade) -> Problems:
        decision = yield from self._open_decision(event.decision)
        if event.disposition == "accepted":
            yield from self._accepted(event, decision)
        decision.made = event

    def _accepted(self, event: DecisionMade, decision: _Decision) -> Problems:
        which, refused_by = f"decision {event.decision}", decision.failed.get(event.sample)
        if event.cause == "person":
            if decision.answer != "accept":
                yield "launch", f"{which} is accepted by a person who never said so"
            if not decision.proposals:
                yield "launch", f"{which} is accepted without a proposal"
        elif refused_by:
            yield "launch", f"{which} is accepted though {refused_by} refused it"
        elif not decision.proposed:
            yield "launch", f"{which} is accepted without a proposal"

    def _decision_parked(self, event: DecisionParked) -> Problems:
        decision = yield from self._open_decision(event.decision)
        if decision.answer == "parked":
            yield "order", f"decision {event.decision} is parked a second time, unanswered"
        decision.answer = "parked"

    def _result_parked(self, event: ResultParked) -> Problems:
        job = self.jobs.get(event.job)
        if job is None or job.ended is None:
            yield "reference", f"the result of job {event.job} is parked and cannot be there"
        elif job.result is not None or job.answer != "nothing":
            yield "order", f"the result of job {event.job} is parked after it was judged"
        else:
            job.answer = "parked"

    def _parked_resolved(self, event: ParkedResolved) -> Problems:
        number = event.what.removeprefix("D")
        asked = (
            self._decisions.get(int(number)) if number.isdecimal() else self.jobs.get(event.what)
        )
        if asked is None or asked.answer != "parked":
            yield "reference", f"{event.what} is resolved and was not parked"
        else:
            asked.answer = event.action

    def _candidate_held(self, event: CandidateHeld) -> Problems:
        if self._chosen(event) is None:
            yield "reference", f"decision {event.decision} did not let {event.fingerprint} through"

    def _job_planned(self, event: JobPlanned, place: Place) -> Problems:
        yield from self._outside_a_run()
        chosen = self._chosen(event)
        if chosen is None:
            yield "launch", f"decision {event.decision} did not let {event.fingerprint} through"
        elif chosen != event.candidate:
            yield "launch", f"job {event.job} runs another candidate than the one let through"
        if not (event.reserved_node_h > 0 and event.walltime_s > 0):
            size = f"{event.reserved_node_h} node-hours for {event.walltime_s} s"
            yield "launch", f"job {event.job} reserves {size}; both must be above 0"
        yield from self._repeated(event)
        if event.job in self.jobs:
            yield "order", f"job {event.job} is planned a second time"
            return
        job = self.jobs[event.job] = Job(event, place)
        self._by_fingerprint.setdefault(event.fingerprint, []).append(job)

    def _repeated(self, event: JobPlanned) -> Problems:
        before = self._by_fingerprint.get(event.fingerprint, [])
        due = len(before) + 1
        if event.attempt != due:
            yield "order", f"job {event.job} is attempt {event.attempt} where {due} is due"
        for job in before:
            if job.ended is None:
                yield "launch", f"job {event.job} repeats {job.planned.job}, which has not ended"
            if isinstance(job.result, ResultAccepted):
                yield "launch", f"job {event.job} repeats {job.planned.job}, which has a result"

    def _job_ended(self, event: JobEnded) -> Problems:
        job = self.jobs.get(event.job)
        if job is None:
            yield "reference", f"job {event.job} ended and was never planned"
            return
        if job.ended is not None:
            yield "order", f"job {event.job} ended a second time"
        if event.charged_node_h < 0:
            yield "order", f"job {event.job} is charged {event.charged_node_h} node-hours"
        job.ended = event

    def _result_judged(self, event: ResultAccepted | ResultRejected) -> Problems:
        job = self.jobs.get(event.job)
        if job is None or job.planned.fingerprint != event.fingerprint:
            yield "reference", f"there is no job {event.job} of {event.fingerprint}"
            return
        if job.ended is None:
            yield "order", f"the result of job {event.job} is judged before the job has ended"
        if job.answer != "nothing" and isinstance(event, ResultAccepted) != (
            job.answer == "accept"
        ):
            yield "launch", f"the result of job {event.job} is not what was said of it when asked"
        if job.result is not None:
            yield "order", f"the result of job {event.job} is judged a second time"
        job.result = event

    def _outside_a_run(self) -> Problems:
        if not self._running:
            yield "order", "nothing may begin here: the run is not started, or was stopped"

    def _chosen(self, event: JobPlanned | CandidateHeld) -> Mapping[str, Any] | None:
        return self._decisions.get(event.decision, _Decision()).chosen(event.fingerprint)

    def _open_decision(self, number: int) -> Generator[tuple[Kind, str], None, _Decision]:
        if number not in self._decisions:
            yield "reference", f"decision {number} was never opened"
        decision = self._decisions.setdefault(number, _Decision())
        if decision.made is not None:
            yield "order", f"decision {number} goes on after it was closed"
        return decision
