"""A look-up that finds very many rows is made in parts, between which memory is looked at."""

from collections import Counter
from collections.abc import Iterator
from random import Random

import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow import hydration
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.operators import join
from foreshore.compute.memory_limit import MemoryBudget, MemoryLimitExceeded
from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import QueryCanceled
from foreshore.expr.ir import Join, Reduce, count_all
from foreshore.ids import GlobalId
from foreshore.update import update_schema
from tests.compute.cases import Case, check_maintained, random_history
from tests.compute.plans import PLANS, U2, column

SCHEMA = pa.schema({"a": pa.int32(), "b": pa.int32()})
JOINS = [name for name in PLANS if "join" in name]
SAME_KEY = Join((U2, U2, U2), ((column(0), column(2), column(4)),))


@pytest.fixture(scope="module")
def engine() -> Iterator[FlowEngine]:
    bulk = DuckDbEngine(threads=1)
    yield FlowEngine(bulk)
    bulk.close()


@pytest.mark.parametrize("name", JOINS)
@pytest.mark.parametrize("most", [0, 3])
def test_joins_in_halves_are_exact(
    engine: FlowEngine, name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "MOST_MATCHES", most)
    monkeypatch.setattr(hydration, "BULK_ROWS", 1 << 60)
    random = Random(name)
    for _ in range(5):
        check_maintained(engine, Case(PLANS[name], random_history(random, rows=9), frozenset({3})))


def test_join_of_equal_keys_in_halves_is_exact(
    engine: FlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "MOST_MATCHES", 50)
    rows = [Counter({(key % 3, key): 1 for key in range(n)}) for n in (4, 40, 20, 41)]
    case = Case(Reduce(SAME_KEY, (column(0),), (count_all(),)), [{U2.id: each} for each in rows])
    check_maintained(engine, case)


def updates(count: int, time: int) -> pa.Table:
    """Return rows with one key."""
    columns = [[1] * count, list(range(count)), [time] * count, [1] * count]
    schema = update_schema(SCHEMA)
    arrays = [pa.array(each, field.type) for each, field in zip(columns, schema, strict=True)]
    return pa.Table.from_arrays(arrays, schema=schema)


@pytest.mark.parametrize(("ending", "most"), [("limit", 160), ("drop", 10)])
def test_join_ends_between_its_halves(
    engine: FlowEngine, ending: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The changes of one input find no rows in 127 calls, those of the other 4,000,000."""
    monkeypatch.setattr(join, "MOST_MATCHES", 100_000)
    relation = Join((U2, U2), ((column(0), column(2)),))
    description = DataflowDescription(GlobalId("t1"), relation, (U2.id,), (), 1)
    dataflow = engine.create(description, {U2.id: SCHEMA})
    dataflow.hydrate({U2.id: Input(SCHEMA, (), (updates(0, 1),))})
    budget = MemoryBudget(40_000_000)
    dataflow.limit_memory(budget)
    calls = 0
    through = join.Join._through

    def counted(*args: object) -> object:
        nonlocal calls
        calls += 1
        if ending == "drop" and calls == 8:
            dataflow.cancel()
        return through(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(join.Join, "_through", counted)
    expected = MemoryLimitExceeded if ending == "limit" else QueryCanceled
    if ending == "drop":
        budget.limit = None
    with pytest.raises(expected):
        dataflow.step(2, 3, {U2.id: updates(2000, 2)})
    assert calls < most  # of 254
    dataflow.close()
