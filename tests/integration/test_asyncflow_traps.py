"""The traps of stock AsyncFlow that a campaign can fall into, each shown there and absent in ours.

Stock is `radical.asyncflow` 0.6 on RHAPSODY's concurrent backend (or on AsyncFlow's default one,
where the case says so). Every case runs in a process of its own with a time limit, since several
end, hang or corrupt the process; `asyncflow_cases.py` has them.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

CASES = str(Path(__file__).with_name("asyncflow_cases.py"))
HUNG, DIED = "hung", "died"

TRAPS = {
    # name: (seen in stock, seen in ours)
    "two_engines": ("old", "new"),
    "future_in_a_command": ("<Future pending>", ["unknown", ""]),
    "quoting": (True, False),
    # The process pool of CPython 3.12 never ends after it.
    "crash": (HUNG if sys.version_info >= (3, 12) else True, False),
    "odd_exception": ("BrokenProcessPool", "innocent"),
    "exit": (DIED, "exception"),
    "cancelled_inside": (HUNG, "exception"),
    "time_limit": (True, False),
    "wait_for": (1, 0),
    "fan_out": (True, False),
    "bad_submission": ("CancelledError", "innocent"),
    "after_the_end": (HUNG, "FlowError"),
    "shutdown": (True, False),
    "signals": ([], ["ours"]),
    "masked_error": ("RuntimeError", "KeyError"),
    "history": (50, 0),
    "running": (3, 1),
    "exit_code": ("failed with unknown error", "exit code 3"),
    "bytes": ("UnicodeDecodeError", "completed"),
    "environment": (["A=1"], ["A=1", f"HOME={os.environ.get('HOME')}"]),
    "sync_function": ("TypeError", 1),
}


def observe(side, trap, folder):
    """Run a case; return what it said, that it died without a word, or that it hung."""
    argv = [sys.executable, CASES, side, trap, str(folder)]
    # Not a pipe: what a dead runner leaves behind would hold it open.
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(argv, stdout=log, stderr=log, start_new_session=True)
    try:
        process.wait(timeout=30)
    except subprocess.TimeoutExpired:
        return HUNG
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        sys.stderr.write((folder / "log").read_text())
    said = folder / "said"
    return json.loads(said.read_text()) if said.exists() else DIED


@pytest.mark.parametrize("trap", TRAPS)
@pytest.mark.parametrize("side", ["stock", "ours"])
def test_a_trap_of_asyncflow_is_there_in_stock_and_not_in_ours(side, trap, tmp_path):
    in_stock, in_ours = TRAPS[trap]

    seen = observe(side, trap, tmp_path)

    assert seen == (in_stock if side == "stock" else in_ours)


@pytest.mark.parametrize(("side", "left"), [("stock", True), ("ours", False)])
def test_a_worker_outlives_its_killed_runner_in_stock_and_not_in_ours(side, left, tmp_path):
    argv = [sys.executable, CASES, side, "killed_runner", str(tmp_path)]
    pids = tmp_path / "pids"
    with subprocess.Popen(argv, start_new_session=True) as process:
        deadline = time.monotonic() + 30
        while not (pids.exists() and pids.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        worker, grandchild = (psutil.Process(int(pid)) for pid in pids.read_text().split())
        process.kill()

    _, alive = psutil.wait_procs([worker], timeout=1 if left else 20)
    for survivor in [*alive, grandchild]:
        survivor.kill()
    assert bool(alive) is left
