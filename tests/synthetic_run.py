"""A made-up night of a campaign: every kind of event, from a seed, without running anything.

Branin's function stands for the expensive job, a blurred one for the verifier. The model errs,
repeats itself and is sometimes down; jobs time out, crash and return rubbish; the first runner is
killed, the second suspended, the third finishes. With `everything` there are also allocations,
several samples of an answer, audits, results that run again, and what waits for a person.
"""

from __future__ import annotations

import json
import math
import random
import tempfile
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from batchgate.campaign import CampaignSpec
from batchgate.events import (
    AllocationSeen,
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    Chosen,
    DecisionMade,
    DecisionOpened,
    DecisionParked,
    Disposition,
    Entry,
    Event,
    FailureRecorded,
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
    SegmentClosed,
    SegmentOpened,
    ServerStarted,
    ServerStopped,
    SurrogateAsked,
)
from batchgate.job import End, JobState
from batchgate.ledger.line import encode, stored_hash
from batchgate.ledger.reader import segment_name
from batchgate.review import Summary, summarise
from batchgate.review.report import Findings
from batchgate.state import State

START_AT = 1_780_000_000.0
MODEL = "Qwen/Qwen3-4B-Instruct"
CORNER = {"x1": -5.0, "x2": 15.0}
EVERYTHING: dict[str, Any] = {
    "level": [
        {
            "name": "coarse",
            "use": "campaign:coarse",
            "timeout_s": 20,
            "accept": {"y": ["LESS_THAN", 60]},
        },
        {
            "name": "fine",
            "use": "campaign:fine",
            "timeout_s": 600,
            "accept": {"residual": ["LESS_THAN", 0.002]},
            "again": [{"mesh": 2}],
        },
    ],
    "audit": {"share": 0.25, "node_h": 5},
}
"""What a campaign with everything has besides; see `Night`."""


def spec(**changes: Any) -> CampaignSpec:
    raw: dict[str, Any] = {
        "campaign": {"name": "branin", "title": "Lowest point of the Branin function", "seed": 3},
        "variables": {
            "x1": {"domain": [-5, 10], "unit": "mm", "about": "first"},
            "x2": {"domain": [0, 15], "unit": "mm", "about": "second"},
        },
        "objectives": {"y": "MINIMIZE"},
        "constraints": {"y": ["LESS_THAN", 150]},
        "check": [{"use": "campaign:disc"}, {"use": "campaign:spacing", "name": "spacing"}],
        "level": [
            {"name": "coarse", "use": "campaign:coarse", "timeout_s": 20},
            {"name": "fine", "use": "campaign:fine", "timeout_s": 600},
        ],
        "fallback": {},
        "stop": {"node_h": 20},
        "producer": {"attempts": 3, "rationale_chars": 400},
    }
    return CampaignSpec.model_validate(raw | changes)


def branin(x1: float, x2: float, blur: float = 0.0) -> float:
    b = 5.1 / (4 * math.pi**2) - 0.1 * blur
    return (
        (x2 - b * x1**2 + 5 / math.pi * x1 - 6) ** 2
        + 10 * (1 - 1 / (8 * math.pi)) * math.cos(x1)
        + 10
    )


class Script:
    """Entries written by hand: `add` events, each a second after the one before."""

    def __init__(self) -> None:
        self.now_at = START_AT
        self.entries: list[Entry] = []

    def add(self, *events: Event, after_s: float = 1.0) -> Script:
        for event in events:
            self.now_at += after_s
            seq, at_ns = len(self.entries), int(self.now_at * 1e9)
            self.entries.append(Entry(seq=seq, at_ns=at_ns, event=event))
        return self

    def begin(self, **changes: Any) -> Script:
        """Open the first life."""
        return self.add(opened(1), started(**changes), after_s=0.0)


def kept(entries: Iterable[Entry], run_dir: Path, *, bare: bool = False) -> Path:
    """Write entries as the ledger of a run, a segment for each life, and return the run.

    Bare, no line has a field that has its default, as if an older version had not known any.
    """
    folder = run_dir / "ledger"
    folder.mkdir(parents=True)
    path, previous = folder / segment_name(1), b""
    for entry in entries:
        event = entry.event
        if isinstance(event, SegmentOpened):
            path = folder / segment_name(event.segment)
            event = event.model_copy(update={"previous_hash": previous.decode()})
        line = encode(event, seq=entry.seq, at_ns=entry.at_ns, previous=previous)
        previous = stored_hash(line)
        with path.open("ab") as file:
            file.write(_bare(event, line) if bare else line)
    return run_dir


