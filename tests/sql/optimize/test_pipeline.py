"""Optimising preserves answers: the model evaluates plans before and after."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Call,
    Column,
    Constant,
    Filter,
    Join,
    JoinOn,
    Let,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    Project,
    Relation,
    Scalar,
    Threshold,
    Union,
    Window,
    WindowFunction,
)
from foreshore.expr.lowered import check_lowered
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.sql.lower.lower import lower
from foreshore.sql.optimize.pipeline import optimize
from foreshore.types import BOOL, INT4, INT8
from tests.effort import examples
from tests.model import Rows, evaluate
from tests.relations import (
    TABLES,
    bound_relations,
    contents,
    fallible,
    lowered_relations,
    window_relations,
)

T, U, V = TABLES


def types_of(relation: Relation) -> list[object]:
    return [column.type for column in columns_of(relation)]


def optimized(relation: Relation) -> Relation:
    result = optimize(relation, fallible)
    check_lowered(result)
    assert types_of(result) == types_of(relation)
    return result


@settings(max_examples=examples(300))
@given(lowered_relations(size=5), contents())
def test_optimized_plan_gives_same_rows(relation: Relation, tables: dict[GlobalId, Rows]) -> None:
    assert evaluate(optimized(relation), tables) == evaluate(relation, tables)


@settings(max_examples=examples(300))
@given(window_relations(), st.sampled_from(["le", "lt", "eq", "ge"]), st.integers(0, 3), contents())
def test_first_rows_by_number_are_the_same(
    relation: Relation, comparison: str, bound: int, tables: dict[GlobalId, Rows]
) -> None:
    columns = columns_of(relation)
    numbers = [i for i, column in enumerate(columns) if column.type == INT8]
    tests = tuple(
        Call(comparison, (Column(i, INT8), Literal(bound, INT8)), BOOL) for i in numbers[-1:]
    )
    filtered = Filter(relation, tests) if tests else relation
    for plan in (filtered, Project(filtered, (0,)) if columns else filtered):
        assert evaluate(optimized(plan), tables) == evaluate(plan, tables)


@pytest.mark.parametrize("second", ["le", "lt", "eq", "ge", "gt"])
@pytest.mark.parametrize("first", ["le", "lt", "eq", "ge", "gt"])
def test_rows_that_meet_two_comparisons_of_their_number_are_the_same(
    first: str, second: str
) -> None:
    numbered = Window(
        Project(U, (0,)),
        (),
        (OrderKey(Column(0, INT4)),),
        (WindowFunction("row_number", (), INT8),),
    )
    tables: dict[GlobalId, Rows] = {U.id: Counter({(i, i): 1 for i in range(1, 5)})}
    for a, b in product(range(4), repeat=2):
        plan = Filter(numbered, (numbered_as(first, a), numbered_as(second, b)))
        assert evaluate(optimized(plan), tables) == evaluate(plan, tables), (a, b)


def numbered_as(comparison: str, bound: int) -> Call:
    """Return a comparison of the second column with a constant."""
    return Call(comparison, (Column(1, INT8), Literal(bound, INT8)), BOOL)


@settings(max_examples=examples(200))
@given(bound_relations(size=4), contents())
def test_optimized_lowered_plan_gives_same_rows(
    relation: Relation, tables: dict[GlobalId, Rows]
) -> None:
    plan = lower(relation, fallible)
    assert evaluate(optimized(plan), tables) == evaluate(relation, tables)


@settings(max_examples=examples(200))
@given(lowered_relations(size=5, failing=True), contents())
def test_optimizing_adds_no_errors(relation: Relation, tables: dict[GlobalId, Rows]) -> None:
    rows, errors = evaluate(relation, tables)
    plan = optimized(relation)
    if not errors and not takes_a_failing_equality(plan):
        assert evaluate(plan, tables) == (rows, Counter())


def takes_a_failing_equality(plan: Relation) -> bool:
    """Return whether a fallible equality has become a join's, as PostgreSQL allows."""
    return any(
        isinstance(part, Call) and fallible(part)
        for node in walk_relations(plan)
        if isinstance(node, Join)
        for equivalence in node.equivalences
        for scalar in equivalence
        for part in [scalar]
    )


LOCAL = LocalGet(0, T.columns[:1])
HELD: dict[GlobalId, Rows] = {T.id: Counter({(0, 0, ""): 1, (1, 0, ""): 2})}


def eq(a: Scalar, b: Scalar) -> Call:
    return Call("eq", (a, b), BOOL)


def test_rows_removed_twice_stay_removed() -> None:
    gone = Union((Project(T, (0,)), Negate(Project(T, (0,))), Negate(Project(T, (0,)))))
    for plan in (Threshold(gone), Let(0, gone, Join((*[Threshold(LOCAL)] * 2, Negate(LOCAL))))):
        assert evaluate(optimized(plan), HELD) == evaluate(plan, HELD)
    none = Threshold(Union((Constant((), LOCAL.columns), Negate(Project(T, (0,))))))
    twice = Union((none, Map(none, ())))
    assert evaluate(optimized(twice), HELD) == (Counter(), Counter())


@settings(max_examples=examples(10))
@given(st.integers(200, 500))
def test_deep_plan_is_optimized(depth: int) -> None:
    plan: Relation = T
    for i in range(depth):
        if i % 10 == 0:
            plan = JoinOn(plan, U, "inner", eq(Column(0, INT4), Column(3, INT4)))
        plan = Filter(plan, (eq(Column(0, INT4), Column(1, INT4)),))
    optimized(lower(plan, fallible))
