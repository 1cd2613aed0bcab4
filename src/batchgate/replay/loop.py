"""The rules of the loop around decisions: launches, charges, results, and the end of the run."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..campaign import Campaign, unmet
from ..campaign.constraint import finite
from ..events import (
    CandidateHeld,
    JobEnded,
    JobPlanned,
    Plain,
    ResultAccepted,
    ResultRejected,
    RunResumed,
    RunStarted,
    RunStopped,
    SurrogateAsked,
)
from ..job import End, JobState
from ..plain import loads, restore
from ..runner import Stop, stop_rule
from ..runner.ends import runs_again, state_of
from ..runner.launch import MAX_RESULT_BYTES, Launcher
from ..runner.stopping import held_for
from ..state import State
from .gate import Listener, Measured
from .mismatch import Problems, differences

_BY_TENURE = {"billed_node_h", "lives"}
"""Rules that may also end a life ahead of time, because nothing more could end within it."""


def digest_of(spec: Plain) -> str:
    """SHA-256 of a stored campaign, as `CampaignSpec.digest` has it."""
    text = json.dumps(spec, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def started(event: RunStarted) -> Problems:
    """Judge the first event of a run by the campaign that it holds."""
    about, stop = event.spec.get("campaign", {}), event.spec.get("stop", {})
    for name, said, due in (
        ("digest", event.digest, digest_of(event.spec)),
        ("campaign", event.campaign, about.get("name")),
        ("seed", event.seed, about.get("seed")),
        ("granted_node_h", event.granted_node_h, stop.get("node_h")),
    ):
        if said != due:
            yield "campaign", f"{name} is {said!r}, its campaign has {due!r}"


def resumed(event: RunResumed, state: State) -> Problems:
    """Judge that a run went on with the campaign that it says."""
    due = state.digest if event.spec is None else digest_of(event.spec)
    if event.digest != due:
        yield "campaign", f"digest is {event.digest!r}, its campaign has {due!r}"


def asked(event: SurrogateAsked, state: State) -> Problems:
    """Judge a batch of the surrogate. Its candidates are not computed again."""
    if event.batch != state.batches:
        yield "loop", f"batch is {event.batch}, must be {state.batches}"
    known = sum(1 for _ in state.observations())
    if event.observations > known:
        yield "loop", f"it saw {event.observations} results where {known} were known"
    if event.candidates < 1:
        yield "loop", f"it gave {event.candidates} candidates"


def held(event: CandidateHeld, state: State) -> Problems:
    """Judge that a candidate was kept back."""
    if (event.decision, event.fingerprint) not in {(d, c.fingerprint) for d, c in state.ready}:
        yield "launch", f"{event.fingerprint} did not wait for a slot"


def planned(event: JobPlanned, state: State, campaign: Campaign, slots: int) -> Problems:
    """Judge a launch: whether anything more might be launched, and whether it is this job."""
    spec = campaign.spec
    if (stop := stop_rule(spec, state, now=state.updated_at)) is not None:
        yield "launch", f"the rule {stop.rule!r} held already: {stop.reason}"
    if len(state.running) >= slots:
        yield "launch", f"{len(state.running)} jobs were running on {slots} slots"
    at_work = [job.plan.fingerprint for job in (*state.running, *state.unjudged)]
    begun = state.evaluated + sum(f not in state.audits for f in at_work)
    if spec.stop.jobs is not None and begun >= spec.stop.jobs:
        yield "launch", f"{begun} candidates were launched, stop.jobs is {spec.stop.jobs}"
    if not state.ready:
        yield "launch", "no candidate waited for a slot"
        return
    decision, chosen = state.ready[0]
    due = Launcher(campaign, Listener.over(state), Measured(), Path()).plan(decision, chosen)
    if due is None:
        yield "launch", f"only {state.free_node_h:.6g} node-hours were free"
        return
    for told in differences(event, due.job):
        yield "launch", told


def ended(event: JobEnded, state: State, campaign: Campaign, *, life_began_at: float) -> Problems:
    """Judge a job's end: its state, its charge, and whether it runs again."""
    level = campaign.spec.job
    found = event.state is JobState.COMPLETED
    if not found and event.state is not state_of(event.end):
        yield "job", f"state is {event.state} for the end {event.end}"
    charge = level.resources.nodes * max(0.0, event.ended_at - event.started_at) / 3600
    if event.charged_node_h != charge:
        yield "job", f"charged_node_h is {event.charged_node_h!r}, its times give {charge!r}"
    again = not found and _worth_another_run(event, state, campaign)
    if event.again != again:
        yield "job", f"again is {event.again}, must be {again}"
    adopted = found and state.jobs[event.job].planned_at < life_began_at
    if event.adopted != adopted:
        yield "job", f"adopted is {event.adopted}, must be {adopted}"
    if event.end is End.COMPLETED and (event.exit_code or event.signal):
        yield "job", f"it completed with exit code {event.exit_code}, signal {event.signal}"


def _worth_another_run(event: JobEnded, state: State, campaign: Campaign) -> bool:
    before = [job.end.end for job in state.runs[state.jobs[event.job].plan.fingerprint] if job.end]
    return runs_again(campaign.spec, event.end, before)


