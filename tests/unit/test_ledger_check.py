import json
import os

import pytest

from batchgate.events import (
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    Chosen,
    DecisionMade,
    DecisionOpened,
    DecisionParked,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ParkedResolved,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultParked,
    ResultRejected,
    RunResumed,
    RunStarted,
    RunStopped,
    RunSuspended,
)
from batchgate.job import End, JobState
from batchgate.ledger import Finding, Ledger, check_run

STARTED = RunStarted(
    campaign="orbits", digest="d", spec={}, version="0.1.0", seed=0, granted_node_h=10
)
RESUMED = RunResumed(version="0.1.0")
OPENED = DecisionOpened(decision=1)
ATTEMPT = AttemptStarted(decision=1, attempt=1)
PROPOSAL = ProposalMade(decision=1, attempt=1, proposal={"x": 1.0})
PASSED = CheckJudged(decision=1, attempt=1, check="disc", passed=True)
FAILED = CheckJudged(decision=1, attempt=1, check="disc", passed=False, reasons=("x is 9",))
CHOSEN = Chosen(fingerprint="f1", candidate={"x": 1.0})
ACCEPTED = DecisionMade(decision=1, disposition="accepted", attempts=1, candidates=(CHOSEN,))
FALLBACK = DecisionMade(decision=1, disposition="fallback", candidates=(CHOSEN,), batch=0)
PLANNED = JobPlanned(
    job="d1-f1-1",
    decision=1,
    fingerprint="f1",
    candidate={"x": 1.0},
    level="fine",
    reserved_node_h=1.0,
    walltime_s=3600,
)
ENDED = JobEnded(job="d1-f1-1", state=JobState.COMPLETED, end=End.COMPLETED, started_at=5.0)
LOST = JobEnded(job="d1-f1-1", state=JobState.LOST, end=End.UNKNOWN, again=True)
RESULT = ResultAccepted(job="d1-f1-1", fingerprint="f1", values={"y": 2.0}, feasible=True)
NO_RESULT = ResultRejected(job="d1-f1-1", fingerprint="f1", reasons=("y is missing",))
AGAIN = PLANNED.model_copy(update={"job": "d1-f1-2", "attempt": 2})

PARKED = DecisionParked(decision=1, expires_at=9.0)
SAID_YES = ParkedResolved(what="D1", action="accept", by="ada")
BY_PERSON = ACCEPTED.model_copy(update={"cause": "person"})
RESULT_PARKED = ResultParked(job="d1-f1-1", fingerprint="f1", reasons=("odd",), expires_at=9.0)
RESULT_YES = ParkedResolved(what="d1-f1-1", action="accept", by="ada")

TO_ACCEPTED = (STARTED, OPENED, ATTEMPT, PROPOSAL, PASSED, ACCEPTED)
TO_PLANNED = (*TO_ACCEPTED, PLANNED)


def write(run_dir, *lives):
    """Write one segment for each sequence of events; return what was appended."""
    run_dir.mkdir(exist_ok=True)
    appended = []
    for events in lives:
        with Ledger.open(run_dir / "ledger", run="orbits-1") as ledger:
            appended += [ledger.append(event) for event in events]
    return appended


def problems(run_dir, *lives):
    write(run_dir, *lives)
    return [(finding.kind, finding.message) for finding in check_run(run_dir)]


def anchor(appended):
    return {"segment": appended.segment, "seq": appended.entry.seq, "hash": appended.hash}


def put_gate(run_dir, gate, *, job="d1-f1-1"):
    folder = run_dir / "jobs" / job
    folder.mkdir(parents=True)
    (folder / "gate.json").write_text(gate if isinstance(gate, str) else json.dumps(gate))
    return folder


def test_an_intact_run_has_no_findings(tmp_path):
    second = (RESUMED, LOST, AGAIN, FailureRecorded(kind="job", what="exit", message="3"))
    third = (
        RESUMED,
        ENDED.model_copy(update={"job": "d1-f1-2"}),
        RESULT.model_copy(update={"job": "d1-f1-2"}),
        RunStopped(rule="jobs", reason="1 job ended"),
    )
    appended = write(tmp_path, TO_PLANNED, second, third)
    put_gate(tmp_path, anchor(appended[6]))
    put_gate(tmp_path, anchor(appended[9]), job="d1-f1-2")

    assert check_run(tmp_path) == []


