"""What a function does to its worker is an end, and no other task notices."""

import asyncio
import math
import os
import time
import uuid
from pathlib import Path

import pytest
import pytest_asyncio

from batchgate.errors import FlowError
from batchgate.flow import end_orphans, find_orphans, open_flow, processes
from batchgate.flow import slot as slots
from batchgate.job import End, FunctionTask

pytestmark = pytest.mark.asyncio(loop_scope="module")
MARKER = f"test-{uuid.uuid4().hex}"


def function(name, value=None, *, timeout_s=60.0, **args):
    return FunctionTask(Path(__file__).parent, f"flow_functions:{name}", value, timeout_s, args)


@pytest.fixture(scope="module")
def work_dir(tmp_path_factory):
    return tmp_path_factory.mktemp("flow")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def flow(work_dir):
    async with open_flow(workers=2, jobs=1, work_dir=work_dir, marker=MARKER, grace_s=0.5) as flow:
        yield flow


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(condition):
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)


async def call_beside_an_innocent(flow, task):
    """Call a function while another slot is busy; return its end when the other was unharmed."""
    innocent = asyncio.ensure_future(flow.call(function("slow", "unharmed", seconds=0.5)))
    end = await flow.call(task)
    assert (await innocent).value == "unharmed"
    assert (await flow.call(function("echo", "next"))).value == "next"
    return end


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("plain", "ValueError: plain"),
        ("two arguments", "TwoArgumentsError: 3: boom"),
        ("unreadable", "UnreadableError: (its text cannot be read)"),
        ("exit", "SystemExit: 0"),
        ("interrupt", "KeyboardInterrupt"),
        ("cancelled", "CancelledError: inside"),
        ("generator exit", "GeneratorExit"),
        ("recursion", "RecursionError: maximum recursion depth exceeded"),
    ],
)
async def test_whatever_a_function_raises_is_an_exception_in_words(flow, kind, error):
    end = await call_beside_an_innocent(flow, function("raises", kind=kind))

    assert (end.end, end.value) == (End.EXCEPTION, None)
    assert end.error.startswith(error)
    assert "in raises" in end.traceback
    assert end.ended_at >= end.started_at > 0


async def test_a_long_message_with_control_characters_is_one_bounded_line(flow):
    end = await flow.call(function("raises", kind="long"))

    assert end.error.startswith("ValueError: [31mred xxx")
    assert end.error.isprintable()
    assert len(end.error) == 2000
    assert len(end.traceback) == 8000


@pytest.mark.parametrize(
    ("kind", "error"),
    [
        ("lambda", "TypeError: the function returned function, must be plain data"),
        ("generator", "TypeError: the function returned generator, must be plain data"),
        ("object", "TypeError: the function returned object, must be plain data"),
        ("bytes", "TypeError: the function returned bytes, must be plain data"),
        ("set", "TypeError: the function returned set, must be plain data"),
        ("cycle", "ValueError: Circular reference detected"),
        ("deep", "RecursionError"),
        ("huge", "ValueError: the result has 2097"),
    ],
)
async def test_a_result_that_is_no_bounded_data_is_an_exception(flow, kind, error):
    end = await flow.call(function("returns", kind=kind))

    assert (end.end, end.value) == (End.EXCEPTION, None)
    assert end.error.startswith(error)


async def test_numbers_that_are_not_finite_stay_numbers(flow):
    value = (await flow.call(function("returns", kind="nan"))).value

    assert math.isnan(value["a"])
    assert value["b"] == [math.inf, -math.inf]
    assert math.copysign(1, value["c"]) == -1


async def test_a_tuple_comes_back_as_a_list(flow):
    assert (await flow.call(function("returns", kind="tuple"))).value == [1, 2]


@pytest.mark.parametrize(
    ("kind", "exit_code", "signal", "error"),
    [
        ("exit", 3, None, "its worker died: exit code 3"),
        ("segv", None, 11, "its worker died: killed by SIGSEGV"),
        ("kill", None, 9, "its worker died: killed by SIGKILL"),
    ],
)
async def test_a_worker_that_dies_is_lost_and_replaced(flow, kind, exit_code, signal, error):
    end = await call_beside_an_innocent(flow, function("dies", kind=kind))

    assert (end.end, end.exit_code, end.signal) == (End.WORKER_LOST, exit_code, signal)
    assert end.error == error
    assert end.ended_at >= end.started_at > 0


