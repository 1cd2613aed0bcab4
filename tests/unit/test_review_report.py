from __future__ import annotations

import base64
import gzip
import hashlib
import json
import random
import re
from dataclasses import replace
from html.parser import HTMLParser
from itertools import accumulate
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchgate.errors import LedgerError
from batchgate.events import (
    AttemptStarted,
    CandidateHeld,
    CheckJudged,
    DecisionMade,
    DecisionOpened,
    DecisionParked,
    Entry,
    FailureRecorded,
    JobEnded,
    JobPlanned,
    ParkedResolved,
    ProposalMade,
    ProposalRejected,
    ResultAccepted,
    ResultParked,
    ResultRejected,
    RunStopped,
    SegmentClosed,
    ServerStarted,
)
from batchgate.job import End, JobState
from batchgate.ledger import Ledger
from batchgate.review.occupancy import Occupancy
from batchgate.review.record import RunRecord
from batchgate.review.report import Findings, page, write_report
from batchgate.review.report.bars import bill, funnel, grant
from batchgate.review.report.html import Markup, joined, tag
from batchgate.review.report.lanes import DENSE, MAX_LANES, lanes
from batchgate.review.report.lines import ROOMS, lines, room_for
from batchgate.review.report.packing import DETAILS, LINES, packed, packed_details
from batchgate.review.report.progress import progress
from batchgate.review.report.rivals import rivals
from batchgate.review.report.scatter import scatters
from batchgate.review.report.svg import Scale, log_ticks, round_step
from batchgate.review.report.table import Line
from batchgate.review.text import visible
from tests.synthetic_run import START_AT, Script, chosen, figures, findings, hostile, night, started

GOLDEN = Path(__file__).parents[1] / "golden" / "report.html"


class Page(HTMLParser):
    """What a browser would make of a page, as far as the tests ask."""

    def __init__(self, document: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def all(self, name: str) -> list[dict[str, str | None]]:
        return [attributes for tag, attributes in self.tags if tag == name]


def unpacked(document: str) -> dict[str, list[Any]]:
    """Return the lines of the table as columns, as the page's script would."""
    columns: dict[str, list[Any]] = {}
    for packed_block in block(document, "attempts-data").split(" "):
        for name, column in unpacked_block(packed_block).items():
            columns.setdefault(name, []).extend(column)
    blocks = block(document, "attempts-details").split(" ")
    return columns | {"details": [details for each in blocks for details in data(each)]}


def unpacked_block(packed_block: str) -> dict[str, list[Any]]:
    """Return a block of lines with the decisions' numbers and the lines' ids in it."""
    columns: dict[str, list[Any]] = data(packed_block)
    decisions = list(accumulate(columns.pop("decision_step")))
    ids = [
        f"{decision}.{attempt}" if attempt else str(decision)
        for decision, attempt in zip(decisions, columns["attempt"], strict=True)
    ]
    return {"id": ids, "decision": decisions, **columns}


def block(document: str, name: str) -> str:
    match = re.search(rf'<script id="{name}"[^>]*>([^<]*)</script>', document)
    assert match
    return match[1]


def data(packed: str) -> Any:
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def content(document: str) -> str:
    """Return a page without its own style and script, its packed data readable.

    Compressed bytes differ between builds of zlib; what they hold does not.
    """
    columns = json.dumps(unpacked(document), indent=1, ensure_ascii=False)
    document = re.sub(r"(?s)<style>.*?</style>", "<style></style>", document)
    document = re.sub(r"(?s)<script>.*?</script>", "<script></script>", document)
    document = re.sub(r"sha256-[\w+/=]+", "sha256-", document)
    document = re.sub(r"(branin) [0-9a-f]{12}", r"\1", document)
    document = document.replace(block(document, "attempts-data"), columns)
    document = document.replace(block(document, "attempts-details"), "")
    return document.replace("><", ">\n<")


# --- html ----------------------------------------------------------------------------------------


@given(st.text(), st.text())
def test_no_text_can_leave_its_element_or_its_attribute(text: str, value: str) -> None:
    found = Page(tag("p", text, title=value))

    assert found.tags == [("p", {"title": visible(value)})]
    assert "".join(found.text) == visible(text)


def test_elements_are_written_as_html_has_them() -> None:
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert tag("b", 1, [" and ", tag("i", "2")]) == "<b>1 and <i>2</i></b>"
    assert tag("a", class_="x", aria_label="y", href=None, hidden=True, x=1.25) == (
        '<a class="x" aria-label="y" hidden x="1.2"></a>'
    )
    assert joined(Markup("<b>"), "<b>") == "<b>&lt;b&gt;"


# --- svg -----------------------------------------------------------------------------------------


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6), st.integers(2, 10))
def test_ticks_are_round_and_lie_within_their_scale(low: float, width: float, count: int) -> None:
    scale = Scale(low, low + width, 0, 100)

    ticks = scale.ticks(count)

    slack = width * 1e-6 + abs(low) * 1e-12
    assert all(low - slack <= tick <= low + width + slack for tick in ticks)
    assert len(ticks) <= count + 1
    assert all(0 <= scale(tick) <= 100 for tick in ticks)


