"""The cases of `test_asyncflow_traps.py`: for each trap what stock AsyncFlow does, and what ours.

Run as a program: `asyncflow_cases.py SIDE TRAP FOLDER` writes what was seen to `FOLDER/said`.
"""

import asyncio
import contextlib
import itertools
import json
import multiprocessing
import os
import shlex
import signal
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

FUNCTIONS = Path(__file__).parents[1] / "fault"
sys.path.insert(0, str(FUNCTIONS))
import flow_functions  # type: ignore[import-not-found] # noqa: E402 - found by that path

if sys.argv[1:2] == ["stock"]:
    # rhapsody 0.6 imports Dask where it is installed, and with it tblib, which teaches pickle the
    # exceptions that it cannot read. Here, and in the workers, which import this module again.
    sys.modules["dask"] = None  # type: ignore[assignment]

HUNG = "hung"


# ------------------------------------------------------------------------- the two sides


async def stock(folder, pool=None, workers=2):
    """Return AsyncFlow's engine on RHAPSODY's concurrent backend."""
    from radical.asyncflow import WorkflowEngine
    from rhapsody.backends.execution.concurrent import ConcurrentExecutionBackend

    executor = {
        None: lambda: ThreadPoolExecutor(workers),
        "fork": lambda: ProcessPoolExecutor(workers, multiprocessing.get_context("fork")),
        "spawn": lambda: ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")),
    }[pool]()
    backend = await ConcurrentExecutionBackend(executor)
    return await WorkflowEngine.create(backend=backend, work_dir=str(folder))


def stock_function(engine, name):
    """Return a function of a campaign as a task."""

    async def task(*args, **kwargs):
        import flow_functions  # here too: it runs in another process

        return getattr(flow_functions, name)(*args, **kwargs)

    return engine.function_task(task)


def stock_command(engine):
    async def command(text):
        return text

    return engine.executable_task(command)


def ours(folder, workers=2, jobs=2):
    from batchgate.flow import open_flow

    return open_flow(workers=workers, jobs=jobs, work_dir=folder, marker="traps", grace_s=0.5)


def function(name, value=None, timeout_s=60.0, **args):
    from batchgate.job import FunctionTask

    return FunctionTask(FUNCTIONS, f"flow_functions:{name}", value, timeout_s, args)


def job(folder, *argv, walltime_s=60.0, env=None):
    from batchgate.job import JobSpec

    return JobSpec("job-1", argv, folder, walltime_s, env or {})


async def outcome(awaitable, limit_s=3.0):
    """Return what an awaitable gives, the name of what it raises, or that it hangs."""
    future = asyncio.ensure_future(awaitable)
    await asyncio.wait({future}, timeout=limit_s)
    if not future.done():
        return HUNG
    if future.cancelled():
        return "CancelledError"
    if error := future.exception():
        return type(error).__name__
    return future.result()


# ----------------------------------------------------------------------------- the traps


async def stock_two_engines(folder):
    one, other = await stock(folder), await stock(folder)
    slow = stock_function(other, "slow")
    old = slow("old", seconds=0.5)
    await asyncio.sleep(0.2)
    await one.shutdown()
    seen = await outcome(slow("new", seconds=1.0))
    old.original_cancel()
    return seen


async def ours_two_engines(folder):
    async with ours(folder / "b") as other:
        async with ours(folder / "a"):
            old = asyncio.ensure_future(other.call(function("slow", "old", seconds=0.5)))
            await asyncio.sleep(0.2)
        new = await other.call(function("slow", "new", seconds=1.0))
        assert (await old).value == "old"
        return new.value


async def stock_future_in_a_command(folder):
    engine = await stock(folder)
    shown = await engine.executable_task(_echo)(stock_function(engine, "echo")(3))
    return shown.strip()


async def _echo(value):
    return f"echo {value}"


async def ours_future_in_a_command(folder):
    async with ours(folder) as flow:
        end = await flow.execute(job(folder, "echo", asyncio.get_running_loop().create_future()))
        return [end.end, (folder / "stdout").read_text()]


async def stock_quoting(folder):
    from radical.asyncflow import LocalExecutionBackend, WorkflowEngine

    engine = await WorkflowEngine.create(
        backend=await LocalExecutionBackend(), work_dir=str(folder)
    )
    await stock_command(engine)(f"echo {shlex.quote(f'x; touch {folder}/pwned')}")
    return (folder / "pwned").exists()


