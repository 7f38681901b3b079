"""A JVM of Spark that ends while views are maintained: they go on, and so do queries, on another."""

import os
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from foreshore.compute.bulk.spark import SparkEngine
from foreshore.compute.bulk.spark_dataflow import SparkDataflow
from foreshore.compute.engine import Cancellation, Input
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.session import stop_spark
from foreshore.expr.ir import Threshold
from foreshore.ids import GlobalId
from tests.compute.cases import START, rows_of, schema_of, updates
from tests.compute.plans import U2
from tests.harness import java

SCHEMA = schema_of(U2.columns)


def kill(engine: SparkEngine) -> None:
    """Kill the JVM, and wait for its end."""
    process = engine.service.session().sparkContext._gateway.proc
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def hydrated(engine: SparkEngine, path: Path) -> tuple[SparkDataflow, dict[GlobalId, Input]]:
    """Return a dataflow of the distinct rows of a file, and its inputs."""
    pq.write_table(updates(U2.columns, [((i, i), START, 1) for i in range(9)]), path)
    description = DataflowDescription(GlobalId("t1"), Threshold(U2), (U2.id,), (), START)
    dataflow = engine.create(description, {U2.id: SCHEMA})
    assert isinstance(dataflow, SparkDataflow)
    inputs = {U2.id: Input(SCHEMA, (str(path),))}
    dataflow.hydrate(inputs)
    return dataflow, inputs


def stepped(dataflow: SparkDataflow, time: int, *rows: tuple[int, int]) -> dict[Any, int]:
    """Add rows at a time, and return what changes."""
    delta = updates(U2.columns, [((a, b), time, 1) for a, b in rows])
    return rows_of(dataflow.step(time, time + 1, {U2.id: delta}).rows, U2.columns)


@pytest.mark.slow  # three JVMs
@pytest.mark.timeout(900)
@pytest.mark.parametrize("step_bytes", ["1B", "1GB"])
def test_dataflows_and_queries_go_on_after_kill(tmp_path: Path, step_bytes: str) -> None:
    java()
    stop_spark()
    settings = {"spark.foreshore.step.bytes": step_bytes}
    options = SparkOptions(tmp_path / "spark", "local[1]", 512, settings)
    engine = SparkEngine(options, [str(tmp_path)])
    try:
        dataflow, inputs = hydrated(engine, tmp_path / "batch.parquet")
        assert stepped(dataflow, START + 1, (8, 8), (9, 9)) == {(8, 8): 1, (9, 9): 1}
        kill(engine)
        assert stepped(dataflow, START + 2, (9, 9), (9, 9)) == {(9, 9): 2}
        parts = engine.evaluate_parts(Threshold(U2), inputs, START, Cancellation())
        assert sum(part.num_rows for part in parts) == 9
        kill(engine)
        assert engine.evaluate(Threshold(U2), inputs, START).num_rows == 9
        assert stepped(dataflow, START + 3, (10, 10)) == {(10, 10): 1}
        dataflow.close()
    finally:
        engine.close()
        stop_spark()