@pytest.mark.parametrize(
    ("low", "high", "labels"),
    [
        (0, 1, ["0", "0.2", "0.4", "0.6", "0.8", "1"]),
        (
            -1234.5681,
            -1234.5672,
            ["-1234.568", "-1234.5678", "-1234.5676", "-1234.5674", "-1234.5672"],
        ),
        (0, 4e7, ["0", "1e+07", "2e+07", "3e+07", "4e+07"]),
        (-0.3, 0.3, ["-0.2", "0", "0.2"]),
    ],
)
def test_labels_of_ticks_can_be_told_apart(low: float, high: float, labels: list[str]) -> None:
    scale = Scale(low, high, 0, 100)

    assert [scale.label(tick) for tick in scale.ticks()] == labels


def test_values_beyond_a_scale_stay_at_its_ends() -> None:
    scale = Scale(1, 100, 200, 0, log=True)

    assert [scale(v) for v in (0.1, 1, 10, 1e9)] == pytest.approx([200, 200, 100, 0])


def test_steps_and_ticks_are_those_people_choose() -> None:
    assert [round_step(s) for s in (0.7, 1.0, 1.1, 2.3, 6)] == [1, 1, 2, 5, 10]
    assert log_ticks(0.5, 2000) == [1, 10, 100, 1000]
    assert log_ticks(1, 60) == [1, 2, 5, 10, 20, 50]


# --- charts --------------------------------------------------------------------------------------


def charts(entries: list[Entry]) -> list[Markup | None]:
    record = RunRecord.of(entries)
    return [
        progress(record),
        lanes(record, Occupancy.of(record)),
        funnel(record),
        grant(figures(entries).node_h),
    ]


def drawn(chart: Markup | None, class_: str) -> list[ET.Element]:
    assert chart is not None
    return [path for path in ET.fromstring(chart).iter("path") if path.get("class") == class_]


def titles(chart: Markup | None, class_: str) -> list[str]:
    return [text for path in drawn(chart, class_) for text in path.itertext()]


Fate = tuple[float, bool] | End | None
"""What becomes of a job: a value and whether it is feasible, another end, nothing yet."""


def results(*fates: Fate, **changes: Any) -> RunRecord:
    """Return a run with a job for each fate, a second and half a node-hour long."""
    return RunRecord.of(ended(*fates, **changes))


def ended(*fates: Fate, **changes: Any) -> list[Entry]:
    """Return the entries of such a run."""
    script = Script().begin(**changes)
    for number, fate in enumerate(fates, start=1):
        one, job = chosen(x1=float(number % 10), x2=number / 100), f"j{number}"
        script.add(
            DecisionOpened(decision=number),
            DecisionMade(decision=number, disposition="accepted", candidates=(one,)),
            JobPlanned(
                job=job,
                decision=number,
                fingerprint=one.fingerprint,
                candidate=one.candidate,
                level="fine",
                reserved_node_h=0.1,
                walltime_s=600,
            ),
        )
        if fate is None:
            continue
        end = fate if isinstance(fate, End) else End.COMPLETED
        state = JobState.COMPLETED if end is End.COMPLETED else JobState.FAILED
        times = {"started_at": script.now_at, "ended_at": script.now_at + 1}
        script.add(JobEnded(job=job, state=state, end=end, charged_node_h=0.5, **times))
        if isinstance(fate, tuple):
            values, feasible = {"y": fate[0]}, fate[1]
            script.add(
                ResultAccepted(
                    job=job, fingerprint=one.fingerprint, values=values, feasible=feasible
                )
            )
    return script.entries


@pytest.mark.parametrize("decisions", [3, 60, 700])
def test_charts_are_well_formed_and_say_what_they_show(decisions: int) -> None:
    for chart in charts(night(decisions=decisions)):
        assert chart is not None
        root = ET.fromstring(chart)
        assert root.get("role") == "img"
        assert root.get("aria-label")


def test_progress_marks_every_ended_job() -> None:
    chart = progress(results((5.0, True), End.TIMED_OUT, (3.0, False), (4.0, True)))

    assert titles(chart, "model") == ["j1 (D1): 5", "j4 (D4): 4"]
    assert titles(chart, "model hollow") == ["j3 (D3): 3, infeasible"]
    assert titles(chart, "bad stroke") == ["j2 (D2): timed out"]


def test_the_line_of_progress_has_a_step_for_every_better_feasible_result() -> None:
    chart = progress(results((5.0, True), (6.0, True), (3.0, False), (4.0, True), (4.0, True)))

    line = drawn(chart, "best")[0].get("d") or ""
    assert re.fullmatch(r"M[\d.]+ [\d.]+H[\d.]+V[\d.]+H868\.0", line)


