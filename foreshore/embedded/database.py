"""The database object for programs without an event loop; any of their threads may use it.

A thread of its own runs the loop that the asynchronous object lives on. A call waits for its
coroutine there, in the caller's context, so that a transaction of one thread is not another's.
"""

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar, overload

import pyarrow as pa

from foreshore.embedded.database_async import RECONNECT_SECONDS, AsyncDatabase, IfExists
from foreshore.embedded.errors import NotReceived
from foreshore.embedded.literals import Parameters
from foreshore.embedded.result import Result
from foreshore.embedded.subscription import Changes, Event
from foreshore.embedded.transaction import Transaction
from foreshore.embedded.variables import hint_at_variable
from foreshore.errors import DatabaseError

T = TypeVar("T")
E = TypeVar("E", bound=Event)
SIGNALS_S = 0.5  # the longest wait in which a signal may be overlooked


class LoopThread:
    """An event loop on a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="foreshore client", daemon=True)
        self._ending: set[asyncio.Task[None]] = set()
        self._pid = os.getpid()
        self._lock = threading.RLock()  # a generator may be collected while it is held
        self.is_ending = False  # under the lock
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine; an interrupt cancels it. Raises NotReceived at the end.

        The end is when the database is closed. In a child that a fork has made there is no thread
        of the loop.
        """
        future = self.begun(work)
        try:
            return self.result(future)
        except BaseException:
            future.cancel()
            raise

    def result(self, future: Future[T]) -> T:
        """Wait for what was begun; raises NotReceived at the end."""
        try:
            return _result(future)
        except CancelledError:
            if self.is_ending:
                raise _closed() from None
            raise

    def call_soon(self, work: Callable[[], None]) -> None:
        """Have a function called on the loop; a handler of signals may ask for it."""
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(work)

    def begun(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine on the loop; raises NotReceived."""
        if self.is_forked:
            work.close()
            raise NotReceived(
                "a database that was opened before a fork cannot be used in the child",
                sqlstate="08003",
                hint="Connect in the child: foreshore.connect, with the directory or its url.",
            )
        with self._lock:  # what is begun later, the loop would not run
            if not self.is_ending:
                return asyncio.run_coroutine_threadsafe(work, self._loop)
        work.close()
        raise _closed()

    def end(self, work: Coroutine[Any, Any, None]) -> None:
        """Run what ends something, and wait for it, unless this is the thread of the loop.

        A generator that nobody uses may be collected on any thread, at any time.
        """
        if threading.current_thread() is self._thread:
            self._ending.add(task := self._loop.create_task(work))
            task.add_done_callback(self._ending.discard)
        elif self.is_ending or self.is_forked:
            work.close()
        else:
            with contextlib.suppress(NotReceived):  # all ends with the database
                self.wait(work)

    @property
    def is_forked(self) -> bool:
        """Whether this process is a child of the one that began the loop."""
        return os.getpid() != self._pid

    async def await_(self, work: Coroutine[Any, Any, T]) -> T:
        """Return the result of a coroutine to a coroutine of another loop."""
        return await asyncio.wrap_future(self.begun(work))

    def close(self, last: Coroutine[Any, Any, None] | None = None) -> None:
        """End the calls of other threads, then run `last`, then end the loop and its thread."""
        with self._lock:
            self.is_ending = True

        async def ending() -> None:
            await _end_all()
            if last is not None:
                await last

        asyncio.run_coroutine_threadsafe(ending(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _closed() -> NotReceived:
    return NotReceived("the database is closed", sqlstate="08003")


async def _end_all() -> None:
    """Cancel what else runs on the loop, such as subscriptions, and wait for its end."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    if others:
        await asyncio.wait(others, timeout=10)
    await asyncio.get_running_loop().shutdown_asyncgens()


def _result(future: Future[T]) -> T:
    """Return the result of a future, with waits that end, so that no signal is overlooked.

    One that comes just before the thread begins to wait for a lock is seen after the wait only.
    """
    while True:
        try:
            return future.result(SIGNALS_S)
        except TimeoutError:
            if future.done():  # the work's own, or it has just ended
                return future.result()


class Subscription(Generic[E]):
    """The changes of a query: an iterator, and an asynchronous one. Close it to end it."""

    def __init__(self, loop: LoopThread, events: AsyncIterator[E]) -> None:
        self._loop = loop
        self._events = events
        self._waiting: asyncio.Future[E] | None = None
        self._closed = False

    def __iter__(self) -> Iterator[E]:
        return self

    def __next__(self) -> E:
        try:
            return self._loop.wait(self._next())
        except (StopAsyncIteration, CancelledError):
            raise StopIteration from None
        except NotReceived:
            if self._loop.is_ending:
                raise StopIteration from None
            raise

    def __aiter__(self) -> AsyncIterator[E]:
        return self

    async def __anext__(self) -> E:
        try:
            return await self._loop.await_(self._next())
        except NotReceived:
            if self._loop.is_ending:
                raise StopAsyncIteration from None
            raise

    async def _next(self) -> E:
        if self._closed:
            raise StopAsyncIteration
        self._waiting = asyncio.ensure_future(anext(self._events))
        try:
            return await self._waiting
        except asyncio.CancelledError:
            if self._closed and not self._is_abandoned():
                raise StopAsyncIteration from None
            self._waiting.cancel()
            raise
        finally:
            self._waiting = None

    def _is_abandoned(self) -> bool:
        """Whether who waited for the running task was interrupted, and takes no exception of it."""
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0 and not self._loop.is_ending

    async def _end(self) -> None:
        if self._waiting is not None:
            self._waiting.cancel()
            await asyncio.wait([self._waiting])
        await self._events.aclose()  # type: ignore[attr-defined]

    def close(self) -> None:
        """End the subscription; the iteration of another thread that waits for a change ends."""
        if not self._closed and not self._loop.is_forked:
            self._closed = True
            self._loop.end(self._end())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Database:
    """A database of this process (`foreshore.open`) or at an address (`foreshore.connect`)."""

    def __init__(self, loop: LoopThread, database: AsyncDatabase, *, owns_loop: bool) -> None:
        self._loop = loop
        self._database = database
        self._owns_loop = owns_loop
        self._closed = False

    def __repr__(self) -> str:
        state = "closed" if self._closed else "open"
        return f"<foreshore.Database {self._database.where} ({state})>"

    def __reduce__(self) -> str:
        raise TypeError(
            "a database cannot be pickled; in another process use foreshore.connect, with"
            " its directory or url"
        )

    @property
    def url(self) -> str | None:
        """The address for other programs; None if it is the Unix socket of a directory."""
        return self._database.url

    def sql(self, text: str, params: Parameters = ()) -> Result:
        """Run a statement; return its rows. `$1` and so on stand for `params`."""
        try:
            return self._loop.wait(self._database.sql(text, params))
        except DatabaseError as error:
            hint_at_variable(error, sys._getframe(1))
            raise

    def execute(self, text: str, params: Parameters = ()) -> str:
        """Run a statement, or several without `params`; return the last one's tag."""
        try:
            return self._loop.wait(self._database.execute(text, params))
        except DatabaseError as error:
            hint_at_variable(error, sys._getframe(1))
            raise

    def stream(self, query: str, params: Parameters = ()) -> pa.RecordBatchReader:
        """Return the rows of a query as they arrive, in bounded memory."""
        found = self._database.schema_and_rows(query, params)
        schema: pa.Schema = self._loop.wait(anext(found))
        return pa.RecordBatchReader.from_batches(schema, self._batches(found))

    def _batches(self, found: AsyncGenerator[Any, None]) -> Iterator[pa.RecordBatch]:
        try:
            while (batch := self._loop.wait(anext(found, None))) is not None:
                yield batch
        finally:
            self._loop.end(found.aclose())

    def transaction(self, isolation: str | None = None) -> Transaction[Self]:
        """Run the body in a transaction: commit at its end, roll back at an error.

        `isolation` is serializable, repeatable_read or read_committed. Statements of other threads
        wait meanwhile. Within a transaction it is a savepoint.
        """
        return Transaction(self._loop, self._database, self, isolation)

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
    ) -> Subscription[Changes]: ...

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
    ) -> Subscription[Event]: ...

    def subscribe(
        self,
        query: str,
        params: Parameters = (),
        *,
        snapshot: bool = True,
        progress: bool = False,
        as_of: int | None = None,
        up_to: int | None = None,
        reconnect: float = RECONNECT_SECONDS,
    ) -> Subscription[Any]:
        """Return the contents of a query, table or view, then its changes, time by time.

        Each `Changes` is complete. With `progress` also `Progress`, about once a second when
        nothing changes. Times are milliseconds since 1970. A lost connection is made anew, for at
        most `reconnect` seconds, and the stream goes on: each change is given once. To go on in
        another process, pass `snapshot=False` and the last progress less one as `as_of`.
        """
        events = self._database.subscribe(
            query,
            params,
            snapshot=snapshot,
            progress=progress,
            as_of=as_of,
            up_to=up_to,
            reconnect=reconnect,
        )
        return Subscription(self._loop, events)

    def register(self, name: str, data: Any, *, if_exists: IfExists = "fail") -> int:
        """Make a table of a DataFrame, or of anything that Arrow reads; return its rows' number.

        The rows are copied: a DataFrame that changes later is registered again. `replace` puts the
        rows in place of a table's, in one transaction, and views over it change by the difference;
        a table that has other columns is made anew. `append` adds rows. Levels of an index of
        pandas that have names are the first columns.
        """
        return self._loop.wait(self._database.register(name, data, if_exists=if_exists))

    def read_parquet(
        self,
        name: str,
        paths: str | Path | Sequence[str | Path],
        *,
        if_exists: IfExists = "fail",
    ) -> int:
        """Make a table of Parquet files of this machine; return the number of its rows.

        A path may be a file, a directory, or a pattern such as `data/*.parquet`.
        """
        return self._loop.wait(self._database.read_parquet(name, paths, if_exists=if_exists))

    def read_csv(
        self,
        name: str,
        paths: str | Path | Sequence[str | Path],
        *,
        if_exists: IfExists = "fail",
    ) -> int:
        """Make a table of CSV files with headers; Arrow infers the types of the columns."""
        return self._loop.wait(self._database.read_csv(name, paths, if_exists=if_exists))

    def session(self) -> "Database":
        """Return a further session, whose statements run beside those of this object."""

        async def further() -> AsyncDatabase:
            return self._database.session()

        return Database(self._loop, self._loop.wait(further()), owns_loop=False)

    def close(self) -> None:
        """End the sessions, and the server if this object has started it."""
        if not self._closed and not self._loop.is_forked:
            self._closed = True
            if self._owns_loop:
                self._loop.close(self._database.close())
            else:
                self._loop.end(self._database.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
