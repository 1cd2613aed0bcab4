"""What the flow relies on in radical.asyncflow 0.6, one test for each of its names."""

import asyncio
import importlib.metadata
import os
import signal
import subprocess
import sys

import pytest

from batchgate.errors import FlowError
from batchgate.flow.backend import Backend, Work
from batchgate.flow.engine import Engine
from batchgate.flow.pool import Pool
from batchgate.flow.process import Processes
from batchgate.flow.slot import Slot
from batchgate.flow.waiting import finished
from batchgate.job import End, FunctionTask, TaskEnd


def slots(work_dir):
    return Pool([Slot(work_dir / "worker-0", marker="test", grace_s=0)])


def local(work_dir):
    return Backend(functions=slots(work_dir), jobs=Processes("test", 0))


class Instant(Backend):
    """Ends each task at once, or when told, and runs nothing."""

    def __init__(self, work_dir):
        super().__init__(functions=slots(work_dir), jobs=Processes("test", 0))
        self.go = asyncio.Event()
        self.go.set()
        self.seen = []

    async def _end_of(self, task, work):
        self.seen.append(task)
        await self.go.wait()
        return TaskEnd(work.payload)


async def stand_in(work):
    """Be submitted."""


@pytest.fixture
async def backend(tmp_path):
    return Instant(tmp_path)


@pytest.fixture
async def engine(backend, tmp_path):
    engine = await Engine.of(backend, work_dir=tmp_path)
    yield engine
    backend.go.set()
    await engine.close()


def kept(engine):
    names = (
        *("components", "dependencies", "resolved", "running", "_dependents_map"),
        *("_dependency_count", "_ready_queue", "_block_members", "_task_submit_times"),
    )
    return {name: len(getattr(engine, name)) for name in names}


def test_the_version_is_the_one_that_was_read():
    assert importlib.metadata.version("radical.asyncflow").startswith("0.6.")


async def test_assign_uid_gives_each_task_its_id(engine, backend):
    submit = engine.function_task(stand_in)

    await asyncio.gather(*(engine.end_of(submit, End.COMPLETED) for _ in range(3)))

    uids = {task["uid"] for task in backend.seen}
    assert len(uids) == 3
    assert all(len(uid) == len("task.") + 32 for uid in uids)


async def test_the_argument_of_a_task_reaches_the_backend_as_it_is(engine, backend):
    await engine.end_of(engine.function_task(stand_in), End.COMPLETED)

    (work,) = backend.seen[0]["args"]
    assert isinstance(work, Work)


async def test_task_callbacks_is_what_the_backend_reports_to(engine, backend):
    assert backend._report == engine.task_callbacks


@pytest.mark.parametrize(
    ("end", "state"),
    [(End.COMPLETED, "DONE"), (End.EXIT, "FAILED"), (End.CANCELED, "CANCELLED")],
)
async def test_a_task_has_the_state_of_its_end_in_asyncflow(engine, end, state):
    work = Work(end, stop=asyncio.get_running_loop().create_future())
    future = engine.function_task(stand_in)(work)

    await asyncio.wait({future})

    assert future.state == state
    assert future.cancelled() or state == "DONE" or str(future.exception())


async def test_an_ended_task_leaves_nothing_in_the_engine(engine):
    submit = engine.function_task(stand_in)

    await asyncio.gather(*(engine.end_of(submit, End.COMPLETED) for _ in range(20)))

    assert set(kept(engine).values()) == {0}


async def test_a_running_task_is_known_as_running(engine, backend):
    backend.go.clear()
    running = asyncio.ensure_future(engine.end_of(engine.function_task(stand_in), End.EXIT))
    async with asyncio.timeout(5):
        while not backend.seen:
            await asyncio.sleep(0.001)

    assert engine.running == {backend.seen[0]["uid"]}
    backend.go.set()
    await running


async def test_shutdown_event_marks_an_engine_that_is_down(engine):
    engine._shutdown_event.set()

    assert engine.down
    with pytest.raises(FlowError, match="is down"):
        await engine.end_of(engine.function_task(stand_in), End.COMPLETED)


