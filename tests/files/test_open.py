"""Open shards: DuckDB, pandas and Spark read from the files what SELECT ... AS OF returns."""

from __future__ import annotations

import math
import random
import sys
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.session import start_spark
from foreshore.output_style import OutputStyle
from foreshore.storage.controller import ShardWrite
from foreshore.text_columns import text_column
from foreshore.types import arrow_type
from foreshore.update import update_schema
from tests.files.writing import TYPES, busy, create, written
from tests.harness import ROOT, Server, file_sizes, java, serving, until
from tests.storage.harness import U1, open_at, put, run

OPEN = ROOT / "docs" / "open"
sys.path.append(str(OPEN))
import foreshore_files  # noqa: E402
import read_duckdb  # noqa: E402
import read_pandas  # noqa: E402
import read_spark  # noqa: E402

Rows = Counter[tuple[str | None, ...]]
Read = Callable[[list[str], int], pa.Table]
LAG_HISTORY = "mz_internal.mz_wallclock_global_lag_history"
VIEW_ERRORS = "mz_internal.mz_materialized_view_errors"
NAMES = {name: (name, f"public.{name}", f"foreshore.public.{name}") for name in TYPES}


def rows_of(table: pa.Table, name: str) -> Rows:
    """Return the rows that a script has read, in the text format of the wire."""
    columns = [
        text_column(column.combine_chunks().cast(arrow_type(type)), type, OutputStyle()).to_pylist()
        for column, type in zip(table.columns, TYPES[name], strict=False)
    ]
    diffs = table.column("__diff").to_pylist()
    assert table.num_columns == len(columns) + 1
    assert min(diffs, default=1) > 0
    rows: Rows = Counter()
    for row, diff in zip(zip(*columns, strict=True), diffs, strict=True):
        assert row not in rows, f"{row} twice"
        rows[row] = diff
    return rows


def id_of(shards: dict[str, Any], name: str) -> Any:
    return foreshore_files.resolve(shards, foreshore_files.objects(shards["s1"]), name)


def text(cell: bytes | None) -> str | None:
    return None if cell is None else cell.decode()


def answer(connection: psycopg.Connection[Any], name: str, as_of: int) -> Rows:
    """Return the rows that the server sends."""
    result = connection.execute(f"SELECT * FROM {name} AS OF {as_of}".encode()).pgresult
    assert result is not None
    return Counter(
        tuple(text(result.get_value(row, column)) for column in range(result.nfields))
        for row in range(result.ntuples)
    )


def compare(server: Server, readers: dict[str, Read], pairs: int, spark_every: int) -> Counter[str]:
    """Compare random collections at random times; return how often each was.

    Spark reads one in `spark_every`: a job of it takes longer than all else together.
    """
    chosen = random.Random(5)
    compared: Counter[str] = Counter()
    with server.connect() as connection:
        connection.execute("SET idle_in_transaction_session_timeout = 0")  # Spark takes its time
        while compared.total() < pairs:
            name = chosen.choice(list(TYPES))
            try:
                states = foreshore_files.states(server.data_dir)
                shards = foreshore_files.log(server.data_dir, states)
            except FileNotFoundError:
                continue  # compaction has taken a segment; what follows reads by a lease
            shard = shards[id_of(shards, name)]
            if shard.upper <= shard.since:
                continue  # nothing of the view is in the log yet
            as_of = chosen.randrange(max(shard.since, shard.upper - 3_000), shard.upper)
            connection.execute("BEGIN READ ONLY")  # holds the time for as long as it is looked at
            try:
                expected = answer(connection, name, as_of)
            except psycopg.errors.InvalidParameterValue:
                connection.execute("ROLLBACK")
                continue  # it was just forgotten
            for engine, read in readers.items():
                if engine == "spark" and compared.total() % spark_every:
                    continue
                found = foreshore_files.reading(
                    server.data_dir, chosen.choice(NAMES[name]), as_of, read
                )
                rows = rows_of(found, name)
                amiss = [*(rows - expected).items()][:2], [*(expected - rows).items()][:2]
                assert rows == expected, f"{engine} reads {name} as of {as_of}: {amiss}"
            connection.execute("COMMIT")
            compared[name] += 1
    return compared


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Read:
    java()
    session = start_spark(
        SparkOptions(
            tmp_path_factory.mktemp("spark") / "scratch",
            configuration={"spark.sql.shuffle.partitions": "2"},
        )
    )
    return partial(read_spark.contents, session)


