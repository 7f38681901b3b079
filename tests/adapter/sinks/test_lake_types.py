"""Values of all types in tables of a lake: what sinks write, sources and other programs read."""

from pathlib import Path
from typing import Any

import pytest

from tests.adapter.harness import TestEnvironment
from tests.adapter.lakes import connected, into, reading
from tests.adapter.sources.test_files import reaches
from tests.iceberg_catalog import IcebergCatalog

pytest.importorskip("pyiceberg")
deltalake = pytest.importorskip("deltalake")
pytestmark = pytest.mark.full

TYPES = {  # with values of them
    "b": ("bool", "true", "false"),
    "i2": ("int2", "-32768", "7"),
    "i4": ("int4", "2147483647", "0"),
    "i8": ("int8", "-9223372036854775808", "1"),
    "f4": ("float4", "'NaN'", "'-Infinity'"),
    "f8": ("float8", "'NaN'", "'Infinity'"),
    "n": ("numeric", "12345678901234567.00000000000000000001", "0.5"),
    "n10": ("numeric(10,2)", "-12345678.91", "2"),
    "n38": ("numeric(38,10)", "1234567890123456789012345678.0123456789", "0"),
    "v": ("text", "''", "'x\ty'"),
    "c": ("char(5)", "'ab'", "'abcde'"),
    "y": ("bytea", r"'\x00ff'", "''"),
    "d": ("date", "'0001-01-01'", "'9999-12-31'"),
    "u": ("timestamp", "'2024-02-29 12:00:00.123456'", "'9999-12-31 23:59:59.999999'"),
    "z": ("timestamptz", "'2024-02-29 12:00:00.123456+00'", "'1900-01-01+00'"),
    "iv": ("interval", "'1 mon 2 days 03:04:05'", "'-1 s'"),
    "uu": ("uuid", "'6ba7b810-9dad-11d1-80b4-00c04fd430c8'", "NULL"),
    "j": ("json", """'{"a":  1}'""", "'null'"),
    "jb": ("jsonb", """'{"a": [1, null]}'""", "'null'"),
    "ai": ("int4[]", "'{1,NULL,3}'", "'{}'"),
    "av": ("text[]", """'{a,"b,c",NULL}'""", "NULL"),
    "an": ("numeric(10,2)[]", "'{1.50}'", "'{NULL}'"),
    "af": ("float8[]", "'{NaN,1}'", "'{}'"),
    "aj": ("jsonb[]", "ARRAY['{}'::jsonb]", "NULL"),
    "az": ("timestamptz[]", "ARRAY['2024-02-29 12:00+00'::timestamptz]", "NULL"),
    "r": ("int4range", "'[1,5)'", "'empty'"),
    "ip": ("inet", "'10.0.0.1'", "'::1/64'"),
    "s": ("bit(3)", "B'101'", "B'000'"),
}
ROWS = "SELECT k, row(s.*)::text FROM {} s ORDER BY 1"


async def filled(env: TestEnvironment) -> list[str]:
    """Make a table with columns of all types; return its rows as text."""
    columns = ", ".join(f"{name} {of[0]}" for name, of in TYPES.items())
    await env.ran("a", f"CREATE TABLE t (k int PRIMARY KEY, {columns})")
    for place in (1, 2):
        values = ", ".join(of[place] for of in TYPES.values())
        await env.ran("a", f"INSERT INTO t VALUES ({place}, {values})")
    await env.ran("a", "INSERT INTO t VALUES (3)")
    return (await env.query("a", ROWS.format("t"))).splitlines()[:-1]