async def test_a_crash_in_compiled_code_leaves_the_stack(flow):
    end = await flow.call(function("dies", kind="segv"))

    assert "Segmentation fault" in end.traceback
    assert "in dies" in end.traceback


async def test_a_worker_that_died_between_calls_is_replaced(flow):
    pid = (await flow.call(function("pid"))).value
    workers = [slot._worker for slot in flow._engine.backend._functions._slots if slot._worker]
    os.kill(pid, 9)
    await until(lambda: any(worker.exited.done() for worker in workers))

    ends = [await flow.call(function("pid")) for _ in range(2)]

    assert [end.end for end in ends] == [End.COMPLETED] * 2
    assert pid not in [end.value for end in ends]


async def test_a_function_that_hangs_is_ended_with_all_it_started(flow, tmp_path):
    task = function("hangs", mark=str(tmp_path / "pids"), timeout_s=0.5)

    end = await call_beside_an_innocent(flow, task)

    assert end.end is End.TIMED_OUT
    assert end.error == "ended after its deadline of 0.5 s"
    assert "in hangs" in end.traceback
    assert 0.5 <= end.elapsed_s < 10
    worker, grandchild = (int(pid) for pid in (tmp_path / "pids").read_text().split())
    assert not alive(worker)
    assert not alive(grandchild)


async def test_an_import_that_hangs_is_ended(flow, tmp_path, monkeypatch):
    monkeypatch.setattr(slots, "IMPORT_S", 0.5)
    (tmp_path / "stuck.py").write_text("import time; time.sleep(600)")

    end = await flow.call(FunctionTask(tmp_path, "stuck:f", None, 60))

    assert (end.end, end.error) == (End.TIMED_OUT, "not imported within 0.5 s")
    assert end.elapsed_s == 0


async def test_a_cancelled_call_has_ended_its_worker_by_then(flow, tmp_path):
    mark = tmp_path / "pids"
    calling = asyncio.ensure_future(flow.call(function("hangs", mark=str(mark))))
    await until(lambda: mark.exists() and mark.read_text())

    calling.cancel()
    with pytest.raises(asyncio.CancelledError):
        await calling

    assert not any(alive(int(pid)) for pid in mark.read_text().split())
    assert (await flow.call(function("echo", "next"))).value == "next"


async def test_a_call_cancelled_while_it_waits_for_a_worker_is_gone_at_once(flow, tmp_path):
    marks = [tmp_path / "a", tmp_path / "b"]
    busy = [asyncio.ensure_future(flow.call(function("hangs", mark=str(m)))) for m in marks]
    await until(lambda: all(m.exists() for m in marks))
    waiting = asyncio.ensure_future(flow.call(function("echo")))
    await until(lambda: len(flow._engine.backend._running) == 3)
    began = time.monotonic()

    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert time.monotonic() - began < 5
    assert not any(task.done() for task in busy)
    for task in busy:
        task.cancel()
    await asyncio.gather(*busy, return_exceptions=True)


async def test_output_without_end_fills_neither_disk_nor_memory(flow, work_dir):
    end = await flow.call(function("prints", "ok", megabytes=20))

    assert end.value == "ok"
    logs = [path.stat().st_size for path in work_dir.glob("*.log")]
    assert max(logs) <= 1 << 20
    assert sum(logs) >= 1 << 20


@pytest.mark.parametrize("name", ["forks", "forks_and_returns"])
async def test_a_forked_child_does_not_answer_for_its_parent(flow, name):
    for n in range(3):
        assert (await flow.call(function(name, n))).value == n


@pytest.mark.parametrize(
    "text",
    [
        "no json\n",
        "[]\n",
        '{"id": "another", "started_at": 1.0}\n',
        '{"id": "another", "end": "completed", "started_at": 1.0, "ended_at": 1.0, "value": 1}\n',
        '{"id": "x", "end": "accepted", "started_at": NaN, "ended_at": 1.0}\n',
        "[" * 100_000 + "\n",
        "1" * 5000 + "\n",
        "\xff\n",
    ],
)
async def test_a_worker_that_forges_an_answer_is_lost(flow, text):
    end = await call_beside_an_innocent(flow, function("forges", text=text))

    assert (end.end, end.value) == (End.WORKER_LOST, None)
    assert end.error == "its worker sent what is no answer"


