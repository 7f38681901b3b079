"""Relations that are plain lists of rows are simplified as a whole and keep their order."""

import pytest

from foreshore.expr.functions.registry import resolve
from foreshore.expr.ir import (
    Call,
    Column,
    Constant,
    Environment,
    Join,
    Literal,
    Map,
    Parameter,
    Project,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.split import may_fail
from foreshore.sql.optimize.pipeline import optimize
from foreshore.sql.optimize.rows import of_rows, rows_of
from foreshore.types import INT4, INT8, TEXT, ColumnType

UNIT = Join(())
FIRST, SECOND = Parameter(1, INT4), Parameter(2, INT4)
NOW = Environment("current_user", TEXT)


def literal(value: int) -> Literal:
    return Literal(value, INT4)


def plus(a: Scalar, b: Scalar) -> Scalar:
    return Call(resolve("+", (INT4, INT4)).key, (a, b), INT4)


def test_rows_keep_order_and_constants_are_merged() -> None:
    given = (FIRST, literal(1), plus(literal(1), literal(1)), SECOND, literal(3))
    values = Union(tuple(Map(UNIT, (scalar,)) for scalar in given))
    assert optimize(values) == Union(
        (
            Map(UNIT, (FIRST,)),
            Constant((((1,), 1), ((2,), 1)), (ColumnType(INT4, False),)),
            Map(UNIT, (SECOND,)),
            Constant((((3,), 1),), (ColumnType(INT4, False),)),
        )
    )


def test_columns_are_moved_and_defaults_appended() -> None:
    values = Union((Map(UNIT, (FIRST, NOW)), Map(UNIT, (SECOND, NOW))))
    above = Project(Map(values, (Column(0, INT4), literal(7))), (1, 3, 2))
    assert rows_of(above) == [(NOW, literal(7), FIRST), (NOW, literal(7), SECOND)]


def test_arguments_are_substituted_into_expressions() -> None:
    values = Union((Map(UNIT, (FIRST, literal(5))), Map(UNIT, (SECOND, literal(6)))))
    made = Map(values, (plus(Column(0, INT4), Column(0, INT4)), Column(1, INT4)))
    assert optimize(Project(made, (2, 3))) == Union(
        tuple(
            Map(UNIT, (plus(given, given), literal(number)))
            for given, number in ((FIRST, 5), (SECOND, 6))
        )
    )


def test_duplicate_rows_are_kept() -> None:
    values = Union((Map(UNIT, (NOW,)), Map(UNIT, (NOW,)), Map(UNIT, (NOW,))))
    assert rows_of(optimize(values)) == [(NOW,)] * 3


@pytest.mark.parametrize(
    "relation",
    [
        Map(Map(UNIT, (plus(FIRST, SECOND),)), (plus(Column(0, INT4), Column(0, INT4)),)),
        Map(UNIT, (FIRST, plus(Column(0, INT4), SECOND))),
        Map(Map(UNIT, (plus(FIRST, SECOND),)), (Column(0, INT4), plus(Column(0, INT4), SECOND))),
        Map(Map(UNIT, (FIRST,)), (plus(Column(0, INT8), SECOND),)),
        Constant((((1,), 1),), (ColumnType(INT8, False),)),
    ],
    ids=["of a result", "of its own", "moved too", "of another type", "constant"],
)
def test_call_used_twice_is_computed_once(relation: Relation) -> None:
    assert rows_of(relation) is None


def test_constants_of_different_types_are_not_merged() -> None:
    rows = [(literal(1),), (Literal(None, INT4),), (Literal(2, INT8),)]
    assert of_rows(rows, may_fail) == Union(
        (
            Constant((((1,), 1), ((None,), 1)), (ColumnType(INT4),)),
            Constant((((2,), 1),), (ColumnType(INT8, False),)),
        )
    )
