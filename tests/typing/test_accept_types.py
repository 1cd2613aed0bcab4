"""Types flow from the producer to `Outcome.value`. What is below is checked, and not run.

An expected error carries an ignore with its code; a strict mypy complains of one that is not used.
"""

import subprocess
import sys
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any, assert_type

from pydantic import BaseModel

from batchgate import (
    Attempt,
    Check,
    Fail,
    Outcome,
    Record,
    Verdict,
    accept,
    accept_sync,
    attempts_of,
    check,
    judge,
)


class PlannerDecision(BaseModel):
    candidates: list[float]


Previous = tuple[Attempt[PlannerDecision], ...]


async def planner(previous: Previous) -> PlannerDecision:
    return PlannerDecision(candidates=[float(len(previous))])


def simple_planner(previous: Sequence[Attempt[PlannerDecision]]) -> PlannerDecision:
    return PlannerDecision(candidates=[])


def task_planner(previous: Previous) -> Awaitable[PlannerDecision]:
    return planner(previous)


def passes(decision: PlannerDecision) -> None: ...


async def verifies(decision: PlannerDecision) -> bool:
    return bool(decision.candidates)


def explains(decision: BaseModel) -> Verdict:
    return Fail("no")


@check(hard=False)
def soft(decision: PlannerDecision) -> bool:
    return True


def wrong(value: int) -> None: ...


def odd(decision: PlannerDecision) -> str:
    return "passed"


async def surrogate() -> PlannerDecision:
    return PlannerDecision(candidates=[])


async def the_types_flow() -> None:
    # S0-5
    assert_type(await accept(planner), Outcome[PlannerDecision])
    assert_type(await accept(simple_planner), Outcome[PlannerDecision])
    assert_type(await accept(task_planner), Outcome[PlannerDecision])
    assert_type(await accept(lambda previous: 3), Outcome[int])

    outcome = await accept(
        planner,
        checks=[passes, verifies, [explains, soft]],
        attempts=3,
        fallback=surrogate,
        feedback=lambda attempt: attempt.reasons,
    )
    assert_type(outcome, Outcome[PlannerDecision])
    assert_type(outcome.record, Record | None)
    assert_type(outcome.value.candidates, list[float])
    assert_type(outcome.attempts, tuple[Attempt[PlannerDecision], ...])

    parked = await accept(planner, escalate=True)
    assert_type(parked, Outcome[PlannerDecision | None])
    assert_type(accept_sync(planner, checks=(passes,)), Outcome[PlannerDecision])
    assert_type(soft, Check[PlannerDecision])
    assert_type(await judge(outcome.value, [passes, [soft]]), Attempt[PlannerDecision])
    assert_type(attempts_of(ValueError()), tuple[Attempt[Any], ...])


async def what_is_wrong_is_told() -> None:
    # S0-5, S0-27
    await accept(planner, checks=[wrong])  # type: ignore[arg-type]
    await accept(planner, checks=[odd])  # type: ignore[list-item]
    await accept(planner, attempts="3")  # type: ignore[call-overload]
    (await accept(planner)).value.candidate  # type: ignore[attr-defined]  # noqa: B018


def test_mypy_accepts_this_file(tmp_path):
    # S0-5
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", str(tmp_path), __file__],
        cwd=Path(__file__).parents[2],
        check=False,
        capture_output=True,
        text=True,
    )

    assert done.returncode == 0, done.stdout + done.stderr
