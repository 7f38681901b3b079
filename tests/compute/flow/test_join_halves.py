"""A look-up that finds very many rows is made in parts, between which memory is looked at."""

import gc
import weakref
from collections import Counter
from collections.abc import Iterator
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.compute.engine import Input
from foreshore.compute.flow import hydration
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.engine import FlowEngine
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.kernels.probing import TooManyMatches
from foreshore.compute.flow.operators import join
from foreshore.compute.flow.spine import Spine
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


@pytest.mark.parametrize("rows", [10, 10_000], ids=["tail", "run"])
def test_look_up_that_finds_too_much_keeps_nothing_in_memory(rows: int) -> None:
    places = np.arange(2)
    words = np.stack([np.zeros(rows, np.int64), np.arange(rows)], 1)
    ones = np.ones(rows, np.int64)
    spine = Spine([places[:1]], np.zeros(2, np.int64), Interner(), 7)
    spine.insert(Batch(words, ones, ones))
    wanted = Batch(np.zeros((2, 1), np.int64), np.ones(2, np.int64), np.ones(2, np.int64))
    arrays = [spine.tail.words, wanted.words, *(run.words for run in spine.runs)]
    left = [weakref.ref(array) for array in arrays]
    with pytest.raises(TooManyMatches):
        spine.joined(0, wanted, places[:0], places, 5, rows)
    del arrays, spine, wanted, words
    gc.collect()
    assert not any(array() is not None for array in left)


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
