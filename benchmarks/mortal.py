"""The process of the lives: forks runners that kill themselves where their `Fate` says.

The child stands in its own session, calls the real command line, and sends itself SIGKILL; the
product knows nothing of it. What a killed runner leaves behind becomes a child of this process (a
subreaper), so that nothing outlives the harness.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import dataclasses
import gc
import importlib
import itertools
import json
import os
import random
import select
import signal
import sys
import traceback
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self
from unittest import mock

from batchgate.campaign import Campaign, Proposal
from batchgate.cli import main as command
from batchgate.cli import wiring
from batchgate.decision import Rejected
from batchgate.errors import ProducerError
from batchgate.events import Event
from batchgate.flow import open_flow
from batchgate.job import Flow, FunctionTask, JobSpec, TaskEnd
from batchgate.ledger import Appended, Ledger
from batchgate.runner import Model, Observer, Recorder
from batchgate.state import State
from batchgate.testing import Call, Line, ScriptedProducer

from .lives import ANY, LAUNCH, Fate, Life, Memo

WARM = (
    "batchgate.cli.run",
    "batchgate.flow.backend",
    "batchgate.flow.engine",
    "batchgate.review.report",
    "batchgate.surrogates.fallback",
    "batchgate.surrogates.generator",
    "radical.asyncflow",
)
"""Modules that a life imports late."""

_PR_SET_CHILD_SUBREAPER = 36
_HUNG_S = 120.0


@dataclass(slots=True)
class Doom:
    """A life's fate at work: counts what happens and strikes.

    Attributes:
        life: Whose.
        entries: Lines of the ledger that the state has taken into account.
        state: The runner's state, once there is one.
    """

    life: Life
    entries: int = 0
    state: State | None = None
    _seen: Counter[str] = field(default_factory=Counter)
    _torn: Fate | None = None
    _writes: str = ""

    def comes(self, kind: str) -> Fate | None:
        """Count an event or a launch; return the fate that strikes at it."""
        self._seen[kind] += 1
        place = (kind, self._seen[kind])
        return next((f for f in self.life.fates if (f.kind, f.nth) == place), None)

    def strike(self, kind: str, when: str) -> NoReturn:
        """End this process as a node's failure would; leave a note of what was going on."""
        self.remember()
        Path(f"{self.life.memo}.struck").write_text(json.dumps([kind, when]))
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("a process outlived SIGKILL")

    def remember(self) -> None:
        """Write down what this life knows."""
        if self.state is not None:
            memo = Memo(self.entries, repr(self.state))
            Path(self.life.memo).write_text(json.dumps(dataclasses.asdict(memo)))

    def append(self, event: Event, append: Callable[[], Appended]) -> Appended:
        """Append an event, unless this is the end, or the end comes while it is written."""
        fates = [fate for fate in (self.comes(event.type), self.comes(ANY)) if fate]
        moments = {fate.when: fate for fate in fates}
        if self._seen[ANY] == self.life.suspend_at:
            os.kill(os.getpid(), signal.SIGTERM)
        if event.type == "segment_closed":
            self.remember()
        if "before" in moments:
            self.strike(event.type, "before")
        self._torn = moments.get("torn")
        self._writes = event.type
        appended = append()
        if "after" in moments:
            self.strike(event.type, "after")
        self.entries = appended.entry.seq + 1
        return appended

    def write(self, fd: int, line: bytes) -> int:
        """Write a line, or a part of it and die."""
        if self._torn is not None:
            os.write(fd, line[: min(1 + int(self._torn.share * len(line)), len(line) - 1)])
            self.strike(self._writes, "torn")
        return os.write(fd, line)


class MortalLedger(Ledger):
    """The real ledger of a life that may end at any event."""

    doom: ClassVar[Doom]

    @classmethod
    def open(cls, folder: Path, **options: Any) -> Self:
        """Open it, with a `write` that can be torn."""
        return super().open(folder, write=cls.doom.write, **options)

    def append(self, event: Event) -> Appended:
        """Append, or die before, in or after it."""
        return self.doom.append(event, lambda: super(MortalLedger, self).append(event))


@dataclass(frozen=True, slots=True)
class MortalFlow:
    """The real execution side of a life that may end around a launch."""

    flow: Flow
    doom: Doom

    async def call(self, task: FunctionTask) -> TaskEnd:
        """Run a function; nothing strikes here."""
        return await self.flow.call(task)

    async def execute(self, spec: JobSpec) -> TaskEnd:
        """Run a job, or die before, amid or after it."""
        fate = self.doom.comes(LAUNCH)
        if fate and fate.when == "before":
            self.doom.strike(LAUNCH, fate.when)
        if fate and fate.when == "amid":
            asyncio.get_running_loop().call_later(fate.share, self.doom.strike, LAUNCH, fate.when)
        end = await self.flow.execute(spec)
        if fate and fate.when == "after":
            self.doom.strike(LAUNCH, fate.when)
        return end


