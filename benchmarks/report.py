"""What the report page costs: to make, to keep, and to open in a browser without a window.

    python -m benchmarks.report [--attempts 100000] [--keep FILE]

The run is a made-up night with everything in it, over and over; its record is made, not read from
a ledger. Each opening has a browser of its own, which nothing has warmed up. Times are those of the
page's clock, from the start of the navigation, which other work on the machine lengthens; the CPU
of the page's main thread is not, or little. What an empty page and a loop of JavaScript take in the
same browser tells how fast the machine is.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from dataclasses import astuple, dataclass
from pathlib import Path
from time import process_time
from typing import Any

from batchgate.review.report import page
from tests.browser import Browser, chromium
from tests.long_night import long_findings

LIMIT_MB = 6.0
LIMIT_S = 2.0
ROUNDS = 5
EMPTY = "<!doctype html><title>Empty</title><p id=filters>Nothing</p>"
"""A page on which a browser waits for nothing."""
LOOP_STEPS = 20_000_000
_LOOP = f"""(() => {{
  const began = performance.now();
  let sum = 0;
  for (let step = 0; step < {LOOP_STEPS}; step++) sum = (sum * 31 + step) | 0;
  return (performance.now() - began) / 1000 + (sum ? 0 : 1e-9);
}})()"""
_PAINTED = "performance.getEntriesByName('first-contentful-paint')"
_SEARCH = "const text = document.getElementById('filter-text'); text.value = 'residual'"
_COUNT = "document.getElementById('filter-count').textContent"


@dataclass(frozen=True)
class Opening:
    """Seconds that a page took.

    Attributes:
        busy_s: CPU of its main thread until it was ready.
        painted_s: Until its first text was painted.
        ready_s: Until its first lines were shown and could be filtered.
        search_s: From the first search to what it found; 0 for a page without one.
        loop_s: A fixed loop of JavaScript, afterwards.
    """

    busy_s: float
    painted_s: float
    ready_s: float
    search_s: float
    loop_s: float


def made(attempts: int) -> str:
    """Return the page of a run of so many attempts or some more; print what it cost."""
    found = long_findings(attempts)
    began_s = process_time()
    document = page(found)
    print(f"attempts      {sum(1 for _ in found.record.attempts):>9,}")
    print(f"making        {process_time() - began_s:>9.1f} s of CPU")
    return document


def opened(path: Path, program: str) -> Opening:
    """Open a page in a new browser."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, Path(profile))
        try:
            browser.open(path)
            ready_s, busy_s = _now_s(browser), browser.busy_s()
            browser.until(f"{_PAINTED}.length")
            painted_s = browser.value(f"{_PAINTED}[0].startTime") / 1000
            return Opening(busy_s, painted_s, ready_s, _search_s(browser), browser.value(_LOOP))
        finally:
            browser.close()


def _search_s(browser: Browser) -> float:
    if not browser.value("!!document.getElementById('filter-text')"):
        return 0.0
    began_s = _now_s(browser)
    browser.value(f"{{ {_SEARCH}; text.dispatchEvent(new Event('input')); }}")
    browser.until(f"{_COUNT}.includes(' of ')")
    return _now_s(browser) - began_s


def _now_s(browser: Browser) -> float:
    now_ms: float = browser.value("performance.now()")
    return now_ms / 1000


def typical(path: Path, program: str) -> Opening:
    """Open a page again and again; return the medians."""
    each = [astuple(opened(path, program)) for _ in range(ROUNDS)]
    return Opening(*map(statistics.median, zip(*each, strict=True)))


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
        print(f"size          {size_mb:>9.2f} MB, at most {LIMIT_MB:g}")
        empty = Path(folder) / "empty.html"
        empty.write_text(EMPTY, encoding="utf-8")
        report, nothing = typical(path, program), typical(empty, program)
    _print("", "report", "empty page")
    _print("main thread", report.busy_s, nothing.busy_s, "s of CPU until ready")
    _print("first paint", report.painted_s, nothing.painted_s, "s")
    _print("ready", report.ready_s, nothing.ready_s, f"s, at most {LIMIT_S:g} for the report")
    _print("first search", report.search_s, "", "s")
    _print("loop", report.loop_s, nothing.loop_s, f"s for {LOOP_STEPS:,} steps")
    return int(size_mb > LIMIT_MB or report.ready_s > LIMIT_S)


def _print(what: str, report: Any, empty: Any, unit: str = "") -> None:
    cells = (f"{one:.2f}" if isinstance(one, float) else one for one in (report, empty))
    print(f"{what:<14}" + "".join(f"{cell:>9}  " for cell in cells) + unit)


if __name__ == "__main__":
    sys.exit(main())
