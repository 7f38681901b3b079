"""Merging sorted runs equals sorting everything at once, in bounded memory."""

import asyncio
import random
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from foreshore.errors import DataCorrupted
from foreshore.storage import consolidate as consolidation
from foreshore.storage import spilled_runs
from foreshore.storage.consolidate import Databases, consolidate, least_multiplicity, merge
from foreshore.storage.controller import ShardWrite
from foreshore.types import SqlType, arrow_type
from foreshore.update import update_schema
from tests.bench import compaction
from tests.harness import file_sizes
from tests.storage.harness import ROWS, U1, Update, open_at, put, run, table, updates_of, write
from tests.storage.test_batch import VALUES, bits, column


def in_pieces(whole: pa.Table, rows: int) -> Iterator[pa.RecordBatch]:
    for start in range(0, whole.num_rows, rows):
        yield from whole.slice(start, rows).combine_chunks().to_batches()


def sorted_runs(
    schema: pa.Schema, tables: list[pa.Table], since: int, scratch: Path
) -> list[pa.Table]:
    return [
        pa.Table.from_batches(consolidate(t.to_batches(), schema, since, scratch), schema)
        for t in tables
    ]


def in_small_parts(
    updates: Iterable[pa.RecordBatch], schema: pa.Schema, since: int, scratch: Path
) -> Iterator[pa.RecordBatch]:
    """Yield what `consolidate` does, as if few bytes fitted in memory and few files were open."""
    directory = scratch / "spilled"
    directory.mkdir(exist_ok=True)
    pieces = in_pieces(pa.Table.from_batches(updates, schema), 5)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(consolidation, "IN_MEMORY", 100)
        patch.setattr(spilled_runs, "PIECE", 200)
        patch.setattr(spilled_runs, "MOST", 3)
        yield from consolidate(pieces, schema, since, directory)
    assert not [*directory.iterdir()]


def by_duckdb(
    updates: list[pa.RecordBatch], schema: pa.Schema, since: int, scratch: Path
) -> Iterator[pa.RecordBatch]:
    """Yield what `consolidate` does, in another way: by one query."""
    exact = consolidation.exact_schema(schema)
    whole = pa.Table.from_batches(
        [consolidation.exact_batch(each, exact, since) for each in updates], exact
    )
    with closing(duckdb.connect()) as connection:
        found = connection.from_arrow(whole).query("updates", consolidation._query(schema))
        for batch in found.to_arrow_table().to_batches():
            yield consolidation._original(batch, exact, schema)


def check(schema: pa.Schema, tables: list[pa.Table], since: int, rows: int, scratch: Path) -> None:
    """Compare all ways; the times of runs start before `since`."""
    runs = sorted_runs(schema, tables, 0, scratch)
    everything = [batch for t in tables for batch in t.to_batches()]
    expected = pa.Table.from_batches(by_duckdb(everything, schema, since, scratch), schema)
    for way in (
        consolidate(everything, schema, since, scratch),
        in_small_parts(everything, schema, since, scratch),
        merge([in_pieces(each, rows) for each in runs], schema, since, scratch),
    ):
        found = pa.Table.from_batches(way, schema)
        for name in range(len(schema)):
            assert bits(found.column(name).combine_chunks()) == bits(
                expected.column(name).combine_chunks()
            )


@pytest.mark.parametrize("type", [type for type, _ in VALUES], ids=str)
def test_values_of_every_type_are_merged_in_sort_order(type: SqlType, tmp_path: Path) -> None:
    given = next(values for each, values in VALUES if each == type)
    schema = update_schema(pa.schema([("a", arrow_type(type)), ("b", pa.int32())]))
    chance = random.Random(str(type))

    def some() -> pa.Table:
        rows = range(12)
        return pa.table(
            [
                column(type, [chance.choice([*given, None]) for _ in rows]),
                pa.array([chance.choice([1, 2, None]) for _ in rows], pa.int32()),
                pa.array([chance.randrange(6) for _ in rows]),
                pa.array([chance.choice([1, -1]) for _ in rows]),
            ],
            schema=schema,
        )

    check(schema, [some() for _ in range(3)], 3, 5, tmp_path)


@pytest.mark.parametrize("seed", range(8))
def test_merge_equals_consolidation(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)

    def updates() -> Iterator[Update]:
        for _ in range(chance.choice([0, 1, 30, 100])):
            row = (chance.choice([None, *range(8)]), chance.choice(["", "a", "b", "ß", None]))
            yield row, chance.randrange(10), chance.choice([1, -1])

    tables = [table(updates()) for _ in range(chance.randrange(1, 6))]
    since = chance.choice([0, 4, 9])
    check(update_schema(ROWS), tables, since, chance.choice([3, 7, 50]), tmp_path)