@pytest.mark.parametrize("format", ["iceberg", "delta"])
async def test_values_of_all_types_come_back_equal(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path, format: str
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    rows = await filled(env)
    table = tmp_path / "lake" / "delta"
    if format == "iceberg":
        target, source = into("t"), reading("t")
    else:
        target = f"INTO DELTA (URL '{table}')"
        source = f"FROM FILES '{table}' (FORMAT delta, POLL INTERVAL '10 ms')"
    await env.ran("a", f"CREATE SINK out FROM t {target}", "WAIT FOR SINKS out")
    columns = ", ".join(f"{name} {of[0]}" for name, of in TYPES.items())
    await env.ran("a", f"CREATE SOURCE same (k int, {columns}) {source}")
    await reaches(env, ROWS.format("same"), *rows)
    await env.ran("a", f"CREATE SOURCE found {source}")  # with the types of the files
    await reaches(env, "SELECT count(*) FROM found", "3")
    casts = ", ".join(f"{name}::{of[0]}" for name, of in TYPES.items())
    await reaches(env, ROWS.format(f"(SELECT k, {casts} FROM found)"), *rows)
    await env.ran("a", "UPDATE t SET v = 'other' WHERE k = 1", "DELETE FROM t WHERE k = 3")
    await env.ran("a", "WAIT FOR SINKS out")
    await reaches(
        env, ROWS.format("same"), *(await env.query("a", ROWS.format("t"))).splitlines()[:-1]
    )


@pytest.mark.parametrize("format", ["iceberg", "delta"])
async def test_other_programs_read_the_same_rows(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path, format: str
) -> None:
    import polars

    env = await connected(own_env, catalog, tmp_path)
    table = tmp_path / "lake" / "delta"
    target = into("t") if format == "iceberg" else f"INTO DELTA (URL '{table}')"
    await env.ran("a", "CREATE TABLE t (k int PRIMARY KEY, v text, n numeric(10, 2), at date)")
    row = "i, 'v' || i, i / 4.0, date '2026-01-01' + i"
    await env.ran("a", f"INSERT INTO t SELECT {row} FROM generate_series(1, 200000) i")
    await env.ran("a", f"CREATE SINK out FROM t {target}", "WAIT FOR SINKS out")
    await env.ran("a", "UPDATE t SET v = 'w' WHERE k % 1000 = 0", "DELETE FROM t WHERE k = 7")
    await env.ran("a", "WAIT FOR SINKS out")
    query = "SELECT count(*), sum(k), sum(n), count(*) FILTER (WHERE v = 'w') FROM t"
    wanted = (await env.query("a", query)).splitlines()[0]
    lazy: Any
    if format == "iceberg":
        found = catalog.tables.load_table("n.t")
        arrow, lazy = found.scan().to_arrow(), polars.scan_iceberg(found)
    else:
        found = deltalake.DeltaTable(str(table))
        arrow, lazy = found.to_pyarrow_table(), polars.scan_delta(str(table))
    for frame in (polars.DataFrame(polars.from_arrow(arrow)), lazy.collect()):
        sums = (
            frame.height,
            frame["k"].cast(polars.Int64).sum(),
            frame["n"].sum(),
            (frame["v"] == "w").sum(),
        )
        assert "|".join(map(str, sums)) == wanted


@pytest.mark.parametrize("format", ["iceberg", "delta"])
async def test_values_that_tables_of_a_lake_do_not_have_stall_the_sink(
    own_env: TestEnvironment, catalog: IcebergCatalog, tmp_path: Path, format: str
) -> None:
    env = await connected(own_env, catalog, tmp_path)
    table = tmp_path / "lake" / "delta"
    target = f"INTO DELTA (URL '{table}') WITH (COMMIT INTERVAL '10 ms')"
    target = into("t") if format == "iceberg" else target
    columns = "d date, z timestamptz, u timestamp, az timestamp[]"
    await env.ran("a", f"CREATE TABLE t (k int PRIMARY KEY, {columns})")
    await env.ran("a", f"CREATE SINK out FROM t {target}")
    status = "SELECT status, error LIKE '%Cast the column%' FROM mz_internal.mz_sink_statuses"
    for column, value in (
        ("d", "infinity"), ("d", "0001-01-01 BC"), ("z", "-infinity"), ("u", "10000-01-01"),
        ("az", "{infinity}"),
    ):  # fmt: skip
        await env.ran("a", f"INSERT INTO t (k, {column}) VALUES (1, '{value}')")
        await reaches(env, status, "stalled|t")
        await env.ran("a", "DELETE FROM t")
        await reaches(env, "SELECT status FROM mz_internal.mz_sink_statuses", "running")
