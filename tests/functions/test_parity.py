"""Functions give PostgreSQL's recorded answers, by kernel and as SQL of DuckDB."""

from collections.abc import Iterator

import duckdb
import pyarrow as pa
import pytest

from foreshore.compute.render.duckdb_dialect import DuckDbDialect, register_duckdb
from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import ErrorOf
from foreshore.types import arrow_type
from tests.functions.parity import Group, differences, groups

NAMES = sorted({g.name for g in groups()})


def of_name(name: str) -> list[Group]:
    return [g for g in groups() if g.name == name]


@pytest.mark.parametrize("name", NAMES)
def test_kernel_gives_postgresql_answers(name: str) -> None:
    found: list[str] = []
    for group in of_name(name):
        values, errors = outcome(group.scalar, group.columns, len(group.rows))
        assert values.type == arrow_type(type_of(group.scalar)), group.id
        found += differences(group, values, errors)
    assert not found, "\n".join(found)


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as opened:
        opened.execute("SET TimeZone = 'UTC'").fetchall()
        yield opened


def run_duckdb(connection: duckdb.DuckDBPyConnection, group: Group) -> tuple[pa.Array, pa.Array]:
    table = pa.table(list(group.columns), names=[f"c{i}" for i in range(len(group.columns))])
    dialect = DuckDbDialect()
    columns = table.column_names
    value = dialect.scalar(group.scalar, columns)
    error = dialect.scalar(ErrorOf(group.scalar), columns)
    register_duckdb(connection, list(dialect.used.values()))
    connection.register("t", table)
    got = connection.sql(f"SELECT {value} AS v, {error} AS e FROM t").to_arrow_table()
    connection.unregister("t")
    return got["v"].combine_chunks(), got["e"].combine_chunks()


@pytest.mark.parametrize("name", NAMES)
def test_duckdb_gives_postgresql_answers(name: str, connection: duckdb.DuckDBPyConnection) -> None:
    found: list[str] = []
    for group in of_name(name):
        values, errors = run_duckdb(connection, group)
        assert values.type == arrow_type(type_of(group.scalar)), group.id
        found += differences(group, values, errors)
    assert not found, "\n".join(found)
