"""Hydration by Spark beside DuckDB: `python -m tests.bench.hydrate [scale] [master] [views]`.

Each view of TPC-H is hydrated twice from the files in which tables are stored, by DuckDB and by
Spark, and both have to put out the same rows. Shown are wall time, CPU (with that of the JVM and of
Python workers), the bytes in files of the columns and row groups that statements read, and what the
JVM read while it was up. Spark starts before the first view; its start is shown by itself.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

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
    """Return the bytes that a process has read, from files and pipes."""
    line = Path(f"/proc/{pid}/io").read_text().splitlines()[0]
    return int(line.split()[1])


def rows_of(table: pa.Table) -> list[str]:
    """Return rows in an order that does not depend on how they came."""
    return sorted(map(str, table.to_pylist()))


def main() -> None:
    """Print a line for each view and engine."""
    warm()
    scale = float(sys.argv[1]) if len(sys.argv) > 1 else 0.1
    master = sys.argv[2] if len(sys.argv) > 2 else "local[2]"
    data = Data(cases.case("q1", scale))
    with tempfile.TemporaryDirectory(prefix="foreshore-bench-") as folder:
        tables = stored(data.tables, Path(folder))
        size = sum(os.path.getsize(path) for each in tables.values() for path in each.files)
        local = DuckDbEngine(memory_limit=f"{MEMORY_MB}MB", directories=(folder,), scratch=folder)
        lender = SparkLender(SparkOptions(Path(folder) / "spark", master, MEMORY_MB), 3600)
        began = time.perf_counter()
        with lender.lent("start") as spark:
            pid = spark.service.session().sparkContext._gateway.proc.pid
        print(
            f"scale {scale}, {size / 1e6:.0f} MB of files, {master}, load"
            f" {os.getloadavg()[0]:.0f}; start {time.perf_counter() - began:.1f} s,"
            f" {cpu_of(pid):.1f} s CPU",
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

                found[mode] = measured(name, mode, pid, hydrate)
                for status in engine.hydrations(description.id):
                    print(f"    {status}", flush=True)
                dataflow.close()
            assert rows_of(found["local"]) == rows_of(found["spark"]), name
        lender.close()
        local.close()


def measured(name: str, mode: str, pid: int, work: Callable[[], pa.Table]) -> pa.Table:
    """Run `work`, print what it took, and return its result."""
    wall, own, jvm, read = time.perf_counter(), time.process_time(), cpu_of(pid), read_by(pid)
    result = work()
    wall, own = time.perf_counter() - wall, time.process_time() - own
    print(
        f"{name} by {mode}: {wall:.1f} s, {own:.1f} s CPU here, {cpu_of(pid) - jvm:.1f} of Spark,"
        f" which read {(read_by(pid) - read) / 1e6:.0f} MB; {result.num_rows} rows",
        flush=True,
    )
    return result


if __name__ == "__main__":
    main()
