"""The key indexes of all tables, built from snapshots and kept up to date by group commit.

A statement checks its rows with what its transaction has written before; group commit checks them
again with what comes before in the group. Sorting, hashing and looking up many rows happen on
threads, merging on one of them.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore import blocking
from foreshore.compute.arrange.run import Updates
from foreshore.compute.keys.group_keys import GroupKeys, Keyed, with_hashes
from foreshore.compute.keys.key_index import Duplicate, KeyIndex
from foreshore.compute.keys.key_sets import Keys
from foreshore.compute.keys.layout import MANY, KeyedRows, SecondaryName, changes_of
from foreshore.compute.keys.newest_rows import Reached
from foreshore.constraint import Unique, same
from foreshore.errors import CollectionCorrupted, DatabaseError, Fenced
from foreshore.ids import GlobalId
from foreshore.storage.corruption import Corruptions
from foreshore.storage.external.retries import waits
from foreshore.update import Timestamp

logger = logging.getLogger(__name__)


class KeyIndexes:
    """The key indexes of all tables; owned by the event loop.

    `floor` returns the least time at which a table may still be read. A table that is among the
    `corruptions` has none.
    """

    def __init__(self, floor: Callable[[GlobalId], Timestamp], corruptions: Corruptions) -> None:
        self._floor = floor
        self._corruptions = corruptions
        self._indexes: dict[GlobalId, dict[str, KeyIndex]] = {}
        self._reached = Reached()  # the upper of tables that are not written
        self._building: dict[GlobalId, asyncio.Future[None]] = {}
        self._wanted: dict[GlobalId, asyncio.Event] = {}  # set once a statement needs the keys
        self.executor = ThreadPoolExecutor(1, "keys")

    def of(self, table: GlobalId) -> Mapping[str, KeyIndex]:
        """Return the indexes of a table by their constraints' names."""
        return self._indexes.get(table, {})

    def named(self, table: GlobalId, constraint: Unique) -> KeyIndex | None:
        """Return the index of `constraint`; None if its name is unknown, or another's now."""
        index = self._indexes.get(table, {}).get(constraint.name)
        if index is None:
            return None
        own = index.layout.constraint
        return index if own is constraint or same(own, constraint) else None

    def replace(self, table: GlobalId, indexes: Mapping[str, KeyIndex]) -> None:
        """Let `indexes`, by their constraints' names, be those of a table from now on.

        They have all that has been committed.
        """
        for index in self.of(table).values():
            index.newest.follow(None)
        for index in indexes.values():
            index.newest.follow(self._reached)
        if indexes:
            self._indexes[table] = dict(indexes)
        else:
            self._indexes.pop(table, None)

    def drop(self, table: GlobalId) -> None:
        """Forget a table that was dropped, and do not build its indexes any more."""
        self.replace(table, {})
        self._end_building(table)

    def _end_building(self, table: GlobalId) -> None:
        """Let nobody wait for the indexes of a table any longer."""
        done = self._building.pop(table, None)
        if done is not None:
            self._wanted.pop(table).set()
            if not done.done():
                done.set_result(None)

    def build(
        self,
        indexes: Sequence[KeyIndex],
        rows: Callable[[], Awaitable[pa.Table]],
        read_ts: Callable[[], Timestamp],
        quiet: Callable[[], Coroutine[Any, Any, None]],
    ) -> Coroutine[None, None, None]:
        """Return what fills the new indexes of one table with all its `rows`.

        It begins when a statement needs the keys, or else when `quiet` returns, as a large table
        takes long. `rows` have `__diff`. From now on statements that need the keys wait (`ready`),
        so that nothing is written to the table meanwhile: the rows are those at the indexes' since.
        A build that fails is tried again.
        """
        table = indexes[0].table
        self._building[table] = asyncio.get_running_loop().create_future()
        self._wanted[table] = asyncio.Event()
        return self._build(indexes, rows, read_ts, quiet)

    async def _build(
        self,
        indexes: Sequence[KeyIndex],
        rows: Callable[[], Awaitable[pa.Table]],
        read_ts: Callable[[], Timestamp],
        quiet: Callable[[], Coroutine[Any, Any, None]],
    ) -> None:
        table, since = indexes[0].table, indexes[0].arrangement.since
        await _first(self._wanted[table].wait(), quiet())

        def prepared(found: pa.Table) -> list[Updates]:
            return [index.layout.updates(found) for index in indexes]

        pauses = waits()
        while table in self._building:  # else it was dropped
            try:
                filled = await blocking.run(self.executor, prepared, await rows())
                break
            except (CollectionCorrupted, Fenced) as error:
                self._building[table].set_exception(error)
                self._building[table].exception()  # it is raised where the keys are needed
                return
            except Exception as error:
                if table not in self._building:
                    return
                logger.exception("the keys of a table could not be read", extra={"table": table})
                self._fail(table, error)
            await _first(self._wanted[table].wait(), asyncio.sleep(next(pauses)))
        if table not in self._building:
            return
        for index, updates in zip(indexes, filled, strict=True):
            index.fill(updates, since)
            index.newest.advance(read_ts() + 1)
        self.replace(table, {index.constraint.name: index for index in indexes})
        self._end_building(table)

    def _fail(self, table: GlobalId, error: Exception) -> None:
        """Let statements that wait for the keys fail, and the next one wait for another try."""
        failed = self._building[table]
        failed.set_exception(DatabaseError(f"the keys of table {table} could not be read: {error}"))
        failed.exception()  # it is raised where the keys are needed
        self._building[table] = asyncio.get_running_loop().create_future()
        self._wanted[table].clear()

    def is_ready(self, table: GlobalId) -> bool:
        """Whether `ready` need not wait, nor raises."""
        return table not in self._building and not self._corruptions.messages

    async def ready(self, table: GlobalId) -> None:
        """Wait until the table's indexes are built; raises CollectionCorrupted if it is corrupt."""
        if self._corruptions.messages:
            self._corruptions.check(table)
        building = self._building.get(table)
        if building is not None:
            self._wanted[table].set()
            await asyncio.shield(building)

    # --- group commit

    def duplicate(
        self, keyed: Mapping[GlobalId, Sequence[Keyed]], checked: Timestamp, earlier: GroupKeys
    ) -> Duplicate | None:
        """Return a key that would be there twice after what `keyed` and `earlier` write.

        `keyed` by itself was checked against the rows at `checked`.
        """
        for table, parts in keyed.items():
            for name, index in self._indexes.get(table, {}).items():
                if index.newest.changed <= checked and not earlier.writes(index.layout):
                    continue
                found = _duplicate(index, [part[name] for part in parts], checked, earlier)
                if found is not None:
                    return found
        return None

    def changed(
        self,
        keys: Keys,
        time: Timestamp,
        earlier: GroupKeys | None = None,
    ) -> bool:
        """Whether one of `keys` has been changed after `time`, or is by `earlier`."""
        for (table, name), hashes in keys.items():
            if isinstance(name, SecondaryName):
                if self._changed_by(table, name, [*hashes], time, earlier):
                    return True
                continue
            index = self.of(table).get(name)
            if index is None:
                return True
            if index.newest.changed > time and index.latest([*hashes]) > time:
                return True
            is_written = earlier is not None and earlier.writes(index.layout)
            if is_written and earlier.has(table, name, [*hashes]):  # type: ignore[union-attr]
                return True
        return False

    def _changed_by(
        self,
        table: GlobalId,
        name: SecondaryName,
        hashes: Sequence[int],
        time: Timestamp,
        earlier: GroupKeys | None,
    ) -> bool:
        index = self.of(table).get(name.constraint)
        if index is None or index.changed_by(name.columns, np.array(hashes, np.uint64), time):
            return True
        return earlier is not None and earlier.has_by(index.layout, name.columns, hashes)

    def apply(self, time: Timestamp, keyed: Mapping[GlobalId, Sequence[Keyed]]) -> None:
        """Make the writes of a group at `time`; tables that it did not write advance."""
        for table, parts in keyed.items():
            indexes = self._indexes.get(table, {})
            named: Iterable[tuple[str, KeyIndex]] = indexes.items()
            if len(indexes) > 1:  # equal constraints may share an arrangement: a row goes in once
                named = {i.arrangement: (n, i) for n, i in named}.values()
            for name, index in named:
                index.insert([*map(itemgetter(name), parts)], time)
                if parts and index.newest.is_due:
                    index.settled().compact(min(self._floor(table), time))
                    index.maintain(self.executor)
        self._reached.upper = time + 1

    def check(self, read_ts: Timestamp) -> None:
        """Assert that all are readable at `read_ts` and in order."""
        for indexes in self._indexes.values():
            for index in indexes.values():
                assert index.readable(read_ts), (index.table, index.constraint, read_ts)

    def close(self) -> None:
        """End the thread."""
        self.executor.shutdown(wait=False, cancel_futures=True)


async def _first(*each: Coroutine[Any, Any, object]) -> None:
    """Return as soon as one of some coroutines has returned; the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in each]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()


def _duplicate(
    index: KeyIndex, parts: Sequence[KeyedRows], checked: Timestamp, earlier: GroupKeys
) -> Duplicate | None:
    changes = changes_of(parts)
    if changes is not None:
        before = earlier.changes(index.layout, [change.hash for change in changes])
        if before is not None:
            return index.duplicate_of_changes([*before, *changes])
    mine = [part.updates for part in parts]
    hashes = np.concatenate([part.key_hashes for part in mine])
    earlier_updates = earlier.updates(index.layout, hashes)
    if sum(map(len, mine)) > MANY:  # only keys that have changed since can be there twice
        changed = [index.settled().changed_since(checked)]
        changed += [part.key_hashes for part in earlier_updates]
        mine = with_hashes(mine, np.concatenate(changed))
    index.settled()
    return index.duplicate_of([*mine, *earlier_updates])
