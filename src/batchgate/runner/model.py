"""The model as the runner has it: a server under watch, and whoever asks it.

While the server starts, or is started again, there is no producer and the surrogate keeps the
slots busy; a server that was started too often is given up, and the surrogate goes on alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from ..answer import Producer
from ..errors import ConfigError, ServerError
from ..events import FailureRecorded, ServerStarted, ServerStopped
from ..producers.server import ModelServer
from .recorder import Recorder


@dataclass(slots=True)
class Model:
    """A producer that is there at times.

    Attributes:
        name: Name shown in every record.
        producer: Whom to ask now; `None` while there is nobody.
        server: What is started and watched; `None` for a producer that needs no server.
        connect: Makes the producer of a server that is ready.
        nodes: Nodes, or share of one, that the server holds; for the bill.
        answered: Whether there has been a producer in this life.
    """

    name: str
    producer: Producer | None = None
    server: ModelServer | None = None
    connect: Callable[[ModelServer], Producer] | None = None
    nodes: float = 0.0
    answered: bool = False

    async def keep(self, recorder: Recorder, wake: Callable[[], None]) -> None:
        """Start the server and keep it going until it is given up or this is cancelled.

        Args:
            recorder: Where starts, stops and failures are written down.
            wake: Called when the producer has come or gone.
        """
        if self.server is None or self.connect is None:
            self.answered = self.producer is not None
            return
        begin, start = self.server.start, 1
        try:
            while True:
                elapsed_s = await begin()
                recorder.record(
                    ServerStarted(
                        model=self.server.model, elapsed_s=elapsed_s, start=start, nodes=self.nodes
                    )
                )
                self.producer, self.answered = self.connect(self.server), True
                wake()
                reason = await self.server.watch()
                await self._disconnect()
                recorder.record(ServerStopped(reason=reason))
                begin, start = self.server.restart, start + 1
        except (ServerError, ConfigError) as exc:
            if isinstance(exc, ConfigError) and not self.answered:
                raise  # wrong from the start: the run is not worth beginning
            recorder.record(FailureRecorded(kind="server", what="start", message=str(exc)[:2000]))
            wake()
        finally:
            await self._disconnect()

    async def _disconnect(self) -> None:
        producer, self.producer = self.producer, None
        if producer is not None:
            await asyncio.shield(producer.aclose())