async def test_run_task_ends_with_the_engine_and_frees_who_waits(engine, backend):
    backend.go.clear()
    waiting = asyncio.ensure_future(engine.end_of(engine.function_task(stand_in), End.EXIT))
    async with asyncio.timeout(5):
        while not backend.seen:
            await asyncio.sleep(0.001)

    engine._run_task.cancel()

    with pytest.raises(FlowError, match="went down under a task"):
        await asyncio.wait_for(waiting, 5)


async def test_an_engine_that_dies_of_itself_frees_who_waits(engine, backend, monkeypatch):
    async def broken(tasks):
        raise RuntimeError("no")

    monkeypatch.setattr(backend, "submit_tasks", broken)

    with pytest.raises(FlowError, match="went down under a task"):
        await asyncio.wait_for(engine.end_of(engine.function_task(stand_in), End.EXIT), 5)

    assert engine.down
    assert engine._run_task.exception() is None  # so that it can be closed


async def test_setup_signal_handlers_is_where_asyncflow_takes_signals(engine, tmp_path):
    loop = asyncio.get_running_loop()
    seen: list[str] = []
    loop.add_signal_handler(signal.SIGTERM, seen.append, "ours")
    try:
        other = await Engine.of(Instant(tmp_path), work_dir=tmp_path)
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0)
        async with asyncio.timeout(5):
            while not seen:
                await asyncio.sleep(0.001)
        await other.close()
    finally:
        loop.remove_signal_handler(signal.SIGTERM)

    assert seen == ["ours"]
    assert not engine.down


async def test_clear_internal_records_is_where_ids_of_others_are_reset(engine, tmp_path):
    from radical.asyncflow import NoopExecutionBackend, WorkflowEngine, utils

    stock = await WorkflowEngine.create(backend=NoopExecutionBackend(), work_dir=str(tmp_path))
    first = utils.get_next_uid()
    await engine.close()

    assert int(utils.get_next_uid()) == int(first) + 1
    await stock.shutdown()
    assert utils.get_next_uid() == "000001"


async def test_the_engine_makes_no_folder_of_its_own(engine, tmp_path):
    assert list(tmp_path.iterdir()) == []


async def test_a_fault_of_the_backend_is_an_end(engine, backend, monkeypatch):
    async def broken(task, work):
        raise KeyError("ours")

    monkeypatch.setattr(backend, "_end_of", broken)

    end = await engine.end_of(engine.function_task(stand_in), End.COMPLETED)

    assert (end.end, end.error) == (End.UNKNOWN, "KeyError: 'ours'")


async def test_cancel_task_ends_a_task_that_runs_and_knows_no_other(tmp_path):
    backend = local(tmp_path)
    reported = asyncio.Queue[str]()
    backend.register_callback(lambda task, state: reported.put_nowait(state))
    task = FunctionTask(folder=None, use="time:sleep", value=60, timeout_s=60)
    work = Work(task, stop=asyncio.get_running_loop().create_future())

    await backend.submit_tasks([{"uid": "task.1", "args": (work,)}])
    assert await reported.get() == "RUNNING"

    assert await backend.cancel_task("task.1")
    assert await reported.get() == "CANCELED"
    assert not await backend.cancel_task("task.1")
    await backend.shutdown()


async def test_a_task_that_comes_after_the_end_is_canceled(tmp_path):
    backend = local(tmp_path)
    await backend.shutdown()
    task = FunctionTask(folder=None, use="time:sleep", value=60, timeout_s=60)
    work = Work(task, stop=asyncio.get_running_loop().create_future())

    await backend.submit_tasks([{"uid": "task.1", "args": (work,)}])
    await backend.shutdown()

    assert work.end is not None
    assert work.end.end is End.CANCELED
    assert list(tmp_path.iterdir()) == []


async def test_what_is_awaited_to_the_end_outlives_cancellations():
    go = asyncio.Event()
    done = []

    async def work():
        await go.wait()
        done.append(True)

    waiting = asyncio.ensure_future(finished(work()))
    for _ in range(3):
        await asyncio.sleep(0)
        waiting.cancel()
    await asyncio.sleep(0)
    assert not waiting.done()
    go.set()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert done == [True]


def test_a_worker_starts_without_importing_asyncflow():
    code = "import sys, batchgate.flow.worker; print('radical' in sys.modules)"

    assert subprocess.check_output([sys.executable, "-c", code], text=True) == "False\n"
