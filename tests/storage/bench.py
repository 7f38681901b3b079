"""Storage benchmarks: `python -m tests.storage.bench [DIRECTORY]` prints figures.

Figures bounded by fsync are printed with the rate of fsync alone on the same file system.
"""

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

from foreshore.clock import SystemClock
from foreshore.ids import GlobalId
from foreshore.storage.controller import Appended, ShardWrite, StorageController
from foreshore.update import update_schema

ROWS = pa.schema([("k", pa.int64()), ("v", pa.string())])
WIDE = pa.schema(
    [(f"i{i}", pa.int32()) for i in range(11)]
    + [(f"s{i}", pa.string()) for i in range(5)]
    + [("f", pa.float64()), ("t", pa.timestamp("us", "UTC"))]
)


def fsyncs(directory: Path, count: int) -> float:
    """Return the number of synced appends of 500 bytes per second."""
    path = directory / "fsync"
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    start = time.perf_counter()
    for _ in range(count):
        os.write(descriptor, b"x" * 500)
        os.fdatasync(descriptor)
    elapsed = time.perf_counter() - start
    os.close(descriptor)
    path.unlink()
    return count / elapsed


def small(at: int) -> pa.Table:
    columns = [pa.array([at]), pa.array(["value"]), pa.array([at]), pa.array([1])]
    return pa.table(columns, schema=update_schema(ROWS))


def wide(rows: int, at: int) -> pa.Table:
    """Return rows as wide as those of a table of flights."""
    random = np.random.default_rng(at)
    words = np.array(["AA", "UA", "N12345", "JFK", "LGA", "EWR", "ORD"])
    columns = [pa.array(random.integers(0, 2000, rows).astype("int32")) for _ in range(11)]
    columns += [pa.array(words[random.integers(0, len(words), rows)]) for _ in range(5)]
    columns += [pa.array(random.random(rows)), pa.array(np.arange(rows), WIDE.field("t").type)]
    columns += [pa.array(np.full(rows, at)), pa.array(np.ones(rows, "int64"))]
    return pa.table(columns, schema=update_schema(WIDE))


async def appends(storage: StorageController, id: GlobalId, tables: list[pa.Table]) -> None:
    for at, table in enumerate(tables):
        assert await storage.append([ShardWrite(id, at, at + 1, table)]) == Appended()


async def opened(directory: Path) -> StorageController:
    return await StorageController.open(
        data_dir=directory, blob=None, consensus=None, clock=SystemClock()
    )


async def main(directory: Path) -> None:
    print(f"fsync alone                     {fsyncs(directory, 1000):9,.0f} /s")
    storage = await opened(directory)
    ids = [GlobalId(f"u{i}") for i in range(100)]
    for id in ids:
        await storage.create(id, ROWS)
    tables = [small(at) for at in range(3000)]

    start = time.perf_counter()
    await appends(storage, ids[0], tables)
    print(f"append, one caller              {3000 / (time.perf_counter() - start):9,.0f} /s")

    start = time.perf_counter()
    await asyncio.gather(*(appends(storage, id, tables[:500]) for id in ids[1:17]))
    print(f"append, 16 callers              {8000 / (time.perf_counter() - start):9,.0f} /s")

    start = time.perf_counter()
    for at in range(1000, 2000):
        storage.advance(ids[20:], at)
    elapsed = (time.perf_counter() - start) / 1000 * 1e6
    print(f"advance of 80 idle shards       {elapsed:9.1f} us")

    flights = GlobalId("u1000")
    read, _ = await storage.create(flights, WIDE)
    table = wide(300_000, 0)
    start = time.perf_counter()
    await storage.append([ShardWrite(flights, 0, 1, table)])
    elapsed = time.perf_counter() - start
    print(f"append, 300,000 wide rows       {elapsed:9.3f} s   ({table.nbytes / 1e6:.0f} MB)")

    start = time.perf_counter()
    await storage.close()
    again = await opened(directory)
    print(f"close and reopen, all in log    {time.perf_counter() - start:9.3f} s")

    start = time.perf_counter()
    await again.settle()
    print(f"compaction of all of it         {time.perf_counter() - start:9.3f} s")
    start = time.perf_counter()
    await again.close()
    again = await opened(directory)
    print(f"close and reopen, all in batches{time.perf_counter() - start:9.3f} s")

    read = (await again.acquire_capabilities([flights]))[flights][0]
    snapshot = again.snapshot(read, 0)
    start = time.perf_counter()
    rows = await snapshot.rows()
    print(f"consolidated snapshot of {rows.num_rows:,}{time.perf_counter() - start:9.3f} s")
    await again.close()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if sys.argv[1:] else None) as name:
        asyncio.run(main(Path(name)))
