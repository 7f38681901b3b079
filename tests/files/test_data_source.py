"""The PySpark data source reads what SELECT ... AS OF returns, while a server writes and compacts."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import time as clock
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psycopg
import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.session import start_spark
from foreshore.errors import UndefinedFile
from foreshore.output_style import OutputStyle
from foreshore.spark import parts, register
from foreshore.spark.opened import Place, open_collection
from foreshore.spark.options import parse
from foreshore.spark.source import ForeshoreDataSource, columns_of
from foreshore.text_columns import text_column
from foreshore.types import SqlType, arrow_type
from tests.files.test_open import Rows, answer
from tests.files.writing import ACCOUNTS, TYPES, busy, create, written
from tests.harness import Server, java, object_store, postgres, until

# Option `where`, and for which i4 and te it is true.
WHERES: dict[str, Callable[[Any, Any], bool]] = {
    "i4 = -7": lambda i, t: i == -7,
    "i4 = 99": lambda i, t: False,
    "i4 IS NULL": lambda i, t: i is None,
    "i4 IS NOT NULL AND te IS NULL": lambda i, t: i is not None and t is None,
    "te = 'NULL'": lambda i, t: t == "NULL",
    "te IN ('', 'nan') AND (i4 > -8 AND i4 < 0)": lambda i, t: t in ("", "nan") and i == -7,
    "0 <= i4": lambda i, t: i is not None and i >= 0,
    "i4 BETWEEN -7 AND 0": lambda i, t: i is not None and -7 <= i <= 0,
}

Read = Callable[[dict[str, str]], pa.Table]


def by_reader(options: dict[str, str]) -> pa.Table:
    """Read what Spark's tasks would, in this process."""
    source = ForeshoreDataSource(options)
    schema = source.schema()
    reader = source.reader(schema)
    batches = [batch for part in reader.partitions() for batch in reader.read(part)]
    expected = to_arrow_schema(schema, timezone="UTC")  # Spark refuses others
    assert all(batch.schema.equals(expected) for batch in batches)
    return pa.Table.from_batches(batches) if batches else None


def rows_of(table: pa.Table | None, name: str) -> Rows:
    """Return the rows in the text format of the wire."""
    if table is None:
        return Counter()
    columns = [
        text_column(as_stored(column.combine_chunks(), type), type, OutputStyle()).to_pylist()
        for column, type in zip(table.columns, TYPES[name], strict=True)
    ]
    return Counter(zip(*columns, strict=True))


def as_stored(column: pa.Array, type: SqlType) -> pa.Array:
    """Return a column as the database keeps it."""
    if type.name != "time":
        return column.cast(arrow_type(type))
    times = [None if text is None else clock.fromisoformat(text) for text in column.to_pylist()]
    return pa.array(times, arrow_type(type))


def compare(
    server: Server, read: Read, pairs: int, elsewhere: Mapping[str, str] = MappingProxyType({})
) -> Counter[str]:
    """Compare random collections at random times; return how often each was.

    `elsewhere` are the options that say where what is not in the data directory is.
    """
    chosen = random.Random(7)
    compared: Counter[str] = Counter()
    with server.connect() as connection:
        connection.execute("SET idle_in_transaction_session_timeout = 0")  # Spark takes its time
        while compared.total() < pairs:
            name = chosen.choice(list(TYPES))
            options = {"path": str(server.data_dir), "collection": name, "partitions": "5"}
            options.update(elsewhere)
            found, lease = open_collection(parse(options).place, name, 60_000)
            assert lease is not None
            lease.end()
            if found.upper <= found.since:
                continue  # nothing of the view is in the log yet
            as_of = chosen.randrange(max(found.since, found.upper - 3_000), found.upper)
            connection.execute("BEGIN READ ONLY")  # holds the time for as long as it is looked at
            try:
                expected = answer(connection, name, as_of)
            except psycopg.errors.InvalidParameterValue:
                connection.execute("ROLLBACK")
                continue  # it was just forgotten
            rows = rows_of(read({**options, "asOf": str(as_of)}), name)
            amiss = [*(rows - expected).items()][:2], [*(expected - rows).items()][:2]
            assert rows == expected, f"{name} as of {as_of}: {amiss}"
            connection.execute("COMMIT")
            compared[name] += 1
    return compared


