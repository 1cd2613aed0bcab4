"""How long a person waits for each command that tells of a run of 10^5 attempts.

    python -m benchmarks.terminal [--attempts 100000] [--run RUN]

The run is a made-up night with everything in it; making one of 10^5 attempts takes some minutes, so
`--run` takes one that is there (it needs 500 decisions). Every command runs as a process of its
own, from the start of the interpreter to its end, with the ledger in the page cache.

How the bound is judged: a wait is measured on the wall, because that is what a person waits. Of
`ROUNDS` waits the shortest counts, since what is longer was other work on the machine, and it is
divided by how much slower than a usual core this machine was: a plain Python loop of 10^7 additions,
which takes a usual core 0.45 s, is timed before and after each wait, and its shortest time counts
too. What comes out must be at most 3 s. So a slow machine is not blamed on a command, and a fast
one excuses none. The loop keeps one core busy where the commands may use four, so on a machine with
few free cores the judgement is the stricter one; on one that is busy all the time it says little.
Beside it stands what any reader of the ledger would take that parses each line in Python.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

from batchgate.collector import collector_at_rest
from tests.synthetic_run import kept, night

LIMIT_S = 3.0
ROUNDS = 3
USUAL_LOOP_S = 0.45
"""What the loop takes on a usual core."""
ADDITIONS = 10_000_000
ATTEMPTS_A_DECISION = 1.26
"""What the made-up model needs on average."""
SHOWN = "D500.1"


@dataclass(frozen=True, slots=True)
class Wait:
    """What one command cost.

    Attributes:
        wall_s: From its start to its end.
        cpu_s: Time of the processor, over all cores.
        memory_mb: Most memory it held.
    """

    wall_s: float
    cpu_s: float
    memory_mb: float


def loop_s() -> float:
    """Return the seconds on the wall that the loop takes."""
    began_s, total = perf_counter(), 0
    for number in range(ADDITIONS):
        total += number
    return perf_counter() - began_s


def waited(*args: str) -> Wait:
    """Run a command of batchgate and wait for it.

    Raises:
        SystemExit: It failed.
    """
    program = str(Path(sys.executable).with_name("batchgate"))
    began_s = perf_counter()
    process = subprocess.Popen([program, *args], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    wall_s = perf_counter() - began_s
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"batchgate {' '.join(args)} exits with {process.returncode}")
    return Wait(wall_s, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def parsed_s(run: Path) -> float:
    """Return the seconds that parsing each line of a run's ledger takes in Python."""
    began_s = perf_counter()
    for path in sorted((run / "ledger").glob("*.jsonl")):
        with path.open("rb") as lines:
            for line in lines:
                json.loads(line)
    return perf_counter() - began_s


def commands(run: Path) -> Iterator[list[str]]:
    """Yield the commands, each for people and for programs."""
    for name, *more in (
        ("summary", str(run)),
        ("rejections", str(run)),
        ("show", str(run), SHOWN),
        ("timeline", str(run)),
        ("compare", str(run), str(run)),
    ):
        yield [name, *more]
        yield [name, *more, "--json"]


@contextmanager
def made(attempts: int) -> Iterator[Path]:
    """Make a run of about so many attempts for as long as it is needed."""
    with tempfile.TemporaryDirectory() as folder, collector_at_rest():
        print(f"making a night of {attempts:,} attempts ...", flush=True)
        entries = night(decisions=round(attempts / ATTEMPTS_A_DECISION), slots=16, everything=True)
        print(f"writing {len(entries):,} events ...", flush=True)
        run = kept(entries, Path(folder) / "run")
        del entries
        yield run


def measure(run: Path) -> int:
    """Print what the commands cost; return 1 when one takes too long."""
    size_mb = sum(path.stat().st_size for path in (run / "ledger").glob("*.jsonl")) / 1e6
    # Reads the ledger, too, so that it lies in memory for every command.
    loop, parsing = loop_s(), parsed_s(run)
    print(f"{ADDITIONS:,} additions {loop:.2f} s on the wall, {USUAL_LOOP_S:g} on a usual core")
    print(f"json.loads of each line {parsing:.1f} s on the wall, {size_mb:.0f} MB of ledger")
    print(f"{'command':<20}{'wall s':>9}{'CPU s':>9}{'MB':>7}{'slower':>9}{'scaled s':>10}")
    late = False
    for name, *args in commands(run):
        loops, waits = [loop_s()], []
        for _ in range(ROUNDS):
            waits.append(waited(name, *args))
            loops.append(loop_s())
        wait = min(waits, key=lambda one: one.wall_s)
        slower = min(loops) / USUAL_LOOP_S
        over = wait.wall_s / slower > LIMIT_S
        label = f"{name} --json" if "--json" in args else name
        print(
            f"{label:<20}{wait.wall_s:>9.2f}{wait.cpu_s:>9.2f}{wait.memory_mb:>7.0f}"
            f"{slower:>9.2f}{wait.wall_s / slower:>10.2f}{f'  over {LIMIT_S:g}' if over else ''}",
            flush=True,
        )
        late |= over
    return int(late)


def main() -> int:
    """Measure, print, and return 1 when a command is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=100_000)
    parser.add_argument("--run", type=Path, help="a run that is there, instead of a made-up one")
    options = parser.parse_args()
    if options.run:
        return measure(options.run)
    with made(options.attempts) as run:
        return measure(run)


if __name__ == "__main__":
    sys.exit(main())
