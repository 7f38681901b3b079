"""Group commit: concurrent writes share one time and one durable append.

While one group is made durable, the next one gathers. All writable shards advance together, also
those that a group does not write, and at intervals when nothing is written. So reads at the newest
time need not wait. A write is acknowledged when it is durable and reads at `read_ts` see it.

A write may require that shards and keys have not changed since it read them (`Reads`). This is
checked when its group is formed, in the order of arrival, also against earlier writes of the group;
the write fails with Conflict if one has changed. A `Guard` checks constraints at the same moment.

A group for which the disk is full has written nothing. Its writes are then tried one by one, so
that only those fail for which there is no space. The same happens if another holder of capabilities
has written to a shard of the group, or has dropped it: only writes to that shard fail.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from time import perf_counter, time_ns
from typing import NamedTuple, Protocol

import pyarrow as pa

from foreshore import tracing
from foreshore.adapter.transaction.write import Reads, Write
from foreshore.catalog.naming import NameKey
from foreshore.compute.keys.group_keys import GroupKeys
from foreshore.compute.keys.key_sets import Keys
from foreshore.errors import (
    AdminShutdown,
    ConcurrentUpdate,
    Conflict,
    DatabaseError,
    Fenced,
    LockNotAvailable,
    OutOfDisk,
    TableAltered,
    TableDropped,
)
from foreshore.few_updates import FewUpdates
from foreshore.ids import GlobalId
from foreshore.latencies import COMMITS
from foreshore.storage.capability import InvalidCapability
from foreshore.storage.controller import (
    ShardWrite,
    SharedUpper,
    UpperMismatch,
    WriteCapability,
)
from foreshore.storage.fault import Unwritable
from foreshore.storage.oracle import TimestampOracle
from foreshore.table_rows import TableRows, updates_at
from foreshore.update import Timestamp, at_time

logger = logging.getLogger(__name__)

IDLE_ADVANCE_MS = 250
NOTHING_WRITTEN = (OutOfDisk, Conflict, InvalidCapability, Unwritable)  # of a group


class Shards(Protocol):
    """The methods of the storage controller that group commit calls."""

    async def begin_append(
        self, writes: Sequence[ShardWrite], ended: Callable[[DatabaseError | None], None]
    ) -> UpperMismatch | None:
        """Begin to make all writes durable, or none.

        `ended` is called later, once readers see them, or with the error of all.
        """
        ...

    def share_upper(self, id: GlobalId, shared: SharedUpper) -> None:
        """Let the upper of an idle shard be at least the shared one."""
        ...

    def unshare_upper(self, id: GlobalId) -> None:
        """Let a shard's upper be its own."""
        ...

    def upper(self, id: GlobalId) -> Timestamp:
        """Return a shard's upper."""
        ...


class Guard(Protocol):
    """Checks writes before they join a group; it is notified once the group is visible."""

    def refused(self, write: Write, earlier: GroupKeys) -> DatabaseError | None:
        """Return the error of `write` after `earlier` in its group, None if it may commit."""
        ...

    def changed(self, keys: Keys, time: Timestamp, earlier: GroupKeys) -> bool:
        """Return whether one of `keys` was changed after `time`, or is by `earlier`."""
        ...

    def apply(self, time: Timestamp, group: Sequence[Write]) -> None:
        """Note that `group` has been written at `time`, and nothing else since the last group."""
        ...

    def is_taken(self, name: NameKey) -> bool:
        """Return whether an object has this name now."""
        ...


@dataclass(slots=True)
class _Group:
    """Writes that become durable together, and writes that are refused.

    The reason to refuse a write can be another one of the group, so it gets its error when that is
    durable.
    """

    asked: list[Write] = field(default_factory=list)  # all of it, in order of arrival
    writes: list[Write] = field(default_factory=list)
    refused: list[tuple[Write, DatabaseError]] = field(default_factory=list)
    began: int = 0  # in nanoseconds, if it is traced
    time: Timestamp = 0
    tables: Collection[GlobalId] = ()

    def refuse(self, write: Write, error: DatabaseError) -> None:
        """Add a write that is refused."""
        self.asked.append(write)
        self.refused.append((write, error))

    def answer(self) -> None:
        """Fail the writes that are refused."""
        for write, error in self.refused:
            write.fail(error)

    def fail(self, error: BaseException) -> None:
        """Fail all writes, as it is not known whether they have become durable."""
        for write in self.asked:
            write.fail(_stopped(error))


