"""Index lookups: keys and residual together give the rows of the query."""

from collections import Counter
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.expr.columns import columns_of
from foreshore.expr.functions.whole_numbers import whole_number
from foreshore.expr.ir import (
    And,
    Call,
    Column,
    Filter,
    Get,
    Literal,
    Map,
    Once,
    Or,
    Parameter,
    Project,
    Reduce,
    Relation,
    Scalar,
)
from foreshore.expr.keys import Elements
from foreshore.ids import GlobalId
from foreshore.sql.optimize.lookup import Lookup, literal_lookup
from foreshore.sql.optimize.pipeline import optimize
from foreshore.types import (
    BOOL,
    FLOAT8,
    INT4,
    INT8,
    TEXT,
    VARCHAR,
    ColumnType,
    Datum,
    SqlType,
    array_of,
    numeric,
)
from tests.effort import examples
from tests.model import Rows, evaluate
from tests.relations import TABLES, fallible, rows_of

T = TABLES[0]
A, B, C = Column(0, INT4), Column(1, INT4, False), Column(2, TEXT)


def eq(a: Scalar, b: Scalar) -> Call:
    return Call("eq", (a, b), BOOL)


def four(value: int | None) -> Literal:
    return Literal(value, INT4)


def found(relation: Relation, *key: Scalar) -> Lookup:
    result = literal_lookup(relation, key)
    assert result is not None
    return result


def test_equality_of_key_is_lookup() -> None:
    plan = Project(Filter(T, (eq(A, four(1)), Call("lt", (B, four(2)), BOOL))), (2,))
    lookup = found(plan, A)
    assert lookup.keys == ((four(1),),)
    assert lookup.residual == Project(Filter(T, (Call("lt", (B, four(2)), BOOL),)), (2,))


def test_partial_key_is_no_lookup() -> None:
    plan = Filter(T, (eq(A, four(1)),))
    assert literal_lookup(plan, (A, B)) is None
    assert literal_lookup(Reduce(plan, (A,), ()), (A,)) is None
    assert literal_lookup(Filter(T, (Or((eq(A, four(1)), eq(B, four(1)))),)), (A,)) is None


def test_in_lists_give_key_per_combination() -> None:
    either = Or((eq(A, four(1)), eq(Parameter(1, INT4), A)))
    plan = Filter(T, (either, eq(B, four(2))))
    assert found(plan, A, B).keys == ((four(1), four(2)), (Parameter(1, INT4), four(2)))
    assert found(plan, B, A).residual == T


def test_disjunction_of_conjunctions_gives_key_for_each() -> None:
    rows = Or(tuple(And((eq(A, four(a)), eq(Parameter(b, INT4), B))) for a, b in ((1, 1), (3, 2))))
    wanted = ((four(1), Parameter(1, INT4)), (four(3), Parameter(2, INT4)))
    assert found(Filter(T, (rows,)), A, B) == Lookup(wanted, T, 2)
    less = Call("lt", (B, four(2)), BOOL)
    partial = Or((And((eq(A, four(1)), eq(B, four(2)))), And((eq(A, four(3)), less))))
    plan = Filter(T, (partial,))
    assert literal_lookup(plan, (A, B)) is None
    lookup = literal_lookup(plan, (A, B), prefix=True)
    assert lookup == Lookup(((four(1),), (four(3),)), plan, 1)
    assert literal_lookup(Filter(T, (Or((eq(A, four(1)), less)),)), (A,), prefix=True) is None


def test_array_is_looked_up_by_its_elements() -> None:
    array = Parameter(1, array_of(INT8))
    test = Call("eq_any", (Call("cast(int4,int8)", (A,), INT8), array), BOOL)
    assert found(Filter(T, (test,)), A) == Lookup(((Elements(array, INT8),),), T, 1)
    lookup = found(Filter(T, (test, eq(B, four(2)))), B, A)
    assert lookup.keys == ((four(2), Elements(array, INT8)),)
    twice = Filter(T, (test, eq(A, four(2))))
    assert found(twice, A).residual in (Filter(T, (test,)), Filter(T, (eq(A, four(2)),)))


@pytest.mark.parametrize("element", ["int2", "int4", "int8"])
def test_array_of_smaller_integers_is_looked_up(element: str) -> None:
    """A driver sends a list in the smallest type that holds it; a narrowing cast may fail."""
    given = Parameter(1, array_of(SqlType(element)))
    for type, key in ((INT4, A), (INT8, Call("cast(int4,int8)", (A,), INT8))):
        array = Call("cast_array(anyarray)", (given,), array_of(type))
        relation = Filter(T, (Call("eq_any", (key, array), BOOL),))
        if type == INT4 and element == "int8":
            assert literal_lookup(relation, (A,)) is None
        else:
            assert found(relation, A).keys == ((Elements(array, type),),)


def test_whole_number_is_looked_up_by_integer() -> None:
    number = Call("cast(int4,numeric)", (A,), numeric(10, 0))
    for text, value in (("5.0", 5), ("5.5", None), ("99999999999", None)):
        test = eq(number, Literal(text, numeric(12, 1)))
        assert found(Filter(T, (test,)), A).keys == ((four(value),),)


