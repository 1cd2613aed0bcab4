"""How long a person waits for each command that tells of a run of 10^5 attempts.

    python -m benchmarks.terminal [--attempts 100000] [--run RUN]

The run is a made-up night with everything in it; making one of 10^5 attempts takes some minutes, so
`--run` takes one that is there (it needs 500 decisions). Every command runs as a process of its
own, from the start of the interpreter to its end, with the ledger in the page cache.

How the bound is judged: a wait is measured on the wall, because that is what a person waits. Of
`ROUNDS` waits the shortest counts, since what is longer was other work on the machine, and it is
divided by how much slower than a usual core this machine was: `json.loads` of a typical line of a
ledger is timed before and after each wait, and its shortest time counts too. A usual core takes 3.5
us for its 400 bytes (CPython's parser reads 170 to 220 MB/s in the tables of orjson's README, and a
call costs a microsecond). Loops of arithmetic are no measure: where other work fills the caches they
lose nothing, and objects lose half. What comes out must be at most 3 s. So a slow machine is not
blamed on a command, and a fast one excuses none. The commands use up to four cores where they can.
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
from batchgate.events import CheckJudged
from batchgate.ledger.line import encode
from tests.synthetic_run import kept, night

LIMIT_S = 3.0
ROUNDS = 3
USUAL_PARSE_US = 3.5
"""What parsing the line takes on a usual core."""
PARSES = 50_000
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


LINE = encode(
    CheckJudged(
        decision=17,
        attempt=2,
        check="spacing",
        passed=False,
        reasons=("x1=3.1 is closer than 0.5 to its bound 3.0",),
        refused=("fc9034fe5f16fb6c",),
        elapsed_s=0.0023,
    ),
    seq=123_456,
    at_ns=1_780_000_105_889_469_952,
    previous=b"",
)


def parse_us() -> float:
    """Return the microseconds that parsing a typical line takes now."""
    began_s = perf_counter()
    for _ in range(PARSES):
        json.loads(LINE)
    return (perf_counter() - began_s) / PARSES * 1e6


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
    for path in (run / "ledger").glob("*.jsonl"):
        path.read_bytes()  # so that it lies in memory for every command
    print(
        f"parsing a line of {len(LINE)} bytes: {parse_us():.1f} us, {USUAL_PARSE_US} on a usual core"
    )
    print(f"{'command':<20}{'wall s':>9}{'CPU s':>9}{'MB':>7}{'slower':>9}{'scaled s':>10}")
    late = False
    for name, *args in commands(run):
        parses, waits = [parse_us()], []
        for _ in range(ROUNDS):
            waits.append(waited(name, *args))
            parses.append(parse_us())
        wait = min(waits, key=lambda one: one.wall_s)
        slower = min(parses) / USUAL_PARSE_US
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
