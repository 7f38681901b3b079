"""Hydration by Spark beside DuckDB: `python -m tests.bench.hydrate [scale] [master] [views]`.

The master may be `workers:N`: a standalone one with N workers of a core, each with an executor.

Each view of TPC-H is hydrated twice from the files in which tables are stored, by DuckDB and by
Spark, and both have to put out the same rows. Shown are wall time, CPU (with that of the JVM and of
Python workers), the bytes in files of the columns and row groups that statements need, what all
processes of Spark have read, of files, pipes and each other, and, as its tasks have counted them,
the bytes and the time of shuffles and spills. Tasks do not count what Parquet's reader reads.
Spark starts before the first view; its start is shown by itself.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.warm import warm
from foreshore.compute.hydrate.engines import BulkEngines
from foreshore.compute.hydrate.lend import SparkLender
from foreshore.compute.hydrate.policy import Machines
from foreshore.compute.protocol import DataflowDescription
from foreshore.compute.spark.options import SparkOptions
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from tests.bench import cases, tpch
from tests.bench.flow import START, Data, planned, stored
from tests.compute.spark.standalone import Standalone

MEMORY_MB = 1024
VIEWS = ("q3", "q5", "q9", "q18")
TICKS = os.sysconf("SC_CLK_TCK")


def tree_of(pid: int) -> list[int]:
    """Return a process and all below it."""
    path = Path(f"/proc/{pid}/task/{pid}/children")
    below = path.read_text().split() if path.exists() else []
    return [pid, *(each for child in below for each in tree_of(int(child)))]


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU of a process and all below it, with those that have ended."""
    total = 0
    for each in tree_of(pid):
        try:
            fields = Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def read_by(pid: int) -> int:
    """Return the bytes that a process and all below it have read, those that have ended left out."""
    total = 0
    for each in tree_of(pid):
        with suppress(OSError):
            total += int(Path(f"/proc/{each}/io").read_text().split()[1])
    return total


@dataclass(frozen=True)
class Tasks:
    """The work of the tasks of all jobs so far; sizes are in megabytes, times in seconds."""

    written: float = 0  # to shuffles
    spilled: float = 0
    run: float = 0
    collecting: float = 0  # garbage
    stages: int = 0
    tasks: int = 0

    def __sub__(self, before: "Tasks") -> "Tasks":
        return Tasks(
            *(one - other for one, other in zip(astuple(self), astuple(before), strict=True))
        )

    def __str__(self) -> str:
        return (
            f"{self.stages} stages, {self.tasks} tasks of {self.run:.1f} s, {self.collecting:.1f} s"
            f" of it for garbage; {self.written:.1f} MB to shuffles, {self.spilled:.1f} MB spilled"
        )


def tasks_of(context: Any) -> Tasks:
    """Return what Spark's tasks have done; it knows the last thousand stages."""
    store, jvm = context._jsc.sc().statusStore(), context._jvm
    listed = store.stageList(
        jvm.java.util.ArrayList(), False, False, context._gateway.new_array(jvm.double, 0),
        jvm.java.util.ArrayList(),
    )  # fmt: skip
    found = [listed.apply(place) for place in range(listed.size())]
    return Tasks(
        sum(each.shuffleWriteBytes() for each in found) / 1e6,
        sum(each.diskBytesSpilled() for each in found) / 1e6,
        sum(each.executorRunTime() for each in found) / 1e3,
        sum(each.jvmGcTime() for each in found) / 1e3,
        len(found),
        sum(each.numCompleteTasks() for each in found),
    )


def rows_of(table: pa.Table) -> list[str]:
    """Return rows in an order that does not depend on how they came."""
    return sorted(map(str, table.to_pylist()))


def main() -> None:
    """Print lines for each view and engine."""
    warm()
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    master = sys.argv[2] if len(sys.argv) > 2 else "local[2]"
    data = Data(cases.case("q1", scale))
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="foreshore-bench-"))
        others: list[int] = []
        conf = {}
        if master.startswith("workers:"):
            workers = int(master.removeprefix("workers:"))
            cluster = stack.enter_context(Standalone(Path(folder), workers, MEMORY_MB + 400))
            master, conf = cluster.url, {"spark.executor.cores": "1"}
            others = cluster.processes
        tables = stored(data.tables, Path(folder))
        size = sum(os.path.getsize(path) for each in tables.values() for path in each.files)
        local = DuckDbEngine(memory_limit=f"{MEMORY_MB}MB", directories=(folder,), scratch=folder)
        stack.callback(local.close)
        options = SparkOptions(
            Path(folder) / "spark", master, MEMORY_MB, conf, executor_memory_mb=MEMORY_MB
        )
        lender = SparkLender(options, 3600)
        stack.callback(lender.close)
        began = time.perf_counter()
        with lender.lent("start") as spark:
            context = spark.service.session().sparkContext
        pids = [context._gateway.proc.pid, *others]
        print(
            f"scale {scale}, {size / 1e6:.0f} MB of files, {master}, load"
            f" {os.getloadavg()[0]:.0f}; start {time.perf_counter() - began:.1f} s,"
            f" {sum(map(cpu_of, pids)):.1f} s CPU",
            flush=True,
        )
        for name in sys.argv[3:] or VIEWS:
            relation = planned(data.catalog, tpch.VIEWS[name])
            sources = tuple(sorted(sources_of(relation)))
            found: dict[str, pa.Table] = {}
            for mode in ("local", "spark"):
                engines = BulkEngines(local, lender, mode, Machines())
                engine = FlowEngine(local, engines)
                description = DataflowDescription(GlobalId("t1"), relation, sources, (), START)
                dataflow = engine.create(description, {})
                inputs = {id: tables[id] for id in sources}

                def hydrate(dataflow: object = dataflow, inputs: object = inputs) -> pa.Table:
                    return dataflow.hydrate(inputs).rows  # type: ignore[attr-defined]

                found[mode] = measured(name, mode, pids, context, hydrate)
                for status in engine.hydrations(description.id):
                    print(f"    {status}", flush=True)
                dataflow.close()
            assert rows_of(found["local"]) == rows_of(found["spark"]), name


def measured(
    name: str, mode: str, pids: Sequence[int], context: Any, work: Callable[[], pa.Table]
) -> pa.Table:
    """Run `work`, print what it took, and return its result."""
    before, wall, own, jvm = tasks_of(context), time.perf_counter(), time.process_time(), 0.0
    jvm -= sum(map(cpu_of, pids))
    read = -sum(map(read_by, pids))
    result = work()
    wall, own = time.perf_counter() - wall, time.process_time() - own
    jvm += sum(map(cpu_of, pids))
    read += sum(map(read_by, pids))
    print(
        f"{name} by {mode}: {wall:.1f} s, {own:.1f} s CPU here, {jvm:.1f} of Spark,"
        f" which read {read / 1e6:.0f} MB; {result.num_rows} rows; load {os.getloadavg()[0]:.0f}",
        flush=True,
    )
    if mode == "spark":
        print(f"    {tasks_of(context) - before}", flush=True)
    return result


if __name__ == "__main__":
    main()