class NoServer:
    """Stands where a model's server would."""

    async def stop(self) -> None:
        """Stop nothing."""


def answer(campaign: Campaign, seed: int, call: Call) -> Line:
    """Return what a model that errs at times says; the same when it is asked the same."""
    luck = random.Random(f"{seed}/{call.decision}/{len(call.previous)}")
    match luck.choices(("good", "low", "known", "no_json", "down"), (12, 4, 2, 3, 2))[0]:
        case "no_json":
            return Rejected("the answer is no JSON", check="schema", value="{")
        case "down":
            return ProducerError("nobody answers", "connection")
        case "low":
            xs = [luck.uniform(-10, -5)]
        case "known":
            xs = [1.0]
        case _:
            xs = [luck.uniform(-5, 10)]
    xs += [luck.uniform(-5, 10) for _ in range(campaign.spec.producer.batch - 1)]
    return Proposal(candidates=[campaign.candidate_model(x=x) for x in xs])


def _parts(life: Life) -> dict[str, Any]:
    """Return what stands in for the parts of `batchgate.cli.wiring`."""
    doom = MortalLedger.doom = Doom(life)

    @contextlib.asynccontextmanager
    async def flow(**options: Any) -> AsyncIterator[Flow]:
        async with open_flow(**options) as opened:
            yield MortalFlow(opened, doom)

    def model(plan: wiring.Plan, server: Any) -> Model:
        seed = life.script or 0
        script = itertools.repeat(lambda call: answer(plan.campaign, seed, call))
        return Model("scripted", producer=ScriptedProducer(script))

    class WatchedRecorder:
        @staticmethod
        def of(ledger: Ledger, observe: Observer) -> Recorder:
            recorder = Recorder.of(ledger, observe)
            doom.state = recorder.state
            return recorder

    return {
        "Ledger": MortalLedger,
        "Recorder": WatchedRecorder,
        "open_flow": flow,
        "model_server": lambda plan, say: NoServer(),
        "model": model,
    }


def _live(life: Life) -> None:
    """Be a runner; never returns."""
    os.setsid()
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(life.output, os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    for descriptor, target in ((null, 0), (output, 1), (output, 2)):
        os.dup2(descriptor, target)
    # Waits for a model that failed, and ticks of an idle loop, are time and no behaviour.
    quick = mock.patch.multiple("batchgate.runner.run", PAUSE_S=0.02, TICK_S=0.1)
    code: Any = 70
    try:
        with mock.patch.multiple(wiring, **_parts(life)), quick:
            command(list(life.argv))
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:  # noqa: BLE001 - whatever it is, the audit has to see it
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _fork(life: Life) -> tuple[int, Any, int, bool]:
    pid = os.fork()
    if pid == 0:
        _live(life)
    hung = not _ended(pid, life.kill_after_s or _HUNG_S)
    if hung:
        os.kill(pid, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    left = sum(1 for _ in _children())
    _reap()
    note = Path(f"{life.memo}.struck")
    struck = json.loads(note.read_text()) if note.exists() else None
    return code, struck, left, hung and life.kill_after_s is None


def _ended(pid: int, limit_s: float) -> bool:
    """Wait until a process has ended, at most for some seconds; say whether it has."""
    descriptor = os.pidfd_open(pid)
    try:
        return bool(select.select([descriptor], [], [], limit_s)[0])
    finally:
        os.close(descriptor)


def _children() -> Iterator[int]:
    """Yield the children that live, those left by a killed runner among them."""
    own = os.getpid()
    for pid in Path(f"/proc/{own}/task/{own}/children").read_text().split():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z":
                yield int(pid)


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def serve() -> None:
    """Fork a life for each line of stdin, and answer with how it ended."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_CHILD_SUBREAPER, 1)
    for name in WARM:
        importlib.import_module(name)
    assert len(os.listdir("/proc/self/task")) == 1, "only a process without threads may fork"  # noqa: PTH208 - a count
    gc.freeze()
    try:
        for line in sys.stdin:
            data = json.loads(line)
            fates = tuple(Fate(**fate) for fate in data.pop("fates"))
            print(json.dumps(_fork(Life(**data, fates=fates))), flush=True)
    finally:
        for pid in _children():
            os.kill(pid, signal.SIGKILL)
        _reap()


if __name__ == "__main__":
    serve()
