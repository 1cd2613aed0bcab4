"""The digests of a campaign's own files, in the ledger and in the line of a resumed run."""

from __future__ import annotations

import hashlib
from pathlib import Path

from batchgate.cli.lines import line
from batchgate.events import RunResumed, RunStarted
from batchgate.ledger import Ledger, read
from batchgate.runner import Recorder, Runner
from batchgate.state import State
from tests.campaigns import CODE, InlineFlow, campaign


async def live(folder: Path, code: str, *, jobs: int) -> None:
    """Run one life without a model."""
    (folder / "r").mkdir(exist_ok=True)
    made = campaign(folder / "c", code=code, stop={"jobs": jobs})
    with Ledger.open(folder / "r/ledger", run="test") as ledger:
        await Runner(made, Recorder.of(ledger), InlineFlow(), folder / "r").run()


async def test_the_files_digests_are_recorded_and_a_change_is_told(tmp_path: Path) -> None:
    await live(tmp_path, CODE, jobs=1)
    await live(tmp_path, CODE, jobs=2)
    await live(tmp_path, CODE + "\n# tighter\n", jobs=3)

    state, told = State(), []
    for entry in read(tmp_path / "r/ledger"):
        state.apply(entry.event, at=entry.at)
        if isinstance(entry.event, RunStarted):
            digest = hashlib.sha256(CODE.encode()).hexdigest()
            assert entry.event.files == {"campaign.py": digest}
        if isinstance(entry.event, RunResumed):
            told.append((entry.event.changed, line(entry.event, state) or ""))
    assert [changed for changed, _ in told] == [(), ("campaign.py",)]
    assert told[0][1] == "run resumed: life 2, 1 candidates evaluated so far"
    assert told[1][1].endswith(", with another campaign.py")
