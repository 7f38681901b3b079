"""Steps are atomic, and their windows do not affect the output."""

from collections import Counter
from collections.abc import Iterator
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine, DuckDbStore
from foreshore.compute.protocol import DataflowDescription
from foreshore.errors import NumericValueOutOfRange
from foreshore.expr.columns import columns_of
from foreshore.expr.functions.registry import resolve_aggregate
from foreshore.expr.ir import (
    Aggregate,
    Column,
    Get,
    Join,
    Literal,
    Map,
    Negate,
    Project,
    Reduce,
    Relation,
    Union,
    count_all,
)
from foreshore.expr.split import shift
from foreshore.ids import GlobalId
from foreshore.types import INT4, INT8, ColumnType, numeric_of_scale
from tests.compute.cases import START, Case, check_maintained, initial, rows_of, run, updates
from tests.effort import examples
from tests.relations import histories, lowered_relations

WIDE = Context(prec=40)
T = Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(INT8)))


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    """Yield one engine for all cases."""
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


def least_by_key() -> Reduce:
    """Return the minimum by key, a group that examines rows."""
    return Reduce(T, (Column(0, INT4),), (Aggregate("min", (Column(1, INT8),), INT8),))


@settings(max_examples=examples(100))
@given(lowered_relations(size=4), histories(4), st.sets(st.integers(2, 3)))
def test_output_does_not_depend_on_window_cuts(
    engine: DuckDbEngine, relation: object, history: object, cuts: set[int]
) -> None:
    whole, cut = (
        pa.concat_tables([o.rows for o in run(engine, Case(relation, history, frozenset(c)))])  # type: ignore[arg-type]
        for c in (set(), cuts)
    )
    columns = columns_of(relation)  # type: ignore[arg-type]
    for i in range(4):
        assert rows_of(whole, columns, START + i) == rows_of(cut, columns, START + i)


def test_a_window_of_many_times_is_exact_at_each(engine: DuckDbEngine) -> None:
    history = [{T.id: Counter({(k, (i * 7 + k) % 11): 1 for k in range(3)})} for i in range(50)]
    check_maintained(engine, Case(least_by_key(), history))


def test_joins_of_joins_do_not_multiply_the_times_of_a_window(
    engine: DuckDbEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row of u1 changes at each time, and so do the sums that it is joined with, twice."""
    keys, times = 3, 60
    amount = ColumnType(numeric_of_scale(0))

    def with_sum(left: Relation) -> Relation:
        """Return a left join with a sum by key, the result of lowering a correlated subquery."""
        width = len(columns_of(left))
        joined = Project(
            Join((left, sums), ((Column(0, INT4), Column(width, INT4)),)),
            (*range(width), width + 1),
        )
        matched = Project(joined, tuple(range(width)))
        missing = Map(Union((left, Negate(matched))), (Literal(None, amount.type),))
        return Union((joined, missing))

    table = Get(GlobalId("u2"), T.columns)
    sums = Reduce(table, (Column(0, INT4),), (Aggregate("sum", (Column(1, INT8),), amount.type),))
    relation = with_sum(with_sum(with_sum(T)))
    history = [
        {
            T.id: Counter({(key, time): 1 for key in range(keys)}),
            table.id: Counter({(key, n): 1 for key in range(keys) for n in range(time)}),
        }
        for time in range(times)
    ]
    filled: list[int] = []
    fill = DuckDbStore.fill

    def counted(store: DuckDbStore, name: str, select: str) -> bool:
        some = fill(store, name, select)
        filled.append(store.fetch(f"SELECT 1 AS one FROM {name}").num_rows)
        return some

    monkeypatch.setattr(DuckDbStore, "fill", counted)
    check_maintained(engine, Case(relation, history))
    assert len(filled) > 3
    assert max(filled) <= 12 * keys * times  # of each key some versions go at a time, and come


def test_an_update_and_its_retraction_leave_no_trace(engine: DuckDbEngine) -> None:
    rows = Counter({(1, 5): 1, (2, 6): 2})
    history = [{T.id: rows}, {T.id: Counter({(1, 4): 1})}, {T.id: rows}]
    outputs = run(engine, Case(least_by_key(), history))
    assert rows_of(outputs[1].rows, columns_of(least_by_key())) == Counter()


def test_failed_step_changes_nothing(engine: DuckDbEngine) -> None:
    total = numeric_of_scale(0)
    relation = Reduce(T, (), (Aggregate("sum", (Column(1, INT8),), total), count_all()))
    case = Case(relation, [{T.id: Counter({(1, 5): 1})}])
    dataflow = engine.create(
        DataflowDescription(GlobalId("t1"), relation, (T.id,), (), START),
        {T.id: pa.schema([("a", pa.int32()), ("b", pa.int64())])},
    )
    dataflow.hydrate(initial(case))
    entries = [((1, 2**62), START + 1, 2**62), ((2, 2**62), START + 1, 2**62)]
    with pytest.raises(NumericValueOutOfRange):
        dataflow.step(START + 1, START + 2, {T.id: updates(T.columns, entries)})
    output = dataflow.step(
        START + 1, START + 2, {T.id: updates(T.columns, [((1, 7), START + 1, 1)])}
    )
    assert rows_of(output.rows, columns_of(relation)) == Counter({("5", 1): -1, ("12", 2): 1})
    dataflow.close()


@pytest.mark.parametrize("scale", [0, 7, 20, 30])
def test_a_sum_of_too_many_digits_is_an_error_until_its_rows_have_gone(
    engine: DuckDbEngine, scale: int
) -> None:
    type = numeric_of_scale(scale)
    table = Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(type)))
    found = resolve_aggregate("sum", (type,))

    cores = tuple(
        Aggregate(core.function, tuple(shift(arg, 1) for arg in core.args), core.type)
        for core in found.cores
    )
    relation = Map(Reduce(table, (Column(0, INT4),), cores), (shift(found.finish, 1),))
    most, fraction = (format(Decimal(units).scaleb(-scale, WIDE), "f") for units in (10**38 - 1, 1))
    small = [(1, fraction), (2, "-3"), (2, None)]
    large = [(1, most), (1, f"-{most}"), (2, f"-{most}")]
    history = [
        {table.id: Counter(dict.fromkeys(rows, count))}
        for rows, count in ((small, 1), (small + large, 3), (large, 1), (small, 2), ([], 1))
    ]
    check_maintained(engine, Case(relation, history, frozenset({2, 4})))


def test_contents_are_added_up_now_and_then(engine: DuckDbEngine) -> None:
    relation = least_by_key()
    case = Case(relation, [{T.id: Counter({(1, 5): 1})}])
    dataflow = engine.create(
        DataflowDescription(GlobalId("t1"), relation, (T.id,), (), START),
        {T.id: pa.schema([("a", pa.int32()), ("b", pa.int64())])},
    )
    dataflow.hydrate(initial(case))
    for i in range(1, 5):
        sign = 1 if i % 2 else -1
        entries = [((k, k), START + i, sign) for k in range(3000)]
        output = dataflow.step(START + i, START + i + 1, {T.id: updates(T.columns, entries)})
        assert output.rows.num_rows == 3001  # all keys come or go, and 1 changes
    dataflow.close()
