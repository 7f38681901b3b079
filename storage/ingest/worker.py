"""What an ingestion process does: the sources that the environment names, and its requests."""

import logging
from collections.abc import Callable
from typing import Any

from foreshore import blocking
from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello
from foreshore.processes.transport import Tables
from foreshore.storage.external.answers import Answering, Done, WithTables
from foreshore.storage.external.process import Send
from foreshore.storage.ingest.connector import Disposing, Kind, Readable
from foreshore.storage.ingest.kinds import kind_of, validate
from foreshore.storage.ingest.messages import (
    Answer,
    AskFurthest,
    Command,
    Committed,
    Contents,
    Discover,
    Dispose,
    PartKept,
    ReadRows,
    Request,
    RowsRead,
    StartSource,
    StopSource,
    TryNow,
    Validate,
    Validated,
)
from foreshore.storage.ingest.source import Source

logger = logging.getLogger(__name__)


class Worker:
    """Runs sources and answers requests; owned by the event loop."""

    def __init__(self, kind: Callable[[Any], Kind] = kind_of) -> None:
        self._kind = kind
        self._sources: dict[GlobalId, Source] = {}
        self._answering = Answering()

    def deliver(self, command: Command, tables: Tables, send: Send) -> None:
        """Obey a command."""
        match command:
            case Hello():
                self.stop()  # the environment names all of its sources again
            case StartSource(id=id):
                self._stop(id)
                self._sources[id] = Source(command, self._kind, send)
            case StopSource(id=id):
                self._stop(id)
            case Committed(id=id, run=run):
                if id in self._sources:
                    self._sources[id].committed(run)
            case PartKept(id=id, run=run):
                if id in self._sources:
                    self._sources[id].part_kept(run)
            case AskFurthest(id=id):
                if id in self._sources:
                    self._sources[id].ask(command.request)
            case TryNow(id=id):
                if id in self._sources:
                    self._sources[id].hurry()
            case Contents(id=id):
                if id in self._sources:
                    self._sources[id].received(command, tables)
            case _:
                self._answering.begin(self._answer_to(command), send)

    def stop(self) -> None:
        """Stop all sources."""
        for id in list(self._sources):
            self._stop(id)

    def _stop(self, id: GlobalId) -> None:
        if (source := self._sources.pop(id, None)) is not None:
            source.stop()

    async def _answer_to(self, request: Request) -> Answer | WithTables:
        match request:
            case ReadRows(spec=spec, output=output, accesses=accesses, most=most):
                kind = await blocking.run(None, self._kind, spec)
                assert isinstance(kind, Readable), kind
                found = await kind.rows(spec, output, accesses, most)
                return WithTables(RowsRead(), () if found is None else (found,))
            case Discover(spec=spec, accesses=accesses):
                kind = await blocking.run(None, self._kind, spec)
                return await kind.discover(spec, accesses)
            case Dispose(spec=spec, accesses=accesses):
                kind = await blocking.run(None, self._kind, spec)
                assert isinstance(kind, Disposing), kind
                await kind.dispose(spec, accesses)
            case Validate(access=access):
                return Validated(await validate(access))
        return Done()