def test_a_run_that_goes_on_asking_has_no_findings(tmp_path):
    first = (
        *(STARTED, OPENED, ATTEMPT),
        ProposalRejected(decision=1, attempt=1, stage="schema", reasons=("no JSON",)),
        AttemptStarted(decision=1, attempt=2),
    )
    second = (
        RESUMED,  # attempt 2 was interrupted
        AttemptStarted(decision=1, attempt=3),
        ProposalMade(decision=1, attempt=3, proposal={}),
        CheckJudged(decision=1, attempt=3, check="soft", passed=False, hard=False),
        CheckJudged(decision=1, attempt=3, check="disc", passed=False),
        FALLBACK,
        CandidateHeld(decision=1, fingerprint="f1", cause="time", reason="no time is left"),
    )

    assert problems(tmp_path, first, second) == []


def test_a_run_in_which_a_person_decided_has_no_findings(tmp_path):
    parked = (STARTED, OPENED, ATTEMPT, PROPOSAL, FAILED, PARKED, SAID_YES, BY_PERSON, PLANNED)
    appended = write(tmp_path, (*parked, ENDED, RESULT_PARKED, RESULT_YES, RESULT))
    put_gate(tmp_path, anchor(appended[len(parked) - 1]))

    assert check_run(tmp_path) == []


def test_a_run_that_was_only_opened_has_no_findings(tmp_path):
    assert problems(tmp_path, ()) == []


def test_a_finding_says_where(tmp_path):
    write(tmp_path, (STARTED, OPENED), (RESUMED, OPENED))

    assert check_run(tmp_path) == [
        Finding("order", "0002.jsonl:3", "decision 1 is opened a second time")
    ]


