"""pandas, polars, ADBC, connectorx and DuckDB's postgres extension."""

import decimal

import adbc_driver_postgresql.dbapi as adbc
import connectorx
import pandas as pd
import polars as pl
import pyarrow as pa
import sqlalchemy as sa
from steps import equal, run, step, url

FRAME = pd.DataFrame({"i": range(100), "f": [i / 4 for i in range(100)], "t": [f"t{i}" for i in range(100)],
                      "at": pd.date_range("2024-01-01", periods=100, tz="UTC")})  # fmt: skip


def engine():
    return sa.create_engine(url().replace("postgres://", "postgresql+psycopg://"))


@step
def pandas_writes_and_reads():
    found = engine()
    FRAME.to_sql("df", found, index=False)
    FRAME.head(5).to_sql("df", found, index=False, if_exists="append", method="multi")
    read = pd.read_sql("SELECT * FROM df WHERE i < %(n)s ORDER BY i", found, params={"n": 3})
    equal(len(read), 6)
    equal(str(read.dtypes["at"]).startswith("datetime64"), True)
    equal(len(pd.read_sql_table("df", found)), 105)
    equal(sum(len(part) for part in pd.read_sql("SELECT i FROM df", found, chunksize=20)), 105)
    FRAME.to_sql("df", found, if_exists="replace")


@step
def adbc_queries_and_ingests():
    with adbc.connect(url()) as c, c.cursor() as cursor:
        cursor.execute(
            "SELECT 1::int AS a, 'x'::text AS b, 1.5::float8 AS c, true AS d, date '2024-02-29' AS e"
        )
        equal(cursor.fetch_arrow_table().to_pylist()[0]["b"], "x")
        cursor.execute("SELECT $1 + 1, $2", (41, "b"))
        equal(cursor.fetchone(), (42, "b"))
        table = pa.table(
            {"i": pa.array(range(1000), pa.int32()), "t": [f"t{i}" for i in range(1000)]}
        )
        equal(cursor.adbc_ingest("ingested", table, mode="create"), 1000)
        cursor.adbc_ingest("ingested", table, mode="append")
        cursor.executemany("INSERT INTO ingested VALUES ($1, $2)", [(1, "a"), (2, "b")])
        cursor.execute("SELECT count(*), sum(i) FROM ingested")
        equal(cursor.fetchone()[0], 2002)
        cursor.execute("SELECT n FROM (VALUES (1.25::numeric(8,2))) AS v(n)")
        equal(decimal.Decimal(cursor.fetchone()[0]), decimal.Decimal("1.25"))
        equal(c.adbc_get_info()["vendor_name"], "PostgreSQL")
        objects = (
            c.adbc_get_objects(depth="all", table_name_filter="ingested").read_all().to_pylist()
        )
        tables = [
            t
            for o in objects
            for s in o["catalog_db_schemas"] or ()
            for t in s["db_schema_tables"] or ()
        ]
        equal([[k["column_name"] for k in t["table_columns"]] for t in tables], [["i", "t"]])
        equal(c.adbc_get_table_schema("ingested").names, ["i", "t"])
        c.commit()


@step
def polars_reads_and_writes():
    frame = pl.DataFrame({"i": [1, 2, 3], "t": ["a", None, "c"]})
    equal(frame.write_database("polars1", url(), engine="adbc"), 3)
    equal(
        pl.read_database_uri("SELECT * FROM polars1 ORDER BY i", url(), engine="adbc").rows(),
        frame.rows(),
    )
    read = pl.read_database_uri("SELECT i, t FROM polars1 ORDER BY i", url(), engine="connectorx")
    equal(read.rows(), frame.rows())
    equal(pl.read_database("SELECT count(*) AS n FROM polars1", engine()).item(), 3)


@step
def connectorx_reads_in_each_protocol():
    address = url().replace("postgres://", "postgresql://")
    for protocol in ("binary", "csv", "cursor", "simple"):
        found = connectorx.read_sql(
            address, "SELECT i, t FROM ingested", return_type="arrow", protocol=protocol
        )
        equal(found.num_rows, 2002)
    parts = connectorx.read_sql(address, "SELECT i FROM ingested", partition_on="i", partition_num=3,
                                return_type="arrow")  # fmt: skip
    equal(parts.num_rows, 2002)


if __name__ == "__main__":
    run()