def accepted(
    event: ResultAccepted, state: State, campaign: Campaign, run_dir: Path | None
) -> Problems:
    """Judge a valid result by the constraints, and by its file where that is plain JSON."""
    yield from _awaited(event, state)
    for reason in () if _is_resolved(event.job, state) else _refusals(event.values, campaign):
        yield "result", f"it is accepted, though {reason}"
    feasible = not any(unmet(campaign.spec.constraints, event.values))
    if event.feasible != feasible:
        yield "result", f"feasible is {event.feasible}, must be {feasible}"
    filed = _filed(event.job, campaign, run_dir)
    if filed is not None and filed != dict(event.values):
        yield "result", f"its values are {dict(event.values)}, its file has {filed}"


def refused(event: ResultRejected, state: State, campaign: Campaign) -> Problems:
    """Judge a rejected result by its values, where there are any."""
    yield from _awaited(event, state)
    if _is_resolved(event.job, state):
        return
    again = state.jobs[event.job].plan.rerun < len(campaign.spec.job.again)
    if event.again != again:
        yield "result", f"again is {event.again}, must be {again}"
    values = restore(event.values)
    if not isinstance(values, Mapping) or not values:
        if not event.reasons:
            yield "result", "it is rejected without a reason"
        return
    due = _refusals(values, campaign)
    if event.reasons != due:
        yield "result", f"its reasons are {list(event.reasons)}, must be {list(due)}"


def _awaited(event: ResultAccepted | ResultRejected, state: State) -> Problems:
    if event.job not in {*state.parked, *(job.plan.job for job in state.unjudged)}:
        yield "result", f"no result of job {event.job} was waited for"


def _is_resolved(job: str, state: State) -> bool:
    """Whether a person, and not the rules, has judged a result."""
    return job in state.parked and state.parked[job].answer is not None


def _refusals(values: Mapping[str, Any], campaign: Campaign) -> tuple[str, ...]:
    spec = campaign.spec
    if reasons := tuple(unmet(spec.job.accept, values)):
        return reasons
    wanted = (spec.objective[0], *spec.constraints)
    return tuple(
        f"{name} is missing or not a finite number"
        for name in wanted
        if not finite(values.get(name))
    )


def _filed(job: str, campaign: Campaign, run_dir: Path | None) -> dict[str, float] | None:
    """Return the numbers in a job's result file; `None` where the file says nothing."""
    if run_dir is None or campaign.spec.job.parse is not None or Path(job).name != job:
        return None
    path = run_dir / "jobs" / job / "result.json"
    try:
        if path.is_symlink() or not path.is_file() or path.stat().st_size > MAX_RESULT_BYTES:
            return None
        found = loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(found, Mapping):
        return None
    return {str(name): float(value) for name, value in found.items() if finite(value)}


class Ending:
    """Follows what may end a life: rules that have held, and what was given up at the end."""

    def __init__(self) -> None:
        self._held: set[Stop] = set()
        self._causes: set[str] = set()
        self._kept_back: list[CandidateHeld] = []

    def see(self, state: State) -> None:
        """Look at the state after an event."""
        if state.spec is not None and (stop := stop_rule(state.spec, state, now=state.updated_at)):
            self._held.add(stop)

    def abandon(self, cause: str) -> None:
        """Remember why a decision was given up."""
        self._causes.add(cause)

    def keep_back(self, event: CandidateHeld) -> None:
        """Remember that a candidate was kept back."""
        self._kept_back.append(event)

    def suspended(self, state: State) -> Problems:
        """Judge that the run was told to stop."""
        # A job that was lost may be left as it is, for the next life to look at.
        waits = state.spec is not None and state.spec.failure.lost == "wait"
        if state.running and not waits:
            yield "stop", f"{len(state.running)} jobs were running still"

    def stopped(self, event: RunStopped, state: State, at: float) -> Problems:
        """Judge that the campaign is over."""
        if state.stopped is not None:
            yield "stop", "the campaign was over already"
        said = Stop(event.rule, event.reason, event.failed)
        held = said in self._held or said == _out_of_time(state, at)
        if not held and event.rule not in _BY_TENURE:
            yield "stop", f"the rule {event.rule!r} did not hold: {event.reason}"
        left = {
            "decisions are open": state.open,
            "candidates wait": state.ready,
            "jobs run": state.running,
            "results are not judged": state.unjudged,
        }
        for what, those in left.items():
            if those:
                yield "stop", f"{len(those)} {what} still"
        if self._causes - {event.rule}:
            yield "stop", f"decisions were abandoned for {sorted(self._causes)}, not {event.rule!r}"
        due = (held_for(event.rule), f"the campaign stopped: {event.reason}")
        for kept in self._kept_back:
            if (kept.cause, kept.reason) != due:
                yield "stop", f"{kept.fingerprint} was held for {kept.cause}: {kept.reason}"


def _out_of_time(state: State, at: float) -> Stop | None:
    assert state.spec is not None
    limit = state.spec.stop.wall_s
    if limit is None or state.wall_s + at - state.updated_at < limit:
        return None
    return Stop("wall_s", f"the run has taken {limit:g} s")
