"""A session at a server: statements in, rows out as Arrow. One statement at a time.

Rows come by `COPY (query) TO STDOUT (FORMAT arrow)`, so no value of them becomes a Python object
on the way. asyncpg speaks the protocol: a base dependency already, pure of C libraries, and its
COPY hands over data as it arrives, with back pressure (docs/decisions/0013-embedded.md).
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any

import asyncpg
import pyarrow as pa

from foreshore.arrow_stream import ArrowStream, StreamError
from foreshore.embedded.address import Address
from foreshore.embedded.client_statements import check_client_statements
from foreshore.embedded.errors import NotReceived, translated
from foreshore.embedded.frames import Frame, stream_of
from foreshore.embedded.literals import (
    Parameters,
    is_empty,
    only_statement,
    qualified_name,
    quoted_name,
    with_parameters,
    words_and_signs,
)
from foreshore.embedded.notices import log_notice
from foreshore.embedded.python_values import JSON
from foreshore.embedded.result import Result, concatenated
from foreshore.errors import BadCopyFileFormat, DatetimeFieldOverflow

QUEUED = 16  # parts of a stream that wait for its reader

# Statements whose rows COPY can send; others are SHOW, EXPLAIN, FETCH, and those without rows.
_QUERIES = frozenset(("select", "values", "table", "("))
_CHANGES = frozenset(("insert", "update", "delete", "merge"))


def is_query(text: str) -> bool:
    """Whether a statement is a query, which COPY takes; INSERT may begin by WITH as well."""
    tokens = (token.lower() for token in words_and_signs(text))
    first = next(tokens, "")
    return first in _QUERIES or (first == "with" and not _changes(tokens))


def _changes(tokens: Iterator[str]) -> bool:
    """Whether a statement of which WITH has been read changes rows."""
    depth = 0
    for token in tokens:
        if token in "()":
            depth += 1 if token == "(" else -1
        elif depth == 0 and token in _QUERIES | _CHANGES:
            return token in _CHANGES
    return False


class Connection:
    """A session. It connects with the first statement, and again after the connection was lost."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._connection: asyncpg.Connection | None = None
        self._has_intervals = False  # whether the connection gives intervals as Arrow has them
        self._closed = False

    async def get(self) -> asyncpg.Connection:
        """Return the open connection; raises DatabaseError if the server is not there."""
        if self._closed:
            raise NotReceived("the database is closed", sqlstate="08003")
        if self._connection is None or self._connection.is_closed():
            self._connection = await self._address.connect()
            self._connection.add_log_listener(log_notice)
            self._has_intervals = False
        return self._connection

    @property
    def is_lost(self) -> bool:
        """Whether there was a connection, which is closed."""
        return self._connection is not None and self._connection.is_closed()

    async def sql(self, text: str, params: Parameters = ()) -> Result:
        """Run one statement; return its rows, and its tag."""
        statement = only_statement(with_parameters(text, params))
        check_client_statements(text)
        connection = await self.get()
        if is_query(text):
            return await self._copied(connection, statement)
        with translated():
            prepared = await connection.prepare(statement)
            columns = prepared.get_attributes()
            if any(_base(each) == "interval" for each in columns) and not self._has_intervals:
                self._has_intervals = True
                await _read_intervals(connection)
                prepared = await connection.prepare(statement)
            try:
                records = await prepared.fetch()
            except (ValueError, OverflowError):
                raise DatetimeFieldOverflow(
                    "the statement has run, and returned a date or time that Python has not",
                    hint="Cast it to text, or read it by a query.",
                ) from None
            status = prepared.get_statusmsg()
        return Result(_table(columns, records), status)

    async def execute(self, text: str, params: Parameters = ()) -> str:
        """Run one statement or several, without their rows; return the last one's tag."""
        statements = with_parameters(text, params)
        check_client_statements(text)
        if is_empty(statements):
            return ""
        connection = await self.get()
        with translated():
            status: str = await connection.execute(statements)
        return status

    async def _copied(self, connection: asyncpg.Connection, query: str) -> Result:
        stream, batches = ArrowStream(is_checked=False), list[pa.RecordBatch]()
        wrong: StreamError | None = None

        async def receive(data: bytes) -> None:
            nonlocal wrong
            try:
                if wrong is None:
                    stream.feed(data)
                    batches.extend(stream.batches())
            except StreamError as error:  # after the rest the connection can be used again
                wrong = error

        with translated():
            # After a comment at the query's end, the rest of COPY needs a line of its own.
            copy = f"COPY ({query}\n) TO STDOUT (FORMAT arrow, EXACT_NUMERIC)"
            status = await connection._copy_out(copy, receive, None)
        if wrong is not None:
            raise BadCopyFileFormat(str(wrong))
        return Result(concatenated(stream.schema, batches), status)

    async def stream(
        self, query: str, params: Parameters = ()
    ) -> AsyncIterator[pa.RecordBatch | pa.Schema]:
        """Yield the schema of a query's rows, then the rows as they arrive.

        The connection is of no more use if the iteration ends early.
        """
        statement = only_statement(with_parameters(query, params))
        connection = await self.get()
        stream = ArrowStream(is_checked=False)
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
                try:
                    stream.feed(data)
                    batches = list(stream.batches())
                except StreamError as error:
                    raise BadCopyFileFormat(str(error)) from None
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


def _base(column: asyncpg.Attribute) -> str:
    """Return the name of a column's type, or of that of an array's elements."""
    return str(column.type.name).removesuffix("[]")


async def _read_intervals(connection: asyncpg.Connection) -> None:
    """Let a connection keep the months of intervals, which are 30 days each otherwise."""

    def decoded(parts: tuple[int, int, int]) -> pa.MonthDayNano:
        months, days, micros = parts
        return pa.MonthDayNano([months, days, micros * 1000])

    await connection.set_type_codec(
        "interval", schema="pg_catalog", encoder=tuple, decoder=decoded, format="tuple"
    )


def _table(columns: Sequence[asyncpg.Attribute], records: Sequence[Any]) -> pa.Table:
    """Return the few rows of SHOW and its like; values that Arrow does not know as text."""
    arrays = []
    for place, column in enumerate(columns):
        values = [record[place] for record in records]
        try:
            array = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError):
            array = pa.array([None if v is None else str(v) for v in values], pa.string())
        arrays.append(array.cast(JSON) if column.type.name in ("json", "jsonb") else array)
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])
