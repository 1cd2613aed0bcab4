"""What the report page costs: to make, to keep, and to open in a browser without a window.

    python -m benchmarks.report [--attempts 100000] [--keep FILE]

The run is a made-up night with everything in it. Making is CPU time, as in a reader that has its
entries at hand. Opening is the CPU time of the page's main thread until every line can be filtered,
and the time on the wall, which other work on the machine lengthens.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from time import perf_counter, process_time

from batchgate.review.report import Findings, page
from tests.browser import Browser, chromium
from tests.synthetic_run import night

LIMIT_MB = 6.0
LIMIT_S = 2.0
ROUNDS = 5
ATTEMPTS_A_DECISION = 1.26
"""What the made-up model needs on average."""


def made(attempts: int) -> str:
    """Return the page of a run of about so many attempts; print what it cost."""
    entries = night(decisions=round(attempts / ATTEMPTS_A_DECISION), slots=16, everything=True)
    began_s = process_time()
    found = Findings.of(entries)
    read_s = process_time()
    document = page(found)
    print(f"attempts        {sum(1 for _ in found.record.attempts):>10,}")
    print(f"events          {len(entries):>10,}")
    print(f"reading         {read_s - began_s:>10.1f} s of CPU")
    print(f"writing         {process_time() - read_s:>10.1f} s of CPU")
    return document


def opened(path: Path, program: str) -> tuple[float, float]:
    """Return the seconds until a page is ready: of its main thread, and on the wall."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, Path(profile))
        try:
            idle_s, began_s = browser.busy_s(), perf_counter()
            browser.open(path)
            return browser.busy_s() - idle_s, perf_counter() - began_s
        finally:
            browser.close()


def main() -> int:
    """Measure, print, and return 1 when a limit is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--attempts", type=int, default=100_000)
    parser.add_argument("--keep", type=Path, help="where the page is left")
    options = parser.parse_args()
    program = chromium()
    if program is None:
        sys.exit("no chromium here; install it (Debian: apt-get install chromium)")
    with tempfile.TemporaryDirectory() as folder:
        path = (options.keep or Path(folder) / "report.html").resolve()
        path.write_text(made(options.attempts), encoding="utf-8")
        size_mb = path.stat().st_size / 1e6
        print(f"size            {size_mb:>10.2f} MB, at most {LIMIT_MB:g}")
        times = [opened(path, program) for _ in range(ROUNDS)]
    busy_s, wall_s = (statistics.median(column) for column in zip(*times, strict=True))
    print(f"opening         {busy_s:>10.2f} s of CPU of the main thread, at most {LIMIT_S:g}")
    print(f"                {wall_s:>10.2f} s on the wall")
    return int(size_mb > LIMIT_MB or busy_s > LIMIT_S)


if __name__ == "__main__":
    sys.exit(main())
