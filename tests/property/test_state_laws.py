"""Laws of the fold, on runs that any sequence of legal steps makes, and of what it is used for."""

from __future__ import annotations

import asyncio
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchgate.campaign import Campaign, CampaignSpec
from batchgate.events import (
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    Chosen,
    DecisionMade,
    DecisionOpened,
    Entry,
    Event,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultRejected,
    RunResumed,
    RunStarted,
    RunStopped,
    RunSuspended,
    SegmentClosed,
    SegmentOpened,
    SurrogateAsked,
)
from batchgate.job import End, JobState, TaskEnd
from batchgate.ledger import Appended, Ledger, check_run, read
from batchgate.runner import Recorder
from batchgate.runner.launch import Launcher
from batchgate.state import State
from tests import campaigns

SPEC = CampaignSpec.model_validate(campaigns.spec(stop={"node_h": 3.0, "jobs": 50}))
ATTEMPTS = 3


class LegalRun:
    """A run that grows by any step that a runner could take next.

    Attributes:
        events: What happened, without the openings of segments.
    """

    def __init__(self) -> None:
        self.events: list[Event] = [
            RunStarted(
                campaign="square",
                digest=SPEC.digest,
                spec=SPEC.model_dump(mode="json"),
                version="0.1.0",
                seed=0,
                granted_node_h=SPEC.stop.node_h,
            )
        ]
        self.candidates = self.batches = 0
        self.phase: dict[int, str] = {}  # of each open decision
        self.spent: dict[int, int] = {}
        self.waiting: dict[str, tuple[int, Chosen]] = {}
        self.runs: dict[str, int] = {}
        self.running: dict[str, JobPlanned] = {}
        self.unjudged: dict[str, JobPlanned] = {}

    def step(self, choice: int) -> None:
        """Take one of the steps that are possible now."""
        steps = list(self._steps())
        steps[choice % len(steps)]()

    def _steps(self) -> Any:
        yield from (self._kill, self._suspend, self._stop)
        if len(self.phase) < 4:
            yield from (lambda s=s: self._open(s) for s in ("producer", "surrogate"))
        for number, phase in self.phase.items():
            yield from (lambda f=f, n=number: f(n) for f in self._next(number, phase))
        for fingerprint in self.waiting:
            yield lambda f=fingerprint: self._plan(f)
        for job in self.running:
            for state, again in (
                (JobState.COMPLETED, False),
                (JobState.FAILED, False),
                (JobState.LOST, True),
            ):
                yield lambda j=job, s=state, a=again: self._end(j, s, again=a)
        for job in self.unjudged:
            yield from (lambda j=job, ok=ok: self._judge(j, ok=ok) for ok in (True, False))

    def _next(self, number: int, phase: str) -> list[Callable[[int], None]]:
        match phase:
            case "asked":
                return [self._propose, self._reject]
            case "proposed":
                return [self._refuse, self._accept, self._fail]
            case "free" if self.spent[number] < ATTEMPTS:
                return [self._ask, self._fall_back]
            case _:
                return [self._fall_back, self._fail]

    def _say(self, *events: Event) -> None:
        self.events += events

    def _kill(self) -> None:
        self._say(RunResumed(version="0.1.0"))
        for number in self.phase:
            self.phase[number] = "free" if self.phase[number] != "surrogate" else "surrogate"

    def _suspend(self) -> None:
        self._say(RunSuspended(reason="SIGTERM"))
        self._kill()

    def _stop(self) -> None:
        for fingerprint, (number, _) in self.waiting.items():
            held = CandidateHeld(
                decision=number, fingerprint=fingerprint, cause="jobs", reason="the end"
            )
            self._say(held)
        self.waiting = {}
        self._say(RunStopped(rule="jobs", reason="enough"))
        self._kill()

    def _open(self, source: Any) -> None:
        number = len(self.spent) + 1
        self.phase[number] = "free" if source == "producer" else "surrogate"
        self.spent[number] = 0
        self._say(DecisionOpened(decision=number, source=source))

    def _ask(self, number: int) -> None:
        self.spent[number] += 1
        self.phase[number] = "asked"
        self._say(AttemptStarted(decision=number, attempt=self.spent[number]))

    def _propose(self, number: int) -> None:
        self.phase[number] = "proposed"
        self.candidates += 1
        proposal = {"candidates": [{"x": self.candidates / 64}]}
        self._say(ProposalMade(decision=number, attempt=self.spent[number], proposal=proposal))

    def _reject(self, number: int) -> None:
        self.phase[number] = "free"
        self._say(
            ProposalRejected(
                decision=number, attempt=self.spent[number], stage="schema", reasons=("no JSON",)
            )
        )

    def _refuse(self, number: int) -> None:
        self.phase[number] = "free"
        self._say(
            CheckJudged(
                decision=number,
                attempt=self.spent[number],
                check="cheap",
                passed=False,
                verifier=True,
                reasons=("y is too high",),
                refused=(SPEC.space.fingerprint({"x": self.candidates / 64}),),
                node_h=0.5,
            )
        )

    def _accept(self, number: int) -> None:
        self._close(number, "accepted")

    def _fall_back(self, number: int) -> None:
        self._say(SurrogateAsked(batch=self.batches, observations=0, candidates=1, elapsed_s=0.1))
        self.batches += 1
        self._close(number, "fallback")

    def _fail(self, number: int) -> None:
        self._say(FailureRecorded(kind="verifier", what="timeout", message="late"))
        self._close(number, "failed")

    def _close(self, number: int, disposition: Any) -> None:
        del self.phase[number]
        candidates: tuple[Chosen, ...] = ()
        if disposition != "failed":
            self.candidates += 1
            candidate = {"x": self.candidates / 64}
            fingerprint = SPEC.space.fingerprint(candidate)
            candidates = (Chosen(fingerprint=fingerprint, candidate=candidate),)
            self.waiting[fingerprint] = (number, candidates[0])
        self._say(DecisionMade(decision=number, disposition=disposition, candidates=candidates))

    def _plan(self, fingerprint: str) -> None:
        number, chosen = self.waiting.pop(fingerprint)
        attempt = self.runs[fingerprint] = self.runs.get(fingerprint, 0) + 1
        planned = JobPlanned(
            job=f"{fingerprint}-{attempt}",
            decision=number,
            fingerprint=fingerprint,
            candidate=chosen.candidate,
            level="full",
            attempt=attempt,
            reserved_node_h=0.25,
            walltime_s=900,
        )
        self.running[planned.job] = planned
        self._say(planned)

    def _end(self, job: str, state: JobState, *, again: bool) -> None:
        plan = self.running.pop(job)
        self._say(
            JobEnded(job=job, state=state, end=End.COMPLETED, charged_node_h=0.125, again=again)
        )
        if state is JobState.COMPLETED:
            self.unjudged[job] = plan
        elif again:
            chosen = Chosen(fingerprint=plan.fingerprint, candidate=plan.candidate)
            self.waiting[plan.fingerprint] = (plan.decision, chosen)

    def _judge(self, job: str, *, ok: bool) -> None:
        plan = self.unjudged.pop(job)
        if ok:
            y = (float(plan.candidate["x"]) - 0.3) ** 2
            self._say(
                ResultAccepted(
                    job=job, fingerprint=plan.fingerprint, values={"y": y}, feasible=y > 0.01
                )
            )
        else:
            self._say(
                ResultRejected(job=job, fingerprint=plan.fingerprint, reasons=("not finite",))
            )