def test_updates_cancel_across_pieces(tmp_path: Path) -> None:
    schema = update_schema(ROWS)
    runs = [
        [((k, "x"), 0, 1) for k in range(10)],
        [((k, "x"), 1, -1) for k in range(10)],
        [((9, "x"), time, 1 if time % 2 else -1) for time in range(20)],
    ]
    for rows in (1, 3, 11):
        merged = merge([in_pieces(table(each), rows) for each in runs], schema, 20, tmp_path)
        assert list(merged) == []


def test_changing_row_is_held_once_during_merge(tmp_path: Path) -> None:
    """Each piece becomes the one row to which the next one adds."""
    pieces = 50

    def changes() -> Iterator[pa.RecordBatch]:
        for piece in range(pieces):
            yield from table([((1, "x"), piece, 1)] * 50).to_batches()

    (batch,) = merge([changes(), changes()], update_schema(ROWS), pieces, tmp_path)
    assert updates_of([pa.table(batch)]) == [((1, "x"), pieces, 2 * 50 * pieces)]


def test_unsorted_pieces_raise_data_corrupted(tmp_path: Path) -> None:
    pieces = [table([((k, "x"), 0, 1)]).to_batches()[0] for k in (1, 3, 2)]
    with pytest.raises(DataCorrupted, match="not sorted"):
        list(merge([iter(pieces)], update_schema(ROWS), 0, tmp_path))


@pytest.mark.full
def test_a_merge_needs_little_memory_however_much_is_merged(tmp_path: Path) -> None:
    """`python -m tests.bench.compaction` does the same with 2 GiB."""
    (tmp_path / "small").mkdir()
    (tmp_path / "large").mkdir()
    small = compaction.figures(8, tmp_path / "small")
    large = compaction.figures(120, tmp_path / "large")
    assert large.batches > 100
    # What the libraries take by themselves differs from one run to the next.
    assert large.peak - large.before < 250, (small, large)
    assert (large.peak - large.before) - (small.peak - small.before) < 120, (small, large)


def test_a_million_updates_to_one_row_leave_one(tmp_path: Path) -> None:
    appends, each = 20, 25_000  # of which each takes the row that was and gives another

    def changes(lower: int, upper: int) -> pa.Table:
        times = pa.array(range(lower, upper))
        parts = [
            [keys, pc.cast(pc.add(times, shift), pa.string()), times, pa.repeat(diff, each)]
            for keys in [pa.repeat(pa.scalar(1, pa.int64()), each)]
            for shift, diff in ((0, 1), (-1, -1))
        ]
        schema = update_schema(ROWS)
        return pa.concat_tables(pa.table(part, schema=schema) for part in parts)

    async def main() -> None:
        controller = await open_at(tmp_path, segment_bytes=1 << 20)
        read, _ = await controller.create(U1, ROWS)
        await put(controller, write(U1, 0, 1, ((1, "0"), 0, 1)))
        for lower in range(1, 1 + appends * each, each):
            upper = lower + each
            await put(controller, ShardWrite(U1, lower, upper, changes(lower, upper)))
        read = await controller.downgrade_capability(read, upper - 1)
        await put(controller, write(U1, upper, upper + 1))  # makes the since durable
        await controller.settle()
        (batch,) = controller._shards[U1].batches
        assert batch.rows == 1
        await asyncio.gather(*controller._compacter._deleting)
        assert sum(size for _, size in controller._compacter._blob.list("")) < 4_000
        assert sum(file_sizes(tmp_path / "log", "*.log").values()) < 4_000
        snapshot = controller.snapshot(read, upper - 1)
        rows = (await snapshot.rows()).to_pylist()
        assert rows == [{"k": 1, "v": str(upper - 1), "__diff": 1}]
        snapshot.release()
        await controller.close()

    run(main)


