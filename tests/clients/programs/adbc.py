"""ADBC's driver for PostgreSQL: queries and ingestion as Arrow, by COPY in the binary format."""

import datetime as dt
import decimal
import uuid

import adbc_driver_postgresql.dbapi as adbc
import pyarrow as pa
from adbc_driver_manager import AdbcConnection, Error
from steps import COLUMNS, equal, run, step, url

NOW = dt.datetime(2024, 2, 29, 12, 30, 1, 5)
TABLE = pa.table(
    {
        "b": pa.array([True, None]),
        "h": pa.array([7, None], pa.int16()),
        "i": pa.array([-8, None], pa.int32()),
        "l": pa.array([2**40, None], pa.int64()),
        "r": pa.array([1.5, None], pa.float32()),
        "f": pa.array([0.1, None], pa.float64()),
        "n": pa.array([decimal.Decimal("12.50"), None], pa.decimal128(10, 2)),
        "t": pa.array(["é 'quoted' \\", None]),
        "y": pa.array([b"\x00\xff\\", None]),
        "d": pa.array([dt.date(2024, 2, 29), None]),
        "ts": pa.array([NOW, None], pa.timestamp("us")),
        "tz": pa.array([NOW, None], pa.timestamp("us", "UTC")),
        "iv": pa.array([dt.timedelta(hours=26), None], pa.duration("us")),
        "a": pa.array([[1, None, 3], None], pa.list_(pa.int32())),
        "c": pa.array(["x", None]).dictionary_encode(),
    }
)


def connect():
    return adbc.connect(url())


@step
def each_type_is_ingested_and_read():
    with connect() as c, c.cursor() as cursor:
        equal(cursor.adbc_ingest("types", TABLE, mode="create"), 2)
        cursor.execute("SELECT * FROM types ORDER BY i NULLS LAST")
        read = cursor.fetch_arrow_table()
        equal(read.column_names, TABLE.column_names)
        for name in set(TABLE.column_names) - {"n", "iv"}:
            equal(read.column(name).to_pylist(), TABLE.column(name).to_pylist())
        equal(decimal.Decimal(read.column("n")[0].as_py()), decimal.Decimal("12.50"))
        equal(read.column("iv")[0].as_py().nanoseconds, 26 * 3600 * 10**9)
        c.commit()


@step
def values_without_a_type_of_arrow_are_read():
    queries = {
        "12.50::numeric": "12.50",
        "'6f9619ff-8b86-d011-b42d-00c04fc964ff'::uuid": uuid.UUID(
            "6f9619ff-8b86-d011-b42d-00c04fc964ff"
        ),
        "'{\"a\": 1}'::jsonb": '{"a": 1}',
        "'12.50'::money": 1250,
        "interval '1 month 2 days 3.5 s'": pa.MonthDayNano([1, 2, 3_500_000_000]),
        "time '12:30:00.5'": dt.time(12, 30, 0, 500_000),
        "array[date '2024-02-29', NULL]": [dt.date(2024, 2, 29), None],
        "1::oid": 1,
    }
    with connect() as c, c.cursor() as cursor:
        for query, value in queries.items():
            cursor.execute(f"SELECT {query} AS v")
            equal(cursor.fetch_arrow_table().column("v").to_pylist(), [value])


@step
def ingestion_casts_nothing_and_fills_columns_by_their_names():
    with connect() as c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE places (v int, w text DEFAULT 'none', x int)")
        rows = pa.table({"x": pa.array([1], pa.int32()), "v": pa.array([2], pa.int32())})
        cursor.adbc_ingest("places", rows, mode="append")
        cursor.execute("SELECT * FROM places")
        equal(cursor.fetchall(), [(2, "none", 1)])
        c.commit()
        try:
            cursor.adbc_ingest("places", pa.table({"v": ["x"]}), mode="append")
        except Error as error:
            equal(error.sqlstate[:2] in ("08", "22"), True)
        else:
            raise AssertionError("no error")
        c.rollback()


