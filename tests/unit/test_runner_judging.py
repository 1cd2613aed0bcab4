"""Jobs that have ended and whose results are still being read: neither running nor evaluated."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from batchgate.events import Event, JobPlanned, ResultAccepted
from batchgate.job import End, FunctionTask, JobSpec, TaskEnd
from batchgate.ledger import Ledger, read
from batchgate.runner import Recorder, Runner
from tests.campaigns import CODE, InlineFlow, campaign

PARSE = """
import json

def parse(result):
    with open(result) as file:
        return json.load(file)
"""
LEVEL = {
    "name": "full",
    "command": ["{python}", "job.py", "{result}"],
    "parse": "campaign:parse",
    "timeout_s": 36,
}


class SlowToRead(InlineFlow):
    """Jobs end at once; every result but the first takes longer to be read than a commit."""

    read = 0

    async def execute(self, spec: JobSpec) -> TaskEnd:
        Path(spec.argv[-1]).write_text(json.dumps({"y": 1.0}))
        return TaskEnd(End.COMPLETED, exit_code=0, started_at=time.time(), ended_at=time.time())

    async def call(self, task: FunctionTask) -> TaskEnd:
        self.read += 1
        await asyncio.sleep(0.3 if self.read > 1 else 0)
        return await super().call(task)


async def run(folder: Path, **stop: Any) -> list[Event]:
    """Run a campaign of such jobs, two at a time, without a model."""
    loaded = campaign(folder / "c", code=CODE + PARSE, level=[LEVEL], stop=stop)
    (folder / "r").mkdir()
    with Ledger.open(folder / "r" / "ledger", run="test") as ledger:
        runner = Runner(loaded, Recorder.of(ledger), SlowToRead(), folder / "r", slots=2)
        await runner.run()
    return [entry.event for entry in read(folder / "r" / "ledger")]


async def test_no_job_is_launched_in_place_of_one_whose_result_is_still_being_read(
    tmp_path: Path,
) -> None:
    events = await run(tmp_path, jobs=3)

    assert sum(isinstance(event, JobPlanned) for event in events) == 3


async def test_a_run_that_stops_judges_every_result_that_is_there(tmp_path: Path) -> None:
    events = await run(tmp_path, jobs=9, target={"y": 5.0})

    planned = {event.job for event in events if isinstance(event, JobPlanned)}
    assert {event.job for event in events if isinstance(event, ResultAccepted)} == planned
    assert len(planned) > 1