def _bare(event: Event, line: bytes) -> bytes:
    told = json.loads(line)
    kind: Any = type(event)
    defaults = json.loads(kind.model_construct().model_dump_json(warnings=False))
    told = {k: v for k, v in told.items() if k == "type" or v != defaults.get(k, ...)}
    told |= {"format": 1} if event.type == "segment_opened" else {}
    return json.dumps(told).encode() + b"\n"


def figures(entries: Iterable[Entry]) -> Summary:
    """Count entries as `batchgate summary` counts a run."""
    with tempfile.TemporaryDirectory() as folder:
        return summarise(kept(entries, Path(folder)))


def findings(entries: Iterable[Entry]) -> Findings:
    """Take from entries what `batchgate report` makes its page of."""
    with tempfile.TemporaryDirectory() as folder:
        return Findings.read(kept(entries, Path(folder)))


def opened(segment: int) -> SegmentOpened:
    return SegmentOpened(
        run="branin-7",
        segment=segment,
        previous=f"{segment - 1:04d}.jsonl" if segment > 1 else "",
        host=f"node{segment:02d}",
        pid=4000 + segment,
        slurm={"job_id": "98123", "restart_count": str(segment - 1)},
    )


def started(*, slots: int = 2, **changes: Any) -> RunStarted:
    campaign = spec(**changes)
    return RunStarted(
        campaign=campaign.campaign.name,
        digest=campaign.digest,
        spec=campaign.model_dump(mode="json"),
        version="0.1.0",
        seed=3,
        granted_node_h=campaign.stop.node_h,
        slots=slots,
        producer="vllm",
    )


def chosen(**candidate: float) -> Chosen:
    return Chosen(fingerprint=spec().space.fingerprint(candidate), candidate=candidate)


