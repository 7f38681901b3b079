"""Constants of a statement: what is marked, and what guards it."""

import pytest

from foreshore.errors import DataError
from foreshore.expr.ir import (
    And,
    AnySubquery,
    Call,
    Case,
    Column,
    Environment,
    Exists,
    Filter,
    Join,
    JoinOn,
    Literal,
    Map,
    Once,
    Or,
    Parameter,
    Project,
    Relation,
    Scalar,
    ScalarSubquery,
)
from foreshore.expr.split import can_fail
from foreshore.sql.optimize.lookup import literal_lookup
from foreshore.sql.optimize.once import mark_once
from foreshore.sql.rewrite.bind_parameters import is_open, parameter_bindings
from foreshore.types import BOOL, FLOAT8, INT4, INT8, TEXT, array_of
from tests.relations import TABLES

T = TABLES[0]
A, B, C = Column(0, INT4), Column(1, INT4, False), Column(2, TEXT)
P = Parameter(1, INT4)


def call(name: str, *args: Scalar) -> Call:
    return Call(f"{name}(int4,int4)", args, INT4)


def eq(a: Scalar, b: Scalar) -> Call:
    return Call("eq", (a, b), BOOL)


def four(value: int) -> Literal:
    return Literal(value, INT4)


SUM, QUOTIENT = call("add", P, four(1)), call("divide", four(10), P)
NOT_ZERO = Call("ne", (P, four(0)), BOOL)


def marked(*predicates: Scalar) -> Relation:
    found = mark_once(Filter(T, predicates))
    assert isinstance(found, Filter)
    return found


def test_side_without_columns_is_marked_and_a_key() -> None:
    plan = marked(eq(A, SUM))
    assert plan == Filter(T, (eq(A, Once(SUM, INT4)),))
    assert is_open(plan)
    assert not can_fail(eq(A, Once(SUM, INT4)))
    lookup = literal_lookup(plan, (A,))
    assert lookup is not None
    assert lookup.keys == ((Once(SUM, INT4),),)


def test_arguments_and_what_rows_decide_stay() -> None:
    wide = Call("cast(int4,int8)", (P,), INT8)
    random = Call("random()", (), FLOAT8, 1)
    rounded = Call("cast(float8,int4)", (random,), INT4)
    clock = Call("cast(text,int4)", (Environment("clock_timestamp", TEXT),), INT4)
    for side in (P, wide, four(3), B, call("add", B, P), rounded, clock):
        assert marked(eq(A, side)) == Filter(T, (eq(A, side),))
    assert marked(eq(P, SUM)) == Filter(T, (eq(P, SUM),))


def test_what_may_take_long_stays() -> None:
    long = Call("repeat(text,int4)", (Literal("x", TEXT), P), TEXT)
    assert marked(eq(C, long)) == Filter(T, (eq(C, long),))


def test_elements_are_marked_one_by_one() -> None:
    array = Call("array", (SUM, four(5)), array_of(INT4))
    any_of = Call("eq_any", (A, array), BOOL)
    plan = marked(any_of)
    lookup = literal_lookup(plan, (A,))
    assert lookup is not None
    assert lookup.keys == ((Once(SUM, INT4),), (four(5),))


def test_subquery_without_tables_is_its_value() -> None:
    row = Project(Map(Join(()), (four(7), call("add", Column(0, INT4), P))), (1,))
    value = call("add", four(7), P)
    assert marked(eq(A, ScalarSubquery(row, INT4))) == Filter(T, (eq(A, Once(value, INT4)),))
    assert marked(Call("not", (Call("ne", (A, SUM), BOOL),), BOOL)) == Filter(
        T, (Call("not", (Call("ne", (A, Once(SUM, INT4)), BOOL),), BOOL),)
    )
    quotient = ScalarSubquery(Map(Join(()), (QUOTIENT,)), INT4)
    assert marked(eq(A, quotient), NOT_ZERO) == Filter(
        T, (eq(A, guarded(NOT_ZERO, QUOTIENT)), NOT_ZERO)
    )
    random = ScalarSubquery(Map(Join(()), (Call("random()", (), FLOAT8, 1),)), FLOAT8)
    assert marked(Call("eq", (B, random), BOOL)) == Filter(T, (Call("eq", (B, random), BOOL),))