def check(data_dir: Path, spark: Read, pairs: int, *, spark_every: int) -> None:
    readers = {"duckdb": read_duckdb.contents, "pandas": read_pandas.table, "spark": spark}
    with busy(data_dir) as server:
        with server.connect() as connection:
            create(connection)
        time.sleep(3)
        with written(server):
            compared = compare(server, readers, pairs, spark_every)
        assert len(compared) == len(TYPES)
        with server.connect() as connection:  # what the log says of each when it is closed
            last = {name: connection.execute(f"SELECT * FROM {name}".encode()) for name in TYPES}
            expected = {name: cursor.rowcount for name, cursor in last.items()}
        files = file_sizes(data_dir / "blob", "**/*.parquet")
        assert any(file.name > "000001-000020" for file in files), "nothing was merged"
    for name in TYPES:  # the server is stopped
        for read in readers.values():
            table = foreshore_files.reading(data_dir, name, None, read)
            assert sum(table.column("__diff").to_pylist()) == expected[name]
    for read in readers.values():  # of the system's
        table = foreshore_files.reading(data_dir, LAG_HISTORY, None, read)
        assert table.column_names[:-1] == ["object_id", "lag", "occurred_at"]
        table = foreshore_files.reading(data_dir, VIEW_ERRORS, None, read)
        assert table.column_names[:-1] == ["object_id", "sqlstate", "error", "at"]


@pytest.mark.parametrize("settled", [False, True])
def test_positive_and_negative_zero_are_two_rows(
    tmp_path: Path, spark: Read, settled: bool
) -> None:
    schema = pa.schema([("d", pa.float64()), ("f", pa.float32()), ("l", pa.list_(pa.float64()))])
    zeros = {"d": [-0.0, 0.0], "f": [0.0, -0.0], "l": [[0.0, math.nan], [-0.0, math.nan]]}

    def rows(table: pa.Table) -> list[str]:
        return sorted(repr([row["d"], row["f"], row["l"]]) for row in table.to_pylist())

    async def fill() -> None:
        controller = await open_at(tmp_path / "data")
        await controller.create(U1, schema)
        come = pa.table({**zeros, "__time": [0, 0], "__diff": [1, 1]}, update_schema(schema))
        gone = pa.table({**zeros, "__time": [1, 1], "__diff": [-1, -1]}, update_schema(schema))
        await put(controller, ShardWrite(U1, 0, 1, come), ShardWrite(U1, 1, 2, gone.slice(0, 1)))
        if settled:
            await controller.settle()
        await controller.close()

    run(fill)
    both = pa.table(zeros, schema)
    for read in (read_duckdb.contents, read_pandas.table, spark):
        assert rows(foreshore_files.reading(tmp_path / "data", "u1", 0, read)) == rows(both)
        assert rows(foreshore_files.reading(tmp_path / "data", "u1", 1, read)) == rows(
            both.slice(1)
        )
        with pytest.raises(foreshore_files.Unreadable, match="readable from 0 and before 2"):
            foreshore_files.reading(tmp_path / "data", "u1", 2, read)