@dataclass
class Night:
    """Writes the night. `entries` has it."""

    seed: int = 1
    decisions: int = 60
    slots: int = 3
    everything: bool = False
    entries: list[Entry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)
        self.turns: Counter[str] = Counter()
        self.spec = spec(**EVERYTHING) if self.everything else spec()
        self.timeline: list[tuple[float, Event]] = []
        self.free = [START_AT + 95.0] * self.slots
        self.decision = self.jobs = self.batch = 0
        self.launched: set[str] = set()
        self.rerun: set[str] = set()
        share = self.decisions // 3
        self._live(1, START_AT, decisions=share)
        killed_at = self._cut()
        self._live(2, killed_at + 240, decisions=share)
        reason = "SIGUSR1: 120 s before the end of the allocation"
        at = self._end(RunSuspended(reason=reason, requeued=self.everything))
        self._live(3, at + 900, decisions=self.decisions - 2 * share)
        self._end(RunStopped(rule="jobs", reason=f"{self.jobs} jobs ended"))

    def _turn(self, what: str, every: int) -> bool:
        """Whether it is the turn of something that only a night with `everything` has."""
        self.turns[what] += 1
        return self.everything and self.turns[what] % every == 1

    # --- lives

    def _live(self, life: int, at: float, *, decisions: int) -> None:
        self._note(at, opened(life))
        if life == 1:
            changes = EVERYTHING if self.everything else {}
            self._note(at + 1, started(slots=self.slots, **changes))
        else:
            self._note(at + 1, RunResumed(version="0.1.0", slots=self.slots, producer="vllm"))
        if self.everything:
            held = tuple(f"node{number:02d}" for number in range(1, self.slots + 2))
            seen = AllocationSeen(
                nodes=held,
                started_at=at - 25,
                ends_at=at + 3600,
                job_id="98123",
                restart_count=life - 1,
            )
            self._note(at + 0.5, seen)
        ready_at = at + 95
        nodes = float(self.everything)
        self._note(ready_at, ServerStarted(model=MODEL, elapsed_s=92.4, nodes=nodes))
        self.free = [ready_at] * self.slots
        self._take_up(at + 2)
        decide_at = ready_at
        for _ in range(decisions):
            if min(self.free) < decide_at - 30:
                self._surrogate(min(self.free) + 30)
            decide_at = self._decide(decide_at)
            decide_at = max(decide_at, min(self.free) - 45)

    def _cut(self) -> float:
        """Kill the runner in the middle of what it does."""
        at = max(at for at, event in self.timeline if isinstance(event, AttemptStarted)) + 2
        self.timeline = [(when, event) for when, event in self.timeline if when <= at]
        self._write()
        return at

    def _end(self, last: Event) -> float:
        at = max(*self.free, self.timeline[-1][0]) + 3
        self._note(at - 1, ServerStopped(reason="the run ends"))
        self._note(at, last)
        self._note(at + 0.1, SegmentClosed())
        self._write()
        return at

    def _take_up(self, at: float) -> None:
        """Settle what the runner before left open."""
        state = State.of(self.entries)
        planned_at = {e.event.job: e.at for e in self.entries if isinstance(e.event, JobPlanned)}
        for place, job in enumerate(state.running):
            plan = job.plan
            if place % 2:
                lost = JobEnded(
                    job=plan.job,
                    state=JobState.LOST,
                    end=End.UNKNOWN,
                    error="its process is gone and it left no result",
                    started_at=planned_at[plan.job] + 0.3,
                    ended_at=state.updated_at,
                    charged_node_h=plan.reserved_node_h,
                    again=True,
                )
                self._note(at, lost)
                self._launch(plan.decision, plan.candidate, at + 95, attempt=plan.attempt + 1)
            else:
                self._note(
                    at,
                    JobEnded(
                        job=plan.job,
                        state=JobState.COMPLETED,
                        end=End.COMPLETED,
                        exit_code=0,
                        started_at=planned_at[plan.job] + 0.3,
                        ended_at=at - 30,
                        host="node01",
                        charged_node_h=0.04,
                        adopted=True,
                    ),
                )
                self._result(plan.job, plan.candidate, at + 0.2)
        for decision in state.open:
            made = self._fallback(decision.number, at + 96, "rejected", spent=decision.spent)
            self._run(decision.number, made.candidates, at + 97)

    # --- decisions

    def _decide(self, at: float) -> float:
        self.decision += 1
        number = self.decision
        self._note(at, DecisionOpened(decision=number))
        last: dict[str, Any] | None = None
        for attempt in range(1, 4):
            at += 0.1
            self._note(at, AttemptStarted(decision=number, attempt=attempt))
            if self.random.random() < 0.02:
                return self._producer_fails(number, attempt, at)
            at, last, passed = self._attempt(number, attempt, at, last)
            if passed:
                made = self._made(number, "accepted", [last], attempts=attempt, sample=self.sample)
                self._note(at + 0.1, made)
                self._run(number, made.candidates, at + 0.2)
                return at + 0.3
        if self._turn("person", 2):
            self._ask_a_person(number, at + 0.1)
            return at + 0.2
        made = self._fallback(number, at + 0.1, "rejected", spent=3, rejected=last)
        self._run(number, made.candidates, at + 1)
        return at + 1.1

    def _ask_a_person(self, number: int, at: float) -> None:
        """Park a decision, which a person accepts, or refuses, or has not looked at yet."""
        self._note(at, DecisionParked(decision=number, expires_at=at + 7200))
        fate, at = self.turns["person"] // 2 % 3, at + 40
        how: dict[str, Any] = {"what": f"D{number}", "by": "ada", "answered_at": at - 4}
        if fate == 0:
            point = self._point(good=1)
            self._note(at, ParkedResolved(**how, action="accept", reason="the disc is too tight"))
            made = self._made(number, "accepted", [point], attempts=3, cause="person")
            self._note(at + 0.1, made)
            self._run(number, made.candidates, at + 0.2)
        elif fate == 1:
            self._note(at, ParkedResolved(**how, action="reject", reason="out of our reach"))
            self._note(at + 0.1, self._made(number, "refused", [], attempts=3, cause="person"))

    def _producer_fails(self, number: int, attempt: int, at: float) -> float:
        at += 60
        failure = FailureRecorded(
            kind="producer",
            what="timeout",
            message="no answer within 60 s",
            decision=number,
            attempt=attempt,
        )
        self._note(at, failure)
        made = self._fallback(number, at + 0.1, "producer", spent=attempt)
        self._run(number, made.candidates, at + 0.8)
        self._note(at + 0.9, ServerStopped(reason="no answer to a health request"))
        self._note(at + 90, ServerStarted(model=MODEL, elapsed_s=88.0, start=2))
        return at + 91

    def _attempt(
        self, number: int, attempt: int, at: float, last: dict[str, Any] | None
    ) -> tuple[float, dict[str, Any], bool]:
        answer_s = 4 + 8 * self.random.random()
        at += answer_s
        where = {"decision": number, "attempt": attempt}
        if self.random.random() < 0.06:
            reasons = ("the answer ended after 400 tokens, before its JSON did",)
            rejected = ProposalRejected(
                **where, stage="truncated", reasons=reasons, value='{"rationale": "As', elapsed_s=9
            )
            self._note(at, rejected)
            return at, last or {}, False
        repeats = last and self.random.random() < 0.2
        candidate = dict(last) if last and repeats else self._point(good=0.5 + 0.15 * attempt)
        proposal = {
            "rationale": f"The minima lie in valleys; x1 near {candidate['x1']} is one of them.",
            "candidates": [candidate],
        }
        # Of two samples, the second one is judged after the first one was rejected.
        self.sample = 2 if self._turn("samples", 7) else 1
        others: tuple[Any, ...] = ()
        if self.sample == 2:
            others = (proposal,)
            proposal = {"rationale": "The corner looks promising.", "candidates": [CORNER]}
        made = ProposalMade(
            **where,
            proposal=proposal,
            others=others,
            response_id=f"chatcmpl-{number}-{attempt}",
            model=MODEL,
            temperature=0.7 + 0.25 * (attempt - 1),
            input_tokens=700 + 120 * attempt,
            output_tokens=self.random.randrange(60, 180),
            elapsed_s=answer_s,
        )
        self._note(at, made)
        if others:
            refused = (self.spec.space.fingerprint(CORNER),)
            far = "the point lies 14.58 from the centre, at most 9"
            self._note(
                at + 0.01,
                CheckJudged(**where, check="disc", passed=False, reasons=(far,), refused=refused),
            )
            where["sample"] = 2
            at += 0.02
        for verdict in self._verdicts(where, candidate):
            at += verdict.elapsed_s + 0.01
            self._note(at, verdict)
            if not verdict.passed and verdict.hard:
                return at, candidate, False
        return at, candidate, True

    def _verdicts(self, where: dict[str, int], candidate: dict[str, float]) -> Any:
        x1, x2 = candidate["x1"], candidate["x2"]
        far = math.hypot(x1 - 2.5, x2 - 7.5)
        reasons = () if far < 9 else (f"the point lies {far:.2f} from the centre, at most 9",)
        fingerprint = self.spec.space.fingerprint(candidate)

        def refused(*, passed: bool) -> tuple[str, ...]:
            return () if passed or not self.everything else (fingerprint,)

        yield CheckJudged(
            **where,
            check="disc",
            passed=far < 9,
            reasons=reasons,
            refused=refused(passed=far < 9),
            elapsed_s=0.001,
        )
        near = [
            f"{name}={value:.3f} is closer than 0.5 to its bound {bound}"
            for name, value, bounds in (("x1", x1, (-5, 10)), ("x2", x2, (0, 15)))
            for bound in bounds
            if abs(value - bound) < 0.5
        ]
        yield CheckJudged(
            **where,
            check="spacing",
            passed=not near,
            reasons=tuple(near),
            refused=refused(passed=not near),
            elapsed_s=0.002,
        )
        blurred = round(branin(x1, x2, blur=0.5) + self.random.gauss(0, 4), 4)
        good = blurred < 60
        yield CheckJudged(
            **where,
            check="coarse",
            passed=good,
            reasons=() if good else (f"y is {blurred:.4g}, must be below 60",),
            refused=() if good else (fingerprint,),
            verifier=True,
            observables=({"y": blurred},),
            elapsed_s=2 + 3 * self.random.random(),
            node_h=0.001,
        )

    def _surrogate(self, at: float) -> None:
        self.decision += 1
        self._note(at, DecisionOpened(decision=self.decision, source="surrogate"))
        made = self._fallback(self.decision, at + 0.1, "idle", spent=0)
        self._run(self.decision, made.candidates, at + 0.9)

    def _fallback(
        self,
        number: int,
        at: float,
        cause: str,
        *,
        spent: int,
        rejected: dict[str, float] | None = None,
    ) -> DecisionMade:
        asked = SurrogateAsked(batch=self.batch, observations=0, candidates=1, elapsed_s=0.4)
        self._note(at, asked)
        made = self._made(number, "fallback", [self._point(good=0.7)], attempts=spent, cause=cause)
        if rejected and self.everything:
            audit = chosen(**rejected).model_copy(update={"audit_probability": 0.25})
            if audit.fingerprint not in self.launched:
                made = made.model_copy(update={"candidates": (*made.candidates, audit)})
        self._note(at + 0.5, made)
        self.batch += 1
        return made

    def _made(
        self,
        number: int,
        disposition: Disposition,
        points: Sequence[dict[str, float]],
        *,
        attempts: int,
        cause: str = "",
        sample: int = 1,
    ) -> DecisionMade:
        return DecisionMade(
            decision=number,
            disposition=disposition,
            attempts=attempts,
            sample=sample,
            candidates=tuple(chosen(**point) for point in points),
            cause=cause,
            batch=self.batch if disposition == "fallback" else None,
        )

    def _point(self, *, good: float) -> dict[str, float]:
        """Return a point, with a chance of `good` one near a minimum."""
        if self.random.random() > good:
            return {
                "x1": round(self.random.uniform(-5, 10), 3),
                "x2": round(self.random.uniform(0, 15), 3),
            }
        x1, x2 = self.random.choice([(-3.14, 12.28), (3.14, 2.28), (9.42, 2.48)])
        spread = 3 / (1 + self.decision / 15)
        return {
            "x1": round(min(max(self.random.gauss(x1, spread), -5), 10), 3),
            "x2": round(min(max(self.random.gauss(x2, spread), 0), 15), 3),
        }

    # --- jobs

    def _run(self, decision: int, candidates: Sequence[Chosen], at: float) -> None:
        for one in candidates:
            if self.random.random() < 0.04 and one.fingerprint not in self.launched:
                held = CandidateHeld(
                    decision=decision,
                    fingerprint=one.fingerprint,
                    cause="duplicate",
                    reason="it was evaluated before",
                )
                self._note(at, held)
            else:
                self._launch(decision, one.candidate, at)

    def _launch(
        self, decision: int, candidate: Any, at: float, *, attempt: int = 1, rerun: int = 0
    ) -> None:
        self.jobs += 1
        job = f"j{self.jobs:04d}"
        self.launched.add(self.spec.space.fingerprint(candidate))
        slot = self.free.index(min(self.free))
        at = max(at, self.free[slot] + 0.5)
        length_s = self.random.uniform(60, 150)
        plan = JobPlanned(
            job=job,
            decision=decision,
            fingerprint=self.spec.space.fingerprint(candidate),
            candidate=candidate,
            level="fine",
            attempt=attempt,
            rerun=rerun,
            reserved_node_h=600 / 3600,
            walltime_s=600,
        )
        self._note(at, plan)
        fate = self.random.random()
        times: dict[str, Any] = {"started_at": at + 0.3, "host": f"node{slot + 1:02d}"}
        if fate < 0.04:
            length_s = 600
            how: dict[str, Any] = {"state": JobState.FAILED, "end": End.TIMED_OUT}
            how |= {"signal": 9, "error": "killed after 600 s"}
        elif fate < 0.08:
            length_s = 20
            how = {"state": JobState.FAILED, "end": End.EXIT, "exit_code": 134}
            how |= {"error": "Floating point exception in \x1b[31mmomentum\x1b[0m"}
        else:
            how = {"state": JobState.COMPLETED, "end": End.COMPLETED, "exit_code": 0}
        end_at = at + 0.3 + length_s
        times |= {"ended_at": end_at, "charged_node_h": length_s / 3600}
        self._note(end_at + 0.1, JobEnded(job=job, **how, **times))
        doubtful = how["state"] is JobState.COMPLETED and self._doubtful(plan, end_at + 0.2)
        if doubtful:
            pass
        elif how["state"] is JobState.COMPLETED:
            self._result(job, candidate, end_at + 0.2)
        else:
            what = str(how["end"])
            self._note(end_at + 0.2, FailureRecorded(kind="job", what=what, message=how["error"]))
        self.free[slot] = end_at
        if doubtful and plan.fingerprint in self.rerun:
            self._launch(decision, candidate, end_at + 0.3, attempt=attempt + 1, rerun=1)

    def _doubtful(self, plan: JobPlanned, at: float) -> bool:
        """Now and then, run a job again with a finer mesh, or ask a person about its result."""
        if plan.rerun or not self._turn("doubt", 6):
            return False
        what: dict[str, Any] = {"job": plan.job, "fingerprint": plan.fingerprint}
        what |= {"reasons": ("residual is 0.0031, must be below 0.002",)}
        what |= {"values": {"y": 12.5, "residual": 0.0031}}
        if self._turn("rerun", 2):
            self.rerun.add(plan.fingerprint)
            self._note(at, ResultRejected(**what, again=True))
            return True
        self._note(at, ResultParked(**what, expires_at=at + 7200))
        if self._turn("answer", 2):
            self._note(
                at + 90,
                ParkedResolved(what=plan.job, action="accept", by="ada", answered_at=at + 86),
            )
            self._result(plan.job, plan.candidate, at + 91)
        return True

    def _result(self, job: str, candidate: Any, at: float) -> None:
        fingerprint = self.spec.space.fingerprint(candidate)
        y = round(branin(candidate["x1"], candidate["x2"]), 6)
        if self.random.random() < 0.05:
            reasons = ("residual is 0.043, must be below 0.002",)
            rejected = ResultRejected(
                job=job, fingerprint=fingerprint, reasons=reasons, values={"residual": 0.043}
            )
            self._note(at, rejected)
        else:
            values = {"y": y, "residual": 1e-4}
            self._note(
                at,
                ResultAccepted(job=job, fingerprint=fingerprint, values=values, feasible=y < 20),
            )

    # --- the ledger

    def _note(self, at: float, event: Event) -> None:
        self.timeline.append((at, event))

    def _write(self) -> None:
        for at, event in sorted(self.timeline, key=lambda item: item[0]):
            entry = Entry(seq=len(self.entries), at_ns=int(at * 1e9), event=event)
            self.entries.append(entry)
        self.timeline = []


