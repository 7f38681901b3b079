"""Expensive expressions are recognized before they are evaluated."""

import pytest
from msgspec.structs import replace

from foreshore.errors import StatementTooComplex
from foreshore.expr.cost import cost_of, is_heavy, is_large, is_light, takes_long_for_a_row
from foreshore.expr.evaluate import constant, folding_little, is_constant, may_fold
from foreshore.expr.ir import (
    IN_STEP,
    Call,
    Column,
    Constant,
    FlatMap,
    Join,
    Literal,
    Map,
    Scalar,
    Union,
)
from foreshore.types import INT2, INT4, INT8, TEXT, ColumnType, Datum, SqlType, array_of

A, B = Literal("a", TEXT), Literal("%b", TEXT)


def number(value: int) -> Literal:
    return Literal(value, INT4)


def repeated(text: Scalar, count: Scalar) -> Call:
    return Call("repeat(text,int4)", (text, count), TEXT)


LONG = repeated(A, number(1_000_000))

LIGHT = (
    repeated(A, number(1000)),
    repeated(repeated(A, number(100)), number(100)),
    Call("length(text)", (repeated(A, number(1000)),), INT4),
    Call("match(text,text)", (repeated(A, number(100)), Literal("^(a+)+$", TEXT)), TEXT),
    Call("lpad(text,int4)", (Column(0, TEXT), number(20)), TEXT),
)
HEAVY = (
    LONG,
    repeated(repeated(A, number(1000)), number(1000)),
    Call("length(text)", (LONG,), INT4),
    repeated(A, Column(0, INT4)),  # the count is not known
    Call("lpad(text,int4,text)", (A, number(1_000_000), B), TEXT),
    Call("replace(text,text,text)", (repeated(A, number(1000)), A, repeated(B, number(500))), TEXT),
    Call("regexp_count(text,text)", (repeated(A, number(10_000)), A), INT4),
    Call("match(text,text)", (A, repeated(A, number(9000))), TEXT),
    *(
        Call("format(text,any)", (Literal(f"%{width}s", TEXT), A), TEXT)
        for width in (
            10**8,
            10**9,
            10**10,
            10**20,
            10**40,
            "0" * 5 + "1" + "0" * 9,
            "1$-" + "1" + "0" * 9,
        )
    ),
    Call("format(text,any)", (Literal("%*s", TEXT), number(100_000_000), A), TEXT),
    Call("format(text,any)", (Column(0, TEXT), A), TEXT),  # its widths are not known
    Call("upper(text)", (Literal("a" * 200_000, TEXT),), TEXT),
)


@pytest.mark.parametrize("scalar", LIGHT)
def test_short_value_is_light(scalar: Scalar) -> None:
    assert is_light(scalar)
    assert not is_heavy(Map(Join((), ()), (scalar,)))


@pytest.mark.parametrize("scalar", HEAVY)
def test_value_that_may_be_long_is_not_computed_in_passing(scalar: Scalar) -> None:
    assert not is_light(scalar)
    assert is_heavy(Map(Join((), ()), (scalar,)))
    assert not is_constant(scalar)
    with pytest.raises(StatementTooComplex):
        constant(scalar)


def test_length_of_a_long_value_is_a_short_one() -> None:
    assert cost_of(Call("length(text)", (LONG,), INT4)).size < 100


def series(stop: Scalar) -> FlatMap:
    args = (number(1), stop)
    return FlatMap(Join((), ()), "generate_series(int4,int4)", args, (ColumnType(INT4),))


def test_series_is_heavy_unless_an_engine_makes_it_row_by_row() -> None:
    added = Call("add(int4,int4)", (Column(0, INT4), number(1)), INT4)
    for stop in (1000, 300_000, 1_000_000):
        assert not is_heavy(series(number(stop)))
        assert not is_heavy(Map(series(number(stop)), (added,)))
    assert is_heavy(series(Column(0, INT4)))
    assert is_heavy(Join((series(number(2000)), series(number(2000))), ()))
    assert not is_heavy(replace(series(number(20)), input=series(number(2000))))
    assert is_heavy(replace(series(number(2000)), input=series(number(2000))))


def test_arrays_of_rows_are_not_heavy_as_drivers_send_them() -> None:
    def rows(count: int, element: SqlType) -> FlatMap:
        given = Literal(tuple(range(count)), array_of(element))
        wide = Call("cast_array(anyarray)", (given,), array_of(INT8))
        return FlatMap(
            Join((), ()), IN_STEP, (given, wide), (ColumnType(element), ColumnType(INT8))
        )

    assert not is_heavy(rows(100_000, INT2))
    assert is_heavy(rows(400_000, INT2))
    assert is_heavy(rows(100_000, TEXT))


def test_arrays_joined_by_their_order_are_not_heavy() -> None:
    array = Literal(tuple(range(2000)), array_of(INT4))
    columns = (ColumnType(INT4), ColumnType(INT8, False))
    rows = FlatMap(Join(()), "unnest(anyarray)", (array,), columns)
    by_order = tuple(Column(i, INT8, False) for i in (1, 3, 5))
    assert not is_heavy(Join((rows, rows, rows), (by_order,)))
    by_value = tuple(Column(i, INT4) for i in (0, 2, 4))
    assert is_heavy(Join((rows, rows, rows), (by_value,)))


def test_long_datum_is_heavy_where_something_is_made_of_it() -> None:
    rows = Constant((((("a" * 1_000_000),), 1),), (ColumnType(TEXT),))
    assert not is_heavy(rows)
    assert is_heavy(Map(rows, (Call("upper(text)", (Column(0, TEXT),), TEXT),)))
    assert not is_heavy(Map(rows, (Literal(None, array_of(TEXT)),)))


def test_relation_of_many_parts_is_large() -> None:
    row = Map(Join((), ()), (repeated(A, number(3)),))
    assert not is_large(Union((row,) * 100))
    assert is_large(Union((row,) * 1000))


def test_series_over_the_subscripts_of_an_array_is_not_heavy() -> None:
    one = Literal(1, INT4)
    stop = Call("array_upper(anyarray,int4)", (Column(0, array_of(INT4)), one), INT4)
    assert not is_heavy(series(stop))
    shaped = Call("array_upper(anyarray,int4)", (Column(0, SqlType("shaped")), one), INT4)
    assert is_heavy(series(shaped))  # its subscripts may be any numbers


def test_constants_of_a_statement_are_folded_up_to_a_bound() -> None:
    many = [repeated(A, number(50_000 + i)) for i in range(20)]
    cheap = [repeated(A, number(i)) for i in range(200)]
    with folding_little():
        folded = sum(map(may_fold, many))
        assert 0 < folded <= 5
        with folding_little():
            assert not may_fold(many[0])
        assert all(map(may_fold, cheap))
    assert all(map(may_fold, many))


@pytest.mark.parametrize(
    ("datum", "type", "is_long"),
    [
        ("x" * 200_000, TEXT, True),
        (b"x" * 200_000, SqlType("bytea"), True),
        (tuple(range(10_000)), array_of(INT4), True),
        ("x" * 1000, TEXT, False),
        ((1, 2), array_of(INT4), False),
        (7, INT4, False),
    ],
)
def test_rows_with_a_long_value_take_long(datum: Datum, type: SqlType, is_long: bool) -> None:
    others: list[Datum] = [None, datum[:2] if isinstance(datum, str | bytes | tuple) else 1]
    rows = tuple(((1, each), 1) for each in [*others * 20, datum, *others])
    found = takes_long_for_a_row(Constant(rows, (ColumnType(INT4), ColumnType(type))))
    assert found is is_long
