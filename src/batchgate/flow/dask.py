"""Function tasks beside the workers of a Dask cluster, so that verifiers use every node.

A Dask worker holds slots as this process would, and each slot a warm worker process of its own. So
a function that hangs, crashes or floods costs its slot's process and no Dask worker; and what Dask
unpickles here was made by this package, never by a function. What a function gives back crosses
from its process as validated JSON, there as here.
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import Awaitable
from pathlib import Path
from typing import Any, TypeVar

from distributed import Client, Worker, WorkerPlugin

from ..errors import ConfigError, FlowError
from ..job import End, FunctionTask, TaskEnd
from .ends import ended_now, not_started
from .pool import Pool
from .slot import IMPORT_S, Slot
from .waiting import first

CONNECT_S = 30.0
"""Seconds for the scheduler, and then its first worker, to answer."""
_ANSWER_S = 60.0
"""Seconds beyond all deadlines until a Dask worker counts as lost."""
_T = TypeVar("_T")


async def open_dask(
    *, workers: int, folder: Path, marker: str, grace_s: float, scheduler: str | None
) -> Pool:
    """Connect to a cluster, and end there what an earlier life of the run left.

    Args:
        workers: Function tasks at once, shared out over the Dask workers.
        folder: Folder for what worker processes print and leave; every node has to see it.
        marker: Names the run.
        grace_s: Seconds between SIGTERM and SIGKILL.
        scheduler: Address of the scheduler, or path of its scheduler file.

    Raises:
        ConfigError: There is no scheduler to ask.
        FlowError: It does not answer, or has no worker.
    """
    if scheduler is None:
        raise ConfigError(
            "verifiers_on is 'dask' and dask_scheduler is not set; "
            "give the address of a running scheduler, or its scheduler file"
        )
    cluster = await Cluster.connect(scheduler, Room(folder, marker=marker, grace_s=grace_s))
    return DaskPool(cluster, workers=workers)


class Room(WorkerPlugin):  # type: ignore[misc] # distributed has no types
    """What a Dask worker holds for a run: slots by number, and the calls in them.

    Args:
        folder: Folder for what worker processes print and leave.
        marker: Names the run.
        grace_s: Seconds between SIGTERM and SIGKILL.
    """

    def __init__(self, folder: Path, *, marker: str, grace_s: float) -> None:
        self.name = f"batchgate-{marker}"
        self.grace_s = grace_s
        self._folder = folder
        self._marker = marker

    def setup(self, worker: Worker) -> None:
        """Begin, on a Dask worker."""
        self._slots: dict[int, Slot] = {}
        self._stops: dict[str, asyncio.Future[None]] = {}

    async def teardown(self, worker: Worker) -> None:
        """End every process."""
        for stop in self._stops.values():
            if not stop.done():
                stop.set_result(None)
        while self._stops:
            await asyncio.sleep(0.01)
        await asyncio.gather(*(slot.close() for slot in self._slots.values()))

    async def call(self, number: int, call_id: str, task: FunctionTask) -> TaskEnd:
        """Call a function in the slot of this number."""
        folder = self._folder / f"worker-{number}"
        fresh = Slot(folder, marker=self._marker, grace_s=self.grace_s)
        slot = self._slots.setdefault(number, fresh)
        stop = self._stops[call_id] = asyncio.get_running_loop().create_future()
        try:
            return await slot.call(task, stop=stop)
        finally:
            del self._stops[call_id]

    def stop(self, call_id: str) -> None:
        """End a call, if it is still there."""
        if (stop := self._stops.get(call_id)) is not None and not stop.done():
            stop.set_result(None)


class Cluster:
    """The connection to a Dask cluster whose workers each hold a `Room`.

    Args:
        client: The connection.
        room: What each worker holds.
    """

    def __init__(self, client: Client, room: Room) -> None:
        self.grace_s = room.grace_s
        self._client = client
        self._room = room.name
        self._slots: Counter[str] = Counter()

    @classmethod
    async def connect(cls, scheduler: str, room: Room) -> Cluster:
        """Connect, and have each worker hold an empty room.

        Raises:
            FlowError: The scheduler does not answer, or has no worker.
        """
        try:
            client = await Client(
                _address(scheduler), asynchronous=True, timeout=CONNECT_S, set_as_default=False
            )
        except (OSError, ValueError, KeyError) as exc:
            raise FlowError(f"the Dask scheduler {scheduler} does not answer: {exc}") from exc
        try:
            await client.wait_for_workers(1, timeout=CONNECT_S)
            # Where there is a room of this name already, it is torn down first.
            await _in_time(client.register_plugin(room), 2 * room.grace_s + _ANSWER_S)
        except (OSError, TimeoutError) as exc:
            await client.close()
            raise FlowError(f"the Dask scheduler {scheduler} has no worker: {exc}") from exc
        return cls(client, room)

    async def choose(self, not_this: str = "") -> str:
        """Return the worker with the fewest slots, another one than `not_this` if there is one.

        Raises:
            OSError: There is none, or the scheduler is gone.
        """
        alive = await self._client.nthreads()
        if not alive:
            raise OSError("the Dask cluster has no worker")
        chosen: str = min(alive, key=lambda address: (address == not_this, self._slots[address]))
        self._slots[not_this] -= 1
        self._slots[chosen] += 1
        return chosen

    async def run(self, address: str, function: Any, *args: Any) -> Any:
        """Call one of this module's functions with a worker's room.

        Raises:
            OSError: The worker is gone.
        """
        answers = await self._client.run(function, self._room, *args, workers=[address])
        return answers[address]

    async def close(self) -> None:
        """End every process of the run, and the connection.

        Raises:
            FlowError: The cluster does not answer.
        """
        try:
            ended = self._client.unregister_worker_plugin(self._room)
            await _in_time(ended, 2 * self.grace_s + _ANSWER_S)
        except ValueError:
            pass  # the scheduler knows no such room: the run's next life has ended it
        except Exception as exc:  # Dask raises what it likes when it is gone
            raise FlowError(f"the Dask cluster may hold processes of the run: {exc}") from exc
        finally:
            await self._client.close()


class RemoteSlot:
    """One slot of a run, held by whichever Dask worker lives.

    Args:
        cluster: The cluster.
        number: Of the slot, in the run.
    """

    def __init__(self, cluster: Cluster, number: int) -> None:
        self._cluster = cluster
        self._number = number
        self._address = ""
        self._lost = True

    async def call(self, task: FunctionTask, *, stop: asyncio.Future[None]) -> TaskEnd:
        """Call a function. Once `stop` is done, the call is ended, and its process with it."""
        try:
            json.dumps([task.value, dict(task.args), dict(task.env)])
        except (TypeError, ValueError, RecursionError) as exc:
            return not_started(f"cannot start {task.use}: {exc}")
        try:
            if self._lost:
                self._address = await self._cluster.choose(self._address)
            self._lost = True
            end = await self._end_of(task, stop)
        except Exception as exc:  # noqa: BLE001 - Dask raises what it likes when a worker is gone
            error = f"the Dask worker {self._address} is gone: {exc}"
            return ended_now(End.WORKER_LOST, error, started_at=0.0)
        self._lost = False
        return end

    async def close(self) -> None:
        """Do nothing: the cluster's end is the slot's."""

    async def _end_of(self, task: FunctionTask, stop: asyncio.Future[None]) -> TaskEnd:
        cluster, call_id = self._cluster, uuid.uuid4().hex
        call = cluster.run(self._address, _call, self._number, call_id, task)
        answer: asyncio.Future[TaskEnd] = asyncio.ensure_future(call)
        ending_s = 2 * cluster.grace_s + _ANSWER_S
        try:
            await first(answer, stop, timeout_s=IMPORT_S + task.timeout_s + ending_s)
            if stop.done() and not answer.done():
                await _in_time(cluster.run(self._address, _stop, call_id), _ANSWER_S)
                await first(answer, timeout_s=ending_s)
            if not answer.done():
                raise TimeoutError("no answer after all deadlines")
            return answer.result()
        finally:
            answer.cancel()


class DaskPool(Pool):
    """Slots on a Dask cluster."""

    def __init__(self, cluster: Cluster, *, workers: int) -> None:
        super().__init__(RemoteSlot(cluster, number) for number in range(workers))
        self._cluster = cluster

    async def close(self) -> None:
        """End what the cluster holds of the run.

        Raises:
            FlowError: The cluster does not answer.
        """
        await self._cluster.close()


async def _call(
    room: str, number: int, call_id: str, task: FunctionTask, *, dask_worker: Worker
) -> TaskEnd:
    held: Room = dask_worker.plugins[room]
    return await held.call(number, call_id, task)


async def _stop(room: str, call_id: str, *, dask_worker: Worker) -> None:
    dask_worker.plugins[room].stop(call_id)


def _address(scheduler: str) -> str:
    if not scheduler.endswith(".json"):
        return scheduler
    address: str = json.loads(Path(scheduler).read_text(encoding="utf-8"))["address"]
    return address


async def _in_time(awaitable: Awaitable[_T], timeout_s: float) -> _T:
    return await asyncio.wait_for(awaitable, timeout_s)
