"""The real command with a scripted model server: hostile answers, dead servers, broken verifiers."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from batchgate.events import (
    CheckJudged,
    DecisionMade,
    FailureRecorded,
    JobPlanned,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
)
from batchgate.ledger import check_run, read
from batchgate.testing import Reply, Request, ScriptedServer, completion, cut

ROOT = Path(__file__).parents[2]
SIX = '{"x1": 2.0, "x2": 3.0}'


async def run(
    folder: Path, answer: Callable[[int], Reply], *settings: str
) -> tuple[int, str, list[Any]]:
    """Run the test-bed campaign against a server that answers proposals by number, from 0."""
    numbers = count()

    def reply(request: Request) -> Reply:
        body = request.json()
        if body["max_tokens"] == 1:  # the supervisor's own question
            return completion(str(body["response_format"]["json_schema"]["schema"]["const"]))
        return answer(next(numbers))

    async with ScriptedServer(reply for _ in count()) as server:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "batchgate", "run", str(ROOT / "campaigns" / "branin")),
            *("--run", str(folder), "--endpoint", server.url, "--model", "scripted"),
            *("--set", "constants.pause_s=0", "--set", "fallback.idle_s=60"),
            *("--set", "producer.form=batch", "--set", "producer.batch=1"),
            *(part for setting in settings for part in ("--set", setting)),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env={**os.environ, "PWNED": str(folder / "pwned")},
        )
        output, _ = await asyncio.wait_for(process.communicate(), 110)
    assert process.returncode is not None
    events = [entry.event for entry in read(folder / "ledger")]
    return process.returncode, output.decode(), events


def of(kind: type[Any], events: list[Any]) -> list[Any]:
    return [event for event in events if isinstance(event, kind)]


def batch(candidate: str) -> Reply:
    return completion(f'{{"candidates": [{candidate}]}}')


HOSTILE = {
    "NaN": '{"x1": NaN, "x2": 3.0}',
    "infinity": '{"x1": 1e999, "x2": 3.0}',
    "a megabyte": '{"x1": "' + "A" * 1_000_000 + '", "x2": 3.0}',
    "lone surrogates": '{"x1": "\\ud800", "x2": 3.0}',
    "a shell": '{"x1": "$(touch $PWNED)", "x2": "`touch $PWNED`; touch $PWNED"}',
    "a path": '{"../../x1": "../../etc/passwd", "x1": 1, "x2": 2}',
    "a format string": '{"x1": "{candidate.__class__}%s%n", "x2": 3.0}',
    "no JSON": "I would rather talk about the weather.",
}


@pytest.mark.parametrize("answer", HOSTILE.values(), ids=HOSTILE.keys())
async def test_a_hostile_answer_is_rejected_recorded_and_bounded(
    tmp_path: Path, answer: str
) -> None:
    code, output, events = await run(tmp_path / "run", lambda _: batch(answer), "stop.jobs=1")

    rejected = of(ProposalRejected, events)
    assert code == 0, output
    assert {r.stage for r in rejected} == {"schema"}
    assert all(len(json.dumps(r.value)) < 400_000 for r in rejected)
    assert of(DecisionMade, events)[0].disposition == "fallback"
    assert not (tmp_path / "run" / "pwned").exists()
    assert check_run(tmp_path / "run") == []
    assert (tmp_path / "run" / "report.html").stat().st_size < 1_000_000


async def test_a_hostile_rationale_is_kept_as_data_and_acts_on_nothing(tmp_path: Path) -> None:
    rationale = (
        "\\u001b[2J$(touch $PWNED) ../../etc <script>alert(1)</script> \\u202e {0.__class__}"
    )
    answer = completion(f'{{"rationale": "{rationale}", "candidates": [{SIX}]}}')

    code, output, events = await run(
        tmp_path / "run", lambda _: answer, "stop.jobs=1", "producer.rationale_chars=200"
    )

    assert code == 0, output
    assert "alert(1)" in of(ProposalMade, events)[0].proposal["rationale"]
    assert of(DecisionMade, events)[0].disposition == "accepted"
    assert "\x1b" not in output + (tmp_path / "run" / "run.log").read_text()
    assert "<script>alert" not in (tmp_path / "run" / "report.html").read_text()
    assert not (tmp_path / "run" / "pwned").exists()


async def test_a_server_that_dies_amid_a_request_costs_one_decision(tmp_path: Path) -> None:
    code, output, events = await run(
        tmp_path / "run", lambda n: cut() if n == 0 else batch(SIX), "stop.jobs=2"
    )

    assert code == 0, output
    assert [(f.kind, f.what) for f in of(FailureRecorded, events)] == [("producer", "connection")]
    assert {d.disposition for d in of(DecisionMade, events)} == {"accepted", "fallback"}


async def test_a_proposal_that_checks_refuse_is_asked_for_again_with_the_reasons(
    tmp_path: Path,
) -> None:
    outside = '{"x1": 9.0, "x2": 14.0}'

    code, output, events = await run(
        tmp_path / "run", lambda n: batch(outside if n == 0 else SIX), "stop.jobs=1"
    )

    assert code == 0, output
    refused = next(c for c in of(CheckJudged, events) if not c.passed)
    assert (refused.check, refused.attempt) == ("travel", 1)
    assert of(DecisionMade, events)[0].attempts == 2
    assert of(ResultAccepted, events)


@pytest.mark.parametrize(
    ("fault", "what"),
    [("crash", "worker_lost"), ("hang", "timed_out"), ("raise", "exception")],
)
async def test_a_verifier_that_breaks_lets_nothing_through(
    tmp_path: Path, fault: str, what: str
) -> None:
    code, output, events = await run(
        tmp_path / "run", lambda _: batch(SIX), "stop.jobs=1", "failure.in_a_row=2",
        f"constants.fault={fault}", "constants.fault_share=1.0", "constants.fault_level=verify",
        "level.verify.timeout_s=2",
    )  # fmt: skip

    failures = of(FailureRecorded, events)
    assert code == 1, output
    assert {(f.kind, f.what) for f in failures} == {("verifier", what)}
    assert [f.again for f in failures] == [True, False] * 2
    assert of(JobPlanned, events) == []


async def test_a_verifiers_nan_refuses_the_candidate(tmp_path: Path) -> None:
    code, output, events = await run(
        tmp_path / "run", lambda _: batch(SIX), "stop.jobs=1",
        "constants.fault=nan", "constants.fault_share=1.0", "constants.fault_level=verify",
    )  # fmt: skip

    refused = next(c for c in of(CheckJudged, events) if c.check == "verify")
    assert code == 0, output
    assert refused.reasons == ("y_low is nan, must be a finite number",)
    assert of(DecisionMade, events)[0].disposition == "fallback"
