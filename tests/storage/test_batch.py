"""Batches round-trip every type, and detect changed files."""

import math
import struct
from decimal import Decimal
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreshore.errors import DataCorrupted
from foreshore.storage.batch import (
    METADATA,
    BatchMetadata,
    column_names,
    read_batch,
    write_batch,
)
from foreshore.storage.blob import FileBlob
from foreshore.storage.consolidate import consolidate
from foreshore.storage.local_files import LocalFiles
from foreshore.storage.selection import ROW_GROUP_BYTES
from foreshore.storage.trace import Batch
from foreshore.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    NUMERIC,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    SqlType,
    array_of,
    arrow_type,
    numeric,
)
from foreshore.update import DIFF, update_schema

MOST, LEAST = 2**63 - 1, -(2**63)
VALUES: list[tuple[SqlType, list[object]]] = [
    (BOOL, [True, False]),
    (BYTEA, [b"", b"\x00\xff"]),
    (INT2, [-(2**15), 2**15 - 1]),
    (INT4, [-(2**31), 2**31 - 1]),
    (INT8, [LEAST, MOST]),
    (FLOAT4, [0.0, -0.0, math.inf, -math.inf, math.nan, 1.5]),
    (FLOAT8, [0.0, -0.0, math.inf, -math.inf, math.nan, 5e-324]),
    (numeric(38, 0), [Decimal("9" * 38), Decimal("-" + "9" * 38)]),
    (numeric(10, 2), [Decimal("1.50"), Decimal("-0.01")]),
    (NUMERIC, [Decimal(1).scaleb(-20), Decimal("123456789012345678")]),
    (TEXT, ["", "ß", "a\nb", "☃" * 50]),
    (DATE, [-(2**31), 2**31 - 1, 0]),
    (TIME_OF_DAY, [0, 86_399_999_999]),
    (TIMESTAMP, [LEAST, MOST, 0]),
    (TIMESTAMPTZ, [LEAST, MOST, 0]),
    (INTERVAL, [(1, -2, 3), (-(2**31), 2**31 - 1, MOST)]),
    (UUID, [bytes(16), bytes(range(16))]),
    (JSONB, ['{"a": 1}', "null"]),
    (array_of(INT4), [[], [1, None, 3]]),
    (array_of(FLOAT8), [[-0.0], [0.0], [math.nan, None]]),
    (array_of(TIMESTAMPTZ), [[LEAST, None], [MOST]]),
    (array_of(TEXT), [["", None], ["x"]]),
    (array_of(INTERVAL), [[(1, 2, 3), None]]),
    (array_of(NUMERIC), [[Decimal("1.5")]]),
]


def column(type: SqlType, values: list[object]) -> pa.Array:
    arrow = arrow_type(type)
    if type == INTERVAL:
        names = ("months", "days", "micros")
        values = [dict(zip(names, v, strict=True)) if isinstance(v, tuple) else v for v in values]
    if type == array_of(INTERVAL):
        names = ("months", "days", "micros")
        values = [
            [dict(zip(names, x, strict=True)) if x else x for x in v]  # type: ignore[attr-defined]
            if v
            else v
            for v in values
        ]
    if pa.types.is_temporal(arrow):
        return pa.array(values, pa.int32() if arrow.bit_width == 32 else pa.int64()).view(arrow)
    if type.element is not None and pa.types.is_temporal(arrow.value_type):
        return pa.array(values, pa.list_(pa.int64())).view(arrow)
    return pa.array(values, arrow)


def bits(array: pa.Array) -> list[object]:
    """Return values in a form in which different ones are unequal."""

    def plain(value: object) -> object:
        match value:
            case float():
                return struct.pack("<d", value)
            case list():
                return tuple(map(plain, value))
            case dict():
                return tuple(map(plain, value.values()))
        return value

    type = array.type
    if pa.types.is_temporal(type):
        array = array.view(pa.int32() if type.bit_width == 32 else pa.int64())
    if pa.types.is_list(type) and pa.types.is_temporal(type.value_type):
        array = array.view(pa.list_(pa.int64()))
    return [plain(value) for value in array.to_pylist()]


