"""An ingestion process: what one source does wrong does not end those beside it."""

import pyarrow as pa
import pytest

from foreshore.errors import FeatureNotSupported
from foreshore.ids import GlobalId
from foreshore.processes.messages import Message
from foreshore.sources.generators import LoadGenerator
from foreshore.storage.ingest.connector import Kind
from foreshore.storage.ingest.messages import SourceState, StartSource
from foreshore.storage.ingest.worker import Worker


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (FeatureNotSupported("no package", hint="Install it."), "no package (Install it.)"),
        (KeyError("url"), "internal error: 'url'"),
    ],
)
def test_a_source_that_cannot_begin_stalls(error: Exception, told: str) -> None:
    def kind(spec: object) -> Kind:
        raise error

    sent: list[Message] = []

    def send(message: Message, tables: tuple[pa.Table, ...] = ()) -> None:
        sent.append(message)

    start = StartSource(GlobalId("u1"), 1, LoadGenerator("counter"), {}, {}, {})
    Worker(kind).deliver(start, (), send)
    assert sent == [SourceState(GlobalId("u1"), "stalled", told)]