def test_parts_hold_the_rows_of_any_time_while_a_server_compacts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "ROWS_OF_A_PART", 3)
    with busy(tmp_path) as server:
        with server.connect() as connection:
            create(connection)
        time.sleep(1)
        with written(server):
            assert len(compare(server, by_reader, 40)) == len(TYPES)
        with server.connect() as connection:
            changes_add_up(server, connection)
            conditions_leave_rows_out(server)
            batches_of_a_stream_add_up(server, connection)
            a_batch_is_read_late(server, connection)


@pytest.mark.full
def test_a_database_of_other_services_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches are in a bucket, metadata in PostgreSQL."""
    monkeypatch.setattr(parts, "ROWS_OF_A_PART", 3)
    with object_store() as store, postgres() as consensus:
        elsewhere = {"blob": store.url("batches"), "consensus": consensus}
        arguments = [f"--{name}={url}" for name, url in elsewhere.items()]
        elsewhere["cache"] = str(tmp_path / "cache")
        with busy(tmp_path / "data", *arguments) as server:
            with server.connect() as connection:
                create(connection)
            time.sleep(1)
            with written(server):
                compare(server, by_reader, 6, elsewhere)
            place = parse({"path": str(server.data_dir), "collection": "every", **elsewhere}).place
            found, _ = open_collection(place, "every", 60_000)
            assert found.batches, "the reader has read batches of the bucket"
            assert found.place.consensus is None  # a password goes to no task
            wrong = replace(place, consensus=f"{consensus}?schema=other")
            with pytest.raises(UndefinedFile):
                open_collection(wrong, "every", 60_000)


def conditions_leave_rows_out(server: Server) -> None:
    """Compare rows read under conditions with those of all that fulfil them."""
    options = {"path": str(server.data_dir), "collection": "every", "columns": "i4,te"}
    options["asOf"] = str(open_collection(Place(options["path"]), "every", 60_000)[0].latest)
    pairs = Counter(zip(*(c.to_pylist() for c in by_reader(options).columns), strict=True))
    for where, holds in WHERES.items():
        table = by_reader({**options, "where": where})
        columns = [c.to_pylist() for c in table.columns] if table is not None else [[], []]
        expected = Counter({row: n for row, n in pairs.items() if holds(*row)})
        assert Counter(zip(*columns, strict=True)) == expected, where


def changes_add_up(server: Server, connection: psycopg.Connection[Any]) -> None:
    """Compare the rows of a time, and the changes since, with the rows of a later time."""
    options = {"path": str(server.data_dir), "collection": "every", "columns": "k,te,i4"}
    found, _ = open_collection(Place(options["path"]), "every", 60_000)
    start = found.since
    before = ForeshoreDataSource({**options, "asOf": str(start)})
    reader = before.reader(before.schema())
    rows: Counter[Any] = Counter()
    for part in reader.partitions():
        for batch in reader.read(part):
            rows.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    changes = by_reader({**options, "changes": "true", "from": str(start), "to": str(found.latest)})
    for *row, at, diff in zip(*(c.to_pylist() for c in changes.columns), strict=True):
        assert start < at <= found.latest
        rows[tuple(row)] += diff
    after = by_reader({**options, "asOf": str(found.latest)})
    expected = Counter(zip(*(c.to_pylist() for c in after.columns), strict=True))
    assert {row: n for row, n in rows.items() if n} == expected
    assert columns_of(found, ForeshoreDataSource(options).parsed)


def batches_of_a_stream_add_up(server: Server, connection: psycopg.Connection[Any]) -> None:
    """Read micro-batches as Spark's driver would, one of them twice, and one after a restart."""
    options = {"path": str(server.data_dir), "collection": "account", "changes": "true"}
    sums: Counter[Any] = Counter()
    reader = ForeshoreDataSource(options).streamReader(None)
    start = reader.initialOffset()
    assert start == {"frontier": 0}
    for round in range(4):
        connection.execute("UPDATE account SET balance = balance + 1 WHERE id < 3")
        connection.execute("INSERT INTO account VALUES (9, 9)")  # its record has the uppers before
        end = reader.latestOffset(start, None)
        assert reader.partitions(end, end) == []
        if round == 2:
            reader.stop()
            reader = ForeshoreDataSource(options).streamReader(None)
        again: list[Counter[Any]] = []
        for _ in range(1 + (round % 2)):
            rows: Counter[Any] = Counter()
            for part in reader.partitions(start, end):
                for batch in reader.read(part):
                    for *row, at, diff in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                        assert start["frontier"] <= at < end["frontier"]
                        rows[tuple(row)] += diff
            again.append(rows)
        assert again[0] == again[-1]
        reader.commit(end)
        for row, diff in again[0].items():
            sums[row] += diff
        expected = answer(connection, "account", end["frontier"] - 1)
        found = {tuple(map(str, row)): diff for row, diff in sums.items() if diff}
        assert found == expected
        start = end
    reader.stop()


