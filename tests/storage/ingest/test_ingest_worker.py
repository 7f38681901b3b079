"""An ingestion process: what one source does wrong does not end those beside it."""

import asyncio
from collections.abc import AsyncIterator, Mapping

import pyarrow as pa
import pytest

from foreshore.errors import FeatureNotSupported
from foreshore.ids import GlobalId
from foreshore.processes.messages import Message
from foreshore.sources.generators import LoadGenerator
from foreshore.storage.external import retries
from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest import source
from foreshore.storage.ingest.connector import (
    REACHED,
    Batch,
    Connector,
    Durable,
    Kind,
    OutputReport,
    Position,
    Report,
)
from foreshore.storage.ingest.messages import (
    Discovered,
    NextTry,
    OutputCounts,
    OutputRelation,
    Reported,
    SourceState,
    StartSource,
)
from foreshore.storage.ingest.worker import Worker
from foreshore.types import RelationDesc
from tests.adapter.harness import until

ID = GlobalId("u1")


class _Connector:
    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        yield REACHED
        await asyncio.Event().wait()

    def committed(self, position: Position) -> None:
        pass

    def report(self) -> Report:
        return Report({"t": OutputReport(3, ceased="it has gone")}, {"at": 7})


class _Kind:
    def connector(
        self, spec: object, outputs: Mapping[str, OutputRelation], accesses: Accesses
    ) -> Connector:
        return _Connector()

    async def discover(self, spec: object, accesses: Accesses) -> Discovered:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FeatureNotSupported("no package", hint="Install it."), "no package (Install it.)"),
        (KeyError("url"), "internal error: 'url'"),
        (
            pa.ArrowMemoryError("malloc of size 7500000000 failed"),
            "out of memory (The server's option --connector-memory sets the limit.)",
        ),
    ],
)
def test_a_source_that_cannot_begin_stalls_and_is_tried_again(
    error: Exception, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retries, "FIRST_WAIT_SECONDS", 0.01)
    monkeypatch.setattr(source, "REPORT_SECONDS", 0.01)
    failures = [error, error]

    def kind(spec: object) -> Kind:
        if failures:
            raise failures.pop()
        return _Kind()

    sent: list[Message] = []

    def send(message: Message, tables: tuple[pa.Table, ...] = ()) -> None:
        sent.append(message)

    async def run() -> None:
        worker = Worker(kind)
        start = StartSource(ID, 1, LoadGenerator("counter"), {}, outputs, {})
        worker.deliver(start, (), send)
        await until(lambda: len(sent) == 9)
        worker.stop()

    outputs = {"t": OutputRelation(GlobalId("u2"), RelationDesc((), ()), "")}
    asyncio.run(run())
    starting, stalled = SourceState(ID, "starting"), SourceState(ID, "stalled", told)
    running = SourceState(ID, "running")
    told_once = Reported(ID, 1, {GlobalId("u2"): OutputCounts(3, ceased="it has gone")}, {"at": 7})
    assert sent == [
        starting,
        stalled,
        NextTry(ID, 0.01),
        starting,
        stalled,
        NextTry(ID, 0.02),
        starting,
        running,
        told_once,
    ]
