from __future__ import annotations

import io
from collections.abc import Iterable

import pytest
from rich.console import Console

from batchgate.events import (
    DecisionMade,
    DecisionOpened,
    Entry,
    FailureRecorded,
    JobPlanned,
    ServerStarted,
)
from batchgate.review.terminal import rendered
from tests.synthetic_run import Script, chosen, figures, night


def printed(entries: Iterable[Entry], width: int = 100) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(rendered(figures(entries)))
    return out.getvalue()


@pytest.mark.parametrize("width", [100, 80])
def test_a_summary_fits_its_width_and_loses_nothing(width: int) -> None:
    told = printed(night(), width)

    assert max(map(len, told.splitlines())) <= width
    assert "…" not in told


def test_a_summary_answers_the_questions_of_the_morning_after() -> None:
    found = figures(night())

    told = " ".join(printed(night()).split())

    assert found.best is not None
    assert "Finished by the rule 'jobs'" in told
    assert f"y = {found.best.value:.6g}, from the {found.best.source}" in told
    assert "x1 = " in told
    assert " mm" in told
    assert f"{found.decisions['accepted']} accepted" in told
    assert "because of:" in told
    assert "charged of 20 granted" in told
    assert "busy" in told
    assert "x1=# is closer than # to its bound #" in told
    assert "After a rejection the next attempt was:" in told
    assert "Verifier coarse let pass:" in told
    assert "Spearman" in told


def test_a_summary_needs_no_colour() -> None:
    assert "\x1b" not in printed(night())


def test_a_run_that_recorded_nothing_is_told_as_such() -> None:
    told = printed([])

    assert "A run that never started" in told
    assert "Empty: nothing was recorded" in told
    assert "no feasible result" in told


def test_text_of_strangers_is_neither_markup_nor_acts_on_the_terminal() -> None:
    script = Script().begin()
    script.add(FailureRecorded(kind="server", what="[bold]x[/bold]\x1b[2J", message=""))

    told = printed(script.entries)

    assert "[bold]x[/bold][U+001B][2J" in told


def test_slots_that_were_always_busy_have_no_gap_to_tell() -> None:
    script = Script().begin(slots=1)
    one = chosen(x1=1.0, x2=2.0)
    script.add(
        DecisionOpened(decision=1),
        DecisionMade(decision=1, disposition="accepted", candidates=(one,)),
        JobPlanned(
            job="j1",
            decision=1,
            fingerprint=one.fingerprint,
            candidate=one.candidate,
            level="fine",
            reserved_node_h=0.1,
            walltime_s=600,
        ),
        after_s=0,
    )
    script.add(ServerStarted(model="qwen", elapsed_s=1), after_s=60)

    told = printed(script.entries)

    assert "busy 100% of the time" in told
    assert "longest idle" not in told


def test_warnings_stand_ahead_of_the_figures() -> None:
    lines = printed(night(decisions=3, slots=9)).splitlines()

    assert lines[2].startswith("! The slots were busy only")
