"""A plan over few rows has the model's result, or is left to an engine."""

from collections import Counter
from random import Random

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import event, given, settings

from foreshore.compute.engine import Cancellation
from foreshore.compute.local.small.evaluate import evaluate_small, is_small_plan
from foreshore.compute.local.small.join import FEW_SEARCHES
from foreshore.compute.local.small.rows import MOST_ROWS, NotSmall, SmallRows
from foreshore.datum import to_array
from foreshore.errors import QueryCanceled
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    IN_STEP,
    Call,
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Reduce,
    Relation,
    TopK,
    Union,
    count_all,
)
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT4, INT8, TEXT, ColumnType, array_of
from tests.compute.cases import Contents, random_history, rows_of
from tests.compute.plans import PLANS, U1
from tests.effort import examples
from tests.model import evaluate
from tests.relations import histories, lowered_relations

LEFT_TO_ENGINES = {  # whose rows have lists, equal floats that differ, or are negative
    "top by a float",
    "floats in lists, and the least of them",
    "negative multiplicities",
}


def small_rows(contents: Contents, get: Get) -> SmallRows:
    entries = [*contents[get.id].items()]
    columns = [
        to_array([row[i] for row, _ in entries], column.type)
        for i, column in enumerate(get.columns)
    ]
    return SmallRows(tuple(columns), np.array([count for _, count in entries], np.int64))


def check(relation: Relation, contents: Contents) -> bool:
    """Compare a plan with the model; return whether it was evaluated."""
    if not is_small_plan(relation):
        return False
    rows, errors = evaluate(relation, contents)
    try:
        found = evaluate_small(relation, lambda get: small_rows(contents, get))
    except NotSmall:
        return False
    assert not errors
    assert rows_of(found, columns_of(relation)) == rows
    return True


@settings(max_examples=examples(400))
@given(lowered_relations(size=5, failing=True), histories(1))
def test_evaluation_matches_model(relation: Relation, history: list[Contents]) -> None:
    event("evaluated" if check(relation, history[0]) else "left to an engine")


@pytest.mark.parametrize("name", PLANS)
def test_plans_of_each_kind(name: str) -> None:
    (contents,) = random_history(Random(name))[:1]
    assert sources_of(PLANS[name]) <= contents.keys()
    if is_small_plan(PLANS[name]):
        assert check(PLANS[name], contents) != (name in LEFT_TO_ENGINES)


def test_products_of_many_rows_are_left_to_engines() -> None:
    one = Project(U1, (0,))
    count = 1 + int(MOST_ROWS**0.5)
    rows = SmallRows(
        (pa.nulls(count, pa.int32()), pa.nulls(count, pa.int32()), pa.nulls(count, pa.string())),
        np.ones(count, np.int64),
    )
    with pytest.raises(NotSmall, match="rows"):
        evaluate_small(Join((one, one)), lambda _: rows)
    assert Counter(evaluate_small(one, lambda _: rows).column(0).to_pylist()) == {None: count}


KV = Get(GlobalId("u9"), (ColumnType(INT4), ColumnType(TEXT)))


def kv(numbers: list[int], texts: list[str], diffs: list[int]) -> SmallRows:
    columns = pa.array(numbers, pa.int32()), pa.array(texts)
    return SmallRows(columns, np.array(diffs, np.int64))


def refused(relation: Relation, rows: SmallRows) -> bool:
    """Whether a plan is left to an engine."""
    try:
        evaluate_small(relation, lambda _: rows)
    except NotSmall:
        return True
    return False


def test_multiplicities_do_not_overflow() -> None:
    many = kv([1], ["a"], [1_000_000])
    count = Reduce(Join((KV, KV)), (), (count_all(),))
    assert evaluate_small(count, lambda _: many).column(0).to_pylist() == [10**12]
    assert refused(Reduce(Join((KV,) * 4), (), (count_all(),)), many)


def test_long_values_are_not_repeated() -> None:
    one = Project(KV, (1,))
    long = kv([1], ["x" * 1_000_000], [1])
    numbers = Constant(tuple(((i,), 1) for i in range(100)), (ColumnType(INT4),))
    assert refused(Join((one, numbers)), long)
    assert not refused(Join((one, numbers)), kv([1], ["x"], [1]))


def test_unions_of_unions_end() -> None:
    plan: Relation = LocalGet(19, KV.columns)
    for number in reversed(range(1, 20)):
        below = KV if number == 1 else LocalGet(number - 1, KV.columns)
        plan = Let(number, Union((below, below)), plan)
    assert refused(plan, kv([1, 2], ["a", "b"], [1, 1]))


def test_positions_beyond_all_rows() -> None:
    most = Literal((1 << 63) - 1, INT8)
    plan = TopK(KV, (), (OrderKey(Column(0, INT4)),), most, Literal(1, INT8))
    rows = kv([1, 2], ["a", "b"], [1, 1])
    assert evaluate_small(plan, lambda _: rows).column(0).to_pylist() == [2]
    assert not evaluate_small(TopK(KV, (), (), None, most), lambda _: rows).num_rows


def test_searches_in_many_rows_are_left_to_engines() -> None:
    matches = Filter(KV, (Call("match(text,text)", (Column(1, TEXT), Literal("a+b", TEXT)), BOOL),))
    for count in (FEW_SEARCHES, FEW_SEARCHES + 1):
        rows = kv([1] * count, ["aab"] * count, [1] * count)
        assert refused(matches, rows) == (count > FEW_SEARCHES)


def test_cancelled_evaluation_ends() -> None:
    cancellation = Cancellation()
    cancellation.cancel()
    with pytest.raises(QueryCanceled):
        evaluate_small(KV, lambda _: kv([1], ["a"], [1]), cancellation.check)


def test_plan_over_long_arrays_is_small_only_if_they_are_rows() -> None:
    arrays = (Literal(tuple(range(1000)), array_of(INT4)), Literal((7,), array_of(INT4)))
    added = (ColumnType(INT4), ColumnType(INT4))
    rows = FlatMap(Join(()), IN_STEP, arrays, added)
    assert is_small_plan(rows)
    found = evaluate_small(rows, lambda get: SmallRows((), np.empty(0, np.int64)))
    assert found.num_rows == 1000
    assert found.column(1).null_count == 999
    assert not is_small_plan(FlatMap(U1, IN_STEP, arrays, added)), "they would be copied into rows"
    assert not is_small_plan(Map(U1, arrays))


def test_rows_that_fail_and_cancel() -> None:
    one, column = Literal(1, INT4), Column(0, INT4)
    quotient = Map(Project(KV, (0,)), (Call("divide(int4,int4)", (one, column), INT4),))
    zero = kv([0, 2], ["a", "b"], [1, 1])
    assert refused(quotient, zero)
    without = Union(
        (
            Project(KV, (0,)),
            Negate(Filter(Project(KV, (0,)), (Call("eq", (column, Literal(0, INT4)), BOOL),))),
        )
    )
    found = evaluate_small(Map(without, quotient.scalars), lambda _: zero)
    assert found.column(1).to_pylist() == [0]