async def ours_quoting(folder):
    async with ours(folder) as flow:
        await flow.execute(job(folder, "echo", f"x; touch {folder}/pwned"))
        return (folder / "pwned").exists()


async def stock_crash(folder):
    engine = await stock(folder, "fork")
    await outcome(stock_function(engine, "dies")(None, kind="exit"))
    # It hangs, or raises BrokenProcessPool or CancelledError, as the race goes.
    return await outcome(stock_function(engine, "echo")("later")) != "later"


async def ours_crash(folder):
    async with ours(folder) as flow:
        await flow.call(function("dies", kind="exit"))
        return (await flow.call(function("echo", "later"))).value != "later"


async def stock_odd_exception(folder):
    engine = await stock(folder, "spawn")
    innocent = stock_function(engine, "slow")("innocent", seconds=3)
    await outcome(stock_function(engine, "raises")(None, kind="two arguments"), limit_s=20)
    return await outcome(innocent, limit_s=20)


async def ours_odd_exception(folder):
    async with ours(folder) as flow:
        innocent = asyncio.ensure_future(flow.call(function("slow", "innocent", seconds=3)))
        await flow.call(function("raises", kind="two arguments"))
        return (await innocent).value


async def stock_exit(folder):
    engine = await stock(folder)
    return await outcome(stock_function(engine, "raises")(None, kind="exit"))


async def ours_exit(folder):
    async with ours(folder) as flow:
        return (await flow.call(function("raises", kind="exit"))).end


async def stock_cancelled_inside(folder):
    engine = await stock(folder)
    return await outcome(stock_function(engine, "raises")(None, kind="cancelled"))


async def ours_cancelled_inside(folder):
    async with ours(folder) as flow:
        return (await flow.call(function("raises", kind="cancelled"))).end


async def stock_time_limit(folder):
    command = stock_command(await stock(folder))
    began = time.monotonic()
    await command("sleep 1.5", task_description={"timeout": 0.2})
    return time.monotonic() - began >= 1.5


async def ours_time_limit(folder):
    async with ours(folder) as flow:
        began = time.monotonic()
        await flow.execute(job(folder, "sleep", "30", walltime_s=0.2))
        return time.monotonic() - began >= 15


async def stock_wait_for(folder):
    command = stock_command(await stock(folder))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(command("sleep 30"), 0.5)
    return sleepers()


async def ours_wait_for(folder):
    async with ours(folder) as flow:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(flow.execute(job(folder, "sleep", "30")), 0.5)
        return sleepers()


def sleepers():
    import psutil

    return sum("sleep" in child.cmdline() for child in psutil.Process().children())


async def stock_fan_out(folder):
    command = stock_command(await stock(folder, workers=2))
    running = [command("sleep 3") for _ in range(20)]
    await asyncio.sleep(2)
    seen = sleepers()
    await asyncio.gather(*running)
    return seen > 2


async def ours_fan_out(folder):
    async with ours(folder, jobs=2) as flow:
        running = [
            asyncio.ensure_future(flow.execute(job(folder, "sleep", "3"))) for _ in range(20)
        ]
        await asyncio.sleep(2)
        seen = sleepers()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        return seen > 2


async def stock_bad_submission(folder):
    engine = await stock(folder)
    innocent = stock_function(engine, "slow")("innocent", seconds=1)
    await asyncio.sleep(0.3)

    @engine.function_task(backend="typo")
    async def bad():
        return 1

    bad()
    return await outcome(innocent)


async def ours_bad_submission(folder):
    async with ours(folder) as flow:
        innocent = asyncio.ensure_future(flow.call(function("slow", "innocent", seconds=1)))
        await flow.call(function("echo", object()))
        await flow.execute(job(folder / "absent", ""))
        return (await innocent).value


async def stock_after_the_end(folder):
    engine = await stock(folder)
    await engine.shutdown()
    return await outcome(stock_function(engine, "echo")(1))


async def ours_after_the_end(folder):
    async with ours(folder) as flow:
        pass
    return await outcome(flow.call(function("echo", 1)))


async def stock_shutdown(folder):
    engine = await stock(folder)
    running = stock_function(engine, "slow")(1, seconds=3)
    await asyncio.sleep(0.3)
    lag_s = await longest_lag(engine.shutdown())
    running.cancelled()
    return lag_s > 2


async def ours_shutdown(folder):
    async with contextlib.AsyncExitStack() as stack:
        flow = await stack.enter_async_context(ours(folder))
        running = asyncio.ensure_future(flow.call(function("slow", 1, seconds=600)))
        await asyncio.sleep(0.3)
        lag_s = await longest_lag(stack.aclose())
    await running
    return lag_s > 2


