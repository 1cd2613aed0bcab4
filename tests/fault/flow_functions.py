"""Functions of a hostile or broken campaign: what runs in the workers of the flow's tests."""

import asyncio
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path


class TwoArgumentsError(Exception):
    """Cannot be unpickled: its `args` are not what `__init__` takes."""

    def __init__(self, code, detail):
        super().__init__(f"{code}: {detail}")


class UnreadableError(Exception):
    def __str__(self):
        raise RuntimeError("no text")


def echo(value):
    return value


def slow(value, *, seconds):
    time.sleep(seconds)
    return value


def pid(value):
    return os.getpid()


async def awaits(value):
    await asyncio.sleep(0)
    return value


def returns(value, *, kind):
    cycle: list[object] = []
    cycle.append(cycle)
    deep: list[object] = []
    for _ in range(100_000 if kind == "deep" else 0):
        deep = [deep]
    return {
        "lambda": lambda: 7,
        "generator": (i for i in [1]),
        "object": object(),
        "bytes": b"x",
        "set": {1},
        "cycle": cycle,
        "deep": deep,
        "huge": "x" * (2 << 20),
        "tuple": (1, 2),
        "nan": {"a": float("nan"), "b": [float("inf"), -float("inf")], "c": -0.0},
    }[kind]


def raises(value, *, kind):
    if kind == "two arguments":
        raise TwoArgumentsError(3, "boom")
    if kind == "unreadable":
        raise UnreadableError
    if kind == "exit":
        sys.exit(0)
    if kind == "interrupt":
        raise KeyboardInterrupt
    if kind == "cancelled":
        raise asyncio.CancelledError("inside")
    if kind == "generator exit":
        raise GeneratorExit
    if kind == "long":
        raise ValueError("\x1b[31mred\n" + "x" * 100_000)
    if kind == "recursion":
        return raises(value, kind=kind)
    raise ValueError(kind)


def dies(value, *, kind):
    if kind == "exit":
        os._exit(3)
    if kind == "segv":
        ctypes.string_at(0)
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def hangs(value, *, mark):
    """Leave a grandchild in a session of its own, print, and never return."""
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as child:
        Path(mark).write_text(f"{os.getpid()} {child.pid}")
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        time.sleep(600)


def prints(value, *, megabytes):
    for _ in range(megabytes):
        sys.stdout.write("y" * 1_000_000)
    sys.stdout.write("the end\n")
    return value


def forks(value):
    """Return, and exit, in a child as well."""
    if os.fork() == 0:
        sys.exit(0)
    time.sleep(0.1)
    return value


def forks_and_returns(value):
    if os.fork() == 0:
        return "from the child"
    time.sleep(0.1)
    return value


def variables(value):
    return {name: os.environ.get(name) for name in value}


def here(value):
    os.chdir("/")
    return value


def cwd(value):
    return str(Path.cwd())


def reads_stdin(value):
    return sys.stdin.read()


def _channel():
    return socket.socket(fileno=os.dup(int(sys.argv[1])))


def forges(value, *, text):
    """Write to the runner's socket, as code that was taken over could."""
    _channel().sendall(text.encode())
    time.sleep(60)


def floods(value):
    channel = _channel()
    while True:
        channel.sendall(b"x" * 65536)
