"""Views on Spark that are small are hydrated and maintained without Spark, and saved as others."""

import re
from collections.abc import Iterator
from pathlib import Path
from random import Random
from threading import Timer

import msgspec
import pyarrow.parquet as pq
import pytest

from foreshore.compute.bulk import spark_hydration, spark_store
from foreshore.compute.bulk.spark_dataflow import SparkDataflow
from foreshore.compute.bulk.spark_types import arrow_schema
from foreshore.compute.controller.step_report import last_steps
from foreshore.compute.delta import anew
from foreshore.compute.engine import Input
from foreshore.compute.protocol import DataflowDescription, DataflowStatus
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.service import SparkService
from foreshore.errors import QueryCanceled, Unavailable
from foreshore.expr.ir import Join, Reduce, Threshold, count_all
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


@pytest.mark.full
def test_steps_that_compute_all_anew_are_exact(
    engine: RestartingSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(anew, "LEAST_CHANGES", 0)
    monkeypatch.setattr(anew, "is_cheaper", lambda *of: True)
    for name, plan in PLANS.items():
        check_packed(engine, plan, Random(name), CASES, singly=True)


def test_statement_under_way_is_cancelled(engine: RestartingSpark) -> None:
    """A join of all with all, which would take days, ends when its view is dropped."""
    relation = Reduce(Join((U2, U2, U2, U2)), (), (count_all(),))
    description = DataflowDescription(GlobalId("t1"), relation, (U2.id,), (), START)
    schema = schema_of(U2.columns)
    dataflow = engine.plain(description, {U2.id: schema})
    dataflow.hydrate({U2.id: Input(schema, (), (updates(U2.columns, []),))})
    many = updates(U2.columns, [((i, i), START + 1, 1) for i in range(9_000)])
    Timer(0.5, dataflow.cancel).start()
    with pytest.raises(QueryCanceled):
        dataflow.step(START + 1, START + 2, {U2.id: many})
    dataflow.close()


def test_what_steps_took_is_told(
    engine: RestartingSpark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Few changes are computed as changes, as many as there are rows by all rows anew."""
    monkeypatch.setattr(anew, "LEAST_CHANGES", 5)
    monkeypatch.setattr(anew, "SHARE", 0.5)
    schema = schema_of(U2.columns)
    path = engine._options.scratch.parent / "told.parquet"
    pq.write_table(updates(U2.columns, [((i, i), START, 1) for i in range(9)]), path)
    description = DataflowDescription(GlobalId("t1"), Threshold(U2), (U2.id,), (), START)
    dataflow = engine.plain(description, {U2.id: schema})
    dataflow.hydrate({U2.id: Input(schema, (str(path),))})
    for time, rows in ((START + 1, range(4)), (START + 2, range(5)), (START + 3, range(9, 29))):
        delta = updates(U2.columns, [((i, i), time, 1) for i in rows])
        changes = rows_of(dataflow.step(time, time + 1, {U2.id: delta}).rows, U2.columns)
        assert changes == {(i, i): 1 for i in rows}
    told = [
        (s.step, s.engine, s.updates, s.statements, s.anew, s.rows) for s in dataflow.last_steps
    ]
    assert told == [
        (1, "duckdb", 4, 1, 0, 4),
        (2, "duckdb", 5, 1, 0, 5),
        (3, "duckdb", 20, 1, 1, 20),
    ]
    status = DataflowStatus(GlobalId("t1"), "running", 0, 0, 0.0, 0, None, ())
    reported = msgspec.structs.replace(status, last_steps=dataflow.last_steps[2:])
    text = last_steps([("r1", reported)], GlobalId("t1"))
    assert re.sub(r"\d+ ms", "9 ms", text).splitlines()[2:] == [
        "Last steps:",
        "  3: 20 updates, duckdb (reads less than 256 MiB): 1 statement, 1 of them anew,"
        " 0 of 0 files, 20 rows, 9 ms",
    ]
    dataflow.close()


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
    with monkeypatch.context() as patch:
        patch.setattr(SparkOptions, "hydrate_bytes", 1)
        with pytest.raises(Unavailable):
            hydrated(path)
    monkeypatch.setattr(spark_hydration, "RESULT_BYTES", 1)
    with pytest.raises(Unavailable):  # jobs take over
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


def test_spark_that_did_not_start_is_started_again(
    engine: RestartingSpark, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[None] = []
    monkeypatch.setattr(SparkService, "begin", lambda service: begun.append(None))
    engine.check()
    engine.check()  # not again at once
    assert len(begun) == 1
