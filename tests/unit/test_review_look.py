"""Single questions of a run, and the commands that ask them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from concurrent.futures import BrokenExecutor, Executor, Future
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from batchgate.cli import main
from batchgate.errors import ConfigError, LedgerCorruptError, LedgerError
from batchgate.events import (
    AttemptStarted,
    CheckJudged,
    DecisionMade,
    DecisionOpened,
    Event,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ResultAccepted,
)
from batchgate.job import End, JobState
from batchgate.ledger import Ledger
from batchgate.ledger.line import encode
from batchgate.review import open_run, summarise
from batchgate.review.compare import compare
from batchgate.review.look import find
from batchgate.review.rejections import by_reason, rejections
from batchgate.review.scan import scan
from batchgate.review.timeline import STRETCHES, timeline
from tests.recorded_run import record
from tests.synthetic_run import EVIL, night, opened, spec, started


def write(folder: Path, events: list[Event]) -> Path:
    with Ledger.open(folder / "ledger", run="branin-7") as ledger:
        for event in events:
            ledger.append(event)
    return folder


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a whole night in one segment."""
    kept = [e.event for e in night() if e.event.type not in {"segment_opened", "segment_closed"}]
    return write(tmp_path_factory.mktemp("night"), kept)


def command(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], catch_exceptions=False)


# --- questions -----------------------------------------------------------------------------------


def test_rejections_are_those_of_the_record(run_dir: Path) -> None:
    attempts = [a for a in open_run(run_dir).attempts if a.rejected_by]

    found = rejections(run_dir)

    assert sorted((one.decision, one.attempt, one.check) for one in found) == sorted(
        (a.decision, a.number, name) for a in attempts for name in a.rejected_by
    )


def test_rejections_can_be_asked_of_one_check(run_dir: Path) -> None:
    found = rejections(run_dir, check="coarse")

    assert {(one.check, one.kind) for one in found} == {("coarse", "verifier")}
    (reason, *_) = by_reason(found)
    assert reason == ("coarse", "y is #, must be below #", len(found))


def test_a_decision_is_found_as_the_record_has_it(run_dir: Path) -> None:
    for row in open_run(run_dir).decisions[:10]:
        decision, attempts, jobs = find(run_dir, f"D{row.number}")

        assert decision == row
        assert attempts == row.attempts
        assert {job.decision for job in jobs} <= {row.number}


