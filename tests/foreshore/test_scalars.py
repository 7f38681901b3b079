"""Scalars with arguments put in."""

import pytest

from foreshore.expr.ir import Call, Literal, Parameter, Scalar
from foreshore.expr.scalars import bind_scalar
from foreshore.types import INT2, INT4, INT8, SqlType, array_of


@pytest.mark.parametrize(
    ("given", "wanted", "is_literal"),
    [(INT2, INT4, True), (INT2, INT8, True), (INT4, INT8, True), (INT8, INT4, False)],
)
def test_arrays_of_narrow_integers_are_literals_of_wider_ones(
    given: SqlType, wanted: SqlType, is_literal: bool
) -> None:
    argument = Literal((1, None, 3), array_of(given))
    cast = Call("cast_array(anyarray)", (Parameter(1, array_of(given)),), array_of(wanted))

    def bindings(scalar: Scalar) -> Scalar | None:
        return argument if isinstance(scalar, Parameter) else None

    bound = bind_scalar(cast, bindings)
    expected = Literal((1, None, 3), array_of(wanted))
    assert bound == (expected if is_literal else Call(cast.function, (argument,), cast.type))
