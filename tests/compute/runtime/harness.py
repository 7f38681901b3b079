"""An environment without SQL: storage, a controller with replicas, and writable tables."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from foreshore.clock import SystemClock
from foreshore.compute.controller.controller import ComputeController
from foreshore.compute.controller.peeks import PeekRequest
from foreshore.compute.protocol import DataflowDescription, Export, IndexExport
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import Aggregate, Column, Get, Literal, Reduce, Relation
from foreshore.ids import GlobalId
from foreshore.storage.controller import (
    Appended,
    ReadCapability,
    ShardWrite,
    StorageController,
    WriteCapability,
)
from foreshore.types import INT4, INT8, TEXT, ColumnType
from foreshore.update import DIFF_FIELD, TIME_FIELD

Row = tuple[Any, ...]
KV = (ColumnType(INT4), ColumnType(TEXT))
KV_SCHEMA = pa.schema([("k", pa.int32()), ("v", pa.string())])
COUNT_SCHEMA = pa.schema([("v", pa.string()), ("n", pa.int64())])


def id_(text: str) -> GlobalId:
    return GlobalId(text)


def table(*names: str) -> tuple[Get, ...]:
    return tuple(Get(id_(name), KV) for name in names)


def rows(*pairs: tuple[int, str]) -> pa.Table:
    """Return the rows of a table."""
    keys, values = zip(*pairs, strict=True)
    return pa.table([pa.array(keys, pa.int32()), pa.array(values)], schema=KV_SCHEMA)


def counts_of(relation: Relation) -> Relation:
    """Return select v, count(*) group by v, the last column."""
    last = len(columns_of(relation)) - 1
    key = Column(last, columns_of(relation)[last].type)
    return Reduce(relation, (key,), (Aggregate("count", (), INT8),))


def index_on(id: str, *columns: int, of: Relation) -> IndexExport:
    types = columns_of(of)
    return IndexExport(id_(id), tuple(Column(i, types[i].type) for i in columns))


class Environment:
    def __init__(self, storage: StorageController) -> None:
        self.storage = storage
        self.reads: dict[GlobalId, ReadCapability] = {}
        self.writes: dict[GlobalId, WriteCapability] = {}
        self.compute: ComputeController
        self.tables: list[GlobalId] = []
        self.time = 1

    async def create(self, *ids: str, schema: pa.Schema | None = None) -> None:
        """Create tables, or with a `schema` shards for materialized views."""
        for id in map(id_, ids):
            self.reads[id], self.writes[id] = await self.storage.create(id, schema or KV_SCHEMA)
            if schema is None:
                self.tables.append(id)

    async def acquire(self) -> None:
        """Acquire the shards of an earlier environment."""
        acquired = await self.storage.acquire_capabilities(self.storage.ids())
        self.reads = {id: read for id, (read, _) in acquired.items()}
        self.writes = {id: write for id, (_, write) in acquired.items()}

    async def write(self, changes: dict[str, Sequence[tuple[Row, int]]], step: int = 1) -> int:
        """Append the changes at the next time and return it; all tables are readable at it."""
        time = self.time
        self.time += step
        writes = []
        for id, rows in changes.items():
            schema = self.storage.schema(id_(id))
            columns = [
                pa.array([row[i] for row, _ in rows], field.type) for i, field in enumerate(schema)
            ]
            columns += [pa.array([time] * len(rows)), pa.array([diff for _, diff in rows])]
            updates = pa.Table.from_arrays(
                [pa.array(c, c.type) for c in columns],
                schema=pa.schema([*schema, TIME_FIELD, DIFF_FIELD]),
            )
            writes.append(ShardWrite(id_(id), self.storage.upper(id_(id)), self.time, updates))
        assert isinstance(await self.storage.append(writes), Appended)
        self.advance()
        return time

    def advance(self) -> None:
        self.storage.advance(self.tables, self.time)

    async def maintain(
        self, cluster: str, id: str, relation: Relation, *exports: Export, as_of: int
    ) -> None:
        from foreshore.expr.traversal import sources_of

        imports = tuple(sorted(sources_of(relation)))
        description = DataflowDescription(id_(id), relation, imports, exports, as_of)
        await self.compute.create_dataflow(cluster, description)

    async def index_rows(
        self, cluster: str, index: str, of: Relation, as_of: int, *keys: Any
    ) -> "Counter[Row]":
        literals = tuple((Literal(key, TEXT if isinstance(key, str) else INT4),) for key in keys)
        request = PeekRequest(
            as_of,
            Get(id_("u0"), columns_of(of)),
            index=id_(index),
            keys=literals or None,
        )
        return contents((await self.compute.peek(cluster, request)).whole())

    async def query(
        self, cluster: str, relation: Relation, as_of: int, **more: Any
    ) -> "Counter[Row]":
        from foreshore.expr.traversal import sources_of

        imports = tuple(
            sources_of(relation) - more.get("indexes", {}).keys() - more.get("tables", {}).keys()
        )
        request = PeekRequest(as_of, relation, imports=imports, **more)
        return contents((await self.compute.peek(cluster, request)).whole())

    async def shard_rows(self, id: str, as_of: int) -> "Counter[Row]":
        """Return the contents of a shard at a time, read without a replica."""
        await self.compute.wait_upper(id_(id), as_of)
        snapshot = self.storage.snapshot(self.reads[id_(id)], as_of)
        from foreshore.compute.inputs import arrived, describe

        message, tables = describe(snapshot)
        (found,) = arrived([message], iter(tables), self.storage.files)
        counts: Counter[Row] = Counter()
        for part in found.until(as_of):
            for *row, _, diff in zip(*(c.to_pylist() for c in part.columns), strict=True):
                counts[tuple(row)] += diff
        assert all(count >= 0 for count in counts.values()), counts
        return +counts


def contents(table: pa.Table) -> "Counter[Row]":
    return Counter(zip(*(c.to_pylist() for c in table.columns), strict=True))


@asynccontextmanager
async def environment(data: Path, **more: Any) -> AsyncIterator[Environment]:
    storage = await StorageController.open(
        data_dir=data, blob=None, consensus=None, clock=SystemClock()
    )
    env = Environment(storage)
    env.compute = ComputeController(
        storage, lambda id: (env.reads[id], env.writes[id]), options={"data_dir": str(data)}, **more
    )
    try:
        yield env
    finally:
        await env.compute.close()
        await storage.close()


def run(scenario: Callable[[], Awaitable[None]], seconds: float = 60) -> None:
    """Run a scenario on the server's kind of event loop, within a time limit."""
    import uvloop

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await scenario()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(bounded())
