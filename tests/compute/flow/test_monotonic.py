"""Over collections that rows never leave, minima, maxima and first rows keep what counts only."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import msgspec
import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow import hydration, ordered
from foreshore.compute.flow.describe import describe_operators
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.unsupported import Unsupported
from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import InternalError
from foreshore.expr.ir import (
    Filter,
    Get,
    Join,
    Let,
    LocalGet,
    Negate,
    Reduce,
    Relation,
    TopK,
    Union,
    count_all,
)
from foreshore.expr.monotonic import is_monotonic
from foreshore.expr.traversal import inputs_of, with_inputs
from foreshore.ids import GlobalId
from foreshore.update import update_schema
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.plans import PLANS, U1, column
from tests.model import Row, Rows
from tests.relations import TABLES

SCHEMAS = {U1.id: pa.schema({"a": pa.int32(), "b": pa.int32(), "c": pa.string()})}
MOST_KEPT = 60  # updates: two rows of two groups, and what is not merged yet


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    bulk = DuckDbEngine(threads=1)
    yield FlowEngine(bulk)
    bulk.close()


def growing(relation: Relation) -> Relation:
    """Return a plan over the same collections, from which no rows go."""
    if isinstance(relation, Get):
        return msgspec.structs.replace(relation, append_only=True)
    return with_inputs(relation, tuple(map(growing, inputs_of(relation))))


def growing_history(random: Random) -> list[dict[GlobalId, Rows]]:
    """Return versions of the tables, each of which has all rows of the one before."""
    history: list[dict[GlobalId, Rows]] = []
    for version in random_history(random, times=6):
        before = history[-1] if history else {table.id: Counter() for table in TABLES}
        now = {}
        for table in TABLES:
            rows = now[table.id] = Counter(before[table.id])
            keys = {_key(table, row) for row in rows}
            added = version[table.id].items()
            rows.update(
                {row: n for row, n in added if not table.keys or _key(table, row) not in keys}
            )
        history.append(now)
    return history


def _key(table: Get, row: Row) -> Row:
    return tuple(row[i] for key in table.keys for i in key)


@pytest.mark.parametrize("name", PLANS)
def test_each_operator_is_exact_at_every_time(
    engine: FlowEngine, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ordered, "EAGER", 4)
    random = Random(name)
    for in_bulk in (False, True):
        monkeypatch.setattr(hydration, "BULK_ROWS", 0 if in_bulk else 1 << 60)
        cuts = frozenset(random.sample(range(2, 6), random.randint(0, 3)))
        try:
            check_maintained(engine, Case(growing(PLANS[name]), growing_history(random), cuts))
        except Unsupported as error:
            pytest.skip(str(error))


def updates(start: int, time: int, diff: int = 1) -> pa.Table:
    """Return 1,000 rows in two groups."""
    numbers = range(start, start + 1000)
    groups, texts = [n % 2 for n in numbers], [str(n) for n in numbers]
    columns = [groups, list(numbers), texts, [time] * 1000, [diff] * 1000]
    schema = update_schema(SCHEMAS[U1.id])
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize("name", ["minimum and maximum by key", "top two by key"])
def test_only_rows_that_count_are_kept(engine: FlowEngine, name: str) -> None:
    relation = growing(PLANS[name])
    assert "as the input is monotonic" in describe_operators(relation)
    description = DataflowDescription(GlobalId("t1"), relation, (U1.id,), (), 1)
    dataflow = engine.create(description, SCHEMAS)
    dataflow.hydrate({U1.id: Input(SCHEMAS[U1.id], (), (updates(0, 1),))})
    for time in range(2, 9):
        dataflow.step(time, time + 1, {U1.id: updates(1000 * time, time)})
        rows = [each.records for each in dataflow.sizes() if each.name == "ordered rows"]
        assert rows
        assert max(rows) <= MOST_KEPT
    with pytest.raises(InternalError, match="append-only"):
        dataflow.step(9, 10, {U1.id: updates(0, 9, -1)})
    dataflow.close()


def test_a_plan_is_monotonic_if_no_row_of_it_leaves() -> None:
    t, u = growing(U1), U1
    a = column(0)
    value = LocalGet(0, U1.columns)
    assert is_monotonic(Filter(t, ()))
    assert is_monotonic(Reduce(t, (a,), ()))
    assert is_monotonic(Let(0, t, Join((value, t))))
    assert not is_monotonic(Let(0, u, Join((value, t))))
    assert not is_monotonic(Union((Let(0, t, value), Let(0, u, value))))
    assert not is_monotonic(Filter(u, ()))
    assert not is_monotonic(Union((t, Negate(t))))
    assert not is_monotonic(Reduce(t, (a,), (count_all(),)))
    assert not is_monotonic(TopK(t, (), (), None))