def guarded(guard: Scalar, scalar: Scalar) -> Once:
    return Once(Case(((guard, scalar),), Literal(None, INT4), INT4), INT4)


def test_conditions_without_columns_guard_what_may_fail() -> None:
    assert marked(NOT_ZERO, eq(A, QUOTIENT)) == Filter(
        T, (NOT_ZERO, eq(A, guarded(NOT_ZERO, QUOTIENT)))
    )
    # Those that come later guard nothing: PostgreSQL raises the error while it plans.
    once = eq(A, Once(QUOTIENT, INT4))
    assert marked(eq(A, QUOTIENT), NOT_ZERO) == Filter(T, (once, NOT_ZERO))
    within = mark_once(Filter(Filter(T, (eq(A, QUOTIENT),)), (NOT_ZERO,)))
    assert within == Filter(Filter(T, (once,)), (NOT_ZERO,))
    lower = Call("lower(text)", (Parameter(2, TEXT),), TEXT)
    assert marked(NOT_ZERO, eq(C, lower)) == Filter(T, (NOT_ZERO, eq(C, Once(lower, TEXT))))


def test_alternatives_without_columns_guard_the_others() -> None:
    zero = eq(P, four(0))
    either = Or((zero, And((NOT_ZERO, eq(A, QUOTIENT)))))
    guard = And((Call("is_not_true", (zero,), BOOL), NOT_ZERO))
    assert marked(either) == Filter(
        T, (Or((zero, And((NOT_ZERO, eq(A, guarded(guard, QUOTIENT)))))),)
    )


def test_branches_guard_what_may_fail_in_their_subqueries() -> None:
    lower = Call("lower(text)", (Parameter(2, TEXT),), TEXT)

    def read(*predicates: Scalar) -> Scalar:
        exists = Exists(Filter(T, predicates))
        return Case(((NOT_ZERO, exists),), Literal(False, BOOL), BOOL)

    found = marked(read(NOT_ZERO, eq(A, QUOTIENT), eq(C, lower)))
    assert found == Filter(T, (read(NOT_ZERO, eq(A, QUOTIENT), eq(C, Once(lower, TEXT))),))


def test_constants_in_subqueries_and_joins_are_marked() -> None:
    found = eq(A, Once(SUM, INT4))
    exists = mark_once(Filter(T, (Exists(Filter(T, (eq(A, SUM),))),)))
    assert exists == Filter(T, (Exists(Filter(T, (found,))),))
    joined = mark_once(JoinOn(T, T, "left", And((NOT_ZERO, eq(A, SUM)))))
    assert joined == JoinOn(T, T, "left", And((NOT_ZERO, eq(A, guarded(NOT_ZERO, SUM)))))
    sought = mark_once(Filter(T, (AnySubquery(eq(SUM, A), T),)))
    assert sought == Filter(T, (AnySubquery(eq(Once(SUM, INT4), A), T),))
    branch = Case(((eq(P, four(0)), Exists(Filter(T, (eq(A, QUOTIENT),)))),), B, BOOL)
    assert mark_once(Filter(T, (branch,))) == Filter(T, (branch,))


def test_value_is_computed_when_it_is_bound() -> None:
    bindings = parameter_bindings([4], lambda name: None)
    assert bindings(Once(SUM, INT4)) == four(5)
    assert bindings(guarded(NOT_ZERO, QUOTIENT)) == four(2)
    bindings = parameter_bindings([0], lambda name: None)
    with pytest.raises(DataError, match="division by zero"):
        bindings(Once(QUOTIENT, INT4))
    assert bindings(guarded(NOT_ZERO, QUOTIENT)) == Literal(None, INT4)