@pytest.mark.parametrize(
    ("events", "kind", "message"),
    [
        ((STARTED, STARTED), "order", "the run is started a second time"),
        ((RESUMED,), "order", "the run is resumed and was never started"),
        ((OPENED,), "order", "nothing may begin here"),
        ((STARTED, RunSuspended(reason="SIGTERM"), OPENED), "order", "nothing may begin here"),
        ((*TO_ACCEPTED, RunStopped(rule="jobs", reason=""), PLANNED), "order", "nothing may begin"),
        ((STARTED, FALLBACK), "reference", "decision 1 was never opened"),
        ((STARTED, OPENED, FALLBACK, FALLBACK), "order", "decision 1 goes on after it was closed"),
        ((*TO_ACCEPTED, PASSED), "order", "decision 1 goes on after it was closed"),
        (
            (STARTED, OPENED, AttemptStarted(decision=1, attempt=2)),
            "order",
            "attempt 2 is started where 1 is due",
        ),
        ((STARTED, OPENED, PROPOSAL), "reference", "attempt 1 is answered and was not started"),
        (
            (STARTED, OPENED, ATTEMPT, PROPOSAL, PROPOSAL),
            "order",
            "attempt 1 is answered a second time",
        ),
        ((STARTED, OPENED, ATTEMPT, PASSED), "reference", "attempt 1 is judged and has no prop"),
        (
            (STARTED, OPENED, ATTEMPT, PROPOSAL, PASSED.model_copy(update={"attempt": 2})),
            "reference",
            "attempt 2 is judged and has no proposal",
        ),
        (
            (STARTED, OPENED, ATTEMPT, PROPOSAL, FAILED, ACCEPTED),
            "launch",
            "decision 1 is accepted though disc refused it",
        ),
        ((STARTED, OPENED, ATTEMPT, ACCEPTED), "launch", "decision 1 is accepted without a prop"),
        (
            (*TO_ACCEPTED, CandidateHeld(decision=1, fingerprint="f2", cause="jobs", reason="")),
            "reference",
            "decision 1 did not let f2 through",
        ),
        ((STARTED, PLANNED), "launch", "decision 1 did not let f1 through"),
        ((STARTED, OPENED, PLANNED), "launch", "decision 1 did not let f1 through"),
        (
            (STARTED, OPENED, ACCEPTED.model_copy(update={"disposition": "failed"}), PLANNED),
            "launch",
            "decision 1 did not let f1 through",
        ),
        (
            (*TO_ACCEPTED, PLANNED.model_copy(update={"candidate": {"x": 2.0}})),
            "launch",
            "job d1-f1-1 runs another candidate",
        ),
        (
            (*TO_ACCEPTED, PLANNED.model_copy(update={"reserved_node_h": 0.0})),
            "launch",
            "job d1-f1-1 reserves 0.0 node-hours for 3600.0 s; both must be above 0",
        ),
        (
            (*TO_ACCEPTED, PLANNED.model_copy(update={"walltime_s": -1.0})),
            "launch",
            "job d1-f1-1 reserves 1.0 node-hours for -1.0 s",
        ),
        (
            (*TO_PLANNED, LOST, AGAIN.model_copy(update={"job": "d1-f1-1"})),
            "order",
            "job d1-f1-1 is planned a second time",
        ),
        ((*TO_ACCEPTED, AGAIN), "order", "job d1-f1-2 is attempt 2 where 1 is due"),
        ((*TO_PLANNED, AGAIN), "launch", "job d1-f1-2 repeats d1-f1-1, which has not ended"),
        ((*TO_PLANNED, ENDED, RESULT, AGAIN), "launch", "job d1-f1-2 repeats d1-f1-1, which has a"),
        ((STARTED, ENDED), "reference", "job d1-f1-1 ended and was never planned"),
        ((*TO_PLANNED, ENDED, LOST), "order", "job d1-f1-1 ended a second time"),
        (
            (*TO_PLANNED, ENDED.model_copy(update={"charged_node_h": -1.0})),
            "order",
            "job d1-f1-1 is charged -1.0 node-hours",
        ),
        ((STARTED, RESULT), "reference", "there is no job d1-f1-1 of f1"),
        (
            (*TO_PLANNED, ENDED, RESULT.model_copy(update={"fingerprint": "f2"})),
            "reference",
            "there is no job d1-f1-1 of f2",
        ),
        ((*TO_PLANNED, RESULT), "order", "the result of job d1-f1-1 is judged before the job has"),
        (
            (*TO_PLANNED, ENDED, NO_RESULT, RESULT),
            "order",
            "the result of job d1-f1-1 is judged a second time",
        ),
        (
            (STARTED, OPENED, ATTEMPT, PROPOSAL, FAILED, BY_PERSON),
            "launch",
            "decision 1 is accepted by a person who never said so",
        ),
        (
            (STARTED, OPENED, ATTEMPT, PARKED, SAID_YES, BY_PERSON),
            "launch",
            "decision 1 is accepted without a proposal",
        ),
        (
            (STARTED, OPENED, ATTEMPT, PROPOSAL, FAILED, PARKED, PARKED),
            "order",
            "decision 1 is parked a second time, unanswered",
        ),
        ((STARTED, OPENED, SAID_YES), "reference", "D1 is resolved and was not parked"),
        ((STARTED, SAID_YES), "reference", "D1 is resolved and was not parked"),
        ((*TO_PLANNED, RESULT_PARKED), "reference", "the result of job d1-f1-1 is parked and ca"),
        (
            (*TO_PLANNED, ENDED, RESULT, RESULT_PARKED),
            "order",
            "the result of job d1-f1-1 is parked after it was judged",
        ),
        (
            (*TO_PLANNED, ENDED, RESULT_PARKED, RESULT),
            "launch",
            "the result of job d1-f1-1 is not what was said of it when asked",
        ),
        (
            (*TO_PLANNED, ENDED, RESULT_PARKED, RESULT_YES, NO_RESULT),
            "launch",
            "the result of job d1-f1-1 is not what was said of it when asked",
        ),
    ],
)
def test_what_cannot_be_is_found(tmp_path, events, kind, message):
    found = problems(tmp_path, events)

    assert any(k == kind and m.startswith(message) for k, m in found), found


def test_a_new_life_must_resume_before_it_launches(tmp_path):
    assert problems(tmp_path, TO_ACCEPTED, (PLANNED,)) == [
        ("order", "nothing may begin here: the run is not started, or was stopped")
    ]


def test_damage_is_a_finding_and_what_stands_before_it_is_checked(tmp_path):
    write(tmp_path, (OPENED, STARTED, OPENED))
    segment = tmp_path / "ledger" / "0001.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b'"seed":0', b'"seed":1'))

    assert [(finding.kind, finding.where) for finding in check_run(tmp_path)] == [
        ("order", "0001.jsonl:2"),
        ("chain", "0001.jsonl:3"),
    ]


@pytest.mark.parametrize("folder", [False, True])
def test_a_run_without_a_ledger_is_a_finding(tmp_path, folder):
    if folder:
        (tmp_path / "ledger").mkdir()

    assert [(finding.kind, finding.where) for finding in check_run(tmp_path)] == [
        ("chain", "ledger")
    ]


def cut_off_last_lines(run_dir, count):
    segment = run_dir / "ledger" / "0001.jsonl"
    segment.write_bytes(b"".join(segment.read_bytes().splitlines(keepends=True)[:-count]))


