"""What an export process does: the sinks that the environment names, and its requests."""

from collections.abc import Callable

from foreshore.ids import GlobalId
from foreshore.processes.messages import Hello
from foreshore.processes.transport import Tables
from foreshore.sinks.spec import Target
from foreshore.storage.export.exporter import Disposing, SinkKind
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
    TryNow,
)
from foreshore.storage.export.sink import Sink
from foreshore.storage.external.answers import Answering, Done
from foreshore.storage.external.process import Send


class Worker:
    """Runs sinks and answers requests; owned by the event loop."""

    def __init__(self, kind: Callable[[Target], SinkKind] = kind_of) -> None:
        self._kind = kind
        self._sinks: dict[GlobalId, Sink] = {}
        self._answering = Answering()

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
            case TryNow(id=id):
                if id in self._sinks:
                    self._sinks[id].hurry()
            case Changes(id=id):
                if id in self._sinks:
                    self._sinks[id].received(command, tables)
            case _:
                self._answering.begin(self._answer_to(command), send)

    def stop(self) -> None:
        """Stop all sinks."""
        for id in list(self._sinks):
            self._stop(id)

    def _stop(self, id: GlobalId) -> None:
        if (sink := self._sinks.pop(id, None)) is not None:
            sink.task.cancel()

    async def _answer_to(self, request: Request) -> Answer:
        kind = self._kind(request.export.spec.target)
        match request:
            case CheckSink(export=export):
                await kind.check(export)
            case DisposeSink(export=export):
                assert isinstance(kind, Disposing), kind
                await kind.dispose(export)
        return Done()
