"""Park and resolve: a person decides, or nobody does and the fallback takes over."""

from __future__ import annotations

import asyncio
import json
import math
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from batchgate.answer import Answer
from batchgate.campaign import Campaign, Proposal
from batchgate.cli import main
from batchgate.decision import Rejected
from batchgate.errors import ConfigError
from batchgate.events import (
    DecisionMade,
    DecisionParked,
    Event,
    FailureRecorded,
    JobPlanned,
    ParkedResolved,
    ProposalMade,
    ResultAccepted,
    ResultParked,
    ResultRejected,
    RunStopped,
)
from batchgate.ledger import Ledger, check_run, read
from batchgate.parking import Answered, post, posted
from batchgate.runner import Model, Recorder, Runner, Stop, Tenure
from batchgate.slurm import Allocation
from tests.campaigns import CODE, InlineFlow, campaign, spec


class Stubborn:
    """A producer that proposes the same, over and over, and after `asks` times says nothing."""

    name = "stubborn"

    def __init__(self, x: float | None, asks: float) -> None:
        self.x, self.asks = x, asks
        self.campaign: Campaign | None = None

    async def propose(self, **_: Any) -> Answer:
        assert self.campaign is not None
        self.asks -= 1
        if self.asks < 0:
            await asyncio.Event().wait()
        if self.x is None:
            raise Rejected("no JSON")
        return Answer(Proposal(candidates=[self.campaign.candidate_model(x=self.x)]))

    async def aclose(self) -> None:
        pass


class Night:
    """A run that can be watched, answered and taken up again."""

    def __init__(self, folder: Path, loaded: Campaign, producer: Stubborn) -> None:
        self.folder, self.campaign, self.producer = folder, loaded, producer
        self.producer.campaign = loaded

    async def run(self, *, until: type[Event] | None = None, **more: Any) -> Stop | None:
        """Run to the end, or suspend the run at the first event of a kind."""
        with Ledger.open(self.folder / "ledger", run="square-1") as ledger:
            recorder = Recorder.of(ledger)
            model = Model("stubborn", producer=self.producer)
            runner = Runner(self.campaign, recorder, InlineFlow(), self.folder, model=model, **more)
            task = asyncio.create_task(runner.run())
            while until and not task.done() and not self.of(until):
                await asyncio.sleep(0.01)
            if until:
                runner.suspend("seen")
            return await asyncio.wait_for(task, 30)

    def of(self, kind: type[Any]) -> list[Any]:
        found = (entry.event for entry in read(self.folder / "ledger"))
        return [event for event in found if isinstance(event, kind)]

    def says(self, *words: str) -> Result:
        return CliRunner().invoke(main, ["parked", str(self.folder), *words])


def night(
    folder: Path,
    *,
    x: float | None = -1.0,
    asks: float = math.inf,
    code: str = CODE,
    **tables: Any,
) -> Night:
    tables = {
        "park": {"decisions": True},
        "stop": {"jobs": 1},
        "producer": {"attempts": 2, "decisions": 1},
        **tables,
    }
    loaded = campaign(folder / "campaign", code=code, **tables)
    return Night(folder, loaded, Stubborn(x, asks))


async def test_a_decision_out_of_attempts_waits_for_a_person(tmp_path: Path) -> None:
    run = night(tmp_path)

    await run.run(until=DecisionParked)

    parked = run.of(DecisionParked)[0]  # others may be parked before the run is suspended
    assert parked.decision == 1
    assert parked.expires_at == pytest.approx(time.time() + 8 * 3600, abs=60)
    assert [made for made in run.of(DecisionMade) if made.decision == 1] == []
    assert "D1  waits" in run.says().output
    assert check_run(tmp_path) == []


async def test_what_is_parked_is_shown_with_all_that_a_person_needs(tmp_path: Path) -> None:
    run = night(tmp_path)
    await run.run(until=DecisionParked)

    told = json.loads(run.says("show", "D1", "--json").output)

    assert told["artifact"]["candidates"] == [{"x": -1.0}]
    assert told["criteria"] == ["campaign:low", "cheap"]
    assert told["reasons"] == ["x is -1, must be at least 0"]
    assert [a["rejected_by"] for a in told["attempts"]] == ["low", "low"]
    assert "rejected: x is -1, must be at least 0" in run.says("show", "D1").output


async def test_an_accepted_decision_is_launched_by_the_next_runner(tmp_path: Path) -> None:
    run = night(tmp_path, asks=2)
    await run.run(until=DecisionParked)
    answered = run.says("accept", "D1", "--reason", "seen worse")
    assert answered.exit_code == 0, answered.output

    stop = await run.run()

    assert stop is not None
    assert stop.rule == "jobs"
    resolved = run.of(ParkedResolved)[0]
    assert (resolved.what, resolved.action, resolved.reason) == ("D1", "accept", "seen worse")
    assert resolved.by
    assert resolved.answered_at == pytest.approx(time.time(), abs=60)
    made = run.of(DecisionMade)[0]
    assert (made.decision, made.disposition, made.cause) == (1, "accepted", "person")
    assert run.of(JobPlanned)[0].candidate == {"x": -1.0}
    assert check_run(tmp_path) == []


