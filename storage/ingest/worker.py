"""The sources of an ingestion process: a task for each, which reads and sends.

A source that fails is started again from the position that is durable, after a pause that grows.
"""

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import pyarrow as pa

from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello, Message
from foreshore.storage.ingest.connector import Batch, Connector, Position
from foreshore.storage.ingest.connectors import connector_of
from foreshore.storage.ingest.messages import (
    WINDOW,
    Command,
    Committed,
    Ingested,
    SourceState,
    StartSource,
    StopSource,
)

logger = logging.getLogger(__name__)

LONGEST_WAIT_SECONDS = 30.0
FIRST_WAIT_SECONDS = 0.5


class Send(Protocol):
    """Sends a message with tables to the environment."""

    def __call__(self, message: Message, tables: tuple[pa.Table, ...] = ()) -> None:
        """Send it."""
        ...


class Worker:
    """Runs the sources that the environment names; owned by the event loop."""

    def __init__(self, connector: Callable[[Any], Connector] = connector_of) -> None:
        self._connector = connector
        self._sources: dict[GlobalId, Source] = {}

    def deliver(self, command: Command, send: Send) -> None:
        """Obey a command."""
        match command:
            case Hello():
                self.stop()  # the environment names all of its sources again
            case StartSource(id=id):
                self._stop(id)
                self._sources[id] = Source(command, self._connector(command.spec), send)
            case StopSource(id=id):
                self._stop(id)
            case Committed(id=id):
                if id in self._sources:
                    self._sources[id].committed()

    def stop(self) -> None:
        """Stop all sources."""
        for id in list(self._sources):
            self._stop(id)

    def _stop(self, id: GlobalId) -> None:
        if (source := self._sources.pop(id, None)) is not None:
            source.task.cancel()


class Source:
    """One source: its connector, and how far it has come."""

    def __init__(self, start: StartSource, connector: Connector, send: Send) -> None:
        self._id, self._outputs = start.id, start.outputs
        self._connector = connector
        self._send = send
        self._durable: dict[str, int] = dict(start.position)
        self._sent: deque[Position] = deque()  # what the batches on their way move
        self._room = asyncio.Event()
        self._room.set()
        self.task = asyncio.get_running_loop().create_task(self._run())

    def committed(self) -> None:
        """Note that the oldest batch on its way is durable."""
        self._durable |= self._sent.popleft()
        self._room.set()

    async def _run(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while True:
            try:
                await self._read()
                self._send(SourceState(self._id, "finished"))
                return
            except (OSError, DatabaseError) as error:
                logger.warning("a source stalls: %s", error, extra={"source": self._id})
                self._send(SourceState(self._id, "stalled", str(error)))
            except Exception as error:
                logger.exception("a source has failed", extra={"source": self._id})
                self._send(SourceState(self._id, "stalled", f"internal error: {error}"))
            await asyncio.sleep(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)
            await self._settled()

    async def _read(self) -> None:
        """Read from the durable position on until there can be nothing more."""
        position = dict(self._durable)
        self._send(SourceState(self._id, "starting"))
        batches: AsyncIterator[Batch] = self._connector.run(position)
        is_running = False
        async for batch in batches:
            while len(self._sent) >= WINDOW:
                self._room.clear()
                await self._room.wait()
            self._send_batch(position, batch)
            position |= batch.moved
            if not is_running:
                self._send(SourceState(self._id, "running"))
                is_running = True

    def _send_batch(self, position: Position, batch: Batch) -> None:
        rows = {
            self._outputs[reference]: table
            for reference, table in batch.rows.items()
            if reference in self._outputs
        }
        before = {part: position[part] for part in batch.moved if part in position}
        self._sent.append(batch.moved)
        message = Ingested(self._id, tuple(rows), before, dict(batch.moved))
        self._send(message, tuple(rows.values()))

    async def _settled(self) -> None:
        """Wait until no batch is on its way."""
        while self._sent:
            self._room.clear()
            await self._room.wait()
