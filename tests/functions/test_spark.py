"""Functions give PostgreSQL's recorded answers as SQL of Spark, in a few jobs of one session.

The rows of many cases are side by side in one wide table; short cases are padded with NULL.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from foreshore.compute.bulk.spark_sql import Tuning
from foreshore.compute.render.spark_dialect import SparkDialect, register_spark, spark_form
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.session import start_spark, stop_spark
from foreshore.datum import from_array, to_array
from foreshore.deep_trees import allow_depth
from foreshore.expr.columns import type_of
from foreshore.expr.ir import ErrorOf
from foreshore.types import arrow_type
from tests.functions.parity import Group, differences, groups
from tests.functions.walk import different, sampled, wanted
from tests.harness import java

pytestmark = pytest.mark.full

PACKED = 60  # cases in one job


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    java()
    allow_depth()  # as the server does, however few tests run before
    scratch: Path = tmp_path_factory.mktemp("spark")
    session = start_spark(SparkOptions(scratch / "s", master="local[2]"))
    Tuning(interpreted=True).apply(session)  # as for all statements that run once over few rows
    yield session
    stop_spark()


def padded(column: pa.Array, rows: int) -> pa.Array:
    missing = pa.nulls(rows - len(column), column.type)
    return pa.concat_arrays([column, missing])


def to_spark(column: pa.Array) -> pa.Array:
    form = spark_form(column.type)
    return column if form == column.type else column.cast(form)


def run(spark: Any, batch: Sequence[Group]) -> list[str]:
    rows = max(len(group.rows) for group in batch)
    dialect = SparkDialect()
    columns: list[pa.Array] = [pa.array(range(rows), pa.int32())]
    selects = ["c0 AS n"]
    for i, group in enumerate(batch):
        names = [f"c{len(columns) + j}" for j in range(len(group.columns))]
        columns += [padded(to_spark(column), rows) for column in group.columns]
        selects.append(f"{dialect.scalar(group.scalar, names)} AS v{i}")
        selects.append(f"{dialect.scalar(ErrorOf(group.scalar), names)} AS e{i}")
    table = pa.table(columns, names=[f"c{i}" for i in range(len(columns))])
    register_spark(spark, list(dialect.used.values()))
    spark.createDataFrame(table).coalesce(1).createOrReplaceTempView("cases")
    got = spark.sql(f"SELECT {', '.join(selects)} FROM cases").toArrow().sort_by("n")
    found: list[str] = []
    for i, group in enumerate(batch):
        wanted = arrow_type(type_of(group.scalar))
        values = got[f"v{i}"].combine_chunks().slice(0, len(group.rows))
        errors = got[f"e{i}"].combine_chunks().slice(0, len(group.rows))
        assert spark_form(wanted) == values.type or pa.types.is_nested(wanted), group.id
        found += differences(group, values.cast(wanted), errors)
    return found


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_spark_gives_postgresql_answers(spark: Any, every: int) -> None:
    """Spark takes a minute of CPU for all functions; a quarter of them is a sample."""
    chosen = groups()[::every]
    found: list[str] = []
    for start in range(0, len(chosen), PACKED):
        found += run(spark, chosen[start : start + PACKED])
    assert not found, "\n".join(found)


@pytest.mark.parametrize("every", [61, pytest.param(7, marks=pytest.mark.slow)])
def test_spark_gives_what_kernels_give(spark: Any, every: int) -> None:
    """The edges of types, of a sample of all signatures."""
    differing: list[str] = []
    chosen = list(sampled(every))
    for start in range(0, len(chosen), PACKED):
        differing += run_edges(spark, chosen[start : start + PACKED])
    assert not differing, "\n".join(differing)


def run_edges(spark: Any, batch: Sequence[Any]) -> list[str]:
    count = max(len(rows) for _, _, rows in batch)
    dialect = SparkDialect()
    columns: list[pa.Array] = [pa.array(range(count), pa.int32())]
    selects = ["c0 AS n"]
    for i, (call, scalar, rows) in enumerate(batch):
        types = call.types.args
        names = [f"c{len(columns) + j}" for j in range(len(types))]
        arrays = [to_array([row[j] for row in rows], type) for j, type in enumerate(types)]
        columns += [padded(to_spark(array), count) for array in arrays]
        value = dialect.scalar(scalar, names)
        if call.types.result.name == "number":  # toArrow() takes no NULL for fields that have none
            value = f"CAST({value} AS {dialect.type_name(call.types.result)})"
        selects.append(f"{value} AS v{i}")
        selects.append(f"{dialect.scalar(ErrorOf(scalar), names)} AS e{i}")
    table = pa.table(columns, names=[f"c{i}" for i in range(len(columns))])
    register_spark(spark, list(dialect.used.values()))
    spark.createDataFrame(table).coalesce(1).createOrReplaceTempView("edges")
    got = spark.sql(f"SELECT {', '.join(selects)} FROM edges").toArrow().sort_by("n")
    found: list[str] = []
    for i, (call, scalar, rows) in enumerate(batch):
        result = call.types.result
        values = got[f"v{i}"].combine_chunks().slice(0, len(rows)).cast(arrow_type(result))
        errors = got[f"e{i}"].combine_chunks().slice(0, len(rows)).to_pylist()
        given = from_array(pa.concat_arrays([values]), result), errors
        found += different(call, given, wanted(call, scalar, rows), rows)
    return found