def test_nans_with_different_bits_are_one_value(tmp_path: Path, spark: Read) -> None:
    doubles = np.array([0x7FF8000000000000, 0xFFF8000000000001], np.uint64).view(np.float64)
    floats = np.array([0x7FC00000, 0xFFC00001], np.uint32).view(np.float32)
    lists = pa.ListArray.from_arrays([0, 1, 2], pa.array(doubles))
    columns = {"d": pa.array(doubles), "f": pa.array(floats), "l": lists}
    schema = pa.schema([(name, column.type) for name, column in columns.items()])
    updates = pa.table({**columns, "__time": [0, 1], "__diff": [1, -1]}, update_schema(schema))
    file = str(tmp_path / "both.parquet")
    pq.write_table(updates, file)
    for read in (read_duckdb.contents, read_pandas.table, spark):
        assert repr(read([file], 0).to_pylist()) == repr(
            [{"d": math.nan, "f": math.nan, "l": [math.nan], "__diff": 1}]
        )
        assert read([file], 1).to_pylist() == []

    async def append() -> None:
        controller = await open_at(tmp_path / "data")
        await controller.create(U1, schema)
        await put(controller, ShardWrite(U1, 0, 2, updates))
        await controller.close()

    def check(files: list[str], as_of: int) -> pa.Table:
        """Assert that the log has the same bits as the batches."""
        written = pq.read_table(files)
        assert set(written["d"].to_numpy().view(np.uint64)) == {0x7FF8000000000000}
        assert set(written["f"].to_numpy().view(np.uint32)) == {0x7FC00000}
        nested = written["l"].combine_chunks().flatten()
        assert set(nested.to_numpy().view(np.uint64)) == {0x7FF8000000000000}
        return written

    run(append)
    foreshore_files.reading(tmp_path / "data", "u1", None, check)


def test_path_with_pattern_characters_names_one_file(tmp_path: Path, spark: Read) -> None:
    schema = pa.schema([("k", pa.int32())])

    async def fill(data_dir: Path, value: int) -> None:
        controller = await open_at(data_dir)
        await controller.create(U1, schema)
        row = pa.table({"k": [value], "__time": [0], "__diff": [1]}, update_schema(schema))
        await put(controller, ShardWrite(U1, 0, 1, row))
        await controller.settle()
        await controller.close()

    names = ("x[1]{2}*?", "x1{2}ab", "x12a")  # the first is a pattern for one of the others
    for value, name in enumerate(names):
        run(partial(fill, tmp_path / "k=7" / name, value))
    for read in (read_duckdb.contents, read_pandas.table, spark):
        for value, name in enumerate(names):
            found = foreshore_files.reading(tmp_path / "k=7" / name, "u1", None, read)
            assert found.to_pylist() == [{"k": value, "__diff": 1}]


def test_open_reader_refuses_view_in_error(data_dir: Path, spark: Read) -> None:
    with serving(data_dir) as server, server.connect() as connection:
        connection.execute("CREATE TABLE t (x int)")
        connection.execute("CREATE MATERIALIZED VIEW v AS SELECT 1 / x AS q FROM t")
        connection.execute("INSERT INTO t VALUES (2)")
        times = [now(connection, data_dir)]
        connection.execute("INSERT INTO t VALUES (0)")
        with pytest.raises(psycopg.errors.DivisionByZero):
            connection.execute("TABLE v")
        times.append(now(connection, data_dir))
        connection.execute("DELETE FROM t WHERE x = 0")
        assert connection.execute("TABLE v").fetchall() == [(0,)]
        times.append(now(connection, data_dir))
        before, during, after = times
        for read in (read_duckdb.contents, read_pandas.table, spark):
            for at in (before, after):
                found = foreshore_files.reading(data_dir, "v", at, read)
                assert found.to_pylist() == [{"q": 0, "__diff": 1}]
            with pytest.raises(foreshore_files.Unreadable, match="22012 division by zero"):
                foreshore_files.reading(data_dir, "v", during, read)
            assert foreshore_files.reading(data_dir, "t", during, read).num_rows == 2


def now(connection: psycopg.Connection[Any], data_dir: Path) -> int:
    """Return the present time, once the files have the view `v` as of it."""
    row = connection.execute("SELECT mz_now() FROM t LIMIT 1").fetchone()
    assert row is not None
    time, shards = int(row[0]), {}

    def is_known() -> bool:
        nonlocal shards
        shards = foreshore_files.log(data_dir, foreshore_files.states(data_dir))
        return bool(shards[id_of(shards, "v")].upper > time)

    until(is_known, "the view is in the log")
    return time


@pytest.mark.timeout(600)
def test_open_readers_agree_with_server(data_dir: Path, spark: Read) -> None:
    check(data_dir, spark, 20, spark_every=10)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_open_readers_agree_with_server_500_times(data_dir: Path, spark: Read) -> None:
    check(data_dir, spark, 500, spark_every=1)
