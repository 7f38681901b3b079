"""A subscription goes on after its connection is lost, from where it was; there is no server."""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pyarrow as pa
import pytest

from foreshore.embedded.address import Address
from foreshore.embedded.database_async import AsyncDatabase
from foreshore.embedded.errors import NotReceived
from foreshore.embedded.literals import Parameters
from foreshore.embedded.subscription import Changes, Event, Progress

CONTENTS = Changes(10, pa.table({"a": [1], "mz_diff": [1]}), snapshot=True)
LATER = Changes(20, pa.table({"a": [2], "mz_diff": [1]}))


class Connections(AsyncDatabase):
    """Gives what each connection gives until it is lost; the last one ends."""

    def __init__(self, *connections: Sequence[Event]) -> None:
        super().__init__(Address())
        self._connections = list(connections)
        self.statements: list[str] = []

    async def events(
        self, statement: str, params: Parameters, *, snapshot: bool
    ) -> AsyncIterator[Event]:
        self.statements.append(statement)
        for each in self._connections.pop(0):
            yield each
        if self._connections:
            raise NotReceived("lost")


def received(db: Connections) -> list[Event]:
    async def go() -> list[Event]:
        return [each async for each in db.subscribe("TABLE t", progress=True)]

    return asyncio.run(go())


def test_contents_are_asked_for_again_if_they_had_not_come() -> None:
    db = Connections([Progress(10)], [Progress(10), CONTENTS, Progress(11)])
    assert CONTENTS in received(db)
    assert db.statements[0] == db.statements[1]


def test_stream_goes_on_after_its_contents() -> None:
    db = Connections([Progress(10), CONTENTS, Progress(15)], [Progress(14), LATER, Progress(21)])
    assert received(db) == [Progress(10), CONTENTS, Progress(15), LATER, Progress(21)]
    assert "SNAPSHOT = false" in db.statements[1]
    assert "AS OF 14" in db.statements[1]


def test_connection_that_never_was_is_not_tried_again() -> None:
    with pytest.raises(NotReceived, match="lost"):
        received(Connections([], [CONTENTS]))