def night(
    *, seed: int = 1, decisions: int = 60, slots: int = 3, everything: bool = False
) -> list[Entry]:
    """Return the entries of a whole run."""
    return Night(seed=seed, decisions=decisions, slots=slots, everything=everything).entries


EVIL = (
    '<img src="x" onerror="window.pwned=1"></script><script>window.pwned=1</script>'
    "</style>\u202e\u200b\x1b[31m&quot;&#39;`${window.pwned=1}`\"'"
)
"""Text that tries to act on whatever shows it."""


def hostile() -> list[Entry]:
    """Return the entries of a small run in which every foreign text is `EVIL`."""
    script = Script().begin()
    one, other = {"decision": 1, "attempt": 1}, {"decision": 1, "attempt": 2}
    taken = chosen(x1=1.0, x2=2.0)
    script.add(
        ServerStarted(model=EVIL, elapsed_s=3),
        DecisionOpened(decision=1),
        AttemptStarted(**one),
        ProposalRejected(**one, stage="schema", reasons=(EVIL, EVIL * 50), value=EVIL * 50),
        AttemptStarted(**other),
        ProposalMade(
            **other,
            proposal={
                "rationale": EVIL,
                "candidates": [{"x1": EVIL, EVIL: 2.0}],
                EVIL: [EVIL],
                "__proto__": {"pwned": 1},
            },
            model=EVIL,
            response_id=EVIL,
        ),
        CheckJudged(**other, check="disc", passed=True, reasons=(EVIL,)),
        CheckJudged(
            **other,
            check="coarse",
            passed=True,
            verifier=True,
            observables=({EVIL: EVIL, "y": 1.0},),
        ),
        DecisionMade(decision=1, disposition="accepted", candidates=(taken,)),
        JobPlanned(
            job="d00001-1",
            decision=1,
            fingerprint=taken.fingerprint,
            candidate=taken.candidate,
            level="fine",
            reserved_node_h=0.1,
            walltime_s=600,
        ),
        JobEnded(
            job="d00001-1",
            state=JobState.FAILED,
            end=End.EXIT,
            exit_code=1,
            error=EVIL,
            host=EVIL,
            started_at=script.now_at,
            ended_at=script.now_at + 1,
        ),
        FailureRecorded(kind="job", what=EVIL, message=EVIL, decision=1, attempt=2),
        RunSuspended(reason=EVIL),
    )
    return script.entries