@dataclass(eq=False, slots=True)
class _Awaited:
    """A wait for a time."""

    time: Timestamp
    done: asyncio.Future[None]

    def __lt__(self, other: "_Awaited") -> bool:
        return self.time < other.time


class _Gone(NamedTuple):
    """The end of a table's shard."""

    name: NameKey | None  # None: the table has another shard
    time: Timestamp


class GroupCommit:
    """The one writer of tables and of the catalog's shard; owned by the event loop."""

    def __init__(self, shards: Shards, oracle: TimestampOracle, guard: Guard) -> None:
        self._guard = guard
        self._shards = shards
        self._oracle = oracle
        self._tokens: dict[GlobalId, str] = {}  # of the write capability on each shard
        self._shared = SharedUpper()  # of all of them
        self._changed: dict[GlobalId, Timestamp] = {}  # when each shard was last written
        self._written: set[GlobalId] = set()  # since this was last asked for
        self._gone: dict[GlobalId, _Gone] = {}  # in the order in which they went
        self._pending: list[Write] = []
        self._wake = asyncio.Event()  # of the task, to form a group
        self._in_flight: _Group | None = None  # handed over to the log
        self._is_asked = False  # for another group, while one is in flight
        self._trouble: BaseException | None = None  # with that one: the task raises it
        self._idle_at = 0.0  # by the loop's clock: all advance then, if there is no group before
        self._idle: asyncio.TimerHandle | None = None
        self._alone = 0  # how many of the next writes are to be tried one by one
        self._blocked: dict[GlobalId, object] = {}  # shards that only one owner may write now
        self._awaited: list[_Awaited] = []  # times to be reached, a heap
        self._failed: BaseException | None = None
        self._no_room: OutOfDisk | None = None  # for times, the last time that one was asked for
        self._closing = False
        self._settled = asyncio.Event()
        self._settled.set()
        self.groups = 0
        self.writes = 0

    # --- what is written -----------------------------------------------------------------------

    def add(self, write: WriteCapability) -> None:
        """Take over the writing of a shard; its upper is at or before the next write's time."""
        id = write.id
        assert id not in self._tokens, id
        self._tokens[id] = write.token
        self._changed[id] = self._shards.upper(id)
        self._shared.advance(self._oracle.read_ts() + 1)
        self._shards.share_upper(id, self._shared)

    def remove(self, id: GlobalId) -> None:
        """Stop writing to a shard."""
        if self._tokens.pop(id, None) is not None:
            self._shards.unshare_upper(id)
        self._changed.pop(id, None)

    def retire(self, id: GlobalId, name: NameKey | None, time: Timestamp) -> None:
        """Stop writing to the shard of a table, dropped as `name` at `time`; None: rewritten."""
        self.remove(id)
        self._gone[id] = _Gone(name, time)

    def forget_retired(self, through: Timestamp) -> None:
        """Forget shards retired at `through` or before, which no transaction knows any more."""
        for id, each in list(self._gone.items()):
            if each.time > through:
                break
            del self._gone[id]

    def __contains__(self, id: object) -> bool:
        """Return whether `id` is a shard that is written here."""
        return id in self._tokens

    def is_altered(self, id: GlobalId) -> bool:
        """Return whether the table of shard `id` has a new shard."""
        return id in self._gone and self._gone[id].name is None

    def gone(self, id: GlobalId) -> DatabaseError:
        """Return the error for writing to a retired shard.

        It is a conflict if another object has the table's name, as a retry finds that.
        """
        gone = self._gone.get(id)
        if gone is None or gone.name is None or self._guard.is_taken(gone.name):
            return TableAltered()
        return TableDropped(gone.name[-1])

    def changed(self, id: GlobalId) -> Timestamp:
        """Return the time of the last write to a shard, or one after it."""
        return self._changed[id]

    def take_written(self) -> set[GlobalId]:
        """Return the shards that have been written since the last call."""
        taken, self._written = self._written, set()
        return taken

    @property
    def failed(self) -> bool:
        """Whether it has failed or been closed; a pending write may then have happened."""
        return self._failed is not None or self._trouble is not None

    @property
    def standstill(self) -> DatabaseError | None:
        """The error because of which times, and so all tables, do not advance; None: they do."""
        return self._no_room if self._failed is None else _stopped(self._failed)

    async def write(self, write: Write) -> Timestamp:
        """Commit a write; return its time when it is durable and visible.

        Raises Conflict if what it read has changed, LockNotAvailable if others block its tables
        for too long. After a cancellation the write may still happen.
        """
        if self._failed is not None:
            raise _stopped(self._failed)
        loop = asyncio.get_running_loop()
        write.done, write.asked_at = loop.create_future(), perf_counter()
        self._pending.append(write)
        self._ask()
        with tracing.phase("commit"):
            if not write.lock_timeout_ms:
                return await write.done
            timer = loop.call_later(write.lock_timeout_ms / 1000, self._give_up, write)
            try:
                return await write.done
            finally:
                timer.cancel()

    def _ask(self) -> None:
        """Ask for another group; while one is in flight, for one after it."""
        if self._in_flight is None:
            self._wake.set()
        else:
            self._is_asked = True

    def _give_up(self, write: Write) -> None:
        """Refuse a write that still waits for others who block its tables."""
        if write in self._pending and self._is_blocked(write):
            self._pending.remove(write)
            write.fail(LockNotAvailable())

    def _is_blocked(self, write: Write) -> bool:
        if not self._blocked or not write.waits:
            return False
        return any(self._blocked.get(id, write.owner) is not write.owner for id in write.rows)

    async def reached(self, time: Timestamp) -> None:
        """Wait until reads at `time` see all writes up to it, however far ahead it is."""
        if self._failed is not None:
            raise _stopped(self._failed)
        if self._oracle.read_ts() >= time:
            return
        awaited = _Awaited(time, asyncio.get_running_loop().create_future())
        heappush(self._awaited, awaited)
        if time <= self._oracle.next_ts():
            self._ask()  # where nothing is written, all advance now
        try:
            await awaited.done
        except asyncio.CancelledError:
            if awaited in self._awaited:
                self._awaited.remove(awaited)
                heapify(self._awaited)
            raise

    def block(self, ids: Iterable[GlobalId], owner: object) -> None:
        """Let only writes of `owner` change `ids` until `unblock`."""
        self._blocked.update(dict.fromkeys(ids, owner))

    def unblock(self, ids: Iterable[GlobalId]) -> None:
        """Let all owners write `ids` again."""
        for id in ids:
            self._blocked.pop(id, None)
        self._ask()

    async def settled(self) -> None:
        """Wait for the group that is being made durable, if there is one."""
        await self._settled.wait()

    # --- the loop ------------------------------------------------------------------------------

    async def run(self) -> None:
        """Commit groups, and advance when idle, until closed.

        Ends with the error of an append that failed, unless the disk was full.
        """
        loop = asyncio.get_running_loop()
        idle_s = IDLE_ADVANCE_MS / 1000
        self._idle = loop.call_later(idle_s, self._ask_if_idle)
        try:
            while not self._closing:
                self._idle_at = loop.time() + idle_s
                await self._wake.wait()
                self._wake.clear()
                if self._trouble is not None:
                    raise self._trouble
                self._settled.clear()
                try:
                    await self._commit(self._form())  # nothing keeps what it wrote
                except OutOfDisk as error:  # for times: reads go on at the one that they have
                    self._no_room = error
                    self._tell_not_reached(error)
                finally:
                    if self._in_flight is None:
                        self._settled.set()
            await self._settled.wait()
            if self._trouble is not None:
                raise self._trouble
            self._stop(AdminShutdown())
        except asyncio.CancelledError as error:
            self._stop(error)
            raise
        except (Fenced, AdminShutdown) as error:  # as it is meant to be: no fault to look for
            logger.warning("group commit has stopped: %s", error)
            self._stop(error)
            raise
        except Exception as error:
            logger.exception("group commit has stopped")
            self._stop(error)
            raise
        finally:
            if self._idle is not None:
                self._idle.cancel()

    def _ask_if_idle(self) -> None:
        """Ask for a group if none has come for a while, and look again when that may be so."""
        loop = asyncio.get_running_loop()
        left = self._idle_at - loop.time()
        if left <= 0:
            self._ask()
            left = IDLE_ADVANCE_MS / 1000
        self._idle = loop.call_later(left, self._ask_if_idle)

    def close(self) -> None:
        """End the loop after the present group; later writes are refused."""
        self._closing = True
        self._failed = self._failed or AdminShutdown(
            "terminating connection due to administrator command"
        )
        self._ask()

    async def advance(self) -> None:
        """Advance all shards to now, as the loop does when idle."""
        await self._advance()

    def _form(self) -> _Group:
        """Return the writes that can commit together now, in order of arrival."""
        alone, self._alone = self._alone > 0, max(0, self._alone - 1)
        group = _Group()
        left: list[Write] = []
        touched: set[GlobalId] = set()
        earlier = GroupKeys()
        for write in self._pending:
            ids = set(write.rows)
            missing = ids - self._tokens.keys()
            if write.is_given_up:
                continue
            if alone and group.writes:
                left.append(write)
                self._ask()
            elif missing:
                write.fail(self.gone(min(missing)))
            elif self._is_blocked(write):
                left.append(write)
            elif (
                write.reads is not None and not self._holds(write.reads, touched, earlier)
            ) or not touched.isdisjoint(write.moves):
                group.refuse(write, ConcurrentUpdate())
            elif (error := self._guard.refused(write, earlier)) is not None:
                group.refuse(write, error)
            else:
                group.asked.append(write)
                group.writes.append(write)
                touched |= ids | write.moves.keys()
                earlier.add(write.keyed)
        self._pending = left
        return group

    def _holds(self, reads: Reads, touched: set[GlobalId], earlier: GroupKeys) -> bool:
        if not touched.isdisjoint(reads.ids):
            return False
        for id in reads.ids:
            if id not in self._tokens or self._changed[id] > reads.time:
                return False
        return not self._guard.changed(reads.keys, reads.time, earlier)

    async def _commit(self, group: _Group) -> None:
        if not group.writes:
            group.answer()
            await self._advance()
            return
        try:
            group.time = await self._oracle.write_ts()
            group.began = time_ns() if tracing.is_on else 0
            await self._begin(group, self._assemble(group))
        except NOTHING_WRITTEN as error:
            self._again(group, error)
        except BaseException as error:
            group.fail(error)
            raise

    def _assemble(self, group: _Group) -> list[ShardWrite]:
        """Return what a group writes at its time, and note the tables that it is about.

        Raises Unwritable if the rows of a write do not fit together.
        """
        time = group.time
        try:
            tables: dict[GlobalId, list[pa.Table | FewUpdates]] = {}
            tuples: dict[GlobalId, list[TableRows]] = {}
            for write in group.writes:
                for id, parts in write.rows.items():
                    found = tables.setdefault(id, [])
                    for part in parts:
                        if isinstance(part, pa.Table):
                            found.append(at_time(part, time))
                        elif part.are_tuples:
                            tuples.setdefault(id, []).append(part)
                        else:
                            found.append(at_time(part.table, time))
                if write.at is not None:
                    for id, table in write.at(time).items():
                        tables.setdefault(id, []).append(table)
            for id, together in tuples.items():
                tables[id].append(updates_at(together, time))
            group.tables = tables.keys()
            writes = []
            for id, parts in tables.items():
                if id in self._tokens:
                    updates = parts[0] if len(parts) == 1 else joined(parts)
                    lower, token = self._shards.upper(id), self._tokens[id]
                    writes.append(ShardWrite(id, lower, time + 1, updates, token))
            return writes
        except (OutOfDisk, Conflict, InvalidCapability):
            raise
        except Exception as error:
            logger.exception("a write does not fit its table and is refused")
            raise Unwritable(f"the rows do not fit their table: {error}") from error

    async def _begin(self, group: _Group, writes: Sequence[ShardWrite]) -> None:
        """Hand a group to the log; raises Conflict if another process has written to a shard."""
        for write in writes:
            if write.lower >= write.upper:
                raise self._overtaken(write.id, write.lower)
        if not writes:
            self._end(group, None)
            return
        mismatch = await self._shards.begin_append(writes, partial(self._end, group))
        if mismatch is not None:
            raise self._overtaken(mismatch.id, mismatch.upper)
        self._in_flight = group
        self._is_asked = self._wake.is_set()
        self._wake.clear()

    def _end(self, group: _Group, error: BaseException | None) -> None:
        """Make a group visible that is durable, or note why it is not, and let the next one form.

        This is a callback of the log: the task wakes for the next group only.
        """
        if error is None:
            error = self._finish(group)
        if isinstance(error, NOTHING_WRITTEN):
            self._again(group, error)
        elif error is not None:
            self._trouble = error  # first: who made a write asks whether it may have happened
            group.fail(error)
            self._ask()
        self._in_flight = None
        if self._is_asked:
            self._is_asked = False
            self._wake.set()
        self._settled.set()  # last, so that waiters go on after the next group has formed

    def _finish(self, group: _Group) -> Exception | None:
        """Make a group visible that is durable and end its writes; return the error of a defect."""
        try:
            for write in group.writes:
                for id in write.retires:
                    self.remove(id)
            self._apply(group.time, group.tables, group.writes)
            self.groups += 1
            self.writes += len(group.writes)
            now = perf_counter()
            for write in group.writes:
                COMMITS.observe(now - write.asked_at)
            for write in group.writes:
                if write.applied is not None:
                    write.applied(group.time)
        except Exception as error:
            return error
        for write in group.writes:
            write.succeed(group.time)
        if group.refused:
            group.answer()
        if group.began:
            amounts = {"foreshore.writes": len(group.writes), "foreshore.tables": len(group.tables)}
            details = {"foreshore.timestamp": group.time, **amounts}
            tracing.record("group commit", group.began, details)
        return None

    def _overtaken(self, id: GlobalId, upper: Timestamp) -> Conflict:
        """Note that another holder of a write capability has written up to `upper`."""
        logger.warning("a shard is written by others as well", extra={"shard": id, "upper": upper})
        if id in self._changed:
            self._changed[id] = max(self._changed[id], upper)
        return ConcurrentUpdate()

    def _again(self, group: _Group, error: DatabaseError) -> None:
        """Queue the writes of a group that was not written again; fail one that was alone."""
        again = group.asked
        if len(group.writes) == 1:
            again = [write for write, _ in group.refused]
            group.writes[0].fail(error)
        group.refused = []
        self._pending = [*again, *self._pending]
        self._alone += len(again)
        if again:
            self._ask()

    async def _advance(self) -> None:
        self._apply(await self._oracle.write_ts(), (), ())

    def _apply(self, time: Timestamp, written: Iterable[GlobalId], group: Sequence[Write]) -> None:
        self._no_room = None
        for id in written:
            self._changed[id] = time
            self._written.add(id)
        self._guard.apply(time, group)
        self._shared.advance(time + 1)
        self._oracle.apply_write(time)
        if self._awaited:
            for done in self._due(time):
                done.set_result(None)

    def _tell_not_reached(self, error: DatabaseError) -> None:
        """Fail the waits for times that should be reached by now."""
        for done in self._due(self._oracle.next_ts()):
            done.set_exception(error)

    def _due(self, time: Timestamp) -> Iterator[asyncio.Future[None]]:
        """Remove the waits for `time` or earlier, and yield the futures that are not done."""
        while self._awaited and self._awaited[0].time <= time:
            done = heappop(self._awaited).done
            if not done.done():
                yield done

    def _stop(self, error: BaseException) -> None:
        self._failed = error
        if self._in_flight is not None:
            self._in_flight.fail(error)
        pending, self._pending = self._pending, []
        waiting, self._awaited = self._awaited, []
        for write in pending:
            write.fail(_stopped(error))
        for each in waiting:
            if not each.done.done():
                each.done.set_exception(_stopped(error))

    def check(self) -> None:
        """Assert that all shards are readable at the oracle's read time."""
        for id in self._tokens:
            assert self._shards.upper(id) > self._oracle.read_ts(), id
            assert self._changed[id] <= self._shards.upper(id), id


def joined(parts: Sequence[pa.Table | FewUpdates]) -> pa.Table | FewUpdates:
    """Return the updates of several `parts` as one."""
    return pa.concat_tables(
        [part.table if isinstance(part, FewUpdates) else part for part in parts]
    )


def _stopped(error: BaseException) -> DatabaseError:
    """Return the error of a write that may not have become durable."""
    if isinstance(error, DatabaseError):
        return error
    return DatabaseError(
        "the write may not have become durable: the log has stopped", sqlstate="58030"
    )
