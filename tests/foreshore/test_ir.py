"""Expressions round-trip through their encoding, and the lowered form is checked."""

import pytest

from foreshore.expr.ir import TRUE, Column, Constant, Join, JoinOn, Literal
from foreshore.expr.lowered import check_lowered, decode_relation, encode_relation
from foreshore.types import INT4, TEXT, ColumnType, array_of

ONE = Constant((((1, "x"), 2),), (ColumnType(INT4), ColumnType(TEXT)))
EQUIVALENCES = ((Column(0, INT4), Column(2, INT4)),)


def test_relation_round_trips() -> None:
    arrays = Constant(((((1, 2),), 1),), (ColumnType(array_of(INT4)),))
    join = Join((ONE, ONE, arrays), (*EQUIVALENCES, (Literal("x", TEXT), Column(1, TEXT))), (1,))
    assert decode_relation(encode_relation(join)) == join


def test_a_join_on_is_not_lowered() -> None:
    check_lowered(Join((ONE, ONE), EQUIVALENCES))
    with pytest.raises(AssertionError):
        check_lowered(JoinOn(ONE, ONE, "inner", TRUE))


def test_a_null_safe_position_names_an_equivalence() -> None:
    with pytest.raises(AssertionError):
        check_lowered(Join((ONE, ONE), EQUIVALENCES, (1,)))
