"""Restriction by keys: a relation over the rows that the steps find is that over all rows."""

from collections import Counter
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.constraint import Unique
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    And,
    Call,
    Column,
    Constant,
    Environment,
    Filter,
    Get,
    Join,
    Let,
    Literal,
    LocalGet,
    Map,
    Negate,
    Or,
    Project,
    Reduce,
    Relation,
    Scalar,
    TopK,
    Union,
    count_all,
    single_input,
)
from foreshore.expr.keys import Elements, Key
from foreshore.ids import GlobalId
from foreshore.sql.optimize.key_steps import (
    KeyStep,
    Restricted,
    TableKey,
    TableKeys,
    WholeStep,
)
from foreshore.sql.optimize.pipeline import optimize
from foreshore.sql.optimize.restrict import restricted
from foreshore.types import BOOL, INT4, INT8, ColumnType, Datum, array_of
from tests.effort import examples
from tests.model import Rows, evaluate
from tests.relations import fallible

T = Get(GlobalId("u1"), (ColumnType(INT4, False), ColumnType(INT4), ColumnType(INT8)))
U = Get(GlobalId("u2"), (ColumnType(INT4, False), ColumnType(INT8)))
KEYS = {
    T.id: TableKeys((TableKey("t", (0, 1), prefix=True), TableKey("c", (2,), prefix=True)), 5),
    U.id: TableKeys((TableKey("u", (0,), True, Unique("u", (0,))), TableKey("v", (1,), True)), 5),
}
LARGER = {
    T.id: TableKeys(KEYS[T.id].keys, 10**9),
    U.id: KEYS[U.id],
}
BIG = {id: TableKeys(keys.keys, 10**9) for id, keys in KEYS.items()}


def eq(a: Scalar, b: Scalar) -> Call:
    return Call("eq", (a, b), BOOL)


def column(relation: Relation, index: int) -> Column:
    type = columns_of(relation)[index]
    return Column(index, type.type, type.nullable)


def wide(scalar: Scalar) -> Scalar:
    is_int4 = isinstance(scalar, Column) and scalar.type == INT4
    return Call("cast(int4,int8)", (scalar,), INT8) if is_int4 else scalar


@st.composite
def conditions(draw: st.DrawFn, relation: Relation) -> Scalar:
    """Draw a predicate that may name values of columns."""

    def one() -> Scalar:
        sought = column(relation, draw(st.integers(0, len(columns_of(relation)) - 1)))
        values = draw(st.lists(st.sampled_from([0, 1, 2, None]), min_size=1, max_size=3))
        match draw(st.integers(0, 3)):
            case 0:
                array = Literal(tuple(values), array_of(sought.type))
                return Call("eq_any", (sought, array), BOOL)
            case 1:
                return Call("gt", (sought, Literal(0, sought.type)), BOOL)
            case 2:
                return Or(tuple(eq(sought, Literal(v, sought.type)) for v in (*values, 2)))
            case _:
                return eq(Literal(values[0], sought.type), sought)

    match draw(st.integers(0, 4)):
        case 4:
            return Or((one(), one()))
        case 0:
            return Or((And((one(), one())), And((one(), one()))))
        case 1:
            return And((one(), one()))
        case _:
            return one()


@st.composite
def inputs(draw: st.DrawFn) -> Relation:
    relation: Relation = draw(st.sampled_from([T, U]))
    if draw(st.booleans()):
        values = st.tuples(st.integers(0, 2), st.sampled_from([None, 0, 1, 2]))
        rows = draw(st.lists(st.tuples(values, st.just(1)), max_size=3))
        relation = Constant(tuple(rows), (ColumnType(INT4, False), ColumnType(INT8)))
        return Reduce(relation, (column(relation, 0),), ()) if draw(st.booleans()) else relation
    if draw(st.booleans()):
        relation = Filter(relation, (draw(conditions(relation)),))
    if draw(st.booleans()):
        outputs = tuple(draw(st.permutations(range(len(columns_of(relation))))))
        relation = Project(relation, outputs)
    match draw(st.integers(0, 5)):
        case 0:
            relation = Reduce(relation, (wide(column(relation, 0)),), (count_all(),))
        case 1:
            relation = TopK(relation, (0,), (), Literal(1, INT8), None)
    return relation


@st.composite
def relations(draw: st.DrawFn) -> Relation:
    parts = tuple(draw(st.lists(inputs(), min_size=1, max_size=3)))
    product: Relation = Join(parts) if len(parts) > 1 else parts[0]
    width = len(columns_of(product))
    pairs = []
    for _ in range(draw(st.integers(0, 3)) if len(parts) > 1 else 0):
        first, second = draw(st.tuples(st.integers(0, width - 1), st.integers(0, width - 1)))
        pairs.append(eq(wide(column(product, first)), wide(column(product, second))))
    relation: Relation = Filter(product, tuple(pairs)) if pairs else product
    match draw(st.integers(0, 5)):
        case 5 if T in parts:
            return matched(relation, sum(len(columns_of(e)) for e in parts[: parts.index(T)]))
        case 0:
            return Reduce(relation, (), (count_all(),))
        case 1:
            return Union(
                (relation, Negate(Project(Filter(T, (eq(column(T, 0), one),)), ())))
                if not columns_of(relation)
                else (relation, relation)
            )
        case 2:
            local = LocalGet(7, columns_of(relation))
            return Let(7, relation, Union((local, Filter(local, (draw(conditions(local)),)))))
        case _:
            return relation


