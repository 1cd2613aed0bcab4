"""RADICAL-Pilot's client, in a process of its own: `python -m batchgate.flow.pilot_client FD PILOT`.

RADICAL-Pilot 1.103 with rhapsody 0.6 blocks for half a minute when it starts and closes, tells ends
from threads of its own, and may never exit. None of that may happen to a runner. Lines of JSON go
both ways over a socket: a task to submit or to cancel, and each change of a state. When the runner
closes the socket, or dies, the pilot is ended.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import threading
from typing import Any


async def serve(channel: socket.socket, pilot: dict[str, Any]) -> None:
    """Start a pilot, and submit tasks to it until the socket is closed."""
    from rhapsody.backends.execution.radical_pilot import RadicalExecutionBackend

    lock = threading.Lock()

    def say(**fields: Any) -> None:
        with lock:
            channel.sendall(json.dumps(fields, default=str).encode() + b"\n")

    def on_pilot(pilot: Any, state: str) -> None:
        say(pilot=state)

    def on_task(task: Any, state: str) -> None:
        # rhapsody hands on its own dictionary, but RADICAL-Pilot's task when the pilot died.
        known = task if isinstance(task, dict) else task.as_dict()
        say(task=known["uid"], state=state, error=str(known.get("exception") or "")[-2000:])

    backend = await RadicalExecutionBackend(pilot)
    backend.register_callback(on_task)
    backend.pilot_manager.register_callback(on_pilot)
    say(pilot=backend.resource_pilot.state)
    try:
        for line in channel.makefile("rb"):
            request = json.loads(line)
            if "cancel" in request:
                await backend.cancel_task(request["cancel"])
            else:
                await backend.submit_tasks([request])
    finally:
        backend.session.close(download=False)


def main() -> None:
    """Serve the runner."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    asyncio.run(serve(channel, json.loads(sys.argv[2])))


if __name__ == "__main__":
    main()
