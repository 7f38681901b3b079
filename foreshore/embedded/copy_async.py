"""A live copy of a query's result in DuckDB, for programs with an event loop.

One task reads the stream, as far ahead as ARRIVED_BYTES; another one applies all that has arrived
at once, so a copy that falls behind has larger commits and not a longer queue.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.embedded.copy_store import TIME, CopyStore
from foreshore.embedded.database_async import AsyncDatabase, subscribe_text
from foreshore.embedded.errors import NotReceived
from foreshore.embedded.literals import quoted_name
from foreshore.embedded.reconnect import FIRST_SECONDS, LONGEST_SECONDS
from foreshore.embedded.result import Result, without_json
from foreshore.errors import DatabaseError

T = TypeVar("T")

logger = logging.getLogger(__name__)

ARRIVED_BYTES = 64 << 20  # of changes in memory
ADVANCE_SECONDS = 1.0  # between two moves of the durable subscription
WAITING_SECONDS = 2.0  # without contents, until the program is warned
SILENT_SECONDS = 60.0  # after which a connection is lost; progress comes each second
PROGRESSED = "mz_progressed"

State: TypeAlias = Literal["starting", "live", "disconnected", "ended", "failed"]


@dataclass(frozen=True, slots=True)
class Reread:
    """The history since the copy's time is gone: the contents were read again.

    Only the rows that differed were changed, `changed` in all; the copy is right at `time`.
    """

    time: int
    changed: int
    reason: str


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection was lost, or could not be made; it is tried again for ever."""

    error: DatabaseError


@dataclass(frozen=True, slots=True)
class Connected:
    """The server sends changes after `time`; None: the contents."""

    time: int | None


@dataclass(frozen=True, slots=True)
class Waiting:
    """The server has sent no contents for so many seconds: it may be filling a view."""

    seconds: float


CopyEvent: TypeAlias = Reread | Disconnected | Connected | Waiting


