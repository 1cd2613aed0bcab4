"""The report as a browser shows it."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from batchgate.events import Entry
from batchgate.review.report import page
from tests.browser import Browser, chromium
from tests.long_night import long_findings
from tests.synthetic_run import findings, hostile, night

ATTEMPTS = 100_000
SIZE = 6_000_000
"""Largest page, in bytes."""
BUSY_S = 2.0
"""CPU that opening may cost the page's main thread: an eighth of it was measured."""
LINES_A_SHEET = 40
"""More lines than a sheet of paper can hold."""
ELEMENTS = 6000
"""Elements that a page has when it is open, however long its run was."""
LONG = pytest.mark.timeout(300)
"""Making 100,000 attempts and their page takes a slow machine a minute."""


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    browser = new_browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def cold_browser(tmp_path: Path) -> Iterator[Browser]:
    """A browser that has shown nothing yet."""
    browser = new_browser(tmp_path)
    yield browser
    browser.close()


def new_browser(profile: Path) -> Browser:
    program = chromium()
    if program is None:
        missing = "no chromium here; install it (Debian: apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(missing)
        pytest.skip(missing)
    return Browser(program, profile)


def written(folder: Path, entries: list[Entry]) -> Path:
    path = folder / "report of a run.html"
    path.write_text(page(findings(entries)), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("report"), night(decisions=90, everything=True))


@dataclass(frozen=True)
class LongReport:
    """The page of a run of 100,000 attempts, and the name of the last one."""

    path: Path
    last: str


@pytest.fixture(scope="module")
def long_report(tmp_path_factory: pytest.TempPathFactory) -> LongReport:
    found = long_findings(ATTEMPTS)
    *_, last = found.record.attempts
    path = tmp_path_factory.mktemp("long") / "report.html"
    path.write_text(page(found), encoding="utf-8")
    return LongReport(path, f"D{last.decision}.{last.number}")


ROWS = "[...document.querySelectorAll('#attempts-table tbody tr')]"
NAMES = f"{ROWS}.map((row) => row.cells[0].firstChild.textContent)"


def searched(browser: Browser, words: str) -> None:
    """Search, and wait until the lines found are shown."""
    browser.value(f"document.getElementById('filter-text').value = {json.dumps(words)}")
    browser.value("document.getElementById('filter-text').dispatchEvent(new Event('input'))")
    browser.until("document.getElementById('filter-count').textContent.includes(' of ')")


def test_a_report_opens_from_a_file_without_a_complaint_or_a_request(
    browser: Browser, report: Path
) -> None:
    browser.open(report)

    assert browser.complaints() == []
    assert browser.requests() == [report.as_uri()]
    assert browser.value("document.querySelectorAll('figure svg').length") == 7


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

    lines = browser.value(f"{ROWS}.length")
    browser.value(f"{ROWS}.forEach((row) => row.querySelector('button').click())")
    browser.until(f"document.querySelectorAll('.details').length === {lines}")
    told = browser.value("document.querySelector('.details').textContent")
    browser.value("document.getElementById('filter-text').dispatchEvent(new Event('input'))")

    assert "<script>" in told
    assert browser.value("window.pwned") is None
    assert browser.value("({}).pwned") is None
    assert browser.value("document.images.length") == 0
    assert browser.value("document.scripts.length") == 3
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

    searched(browser, "Closer Than 0.5")

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
    told = f"{ROWS}.map((row) => row.cells[5].textContent)"
    results = f"{told}.filter((text) => /^[-.\\d]+ \\(/.test(text)).map(parseFloat)"
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


def test_a_line_that_is_chosen_twice_at_once_stays_closed(browser: Browser, report: Path) -> None:
    browser.open(report)
    button = "document.querySelector('#attempts-table tbody button')"

    browser.value(f"{button}.click(); {button}.click()")
    browser.value(f"{ROWS}[1].querySelector('button').click()")
    browser.until("document.querySelector('.details')")

    assert browser.value(f"{button}.getAttribute('aria-expanded')") == "false"
    assert browser.value("document.querySelectorAll('.details').length") == 1