async def test_a_worker_that_floods_the_runner_is_lost(flow):
    end = await flow.call(function("floods"))

    assert (end.end, end.error) == (End.WORKER_LOST, "its worker sent what is no answer")


async def test_a_worker_that_cannot_be_started_is_an_end(tmp_path, monkeypatch):
    async with open_flow(workers=1, jobs=1, work_dir=tmp_path / "f", marker="test") as flow:
        (tmp_path / "f").rmdir()
        (tmp_path / "f").write_text("in the way")

        end = await flow.call(function("echo"))
        (tmp_path / "f").unlink()

        assert end.end is End.NOT_STARTED
        assert "Not a directory" in end.error
        assert (await flow.call(function("echo", "later"))).value == "later"


@pytest.fixture
def unkillable(monkeypatch):
    """Have no signal arrive, as with a process that hangs in the kernel."""
    with monkeypatch.context() as patch:
        patch.setattr(processes, "_KILL_S", 0.1)
        patch.setattr(processes, "_send", lambda pid, number: None)
        yield patch


async def test_a_worker_that_cannot_be_ended_makes_the_end_unknown(tmp_path, unkillable):
    marker = f"test-{uuid.uuid4().hex}"
    async with open_flow(workers=1, jobs=1, work_dir=tmp_path, marker=marker, grace_s=0.1) as flow:
        end = await flow.call(function("slow", seconds=600, timeout_s=0.2))
        unkillable.undo()
        next_end = await flow.call(function("echo", "next"))

    assert end.end is End.UNKNOWN
    assert "are still there 0.1 s after SIGKILL" in end.error
    assert next_end.value == "next"
    await end_orphans(marker)


async def test_leaving_tells_of_a_worker_that_cannot_be_ended(tmp_path, unkillable):
    marker = f"test-{uuid.uuid4().hex}"

    async def life():
        async with open_flow(workers=1, jobs=1, work_dir=tmp_path, marker=marker) as flow:
            await flow.call(function("echo"))

    with pytest.raises(FlowError, match=r"are still there 0\.1 s after SIGKILL"):
        await life()

    unkillable.undo()
    await end_orphans(marker)


async def test_leaving_ends_hung_functions_without_blocking_the_loop(tmp_path):
    marker = f"test-{uuid.uuid4().hex}"
    lags_s = []

    async def tick():
        while True:
            asked_at = time.monotonic()
            await asyncio.sleep(0.01)
            lags_s.append(time.monotonic() - asked_at)

    async with open_flow(workers=2, jobs=1, work_dir=tmp_path, marker=marker, grace_s=0.3) as flow:
        marks = [tmp_path / "a", tmp_path / "b"]
        hung = [asyncio.ensure_future(flow.call(function("hangs", mark=str(m)))) for m in marks]
        await until(lambda: all(m.exists() for m in marks))
        queued = asyncio.ensure_future(flow.call(function("echo")))
        await until(lambda: len(flow._engine.backend._running) == 3)  # type: ignore[attr-defined] # not of the port
        ticking = asyncio.ensure_future(tick())
        began = time.monotonic()

    took_s = time.monotonic() - began
    ticking.cancel()
    assert took_s < 10
    assert max(lags_s) < 2
    assert find_orphans(marker) == []
    ends = await asyncio.gather(*hung, queued)
    assert [end.end for end in ends] == [End.CANCELED] * 3


async def test_leaving_is_not_cut_short_by_a_cancellation(tmp_path):
    marker = f"test-{uuid.uuid4().hex}"
    mark = tmp_path / "pids"

    async def life():
        async with open_flow(workers=1, jobs=1, work_dir=tmp_path, marker=marker) as flow:
            await flow.call(function("hangs", mark=str(mark)))

    living = asyncio.ensure_future(life())
    await until(mark.exists)
    for _ in range(3):
        living.cancel()
        await asyncio.sleep(0.005)
    with pytest.raises(asyncio.CancelledError):
        await living

    assert find_orphans(marker) == []
