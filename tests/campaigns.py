"""Small campaigns and an execution side in this process, for tests of the runner."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from batchgate.campaign import Campaign
from batchgate.importing import import_module
from batchgate.job import End, FunctionTask, JobSpec, TaskEnd
from batchgate.plain import dumps

CODE = '''
def low(candidate):
    """Reject a negative x."""
    if candidate["x"] < 0:
        yield f"x is {candidate['x']:g}, must be at least 0"


def cheap(candidate, shift=0.0):
    return {"y": (candidate["x"] - 3) ** 2 + shift}


def full(candidate):
    return {"y": (candidate["x"] - 3) ** 2}
'''


def spec(**tables: Any) -> dict[str, Any]:
    """Return the data of a campaign that minimises (x-3)^2 with a check, a verifier and jobs."""
    data: dict[str, Any] = {
        "campaign": {"name": "square"},
        "variables": {"x": {"domain": [-10, 10]}},
        "objectives": {"y": "MINIMIZE"},
        "check": [{"use": "campaign:low"}],
        "level": [
            {
                "name": "cheap",
                "use": "campaign:cheap",
                "timeout_s": 5,
                "accept": {"y": ["LESS_THAN", 30]},
            },
            {"name": "full", "use": "campaign:full", "timeout_s": 36},
        ],
        "producer": {"attempts": 2},
        "fallback": {"use": "batchgate.surrogates:Sobol", "idle_s": 1000},
        "stop": {"node_h": 1.0, "jobs": 3},
    }
    for name, table in tables.items():
        old = data.get(name)
        data[name] = {**old, **table} if isinstance(old, dict) else table
    return data


def campaign(folder: Path, *, code: str = CODE, **tables: Any) -> Campaign:
    """Write the campaign's code into a folder and load the campaign."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "campaign.py").write_text(code)
    return Campaign.of(spec(**tables), folder=folder)


class InlineFlow:
    """Runs functions and jobs in this process; scripted ends and delays stand in for faults.

    Attributes:
        ends: Called with each task before it runs; an end it returns is taken instead.
        calls: Function tasks seen.
        jobs: Jobs seen.
        together: Most jobs that ran at once.
    """

    def __init__(
        self,
        *,
        ends: Callable[[FunctionTask | JobSpec], TaskEnd | None] = lambda task: None,
        delay_s: float = 0.0,
    ) -> None:
        self.ends = ends
        self.delay_s = delay_s
        self.calls: list[FunctionTask] = []
        self.jobs: list[JobSpec] = []
        self.together = 0
        self._running = 0

    async def call(self, task: FunctionTask) -> TaskEnd:
        self.calls.append(task)
        await asyncio.sleep(0)
        if (end := self.ends(task)) is not None:
            return end
        function = _function(task.folder, task.use)
        return TaskEnd(End.COMPLETED, value=function(task.value, **task.args))

    async def execute(self, spec: JobSpec) -> TaskEnd:
        self.jobs.append(spec)
        self._running += 1
        self.together = max(self.together, self._running)
        started_at = time.time()
        try:
            await asyncio.sleep(self.delay_s)
        finally:
            self._running -= 1
        if (end := self.ends(spec)) is not None:
            return end
        options = spec.argv[spec.argv.index("batchgate.flow.entry") + 1 :]
        given = dict(zip(options[::2], options[1::2], strict=True))
        function = _function(Path(given["--folder"]), given["--use"])
        candidate = json.loads(Path(given["--candidate"]).read_text())
        args: Mapping[str, Any] = json.loads(Path(given["--args"]).read_text())
        Path(given["--result"]).write_text(dumps(function(candidate, **args)))
        return TaskEnd(End.COMPLETED, exit_code=0, started_at=started_at, ended_at=time.time())


def _function(folder: Path | None, use: str) -> Callable[..., Any]:
    module, _, name = use.partition(":")
    function: Callable[..., Any] = getattr(import_module(module, folder), name)
    return function
