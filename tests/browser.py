"""A browser for tests and measurements: Chromium, without a window, driven over its DevTools pipe."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

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


def chromium() -> str | None:
    """Return the browser's program, where there is one."""
    return shutil.which("chromium") or shutil.which("google-chrome")


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
        # Of the thread's own CPU: what else the machine does then takes no part.
        self.call("Performance.enable", timeDomain="threadTicks")

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

    def busy_s(self) -> float:
        """Return the seconds of CPU that the page has cost its main thread so far."""
        metrics = self.call("Performance.getMetrics")["metrics"]
        return next(float(m["value"]) for m in metrics if m["name"] == "TaskDuration")

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
