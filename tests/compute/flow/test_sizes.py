"""The sizes of arrangements follow their contents."""

import weakref
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Dataflow, Input
from foreshore.compute.flow.batch import Batch, Words
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.operators.operator import Window
from foreshore.compute.flow.operators.reduce import Reduce
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.ir import Call, Filter, Relation
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.types import BOOL
from foreshore.update import update_schema
from tests.compute.plans import PLANS, U1, U2, column

SCHEMAS = {
    U1.id: pa.schema({"a": pa.int32(), "b": pa.int32(), "c": pa.string()}),
    U2.id: pa.schema({"a": pa.int32(), "b": pa.int32()}),
}
SETTINGS = [
    ("join", [(None, "rows", 40), (None, "rows", 40)]),
    ("count and sum by key", [(1, "sums", 40)]),
    ("minimum and maximum by key", [(1, "sums", 40), (1, "ordered rows", 40), (1, "ordered rows", 40)]),
    ("top two by key", [(1, "ordered rows", 40)]),
    ("distinct", [(1, "sums", 40)]),
    ("filter", []),
]  # fmt: skip


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    bulk = DuckDbEngine(threads=1)
    yield FlowEngine(bulk)
    bulk.close()


def updates(id: GlobalId, start: int, count: int, time: int, diff: int = 1) -> pa.Table:
    numbers = list(range(start, start + count))
    columns = [pa.array(numbers, pa.int32()), pa.array(numbers, pa.int32())]
    if id == U1.id:
        columns.append(pa.array(map(str, numbers)))
    columns += [pa.array([time] * count, pa.int64()), pa.array([diff] * count, pa.int64())]
    return pa.Table.from_arrays(columns, schema=update_schema(SCHEMAS[id]))


@pytest.mark.parametrize(("name", "wanted"), SETTINGS)
def test_each_arrangement_has_its_size(
    engine: FlowEngine, name: str, wanted: list[tuple[int, str, int]]
) -> None:
    relation: Relation = PLANS[name]
    ids = tuple(sorted(sources_of(relation)))
    description = DataflowDescription(GlobalId("t1"), relation, ids, (), 1)
    dataflow = engine.create(description, SCHEMAS)
    dataflow.hydrate({id: Input(SCHEMAS[id], (), (updates(id, 0, 40, 1),)) for id in ids})
    first = sizes_of(engine, dataflow)
    assert [each[:3] for each in first] == wanted
    dataflow.step(2, 3, {id: updates(id, 40, 1000, 2) for id in ids})
    second = sizes_of(engine, dataflow)
    assert [each[2] for each in second] == [1040 for _ in wanted]
    assert all(b[3] > a[3] for a, b in zip(first, second, strict=True))
    dataflow.close()
    assert sizes_of(engine, dataflow) == []


def sizes_of(engine: FlowEngine, dataflow: Dataflow) -> list[tuple[int | None, str, int, int]]:
    """Return the sizes of a dataflow's arrangements and of the collections that are shared."""
    sizes = [*dataflow.sizes(), *(each for each in engine.sizes() if each.object is not None)]
    return [(each.operator, each.name, each.records, each.bytes) for each in sizes]


def test_strings_are_those_of_the_whole_replica(engine: FlowEngine) -> None:
    (before,) = engine.sizes()
    description = DataflowDescription(GlobalId("t1"), PLANS["distinct"], (U1.id,), (), 1)
    dataflow = engine.create(description, SCHEMAS)
    dataflow.hydrate({U1.id: Input(SCHEMAS[U1.id], (), (updates(U1.id, 7000, 5000, 1),))})
    (after,) = engine.sizes()
    assert (before.name, after.name) == ("strings", "strings")
    assert after.records == before.records + 5000
    assert after.bytes > before.bytes
    dataflow.close()


def test_nothing_of_a_step_stays_in_memory_but_state(
    engine: FlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[weakref.ref[Words]] = []

    def noted(reduce: Reduce, window: Window, inputs: Sequence[Batch]) -> Batch:
        found = step(reduce, window, inputs)
        made.extend(weakref.ref(each.words) for each in (*inputs, found))
        return found

    step = Reduce.step
    monkeypatch.setattr(Reduce, "step", noted)
    relation = Filter(PLANS["count and sum by key"], (Call("is_null", (column(0),), BOOL),))
    description = DataflowDescription(GlobalId("t1"), relation, (U1.id,), (), 1)
    dataflow = engine.create(description, SCHEMAS)
    dataflow.hydrate({U1.id: Input(SCHEMAS[U1.id], (), (updates(U1.id, 0, 40, 1),))})
    dataflow.step(2, 3, {U1.id: updates(U1.id, 40, 1000, 2)})
    assert len(made) == 4
    assert all(words() is None for words in made)
    dataflow.close()