def opened(directory: Path) -> LocalFiles:
    return LocalFiles(FileBlob(directory / "blob"), directory / "cache")


def store(directory: Path, table: pa.Table, since: int = 0, upper: int = 10) -> Batch:
    schema = table.schema
    return write_batch(
        opened(directory),
        "u1/000001-000001.parquet",
        directory / "scratch.parquet",
        schema,
        BatchMetadata("u1", 0, upper, since),
        consolidate(table.to_batches(), schema, since, directory),
    )


def load(directory: Path, batch: Batch, schema: pa.Schema) -> pa.Table:
    return pa.Table.from_batches(read_batch(opened(directory), batch, schema), schema)


@pytest.mark.parametrize("type", [FLOAT8, array_of(FLOAT8)], ids=str)
def test_nans_cancel_regardless_of_bits_but_signed_zeros_do_not(
    tmp_path: Path, type: SqlType
) -> None:
    schema = update_schema(pa.schema([("v", arrow_type(type))]))
    nans = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    values = pa.array([5.0, nans[0], nans[1], 0.0, -0.0])
    if type != FLOAT8:
        values = pa.ListArray.from_arrays([0, 1, 2, 3, 4, 5], values)
    null = pa.nulls(1, arrow_type(type))
    array = pa.concat_arrays([values, null])
    diffs = pa.array([1, 1, -1, 1, -1, 1])
    table = pa.table([array, pa.array([3] * 6), diffs], schema=schema).slice(1)
    found = load(tmp_path, store(tmp_path, table), schema)
    rows = zip(map(repr, found["v"].to_pylist()), found[DIFF].to_pylist(), strict=True)
    plain = {(text.strip("[]"), diff) for text, diff in rows}
    assert plain == {("0.0", 1), ("-0.0", -1), ("None", 1)}


@pytest.mark.parametrize(("type", "values"), VALUES, ids=[str(type) for type, _ in VALUES])
def test_every_value_round_trips(tmp_path: Path, type: SqlType, values: list[object]) -> None:
    values = [*values, None]
    schema = update_schema(pa.schema([("v", arrow_type(type))]))
    array = column(type, values)
    ones, times = pa.array([1] * len(values)), pa.array([3] * len(values))
    table = pa.table([array, times, ones], schema=schema)
    batch = store(tmp_path, pa.concat_tables([table, table]))
    found = load(tmp_path, batch, schema)
    assert found.schema == schema
    assert sorted(map(repr, bits(found.column(0).combine_chunks()))) == sorted(
        map(repr, bits(array))
    )
    assert found.column(2).to_pylist() == [2] * len(values)
    # And any tool that reads Parquet finds as many.
    path = str(tmp_path / "blob" / batch.key)
    query = "SELECT count(*), count(v), sum(__diff) FROM read_parquet(?)"
    n = len(values)
    assert duckdb.connect().execute(query, [path]).fetchone() == (n, n - 1, 2 * n)


def test_columns_go_by_position_and_names_are_made_unique(tmp_path: Path) -> None:
    names = ["a", "A", "__time", "__diff", "a_1", "select", 'x"y', ""]
    schema = update_schema(pa.schema([(name, pa.int64()) for name in names]))
    assert column_names(schema) == [
        *("a", "A_1", "__time_1", "__diff_1", "a_1_1", "select", 'x"y', ""),
        *("__time", "__diff"),
    ]
    row = [pa.array([i]) for i in range(len(names))]
    table = pa.Table.from_arrays([*row, pa.array([5]), pa.array([7])], schema=schema)
    batch = store(tmp_path, table)
    found = load(tmp_path, batch, schema)
    assert [c.to_pylist() for c in found.columns] == [[i] for i in range(len(names))] + [[5], [7]]
    path = str(tmp_path / "blob" / batch.key)
    row_found = duckdb.connect().execute("SELECT * FROM read_parquet(?)", [path]).fetchone()
    assert row_found == (*range(len(names)), 5, 7)