class AsyncCopy:
    """A table that follows a query; `replica_async` makes it."""

    def __init__(
        self,
        database: AsyncDatabase,
        query: str,
        store: CopyStore,
        subscription: str | None,
        on_event: Callable[[CopyEvent], None] | None,
    ) -> None:
        self._database, self._query, self._store = database, query, store
        self._subscription = subscription
        self._called_back = on_event
        self._thread = ThreadPoolExecutor(1, "foreshore copy")
        self._readers = ThreadPoolExecutor(4, "foreshore copy reads")
        self._changed = asyncio.Event()
        self._advanced_at = 0.0
        self.state: State = "starting"
        self.error: DatabaseError | None = None
        self.received = 0  # rows that have come since it was opened, also those of contents
        self._task = asyncio.get_running_loop().create_task(self._follow())

    # --- what programs use -----------------------------------------------------------------------

    @property
    def time(self) -> int | None:
        """The time, in milliseconds since 1970, at which the copy is right; None: not yet."""
        return self._store.time

    async def sql(self, text: str, params: Sequence[Any] = ()) -> Result:
        """Return the rows of a query in DuckDB's SQL, which reads one moment of the copy."""
        return (await self.sql_with_time(text, params))[1]

    async def sql_with_time(self, text: str, params: Sequence[Any] = ()) -> tuple[int, Result]:
        """Return also the time of that moment."""
        loop = asyncio.get_running_loop()
        time, found = await loop.run_in_executor(self._readers, self._store.read, text, params)
        if time is None:
            raise self.error or DatabaseError("the copy has no contents yet", sqlstate="55000")
        return time, Result(found)

    async def wait(self, time: int | None = None, timeout: float | None = None) -> int:  # noqa: ASYNC109 - as queues have it
        """Wait until the copy has all changes up to `time`, by default the server's present.

        Returns the copy's time. Raises TimeoutError after `timeout` seconds, or the error that has
        ended the copy.
        """
        async with asyncio.timeout(timeout):
            if time is None:
                time = int((await self._database.sql("SELECT mz_now()")).scalar())
            while self._store.time is None or self._store.time < time:
                if self.state == "ended" and self._store.time is not None:
                    break  # it never changes
                if self.state == "failed":
                    assert self.error is not None
                    raise self.error
                await self._changed.wait()
        return self._store.time

    async def close(self) -> None:
        """Follow no more, and close the file. The durable subscription stays."""
        self._task.cancel()
        await asyncio.wait([self._task])
        await self._database.close()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, self._readers.shutdown)
        await self._run(self._store.close)
        self._thread.shutdown(wait=False)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # --- following -------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Follow the query for ever, or until an error that trying again does not mend."""
        reason = ""  # why contents are read although there is a copy
        pause = FIRST_SECONDS
        while True:
            before = self._store.time
            try:
                await self._hold()
                await self._stream(reason)
                self._set("ended", None)
                return
            except NotReceived as error:
                if self.state != "disconnected":
                    self._on_event(Disconnected(error))
                self._set("disconnected", error)
            except DatabaseError as error:
                has_moved = self._store.time != before
                if self._store.time is None or (reason and not has_moved):
                    self._set("failed", error)
                    return
                reason = "" if has_moved else error.message
            except Exception as error:
                logger.exception("a copy has failed")
                self._set("failed", DatabaseError(f"internal error: {error}"))
                return
            if self._store.time != before:
                pause, reason = FIRST_SECONDS, ""
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_SECONDS)

    async def _hold(self) -> None:
        """Let the server keep the history from the copy's time on, if that is asked for."""
        if self._subscription is not None:
            name = quoted_name(self._subscription)
            source = subscribe_text(self._query, True, None, None).removeprefix("SUBSCRIBE ")
            source = source.rpartition(" WITH (")[0].removeprefix("TO ")
            await self._database.execute(f"CREATE SUBSCRIPTION IF NOT EXISTS {name} FOR {source}")

    async def _advance(self, *, now: bool = False) -> None:
        """Let history go that the copy has in its file."""
        clock = asyncio.get_running_loop().time()
        if self._subscription is None or self._store.time is None:
            return
        if not now and clock - self._advanced_at < ADVANCE_SECONDS:
            return
        self._advanced_at = clock
        name, upper = quoted_name(self._subscription), self._store.time + 1
        try:
            await self._database.execute(f"ALTER SUBSCRIPTION {name} ADVANCE TO {upper}")
        except NotReceived:
            raise
        except DatabaseError as error:  # the next one will do, or the stream says what is wrong
            logger.info("the subscription of a copy does not advance: %s", error.message)

    async def _stream(self, reason: str) -> None:
        """Apply what the server sends until the stream ends; `reason` is why it is read anew."""
        after = None if reason else self._store.time
        text = subscribe_text(self._query, after is None, after, None)
        await self._run(self._store.begin)
        arrived = _Arrived()
        reading = asyncio.get_running_loop().create_task(self._read(text, arrived, after))
        waiting = asyncio.get_running_loop().create_task(self._tell_waiting())
        try:
            while await self._arrives(arrived):
                tables, progress, begin = arrived.take()
                for table in tables:
                    self.received += table.num_rows
                    await self._run(self._store.stage, table)
                if progress is None:
                    continue
                contents = after is None
                if begin is not None and progress <= begin and contents:
                    continue  # the contents are not whole
                if not contents and progress <= (self._store.time or 0) + 1:
                    continue
                changed = await self._run(self._store.apply, progress - 1, contents=contents)
                after = progress - 1
                waiting.cancel()
                if contents and reason:
                    logger.warning("a copy was read again: %s", reason)
                    self._on_event(Reread(after, changed, reason))
                self._set("live", None)
                await self._advance()
            await reading
        finally:
            waiting.cancel()
            reading.cancel()
            await asyncio.wait([reading, waiting])
            if not reading.cancelled():
                reading.exception()  # it was raised above, or another error was

    async def _tell_waiting(self) -> None:
        """Tell the program that contents do not come at once, unless this is cancelled before."""
        await asyncio.sleep(WAITING_SECONDS)
        logger.warning("a copy waits for contents: none has come for %g seconds", WAITING_SECONDS)
        self._on_event(Waiting(WAITING_SECONDS))

    async def _arrives(self, arrived: "_Arrived") -> bool:
        """Wait for what arrives; a connection that was live and is silent is lost."""
        try:
            async with asyncio.timeout(SILENT_SECONDS if self.state == "live" else None):
                return await arrived.wait()
        except TimeoutError:
            told = f"the server has sent nothing for {SILENT_SECONDS:g} seconds"
            raise NotReceived(told) from None

    async def _read(self, text: str, arrived: "_Arrived", after: int | None) -> None:
        """Take what the server sends."""
        try:
            rows = self._database.stream(text)
            is_first = True
            async with contextlib.aclosing(rows):  # type: ignore[type-var]
                async for batch in rows:
                    if is_first:
                        is_first = False
                        self._on_event(Connected(after))
                    await arrived.put(batch)
            arrived.end()
        finally:
            arrived.stop()

    def _on_event(self, event: CopyEvent) -> None:
        """Tell the program; its errors are its own."""
        if self._called_back is not None:
            try:
                self._called_back(event)
            except Exception:
                logger.exception("the callback of a copy has failed")

    def _set(self, state: State, error: DatabaseError | None) -> None:
        self.state, self.error = state, error
        self._changed.set()
        self._changed = asyncio.Event()

    async def _run(self, work: Callable[..., T], *given: Any, **named: Any) -> T:
        """Return what work on the store gives, which blocks."""
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(self._thread, lambda: work(*given, **named))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            await asyncio.wait([future])  # the file is not left in the middle of something
            raise