def a_batch_is_read_late(server: Server, connection: psycopg.Connection[Any]) -> None:
    """Read the first batch when the server has forgotten its time, as a slow driver would."""
    options = {"path": str(server.data_dir), "collection": "account", "changes": "true"}
    held = set(server.data_dir.glob("leases/*.json"))
    reader = ForeshoreDataSource(options).streamReader(None)
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    expected = answer(connection, "account", end["frontier"] - 1)

    def forgotten() -> bool:
        connection.execute("UPDATE account SET balance = balance + 1 WHERE id < 3")
        found, lease = open_collection(Place(options["path"]), "account", 60_000)
        assert lease is not None
        lease.end()
        return bool(found.since >= end["frontier"])

    until(forgotten, "the end of the batch is history", 60)
    rows: Counter[Any] = Counter()
    for part in reader.partitions(start, end):
        for batch in reader.read(part):
            for *row, _, diff in zip(*(c.to_pylist() for c in batch.columns), strict=True):
                rows[tuple(map(str, row))] += diff
    assert {row: diff for row, diff in rows.items() if diff} == expected
    reader.stop()
    assert set(server.data_dir.glob("leases/*.json")) <= held


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    java()
    session = start_spark(
        SparkOptions(
            tmp_path_factory.mktemp("spark") / "scratch",
            memory_mb=1024,
            configuration={"spark.sql.shuffle.partitions": "2"},
        )
    )
    register(session)
    return session


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with busy(tmp_path_factory.mktemp("filled")) as server:
        with server.connect() as connection:
            create(connection)
            # A stream that goes on from its checkpoint needs what came while it stood still.
            connection.execute("ALTER TABLE account SET (RETAIN HISTORY FOR '1 hour')")
        time.sleep(1)
        yield server


@pytest.mark.slow  # 60 s of CPU, for what another test shows without a JVM
def test_spark_reads_the_rows_of_any_time(spark: Any, filled: Server) -> None:
    def read(options: dict[str, str]) -> pa.Table:
        return spark.read.format("foreshore").options(**options).load().toArrow()

    with written(filled):
        compare(filled, read, 2)


# Plans over one load(), as functions of its DataFrame, with what they say of accounts 0 to 5.
PLANS: dict[str, Callable[[Any], Any]] = {
    "count": lambda d: d.count(),
    "filter": lambda d: d.filter("id = 2").count(),
    "filter that nothing fulfils": lambda d: d.filter("id = 99").count(),
    "null": lambda d: d.filter("id IS NULL").count(),
    "range and list": lambda d: d.filter("id >= 2 AND id IN (1, 2, 3)").count(),
    "union": lambda d: d.filter("id = 1").union(d.filter("id = 2")).count(),
    "union with all": lambda d: d.filter("id = 1").union(d).count(),
    "self-join": lambda d: d.filter("id < 3").alias("a").join(d.alias("b"), "id").count(),
    "join of two filters": lambda d: d.filter("id = 1").crossJoin(d.filter("id = 2")).count(),
    "anti-join": lambda d: d.join(d.filter("id <= 2"), "id", "left_anti").count(),
    "except": lambda d: d.exceptAll(d.filter("id = 3")).count(),
    "cached": lambda d: _cached(d.filter("id > 4")) + d.count(),
    "subquery": lambda d: _sql(d, "SELECT count(*) FROM {d} WHERE id = (SELECT max(id) FROM {d})"),
    "nested subqueries": lambda d: _sql(
        d,
        "SELECT count(*) FROM {d} WHERE id IN (SELECT id FROM {d} WHERE id < 4 AND id NOT IN"
        " (SELECT id FROM {d} WHERE id = 2))",
    ),
    "limit": lambda d: len(d.filter("id > 1").limit(2).collect()),
    "limit of all": lambda d: len(d.limit(5).collect()),
    "order and limit": lambda d: [
        r.id for r in d.filter("id < 3").orderBy("id").limit(9).collect()
    ],
    "group": lambda d: d.filter("id < 3").groupBy("id").count().count(),
    "column": lambda d: sorted(r.id for r in d.filter("id > 4").select("id").collect()),
    "no column": lambda d: _sql(d, "SELECT count(*) FROM {d} WHERE id <> 1"),
}
EXPECTED = {
    "count": ACCOUNTS,
    "filter": 1,
    "filter that nothing fulfils": 0,
    "null": 0,
    "range and list": 2,
    "union": 2,
    "union with all": 1 + ACCOUNTS,
    "self-join": 3,
    "join of two filters": 1,
    "anti-join": ACCOUNTS - 3,
    "except": ACCOUNTS - 1,
    "cached": 1 + ACCOUNTS,
    "subquery": 1,
    "nested subqueries": 3,
    "limit": 2,
    "limit of all": 5,
    "order and limit": [0, 1, 2],
    "group": 3,
    "column": [5],
    "no column": ACCOUNTS - 1,
}