def test_progress_without_a_feasible_result_has_no_line() -> None:
    chart = progress(results((5.0, False), (6.0, False)))

    assert len(drawn(chart, "best")) == 1  # the legend's


def test_a_far_outlier_is_marked_at_the_edge_and_told() -> None:
    values = [(float(v), True) for v in (-1, 0, 1, 2, 3, 4, 5, 6, 7, 10_000)]

    chart = progress(results(*values))

    assert titles(chart, "model")[-1] == "j10 (D10): 10000, off the scale"


def test_outliers_are_cut_at_the_worse_end_of_a_maximised_objective_too() -> None:
    fates = [(float(v), True) for v in (-10_000, 0, 1, 2, 3, 4, 5, 6, 7, 8)]

    chart = progress(results(*fates, objectives={"y": "MAXIMIZE"}))

    assert titles(chart, "model")[0] == "j1 (D1): -10000, off the scale"
    assert titles(chart, "model")[-1] == "j10 (D10): 8"
    assert "y, higher is better" in (chart or "")


def test_positive_values_over_decades_get_a_logarithmic_axis() -> None:
    chart = progress(results((0.4, True), (40.0, True), (300.0, True)))

    assert chart is not None
    assert [t for t in ("1", "10", "100") if f">{t}</text>" in chart] == ["1", "10", "100"]
    assert "off the scale" not in chart


@pytest.mark.parametrize("value", [0.0, -3.0, 1e-12, 1e12])
def test_equal_values_still_have_an_axis(value: float) -> None:
    assert progress(results((value, True), (value, True))) is not None


def test_progress_counts_the_node_hours_that_were_charged() -> None:
    chart = progress(results((5.0, True), (6.0, True)))

    assert chart is not None
    assert ">0.5 h</text>" in chart
    assert ">1 h</text>" in chart


def test_lanes_show_jobs_by_what_became_of_them() -> None:
    found = results((5.0, True), End.TIMED_OUT, End.CANCELED, None)

    chart = lanes(found, Occupancy.of(found))

    assert titles(chart, "model") == ["j1 (D1): feasible after 1 s"]
    assert titles(chart, "bad") == ["j2 (D2): timed out after 1 s"]
    assert titles(chart, "other") == ["j3 (D3): cancelled after 1 s"]
    assert titles(chart, "running") == ["j4 (D4): running after 0 s"]


def test_more_lanes_than_can_be_read_are_left_out_and_told() -> None:
    document = page(findings(ended((5.0, True), slots=MAX_LANES + 3)))

    assert f">slot {MAX_LANES - 3}</text>" in document
    assert f">slot {MAX_LANES + 1}</text>" not in document
    assert "3 more slots are not drawn." in document


def test_the_funnel_narrows_from_decisions_to_feasible_results() -> None:
    chart = funnel(results((5.0, True), (6.0, False), End.EXIT, None))

    assert chart is not None
    told = re.findall(r'class="value"[^>]*>([^<]*)<', chart)
    assert told == ["4", "4", "4", "2", "2", "1"]


def test_many_marks_become_one_path_for_each_class() -> None:
    few, many = results(*[(1.0, True)] * 50), results(*[(1.0, True)] * 700)

    # One of the paths is the legend's.
    assert len(drawn(progress(few), "model")) == 51
    assert len(drawn(progress(many), "model")) == 2


def test_very_many_results_are_dots_in_whole_pixels() -> None:
    chart = progress(results(*[(1.0 + n % 7, n % 3 > 0) for n in range(1200)], End.EXIT))

    (dots,) = drawn(chart, "dots model")
    assert re.fullmatch(r"(M\d+ \d+h0)+", dots.get("d") or "")
    assert drawn(chart, "dots model hollow")
    assert drawn(chart, "dots bad")


def test_a_crowded_lane_is_drawn_as_what_it_was_busy_with() -> None:
    fates = [End.EXIT if n % 50 == 0 else (1.0, True) for n in range(5 * DENSE)]
    found = results(*fates, slots=1)

    area = {
        name: sum(map(area_of, bars_of(lanes(found, Occupancy.of(found)), name)))
        for name in ("model", "bad")
    }

    # Each column's parts are as high as their shares of its time: one job in 50 failed.
    assert area["bad"] / (area["bad"] + area["model"]) == pytest.approx(1 / 50, rel=0.05)


def bars_of(chart: Markup | None, class_: str) -> list[str]:
    """Return the boxes of a class, those of the legend left out."""
    *paths, _ = (path.get("d") or "" for path in drawn(chart, class_))
    return re.findall(r"M[^M]+", "".join(paths))


def area_of(box: str) -> float:
    width, height = re.fullmatch(r"M[-\d.]+ [-\d.]+h([\d.]+)v([\d.]+)h[-\d.]+z", box).groups()  # type: ignore[union-attr]
    return float(width) * float(height)


