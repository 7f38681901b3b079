"""Views on Spark that are small are hydrated and maintained without Spark, and saved as others."""

from collections.abc import Iterator
from pathlib import Path
from random import Random

import pyarrow.parquet as pq
import pytest

from foreshore.compute.bulk import spark_local, spark_store
from foreshore.compute.bulk.spark_dataflow import SparkDataflow
from foreshore.compute.bulk.spark_types import arrow_schema
from foreshore.compute.engine import Input
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.service import SparkService
from foreshore.errors import Unavailable
from foreshore.expr.ir import Threshold
from foreshore.ids import GlobalId
from tests.compute.cases import START, rows_of, schema_of, updates
from tests.compute.packing import check_packed
from tests.compute.plans import PLANS, U2
from tests.compute.spark.restarting import RestartingSpark

CASES = 5


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestartingSpark]:
    """Yield an engine whose Spark does not start; dataflows are saved and loaded now and then."""

    def start(service: SparkService) -> None:
        raise Unavailable("Spark is asked for")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparkService, "begin", lambda service: None)
        patch.setattr(SparkService, "session", start)
        patch.setattr(spark_store, "TAIL_ENTRIES", 40)
        patch.setattr(spark_store, "TAIL_FILES", 2)
        folder = tmp_path_factory.mktemp("spark")
        options = SparkOptions(folder / "scratch", "local[2]", 1024)
        engine = RestartingSpark(options, tmp_path_factory.mktemp("saved"), Random(1))
        engine._directories = [str(folder)]
        yield engine
    engine.close()


@pytest.mark.full
def test_small_views_are_exact_at_every_time_without_spark(engine: RestartingSpark) -> None:
    for name, plan in PLANS.items():
        check_packed(engine, plan, Random(name), CASES)
    assert engine.restarts


def test_spark_computes_what_reads_much_or_what_others_may_not_read(
    engine: RestartingSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = engine._options.scratch.parent / "batch.parquet"
    pq.write_table(updates(U2.columns, [((i, i), START, 1) for i in range(9)]), path)
    elsewhere = tmp_path / "batch.parquet"
    elsewhere.write_bytes(path.read_bytes())
    schema = schema_of(U2.columns)
    relation = Threshold(U2)

    def hydrated(file: Path) -> SparkDataflow:
        description = DataflowDescription(GlobalId("t1"), relation, (U2.id,), (), START)
        dataflow = engine.plain(description, {U2.id: schema})
        rows = dataflow.hydrate({U2.id: Input(schema, (str(file),))}).rows
        assert rows_of(rows, U2.columns) == {(i, i): 1 for i in range(9)}
        return dataflow

    hydrated(path).close()
    with pytest.raises(Unavailable):
        hydrated(elsewhere)
    monkeypatch.setattr(spark_local, "HYDRATE_BYTES", 1)
    with pytest.raises(Unavailable):
        hydrated(path)


def test_types_are_those_that_spark_would_parse() -> None:
    columns = (
        ("a", "DECIMAL(38, 0)"),
        ("b", "ARRAY<ARRAY<INT>>"),
        ("c", "STRUCT<value: DECIMAL(38,20), rest: BINARY, scale: SMALLINT>"),
        ("d", "TIMESTAMP_NTZ"),
    )
    assert [str(field.type) for field in arrow_schema(columns)] == [
        "decimal128(38, 0)",
        "list<element: list<element: int32>>",
        "struct<value: decimal128(38, 20), rest: binary, scale: int16>",
        "timestamp[us]",
    ]
