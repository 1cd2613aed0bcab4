"""Real runs of small campaigns, with every turn that a decision can take, and forged copies."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from batchgate.answer import Answer
from batchgate.campaign import Campaign, Observation, Proposal
from batchgate.decision import Attempt, Rejected
from batchgate.errors import ProducerError
from batchgate.events import EVENT, Event
from batchgate.job import End, FunctionTask, JobSpec, TaskEnd
from batchgate.ledger import Ledger, read
from batchgate.ledger.line import encode
from batchgate.runner import Model, Recorder, Runner
from tests.campaigns import InlineFlow, campaign

Said = float | list[float] | tuple[float, ...] | Exception
"""One answer: a candidate, several, several samples of one, or what the producer raises."""

CODE = """
def low(candidate):
    if candidate["x"] < 0:
        yield f"x is {candidate['x']:g}, must be at least 0"


def odd(candidate):
    if 6 < candidate["x"] < 6.5:
        raise ZeroDivisionError("6 to 6.5 is not covered")


def mild(candidate):
    if candidate["x"] > 7:
        yield f"x is {candidate['x']:g}, 7 would be milder"


def cheap(candidate, shift=0.0):
    return {"y": (candidate["x"] - 3) ** 2 + shift}


def full(candidate):
    return {"y": (candidate["x"] - 3) ** 2, "residual": 0.5 if 5 < candidate["x"] < 5.5 else 0.1}