def test_rivals_start_at_their_first_feasible_result_and_go_on_to_their_last_hour() -> None:
    script = Script()
    script.entries = ended((5.0, True), (6.0, False), (4.0, True))
    script.now_at = script.entries[-1].at
    one = chosen(x1=9.0, x2=1.0)
    made = {"disposition": "fallback", "candidates": (one,)}
    script.add(DecisionOpened(decision=9), DecisionMade(decision=9, **made))
    script.add(planned("j9", 9, one), ran("j9", node_h=0.5), accepted("j9", one, 7.0))

    chart = rivals(RunRecord.of(script.entries))

    assert chart is not None
    model, _ = (path.get("d") or "" for path in drawn(chart, "course model"))
    surrogate, _ = (path.get("d") or "" for path in drawn(chart, "course surrogate"))
    assert re.fullmatch(r"M[\d.]+ [\d.]+H868\.0V[\d.]+H868\.0", model)
    assert re.fullmatch(r"M([\d.]+) [\d.]+H\1", surrogate)
    assert "model: 4 for 1.5 node-hours" in chart
    assert "surrogate: 7 for 0.5 node-hours" in chart


def test_rivals_need_a_result_of_both() -> None:
    assert rivals(results((5.0, True))) is None
    assert rivals(RunRecord.of([])) is None


def test_a_verifier_is_drawn_beside_the_job_with_the_line_where_both_agree() -> None:
    (chart,) = scatters(RunRecord.of(night(decisions=30)))

    assert len(drawn(chart, "equal")) == 2
    told = titles(chart, "done")
    assert told
    assert all(re.fullmatch(r"D\d+\.\d: \S+ and \S+", one) for one in told)


def test_the_bill_is_drawn_by_what_it_went_on() -> None:
    chart = bill(findings(night(decisions=30, everything=True)).hours)

    kinds = [path.get("class") for path in ET.fromstring(chart or "").iter("path")]
    assert kinds == ["done", "overdue", "lost", "verifying", "serving", "idle"]


def test_no_bill_is_drawn_before_anything_was_spent() -> None:
    assert bill(findings(Script().begin().entries).hours) is None


# --- the table -----------------------------------------------------------------------------------


def test_the_table_has_a_line_for_each_attempt_and_one_for_what_was_taken_instead() -> None:
    script = Script().begin()
    where = {"decision": 1, "attempt": 1}
    script.add(
        DecisionOpened(decision=1),
        AttemptStarted(**where),
        ProposalMade(**where, proposal={"rationale": "why", "candidates": [{"x1": 1.0}]}),
        CheckJudged(**where, check="disc", passed=False, reasons=("too far", "too high")),
        DecisionMade(
            decision=1,
            disposition="fallback",
            candidates=(chosen(x1=2.0, x2=3.0),),
            cause="rejected",
            batch=4,
        ),
        DecisionOpened(decision=2),
    )

    attempt, taken, opened = lines(RunRecord.of(script.entries))

    assert (attempt.id, attempt.source, attempt.verdict) == ("1.1", "model", "rejected")
    assert (attempt.proposal, attempt.rejected_by) == ("x1=1", ("disc",))
    assert attempt.checks == (("disc", "fail", "too far; too high"),)
    assert attempt.disposition == "fallback (rejected)"
    assert ("rationale", "why") in attempt.details
    assert (taken.id, taken.source, taken.verdict) == ("1", "surrogate", "taken")
    assert taken.proposal == "x1=2 x2=3"
    assert ("Batch of the surrogate", "4") in taken.details
    assert (opened.id, opened.source, opened.verdict) == ("2", "model", "open")


def test_the_line_that_let_candidates_through_tells_what_their_jobs_found() -> None:
    found = lines(results((5.0, True), (6.0, False), End.TIMED_OUT, None))

    assert [(line.result, line.value) for line in found] == [
        ("5 (feasible)", 5.0),
        ("infeasible", None),
        ("timed out", None),
        ("running", None),
    ]
    (job,) = (told for label, told in found[0].details if label == "Job j1")
    assert job == "feasible; y=5; ran 1 s on ; charged 0.5 node-hours"


def test_long_texts_are_cut_and_say_so() -> None:
    found = lines(RunRecord.of(hostile()))

    rejected = found[0]
    assert re.search(r"… \(\+\d+ characters\)$", rejected.proposal)
    (answer,) = (told for label, told in rejected.details if label == "Answer")
    assert re.search(r"… \(\+\d+ characters\)$", answer)


def test_packed_lines_are_columns_of_equal_length_without_a_bracket() -> None:
    found = lines(RunRecord.of(night()))

    text = packed(found)

    columns = unpacked_block(text)
    assert "<" not in text
    assert set(columns) == set(Line.__dataclass_fields__) - {"details"}
    assert {len(column) for column in columns.values()} == {len(found)}
    assert columns["id"] == [line.id for line in found]
    assert columns["decision"] == [line.decision for line in found]