def test_rows_without_columns_and_batches_without_rows(tmp_path: Path) -> None:
    schema = update_schema(pa.schema([]))
    table = pa.table([pa.array([1, 1, 2]), pa.array([1, 1, 1])], schema=schema)
    assert load(tmp_path, store(tmp_path, table), schema).to_pydict() == {
        "__time": [1, 2],
        "__diff": [2, 1],
    }
    batch = store(tmp_path, table.slice(0, 0))
    assert (batch.rows, batch.loose) == (0, 0)
    assert load(tmp_path, batch, schema).num_rows == 0


def test_consolidation_moves_times_to_since_and_cancels(tmp_path: Path) -> None:
    schema = update_schema(pa.schema([("v", pa.string())]))
    rows = [
        ("b", 1, 1),
        ("a", 2, 1),
        ("a", 3, -1),
        ("a", 6, 1),
        ("b", 4, 2),
        ("c", 7, 1),
        ("c", 7, -1),
    ]
    table = pa.table([pa.array(c) for c in zip(*rows, strict=True)], schema=schema)
    batch = store(tmp_path, table, since=5)
    found = load(tmp_path, batch, schema).to_pydict()
    assert list(zip(*found.values(), strict=True)) == [("a", 6, 1), ("b", 5, 3)]
    assert (batch.rows, batch.loose) == (2, 1)
    metadata = pq.read_metadata(tmp_path / "blob" / batch.key).metadata[METADATA]
    assert metadata == b'{"id":"u1","lower":0,"upper":10,"since":5,"version":1}'


@pytest.mark.parametrize("repeated", [False, True])
def test_pieces_stay_small_with_uneven_rows(tmp_path: Path, repeated: bool) -> None:
    schema = update_schema(pa.schema([("k", pa.int64()), ("v", pa.string())]))
    wide = 200_000
    texts = [("x" if repeated else str(i % 10)) * wide for i in range(400)]
    values = ["a"] * 5000 + texts + ["z"] * 100_000
    table = pa.table(
        [
            pa.array(range(len(values))),
            pa.array(values),
            pa.array([5] * len(values)),
            pa.array([1] * len(values)),
        ],
        schema=schema,
    )
    updates = table.to_batches()
    assert len(updates) == 1
    files = opened(tmp_path)
    batch = write_batch(
        files, "u1/1.parquet", tmp_path / "s", schema, BatchMetadata("u1", 0, 10, 0), updates
    )
    sizes = {}
    for size in (ROW_GROUP_BYTES, 1 << 20):
        pieces = list(read_batch(files, batch, schema, piece_bytes=size))
        assert pa.Table.from_batches(pieces) == table
        sizes[size] = [piece.nbytes for piece in pieces]
    assert max(map(max, sizes.values())) < 2 * ROW_GROUP_BYTES
    # More only of the groups where wide ones begin and end, and of one where it does not show.
    assert sum(piece > (2 << 20) for piece in sizes[1 << 20]) <= 3
    assert len(sizes[1 << 20]) < 200  # and narrow ones are not read in crumbs


def test_overflowing_diffs_fail(tmp_path: Path) -> None:
    schema = update_schema(pa.schema([("v", pa.int64())]))
    table = pa.table([pa.array([1, 1]), pa.array([1, 1]), pa.array([MOST, 1])], schema=schema)
    with pytest.raises(OverflowError):
        store(tmp_path, table)
    assert not (tmp_path / "scratch.parquet").exists()


def test_changed_file_is_refused(tmp_path: Path) -> None:
    schema = update_schema(pa.schema([("v", pa.string())]))
    n = 100
    table = pa.table(
        [pa.array([str(i) for i in range(n)]), pa.array([1] * n), pa.array([1] * n)], schema=schema
    )
    batch = store(tmp_path, table)
    path = tmp_path / "blob" / batch.key
    whole = path.read_bytes()
    for offset in range(0, len(whole), 7):
        damaged = bytearray(whole)
        damaged[offset] ^= 4
        path.write_bytes(damaged)
        with pytest.raises(DataCorrupted, match=batch.key):
            load(tmp_path, batch, schema)
    path.write_bytes(whole[:-1])
    with pytest.raises(DataCorrupted, match="bytes instead of"):
        load(tmp_path, batch, schema)
    path.unlink()
    with pytest.raises(DataCorrupted, match="missing"):
        load(tmp_path, batch, schema)
