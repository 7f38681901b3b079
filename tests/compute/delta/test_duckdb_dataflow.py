"""A random plan over random changes, maintained by DuckDB, is exact at every time."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk import duckdb
from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import OutOfMemory
from foreshore.expr.ir import Join, Reduce, Relation, count_all
from foreshore.ids import GlobalId
from foreshore.update import update_schema
from tests.compute.cases import (
    START,
    Case,
    check_maintained,
    random_history,
    schema_of,
    updates,
)
from tests.compute.packing import check_packed
from tests.compute.plans import PLANS, U1, U2, column
from tests.effort import examples
from tests.relations import histories, lowered_relations

pytestmark = pytest.mark.full  # random input, to an engine that is the second opinion


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    """Yield one engine for all cases."""
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


@st.composite
def cases(draw: st.DrawFn, failing: bool = False) -> Case:
    """Draw a plan, five versions of the tables, and cuts."""
    relation = draw(lowered_relations(size=draw(st.integers(1, 6)), failing=failing))
    return Case(relation, draw(histories(5)), frozenset(draw(st.sets(st.integers(2, 4)))))


@settings(max_examples=examples(200))
@given(cases())
def test_a_dataflow_is_exact_at_every_time(engine: DuckDbEngine, case: Case) -> None:
    check_maintained(engine, case)


@settings(max_examples=examples(200))
@given(cases(failing=True))
def test_errors_follow_failing_rows(engine: DuckDbEngine, case: Case) -> None:
    check_maintained(engine, case)


@pytest.mark.parametrize("name", PLANS)
def test_each_operator_is_exact_at_every_time(engine: DuckDbEngine, name: str) -> None:
    random = Random(name)
    for _ in range(15):
        cuts = frozenset(random.sample(range(2, 5), random.randint(0, 3)))
        check_maintained(engine, Case(PLANS[name], random_history(random), cuts))


@settings(max_examples=examples(50))
@given(lowered_relations(size=4), st.randoms(use_true_random=False))
def test_packed_cases_are_exact(engine: DuckDbEngine, relation: Relation, random: Random) -> None:
    check_packed(engine, relation, random, cases=4)


@pytest.mark.parametrize("name", PLANS)
def test_flickering_rows_are_exact(
    engine: DuckDbEngine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(duckdb, "CONSOLIDATE_TAIL_AFTER", 3)
    monkeypatch.setattr(duckdb, "CONSOLIDATE_AFTER", 2)
    random = Random(name)
    versions = random_history(random, times=3)
    history = [{id: random.choice(versions)[id] for id in versions[0]} for _ in range(24)]
    cuts = frozenset(random.sample(range(2, 24), random.randint(1, 8)))
    check_maintained(engine, Case(PLANS[name], history, cuts))


def test_often_changed_row_joins_once(engine: DuckDbEngine) -> None:
    """Joining all former versions of five rows with each other would take 10^9 and more."""
    many = 120
    history = [
        {U2.id: Counter({(1, i): 1, **{(key, key): 1 for key in range(2, 4)}})} for i in range(many)
    ]
    join = Join((U2,) * 5, (tuple(column(2 * i) for i in range(5)),))
    check_maintained(engine, Case(Reduce(join, (column(0),), (count_all(),)), history))


@pytest.mark.parametrize("count", [300_000, 600_000, 1_000_000])
def test_window_exceeding_memory_raises_out_of_memory(count: int) -> None:
    """When contents are consolidated, when they grow, and when the updates are loaded."""
    engine = DuckDbEngine(memory_limit="20MB", threads=1)
    join = Join((U1, U2), ((column(0), column(3)),))
    schemas = {table.id: schema_of(table.columns) for table in (U1, U2)}
    description = DataflowDescription(GlobalId("t1"), join, tuple(schemas), (), START)
    dataflow = engine.create(description, schemas)
    dataflow.hydrate({id: Input(schema) for id, schema in schemas.items()})
    keys, ones = pa.array(range(count), pa.int32()), pa.array([1] * count, pa.int64())
    times = pa.array([START + 1] * count, pa.int64())
    schema = update_schema(schemas[U2.id])
    many = pa.Table.from_arrays([keys, keys, times, ones], schema=schema)
    with pytest.raises(OutOfMemory):
        dataflow.step(START + 1, START + 2, {U2.id: many})
    few = {U1.id: updates(U1.columns, [((7, 1, "x"), START + 1, 1)]), U2.id: many.slice(0, 10)}
    assert dataflow.step(START + 1, START + 2, few).rows.num_rows == 1
    dataflow.close()
    engine.close()