def test_a_block_of_lines_is_read_without_the_blocks_before_it() -> None:
    (line, *_) = lines(RunRecord.of(night(decisions=3)))
    found = [replace(line, decision=place) for place in range(10, LINES + 12)]

    blocks = [unpacked_block(each) for each in packed(found).split(" ")]

    assert [len(each["id"]) for each in blocks] == [LINES, 2]
    assert blocks[1]["decision"] == [LINES + 10, LINES + 11]


def test_details_are_packed_in_blocks_in_the_order_of_their_lines() -> None:
    (line, *_) = lines(RunRecord.of(night(decisions=3)))
    found = [replace(line, details=(("Place", str(place)),)) for place in range(DETAILS + 2)]

    blocks = [data(block) for block in packed_details(found).split(" ")]

    assert [len(block) for block in blocks] == [DETAILS, 2]
    assert blocks[1][0] == [["Place", str(DETAILS)]]


def planned(job: str, decision: int, one: Any, **more: Any) -> JobPlanned:
    return JobPlanned(
        job=job,
        decision=decision,
        fingerprint=one.fingerprint,
        candidate=one.candidate,
        level="fine",
        reserved_node_h=0.1,
        walltime_s=600,
        **more,
    )


def ran(job: str, *, node_h: float = 0.1) -> JobEnded:
    return JobEnded(job=job, state=JobState.COMPLETED, end=End.COMPLETED, charged_node_h=node_h)


def accepted(job: str, one: Any, y: float) -> ResultAccepted:
    return ResultAccepted(job=job, fingerprint=one.fingerprint, values={"y": y}, feasible=True)


def rejected_decision(script: Script, one: Any) -> Script:
    """Open decision 1, and let its only attempt be rejected."""
    where = {"decision": 1, "attempt": 1}
    return script.add(
        DecisionOpened(decision=1),
        AttemptStarted(**where),
        ProposalMade(**where, proposal={"candidates": [dict(one.candidate)]}),
        CheckJudged(
            **where, check="disc", passed=False, reasons=("too far",), refused=(one.fingerprint,)
        ),
    )


def test_an_audit_is_told_at_the_attempt_whose_candidate_it_ran() -> None:
    one, other = chosen(x1=1.0, x2=1.0), chosen(x1=2.0, x2=2.0)
    audit = one.model_copy(update={"audit_probability": 0.25})
    script = rejected_decision(Script().begin(), one)
    script.add(
        DecisionMade(
            decision=1, disposition="fallback", candidates=(other, audit), cause="rejected"
        ),
        planned("j1", 1, other),
        planned("j2", 1, one),
        ran("j1"),
        accepted("j1", other, 9.0),
        ran("j2"),
        accepted("j2", one, 3.0),
    )
    record = RunRecord.of(script.entries)

    attempt, taken = lines(record)

    assert (attempt.verdict, attempt.result) == ("rejected", "3 (audit: feasible)")
    assert "Audit j2" in dict(attempt.details)
    assert (taken.proposal, taken.result) == ("x1=2 x2=2", "9 (feasible)")
    assert [job.source for job in record.jobs] == ["surrogate", "model"]


def test_a_parked_decision_has_a_line_that_says_until_when() -> None:
    script = rejected_decision(Script().begin(), chosen(x1=1.0, x2=1.0))
    script.add(DecisionParked(decision=1, expires_at=START_AT + 7200))

    attempt, waiting = lines(RunRecord.of(script.entries))

    assert attempt.disposition == "parked"
    assert (waiting.id, waiting.source, waiting.verdict) == ("1", "person", "parked")
    told = dict(waiting.details)["Person, D1"]
    assert told.endswith("waits until 2026-05-28 22:26:40 UTC")


@pytest.mark.parametrize(
    ("action", "disposition", "told"),
    [
        ("accept", "accepted", "accepted by ada after 1 s: fine"),
        ("reject", "refused", "rejected by ada after 1 s: fine"),
        ("expire", "fallback", "nobody answered within 1 s"),
    ],
)
def test_what_a_person_answered_is_told(action: Any, disposition: Any, told: str) -> None:
    one = chosen(x1=1.0, x2=1.0)
    script = rejected_decision(Script().begin(), one)
    candidates = () if action == "reject" else (one,)
    made = DecisionMade(decision=1, disposition=disposition, candidates=candidates, cause="person")
    script.add(
        DecisionParked(decision=1, expires_at=START_AT),
        ParkedResolved(what="D1", action=action, by="ada", reason="fine"),
        made,
    )

    _, line = lines(RunRecord.of(script.entries))

    assert line.verdict == ("refused" if action == "reject" else "taken")
    assert dict(line.details)["Person, D1"].endswith(told)