def test_what_is_only_in_the_details_is_found_too(browser: Browser, report: Path) -> None:
    browser.open(report)

    searched(browser, "after 1 rejected result")

    assert 0 < len(browser.value(NAMES)) < 20


def test_a_lead_goes_to_the_attempts_of_its_decision(browser: Browser, report: Path) -> None:
    browser.open(report)
    lead = "document.querySelector('[aria-labelledby=look-here-first] td a')"
    name = browser.value(f"{lead}.textContent")

    browser.value(f"{lead}.click()")
    browser.until("document.getElementById('filter-count').textContent.includes('decision')")

    assert {found.partition(".")[0] for found in browser.value(NAMES)} == {name}


def test_every_section_can_be_reached_by_keyboard(browser: Browser, report: Path) -> None:
    browser.open(report)

    links = browser.value(
        "[...document.querySelectorAll('.contents a')].map((a) => a.hash.slice(1))"
    )

    heads = browser.value("[...document.querySelectorAll('h2')].map((head) => head.id)")
    assert links == heads
    scrolled = "[...document.querySelectorAll('figure, .scroll')].every((e) => e.tabIndex === 0)"
    assert browser.value(scrolled)


def test_charts_are_there_without_a_script(browser: Browser, report: Path) -> None:
    browser.open(report, script=False)

    assert browser.value("document.querySelectorAll('figure svg').length") == 7
    assert browser.value("document.getElementById('filters').hidden")
    assert browser.value("document.getElementById('pages').hidden")


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


@LONG
def test_a_hundred_thousand_attempts_are_a_page_that_opens_at_once(
    browser: Browser, long_report: LongReport
) -> None:
    browser.open(long_report.path)

    assert long_report.path.stat().st_size <= SIZE
    assert browser.complaints() == []
    assert browser.requests() == [long_report.path.as_uri()]
    count = browser.value("document.getElementById('filter-count').textContent")
    assert int(count.removesuffix(" lines")) >= ATTEMPTS
    names = browser.value(NAMES)
    assert (len(names), names[0]) == (100, "D1.1")


@LONG
def test_opening_a_hundred_thousand_attempts_leaves_most_of_the_work_for_later(
    cold_browser: Browser, long_report: LongReport, record_property: Callable[[str, object], None]
) -> None:
    browser = cold_browser

    browser.open(long_report.path)

    # Of one thread's CPU there is a limit, and none of the time on the wall, which other work on
    # the machine lengthens. That most of the page is not laid out holds on any machine.
    busy_s = browser.busy_s()
    record_property("busy_s", busy_s)
    assert busy_s < BUSY_S
    assert browser.value("document.querySelectorAll('*').length") < ELEMENTS
    shown = ".filter((one) => one.checkVisibility({ contentVisibilityAuto: true })).length"
    assert browser.value(f"{ROWS}{shown}") == 0
    assert browser.value(f"[...document.querySelectorAll('h2')]{shown}") < 5


@LONG
def test_a_search_looks_through_a_hundred_thousand_attempts(
    browser: Browser, long_report: LongReport
) -> None:
    browser.open(long_report.path)

    searched(browser, f"{long_report.last} ")

    assert browser.value(NAMES) == [long_report.last]
    count = browser.value("document.getElementById('filter-count').textContent")
    assert count.startswith("1 of ")


@LONG
def test_paper_gets_a_thousand_of_very_many_lines(
    browser: Browser, long_report: LongReport
) -> None:
    browser.open(long_report.path)

    pdf = base64.b64decode(browser.call("Page.printToPDF")["data"])

    # A browser that prints waits for nothing: the lines have to be there when it asks.
    sheets = pdf.count(b"/Type /Page\n")
    assert sheets > 1000 / LINES_A_SHEET
    assert len(browser.value(NAMES)) == 100


@pytest.mark.parametrize("width", [1440, 1280, 800, 400])
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
