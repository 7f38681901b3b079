"""The changes of a relation that a sink or source gets: in intervals of bounded size, in parts."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.adapter.introspection.failing_views import for_state
from foreshore.adapter.services.collections import Collections
from foreshore.errors import DataError
from foreshore.ids import GlobalId
from foreshore.storage.difference import difference
from foreshore.storage.listen import ListenEvent
from foreshore.update import Timestamp, at_time

ROWS_AT_ONCE = 65_536
BYTES_AT_ONCE = 8 << 20
MOST_ROWS = 500_000  # of an interval that has several times
MOST_BYTES = 128 << 20  # of these, as they are stored


async def check_errors(coordinator: Collections, relation: GlobalId, time: Timestamp) -> None:
    """Raise the error in a relation's data at a time, as states show it: with the view's name."""
    try:
        await coordinator.compute.maintained.check_errors([relation], time)
    except DataError as error:
        raise for_state(coordinator, error) from None


async def sound_through(
    coordinator: Collections, relation: GlobalId, through: Timestamp
) -> Timestamp:
    """Return a time through which a reader goes; raises the error in the relation's data.

    That is `through`, or the newest time if the data had an error at `through`: this would never
    pass. Wait until the relation is readable before.
    """
    try:
        await check_errors(coordinator, relation, through)
    except DataError:
        newest = min(coordinator.upper(relation) - 1, coordinator.oracle.read_ts())
        if newest <= through:
            raise
        await check_errors(coordinator, relation, newest)
        return newest
    return through


async def changed(
    coordinator: Collections,
    relation: GlobalId,
    frontier: Timestamp,
    idle: Callable[[Timestamp], None],
) -> Timestamp:
    """Wait for a change at `frontier` or later; return a known time to which an interval may go.

    That is the newest time, unless there are more changes than an interval should have. Meanwhile
    `idle` is called with the time before which there is no change.
    """
    storage = coordinator.storage
    while True:
        upper = storage.upper(relation)
        if upper > frontier:
            read, _ = coordinator.capabilities_of(relation)  # which moves on while this waits
            times = await storage.change_times(read, frontier - 1)
            if len(times):
                newest = storage.upper(relation) - 1
                most = _most(coordinator, relation)
                return await blocking.run(None, _end, times, most, newest)
            idle(upper)
        await _published(coordinator, relation, max(upper, frontier), idle)


def _end(times: pa.ChunkedArray, most: int, newest: Timestamp) -> Timestamp:
    """Return the last time through which there are at most `most` updates, or the first time."""
    if len(times) <= most:
        return newest
    found = times.to_numpy()
    first_beyond = np.partition(found, most)[most]
    before = found[found < first_beyond]
    return int(before.max() if len(before) else first_beyond)


async def _published(
    coordinator: Collections,
    relation: GlobalId,
    frontier: Timestamp,
    idle: Callable[[Timestamp], None],
) -> None:
    """Wait until there is a change at `frontier` or later, or the relation is dropped."""
    published = asyncio.Event()

    def deliver(event: ListenEvent) -> None:
        if event.updates is not None:
            published.set()
        elif not published.is_set():
            idle(event.upper)

    listen = coordinator.storage.listen(relation, frontier, deliver, published.set)
    try:
        await published.wait()
    finally:
        listen.cancel()


async def interval(
    coordinator: Collections, relation: GlobalId, frontier: Timestamp, through: Timestamp
) -> AsyncGenerator[pa.Table, None]:
    """Yield the updates with frontier <= time <= through, each row once for each time."""
    read, _ = coordinator.capabilities_of(relation)
    reading = coordinator.storage.changes_in_parts(read, frontier - 1, through)
    async with aclosing(reading) as parts:
        async for found in parts:
            for part in sliced(found):
                yield part


async def contents(
    coordinator: Collections, relation: GlobalId, time: Timestamp
) -> AsyncGenerator[pa.Table, None]:
    """Yield the contents at a time, as updates at that time."""
    read, _ = coordinator.capabilities_of(relation)
    with coordinator.storage.snapshot(read, time) as snapshot:
        async with aclosing(snapshot.parts()) as parts:
            async for found in parts:
                for part in sliced(found):
                    yield at_time(part, time)


async def changed_relation(
    coordinator: Collections,
    previous: GlobalId,
    before: Timestamp,
    relation: GlobalId,
    time: Timestamp,
) -> AsyncGenerator[pa.Table, None]:
    """Yield the difference between `previous` at `before` and `relation` at `time`, at `time`."""
    storage = coordinator.storage
    old, _ = coordinator.capabilities_of(previous)
    new, _ = coordinator.capabilities_of(relation)
    with storage.snapshot(old, before) as first, storage.snapshot(new, time) as then:
        async with aclosing(difference(first, then, time)) as parts:
            async for found in parts:
                for part in sliced(found):
                    yield part


async def last_changes(
    coordinator: Collections, relation: GlobalId, frontier: Timestamp, cut: Timestamp
) -> Timestamp | None:
    """Return a time before `cut` through which an interval of a former relation may go.

    Waits until these are known. None if it has no changes from `frontier` on before `cut`, or they
    cannot be read as its data has an error, or no replica computes them.
    """
    storage = coordinator.storage
    await coordinator.view_handoff.wait_until_written(relation, cut - 1)
    if storage.upper(relation) < cut:
        return None
    read, _ = coordinator.capabilities_of(relation)
    times = await storage.change_times(read, frontier - 1)
    times = times.filter(pc.less(times, cut))
    if not len(times):
        return None
    through = await blocking.run(None, _end, times, _most(coordinator, relation), cut - 1)
    try:
        await check_errors(coordinator, relation, through)
    except DataError:
        return None
    return through


def _most(coordinator: Collections, relation: GlobalId) -> int:
    """Return how many updates of a relation an interval should have at most."""
    storage = coordinator.storage
    per_row = storage.size_bytes(relation) / max(1, storage.count_updates(relation))
    return min(MOST_ROWS, int(MOST_BYTES / max(1.0, per_row)))


def sliced(table: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows of a table in parts of about BYTES_AT_ONCE, and ROWS_AT_ONCE at most."""
    per_row = table.nbytes / max(1, table.num_rows)
    rows = max(1, min(ROWS_AT_ONCE, int(BYTES_AT_ONCE / max(1.0, per_row))))
    for start in range(0, table.num_rows, rows):
        yield table.slice(start, rows)