def matched(matches: Relation, start: int) -> Relation:
    """Return the rows of T that matches, in which they begin at `start`, have: as UPDATE does."""
    width = len(T.columns)
    rest = [i for i in range(len(columns_of(matches))) if not start <= i < start + width]
    outputs = (*range(start, start + width), *rest)
    first = TopK(Project(matches, outputs), tuple(range(width)), (), Literal(1, INT8), None)
    equal = tuple((column(T, i), column(first, i)) for i in range(width))
    shifted = tuple((a, Column(b.index + width, b.type, b.nullable)) for a, b in equal)
    return Join((T, first), shifted, (1, 2))


one = Literal(1, INT4)


def keys_in(step: KeyStep, known: dict[GlobalId, Rows]) -> set[tuple[Datum, ...]]:
    """Return the values of the step's columns, without parameters."""

    def expanded(key: Key) -> Iterable[tuple[Datum, ...]]:
        found: list[tuple[Datum, ...]] = [()]
        for part in key:
            values: Sequence[Datum]
            if isinstance(part, Elements):
                assert isinstance(part.array, Literal)
                values = part.array.value
            else:
                assert isinstance(part, Literal)
                values = [part.value]
            found = [(*before, value) for before in found for value in values]
        return found

    wanted = {values for key in step.keys for values in expanded(key)}
    for source in step.sources:
        wanted |= set(evaluate(source, known)[0])
    return {values for values in wanted if None not in values}


def found_by(plan: Restricted, rows: dict[GlobalId, Rows]) -> dict[GlobalId, Rows]:
    known: dict[GlobalId, Rows] = {}
    for step in plan.steps:
        if isinstance(step, WholeStep):
            known[step.rows] = rows[step.table]
            continue
        assert isinstance(step, KeyStep)
        wanted = keys_in(step, known)
        known[step.rows] = Counter(
            {
                row: count
                for row, count in rows[step.table].items()
                if tuple(row[i] for i in step.columns) in wanted
            }
        )
    return known


values = st.sampled_from([None, 0, 1, 2])
rows_of_t = st.lists(st.tuples(st.integers(0, 2), values, values), max_size=6)
rows_of_u = st.lists(st.tuples(st.integers(0, 2), values), max_size=4)


@settings(max_examples=examples(400), deadline=None)
@given(relations(), rows_of_t, rows_of_u, st.sampled_from([KEYS, LARGER, BIG]))
def test_relation_over_found_rows_is_that_over_all(
    relation: Relation,
    of_t: list[tuple[int, int | None, int | None]],
    of_u: list[tuple[int, int | None]],
    keys: dict[GlobalId, TableKeys],
) -> None:
    rows: dict[GlobalId, Rows] = {T.id: Counter(of_t), U.id: Counter(of_u)}
    for query in (relation, optimize(relation, fallible)):
        plan = restricted(query, keys.__getitem__)
        if plan is not None:
            assert evaluate(plan.relation, found_by(plan, rows)) == evaluate(query, rows)


def steps_of(relation: Relation, keys: dict[GlobalId, TableKeys] = KEYS) -> list[object]:
    plan = restricted(relation, keys.__getitem__)
    assert plan is not None
    return [
        (step.by.name, step.columns) if isinstance(step, KeyStep) else step.table
        for step in plan.steps
    ]


def test_either_of_two_keys_gives_whole_keys() -> None:
    either = Or((eq(column(U, 0), one), eq(column(U, 1), Literal(2, INT8))))
    plan = restricted(Filter(U, (either,)), BIG.__getitem__)
    assert plan is not None
    assert plan.relation == Filter(U, (either,))
    other, whole = plan.steps
    assert isinstance(other, KeyStep)
    assert isinstance(whole, KeyStep)
    assert (other.table, other.columns, other.keys) == (U.id, (1,), ((Literal(2, INT8),),))
    assert (whole.rows, whole.columns, whole.keys) == (U.id, (0,), ((one,),))
    assert whole.sources == (Project(Get(other.rows, U.columns), (0,)),)
    assert other.rows != U.id


def test_either_of_two_keys_needs_key_of_each_side_and_whole_key() -> None:
    of_u, of_t = (
        Or((eq(column(e, 0), one), Call("gt", (column(e, 1), Literal(2, INT8)), BOOL)))
        for e in (U, T)
    )
    assert restricted(Filter(U, (of_u,)), BIG.__getitem__) is None
    assert restricted(Filter(T, (of_t,)), BIG.__getitem__) is None
    without_whole = Or((eq(column(T, 0), one), eq(column(T, 2), Literal(2, INT8))))
    assert restricted(Filter(T, (without_whole,)), BIG.__getitem__) is None