def test_an_attempt_is_found_by_its_name(run_dir: Path) -> None:
    several = next(d for d in open_run(run_dir).decisions if len(d.attempts) > 1)

    _, (attempt,), _ = find(run_dir, f"D{several.number}.2")

    assert attempt == several.attempts[1]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("17x", "names no decision"),
        ("D0", "names no decision"),
        ("D9999", "no decision D9999"),
        ("D1.99", "decision D1 has"),
    ],
)
def test_what_is_not_there_is_told(run_dir: Path, name: str, told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        find(run_dir, name)


def test_a_timeline_counts_every_event_in_one_stretch(run_dir: Path) -> None:
    figures = summarise(open_run(run_dir))

    found = timeline(run_dir)

    assert len(found.stretches) <= STRETCHES + 1
    assert (
        sum(s.counts.get("accepted", 0) for s in found.stretches) == figures.decisions["accepted"]
    )
    assert sum(s.charged_node_h for s in found.stretches) == pytest.approx(figures.node_h.charged)
    assert [m.what for m in found.milestones].count("run_stopped") == 1


def test_a_run_compared_with_itself_differs_in_nothing(run_dir: Path) -> None:
    lines = compare(run_dir, run_dir)

    assert all(line.one == line.other for line in lines)
    assert not any(line.apart for line in lines)


@pytest.mark.parametrize("other", ["night", "short"])
def test_runs_read_at_the_same_time_have_the_same_figures(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
) -> None:
    runs = [run_dir, run_dir if other == "night" else write(tmp_path, [started()])]
    alone = command("compare", *runs, "--json").stdout
    monkeypatch.setattr("batchgate.cli.look.LARGE", 0)

    together = command("compare", *runs, "--json").stdout

    assert together == alone


def test_what_is_wrong_with_a_run_read_in_another_process_is_told(
    run_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("batchgate.cli.look.LARGE", 0)

    result = command("compare", run_dir, write(tmp_path, []))

    assert result.exit_code == 4
    assert "never started" in result.stderr


def test_a_run_whose_reader_was_killed_is_read_here(run_dir: Path) -> None:
    class Killed(Executor):
        def submit(self, *_: Any, **__: Any) -> Future[Any]:
            future: Future[Any] = Future()
            future.set_exception(BrokenExecutor("killed"))
            return future

    assert compare(run_dir, run_dir, pool=Killed()) == compare(run_dir, run_dir)


def test_shares_that_differ_by_more_than_chance_are_marked(tmp_path: Path) -> None:
    runs = []
    for name, refused in (("one", 5), ("other", 45)):
        (tmp_path / name).mkdir()
        judged = (
            CheckJudged(decision=1, attempt=1, check="disc", passed=n >= refused) for n in range(50)
        )
        begun: list[Event] = [
            started(),
            DecisionOpened(decision=1),
            AttemptStarted(decision=1, attempt=1),
            ProposalMade(decision=1, attempt=1, proposal={}),
        ]
        runs.append(write(tmp_path / name, [*begun, *judged]))

    (line,) = [one for one in compare(*runs) if one.name == "share rejected by disc"]

    assert (line.one, line.other, line.apart) == (0.1, 0.9, True)


def test_a_run_that_never_started_cannot_be_compared(tmp_path: Path, run_dir: Path) -> None:
    with pytest.raises(LedgerError, match="never started"):
        compare(write(tmp_path, []), run_dir)


def test_text_that_looks_like_a_type_is_not_taken_for_one(tmp_path: Path) -> None:
    evil = '"type":"check_judged"'
    write(tmp_path, [started(), DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1),
                     ProposalMade(decision=1, attempt=1, proposal={"rationale": evil})])  # fmt: skip

    assert list(scan(tmp_path, {"check_judged"})) == []


def test_a_line_that_is_no_event_is_told_with_its_place(tmp_path: Path) -> None:
    write(tmp_path, [started(), DecisionOpened(decision=1)])
    (path,) = (tmp_path / "ledger").glob("*.jsonl")
    path.write_bytes(path.read_bytes().replace(b'"decision":1', b'"decision":}'))

    with pytest.raises(LedgerCorruptError, match=r"0001.jsonl:3"):
        list(scan(tmp_path, {"decision_opened"}))


@pytest.mark.parametrize("ask", [rejections, timeline, lambda run: find(run, "D1")])
def test_a_directory_without_a_ledger_is_no_run(tmp_path: Path, ask: Any) -> None:
    with pytest.raises(LedgerError, match="holds no run"):
        ask(tmp_path)


# --- commands ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "args", [["rejections"], ["show", "D1"], ["timeline"], ["report-card"], ["compare"], ["replay"]]
)
def test_every_question_can_be_answered_in_json(run_dir: Path, args: list[str]) -> None:
    name, *more = args
    runs = [run_dir, run_dir] if name == "compare" else [run_dir, *more]

    result = command(name, *runs, "--json")

    assert json.loads(result.stdout) is not None


def test_people_get_words(run_dir: Path) -> None:
    assert "rejections" in command("rejections", run_dir, "--check", "disc").output
    assert "coarse" in command("report-card", run_dir).output
    assert "run stopped: by the rule jobs" in command("timeline", run_dir).output
    assert "share rejected by disc" in command("compare", run_dir, run_dir).output
    shown = command("show", run_dir, "D1").output
    assert "candidate x1=" in shown
    assert "rejects" in shown or "passes" in shown


def test_hostile_text_does_not_act_on_the_terminal(tmp_path: Path) -> None:
    write(tmp_path, [started(), DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1),
                     ProposalMade(decision=1, attempt=1, proposal=EVIL, model=EVIL),
                     CheckJudged(decision=1, attempt=1, check="disc", passed=False, reasons=(EVIL,))])  # fmt: skip

    for args in (["show", tmp_path, "D1.1"], ["rejections", tmp_path]):
        told = command(*args).output
        assert "\x1b" not in told
        assert "\u202e" not in told
        assert "[U+001B]" in told


