"""What an export process does: the sinks that the environment names, and its requests."""

import asyncio
import logging
from collections.abc import Callable

from foreshore.errors import DatabaseError
from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello
from foreshore.processes.transport import Tables
from foreshore.sinks.spec import Target
from foreshore.storage.export.exporter import SinkKind
from foreshore.storage.export.kinds import kind_of
from foreshore.storage.export.messages import (
    Answer,
    Changes,
    CheckSink,
    Command,
    DisposeSink,
    Request,
    StartSink,
    StopSink,
)
from foreshore.storage.export.sink import Sink
from foreshore.storage.ingest.messages import Done, Refused
from foreshore.storage.ingest.source import Send

logger = logging.getLogger(__name__)


class Worker:
    """Runs sinks and answers requests; owned by the event loop."""

    def __init__(self, kind: Callable[[Target], SinkKind] = kind_of) -> None:
        self._kind = kind
        self._sinks: dict[GlobalId, Sink] = {}
        self._answering: set[asyncio.Task[None]] = set()

    def deliver(self, command: Command, tables: Tables, send: Send) -> None:
        """Obey a command."""
        match command:
            case Hello():
                self.stop()  # the environment names all of its sinks again
            case StartSink(id=id, export=export):
                self._stop(id)
                self._sinks[id] = Sink(command, self._kind(export.spec.target), send)
            case StopSink(id=id):
                self._stop(id)
            case Changes(id=id):
                if id in self._sinks:
                    self._sinks[id].received(command, tables)
            case _:
                task = asyncio.get_running_loop().create_task(self._answer(command, send))
                self._answering.add(task)
                task.add_done_callback(self._answering.discard)

    def stop(self) -> None:
        """Stop all sinks."""
        for id in list(self._sinks):
            self._stop(id)

    def _stop(self, id: GlobalId) -> None:
        if (sink := self._sinks.pop(id, None)) is not None:
            sink.task.cancel()

    async def _answer(self, request: Request, send: Send) -> None:
        kind = self._kind(request.export.spec.target)
        answer: Answer = Done()
        try:
            match request:
                case CheckSink(export=export):
                    await kind.check(export)
                case DisposeSink(export=export):
                    await kind.dispose(export)
        except DatabaseError as error:
            answer = Refused(error.message, error.sqlstate, error.detail, error.hint)
        except OSError as error:
            answer = Refused(str(error), "08006")
        except Exception as error:
            logger.exception("a request has failed")
            answer = Refused(f"internal error: {error}", "XX000")
        send(answer)
