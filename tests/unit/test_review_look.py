"""Single questions of a run, and the commands that ask them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from batchgate.cli import main
from batchgate.errors import ConfigError, LedgerCorruptError, LedgerError
from batchgate.events import (
    AttemptStarted,
    CheckJudged,
    DecisionOpened,
    Event,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ProposalMade,
    ResultRejected,
)
from batchgate.job import End, JobState
from batchgate.ledger import Ledger
from batchgate.review import RunRecord, look, summarise
from batchgate.review.compare import compare
from batchgate.review.look import find
from batchgate.review.rejections import by_reason, rejections
from batchgate.review.timeline import STRETCHES, timeline
from tests.recorded_run import record
from tests.synthetic_run import EVIL, START_AT, Script, kept, night, started


def write(folder: Path, events: list[Event]) -> Path:
    with Ledger.open(folder / "ledger", run="branin-7") as ledger:
        for event in events:
            ledger.append(event)
    return folder


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Give a whole night in one segment."""
    events = [e.event for e in night() if e.event.type not in {"segment_opened", "segment_closed"}]
    return write(tmp_path_factory.mktemp("night"), events)


def command(*args: object) -> Result:
    return CliRunner().invoke(main, [str(arg) for arg in args], catch_exceptions=False)


# --- questions -----------------------------------------------------------------------------------


def test_rejections_are_those_of_the_record(run_dir: Path) -> None:
    attempts = [a for a in RunRecord.read(run_dir).attempts if a.rejected_by]

    found = rejections(run_dir)

    assert sorted((one.decision, one.attempt, one.check) for one in found) == sorted(
        (a.decision, a.number, name) for a in attempts for name in a.rejected_by
    )


def test_rejections_can_be_asked_of_one_check(run_dir: Path) -> None:
    found = rejections(run_dir, check="coarse")

    assert {(one.check, one.kind) for one in found} == {("coarse", "verifier")}
    (reason, *_) = by_reason(found)
    assert reason == ("coarse", "y is #, must be below #", len(found))