"""
TABLES: dict[str, Any] = {
    "check": [
        {"use": "campaign:low"},
        {"use": "campaign:odd"},
        {"use": "campaign:mild", "hard": False},
    ],
    "constraints": {"y": ["LESS_THAN", 20]},
    "level": [
        {
            "name": "cheap",
            "use": "campaign:cheap",
            "timeout_s": 5,
            "accept": {"y": ["LESS_THAN", 30]},
        },
        {
            "name": "full",
            "use": "campaign:full",
            "timeout_s": 36,
            "accept": {"residual": ["LESS_THAN", 0.3]},
        },
    ],
}


class Script:
    """A producer that answers by script, then at random."""

    name = "script"

    def __init__(self, loaded: Campaign, answers: Iterable[Said], *, seed: int = 0) -> None:
        self.loaded = loaded
        self.answers = list(answers)
        self.random = random.Random(seed)

    async def propose(
        self,
        *,
        decision: int,
        results: Sequence[Observation],
        previous: Sequence[Attempt[Any]],
        **more: Any,
    ) -> Answer:
        await asyncio.sleep(0)
        said = self.answers.pop(0) if self.answers else self.random.uniform(-10, 10)
        if isinstance(said, Exception):
            raise said
        samples = said if isinstance(said, tuple) else (said,)
        first, *others = map(self._proposal, samples)
        return Answer(first, others=tuple(others), response_id="r1")

    def _proposal(self, said: float | list[float]) -> Proposal:
        model = self.loaded.candidate_model
        points = said if isinstance(said, list) else [said]
        return Proposal(candidates=[model(x=x) for x in points])

    async def aclose(self) -> None:
        pass


EVERY_TURN: tuple[Said, ...] = (
    -4.0,  # the domain check refuses it
    4.0,
    Rejected("it is no JSON", check="schema", value="{"),
    9.5,  # the verifier refuses it
    [8.0, 2.0],
    5.2,  # its result is rejected
    6.2,  # a check breaks
    ProducerError("no answer", "timeout"),
    4.0,  # a duplicate
    7.9,  # infeasible
    (-1.0, 9.0, 1.5),  # samples: a check refuses the first, the verifier the second
)


async def record(
    folder: Path,
    answers: Iterable[Said] = EVERY_TURN,
    *,
    seed: int = 0,
    slots: int = 2,
    flow: Callable[[], InlineFlow] = InlineFlow,
    code: str = CODE,
    suspend_after: int | None = None,
    **tables: Any,
) -> Campaign:
    """Run a campaign in `folder/run`; its code is in `folder/campaign`.

    Args:
        folder: Where.
        answers: What the producer says first; at random afterwards.
        seed: Of the random answers.
        slots: Jobs at once.
        flow: Makes the execution side.
        code: The campaign's code.
        suspend_after: Events after which the first life is suspended; a second one goes on.
        tables: Tables of the campaign that differ from `TABLES`.
    """
    loaded = campaign(folder / "campaign", code=code, **{**TABLES, "stop": {"jobs": 6}, **tables})
    run_dir = folder / "run"
    run_dir.mkdir()
    script = Script(loaded, answers, seed=seed)
    for life in range(1 if suspend_after is None else 2):
        with Ledger.open(run_dir / "ledger", run="square-1") as ledger:
            recorder = Recorder.of(ledger)
            runner = Runner(
                loaded,
                recorder,
                flow(),
                run_dir,
                slots=slots,
                model=Model("script", producer=script),
            )
            if suspend_after is not None and life == 0:
                await _suspended(runner, suspend_after)
            else:
                await runner.run()
    return loaded


async def _suspended(runner: Runner, after: int) -> None:
    task = asyncio.create_task(runner.run())
    folder = runner.recorder.ledger.folder
    while not task.done() and sum(1 for _ in read(folder, verify=False)) < after:
        await asyncio.sleep(0)
    runner.suspend("SIGTERM")
    await task


class Flaky(InlineFlow):
    """Every third job crashes, every fifth verifier task breaks once."""

    def __init__(self) -> None:
        super().__init__(ends=self._fault)
        self.seen = 0

    def _fault(self, task: FunctionTask | JobSpec) -> TaskEnd | None:
        self.seen += 1
        if isinstance(task, JobSpec):
            if self.seen % 3:
                return None
            return TaskEnd(End.EXIT, exit_code=3, error="boom", started_at=10.0, ended_at=20.0)
        return TaskEnd(End.WORKER_LOST, error="gone") if self.seen % 5 == 0 else None


def events_of(run_dir: Path) -> list[Event]:
    """Return all events of a run."""
    return [entry.event for entry in read(run_dir / "ledger")]


def forge(run_dir: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change a run's first segment as a forger does who knows how lines are hashed.

    Hashes, places and the `gate.json` of every job are made to fit. What the change made of an
    event must be one.

    Raises:
        ValueError: It is none.
    """
    (path,) = (run_dir / "ledger").glob("*.jsonl")
    entries = list(read(run_dir / "ledger"))
    at_ns = [entry.at_ns for entry in entries]
    raw = [EVENT.dump_python(entry.event, mode="json") for entry in entries]
    change(raw)
    previous, lines = b"", []
    for seq, fields in enumerate(raw):
        event = EVENT.validate_json(json.dumps(fields))
        line = encode(event, seq=seq, at_ns=at_ns[min(seq, len(at_ns) - 1)], previous=previous)
        previous = line[-67:-3]
        lines.append(line)
        if fields["type"] == "job_planned":
            _regate(run_dir / "jobs" / fields["job"] / "gate.json", path.name, seq, previous)
    path.write_bytes(b"".join(lines))


def _regate(gate: Path, segment: str, seq: int, hash_: bytes) -> None:
    if gate.exists():
        gate.write_text(json.dumps({"segment": segment, "seq": seq, "hash": hash_.decode()}))


Place = tuple[str | int, ...]
"""Place of a leaf in an event."""


def leaves(value: Any, at: Place = ()) -> Iterator[Place]:
    """Yield the place of every leaf of an event, its type left out."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            if (*at, key) != ("type",):
                yield from leaves(item, (*at, key))
    elif isinstance(value, list) and value:
        for place, item in enumerate(value):
            yield from leaves(item, (*at, place))
    else:
        yield at


def edited(fields: dict[str, Any], at: Place) -> None:
    """Change one leaf to another value of its kind."""
    *parents, last = at
    here: Any = fields
    for part in parents:
        here = here[part]
    match here[last]:
        case bool() as said:
            here[last] = not said
        case int() | float() as number:
            here[last] = number + 1
        case str() as text:
            here[last] = f"{text}x"
        case None:
            here[last] = 1
        case _:  # an empty list or mapping
            here[last] = ["x"] if here[last] == [] else {"x": "1"}
