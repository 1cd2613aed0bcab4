"""The main job, whole: the real command, vLLM, model, AsyncFlow and simulator; once it is shot."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from batchgate.events import (
    CheckJudged,
    DecisionMade,
    ProposalMade,
    ResultAccepted,
    RunStopped,
    ServerStarted,
    ServerStopped,
)
from batchgate.ledger import check_run, read
from batchgate.producers.environment import make

pytestmark = [pytest.mark.vllm, pytest.mark.timeout(2400)]

ROOT = Path(__file__).parents[2]


def events(folder: Path, kind: type[Any]) -> list[Any]:
    if not (folder / "ledger").is_dir():
        return []
    return [e.event for e in read(folder / "ledger") if isinstance(e.event, kind)]


def test_a_real_model_is_gated_and_a_killed_engine_costs_no_more_than_its_restart(
    tmp_path: Path,
) -> None:
    make()
    folder = tmp_path / "run"
    with (tmp_path / "output").open("w") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "batchgate", "run", str(ROOT / "campaigns" / "orbits"),
             "--run", str(folder), "--slots", "2", "--max-jobs", "8"],
            stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            _wait(process, lambda: events(folder, ProposalMade))
            (engine,) = _engines(folder)
            engine.send_signal(signal.SIGKILL)
            assert process.wait(2000) == 0, (tmp_path / "output").read_text()[-4000:]
        finally:
            process.kill()

    starts = events(folder, ServerStarted)
    assert [s.start for s in starts][:2] == [1, 2]
    assert events(folder, ServerStopped)
    assert len(events(folder, ResultAccepted)) == 8
    assert events(folder, RunStopped)[0].rule == "jobs"
    assert {c.check for c in events(folder, CheckJudged)} >= {"space", "hill_spacing"}
    assert {d.disposition for d in events(folder, DecisionMade)} & {"accepted", "fallback"}
    assert check_run(folder) == []
    assert (folder / "report.html").is_file()
    assert _engines(folder) == []


def _wait(process: subprocess.Popen[bytes], seen: Any, *, timeout_s: float = 1200) -> None:
    deadline = time.monotonic() + timeout_s
    while not seen():
        assert process.poll() is None, "the run ended early"
        assert time.monotonic() < deadline, f"not seen within {timeout_s:g} s"
        time.sleep(0.5)


def _engines(folder: Path) -> list[psutil.Process]:
    """Return the engine processes of the run's own server."""
    mark = str(folder / "server.log")
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if "EngineCore" not in " ".join(process.info["cmdline"] or ()):
            continue
        environ = Path(f"/proc/{process.pid}/environ")
        if environ.exists() and os.fsencode(mark) in environ.read_bytes():
            found.append(process)
    return found
