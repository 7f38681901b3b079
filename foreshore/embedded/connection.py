"""A session at a server: statements in, rows out as Arrow. One statement at a time.

Rows come by `COPY (query) TO STDOUT (FORMAT arrow)`, so no value of them becomes a Python object
on the way. asyncpg speaks the protocol: a base dependency already, pure of C libraries, and its
COPY hands over data as it arrives, with back pressure (docs/decisions/0013-embedded.md).
"""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from typing import Any

import asyncpg
import pyarrow as pa

from foreshore.arrow_stream import ArrowStream
from foreshore.embedded.address import Address
from foreshore.embedded.errors import NotReceived, translated
from foreshore.embedded.frames import Frame, stream_of
from foreshore.embedded.literals import (
    Parameters,
    only_statement,
    qualified_name,
    quoted_name,
    with_parameters,
    words_and_parentheses,
)
from foreshore.embedded.result import Result, concatenated
from foreshore.errors import DatabaseError

QUEUED = 16  # parts of a stream that wait for its reader

# Statements whose rows COPY can send; others are SHOW, EXPLAIN, FETCH, and those without rows.
_QUERY = re.compile(r"(?:\s|--[^\n]*+\n|/\*.*?\*/)*+(select|values|table|with)\b", re.I | re.S)
_CHANGES = frozenset(("insert", "update", "delete", "merge"))
_VERBS = _CHANGES | {"select", "values", "table"}
_OPEN = re.compile(r"(?:\s|--[^\n]*+\n|/\*.*?\*/)*+\(", re.S)


_SUBSCRIBE = re.compile(r"(?:\s|--[^\n]*+\n|/\*.*?\*/)*+subscribe\b", re.I | re.S)
_UP_TO = re.compile(r"\bup\s+to\b", re.I)


def check_ends(text: str) -> None:
    """Raise for a SUBSCRIBE that has no end, whose rows would be waited for."""
    if _SUBSCRIBE.match(text) is not None and _UP_TO.search(text) is None:
        raise DatabaseError(
            "a SUBSCRIBE without UP TO has no end",
            sqlstate="0A000",
            hint='Iterate over subscribe("a table, view or query"), or over stream(statement).',
        )


def is_query(text: str) -> bool:
    """Whether a statement is a query, which COPY takes; INSERT may begin by WITH as well."""
    if _OPEN.match(text) is not None:
        return True
    found = _QUERY.match(text)
    return found is not None and (found[1].lower() != "with" or not _changes(text, found.end()))


def _changes(text: str, start: int) -> bool:
    """Whether a statement whose WITH ends at `start` changes rows."""
    depth = 0
    for token in words_and_parentheses(text[start:]):
        if token in "()":
            depth += 1 if token == "(" else -1
        elif depth == 0 and token.lower() in _VERBS:
            return token.lower() in _CHANGES
    return False


class Connection:
    """A session. It connects with the first statement, and again after the connection was lost."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: asyncpg.Connection | None = None
        self._closed = False

    async def get(self) -> asyncpg.Connection:
        """Return the open connection; raises DatabaseError if the server is not there."""
        if self._closed:
            raise NotReceived("the database is closed", sqlstate="08003")
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._address.connect()
        return self._connection

    @property
    def is_lost(self) -> bool:
        """Whether there was a connection, which is closed."""
        return self._connection is not None and self._connection.is_closed()

    async def sql(self, text: str, params: Parameters = ()) -> Result:
        """Run one statement; return its rows, and its tag."""
        check_ends(text)
        statement = only_statement(with_parameters(text, params))
        connection = await self.get()
        if is_query(text):
            return await self._copied(connection, statement)
        with translated():
            prepared = await connection.prepare(statement)
            records = await prepared.fetch()
            names = [each.name for each in prepared.get_attributes()]
            status = prepared.get_statusmsg()
        return Result(_table(names, records), status)

    async def execute(self, text: str, params: Parameters = ()) -> str:
        """Run one statement or several, without their rows; return the last one's tag."""
        check_ends(text)
        connection = await self.get()
        with translated():
            status: str = await connection.execute(with_parameters(text, params))
        return status

    async def _copied(self, connection: asyncpg.Connection, query: str) -> Result:
        stream, batches = ArrowStream(), list[pa.RecordBatch]()

        async def receive(data: bytes) -> None:
            stream.feed(data)
            batches.extend(stream.batches())

        with translated():
            # After a comment at the query's end, the rest of COPY needs a line of its own.
            status = await connection.copy_from_query(f"{query}\n", output=receive, format="arrow")
        return Result(concatenated(stream.schema, batches), status)

    async def stream(
        self, query: str, params: Parameters = ()
    ) -> AsyncIterator[pa.RecordBatch | pa.Schema]:
        """Yield the schema of a query's rows, then the rows as they arrive.

        The connection is of no more use if the iteration ends early.
        """
        statement = only_statement(with_parameters(query, params))
        connection = await self.get()
        stream = ArrowStream()
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(QUEUED)

        async def copy() -> None:
            try:
                await connection.copy_from_query(f"{statement}\n", output=queue.put, format="arrow")
            finally:
                if not is_left:  # else nobody empties the queue
                    await queue.put(None)

        is_left = False
        copying = asyncio.create_task(copy())
        has_schema = False
        try:
            while (data := await queue.get()) is not None:
                stream.feed(data)
                batches = list(stream.batches())
                if not has_schema and stream.schema is not None:
                    has_schema = True
                    yield stream.schema
                for batch in batches:
                    yield batch
            with translated():
                await copying
        finally:
            is_left = True
            if not copying.done():
                connection.terminate()
                copying.cancel()
                await asyncio.wait([copying])
            if not copying.cancelled():
                copying.exception()  # it was raised above, or nobody waits for it

    async def copy_in(self, table: str, frame: Frame) -> int:
        """Send rows into a table; return how many there were."""
        connection = await self.get()
        loop = asyncio.get_running_loop()

        def run(work: Any, *arguments: Any) -> Any:
            return loop.run_in_executor(None, work, *arguments)

        names = ", ".join(map(quoted_name, frame.schema.names))
        copy = f"COPY {qualified_name(table)} ({names}) FROM STDIN (FORMAT arrow)"
        with translated():
            status: str = await connection._copy_in(copy, stream_of(frame, run), None)
        return int(status.rpartition(" ")[2])

    def terminate(self) -> None:
        """End the session at once; a statement under way fails."""
        self._closed = True
        if self._connection is not None:
            self._connection.terminate()

    async def close(self) -> None:
        """End the session."""
        self._closed = True
        if self._connection is not None and not self._connection.is_closed():
            with translated():
                await self._connection.close(timeout=5)


def _table(names: Sequence[str], records: Sequence[Any]) -> pa.Table:
    """Return the few rows of SHOW and its like; values that Arrow does not know as text."""
    arrays = []
    for place in range(len(names)):
        values = [record[place] for record in records]
        try:
            arrays.append(pa.array(values))
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            arrays.append(pa.array([None if v is None else str(v) for v in values], pa.string()))
    return pa.Table.from_arrays(arrays, names=list(names))
