"""`batchgate parked`: what a run asks a person, and the answers."""

from __future__ import annotations

import getpass
import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from ..campaign import CampaignSpec
from ..errors import ConfigError
from ..events import CheckJudged, DecisionParked, Entry
from ..ledger import read
from ..parking import Answered, post, posted
from ..plain import loads
from ..review import text
from ..state import Parked, State
from . import exits
from .lines import values, visible
from .runs import run_argument, run_folder


@dataclass(frozen=True, slots=True)
class Desk:
    """A run as the one who answers sees it.

    Attributes:
        folder: The run's directory.
        state: The fold of its ledger.
        scores: Each decision's last score, by its number.
    """

    folder: Path
    state: State
    scores: Mapping[int, float]

    @classmethod
    def of(cls, folder: Path) -> Desk:
        """Read a run."""
        state, scores = State(), dict[int, float]()
        for entry in read(folder / "ledger"):
            state.apply(entry.event, at=entry.at)
            scores.update(_scores(entry))
        return cls(folder, state, scores)

    @property
    def spec(self) -> CampaignSpec:
        """The campaign."""
        assert self.state.spec is not None  # nothing is parked before the run started
        return self.state.spec

    def find(self, name: str) -> Parked:
        """Return what is parked under a name.

        Raises:
            ConfigError: Nothing is.
        """
        found = self.state.parked.get(name)
        if found is None:
            waiting = ", ".join(self.state.parked) or "nothing"
            raise ConfigError(f"{visible(name)} is not parked; parked now: {waiting}")
        return found

    def told(self, name: str, parked: Parked) -> dict[str, Any]:
        """Return something parked as plain data."""
        event = parked.event
        return {
            "name": name,
            "parked_at": parked.at,
            "expires_at": event.expires_at,
            "answer": self._answer(parked),
            **(self._decision(event) if isinstance(event, DecisionParked) else self._result(name)),
        }

    def _answer(self, parked: Parked) -> dict[str, Any] | None:
        answer = posted(self.folder, parked.key)
        return answer.model_dump() if answer else None

    def _decision(self, event: DecisionParked) -> dict[str, Any]:
        attempts = self.state.decisions[event.decision].attempts
        return {
            "artifact": attempts[-1].proposal if attempts else None,
            "criteria": [*(check.name or check.use for check in self.spec.check)]
            + [level.name for level in self.spec.verifiers],
            "score": self.scores.get(event.decision),
            "reasons": list(attempts[-1].reasons) if attempts else [],
            "attempts": [
                {
                    "proposal": past.proposal,
                    "rejected_by": past.rejected_by,
                    "reasons": list(past.reasons),
                }
                for past in attempts
            ],
        }

    def _result(self, name: str) -> dict[str, Any]:
        event, job = self.state.parked[name].event, self.state.jobs[name]
        assert not isinstance(event, DecisionParked)
        return {
            "artifact": event.values,
            "criteria": [f"{n} {b.to_list()}" for n, b in self.spec.job.accept.items()],
            "score": None,
            "reasons": list(event.reasons),
            "attempts": [{"candidate": dict(job.plan.candidate), "rerun": job.plan.rerun}],
        }


def _scores(entry: Entry) -> Iterator[tuple[int, float]]:
    event = entry.event
    if isinstance(event, CheckJudged) and event.score is not None:
        yield event.decision, event.score


@click.group(invoke_without_command=True)
@run_argument
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
@exits.reported
def parked(context: click.Context, run: Path, *, as_json: bool) -> None:
    """List what RUN has parked for a person, or answer it.

    The runner that is alive, or the next one, does as told; the first answer counts.
    """
    context.obj = desk = Desk.of(run_folder(run))
    if context.invoked_subcommand is not None:
        return
    found = [desk.told(name, waiting) for name, waiting in desk.state.parked.items()]
    if as_json:
        click.echo(json.dumps(found, indent=2))
        return
    for one in found:
        answer = f"answered: {one['answer']['action']}" if one["answer"] else "waits"
        why = visible("; ".join(one["reasons"]))
        click.echo(f"{one['name']}  {answer}  until {text.instant(one['expires_at'])}  {why}")
    click.echo("" if found else "nothing is parked", nl=not found)


