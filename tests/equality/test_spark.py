"""Spark groups and orders the keys of a sample of types, nested, as PostgreSQL does the values."""

from pathlib import Path

import pyarrow as pa
import pytest

from foreshore.compute.bulk.spark_sql import Tuning
from foreshore.compute.render.spark_dialect import SparkDialect, register_spark
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.session import start_spark, stop_spark
from foreshore.datum import to_array
from tests.equality.test_keys import CASES, values_of
from tests.functions.test_spark import padded, to_spark
from tests.harness import java

pytestmark = pytest.mark.full

TYPES = ("jsonb", "interval", "numeric", "float8", "time")


def test_keys_of_spark_have_the_order_of_postgresql(tmp_path: Path) -> None:
    java()
    some = [(case, *values_of(case)) for case in CASES if case.type in TYPES]
    rows = max(len(data) for _, _, data, _ in some)
    dialect = SparkDialect()
    columns = [pa.array(range(rows), pa.int32())]
    ranks = []
    for number, (_, type, data, _) in enumerate(some, 1):
        columns.append(padded(to_spark(to_array(data, type)), rows))
        key = dialect.key(f"c{number}", type)
        ranks.append(f"dense_rank() OVER (ORDER BY {key} NULLS LAST) AS r{number}")
    table = pa.table(columns, names=[f"c{i}" for i in range(len(columns))])
    session = start_spark(SparkOptions(tmp_path / "s", master="local[2]"))
    try:
        Tuning(interpreted=True).apply(session)
        register_spark(session, list(dialect.used.values()))
        session.createDataFrame(table).coalesce(1).createOrReplaceTempView("cases")
        found = session.sql(f"SELECT c0, {', '.join(ranks)} FROM cases").toArrow().sort_by("c0")
    finally:
        stop_spark()
    for number, (case, _, data, wanted) in enumerate(some, 1):
        assert found[f"r{number}"].to_pylist()[: len(data)] == wanted, case