def test_argument_is_looked_up_as_the_integer_that_it_equals() -> None:
    decimal, double = Parameter(1, numeric(38, 20)), Parameter(1, FLOAT8)
    wide, other = Column(0, INT8), Get(GlobalId("u8"), (ColumnType(INT8),))
    for cast, key, value, name in (
        ("cast(int4,numeric)", A, decimal, "whole(numeric,int4)"),
        ("cast(int8,numeric)", wide, decimal, "whole(numeric,int8)"),
        ("cast(int4,float8)", A, double, "whole(float8,int4)"),
    ):
        test = eq(Call(cast, (key,), value.type), value)
        once = Once(Call(name, (value,), key.type), key.type)
        assert found(Filter(T if key == A else other, (test,)), key).keys == ((once,),)
    several = eq(Call("cast(int8,float8)", (wide,), FLOAT8), double)  # equal the same float
    assert literal_lookup(Filter(other, (several,)), (wide,)) is None


@pytest.mark.parametrize(
    ("number", "type", "whole"),
    [
        (5.0, "int4", 5),
        ("5.00", "int2", 5),
        ("-32768", "int2", -32768),
        ("32768", "int2", None),
        (-0.0, "int4", 0),
        (0.5, "int4", None),
        (float("nan"), "int4", None),
        (float("inf"), "int4", None),
        ("NaN", "int8", None),
        ("9223372036854775807.0", "int8", 2**63 - 1),
        (2.0**31, "int4", None),
    ],
)
def test_number_equals_one_integer_or_none(number: Datum, type: str, whole: int | None) -> None:
    assert whole_number(number, type) == whole


def test_number_of_more_digits_than_key_is_looked_up_by_nothing() -> None:
    key = Column(0, numeric(38, 1))
    other = Get(GlobalId("u8"), (ColumnType(numeric(38, 1)),))
    finer = Literal("1234567890123456789012345678.05", numeric(38, 2))
    assert found(Filter(other, (eq(key, finer),)), key).keys == ((Literal(None, numeric(38, 1)),),)


def test_computed_columns_are_looked_through() -> None:
    plan = Filter(
        Map(Project(T, (2, 1)), (Call("coalesce", (Column(0, TEXT), Literal("", TEXT)), TEXT),)),
        (eq(B, four(1)),),
    )
    assert found(plan, B).keys == ((four(1),),)
    expression = Call("add(int4,int4)", (A, B), INT4)
    assert found(Filter(T, (eq(expression, four(3)),)), expression).residual == T


def test_constants_take_key_type() -> None:
    wide = Call("cast(int4,int8)", (A,), INT8)
    assert found(Filter(T, (eq(wide, Literal(1, INT8)),)), A).keys == ((four(1),),)
    assert found(Filter(T, (eq(wide, Literal(2**40, INT8)),)), A).keys == ((four(None),),)
    types = (ColumnType(numeric(10, 2)), ColumnType(VARCHAR))
    other = Get(GlobalId("u8"), types)
    price, name = Column(0, types[0].type), Column(1, VARCHAR)
    half = found(Filter(other, (eq(price, Literal("0.5", numeric(2, 1))),)), price)
    assert half.keys == ((Literal("0.50", numeric(10, 2)),),)
    finer = found(Filter(other, (eq(price, Literal("0.505", numeric(4, 3))),)), price)
    assert finer.keys == ((Literal(None, numeric(10, 2)),),)
    label = Call("relabel", (name,), TEXT)
    named = found(Filter(other, (eq(label, Literal("x", TEXT)),)), name)
    assert named.keys == ((Literal("x", VARCHAR),),)


@settings(max_examples=examples(100))
@given(rows_of(T), st.permutations([0, 1, 2]), st.data())
def test_keys_and_residual_give_query_rows(
    rows: Rows, order: list[int], data: st.DataObject
) -> None:
    column = st.sampled_from([A, B, C])
    plan: Relation = Project(T, tuple(order))
    for _ in range(data.draw(st.integers(1, 3))):
        used = data.draw(column)
        place = order.index(used.index)
        values = st.sampled_from([0, 1] if used.type == INT4 else ["", "a"])
        tests = [
            eq(Column(place, used.type), Literal(data.draw(values), used.type))
            for _ in range(data.draw(st.integers(1, 2)))
        ]
        plan = Filter(plan, (Or(tuple(tests)),))
    key = tuple(data.draw(st.lists(column, min_size=1, max_size=2, unique=True)))
    for query in (plan, optimize(plan, fallible)):
        lookup = literal_lookup(query, key)
        if lookup is None:
            continue
        wanted = {tuple(part.value for part in k) for k in lookup.keys}  # type: ignore[union-attr]
        under = Counter(
            {row: n for row, n in rows.items() if tuple(row[c.index] for c in key) in wanted}
        )
        assert evaluate(lookup.residual, {T.id: under}) == evaluate(query, {T.id: rows})


@pytest.mark.parametrize(("first", "second"), list(product([None, 1], repeat=2)))
def test_residual_keeps_columns(first: int | None, second: int | None) -> None:
    plan = Filter(T, (eq(A, four(first)), eq(B, four(second))))
    assert columns_of(found(plan, A, B).residual) == T.columns
