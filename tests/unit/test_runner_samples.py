"""Several samples of one answer: judged in order, each judgement in the ledger, the first one taken."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchgate.answer import Answer
from batchgate.campaign import Campaign, Proposal
from batchgate.cli.lines import line
from batchgate.decision import Rejected
from batchgate.events import CheckJudged, DecisionMade, Event, JobPlanned, ProposalMade
from batchgate.ledger import Ledger, check_run, read
from batchgate.review import RunRecord
from batchgate.runner import Model, Recorder, Runner
from batchgate.state import State
from batchgate.testing import Line, ScriptedProducer
from tests.campaigns import CODE, InlineFlow, campaign

TYPED = (
    "from batchgate import Fail\n"
    + CODE.replace(
        "yield f\"x is {candidate['x']:g}, must be at least 0\"",
        "yield Fail('x is negative', measured=candidate['x'], bound=0.0, field='x')",
    )
    + '''
def odd(candidate):
    """Refuse 2."""
    return "x is 2" if candidate["x"] == 2 else None
'''
)
MIDDLE = {"name": "middle", "use": "campaign:cheap", "timeout_s": 5, "args": {"shift": 0.5}}


def answer(made: Campaign, *samples: float | Sequence[float]) -> Answer:
    def proposal(xs: float | Sequence[float]) -> Proposal:
        points = xs if isinstance(xs, Sequence) else [xs]
        return Proposal(candidates=[made.candidate_model(x=x) for x in points])

    first, *others = map(proposal, samples)
    return Answer(first, tuple(others), response_id="r1", samples_total=len(samples))


async def run(
    made: Campaign, folder: Path, *script: Line, flow: InlineFlow | None = None
) -> tuple[list[Event], ScriptedProducer]:
    folder.mkdir()
    producer = ScriptedProducer(script)
    with Ledger.open(folder / "ledger", run="test") as ledger:
        model = Model("scripted", producer=producer)
        runner = Runner(
            made, Recorder.of(ledger), flow or InlineFlow(), folder, slots=1, model=model
        )
        await runner.run()
    return [entry.event for entry in read(folder / "ledger")], producer


def of(kind: type[Any], found: list[Event]) -> list[Any]:
    return [event for event in found if isinstance(event, kind)]


def judgements(found: list[Event]) -> list[tuple[int, str, bool]]:
    return [(event.sample, event.check, event.passed) for event in of(CheckJudged, found)]


async def test_cheap_checks_judge_every_sample_and_the_verifier_stops_at_the_first_that_passes(
    tmp_path: Path,
) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1})
    flow = InlineFlow()

    found, producer = await run(made, tmp_path / "r", answer(made, -1.0, 9.0, 2.0, 4.0), flow=flow)

    assert judgements(found) == [
        *((sample, "space", True) for sample in (1, 2, 3, 4)),
        (1, "low", False),
        *((sample, "low", True) for sample in (2, 3, 4)),
        *((sample, "duplicate", True) for sample in (2, 3, 4)),
        (2, "cheap", False),
        (3, "cheap", True),
    ]
    assert [call.value["x"] for call in flow.calls] == [9.0, 2.0]
    assert len(producer.calls) == 1


async def test_the_first_sample_that_passes_becomes_the_job(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1})

    found, _ = await run(made, tmp_path / "r", answer(made, -1.0, 9.0, 2.0, 4.0))

    (decision,) = of(DecisionMade, found)
    assert (decision.disposition, decision.sample, decision.attempts) == ("accepted", 3, 1)
    assert [job.candidate for job in of(JobPlanned, found)] == [{"x": 2.0}]


async def test_every_sample_is_in_the_ledger(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1})

    found, _ = await run(made, tmp_path / "r", answer(made, -1.0, 2.0, 4.0))

    (event,) = of(ProposalMade, found)
    xs = [sample["candidates"][0]["x"] for sample in (event.proposal, *event.others)]
    assert xs == [-1.0, 2.0, 4.0]


async def test_an_answer_is_rejected_when_no_sample_is_left(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1})

    found, producer = await run(
        made, tmp_path / "r", answer(made, -1.0, -2.0), answer(made, -3.0, 2.0)
    )

    (previous,) = producer.calls[1].previous
    assert previous.rejected_by == "low"
    assert previous.reasons == (
        "answer 1: x is -1, must be at least 0",
        "answer 2: x is -2, must be at least 0",
    )
    (decision,) = of(DecisionMade, found)
    assert (decision.disposition, decision.attempts, decision.sample) == ("accepted", 2, 2)


async def test_samples_that_fall_to_different_checks_of_a_stage_leave_none(tmp_path: Path) -> None:
    checks = [{"use": "campaign:low"}, {"use": "campaign:odd"}]
    made = campaign(tmp_path / "c", code=TYPED, stop={"jobs": 1}, check=checks)

    found, producer = await run(made, tmp_path / "r", answer(made, -1.0, 2.0), answer(made, 4.0))

    (previous,) = producer.calls[1].previous
    assert previous.reasons == ("answer 2: x is 2",)
    assert [event.sample for event in of(DecisionMade, found)] == [1]


async def test_a_soft_check_never_keeps_a_sample_from_being_taken(tmp_path: Path) -> None:
    made = campaign(
        tmp_path / "c", stop={"jobs": 1}, check=[{"use": "campaign:low", "hard": False}]
    )

    found, _ = await run(made, tmp_path / "r", answer(made, -1.0, 2.0))

    (decision,) = of(DecisionMade, found)
    assert decision.sample == 1
    assert (1, "low", False) in judgements(found)


async def test_a_verifier_before_the_last_judges_all_that_are_left(tmp_path: Path) -> None:
    levels = campaign(tmp_path / "a").spec.model_dump(mode="json")["level"]
    made = campaign(tmp_path / "c", stop={"jobs": 1}, level=[MIDDLE, *levels])

    found, _ = await run(made, tmp_path / "r", answer(made, 9.0, 2.0, 4.0))

    verified = [judgement for judgement in judgements(found) if judgement[1] in {"middle", "cheap"}]
    assert verified == [
        (1, "middle", True),
        (2, "middle", True),
        (3, "middle", True),
        (1, "cheap", False),
        (2, "cheap", True),
    ]


async def test_a_sample_that_a_verifier_refused_is_known(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 2})

    found, _ = await run(made, tmp_path / "r", answer(made, -1.0, 9.0, 2.0), answer(made, 9.0, 4.0))

    (twin,) = [e for e in of(CheckJudged, found) if e.check == "duplicate" and not e.passed]
    assert (twin.decision, twin.sample) == (2, 1)
    assert "refused by a verifier" in twin.reasons[0]


async def test_the_ledger_of_such_a_run_keeps_its_rules(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1})

    await run(made, tmp_path / "r", answer(made, -1.0, 9.0, 2.0))

    assert check_run(tmp_path / "r") == []


async def test_the_record_counts_such_an_attempt_as_accepted(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1})

    await run(made, tmp_path / "r", answer(made, -1.0, 9.0, 2.0))

    record = RunRecord.of(read(tmp_path / "r" / "ledger"))
    (attempt,) = record.attempts
    assert (attempt.outcome, attempt.rejected_by) == ("accepted", ())
    assert [(p.observables["y"], p.passed) for p in record.pairs] == [(36.0, False), (1.0, True)]


async def test_people_are_told_which_sample_was_rejected(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1})

    found, _ = await run(made, tmp_path / "r", answer(made, -1.0, 9.0, 2.0))

    told = [line(event, State()) for event in of(CheckJudged, found) if not event.passed]
    assert told == [
        "D1.1 rejected by low: x is -1, must be at least 0",
        "D1.1, sample 2, rejected by cheap: y is 36, must be below 30",
    ]


async def test_broken_bounds_are_recorded_and_the_producer_is_told_of_them(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", code=TYPED, stop={"jobs": 2})

    found, producer = await run(
        made,
        tmp_path / "r",
        answer(made, -1.0, -2.0),
        answer(made, 2.0),
        answer(made, 4.0),
    )

    told = [(b.candidate, b.field, b.measured) for e in of(CheckJudged, found) for b in e.breaches]
    assert told == [(1, "x", -1.0), (1, "x", -2.0)]
    assert producer.calls[0].lessons == ()
    (lesson,) = producer.calls[1].lessons
    assert (lesson.field, lesson.kind, lesson.count, lesson.fixed) == ("x", "below", 2, True)
    assert producer.calls[2].lessons == (lesson,)


async def test_bounds_of_a_verifier_are_recorded(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1})

    found, _ = await run(made, tmp_path / "r", answer(made, 9.0), answer(made, 2.0))

    (refused,) = [event for event in of(CheckJudged, found) if not event.passed]
    (broken,) = refused.breaches
    assert (broken.field, broken.measured, broken.bound, broken.kind) == ("y", 36.0, 30.0, "above")


async def test_bounds_of_a_producers_own_rejection_are_recorded(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", stop={"jobs": 1})
    refusal = Rejected("too long", measured=9, bound=5, field="tokens")

    found, _ = await run(made, tmp_path / "r", refusal, answer(made, 2.0))

    (broken,) = next(e for e in found if e.type == "proposal_rejected").breaches
    assert (broken.candidate, broken.field, broken.measured) == (0, "tokens", 9.0)


async def test_lessons_survive_a_resume(tmp_path: Path) -> None:
    made = campaign(tmp_path / "c", code=TYPED, stop={"jobs": 1})
    await run(made, tmp_path / "r", answer(made, -1.0, -2.0), answer(made, 2.0))

    with Ledger.open(tmp_path / "r" / "ledger", run="test") as ledger:
        (lesson,) = Recorder.of(ledger).guard.lessons()

    assert (lesson.count, lesson.measured) == (2, (-2.0, -1.0))
