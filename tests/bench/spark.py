"""The Spark engine, without a server: `python -m tests.bench.spark [--jobs] [scale] [views]`.

Six views of TPC-H are hydrated from Parquet files one after the other, then rows of the tables are
changed, 1, 100 and 1,000 at a time. Shown are seconds of wall time and of CPU (this process and the
JVM), and how many files of state and jobs of Spark the last step had. Without a scale it is 0.1.
With `--jobs` each statement of a step is a job of Spark, however little it reads.
"""

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

from foreshore.compute.bulk.spark import SparkEngine
from foreshore.compute.bulk.spark_dataflow import SparkDataflow
from foreshore.compute.engine import Input
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.spark.options import SparkOptions
from foreshore.compute.spark.session import stop_spark
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from tests.bench import cases, tpch
from tests.bench.flow import APART, START, Data, planned, stored

BATCHES = {1: 5, 100: 5, 1_000: 5}
WARM_UP = 1  # steps of each size that do not count
TICKS = os.sysconf("SC_CLK_TCK")


class Spent:
    """Adds up the wall time and the CPU of what is done."""

    def __init__(self, jvm: int) -> None:
        self._jvm = jvm

    def __call__(self, work: Callable[[], object]) -> tuple[float, float]:
        """Return the seconds of wall time and of CPU that `work` takes."""
        wall, cpu = time.perf_counter(), self._cpu()
        work()
        return time.perf_counter() - wall, self._cpu() - cpu

    def _cpu(self) -> float:
        fields = Path(f"/proc/{self._jvm}/stat").read_text().rpartition(")")[2].split()
        own = resource.getrusage(resource.RUSAGE_SELF)
        return own.ru_utime + own.ru_stime + (int(fields[11]) + int(fields[12])) / TICKS


def main() -> None:
    """Print the figures."""
    given = [each for each in sys.argv[1:] if each != "--jobs"]
    scale = float(given[0]) if given else 0.1
    names = given[1:] or list(tpch.VIEWS)
    settings = {"spark.foreshore.step.bytes": "1B"} if "--jobs" in sys.argv else {}
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
        engine = SparkEngine(SparkOptions(Path(folder, "spark"), "local[2]", 1024, settings))
        session = engine.service.session()
        print(f"session after {time.perf_counter() - began:.1f} s, load {os.getloadavg()[0]:.0f}")
        spent = Spent(session.sparkContext._gateway.proc.pid)
        first = spent(lambda: session.sql("SELECT 1").toArrow())
        print(f"first answer {first[0]:.1f} s")
        data = Data(cases.case("q1", scale))
        inputs = stored(data.tables, Path(folder))
        views = {name: made(engine, data, inputs, name, spent) for name in names}
        for count, times in BATCHES.items():
            measure(views, data, count, times, spent)
        for dataflow in views.values():
            dataflow.close()
        engine.close()
        stop_spark()


def made(
    engine: SparkEngine, data: Data, inputs: dict[GlobalId, Input], name: str, spent: Spent
) -> SparkDataflow:
    """Return the hydrated dataflow of a view."""
    relation = planned(data.catalog, tpch.VIEWS[name])
    sources = tuple(sorted(sources_of(relation)))
    description = DataflowDescription(GlobalId("t1"), relation, sources, (), START)
    dataflow = engine.create(description, {id: data.tables[id].schema for id in sources})
    assert isinstance(dataflow, SparkDataflow)
    wall, cpu = spent(lambda: dataflow.hydrate({id: inputs[id] for id in sources}))
    state = sum(size.bytes for size in dataflow.sizes()) / 1e6
    print(
        f"{name:4} hydrated in {wall:.1f} s, {cpu:.1f} CPU, {state:.0f} MB,"
        f" load {os.getloadavg()[0]:.0f}",
        flush=True,
    )
    return dataflow


def measure(
    views: dict[str, SparkDataflow], data: Data, count: int, times: int, spent: Spent
) -> None:
    """Print what steps of `count` changed rows take, for each view and for all."""
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in views}
    random = np.random.default_rng(count)
    now = START + 1 + count * APART * 100
    for number in range(times + WARM_UP):
        change = data.case.change(count, random)
        for is_back in (False, True):
            now += APART
            deltas = {}
            for table, (old, new) in change.items():
                rows = [cases.cast(each, data.catalog, table) for each in (old, new)]
                signs = (1, -1) if is_back else (-1, 1)
                parts = [cases.at(each, now, sign) for each, sign in zip(rows, signs, strict=True)]
                deltas[data.ids[table]] = pa.concat_tables(parts).combine_chunks()
            for name, dataflow in views.items():
                step = spent(lambda: dataflow.step(now, now + 1, deltas))  # noqa: B023
                if number >= WARM_UP:
                    found[name].append(step)
    for name, steps in found.items():
        store = views[name]._spark_store
        print(
            f"{name:4} {count:6} rows: {statistics.median(w for w, _ in steps):.2f} s,"
            f" {statistics.median(c for _, c in steps):.2f} CPU,"
            f" {store.files_read} of {store.files_there} files, {store.jobs} jobs",
            flush=True,
        )
    alls = [sum(each[i][0] for each in found.values()) for i in range(2 * times)]
    cpus = [sum(each[i][1] for each in found.values()) for i in range(2 * times)]
    print(
        f"all  {count:6} rows: {statistics.median(alls):.2f} s, {statistics.median(cpus):.2f} CPU,"
        f" load {os.getloadavg()[0]:.0f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