def test_a_parked_result_and_one_that_ran_again_are_told_at_their_decision() -> None:
    one, what = chosen(x1=1.0, x2=1.0), {"fingerprint": "", "reasons": ("residual is 1",)}
    script = Script().begin().add(DecisionOpened(decision=1))
    script.add(
        DecisionMade(decision=1, disposition="fallback", candidates=(one,)),
        planned("j1", 1, one),
        ran("j1"),
        ResultRejected(job="j1", **(what | {"fingerprint": one.fingerprint}), again=True),
        planned("j2", 1, one, attempt=2, rerun=1),
        ran("j2"),
        ResultParked(job="j2", **what, expires_at=START_AT),
    )

    (line,) = lines(RunRecord.of(script.entries))

    details = dict(line.details)
    assert line.result == "1 invalid, 1 parked"
    assert "with changed settings, after 1 rejected result" in details["Job j2"]
    assert details["Person, j2"].endswith("residual is 1")


def test_the_sample_that_was_accepted_is_named() -> None:
    where = {"decision": 1, "attempt": 1}
    one, other = {"candidates": [{"x1": 1.0}]}, {"candidates": [{"x1": 2.0}]}
    script = Script().begin().add(DecisionOpened(decision=1), AttemptStarted(**where))
    script.add(
        ProposalMade(**where, proposal=one, others=(other,)),
        CheckJudged(**where, check="disc", passed=False, reasons=("no",)),
        CheckJudged(**where, check="disc", passed=True, sample=2),
        DecisionMade(decision=1, disposition="accepted", sample=2),
    )

    (line,) = lines(RunRecord.of(script.entries))

    details = dict(line.details)
    assert (line.proposal, line.verdict) == ("x1=2", "accepted")
    assert (details["Sample 1"], details["Sample 2, accepted"]) == ("x1=1", "x1=2")


# --- the page ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("entries", "told"),
    [
        ([], "A run that never started"),
        (Script().begin().entries, "No decision was opened yet."),
        (
            Script()
            .begin()
            .add(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))
            .entries,
            "it runs still, or its runner was killed",
        ),
        (
            Script()
            .begin()
            .add(RunStopped(rule="node_h", reason="spent"), SegmentClosed())
            .entries,
            "Finished by the rule 'node_h'",
        ),
        (
            Script().begin().add(RunStopped(rule="failures", reason="5", failed=True)).entries,
            "Ended by failures",
        ),
    ],
)
def test_a_run_can_be_reported_at_any_point(entries: list[Any], told: str) -> None:
    assert told in "".join(Page(page(findings(entries))).text)


def test_a_run_can_be_reported_after_each_of_its_events() -> None:
    entries = night(decisions=6)

    for events in range(0, len(entries), 3):
        assert page(findings(entries[:events])).endswith("</html>\n")


def test_a_page_needs_nothing_from_outside() -> None:
    found = Page(page(findings(night())))

    assert not {tag for tag, _ in found.tags} & {"link", "img", "iframe", "object", "embed", "base"}
    assert not [a for _, attributes in found.tags for a in attributes if a in {"src", "style"}]
    assert not [a for _, attributes in found.tags for a in attributes if a.startswith("on")]
    assert all((a["href"] or "").startswith("#") for a in found.all("a"))


