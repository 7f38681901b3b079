"""Merging by ranges gives what merging at once gives, and files do not depend on who merged."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreshore.storage import batch as batches
from foreshore.storage.batch import BatchMetadata, file_schema, write_batch
from foreshore.storage.blob import FileBlob
from foreshore.storage.consolidate import consolidate, merge
from foreshore.storage.key_ranges import merge_range, ranges_of
from foreshore.storage.local_files import LocalFiles
from foreshore.types import FLOAT8, INT4, TEXT, array_of, arrow_type
from foreshore.update import update_schema
from tests.effort import examples

PLAIN = update_schema(
    pa.schema([("a", arrow_type(INT4)), ("b", arrow_type(TEXT)), ("c", arrow_type(FLOAT8))])
)
NESTED = update_schema(pa.schema([("a", arrow_type(INT4)), ("b", arrow_type(array_of(INT4)))]))


def updates(chance: random.Random, schema: pa.Schema, count: int) -> pa.Table:
    """Return updates, many of which have the same row."""
    most = chance.choice([3, 200])
    columns: dict[pa.DataType, Callable[[], object]] = {
        pa.int32(): lambda: chance.choice([None, *range(most)]),
        pa.string(): lambda: chance.choice([None, "", "x" * chance.randrange(40), "é"]),
        pa.float64(): lambda: chance.choice([None, 0.0, -0.0, 1.5, float("nan")]),
        pa.list_(pa.int32()): lambda: chance.choice([None, [], [1, None], [chance.randrange(9)]]),
    }
    arrays = [pa.array([columns[t]() for _ in range(count)], t) for t in schema.types[:-2]]
    times = pa.array([chance.randrange(10) for _ in range(count)], pa.int64())
    diffs = pa.array([chance.choice([1, 1, -1]) for _ in range(count)], pa.int64())
    return pa.Table.from_arrays([*arrays, times, diffs], schema=schema)


def in_pieces(table: pa.Table, chance: random.Random) -> Iterator[pa.RecordBatch]:
    """Yield a table in pieces, some of which share memory with others."""
    start = 0
    while start < table.num_rows:
        rows = chance.randrange(1, 60)
        piece = table.slice(start, rows)
        yield from (piece.combine_chunks() if chance.random() < 0.5 else piece).to_batches()
        start += rows


@pytest.mark.parametrize("schema", [PLAIN, NESTED], ids=["plain", "nested"])
@pytest.mark.parametrize("seed", range(examples(30)))
def test_ranges_merged_one_by_one_are_the_whole(
    schema: pa.Schema, seed: int, tmp_path: Path
) -> None:
    chance = random.Random(seed)
    runs, paths = [], []
    for number in range(chance.randint(1, 4)):
        some = updates(chance, schema, chance.choice([0, 1, 300]))
        run = pa.Table.from_batches(consolidate(some.to_batches(), schema, 0, tmp_path), schema)
        runs.append(run)
        paths.append(str(tmp_path / f"{number}.parquet"))
        pq.write_table(
            run.cast(file_schema(schema)), paths[-1], row_group_size=chance.choice([7, 50])
        )
    since = chance.choice([0, 5, 20])
    whole = merge([iter(run.to_batches()) for run in runs], schema, since, tmp_path)
    expected = pa.Table.from_batches(whole, schema)
    ranges = ranges_of(paths, schema, chance.choice([1, 3, 100]))
    parts = [batch for each in ranges for batch in merge_range(each, schema, since, tmp_path)]
    found = pa.Table.from_batches(parts, schema)
    assert str(found.to_pylist()) == str(expected.to_pylist())  # NaN equals itself so


@pytest.mark.parametrize("schema", [PLAIN, NESTED], ids=["plain", "nested"])
@pytest.mark.parametrize("seed", range(examples(20)))
def test_a_file_does_not_depend_on_the_pieces_it_is_made_of(
    schema: pa.Schema, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(batches, "BLOCK_ROWS", 16)
    monkeypatch.setattr(batches, "ROW_GROUP_ROWS", 100)
    monkeypatch.setattr(batches, "ROW_GROUP_BYTES", chance.choice([300, 8 << 20]))
    some = updates(chance, schema, 500)
    rows = pa.Table.from_batches(consolidate(some.to_batches(), schema, 0, tmp_path), schema)
    files = LocalFiles(FileBlob(tmp_path / "blob"), tmp_path / "cache")
    written = [
        write_batch(
            files, f"u1/{way}.parquet", tmp_path / "scratch", schema,
            BatchMetadata("u1", 0, 10, 0), in_pieces(rows, chance),
        )
        for way in range(3)
    ]  # fmt: skip
    assert len({(each.bytes, each.checksum, each.rows, each.loose) for each in written}) == 1
