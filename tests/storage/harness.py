"""Helpers for storage tests: databases in a directory, small tables, abandoned databases."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

import pyarrow as pa

from foreshore.clock import Clock, SystemClock
from foreshore.errors import DatabaseError
from foreshore.few_updates import few_updates
from foreshore.ids import GlobalId
from foreshore.storage.blob import FileBlob
from foreshore.storage.consensus import SqliteConsensus
from foreshore.storage.controller import (
    Appended,
    ReadCapability,
    ShardWrite,
    StorageConfig,
    StorageController,
    UpperMismatch,
)
from foreshore.update import Timestamp, update_schema

ROWS = pa.schema([pa.field("k", pa.int64()), pa.field("v", pa.string())])
Row = tuple[int | None, str | None]
Update = tuple[Row, Timestamp, int]

U1, U2, U3 = GlobalId("u1"), GlobalId("u2"), GlobalId("u3")


def table(updates: Iterable[Update]) -> pa.Table:
    """Return updates to rows of `ROWS` as a table."""
    listed = list(updates)
    columns = [
        [row[0] for row, _, _ in listed],
        [row[1] for row, _, _ in listed],
        [time for _, time, _ in listed],
        [diff for _, _, diff in listed],
    ]
    schema = update_schema(ROWS)
    return pa.table(
        [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema
    )


def updates_of(tables: Iterable[pa.Table]) -> list[Update]:
    """Return the updates in tables."""
    return [
        ((k, v), time, diff)
        for one in tables
        for k, v, time, diff in zip(*(c.to_pylist() for c in one.columns), strict=True)
    ]


def appended(
    id: GlobalId, lower: Timestamp, upper: Timestamp, updates: Sequence[Update]
) -> ShardWrite:
    """Return a write; updates of U2 that have one time are tuples, as statements make them."""
    times = {time for _, time, _ in updates}
    if id != U2 or len(times) != 1:
        return ShardWrite(id, lower, upper, table(updates))
    rows, diffs = [row for row, _, _ in updates], [diff for _, _, diff in updates]
    few = few_updates(update_schema(ROWS), times.pop(), rows, diffs)  # None of too many
    return ShardWrite(id, lower, upper, few or table(updates))


def write(id: GlobalId, lower: Timestamp, upper: Timestamp, *updates: Update) -> ShardWrite:
    return appended(id, lower, upper, updates)


async def put(controller: StorageController, *writes: ShardWrite) -> None:
    """Append, asserting success; in turns as group commit does and as others do."""
    if writes and writes[0].lower % 2:
        assert await controller.append(writes) == Appended()
        return
    assert await append_at_once(controller, writes) == Appended()


async def append_at_once(
    controller: StorageController, writes: Sequence[ShardWrite]
) -> Appended | UpperMismatch:
    """Append as group commit does, and wait for the end."""
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def ended(error: DatabaseError | None) -> None:
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    mismatch = await controller.begin_append(writes, ended)
    if mismatch is not None:
        return mismatch
    await done
    return Appended()


async def open_at(
    directory: Path, *, clock: Clock | None = None, **config: object
) -> StorageController:
    """Open the database in `directory`."""
    return await StorageController.open_services(
        directory,
        FileBlob(directory / "blob"),
        SqliteConsensus(directory / "consensus.sqlite"),
        clock or SystemClock(),
        StorageConfig(**config),  # type: ignore[arg-type]
    )


async def abandon(controller: StorageController) -> None:
    """Leave the controller as SIGKILL would: write and close nothing."""
    tasks = [*controller._tasks, *filter(None, [controller._owning])]
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    controller._wal.shut()


async def reader(controller: StorageController, id: GlobalId) -> ReadCapability:
    """Return a capability on a shard created by an earlier environment."""
    return (await controller.acquire_capabilities([id]))[id][0]


def run(main: Callable[[], Awaitable[None]]) -> None:
    async def awaited() -> None:
        await main()

    asyncio.run(awaited())