def _cached(frame: Any) -> int:
    kept = frame.cache()
    count: int = kept.count()
    kept.unpersist()
    return count


def _sql(frame: Any, text: str) -> int:
    count: int = frame.sparkSession.sql(text, d=frame).collect()[0][0]
    return count


@pytest.mark.full
@pytest.mark.parametrize("pushdown", ["true", "false"])
def test_no_plan_over_a_load_sees_the_filters_of_another(
    spark: Any, filled: Server, pushdown: str
) -> None:
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushdown)
    options = {"path": str(filled.data_dir), "collection": "account"}
    frame = spark.read.format("foreshore").options(**options).load()
    orders = [list(PLANS), list(reversed(PLANS))]  # each plan comes after each kind of another
    found = [{name: PLANS[name](frame) for name in order} for order in orders]
    assert found == [EXPECTED, EXPECTED]


@pytest.mark.full
def test_spark_reads_what_option_where_says_and_refuses_what_is_wrong(
    spark: Any, filled: Server
) -> None:
    options = {"path": str(filled.data_dir), "collection": "account"}
    reader = spark.read.format("foreshore").options(**options)
    frame = reader.option("where", "id >= 2 AND id IN (1, 2, 3)").load()
    assert [frame.count(), frame.filter("id = 2").count(), frame.count()] == [2, 1, 2]
    assert sorted(frame.schema.names) == ["balance", "id"]
    with pytest.raises(Exception, match='option "where" cannot have "balance"'):
        reader.option("where", "id = balance").load()
    with pytest.raises(Exception, match='unknown option "pathh"'):
        spark.read.format("foreshore").options(pathh="x").load()
    with pytest.raises(Exception, match='relation "nothing" does not exist'):
        spark.read.format("foreshore").options(
            path=str(filled.data_dir), collection="nothing"
        ).load()


@pytest.mark.full
def test_a_stream_holds_each_change_once(spark: Any, filled: Server, tmp_path: Path) -> None:
    options = {"path": str(filled.data_dir), "collection": "account", "changes": "true"}
    seen: dict[int, Counter[Any]] = {}

    def take(batch: Any, number: int) -> None:
        """Keep a batch; Spark gives it again if the query ended before it had noted that."""
        rows: Counter[Any] = Counter()
        for *row, _, diff in batch.collect():
            rows[tuple(row)] += diff
        seen[number] = rows

    def start() -> Any:
        stream = spark.readStream.format("foreshore").options(**options).load()
        writer = stream.writeStream.foreachBatch(take)
        return writer.option("checkpointLocation", str(tmp_path / "checkpoint")).start()

    def totals() -> dict[Any, int]:
        sums: Counter[Any] = Counter()
        for rows in seen.values():
            sums.update(rows)
        return {row: n for row, n in sums.items() if n}

    def reached(query: Any, expected: Counter[Any]) -> bool:
        assert query.exception() is None, str(query.exception())
        return totals() == expected

    for _ in range(2):  # the second one goes on from the checkpoint
        with filled.connect() as connection:
            query = start()
            connection.execute("UPDATE account SET balance = balance + 1 WHERE id < 3")
            expected = Counter(connection.execute("SELECT id, balance FROM account").fetchall())
            until(partial(reached, query, expected), "the stream has the rows", 240)
            query.stop()
            assert query.exception() is None, str(query.exception())
            connection.execute("UPDATE account SET balance = balance - 1 WHERE id < 2")