async def test_the_runner_that_is_alive_takes_the_answer_up(tmp_path: Path) -> None:
    run = night(tmp_path, asks=2)
    task = asyncio.create_task(run.run())
    while not run.folder.joinpath("ledger").exists() or not run.of(DecisionParked):
        await asyncio.sleep(0.01)

    await asyncio.to_thread(run.says, "accept", "D1")

    stop = await task
    assert stop is not None
    assert stop.rule == "jobs"
    assert run.of(JobPlanned)[0].decision == 1


async def test_a_refused_decision_launches_nothing(tmp_path: Path) -> None:
    run = night(tmp_path, asks=2, stop={"jobs": 5, "rejected": 1})
    await run.run(until=DecisionParked)
    run.says("reject", "D1", "--reason", "no")

    stop = await run.run()

    assert stop is not None
    assert stop.rule == "rejected"
    made = run.of(DecisionMade)[0]
    assert (made.disposition, made.cause) == ("refused", "person")
    assert run.of(JobPlanned) == []


async def test_an_edited_proposal_meets_the_checks_and_may_be_parked_again(
    tmp_path: Path,
) -> None:
    run = night(tmp_path, asks=2)
    await run.run(until=DecisionParked)
    run.says("edit", "D1", "--candidate", '{"x": -2.0}')
    task = asyncio.create_task(run.run())
    while len([p for p in run.of(DecisionParked) if p.decision == 1]) < 2:
        await asyncio.sleep(0.01)
    assert run.of(ProposalMade)[-1].decision >= 1

    second = await asyncio.to_thread(run.says, "edit", "D1", "--candidate", '{"x": 2.0}')

    assert second.exit_code == 0, second.output
    await task
    edited = [p for p in run.of(ProposalMade) if p.model.startswith("person ")]
    assert [p.proposal["candidates"][0]["x"] for p in edited] == [-2.0, 2.0]
    assert run.of(JobPlanned)[0].candidate == {"x": 2.0}
    assert next(d for d in run.of(DecisionMade) if d.decision == 1).disposition == "accepted"
    assert check_run(tmp_path) == []


async def test_nobody_answers_and_the_fallback_takes_over(tmp_path: Path) -> None:
    run = night(tmp_path, park={"decisions": True, "expire_s": 0.05})

    stop = await run.run()

    assert stop is not None
    assert stop.rule == "jobs"
    assert run.of(ParkedResolved)[0].action == "expire"
    made = next(d for d in run.of(DecisionMade) if d.decision == 1)
    assert (made.disposition, made.cause) == ("fallback", "expired")


async def test_at_the_last_chance_before_walltime_the_fallback_takes_over(tmp_path: Path) -> None:
    run = night(tmp_path, park={"decisions": True, "last_chance": True})
    now = time.time()
    soon = replace(Allocation.local(), end_at=now + 36 + 50)  # a job takes 36 s

    await run.run(tenure=Tenure(soon, margin_s=0))

    assert run.of(ParkedResolved)[0].action == "expire"
    assert run.of(ResultAccepted) != []


async def test_no_more_are_parked_than_a_person_can_read(tmp_path: Path) -> None:
    run = night(tmp_path, park={"decisions": True, "most": 2}, stop={"jobs": 2})

    await run.run()

    assert [p.decision for p in run.of(DecisionParked)] == [1, 2]
    assert [d.disposition for d in run.of(DecisionMade)][:2] == ["fallback", "fallback"]


async def test_the_end_of_the_campaign_closes_what_is_parked(tmp_path: Path) -> None:
    run = night(tmp_path, park={"decisions": True, "most": 1})

    await run.run()

    parked = next(d for d in run.of(DecisionMade) if d.decision == 1)
    assert (parked.disposition, parked.cause) == ("abandoned", "jobs")
    assert run.of(RunStopped)[-1].rule == "jobs"
    assert run.says().output == "nothing is parked\n"


def doubtful(folder: Path, **park: Any) -> Night:
    levels = spec()["level"]
    levels[1]["accept"] = {"y": ["LESS_THAN", 40]}
    levels[1]["use"] = "campaign:big"
    code = CODE + '\n\ndef big(candidate):\n    return {"y": 50.0}\n'
    return night(folder, x=2.0, code=code, level=levels, park={"results": True, **park})


async def test_a_doubtful_result_waits_and_is_learned_when_a_person_accepts_it(
    tmp_path: Path,
) -> None:
    run = doubtful(tmp_path)
    await run.run(until=ResultParked)
    parked = run.of(ResultParked)[0]
    assert run.of(ResultRejected) == []

    told = json.loads(run.says("show", parked.job, "--json").output)
    run.says("accept", parked.job)
    await run.run()

    assert told["reasons"] == ["y is 50, must be below 40"]
    accepted = run.of(ResultAccepted)[0]
    assert (accepted.job, accepted.values) == (parked.job, {"y": 50.0})
    assert check_run(tmp_path) == []