@parked.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_obj
@exits.reported
def show(desk: Desk, name: str, *, as_json: bool) -> None:
    """Show NAME: what was proposed, what it was judged by, and why it was rejected."""
    told = desk.told(name, desk.find(name))
    if as_json:
        click.echo(json.dumps(told, indent=2))
        return
    click.echo(f"{name} waits until {text.instant(told['expires_at'])}")
    click.echo(f"criteria: {', '.join(told['criteria']) or 'none'}")
    if told["score"] is not None:
        click.echo(f"score: {told['score']:.6g}")
    for number, attempt in enumerate(told["attempts"], start=1):
        click.echo(f"attempt {number}:")
        for key, value in attempt.items():
            click.echo(f"  {key}: {visible(json.dumps(value))}")
    click.echo(f"artifact: {visible(json.dumps(told['artifact']))}")
    for reason in told["reasons"]:
        click.echo(f"rejected: {visible(reason)}")


reason_option = click.option("--reason", default="", help="Why, for the record.")


@parked.command()
@click.argument("name")
@reason_option
@click.pass_obj
@exits.reported
def accept(desk: Desk, name: str, *, reason: str) -> None:
    """Let NAME pass as it is: a decision's last proposal is launched, a result is learned."""
    waiting = desk.find(name)
    if isinstance(waiting.event, DecisionParked):
        attempts = desk.state.decisions[waiting.event.decision].attempts
        candidates = next(filter(None, (_points(p.proposal) for p in reversed(attempts))), [])
        _require_inside(desk.spec, candidates, hint=f"`edit {name}` gives one that can")
    _answer(desk, name, "accept", reason=reason)


@parked.command()
@click.argument("name")
@click.option("--reason", required=True, help="Why, for the record.")
@click.pass_obj
@exits.reported
def reject(desk: Desk, name: str, *, reason: str) -> None:
    """Refuse NAME: nothing of the decision is launched, the result stays rejected."""
    _answer(desk, name, "reject", reason=reason)


@parked.command()
@click.argument("name")
@click.option(
    "--candidate", "candidates", multiple=True, required=True, help="As JSON; once for each."
)
@reason_option
@click.pass_obj
@exits.reported
def edit(desk: Desk, name: str, *, candidates: tuple[str, ...], reason: str) -> None:
    """Put another proposal in NAME's place. It meets every check, as a model's does."""
    if not isinstance(desk.find(name).event, DecisionParked):
        raise ConfigError(f"{name} is a result: it can be accepted or rejected, not edited")
    points = [_candidate(candidate) for candidate in candidates]
    _require_inside(desk.spec, points, hint="mend it")
    _answer(desk, name, "edit", reason=reason, value={"candidates": points})


def _answer(desk: Desk, name: str, action: Any, *, reason: str, value: Any = None) -> None:
    answer = Answered(
        action=action, by=getpass.getuser(), at=time.time(), reason=reason[:2000], value=value
    )
    post(desk.folder, desk.find(name).key, answer)
    click.echo(f"{name}: {action}; the runner takes it up within seconds, or the next one does")


def _candidate(given: str) -> Mapping[str, Any]:
    try:
        found = loads(given)
    except ValueError as exc:
        raise ConfigError(f"{visible(given)} is no JSON: {exc}") from exc
    if not isinstance(found, Mapping):
        raise ConfigError(f"{visible(given)} is no candidate: give an object with the variables")
    return found


def _points(proposal: Any) -> list[Any]:
    found = proposal.get("candidates", []) if isinstance(proposal, Mapping) else []
    return list(found) if isinstance(found, list) else []


def _require_inside(spec: CampaignSpec, points: list[Any], *, hint: str) -> None:
    if not points:
        raise ConfigError(f"there is no proposal that could be launched; {hint}")
    for point in points:
        if not isinstance(point, Mapping) or any(spec.space.problems(point)):
            said = "; ".join(spec.space.problems(point)) if isinstance(point, Mapping) else "no map"
            told = visible(values(point) if isinstance(point, Mapping) else str(point))
            raise ConfigError(f"{told} cannot be launched: {visible(said)}; {hint}")