@pytest.mark.parametrize(("width", "rows"), [(30_000, 3_000), (5_000_000, 16), (90_000_000, 1)])
@pytest.mark.parametrize("kind", [pa.string(), pa.list_(pa.string())])
def test_rows_wider_than_the_memory_are_consolidated(
    tmp_path: Path, width: int, rows: int, kind: pa.DataType
) -> None:
    schema = update_schema(pa.schema([pa.field("k", pa.int64()), pa.field("v", kind)]))

    def pieces() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, 200):
            ks = list(range(first, min(first + 200, rows)))
            texts = [chr(97 + k % 26) * width for k in ks]
            values = texts if kind == pa.string() else [["", text, None] for text in texts]
            times, diffs = [k % 7 for k in ks], [1] * len(ks)
            columns = [pa.array(ks), pa.array(values, kind), pa.array(times), pa.array(diffs)]
            yield pa.record_batch(columns, schema=schema)

    def keys(found: Iterable[pa.RecordBatch]) -> list[int]:
        return [k for batch in found for k in batch.column(0).to_pylist()]

    assert keys(consolidate(pieces(), schema, 9, tmp_path)) == list(range(rows))
    assert keys(merge([pieces(), pieces()], schema, 9, tmp_path)) == list(range(rows))
    assert least_multiplicity(pieces(), schema, 0, tmp_path) == 0


def test_databases_are_opened_once_and_not_used_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[duckdb.DuckDBPyConnection] = []
    connect = consolidation._connect

    def noted(path: Path) -> duckdb.DuckDBPyConnection:
        opened.append(connect(path))
        return opened[-1]

    monkeypatch.setattr(consolidation, "_connect", noted)
    databases = Databases(tmp_path)
    schema = update_schema(pa.schema([("k", pa.int64()), ("v", pa.list_(pa.string()))]))
    rows = [[i % 40 for i in range(200)], [["b"]] * 200, [3] * 200, [1] * 200]
    pieces = pa.table(rows, schema=schema).to_batches()

    def of_all(pieces: Iterable[pa.RecordBatch]) -> list[pa.RecordBatch]:
        return list(consolidate(pieces, schema, 9, tmp_path, databases))

    wanted = of_all(pieces)
    assert sum(batch.num_rows for batch in wanted) == 40
    assert of_all(pieces) == wanted
    assert len(opened) == 1

    def failing() -> Iterator[pa.RecordBatch]:
        yield from pieces
        raise DataCorrupted("no more")

    with pytest.raises(DataCorrupted):
        of_all(failing())
    assert of_all(pieces) == wanted
    assert len(opened) == 2
    databases.close()
    with pytest.raises(duckdb.Error):
        opened[-1].execute("SELECT 1")


def test_the_least_multiplicity_is_that_at_some_time_of_some_row(tmp_path: Path) -> None:
    chance = random.Random(7)
    for pieces in (1, 3, 40):
        updates = [
            ((chance.randrange(30), None), chance.randrange(20), chance.choice([1, 1, -1]))
            for _ in range(120)
        ]
        counts = {
            (row, at): sum(diff for other, time, diff in updates if other == row and time <= at)
            for row, _, _ in updates
            for at in range(5, 20)
        }
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(consolidation, "IN_MEMORY", 4000 // pieces)
            patch.setattr(consolidation, "ROWS_AT_ONCE", 200 // pieces)
            found = least_multiplicity(
                in_pieces(table(updates), 10), update_schema(ROWS), 5, tmp_path
            )
        assert found == min(0, *counts.values())


@pytest.mark.slow
def test_a_gigabyte_of_rows_fits(tmp_path: Path) -> None:
    columns = [pa.field(f"c{i}", pa.int64()) for i in range(20)]
    schema = update_schema(pa.schema(columns))
    generator = np.random.default_rng(1)
    size, batches = 100_000, 60

    def updates() -> Iterator[pa.RecordBatch]:
        for _ in range(batches):
            arrays = [pa.array(generator.integers(0, 1 << 62, size)) for _ in columns]
            arrays += [pa.array(np.ones(size, np.int64))] * 2
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    found = consolidate(updates(), schema, 1, tmp_path)
    assert sum(batch.num_rows for batch in found) == size * batches


def test_what_is_computed_is_given_up_when_nobody_waits_for_it(tmp_path: Path) -> None:
    databases = Databases(tmp_path)
    begun = threading.Event()

    def work() -> None:
        with databases.lent() as (connection, _):
            begun.set()
            connection.sql("SELECT count(*) FROM range(10000000) a, range(10000000) b").fetchall()

    with ThreadPoolExecutor(1) as executor:
        working = executor.submit(work)
        begun.wait()
        while not working.done():  # an interruption before the query began is lost
            databases.interrupt()
            wait([working], timeout=0.1)
        with pytest.raises(duckdb.InterruptException):
            working.result()
    databases.close()
