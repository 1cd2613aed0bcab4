"""The report as a browser shows it: Chromium, without a window, driven over its DevTools pipe."""

from __future__ import annotations

import base64
import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from batchgate.events import Entry
from batchgate.review.record import RunRecord
from batchgate.review.report import page
from tests.synthetic_run import hostile, night

ANSWER_S = 60.0
"""Longest wait for an answer of the browser, which may have to share a core."""

# The browser reads its commands from descriptor 3 and answers on 4.
_LAUNCH = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.dup2(int(sys.argv[2]), 4)
os.execvp(sys.argv[3], sys.argv[3:])
"""
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)


class Browser:
    """A browser with one tab."""

    def __init__(self, program: str, profile: Path) -> None:
        commands, self._out = _high_pipe()
        self._in, answers = _high_pipe()
        launch = [sys.executable, "-c", _LAUNCH, str(commands), str(answers)]
        self._process = subprocess.Popen(
            [*launch, program, *_FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(commands, answers),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(commands)
        os.close(answers)
        self._buffer = b""
        self._number = 0
        self._tab: dict[str, str] = {}
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._tab = {"sessionId": session}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        command = {"id": self._number, "method": method, "params": params, **self._tab}
        os.write(self._out, json.dumps(command).encode() + b"\0")
        while (message := self._read()).get("id") != self._number:
            self.events.append(message)
        assert "error" not in message, message
        result: dict[str, Any] = message["result"]
        return result

    def open(self, path: Path, *, hash_: str = "", script: bool = True) -> None:
        """Show a page and wait until its script has done its work."""
        self.call("Emulation.setScriptExecutionDisabled", value=not script)
        self._go("about:blank")  # or a new hash would only scroll
        self.events.clear()
        self._go(f"{path.as_uri()}{hash_}")
        if script:
            self.until("document.getElementById('filters')?.hidden === false")

    def value(self, expression: str) -> Any:
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def until(self, expression: str) -> None:
        deadline = time.monotonic() + ANSWER_S
        while not self.value(f"!!({expression})"):
            assert time.monotonic() < deadline, f"never came true: {expression}"
            time.sleep(0.02)  # a page cannot tell us when

    def complaints(self) -> list[dict[str, Any]]:
        """Return what the page logged, and what it threw."""
        told = {"Log.entryAdded", "Runtime.exceptionThrown", "Runtime.consoleAPICalled"}
        return [event for event in self.events if event.get("method") in told]

    def requests(self) -> list[str]:
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(ANSWER_S)
        os.close(self._out)
        os.close(self._in)

    def _go(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        self.until(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._in], [], [], ANSWER_S)
            assert ready, "the browser does not answer"
            part = os.read(self._in, 1 << 16)
            assert part, "the browser has ended"
            self._buffer += part
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message


def _high_pipe() -> tuple[int, int]:
    """Return a pipe whose descriptors are neither 3 nor 4."""
    low = os.pipe()
    high = tuple(fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in low)
    for fd in low:
        os.close(fd)
    return high[0], high[1]


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        missing = "no chromium here; install it (Debian: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    browser = Browser(program, tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


def written(folder: Path, entries: list[Entry]) -> Path:
    path = folder / "report of a run.html"
    path.write_text(page(RunRecord.of(entries)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("report"), night(decisions=90))


ROWS = "[...document.querySelectorAll('#attempts-table tbody tr')]"
NAMES = f"{ROWS}.map((row) => row.cells[0].firstChild.textContent)"


def test_a_report_opens_from_a_file_without_a_complaint_or_a_request(
    browser: Browser, report: Path
) -> None:
    browser.open(report)

    assert browser.complaints() == []
    assert browser.requests() == [report.as_uri()]
    assert browser.value("document.querySelectorAll('svg').length") == 4


def test_the_script_shows_the_same_rows_as_the_page_without_it(
    browser: Browser, report: Path
) -> None:
    told = f"{ROWS}.slice(0, 100).map((row) => [...row.cells].map((cell) => cell.textContent))"
    browser.open(report, script=False)
    plain = browser.value(told)

    browser.open(report)

    assert len(plain) == 100
    assert browser.value(told) == plain


def test_hostile_text_is_shown_and_does_nothing(browser: Browser, tmp_path: Path) -> None:
    browser.open(written(tmp_path, hostile()))

    browser.value(f"{ROWS}.forEach((row) => row.querySelector('button').click())")
    browser.value("document.getElementById('filter-text').dispatchEvent(new Event('input'))")

    assert browser.value("window.pwned") is None
    assert browser.value("({}).pwned") is None
    assert browser.value("document.images.length") == 0
    assert browser.value("document.scripts.length") == 2
    assert "<img src=" in browser.value("document.body.textContent")
    assert browser.complaints() == []


def test_what_is_injected_all_the_same_is_not_run(browser: Browser, report: Path) -> None:
    browser.open(report)

    browser.value(
        "{ const tried = (act) => { try { act(); } catch {} };"
        "  const script = document.createElement('script'), image = new Image();"
        "  tried(() => { script.textContent = 'window.pwned = 1'; });"
        "  tried(() => image.setAttribute('onerror', 'window.pwned = 1'));"
        "  image.src = 'file:///nothing';"
        "  document.body.append(script, image); }"
    )
    browser.until("document.images[0].complete")

    assert browser.value("window.pwned") is None
    assert any("Content Security Policy" in json.dumps(told) for told in browser.complaints())


def test_a_search_leaves_the_lines_that_have_the_words(browser: Browser, report: Path) -> None:
    browser.open(report)

    browser.value("document.getElementById('filter-text').value = 'Closer Than 0.5'")
    browser.value("document.getElementById('filter-text').dispatchEvent(new Event('input'))")

    texts = browser.value(f"{ROWS}.map((row) => row.textContent)")
    assert texts
    assert all("closer than 0.5" in text for text in texts)
    count = browser.value("document.getElementById('filter-count').textContent")
    assert count.startswith(f"{len(texts)} of ")


def test_a_number_in_the_table_of_checks_leads_to_its_attempts(
    browser: Browser, report: Path
) -> None:
    browser.open(report)
    told = browser.value(
        "document.querySelector('a[href=\"#check=spacing&attempt=2\"]').textContent"
    )

    browser.value("document.querySelector('a[href=\"#check=spacing&attempt=2\"]').click()")
    browser.until("document.getElementById('filter-count').textContent.includes('attempt 2')")

    names = browser.value(NAMES)
    assert f"{len(names)} of " in told
    assert all(name.endswith(".2") for name in names)
    assert all("✗ spacing" in text for text in browser.value(f"{ROWS}.map((r) => r.textContent)"))


def test_a_report_opens_at_the_attempts_of_its_address(browser: Browser, report: Path) -> None:
    browser.open(report, hash_="#decision=3")

    assert {name.partition(".")[0] for name in browser.value(NAMES)} == {"D3"}
    browser.value("document.getElementById('filter-reset').click()")
    assert len(browser.value(NAMES)) == 100


def test_a_click_on_a_head_sorts_and_a_second_one_turns_round(
    browser: Browser, report: Path
) -> None:
    browser.open(report)
    results = f"{ROWS}.map((row) => parseFloat(row.cells[5].textContent)).filter((v) => !isNaN(v))"
    click = "document.querySelector('#attempts-table thead th:nth-child(6) button').click()"

    browser.value(click)
    up = browser.value(results)
    browser.value(click)
    down = browser.value(results)

    assert up == sorted(up)
    assert down == sorted(down, reverse=True)
    assert len(up) > 10
    sort = "document.querySelector('#attempts-table thead th:nth-child(6)').ariaSort"
    assert browser.value(sort) == "descending"


def test_a_line_opens_and_closes_by_keyboard(browser: Browser, report: Path) -> None:
    browser.open(report)
    browser.value("document.querySelector('#attempts-table tbody button').focus()")
    key = {"key": "Enter", "code": "Enter", "text": "\r", "windowsVirtualKeyCode": 13}

    browser.call("Input.dispatchKeyEvent", type="keyDown", **key)
    browser.until("document.querySelector('.details')")
    details = browser.value("document.querySelector('.details').textContent")
    browser.call("Input.dispatchKeyEvent", type="keyDown", **key)
    browser.until("!document.querySelector('.details')")

    assert "Asked2026-" in details
    assert "Check disc" in details


def test_pages_of_lines_can_be_turned(browser: Browser, report: Path) -> None:
    browser.open(report)
    total = browser.value("parseInt(document.getElementById('filter-count').textContent)")
    first = browser.value(NAMES)

    browser.value("document.querySelector('#pages button:last-child').click()")
    second = browser.value(NAMES)
    browser.value("document.querySelector('#pages button').click()")

    assert len(first) == 100
    assert len(second) == min(100, total - 100) > 0
    assert not set(first) & set(second)
    assert browser.value(NAMES) == first


@pytest.mark.parametrize("width", [1280, 800, 400])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_page_fits_its_window(browser: Browser, report: Path, width: int, scheme: str) -> None:
    screen = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.call("Emulation.setDeviceMetricsOverride", **screen)
    scheme_is = {"name": "prefers-color-scheme", "value": scheme}
    browser.call("Emulation.setEmulatedMedia", features=[scheme_is])
    browser.open(report)

    assert browser.value("document.documentElement.scrollWidth") <= width
    paper = browser.value("getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(255, 255, 255)") is (scheme == "light")


def test_paper_gets_every_line(browser: Browser, report: Path) -> None:
    browser.open(report)
    total = browser.value("parseInt(document.getElementById('filter-count').textContent)")

    browser.value("window.dispatchEvent(new Event('beforeprint'))")
    printed = len(browser.value(NAMES))
    browser.value("window.dispatchEvent(new Event('afterprint'))")
    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])

    assert printed == total > 100
    assert len(browser.value(NAMES)) == 100
    assert pdf.startswith(b"%PDF")
