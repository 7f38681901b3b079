"""Recursions over random graphs: `python -m tests.bench.recursion [nodes]`.

For each view: the CPU to hydrate it on one core, of a step in which an edge is added or removed,
and of computing it anew as a query does; the rounds, and the memory of its arrangements.
"""

import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np
import pyarrow as pa

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Cancellation, Input, rows_schema
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.dataflow import FlowDataflow
from foreshore.compute.flow.intern import Interner
from foreshore.compute.local.recursion import Evaluation
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Get
from foreshore.expr.recursion import block_of
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateView
from foreshore.sql.planner import plan_statement
from foreshore.update import DIFF, TIME
from tests.sql.catalog import TestCatalog

START = 1
T = TypeVar("T")
STEPS = 100
VIEWS = {
    "reached": "r (n int) AS (SELECT 0 UNION SELECT e.b FROM r JOIN e ON e.a = r.n) TABLE r",
    "distances": "d (n int, far int) AS (SELECT n, min(far) FROM (SELECT 0 AS n, 0 AS far UNION ALL"
    " SELECT e.b, d.far + 1 FROM d JOIN e ON e.a = d.n) s GROUP BY n) TABLE d",
    "components": "c (n int, least int) AS (SELECT n, min(least) FROM (SELECT a AS n, a AS least FROM e"
    " UNION ALL SELECT b, b FROM e UNION ALL SELECT s.b, c.least FROM c JOIN"
    " (SELECT a, b FROM e UNION ALL SELECT b, a FROM e) s ON s.a = c.n) t GROUP BY n) TABLE c",
}


def main(nodes: int) -> None:
    """Print a line for each view."""
    engine = DuckDbEngine(threads=1)
    for name, query in VIEWS.items():
        print(f"{name:12} {measured(engine, query, nodes)}", flush=True)
    engine.close()


def measured(engine: DuckDbEngine, query: str, nodes: int) -> str:
    """Return what a view costs."""
    catalog = TestCatalog("CREATE TABLE e (a int, b int)")
    (statement,) = parse(f"CREATE VIEW v AS WITH MUTUALLY RECURSIVE {query}")
    plan = plan_statement(statement, catalog)
    assert isinstance(plan, CreateView)
    relation = plan.query.relation
    get = next(node for node in walk_relations(relation) if isinstance(node, Get))
    random = np.random.default_rng(1)
    edges = random.integers(0, nodes, (3 * nodes // 2, 2)).astype(np.int32)
    schema = rows_schema(get.columns)
    inputs = {get.id: Input(schema, (), (updates(schema, edges, START, 1),))}
    description = DataflowDescription(GlobalId("t1"), relation, (get.id,), (), START)

    def hydrated() -> FlowDataflow:
        dataflow = FlowDataflow(description, engine, Collections(Interner(), 7))
        dataflow.hydrate(inputs)
        return dataflow

    def anew() -> None:
        with engine.evaluations(cancellation := Cancellation()) as evaluations:
            evaluation = Evaluation(inputs, START, evaluations, cancellation.check)
            steps = evaluation.parts(block_of(relation))
            try:
                while True:
                    next(steps)
            except StopIteration as stop:
                list(stop.value)

    hydrated().close()  # loads the kernels
    dataflow, hydration = timed(hydrated)
    costs, now = [], START
    for _ in range(STEPS // 2):
        edge = random.integers(0, nodes, (1, 2)).astype(np.int32)
        for diff in (1, -1):
            now += 1
            change = {get.id: updates(schema, edge, now, diff)}
            costs.append(timed(partial(dataflow.step, now, now + 1, change))[1])
            while dataflow.maintenance_due:
                dataflow.maintain()
    size = sum(size.bytes for size in dataflow.sizes()) >> 20
    dataflow.close()
    return (
        f"anew {timed(anew)[1]:8.0f} ms, hydration {hydration:8.0f} ms,"
        f" step {statistics.median(costs):6.2f} ms (at most {max(costs):.0f}), {size} MB"
    )


def updates(schema: pa.Schema, rows: np.ndarray, time: int, diff: int) -> pa.Table:
    """Return edges as updates."""
    columns = [pa.array(rows[:, 0]), pa.array(rows[:, 1])]
    columns += [pa.array(np.full(len(rows), value)) for value in (time, diff)]
    return pa.Table.from_arrays(columns, names=[*schema.names, TIME, DIFF])


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return what a call gives, and its CPU time in milliseconds."""
    started = time.process_time()
    found = call()
    return found, 1000 * (time.process_time() - started)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20_000)
