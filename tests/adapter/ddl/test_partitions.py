"""PARTITION BY of materialized views is checked, and INSPECT SHARD shows what is stored."""

import json
from pathlib import Path

import pytest

from tests.adapter.harness import TestEnvironment, in_environment

SORTED = (
    *("bool", "int2", "int4", "int8", "oid", "date", "time", "timestamp", "timestamptz"),
    *("bytea", "text", "varchar(3)", "char(3)", "uuid", "uint4"),
)
UNSORTED = ("numeric", "numeric(10, 2)", "float8", "jsonb", "int[]", "interval")


@pytest.mark.parametrize(("types", "works"), [(SORTED, True), (UNSORTED, False)])
def test_columns_of_types_that_files_sort_can_be_partitioned_by(
    tmp_path: Path, types: tuple[str, ...], works: bool
) -> None:
    async def scenario(env: TestEnvironment) -> None:
        for place, type in enumerate(types):
            answer = await env.query(
                "a",
                f"CREATE MATERIALIZED VIEW v{place} WITH (PARTITION BY (x))"
                f" AS SELECT NULL::{type} AS x, 1 AS y",
            )
            refused = 'ERROR 22023: PARTITION BY column "x" has type'
            assert answer.startswith("CREATE" if works else refused), (type, answer)

    in_environment(tmp_path, scenario)


def test_partition_is_the_first_columns_in_their_order(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE TABLE t (a int, b text, c date)")
        for by, error in {
            "(a)": "",
            "(a, b, c)": "",
            "= (a, b)": "",
            "(b)": "22023: PARTITION BY columns should be a prefix of the view's columns",
            "(a, c)": "22023: PARTITION BY columns should be a prefix of the view's columns",
            "(a, a)": "22023: PARTITION BY columns should be a prefix of the view's columns",
            "(nope)": '42703: column "nope" does not exist',
            "()": "42601: syntax error",
            "(a), PARTITION BY (a)": "42601: conflicting or redundant options",
        }.items():
            sql = f"CREATE MATERIALIZED VIEW v WITH (PARTITION BY {by}) AS SELECT a, b, c FROM t"
            answer = await env.query("a", sql)
            assert answer.startswith(f"ERROR {error}" if error else "CREATE"), (by, answer)
            await env.query("a", "DROP MATERIALIZED VIEW IF EXISTS v")
        view = "CREATE VIEW v WITH (PARTITION BY (a)) AS SELECT a FROM t"
        assert (await env.query("a", view)).startswith("ERROR 0A000")

    in_environment(tmp_path, scenario)


def test_shard_is_shown_with_its_times_and_holds(tmp_path: Path) -> None:
    async def scenario(env: TestEnvironment) -> None:
        await env.ran("a", "CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)")
        await env.ran("a", "CREATE MATERIALIZED VIEW m AS SELECT a FROM t", "CREATE INDEX ON t (a)")
        for name in ("t", "m"):
            found = await env.ran("a", f"SELECT id FROM mz_objects WHERE name = '{name}'")
            id = found.split("\n")[0]
            shown = json.loads((await env.ran("a", f"INSPECT SHARD '{id}'")).split("\n")[0])
            assert (shown["shard_id"], shown["name"]) == (id, name)
            assert int(shown["since"]) > 0
            assert {each["kind"] for each in shown["read_holds"]} >= {"retention"}
        for sql, error in {
            "INSPECT SHARD 'it''s'": '42704: shard "it\'s" does not exist',
            "INSPECT SHARD u1": "42601: syntax error",
            "INSPECT t": "42601: syntax error",
        }.items():
            assert (await env.query("a", sql)).startswith(f"ERROR {error}"), sql

    in_environment(tmp_path, scenario)