@step
def each_column_of_a_table_has_its_type():
    with connect() as c, c.cursor() as cursor:
        cursor.execute(f"CREATE TABLE columns ({COLUMNS})")
        c.commit()
        schema = c.adbc_get_table_schema("columns")
        equal(len(schema), 18)
        equal(schema.field("l").type, pa.int64())
        equal(schema.field("a").type, pa.list_(pa.field("item", pa.int32())))
        cursor.execute("SELECT * FROM columns")
        equal(cursor.fetch_arrow_table().schema.field("tz").type, pa.timestamp("us", "UTC"))


@step
def ingestion_replaces_appends_and_is_temporary():
    rows = pa.table({"i": range(10_000)})
    with connect() as c, c.cursor() as cursor:
        cursor.adbc_ingest("ingested", rows, mode="create_append")
        cursor.adbc_ingest("ingested", rows.to_reader(), mode="append")
        cursor.execute("SELECT count(*) FROM ingested")
        equal(cursor.fetchone(), (20_000,))
        cursor.adbc_ingest("ingested", rows.slice(0, 5), mode="replace")
        cursor.execute("SELECT count(*) FROM ingested")
        equal(cursor.fetchone(), (5,))
        cursor.adbc_ingest("passing", rows, mode="create", temporary=True)
        cursor.execute("SELECT max(i) FROM passing")
        equal(cursor.fetchone(), (9_999,))
        cursor.execute("CREATE SCHEMA other")
        cursor.adbc_ingest("there", rows, mode="create", db_schema_name="other")
        cursor.execute("SELECT count(*) FROM other.there")
        equal(cursor.fetchone(), (10_000,))
        c.commit()


@step
def parameters_are_bound_row_by_row():
    with connect() as c, c.cursor() as cursor:
        cursor.execute("SELECT $1::bigint + 1 AS n, $2::text AS t", (41, "b"))
        equal(cursor.fetchall(), [(42, "b")])
        cursor.execute("CREATE TABLE bound (a int, b text)")
        cursor.executemany("INSERT INTO bound VALUES ($1, $2)", [(1, "x"), (2, None)])
        cursor.execute("SELECT * FROM bound WHERE a >= $1 ORDER BY a", (1,))
        equal(cursor.fetchall(), [(1, "x"), (2, None)])
        equal(cursor.adbc_execute_schema("SELECT a FROM bound").field("a").type, pa.int32())
        c.commit()


@step
def transaction_rolls_back():
    with connect() as c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE kept (a int)")
        c.commit()
        cursor.execute("INSERT INTO kept VALUES (1)")
        c.rollback()
        cursor.execute("SELECT count(*) FROM kept")
        equal(cursor.fetchone(), (0,))
        c.rollback()


@step
def error_has_its_sqlstate():
    with connect() as c, c.cursor() as cursor:
        try:
            cursor.execute("SELECT nope")
            cursor.fetchall()
        except Error as error:
            equal(error.sqlstate, "42703")
        else:
            raise AssertionError("no error")


@step
def catalog_is_read():
    with connect() as c, c.cursor() as cursor:
        cursor.execute("CREATE TABLE parent (id int PRIMARY KEY, name text UNIQUE)")
        cursor.execute("CREATE TABLE child (id int PRIMARY KEY, parent int REFERENCES parent (id))")
        c.commit()
        found = c.adbc_get_objects(depth="all", table_name_filter="child").read_all().to_pylist()
        tables = [
            table
            for catalog in found
            for schema in catalog["catalog_db_schemas"] or ()
            for table in schema["db_schema_tables"] or ()
        ]
        equal([table["table_type"] for table in tables], ["table"])
        equal([x["column_name"] for x in tables[0]["table_columns"]], ["id", "parent"])
        kinds = sorted(x["constraint_type"] for x in tables[0]["table_constraints"])
        equal(kinds, ["FOREIGN KEY", "PRIMARY KEY"])
        equal("table" in c.adbc_get_table_types(), True)
        equal(c.adbc_get_info()["vendor_name"], "PostgreSQL")
        equal(c.adbc_current_db_schema, "public")
        equal(isinstance(c.adbc_connection, AdbcConnection), True)


@step
def large_result_is_read_in_batches():
    with connect() as c, c.cursor() as cursor:
        cursor.execute("SELECT x, x::text AS t FROM generate_series(1, 200000) AS s(x)")
        reader = cursor.fetch_record_batch()
        equal(sum(batch.num_rows for batch in reader), 200_000)


if __name__ == "__main__":
    run()