@pytest.mark.parametrize("block", [100, 5000, look.BLOCK])
def test_a_decision_is_found_as_the_record_has_it(
    run_dir: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(look, "BLOCK", block)
    record = RunRecord.read(run_dir)
    several = max(len([j for j in record.jobs if j.decision == d.number]) for d in record.decisions)
    assert several > 1

    for row in record.decisions:
        decision, attempts, jobs = find(run_dir, f"D{row.number}")

        assert decision == row
        assert attempts == row.attempts
        assert jobs == tuple(job for job in record.jobs if job.decision == row.number)


def test_an_attempt_is_found_by_its_name(run_dir: Path) -> None:
    several = next(d for d in RunRecord.read(run_dir).decisions if len(d.attempts) > 1)

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
    figures = summarise(run_dir)

    found = timeline(run_dir)

    assert len(found.stretches) <= STRETCHES + 1
    assert (
        sum(s.counts.get("accepted", 0) for s in found.stretches) == figures.decisions["accepted"]
    )
    assert sum(s.charged_node_h for s in found.stretches) == pytest.approx(figures.node_h.charged)
    assert [m.what for m in found.milestones].count("run_stopped") == 1


def planned(job: str, *, decision: int = 1) -> JobPlanned:
    return JobPlanned(
        job=job, decision=decision, fingerprint="f", candidate={}, level="fine", reserved_node_h=1,
        walltime_s=60,
    )  # fmt: skip


def ended(job: str, charged_node_h: float) -> JobEnded:
    state, end = JobState.COMPLETED, End.COMPLETED
    return JobEnded(job=job, state=state, end=end, charged_node_h=charged_node_h)


def test_a_timeline_tells_what_happened_in_each_second_of_a_short_run(tmp_path: Path) -> None:
    script = Script().begin().add(
        DecisionOpened(decision=1), planned("a"), planned("b"), ended("a", 0.25), planned("c"),
        ended("b", 0.5), ended("c", 0.0),
    )  # fmt: skip

    found = timeline(kept(script.entries, tmp_path / "run"))

    assert found.length_s == 1
    assert [s.start_at for s in found.stretches] == [START_AT + second for second in range(8)]
    # Those that ran when a second began count in it, also where nothing happened in it.
    assert [s.running for s in found.stretches] == [0, 0, 1, 2, 2, 2, 2, 1]
    assert [s.charged_node_h for s in found.stretches] == [0, 0, 0, 0, 0.25, 0, 0.5, 0]
    assert [s.counts for s in found.stretches] == [
        {}, {}, {"launched": 1}, {"launched": 1}, {"ended": 1}, {"launched": 1}, {"ended": 1},
        {"ended": 1},
    ]  # fmt: skip


def test_a_timeline_for_people_tells_every_life_and_the_newest_failures(tmp_path: Path) -> None:
    script = Script().begin()
    for number in range(30):
        script.add(FailureRecorded(kind="job", what="exit", message=f"number {number}."))
    run = kept(script.entries, tmp_path / "run")

    told = command("timeline", run).stdout
    few = command("timeline", run, "--last", 2).stdout
    none = command("timeline", run, "--last", 0).stdout

    assert told.count("failure recorded") == 20
    assert "10 failures and server events are left out" in told
    assert "number 28." in few
    assert "number 27." not in few
    assert "failure recorded" not in none
    assert all("run started" in one for one in (told, few, none))


def test_jobs_run_on_through_a_stretch_without_events(tmp_path: Path) -> None:
    script = Script().begin().add(DecisionOpened(decision=1), planned("a"))
    script.add(ended("a", 0.25), after_s=4)

    found = timeline(kept(script.entries, tmp_path / "run"))

    assert [s.running for s in found.stretches] == [0, 0, 1, 1, 1, 1, 1]


def test_a_timeline_tells_what_began_broke_and_stopped(tmp_path: Path) -> None:
    failure = FailureRecorded(kind="job", what="exit", message="boom", again=True)
    script = Script().begin().add(failure, failure.model_copy(update={"again": False}))

    found = timeline(kept(script.entries, tmp_path / "run"))

    assert [(m.at - START_AT, m.what, m.told) for m in found.milestones] == [
        (0, "segment_opened", "runner 1 on node01, process 4001"),
        (0, "run_started", "campaign branin, producer vllm, 2 slots"),
        (1, "failure_recorded", "job failed (exit): boom, tried again"),
        (2, "failure_recorded", "job failed (exit): boom"),
    ]


def test_a_clock_that_was_set_back_loses_no_event(tmp_path: Path) -> None:
    script = Script().begin().add(planned("a"), after_s=60).add(planned("b"), after_s=-300)

    found = timeline(kept(script.entries, tmp_path / "run"))

    assert found.stretches[0].start_at == START_AT - 240
    assert sum(s.counts.get("launched", 0) for s in found.stretches) == 2


def test_a_run_of_which_nothing_is_written_has_no_stretches(tmp_path: Path) -> None:
    (tmp_path / "ledger").mkdir()

    assert timeline(tmp_path).stretches == ()
    assert rejections(tmp_path) == []


def test_figures_of_a_run_are_those_of_its_summary(run_dir: Path) -> None:
    figures, found = summarise(run_dir), {line.name: line.one for line in compare(run_dir, run_dir)}

    assert found["attempts"] == sum(figures.attempts.values())
    assert found["decisions accepted"] == figures.decisions["accepted"]
    assert found["results feasible"] == figures.jobs["feasible"]
    assert found["node-hours charged"] == pytest.approx(figures.node_h.charged)
    assert figures.best is not None
    assert found["best feasible objective"] == figures.best.value
    for check in figures.checks:
        if check.kind != "stage":
            assert found[f"share rejected by {check.name}"] == check.rejected / check.judged


def test_a_run_compared_with_itself_differs_in_nothing(run_dir: Path) -> None:
    lines = compare(run_dir, run_dir)

    assert all(line.one == line.other for line in lines)
    assert not any(line.apart for line in lines)


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


def test_a_soft_check_rejects_nothing(tmp_path: Path) -> None:
    soft = CheckJudged(decision=1, attempt=1, check="mild", passed=False, hard=False)
    write(tmp_path, begun({}, soft))

    assert rejections(tmp_path) == []
    assert not any("mild" in line.name for line in compare(tmp_path, tmp_path))


# --- ledgers that are not as they should be ------------------------------------------------------

QUESTIONS: dict[str, Callable[[Path], Any]] = {
    "rejections": rejections,
    "timeline": timeline,
    "compare": lambda run: compare(run, run),
    "show": lambda run: find(run, "D1"),
}

questions = pytest.mark.parametrize("ask", QUESTIONS.values(), ids=QUESTIONS)


def begun(proposal: Any, *more: Event) -> list[Event]:
    return [
        started(),
        DecisionOpened(decision=1),
        AttemptStarted(decision=1, attempt=1),
        ProposalMade(decision=1, attempt=1, proposal=proposal),
        *more,
    ]


def segment_of(run_dir: Path) -> Path:
    (path,) = (run_dir / "ledger").glob("*.jsonl")
    return path


def test_text_and_keys_that_look_like_an_event_are_not_taken_for_one(tmp_path: Path) -> None:
    fake = {"type": "check_judged", "decision": 1, "job": "d1", "passed": False, "hard": True}
    told = {"rationale": json.dumps(fake, separators=(",", ":")), "of": fake}
    other = ProposalMade(decision=2, attempt=1, proposal=told)
    begin: list[Event] = [DecisionOpened(decision=2), AttemptStarted(decision=2, attempt=1)]
    odd = ResultRejected(job="d2", fingerprint="f", reasons=(), values=fake)
    jobs: list[Event] = [planned("d1"), planned("d2", decision=2), ended("d2", 0.5), odd]
    write(tmp_path, begun(told, *begin, other, *jobs))

    _, (attempt,), (job,) = find(tmp_path, "D1")

    assert (attempt.proposal, attempt.checks, job.job, job.outcome) == (told, (), "d1", "running")
    assert rejections(tmp_path) == []
    assert sum(s.counts.get("asked", 0) for s in timeline(tmp_path).stretches) == 2
    assert not any(line.name.startswith("share") for line in compare(tmp_path, tmp_path))


@questions
def test_a_line_that_is_no_event_is_told_with_its_place(tmp_path: Path, ask: Any) -> None:
    path = segment_of(write(tmp_path, begun({})))
    path.write_bytes(path.read_bytes().replace(b'"source":"producer"', b'"source":}'))

    with pytest.raises(LedgerCorruptError, match=r"/ledger/0001.jsonl:3: .*no event"):
        ask(tmp_path)


def test_a_decision_of_an_event_that_nobody_knows_cannot_be_shown(tmp_path: Path) -> None:
    path = segment_of(write(tmp_path, begun({})))
    path.write_bytes(path.read_bytes().replace(b'"attempt_started"', b'"attempt_begun"'))

    with pytest.raises(LedgerCorruptError, match=r"0001.jsonl:4: .*no event"):
        find(tmp_path, "D1")


def test_a_decision_whose_opening_is_gone_cannot_be_shown(tmp_path: Path) -> None:
    path = segment_of(write(tmp_path, begun({})))
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(line for line in lines if b'"decision_opened"' not in line))

    with pytest.raises(LedgerError, match="D1 cannot be read"):
        find(tmp_path, "D1")