def test_either_of_two_keys_in_join_finds_rows_of_other_table() -> None:
    either = Or((eq(column(U, 0), one), eq(column(U, 1), Literal(2, INT8))))
    of_either = Filter(U, (either,))
    assert steps_of(joined(T, of_either, on=[(2, 4)]), BIG) == [
        ("v", (1,)),
        ("u", (0,)),
        ("c", (2,)),
    ]
    assert steps_of(joined(of_either, VALUES, on=[(0, 2)]), BIG) == [("u", (0,))]


VALUES = Constant((((1, 2), 1), ((0, 1), 1)), (ColumnType(INT4), ColumnType(INT4)))


def joined(*inputs: Relation, on: Sequence[tuple[int, int]]) -> Relation:
    product = Join(inputs)
    columns = [(column(product, a), column(product, b)) for a, b in on]
    pairs = tuple((a, b) if a.type == b.type else (wide(a), wide(b)) for a, b in columns)
    return Join(inputs, pairs)


def test_rows_of_one_table_find_those_of_next() -> None:
    of_one = Filter(U, (eq(column(U, 0), one),))
    assert steps_of(joined(T, of_one, on=[(2, 4)]), BIG) == [("u", (0,)), ("c", (2,))]
    assert steps_of(joined(T, U, on=[(2, 4)]), LARGER) == [U.id, ("c", (2,))]
    assert restricted(joined(T, U, on=[(2, 4)]), KEYS.__getitem__) is None
    assert restricted(joined(T, U, on=[(2, 4)]), BIG.__getitem__) is None
    assert restricted(Join((T, of_one)), BIG.__getitem__) is None


def test_most_columns_decide() -> None:
    assert steps_of(joined(T, VALUES, on=[(0, 3)])) == [("t", (0,))]
    assert steps_of(joined(T, VALUES, on=[(0, 3), (1, 4)])) == [("t", (0, 1))]
    filtered = Filter(T, (eq(column(T, 0), one),))
    assert steps_of(joined(filtered, VALUES, on=[(1, 4)])) == [("t", (0, 1))]
    either = Or((And((eq(column(T, 0), one), eq(column(T, 1), one))), eq(column(T, 0), one)))
    assert steps_of(Filter(T, (either,))) == [("t", (0,))]


def test_rows_joined_with_matches_repeat_them() -> None:
    of_values = matched(joined(T, VALUES, on=[(0, 3)]), 0)
    assert steps_of(of_values, BIG) == [("t", (0,))]
    assert steps_of(matched(joined(U, T, on=[(1, 4)]), 2), LARGER) == [U.id, ("c", (2,))]
    assert restricted(Join((T, T), ((column(T, 0), Column(3, INT4)),)), BIG.__getitem__) is None


def test_groups_are_restricted_by_their_keys() -> None:
    groups = Reduce(T, (column(T, 2), column(T, 0)), (count_all(),))
    assert steps_of(joined(groups, VALUES, on=[(0, 3)]), BIG) == [("c", (2,))]
    assert restricted(joined(groups, VALUES, on=[(2, 3)]), BIG.__getitem__) is None
    first = TopK(T, (0,), (), Literal(1, INT8), None)
    assert steps_of(joined(first, VALUES, on=[(0, 3), (1, 4)]), BIG) == [("t", (0,))]


def test_null_safe_join_restricts_not_nullable_column_only() -> None:
    on = ((column(T, 0), Column(3, INT4)), (column(T, 1), Column(4, INT4)))
    assert steps_of(Join((T, VALUES), on, (0, 1))) == [("t", (0,))]


def test_join_with_distinct_keys_is_left_out() -> None:
    keys = Reduce(VALUES, (column(VALUES, 0), column(VALUES, 1)), ())
    plan = restricted(joined(T, keys, on=[(0, 3), (1, 4)]), KEYS.__getitem__)
    assert plan is not None
    assert single_input(plan.relation) == T
    plan = restricted(joined(T, VALUES, on=[(0, 3), (1, 4)]), KEYS.__getitem__)
    assert plan is not None
    assert single_input(plan.relation) == T
    repeated = Constant((((1, 2), 2),), VALUES.columns)
    plan = restricted(joined(T, repeated, on=[(0, 3), (1, 4)]), KEYS.__getitem__)
    assert plan is not None
    assert isinstance(plan.relation, Join)


@pytest.mark.parametrize(("name", "stable"), [("mz_now", False), ("current_user", True)])
def test_value_that_changes_while_waiting_is_known(name: str, stable: bool) -> None:
    source = Map(VALUES, (Environment(name, INT4),))
    assert KeyStep(T.id, KEYS[T.id].keys[0], (0,), (), (source,)).is_stable is stable