def test_lines_cut_off_the_very_end_are_found_by_a_jobs_gate(tmp_path):
    appended = write(tmp_path, TO_PLANNED)
    put_gate(tmp_path, anchor(appended[-1]))
    cut_off_last_lines(tmp_path, 2)

    (finding,) = check_run(tmp_path)

    assert (finding.kind, finding.where) == ("gate", "jobs/d1-f1-1")
    assert finding.message.startswith("gate.json names a line that the ledger does not hold")


def test_after_damage_the_jobs_that_only_the_rest_explains_are_left_out(tmp_path):
    appended = write(tmp_path, TO_PLANNED)
    put_gate(tmp_path, anchor(appended[-1]))
    segment = tmp_path / "ledger" / "0001.jsonl"
    segment.write_bytes(segment.read_bytes().replace(b'"seed":0', b'"seed":1'))

    assert [finding.kind for finding in check_run(tmp_path)] == ["chain"]


@pytest.mark.parametrize(
    "change", [{"seq": 3}, {"hash": "0" * 64}, {"segment": "0002.jsonl"}, {"seq": None}]
)
def test_a_gate_that_names_another_line_is_found(tmp_path, change):
    appended = write(tmp_path, TO_PLANNED)
    put_gate(tmp_path, {**anchor(appended[-1]), **change})

    (finding,) = check_run(tmp_path)

    assert finding.kind == "gate"
    assert finding.message.startswith("gate.json does not name the job's line")


@pytest.mark.parametrize("gate", ["[]", "null", '"gate"', "7"])
def test_a_gate_that_is_no_mapping_is_found(tmp_path, gate):
    write(tmp_path, TO_PLANNED)
    put_gate(tmp_path, gate)

    (finding,) = check_run(tmp_path)

    assert finding.message.startswith("gate.json does not name the job's line")


@pytest.mark.parametrize("gate", ["", "{", "[" * 60_000, " " * 70_000])
def test_a_gate_that_cannot_be_read_is_found(tmp_path, gate):
    write(tmp_path, TO_PLANNED)
    put_gate(tmp_path, gate)

    (finding,) = check_run(tmp_path)

    assert finding.message.startswith("gate.json cannot be read")


def put_link(path, target):
    target.write_text("{}")
    path.symlink_to(target)


def put_pipe(path, _):
    os.mkfifo(path)


def put_folder(path, _):
    path.mkdir()


@pytest.mark.parametrize("put", [put_link, put_pipe, put_folder])
def test_a_gate_that_is_no_plain_file_is_found_and_not_followed(tmp_path, put):
    write(tmp_path, TO_PLANNED)
    folder = put_gate(tmp_path, "")
    (folder / "gate.json").unlink()
    put(folder / "gate.json", tmp_path / "target")

    (finding,) = check_run(tmp_path)

    assert finding.message.startswith("gate.json cannot be read")


def test_a_job_that_ran_without_a_gate_is_found(tmp_path):
    write(tmp_path, (*TO_PLANNED, ENDED))
    (tmp_path / "jobs" / "d1-f1-1").mkdir(parents=True)

    (finding,) = check_run(tmp_path)

    assert finding == Finding("gate", "jobs/d1-f1-1", "the job ran and gate.json is missing")


LOST_LATER = LOST.model_copy(update={"started_at": 5.0})
ORPHANED = LOST_LATER.model_copy(update={"end": End.ORPHANED})


@pytest.mark.parametrize("end", [(), (LOST,), (LOST_LATER,), (ORPHANED,)])
def test_a_job_that_may_never_have_been_launched_needs_no_gate(tmp_path, end):
    write(tmp_path, (*TO_PLANNED, *end))
    (tmp_path / "jobs" / "d1-f1-1").mkdir(parents=True)

    assert check_run(tmp_path) == []


def test_a_job_folder_that_nothing_allowed_is_found(tmp_path):
    write(tmp_path, TO_ACCEPTED)
    (tmp_path / "jobs" / "stray").mkdir(parents=True)
    (tmp_path / "jobs" / "notes.txt").write_text("")
    (tmp_path / "jobs" / "link").symlink_to(tmp_path)

    assert check_run(tmp_path) == [
        Finding("gate", "jobs/stray", "no line of the ledger allows this job")
    ]


def test_jobs_that_cannot_be_listed_are_a_finding(tmp_path):
    write(tmp_path, TO_PLANNED)
    (tmp_path / "jobs").write_text("")

    assert check_run(tmp_path) == [
        Finding("gate", "jobs", "the folder cannot be read: Not a directory")
    ]