@questions
def test_half_a_line_at_the_end_does_not_count(tmp_path: Path, ask: Any) -> None:
    verdict = CheckJudged(decision=1, attempt=1, check="disc", passed=False, reasons=("far",))
    path = segment_of(write(tmp_path, begun({}, verdict)))
    whole = path.read_bytes()
    *most, last = whole.splitlines(keepends=True)[:-1]
    path.write_bytes(b"".join(most))
    expected = ask(tmp_path)

    path.write_bytes(b"".join(most) + last.removesuffix(b"\n"))

    assert ask(tmp_path) == expected


@questions
def test_an_empty_segment_is_a_life_that_wrote_nothing(tmp_path: Path, ask: Any) -> None:
    write(tmp_path, begun({}))
    expected = ask(tmp_path)

    (tmp_path / "ledger" / "0002.jsonl").touch()

    assert ask(tmp_path) == expected


@questions
def test_text_that_is_no_unicode_can_be_asked_about(tmp_path: Path, ask: Any) -> None:
    odd = "a\ud83db\x00\ud83d\ude00"
    write(tmp_path, begun({"rationale": odd}, CheckJudged(
        decision=1, attempt=1, check="disc", passed=False, reasons=(odd,))))  # fmt: skip

    assert ask(tmp_path)


def test_a_lone_surrogate_in_a_reason_is_a_question_mark(tmp_path: Path) -> None:
    verdict = CheckJudged(decision=1, attempt=1, check="disc", passed=False, reasons=("a\ud83db",))
    write(tmp_path, begun({}, verdict))

    (found,) = rejections(tmp_path)

    assert found.reasons == ("a?b",)


@questions
def test_a_directory_without_a_ledger_is_no_run(tmp_path: Path, ask: Any) -> None:
    with pytest.raises(LedgerError, match="holds no run"):
        ask(tmp_path)


@questions
def test_a_segment_that_cannot_be_opened_is_told(tmp_path: Path, ask: Any) -> None:
    write(tmp_path, begun({}))
    (tmp_path / "ledger" / "0002.jsonl").mkdir()

    with pytest.raises(LedgerError, match=r"cannot be read: .*0002.jsonl"):
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