def grown(choices: list[int]) -> LegalRun:
    run = LegalRun()
    for choice in choices:
        run.step(choice)
    return run


def timed(events: list[Event]) -> list[Entry]:
    """Give events a place and a time; each resumption is a new segment."""
    found: list[Event] = [SegmentOpened(run="square-1", segment=1, host="h", pid=1)]
    for event in events:
        if isinstance(event, RunResumed):
            segment = sum(isinstance(e, SegmentOpened) for e in found) + 1
            found.append(SegmentOpened(run="square-1", segment=segment, host="h", pid=1))
        found.append(event)
    return [Entry(seq=i, at_ns=i * 10**9, event=e) for i, e in enumerate(found)]


RUNS = st.lists(st.integers(0, 2**16), max_size=80).map(grown)


@settings(deadline=None)
@given(RUNS, st.integers(0, 200))
def test_folding_the_rest_onto_a_prefix_is_folding_the_whole(run: LegalRun, cut: int) -> None:
    entries = timed(run.events)

    state = State.of(entries[:cut])
    for entry in entries[cut:]:
        state.apply(entry.event, at=entry.at)

    assert state == State.of(entries)


@settings(deadline=None, max_examples=25)
@given(RUNS)
def test_what_a_ledger_gives_back_folds_to_what_was_known_when_it_was_written(
    run: LegalRun,
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        live, position, ledger = State(), 0, Path(folder) / "ledger"
        while position < len(run.events):
            with Ledger.open(ledger, run="square-1", sync=lambda fd: None) as open_ledger:
                recorder = Recorder.of(open_ledger)
                assert _without_life(recorder.state) == _without_life(live)
                for event in _one_life(run.events[position:]):
                    recorder.record(event)
                    position += 1
                live = recorder.state

        replayed = State.of(e for e in read(ledger) if not isinstance(e.event, SegmentClosed))

        assert _without_life(replayed) == _without_life(live)
        assert check_run(Path(folder)) == []


def _one_life(events: list[Event]) -> list[Event]:
    """Return the events up to the next resumption."""
    later = [i for i, e in enumerate(events) if isinstance(e, RunResumed) and i > 0]
    return events[: later[0]] if later else events


def _without_life(state: State) -> dict[str, Any]:
    """Return all of a state but its run and its clock."""
    clocks = {"run", "lives", "life_s", "updated_at", "last_life_ended_at", "_life_began_at"}
    clocks |= {"earlier", "_life", "_billed_to", "_billed_node_h"}
    return {n: getattr(state, n) for n in State.__dataclass_fields__ if n not in clocks}


@settings(deadline=None)
@given(RUNS)
def test_at_every_event_what_is_reserved_and_charged_is_what_jobs_reserved_and_charged(
    run: LegalRun,
) -> None:
    state, reserved, charged = State(), dict[str, float](), 0.0
    for entry in timed(run.events):
        match entry.event:
            case JobPlanned() as planned:
                reserved[planned.job] = planned.reserved_node_h
            case JobEnded() as ended:
                del reserved[ended.job]
                charged += ended.charged_node_h
            case _:
                pass

        state.apply(entry.event, at=entry.at)

        assert (state.reserved_node_h, state.charged_node_h) == (sum(reserved.values()), charged)
        assert state.free_node_h == state.granted_node_h - charged - sum(reserved.values())


@settings(deadline=None)
@given(RUNS)
def test_every_candidate_that_was_let_through_is_in_one_place(run: LegalRun) -> None:
    state = State.of(timed(run.events))

    assert {c.fingerprint for _, c in state.ready} == set(run.waiting)
    assert {job.plan.job for job in state.running} == set(run.running)
    assert {job.plan.job for job in state.unjudged} == set(run.unjudged)
    where = [known.where for known in state.known.values()]
    assert where.count("chosen") == len(run.waiting)
    assert where.count("running") == len(run.running) + len(run.unjudged)
    assert where.count("finished") == len(state.results)
    assert where.count("finished") + where.count("failed") == state.evaluated
    assert len(list(state.observations())) == state.evaluated


@settings(deadline=None)
@given(RUNS)
def test_a_resumption_gives_no_attempt_back_and_changes_no_candidate(run: LegalRun) -> None:
    before = State.of(timed(run.events))

    resumed = State.of(timed([*run.events, RunResumed(version="0.1.0")]))

    assert {d.number: d.spent for d in resumed.decisions.values()} == run.spent
    assert all(past.rejected_by for d in resumed.open for past in d.attempts)
    for same in ("ready", "running", "unjudged", "known", "jobs", "results", "best", "failures"):
        assert getattr(resumed, same) == getattr(before, same), same


@settings(deadline=None)
@given(RUNS)
def test_to_be_resumed_twice_is_to_be_resumed_once(run: LegalRun) -> None:
    resumption = RunResumed(version="0.1.0")

    once = State.of(timed([*run.events, resumption]))
    twice = State.of(timed([*run.events, resumption, resumption]))

    assert twice.lives == once.lives + 1
    assert _without_life(twice) == _without_life(once)


@settings(deadline=None)
@given(RUNS)
def test_the_best_result_is_the_best_of_all_feasible_ones(run: LegalRun) -> None:
    state = State.of(timed(run.events))

    values = {name: state.jobs[name] for name in state.results}
    feasible = {n: (j.values or {})["y"] for n, j in values.items() if j.feasible}

    assert state.best == (min(feasible, key=feasible.__getitem__) if feasible else None)


class NoLedger:
    """Takes every event and keeps none."""

    def append(self, event: Event) -> Appended:
        return Appended(Entry(seq=0, at_ns=0, event=event), hash="", segment="")


@pytest.mark.parametrize("block", range(10))
def test_no_interleaving_of_64_decisions_overshoots_the_grant(block: int, tmp_path: Path) -> None:
    campaign = campaigns.campaign(tmp_path / "c")

    for seed in range(100 * block, 100 * (block + 1)):
        asyncio.run(_interleave(random.Random(seed), campaign, tmp_path))


async def _interleave(rng: random.Random, campaign: Campaign, folder: Path) -> None:
    """Let 64 decisions plan and settle in a random order, a step each time one gets its turn."""
    granted_node_h = campaign.spec.job.node_h * rng.uniform(1, 20)
    state = State(spec=campaign.spec, granted_node_h=granted_node_h)
    recorder = Recorder(cast(Ledger, NoLedger()), state)
    launcher = Launcher(campaign, recorder, cast(Any, None), folder)
    planned = 0

    async def decide(number: int) -> None:
        nonlocal planned
        chosen = Chosen(
            fingerprint=campaign.space.fingerprint({"x": number / 8}), candidate={"x": number / 8}
        )
        await _turns(rng)
        while (plan := launcher.plan(number, chosen)) is None:
            if not state.running:
                return  # the grant is used up
            await asyncio.sleep(0)
        planned += 1
        assert state.charged_node_h + state.reserved_node_h <= state.granted_node_h + 1e-9
        await _turns(rng)
        used_s = rng.choice((36.0, rng.uniform(0, 36)))
        launcher.settle(plan.job, TaskEnd(End.EXIT, started_at=1.0, ended_at=1.0 + used_s))
        assert state.charged_node_h + state.reserved_node_h <= state.granted_node_h + 1e-9

    await asyncio.gather(*(decide(number) for number in range(1, 65)))

    assert planned >= 1
    assert state.running == []


async def _turns(rng: random.Random) -> None:
    for _ in range(rng.randrange(6)):
        await asyncio.sleep(0)