class _Arrived:
    """The part of a stream that has arrived and is not applied yet."""

    def __init__(self) -> None:
        self._tables: list[pa.Table] = []
        self._progress: int | None = None
        self._begin: int | None = None  # the time of the first progress row
        self._last: int | None = None  # of the changes
        self._bytes = 0
        self._stopped = False
        self._some, self._room = asyncio.Event(), asyncio.Event()

    async def put(self, batch: pa.RecordBatch) -> None:
        """Add a batch; waits while there is much."""
        table = without_json(pa.Table.from_batches([batch]))
        is_progress = table.column(PROGRESSED)
        times = pc.min_max(table.filter(is_progress).column(TIME)).as_py()
        if times["max"] is not None:
            if self._begin is None:
                self._begin = int(times["min"])
            self._progress = int(times["max"])
        rows = table.filter(pc.invert(is_progress)).drop_columns([PROGRESSED])
        self._tables.append(rows)
        self._bytes += rows.nbytes
        if rows.num_rows:
            self._last = int(pc.max(rows.column(TIME)).as_py())
        self._some.set()
        while self._bytes > ARRIVED_BYTES:
            self._room.clear()
            await self._room.wait()

    def end(self) -> None:
        """Note that a stream has ended without an error: all before is complete."""
        ends = [each + 1 for each in (self._last, self._begin) if each is not None]
        if ends:
            self._progress = max(self._progress or 0, *ends)
            self._some.set()

    def stop(self) -> None:
        """Note that nothing more arrives."""
        self._stopped = True
        self._some.set()

    async def wait(self) -> bool:
        """Wait until something arrives; False: nothing more does."""
        await self._some.wait()
        return not self._stopped or bool(self._tables) or self._progress is not None

    def take(self) -> tuple[list[pa.Table], int | None, int | None]:
        """Return the changes, the newest progress, and the time at which the stream began."""
        found = self._tables, self._progress, self._begin
        self._tables, self._progress, self._bytes = [], None, 0
        if not self._stopped:
            self._some.clear()
        self._room.set()
        return found


async def replica_async(
    where: str | Path,
    query: str,
    *,
    path: str | Path | None = None,
    table: str = "copy",
    subscription: str | None = None,
    on_event: Callable[[CopyEvent], None] | None = None,
) -> AsyncCopy:
    """Keep a table of DuckDB equal to a query's result, as `replica` does, for the running loop."""
    from foreshore.embedded.address import Address

    loop = asyncio.get_running_loop()
    file = None if path is None else Path(path)
    store = await loop.run_in_executor(None, CopyStore, file, table, query)
    try:
        address = await loop.run_in_executor(None, Address.of, where)
    except BaseException:
        store.close()
        raise
    copy = AsyncCopy(AsyncDatabase(address), query, store, subscription, on_event)
    if store.time is None:
        try:
            await _first(copy)
        except BaseException:
            await copy.close()
            raise
    return copy


async def _first(copy: AsyncCopy) -> None:
    """Wait for the first contents; raises the error if there is no connection."""
    while copy.time is None:
        if copy.error is not None:
            raise copy.error
        await copy._changed.wait()


__all__ = ["AsyncCopy", "Connected", "CopyEvent", "Disconnected", "Reread", "Waiting"]
