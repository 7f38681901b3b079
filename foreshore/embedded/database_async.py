"""The asynchronous database object: one session, transactions, subscriptions, DataFrames.

Statements of one object run one after the other, in one session, so that what SET has set holds for
the next. `session()` gives a further one beside it. While a transaction is open, statements of
other tasks wait for its end; those of the task that opened it, and of the tasks that it starts,
are part of it.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, overload
from urllib.parse import urlsplit

import pyarrow as pa

from foreshore.embedded.address import Address
from foreshore.embedded.block import Block
from foreshore.embedded.connection import Connection, is_query
from foreshore.embedded.errors import NotReceived
from foreshore.embedded.frames import Frame, frame_of, frame_of_files, unrounded
from foreshore.embedded.literals import Parameters, qualified_name, with_parameters
from foreshore.embedded.reconnect import Waits
from foreshore.embedded.result import Result
from foreshore.embedded.server_process import ServerProcess
from foreshore.embedded.subscription import ByTime, Changes, Event, Progress
from foreshore.errors import InvalidParameterValue

RECONNECT_SECONDS = 30.0  # as long as tables and materialized views keep their history

IfExists = Literal["fail", "replace", "append"]

# The open transaction of the running task or thread, which may be of any database.
inside: ContextVar[object | None] = ContextVar("foreshore transaction", default=None)


@dataclass(frozen=True, slots=True)
class Opened:
    """A transaction that is open, or a savepoint."""

    token: object
    block: Block
    is_savepoint: bool


class AsyncDatabase:
    """A database of this process (`foreshore.open_async`) or at an address (`connect_async`)."""

    def __init__(self, address: Address, server: ServerProcess | None = None) -> None:
        self._address = address
        self._server = server
        self._connection = Connection(address)
        self._lock = asyncio.Lock()
        self._transaction: object | None = None  # the token of the open one
        self._statement = asyncio.Lock()  # within a transaction: one statement at a time
        self._sessions: list[AsyncDatabase] = []
        self._streams: set[Connection] = set()
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<foreshore.AsyncDatabase {self.where} ({state})>"

    @property
    def url(self) -> str | None:
        """The address for other programs; None if it is the Unix socket of a directory."""
        return self._server.url if self._server is not None else self._address.url

    @property
    def where(self) -> str:
        """The directory or the address, without a password."""
        if self._address.directory is not None:
            return str(self._address.directory)
        found = urlsplit(self._address.url or "")
        port = "" if found.port is None else f":{found.port}"
        return f"{found.scheme}://{found.hostname or ''}{port}{found.path}"

    # --- statements

    async def sql(self, text: str, params: Parameters = ()) -> Result:
        """Run a statement; return its rows. `$1` and so on stand for `params`."""
        async with self._using() as connection:
            return await connection.sql(text, params)

    async def execute(self, text: str, params: Parameters = ()) -> str:
        """Run a statement, or several without `params`; return the last one's tag."""
        async with self._using() as connection:
            return await connection.execute(text, params)

    async def stream(self, query: str, params: Parameters = ()) -> AsyncIterator[pa.RecordBatch]:
        """Yield the rows of a query as they arrive, over a connection of their own."""
        async for found in self.schema_and_rows(query, params):
            if isinstance(found, pa.RecordBatch):
                yield found

    async def schema_and_rows(
        self, query: str, params: Parameters = ()
    ) -> AsyncGenerator[pa.RecordBatch | pa.Schema, None]:
        """Yield the schema of a query's rows, then what `stream` yields."""
        if self._closed:
            raise NotReceived("the database is closed", sqlstate="08003")
        connection = Connection(self._address)
        self._streams.add(connection)
        try:
            rows = connection.stream(query, params)
            async with contextlib.aclosing(rows):  # type: ignore[type-var]
                async for found in rows:
                    yield found
        finally:
            self._streams.discard(connection)
            await connection.close()

    @contextlib.asynccontextmanager
    async def transaction(self, isolation: str | None = None) -> AsyncIterator[Self]:
        """Run the body in a transaction: commit at its end, roll back at an error.

        `isolation` is serializable, repeatable_read or read_committed. Within a transaction it is
        a savepoint.
        """
        opened = await self.begin(isolation)
        before = inside.set(opened.token)
        try:
            yield self
        except BaseException:
            await self.end(opened, commit=False)
            raise
        else:
            await self.end(opened, commit=True)
        finally:
            inside.reset(before)

    async def begin(self, isolation: str | None = None) -> Opened:
        """Begin a transaction, or a savepoint if the caller is inside one; `end` must follow.

        The caller is inside when it has set `inside` to the result's token.
        """
        is_savepoint = self.is_inside
        if not is_savepoint:
            await self._lock.acquire()
        try:
            self._check_server()
            async with self._statement:
                block = Block(await self._connection.get(), is_savepoint=is_savepoint)
                await block.begin(isolation)
        except BaseException:
            if not is_savepoint:
                self._lock.release()
            raise
        token = self._transaction if is_savepoint else object()
        self._transaction = token
        return Opened(token, block, is_savepoint)

    async def end(self, opened: Opened, *, commit: bool) -> None:
        """End a transaction or savepoint, also if this is cancelled: then roll it back."""
        try:
            async with self._statement:
                await opened.block.end(commit=commit)
        except BaseException:
            await self._undo(opened.block)
            raise
        finally:
            if not opened.is_savepoint:
                self._transaction = None
                self._lock.release()

    async def _undo(self, block: Block) -> None:
        """Roll a block back, or end its connection if this is cancelled before its turn."""
        is_turn = False
        try:
            async with self._statement:
                is_turn = True
                await block.undo()
        finally:
            if not is_turn:
                block.abandon()

    @property
    def is_inside(self) -> bool:
        """Whether the caller is within the open transaction of this object."""
        return self._transaction is not None and inside.get() is self._transaction

    @contextlib.asynccontextmanager
    async def _using(self) -> AsyncIterator[Connection]:
        """Yield the connection when it is the caller's turn."""
        async with self._statement if self.is_inside else self._lock:
            if self.is_inside and self._connection.is_lost:
                raise NotReceived("the connection of the transaction was lost")
            self._check_server()
            yield self._connection

    def _check_server(self) -> None:
        if self._server is not None and (status := self._server.status) is not None:
            raise NotReceived(
                f"the server of this database has ended with status {status}",
                hint="What was committed is there. Close this object, and open the directory anew.",
            )

    # --- changes

    @overload
    def subscribe(
        self,
        query: str,
        params: Parameters = (),
        *,
        snapshot: bool = True,
        progress: Literal[False] = False,
        as_of: int | None = None,
        up_to: int | None = None,
        reconnect: float = RECONNECT_SECONDS,
    ) -> AsyncIterator[Changes]: ...

    @overload
    def subscribe(
        self,
        query: str,
        params: Parameters = (),
        *,
        snapshot: bool = True,
        progress: bool,
        as_of: int | None = None,
        up_to: int | None = None,
        reconnect: float = RECONNECT_SECONDS,
    ) -> AsyncIterator[Event]: ...

    async def subscribe(
        self,
        query: str,
        params: Parameters = (),
        *,
        snapshot: bool = True,
        progress: bool = False,
        as_of: int | None = None,
        up_to: int | None = None,
        reconnect: float = RECONNECT_SECONDS,
    ) -> AsyncIterator[Any]:
        """Yield the contents of a query, table or view, then its changes, time by time.

        Each `Changes` is complete. With `progress` also `Progress`, about once a second when
        nothing changes. Times are milliseconds since 1970. A lost connection is made anew, for at
        most `reconnect` seconds, and the stream goes on: each change is given once. To go on in
        another process, pass `snapshot=False` and the last progress less one as `as_of`.
        """
        statement = with_parameters(query, params)
        waits = Waits(reconnect)
        while True:
            text = subscribe_text(statement, snapshot, as_of, up_to)
            try:
                async for event in self.events(text, (), snapshot=snapshot):
                    waits.begin()
                    if isinstance(event, Changes):
                        snapshot = False  # the contents come before all other changes
                    elif as_of is not None and event.time <= as_of:
                        continue  # where it goes on
                    elif not snapshot:
                        as_of = event.time - 1
                    if progress or isinstance(event, Changes):
                        yield event
                return
            except NotReceived as error:
                if self._closed:
                    return
                self._check_server()
                await waits.wait(error)

    async def events(
        self, statement: str, params: Parameters, *, snapshot: bool
    ) -> AsyncIterator[Event]:
        """Yield all events of a SUBSCRIBE."""
        by_time = ByTime(snapshot=snapshot)
        rows = self.stream(statement, params)
        async with contextlib.aclosing(rows):  # type: ignore[type-var]
            async for batch in rows:
                for event in by_time.take(batch):
                    yield event
        for event in by_time.end():
            yield event

    # --- rows in

    async def register(self, name: str, data: Any, *, if_exists: IfExists = "fail") -> int:
        """Make a table of a DataFrame, or of anything that Arrow reads; return its rows' number.

        The rows are copied: a DataFrame that changes later is registered again. `replace` puts the
        rows in place of a table's, in one transaction, and views over it change by the difference;
        a table that has other columns is made anew. `append` adds rows. Levels of an index of
        pandas that have names are the first columns.
        """
        return await self._load(name, lambda: frame_of(data), if_exists)

    async def read_parquet(
        self,
        name: str,
        paths: str | Path | Sequence[str | Path],
        *,
        if_exists: IfExists = "fail",
    ) -> int:
        """Make a table of Parquet files of this machine; return the number of its rows.

        A path may be a file, a directory, or a pattern such as `data/*.parquet`.
        """
        return await self._load(name, lambda: frame_of_files(paths, "parquet"), if_exists)

    async def read_csv(
        self,
        name: str,
        paths: str | Path | Sequence[str | Path],
        *,
        if_exists: IfExists = "fail",
    ) -> int:
        """Make a table of CSV files with headers; Arrow infers the types of the columns."""
        return await self._load(name, lambda: frame_of_files(paths, "csv"), if_exists)

    async def _load(self, name: str, frame: Callable[[], Frame], if_exists: IfExists) -> int:
        if if_exists not in ("fail", "replace", "append"):
            raise InvalidParameterValue(f"if_exists is fail, replace or append, not {if_exists!r}")
        rows = await asyncio.get_running_loop().run_in_executor(None, frame)
        if not rows.schema.names:
            raise InvalidParameterValue("the rows have no columns")
        async with self.transaction(), self._using() as connection:
            found = None if if_exists == "fail" else await _schema(connection, name)
            given = set(rows.schema.names)
            if if_exists == "replace" and found is not None and set(found.names) != given:
                columns = rows.definition()  # an error before anything is dropped
                await connection.execute(f"DROP TABLE {qualified_name(name)}")
                found = None
            if found is None:
                columns = rows.definition()
                await connection.execute(f"CREATE TABLE {qualified_name(name)} ({columns})")
            else:
                rows = unrounded(rows, found)
                if if_exists == "replace":
                    await connection.execute(f"DELETE FROM {qualified_name(name)}")
            return await connection.copy_in(name, rows)

    # --- life

    def session(self) -> "AsyncDatabase":
        """Return a further session, whose statements run beside those of this object."""
        found = AsyncDatabase(self._address, None)
        self._sessions.append(found)
        return found

    async def close(self) -> None:
        """End the sessions, and the server if this object has started it.

        Iterations of subscriptions end; those of streams fail.
        """
        self._closed = True
        for connection in self._streams:
            connection.terminate()
        for session in self._sessions:
            await session.close()
        self._sessions.clear()
        with contextlib.suppress(NotReceived):  # the server has ended
            await self._connection.close()
        if self._server is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._server.close)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _schema(connection: Connection, name: str) -> pa.Schema | None:
    """Return a relation's columns; None if it does not exist."""
    text = qualified_name(name)
    if not (await connection.sql("SELECT to_regclass($1) IS NOT NULL", [text])).scalar():
        return None
    return (await connection.sql(f"SELECT * FROM {text} LIMIT 0")).table.schema


def subscribe_text(query: str, snapshot: bool, as_of: int | None, up_to: int | None) -> str:
    """Return SUBSCRIBE of a query, or of a table or view that is named."""
    source = f"({query}\n)" if is_query(query) else f"TO {query}"
    text = f"SUBSCRIBE {source} WITH (PROGRESS, SNAPSHOT = {'true' if snapshot else 'false'})"
    text += "" if as_of is None else f" AS OF {int(as_of)}"
    return text + ("" if up_to is None else f" UP TO {int(up_to)}")


__all__ = ["AsyncDatabase", "Changes", "Event", "Progress", "Result"]
