"""Linear plans stepped by the kernels have the bulk engine's output."""

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Dataflow, Engine, Input
from foreshore.compute.linear_dataflow import LinearDataflow, LinearFirst
from foreshore.compute.protocol import DataflowDescription
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Call,
    Column,
    Filter,
    Let,
    Literal,
    LocalGet,
    Map,
    Negate,
    Project,
    Relation,
    Union,
)
from foreshore.types import BOOL, INT4, TEXT
from foreshore.update import update_schema
from tests.compute.runtime.harness import KV_SCHEMA, counts_of, id_, table
from tests.effort import examples

K = Column(0, INT4)
V = Column(1, TEXT)
ONE, TWO = table("u1", "u2")
QUOTIENT = Call("divide(int4,int4)", (Literal(6, INT4), K), INT4)
IS_A = Call("eq", (V, Literal("a", TEXT)), BOOL)

PLANS: list[Relation] = [
    ONE,
    Project(ONE, (1, 0, 1)),
    Map(ONE, (QUOTIENT, Column(2, INT4))),
    Filter(Map(ONE, (QUOTIENT,)), (IS_A,)),
    Union((ONE, TWO, Filter(ONE, (IS_A,)))),
    Let(1, Map(ONE, (K,)), Union((LocalGet(1, columns_of(Map(ONE, (K,)))), Map(TWO, (K,))))),
    Union((ONE, TWO, Negate(Filter(ONE, (IS_A,))))),
]

Update = tuple[int | None, str | None, int, int]
rows = st.tuples(st.sampled_from([None, 0, 1, 2]), st.sampled_from([None, "a", "b"]))
windows = st.lists(
    st.lists(st.tuples(rows, st.integers(0, 2), st.sampled_from([1, 1, -1])), max_size=4),
    max_size=4,
)


def updates_of(updates: list[Update]) -> pa.Table:
    columns = list(zip(*updates, strict=True)) or [()] * 4
    schema = update_schema(KV_SCHEMA)
    arrays = [pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


def counted(table: pa.Table) -> Counter[tuple[object, ...]]:
    counts: Counter[tuple[object, ...]] = Counter()
    for *row, diff in zip(*(c.to_pylist() for c in table.columns), strict=True):
        counts[tuple(row)] += diff
    return Counter({row: n for row, n in counts.items() if n})


@pytest.fixture(scope="module")
def duckdb() -> Engine:
    return DuckDbEngine()


@pytest.mark.parametrize("plan", PLANS, ids=range(len(PLANS)))
@settings(max_examples=examples(15))
@given(one=windows, two=windows)
def test_linear_dataflow_equals_bulk_engine(
    duckdb: Engine,
    plan: Relation,
    one: list[list[tuple[tuple[int | None, str | None], int, int]]],
    two: list[list[tuple[tuple[int | None, str | None], int, int]]],
) -> None:
    description = DataflowDescription(id_("u9"), plan, (id_("u1"), id_("u2")), (), 1)
    schemas = {id_("u1"): KV_SCHEMA, id_("u2"): KV_SCHEMA}
    linear = LinearFirst(duckdb).create(description, schemas)
    assert isinstance(linear, LinearDataflow)
    dataflows: list[Dataflow] = [linear, duckdb.create(description, schemas)]
    first = updates_of([(1, "a", 1, 1), (0, "b", 1, 1), (2, None, 1, 2)])
    inputs = {id_(u): Input(KV_SCHEMA, (), (first,)) for u in ("u1", "u2")}
    outputs = [dataflow.hydrate(inputs) for dataflow in dataflows]
    lower = 2
    for mine, other in zip(one, two, strict=False):
        assert counted(outputs[0].rows) == counted(outputs[1].rows)
        assert counted(outputs[0].errors) == counted(outputs[1].errors)
        deltas = {
            id_(u): updates_of([(*row, lower + at, diff) for row, at, diff in window])
            for u, window in (("u1", mine), ("u2", other))
            if window
        }
        outputs = [dataflow.step(lower, lower + 3, deltas) for dataflow in dataflows]
        lower += 3
    assert counted(outputs[0].rows) == counted(outputs[1].rows)
    assert counted(outputs[0].errors) == counted(outputs[1].errors)
    for dataflow in dataflows:
        dataflow.close()


def test_nonlinear_plan_uses_bulk_engine(duckdb: Engine) -> None:
    description = DataflowDescription(id_("u9"), counts_of(ONE), (id_("u1"),), (), 1)
    dataflow = LinearFirst(duckdb).create(description, {id_("u1"): KV_SCHEMA})
    assert not isinstance(dataflow, LinearDataflow)