async def longest_lag(awaitable):
    ending = asyncio.ensure_future(awaitable)
    longest_s = 0.0
    while not ending.done():
        asked_at = time.monotonic()
        await asyncio.sleep(0.01)
        longest_s = max(longest_s, time.monotonic() - asked_at)
    return longest_s


async def stock_signals(folder):
    seen: list[str] = []
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, seen.append, "ours")
    await stock(folder)
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.sleep(0.2)
    return seen


async def ours_signals(folder):
    seen: list[str] = []
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, seen.append, "ours")
    async with ours(folder) as flow:
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.sleep(0.2)
        assert (await flow.call(function("echo", 1))).value == 1
    return seen


async def stock_masked_error(folder):
    engine = await stock(folder)
    await _raise_beside(stock_function(engine, "slow")(1, seconds=2))


async def ours_masked_error(folder):
    async with ours(folder) as flow:
        await _raise_beside(flow.call(function("slow", 1, seconds=2)))


async def _raise_beside(awaitable):
    async def wait():
        return await awaitable

    waiting = asyncio.ensure_future(wait())
    await asyncio.sleep(0.5)
    raise KeyError(waiting.done())


async def stock_history(folder):
    engine = await stock(folder)
    echo = stock_function(engine, "echo")
    await asyncio.gather(*(echo(n) for n in range(50)))
    return len(engine.components)


async def ours_history(folder):
    async with ours(folder) as flow:
        await asyncio.gather(*(flow.call(function("echo", n)) for n in range(50)))
        return len(flow._engine.components)


async def stock_running(folder):
    slow = stock_function(await stock(folder, workers=1), "slow")
    tasks = [slow(n, seconds=0.5) for n in range(3)]
    await asyncio.sleep(0.3)
    seen = sum(task.state == "RUNNING" for task in tasks)
    await asyncio.gather(*tasks)
    return seen


async def ours_running(folder):
    async with ours(folder, workers=1) as flow:
        ends = await asyncio.gather(
            *(flow.call(function("slow", n, seconds=0.5)) for n in range(3))
        )
    spans = sorted((end.started_at, end.ended_at) for end in ends)
    return 1 + sum(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans))


async def stock_exit_code(folder):
    command = stock_command(await stock(folder))
    try:
        await command("sh -c 'exit 3'")
    except RuntimeError as exc:
        return str(exc)


async def ours_exit_code(folder):
    async with ours(folder) as flow:
        return (await flow.execute(job(folder, "sh", "-c", "exit 3"))).error


async def stock_bytes(folder):
    return await outcome(stock_command(await stock(folder))(r"printf '\377'"))


async def ours_bytes(folder):
    async with ours(folder) as flow:
        return (await flow.execute(job(folder, "printf", r"\377"))).end


async def stock_environment(folder):
    command = stock_command(await stock(folder))
    return (await command("/usr/bin/env", task_description={"env": {"A": "1"}})).split()


async def ours_environment(folder):
    async with ours(folder) as flow:
        await flow.execute(job(folder, "/usr/bin/env", env={"A": "1"}))
    names = (folder / "stdout").read_text().splitlines()
    return sorted(line for line in names if line.startswith(("A=", f"HOME={os.environ['HOME']}")))


async def stock_sync_function(folder):
    engine = await stock(folder)
    try:
        return await engine.function_task(flow_functions.echo)(1)
    except TypeError as exc:
        return type(exc).__name__


async def ours_sync_function(folder):
    async with ours(folder) as flow:
        return (await flow.call(function("echo", 1))).value


async def stock_killed_runner(folder):
    engine = await stock(folder, "spawn")
    await outcome(stock_function(engine, "hangs")(None, mark=str(folder / "pids")), limit_s=10)


async def ours_killed_runner(folder):
    async with ours(folder) as flow:
        await outcome(flow.call(function("hangs", mark=str(folder / "pids"))), limit_s=10)


def main(side, trap, folder):
    """Run a case, say what was seen, and leave without any tidying that could hang."""
    case, said = globals()[f"{side}_{trap}"], Path(folder, "said")
    try:
        asyncio.run(_said(case(Path(folder)), said))
    except Exception as exc:  # noqa: BLE001 - what comes out is what is looked at
        _say(type(exc).__name__, said)


async def _said(case, said):
    _say(await case, said)


def _say(seen, said):
    said.write_text(json.dumps(seen))
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