async def test_a_replay_that_agrees_exits_with_0_and_one_that_does_not_with_1(
    tmp_path: Path,
) -> None:
    await record(tmp_path, stop={"jobs": 2})
    run, code = tmp_path / "run", tmp_path / "campaign"

    fine = await asyncio.to_thread(command, "replay", run, "--campaign", code)
    changed = tmp_path / "changed"
    changed.mkdir()
    (changed / "campaign.py").write_text(
        (code / "campaign.py").read_text().replace('["x"] < 0', '["x"] < 5')
    )
    wrong = await asyncio.to_thread(command, "replay", run, "--campaign", changed)
    without = await asyncio.to_thread(command, "replay", run)

    assert (fine.exit_code, wrong.exit_code, without.exit_code) == (0, 1, 0)
    assert "the record agrees with its replay" in fine.output
    assert "verdict: low: passed is True, must be False" in wrong.output
    assert "give it with --campaign" in without.output


def test_options_that_do_not_go_together_are_refused(run_dir: Path) -> None:
    both = command("replay", run_dir, "--campaign", run_dir, "--against", run_dir)
    idle = command("replay", run_dir, "--set", "stop.jobs=4")
    nowhere = command("export", run_dir)

    assert [r.exit_code for r in (both, idle, nowhere)] == [2, 2, 2]


def test_a_run_is_exported_to_where_it_is_told(run_dir: Path, tmp_path: Path) -> None:
    result = command("export", run_dir, "--csv", tmp_path, "--otlp-json", tmp_path)

    assert result.exit_code == 0
    written = {path.name for path in tmp_path.iterdir()}
    assert {"attempts.csv", "traces.jsonl", "logs.jsonl"} <= written
    assert all(str(tmp_path) in line for line in result.output.split())


# --- size ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def huge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a run of 10^5 attempts; its hashes are made up, which only `verify` looks at."""
    folder = tmp_path_factory.mktemp("huge") / "ledger"
    folder.mkdir()
    point = {"x1": 1.0, "x2": 2.0}
    fingerprint = spec().space.fingerprint(point)
    decision: list[Event] = [
        DecisionOpened(decision=77),
        *(
            event
            for attempt in (1, 2)
            for event in (
                AttemptStarted(decision=77, attempt=attempt),
                ProposalMade(decision=77, attempt=attempt, proposal={"candidates": [point]}),
                CheckJudged(decision=77, attempt=attempt, check="disc", passed=True),
                CheckJudged(
                    decision=77, attempt=attempt, check="spacing", passed=attempt == 2, reasons=()
                ),
            )
        ),
        DecisionMade(decision=77, disposition="accepted", attempts=2),
        JobPlanned(job="j77", decision=77, fingerprint=fingerprint, candidate=point, level="fine",
                   reserved_node_h=1, walltime_s=60),
        JobEnded(job="j77", state=JobState.COMPLETED, end=End.COMPLETED, charged_node_h=0.5),
        ResultAccepted(job="j77", fingerprint=fingerprint, values={"y": 1.0}, feasible=True),
    ]  # fmt: skip
    texts = [encode(e, seq=0, at_ns=0, previous=b"").split(b",", 2)[2] for e in decision]
    first = encode(opened(1), seq=0, at_ns=10**18, previous=b"")
    begun = encode(started(), seq=1, at_ns=10**18, previous=hashlib.sha256().hexdigest().encode())
    with (folder / "0001.jsonl").open("wb") as file:
        file.writelines([first, begun])
        seq = 2
        for number in range(1, 50_001):
            for text in texts:
                at = 10**18 + seq * 10**7
                line = text.replace(b":77,", b":%d," % number).replace(b'"j77"', b'"j%d"' % number)
                file.write(b'{"seq":%d,"at":"%d",%b' % (seq, at, line))
                seq += 1
    return folder.parent


@pytest.mark.parametrize(
    "args", [["rejections"], ["show", "D17.2"], ["timeline"], ["compare"]], ids=lambda a: a[0]
)
def test_a_hundred_thousand_attempts_are_looked_through_in_seconds(
    huge: Path, tmp_path: Path, args: list[str], run_dir: Path
) -> None:
    name, *more = args
    runs = [huge, run_dir] if name == "compare" else [huge, *more]
    began_s = time.process_time()  # not the clock on the wall: others use this machine too

    result = command(name, *runs)

    assert result.exit_code == 0
    assert time.process_time() - began_s < 8  # 2 to 4 on a busy machine
