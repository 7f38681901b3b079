"""Tests of `literal_rows`: small relations of literals, without the kernels."""

import pytest

from foreshore.compute.finish import expanded
from foreshore.compute.local.linear import FEW_LITERALS, evaluate_linear, literal_rows
from foreshore.compute.result import KEPT_BYTES
from foreshore.expr.ir import Constant, Project
from foreshore.table_rows import Row
from foreshore.types import INT4, TEXT, ColumnType

COLUMNS = (ColumnType(INT4, False), ColumnType(TEXT, True))


def constant(*rows: tuple[Row, int]) -> Constant:
    return Constant(rows, COLUMNS)


@pytest.mark.parametrize("rows", [[], [(1, "a")], [(2, None), (1, "b"), (1, "b")]])
def test_rows_of_literals_are_those_of_the_kernels(rows: list[Row]) -> None:
    relation = constant(*((row, 1) for row in rows))
    found = literal_rows(relation)
    assert found is not None
    assert found.equals(expanded(evaluate_linear(relation)))


@pytest.mark.parametrize(
    "relation",
    [
        constant(((1, "a"), 2)),
        constant(((1, "a"), 1), ((1, "a"), -1)),
        constant(*[((1, "a"), 1)] * (FEW_LITERALS + 1)),
        constant(((1, "a" * (KEPT_BYTES + 1)), 1)),
        Project(constant(((1, "a"), 1)), (0,)),
    ],
    ids=["repeated", "deleted", "many", "large", "computed"],
)
def test_other_relations_are_left_to_the_kernels(relation: Constant) -> None:
    assert literal_rows(relation) is None