def test_only_the_pages_own_style_and_script_are_allowed() -> None:
    document = page(findings(hostile()))

    (policy,) = (
        meta["content"] or ""
        for meta in Page(document).all("meta")
        if meta.get("http-equiv") == "Content-Security-Policy"
    )
    for name, directive in (("style", "style-src"), ("script", "script-src")):
        match = re.search(rf"(?s)<{name}>(.*?)</{name}>", document)
        assert match
        digest = base64.b64encode(hashlib.sha256(match[1].encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")


def test_text_of_strangers_makes_no_element_and_keeps_no_hidden_character() -> None:
    document = page(findings(hostile()))

    found = Page(document)
    assert not found.all("img")
    assert len(found.all("script")) == 3
    assert "[U+202E]" in document
    assert not re.search("[\u202a-\u202e\u200b\x1b\x00]", document)
    told = json.dumps(unpacked(document), ensure_ascii=False)
    assert not re.search("[\u202a-\u202e\u200b\x1b\x00]", told)


def test_the_same_run_gives_the_same_page() -> None:
    assert page(findings(night())) == page(findings(night()))


def test_every_attempt_is_in_the_page_as_a_row_and_as_data() -> None:
    found = findings(night())

    document = page(found)

    ids = unpacked(document)["id"]
    for attempt in found.record.attempts:
        assert f"{attempt.decision}.{attempt.number}" in ids
        assert f">D{attempt.decision}.{attempt.number}<" in document


def test_links_of_the_check_table_name_checks_that_can_be_chosen() -> None:
    found = Page(page(findings(night())))

    links = {a["href"] for a in found.all("a")}
    choices = {option["value"] for option in found.all("option")}
    assert "#check=spacing&attempt=1" in links
    assert {"spacing", "disc", "coarse", "truncated"} <= choices


def test_attempt_numbers_beyond_the_table_are_told_together() -> None:
    script = Script().begin().add(DecisionOpened(decision=1))
    for attempt in range(1, 10):
        where = {"decision": 1, "attempt": attempt}
        script.add(
            AttemptStarted(**where),
            ProposalMade(**where, proposal={"candidates": [{"x1": 1.0 * attempt, "x2": 2.0}]}),
            CheckJudged(**where, check="disc", passed=attempt % 2 == 0, reasons=("no",)),
        )

    document = page(findings(script.entries))

    assert '<th scope="col" class="number">later</th>' in document
    assert "2 of 3" in document
    assert "5 of 9" in document


def test_many_failures_are_cut_and_told() -> None:
    script = Script().begin()
    for number in range(60):
        script.add(FailureRecorded(kind="server", what="died", message=f"failure {number}"))

    document = page(findings(script.entries))

    assert "failure 59" in document
    assert "failure 9<" not in document
    assert "10 older ones are in the ledger." in document


def test_a_page_of_many_long_texts_fits_into_six_megabytes() -> None:
    document = page(many(1_500))

    assert len(document.encode()) < 6_000_000
    assert "Without a script the first 1,000 of 3,000 lines are shown." in document


def test_a_page_whose_texts_are_cut_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchgate.review.report.lines.room_for", lambda record: ROOMS[-1])

    document = page(findings(night(decisions=6)))

    assert "texts are cut to 32 characters, details are left out;" in document


def test_texts_have_less_room_where_there_are_more_lines() -> None:
    record = many(150).record

    rooms = [room_for(record, budget=budget) for budget in (10**9, 100_000, 30_000, 10)]

    assert rooms == sorted(rooms, key=ROOMS.index)
    assert rooms[0] is ROOMS[0]
    assert rooms[-1] is ROOMS[-1]
    assert len(set(rooms)) > 2
    shown = lines(record, room=rooms[-1])
    assert {line.details for line in shown} == {()}
    assert max(len(line.proposal) for line in shown) < 60


def many(decisions: int) -> Findings:
    """Return findings of a run of two attempts a decision, each with long texts of its own."""
    source = random.Random(5)
    words = ["spacing", "valley", "pressure", "minimum", "ratio", "flow", "bound", "energy"]
    small = findings(night(decisions=40, everything=True))
    template = next(d for d in small.record.decisions if d.disposition == "accepted")
    long = [
        " ".join(f"{source.choice(words)}{source.randrange(1000)}" for _ in range(60))
        for _ in range(1000)
    ]

    def attempt(decision: int, number: int) -> Any:
        point = {f"x{i}": round(source.uniform(-5, 10), 4) for i in range(6)}
        where = {"decision": decision, "attempt": number}
        reason = f"x1={point['x1']} {source.choice(long)}"
        checks = (
            CheckJudged(**where, check="disc", passed=True, elapsed_s=source.random()),
            CheckJudged(**where, check="spacing", passed=False, reasons=(reason,)),
        )
        return replace(
            template.attempts[-1],
            decision=decision,
            number=number,
            started_at=START_AT + decision * 90 + number * 40,
            answer_s=3 + source.random() * 9,
            proposal={"rationale": source.choice(long), "candidates": [point]},
            response_id=f"chatcmpl-{source.randrange(10**12)}",
            checks=checks,
            rejected_by=("spacing",),
            outcome="rejected",
        )

    rows = tuple(
        replace(template, number=n, attempts=(attempt(n, 1), attempt(n, 2)), candidates=())
        for n in range(1_000_000, 1_000_000 + decisions)
    )
    return replace(small, record=replace(small.record, decisions=rows))


def test_a_page_looks_as_it_did() -> None:
    """To accept a change: `PYTHONPATH=. python tests/unit/test_review_report.py`."""
    assert content(page(findings(golden_night()))) == GOLDEN.read_text()


def golden_night() -> list[Entry]:
    return night(decisions=20, everything=True)


# --- the file ------------------------------------------------------------------------------------


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    with Ledger.open(tmp_path / "ledger", run="branin-7", clock=lambda: int(START_AT * 1e9)) as out:
        out.append(started())
        out.append(ServerStarted(model="qwen", elapsed_s=90))
    return tmp_path


def test_a_report_is_one_file_in_the_runs_directory(run_dir: Path) -> None:
    path = write_report(run_dir)

    assert path == run_dir / "report.html"
    assert path.read_text().startswith("<!doctype html>")
    assert path.stat().st_mode & 0o777 == 0o640
    assert {p.name for p in run_dir.iterdir()} == {"ledger", "report.html"}


def test_a_report_replaces_an_older_one_elsewhere_too(run_dir: Path, tmp_path: Path) -> None:
    target = tmp_path / "elsewhere.html"
    target.write_text("old")

    assert write_report(run_dir, target) == target
    assert target.read_text().startswith("<!doctype html>")


def test_a_report_that_cannot_be_written_leaves_nothing_behind(
    run_dir: Path, tmp_path: Path
) -> None:
    occupied = tmp_path / "occupied"
    (occupied / "inside").mkdir(parents=True)

    with pytest.raises(OSError, match="occupied"):
        write_report(run_dir, occupied)

    assert {p.name for p in tmp_path.iterdir()} == {"ledger", "occupied"}


def test_there_is_no_report_without_a_run(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="holds no run"):
        write_report(tmp_path)

    assert list(tmp_path.iterdir()) == []


def test_a_decision_that_nobody_could_make_is_the_surrogates() -> None:
    script = Script().begin()
    script.add(
        DecisionOpened(decision=1, source="surrogate"),
        DecisionMade(decision=1, disposition="failed", cause="surrogate"),
    )

    (line,) = lines(RunRecord.of(script.entries))

    assert (line.source, line.verdict, line.disposition) == (
        "surrogate",
        "failed",
        "failed (surrogate)",
    )


def test_what_became_of_several_candidates_is_counted() -> None:
    script = Script().begin().add(DecisionOpened(decision=1))
    points = [chosen(x1=float(n), x2=1.0) for n in range(3)]
    script.add(DecisionMade(decision=1, disposition="fallback", candidates=tuple(points)))
    for place, one in enumerate(points[:2]):
        plan = JobPlanned(
            job=f"j{place}",
            decision=1,
            fingerprint=one.fingerprint,
            candidate=one.candidate,
            level="fine",
            attempt=place + 1,
            reserved_node_h=0.1,
            walltime_s=600,
        )
        end = JobEnded(
            job=f"j{place}", state=JobState.COMPLETED, end=End.COMPLETED, adopted=bool(place)
        )
        values = {"y": 7.0 - place}
        found = ResultAccepted(
            job=f"j{place}", fingerprint=one.fingerprint, values=values, feasible=True
        )
        script.add(plan, end, found)
    script.add(
        CandidateHeld(
            decision=1, fingerprint=points[2].fingerprint, cause="time", reason="too late"
        )
    )

    (line,) = lines(RunRecord.of(script.entries))

    assert (line.result, line.value) == ("6 (2 feasible, 1 held: time)", 6.0)
    assert ("Held (time)", "too late") in line.details
    told = dict(line.details)["Job j1"]
    assert "launch 2 of this candidate" in told
    assert "its result was found after its runner had died" in told


def test_details_tell_how_an_answer_was_made() -> None:
    where = {"decision": 1, "attempt": 1}
    proposal = {"candidates": [{"x1": 1.0}, {"x1": 2.0}]}
    script = Script().begin()
    script.add(
        DecisionOpened(decision=1),
        AttemptStarted(**where, trace_id="ab" * 16),
        ProposalMade(**where, proposal=proposal, samples_valid=6, samples_total=8, temperature=0.7),
        CheckJudged(**where, check="disc", passed=True, score=0.25),
        CheckJudged(**where, check="taste", passed=False, hard=False, reasons=("meh",)),
    )

    (line,) = lines(RunRecord.of(script.entries))

    details = dict(line.details)
    assert (details["Candidate 1"], details["Candidate 2"]) == ("x1=1", "x1=2")
    assert (details["Samples"], details["Temperature"]) == ("6 of 8 valid", "0.7")
    assert details["Check disc"] == "passed, score 0.25"
    assert details["Check taste"] == "objected, without gating; meh"
    assert details["Trace"] == "ab" * 16
    assert line.checks[1] == ("taste", "soft", "meh")


def test_a_model_that_has_not_answered_yet_is_busy_until_now() -> None:
    script = Script().begin()
    script.add(DecisionOpened(decision=1), AttemptStarted(decision=1, attempt=1))
    script.add(ServerStarted(model="qwen", elapsed_s=1), after_s=98)
    record = RunRecord.of(script.entries)

    (busy,) = drawn(lanes(record, Occupancy.of(record)), "busy")

    start, width = re.findall(r"[\d.]+", busy.get("d") or "")[0::2][:2]
    assert float(start) == pytest.approx(84 + 784 * 0.02, abs=0.1)
    assert float(width) == pytest.approx(784 * 0.98, abs=0.1)


def test_a_rejected_answer_is_shown_with_its_stage() -> None:
    script = Script().begin()
    where = {"decision": 1, "attempt": 1}
    script.add(
        DecisionOpened(decision=1),
        AttemptStarted(**where),
        ProposalRejected(**where, stage="schema", reasons=("x2 is missing",), value="{"),
    )

    (line,) = lines(RunRecord.of(script.entries))

    assert line.checks == (("schema", "fail", "x2 is missing"),)
    assert ("Stage schema", "x2 is missing") in line.details
    assert ("Answer", "{") in line.details


if __name__ == "__main__":
    GOLDEN.write_text(content(page(findings(golden_night()))))
