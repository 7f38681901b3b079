"""Operators count the rows and the CPU time of their steps."""

from collections.abc import Iterator

import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Dataflow, Input
from foreshore.compute.flow.build import Builder
from foreshore.compute.flow.collection import Collections
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.flow.work import Work
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from tests.compute.flow.test_sizes import SCHEMAS, updates
from tests.compute.plans import PLANS


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    bulk = DuckDbEngine(threads=1)
    yield FlowEngine(bulk)
    bulk.close()


def begun(engine: FlowEngine, name: str, rows: int) -> Dataflow:
    """Return a dataflow of a plan, hydrated with some rows in each input."""
    relation = PLANS[name]
    ids = tuple(sorted(sources_of(relation)))
    description = DataflowDescription(GlobalId("t1"), relation, ids, (), 1)
    dataflow = engine.create(description, SCHEMAS)
    dataflow.hydrate({id: Input(SCHEMAS[id], (), (updates(id, 0, rows, 1),)) for id in ids})
    return dataflow


def test_rows_are_counted_at_each_operator(engine: FlowEngine) -> None:
    dataflow = begun(engine, "join", 40)
    dataflow.step(2, 3, {id: updates(id, 40, 10, 2) for id in SCHEMAS})
    work = list(dataflow.work())
    assert [(w.operator, w.name, w.inputs) for w in work[:3]] == [
        (0, "Get", ()),
        (1, "Get", ()),
        (2, "Delta join", (0, 1)),
    ]
    assert [(w.steps, w.rows_in, w.rows_out) for w in work[:3]] == [
        (2, 0, 50),
        (2, 0, 50),
        (2, 100, 50),
    ]
    dataflow.close()


def test_times_of_hydration_steps_and_merges_are_told_apart(engine: FlowEngine) -> None:
    dataflow = begun(engine, "join", 2000)
    assert sum(w.hydration_ns for w in dataflow.work()) > 0
    assert sum(w.step_ns + w.merge_ns for w in dataflow.work()) == 0
    for time in range(2, 6):  # more rows than a tail has, so there are runs to merge
        deltas = {id: updates(id, 20_000 * time, 20_000, time) for id in SCHEMAS}
        dataflow.step(time, time + 1, deltas)
    hydrated = sum(w.hydration_ns for w in dataflow.work())
    assert all(w.step_ns > 0 for w in dataflow.work())
    assert dataflow.maintenance_due
    while dataflow.maintain():
        pass
    assert sum(w.hydration_ns for w in dataflow.work()) == hydrated
    assert sum(w.merge_ns for w in dataflow.work()) > 0
    assert sum(size.merges for size in engine.sizes()) > 0
    dataflow.close()


def test_each_kind_of_operator_has_a_name() -> None:
    kinds: set[type] = set()
    for relation in PLANS.values():
        builder = Builder(Collections(Interner(), 0), 1)
        try:
            builder.output(relation)
        except Unsupported:
            continue
        work = Work(builder.operators)
        assert [each.operator for each in work.operators()] == list(range(len(builder.operators)))
        kinds.update(map(type, builder.operators))
    assert len(kinds) >= 8, kinds