async def test_a_doubtful_result_that_is_refused_keeps_both_reasons(tmp_path: Path) -> None:
    run = doubtful(tmp_path)
    await run.run(until=ResultParked)
    parked = run.of(ResultParked)[0]
    run.says("reject", parked.job, "--reason", "solver was wrong")

    await run.run()

    rejected = next(r for r in run.of(ResultRejected) if r.job == parked.job)
    assert rejected.reasons == ("y is 50, must be below 40", "solver was wrong")


async def test_a_doubtful_result_stays_rejected_when_nobody_answers(tmp_path: Path) -> None:
    run = doubtful(tmp_path, expire_s=0.05)

    stop = await run.run()

    assert stop is not None
    assert stop.rule == "jobs"
    assert {r.reasons for r in run.of(ResultRejected)} == {("y is 50, must be below 40",)}
    assert run.of(ResultAccepted) == []


async def test_an_answer_is_acted_on_after_a_crash_between_it_and_what_follows(
    tmp_path: Path,
) -> None:
    run = night(tmp_path, asks=2)
    await run.run(until=DecisionParked)
    with Ledger.open(tmp_path / "ledger", run="square-1") as ledger:
        ledger.append(ParkedResolved(what="D1", action="accept", by="me"))

    await run.run()

    assert len(run.of(ParkedResolved)) == 1
    assert run.of(JobPlanned)[0].candidate == {"x": -1.0}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["accept", "D9"], "D9 is not parked; parked now: D1"),
        (["edit", "D1", "--candidate", "{"], "is no JSON"),
        (["edit", "D1", "--candidate", "[1]"], "is no candidate"),
        (["edit", "D1", "--candidate", '{"x": 99}'], "cannot be launched"),
        (["edit", "D1", "--candidate", '{"z": 1}'], "x is missing"),
    ],
)
async def test_an_answer_that_cannot_be_is_refused_at_once(
    tmp_path: Path, words: list[str], said: str
) -> None:
    run = night(tmp_path)
    await run.run(until=DecisionParked)

    told = run.says(*words)

    assert told.exit_code == 2
    assert said in told.output
    assert not (tmp_path / "answers").exists()


async def test_a_decision_without_any_proposal_can_only_be_edited_or_refused(
    tmp_path: Path,
) -> None:
    run = night(tmp_path, x=None)
    await run.run(until=DecisionParked)

    told = run.says("accept", "D1")

    assert told.exit_code == 2
    assert "there is no proposal that could be launched" in told.output


async def test_the_first_answer_counts(tmp_path: Path) -> None:
    run = night(tmp_path)
    await run.run(until=DecisionParked)

    first, second = run.says("accept", "D1"), run.says("reject", "D1", "--reason", "no")

    assert (first.exit_code, second.exit_code) == (0, 2)
    assert "D1.2 was answered before" in second.output
    assert "answered: accept" in run.says().output
    assert [p.name for p in (tmp_path / "answers").iterdir()] == ["D1.2.json"]


async def test_a_broken_answer_is_told_once_and_changes_nothing(tmp_path: Path) -> None:
    run = night(tmp_path, stop={"jobs": 1, "wall_s": 3})
    await run.run(until=DecisionParked)
    (tmp_path / "answers").mkdir()
    (tmp_path / "answers" / "D1.2.json").write_text('{"action": "launch"}')

    await run.run()

    told = [f for f in run.of(FailureRecorded) if f.what == "answer"]
    assert len(told) == 1
    assert "D1.2.json is no answer" in told[0].message
    assert run.of(ParkedResolved) == []


def test_an_answer_is_whole_or_not_there(tmp_path: Path) -> None:
    answer = Answered(action="edit", by="me", at=1.0, value={"candidates": [{"x": 1.0}]})

    path = post(tmp_path, "D1.2", answer)

    assert posted(tmp_path, "D1.2") == answer
    assert posted(tmp_path, "D2.2") is None
    path.write_bytes(b" " * (1 << 21))
    with pytest.raises(ConfigError, match="has more than"):
        posted(tmp_path, "D1.2")


def test_an_answer_that_cannot_be_written_says_why(tmp_path: Path) -> None:
    (tmp_path / "answers").write_text("a file")

    with pytest.raises(ConfigError, match="cannot be written"):
        post(tmp_path, "D1.2", Answered(action="accept", by="me", at=1.0))


def test_an_answer_on_a_full_disk_says_why_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "link", refuse)

    with pytest.raises(ConfigError, match="No space left on device"):
        post(tmp_path, "D1.2", Answered(action="accept", by="me", at=1.0))

    assert list((tmp_path / "answers").iterdir()) == []
