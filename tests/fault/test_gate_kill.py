"""A process that dies within a visit to a gate, and the one that goes on after it."""

import json
import signal
import subprocess
import sys
from pathlib import Path

from batchgate.gate import read_events

ROOT = Path(__file__).parents[2]


def run(folder, *, attempts, kill_at=0, answer=()):
    """Play the example's graph in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.gate_examples", folder, str(attempts), str(kill_at), *answer],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if kill_at else 0), done.stderr
    return json.loads(done.stdout) if done.stdout else None


def test_a_visit_that_a_kill_cut_off_is_made_again_and_counted_once(tmp_path):
    # S3-41, S3-42
    run(tmp_path, attempts=6, kill_at=2)

    end = run(tmp_path, attempts=6)

    assert end["state"]["gate_attempts"] == {"review": 4}
    assert end["state"]["gate_results"]["review"]["visit"] == 4
    assert end["state"]["runs"] == ["draft", "revise", "revise", "revise", "publish"]
    lines = [json.loads(line) for line in (tmp_path / "gates.jsonl").read_text().splitlines()]
    assert [(e["payload"]["phase"], e["payload"]["attempt"]) for e in lines][:4] == [
        ("started", 1),
        ("failed", 1),
        ("started", 2),
        ("started", 2),
    ]
    assert [(e.phase, e.attempt) for e in read_events(tmp_path / "gates.jsonl")] == [
        ("started", 1),
        ("failed", 1),
        ("started", 2),
        ("failed", 2),
        ("started", 3),
        ("failed", 3),
        ("started", 4),
        ("passed", 4),
    ]


def test_a_person_is_asked_by_one_process_and_answers_to_another(tmp_path):
    # S3-37, S3-39
    asked = run(tmp_path, attempts=2)["asked"]

    end = run(tmp_path, attempts=2, answer=["approved"])

    assert [(one["type"], one["gate"]) for one in asked] == [("quality_gate", "review")]
    assert end["state"]["ended"] == "approved"
    assert end["state"]["gate_attempts"] == {"review": 2}
    assert end["state"]["runs"] == ["draft", "revise", "ask"]
