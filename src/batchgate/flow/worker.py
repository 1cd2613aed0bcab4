"""A warm worker: a process that imports a campaign once and then calls its functions.

Started by `slot.py` as `python -m batchgate.flow.worker DESCRIPTOR PARENT`. Lines of JSON go
both ways over a socket: for each request one with the time it started, then one with its end.
Nothing is ever unpickled, and an exception crosses as words only.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from .function import as_plain, call, check_size, describe, find

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve requests until the runner closes the socket."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    _die_with(int(sys.argv[2]))
    # A crash, or the SIGTERM at a deadline, leaves the Python stack on stderr.
    faulthandler.enable()
    faulthandler.register(signal.SIGTERM, chain=True)
    home, own = Path.cwd(), os.getpid()

    def send(reply: str) -> None:
        if os.getpid() != own:  # a child that the function forked came back from it too
            os._exit(1)
        channel.sendall(reply.encode() + b"\n")

    for line in channel.makefile("rb"):
        send(_serve(json.loads(line), send))
        os.chdir(home)


def _serve(request: Mapping[str, Any], send: Callable[[str], None]) -> str:
    head = {"id": request["id"], "started_at": 0.0}
    try:
        folder = request["folder"]
        function = find(request["use"], None if folder is None else Path(folder))
        head["started_at"] = time.time()
        send(json.dumps(head))
        with _variables(request["env"]):
            value = call(function, request["value"], request["args"])
        reply = _reply(head, end="completed", value=value)
        check_size(reply)
    except BaseException as exc:  # noqa: BLE001 - SystemExit and the like end the call, not us
        error, tail = describe(exc)
        reply = _reply(head, end="exception", error=error, traceback=tail)
    return reply


def _reply(head: Mapping[str, Any], **fields: Any) -> str:
    ended_at = time.time() if head["started_at"] else 0.0
    return json.dumps({**head, **fields, "ended_at": ended_at}, default=as_plain)


@contextlib.contextmanager
def _variables(env: Mapping[str, str]) -> Iterator[None]:
    """Set variables for a call, and put back what was there."""
    before = {name: os.environ.get(name) for name in env}
    os.environ.update(env)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _die_with(parent: int) -> None:
    """Have the kernel end this process when the runner's dies, SIGKILLed or not."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it died before that call
        os._exit(1)


if __name__ == "__main__":
    main()
