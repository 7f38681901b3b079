"""Derived properties of a relation hold for all contents of its inputs."""

from collections import Counter

from hypothesis import given, settings

from foreshore.expr.ir import (
    Call,
    Column,
    Constant,
    Filter,
    Join,
    Literal,
    Map,
    Project,
    Reduce,
    Relation,
    TopK,
    count_all,
)
from foreshore.ids import GlobalId
from foreshore.sql.optimize.nullability import nullable_columns, rejected_as_null
from foreshore.sql.optimize.properties import (
    default_key,
    is_unique,
    unique_keys,
)
from foreshore.types import BOOL, INT4, INT8, INTERVAL, ColumnType
from tests.effort import examples
from tests.model import Rows, evaluate
from tests.relations import TABLES, contents, lowered_relations

T, U, _ = TABLES
A, B = Column(0, INT4), Column(1, INT4)
ONE = Literal(1, INT4)


@settings(max_examples=examples(300))
@given(lowered_relations(size=5), contents(3))
def test_derived_properties_hold(relation: Relation, tables: dict[GlobalId, Rows]) -> None:
    rows, _ = evaluate(relation, tables)
    for column, nullable in enumerate(nullable_columns(relation)):
        assert nullable or all(row[column] is not None for row in rows)
    if all(count > 0 for count in rows.values()):
        for key in unique_keys(relation):
            seen = Counter(tuple(row[i] for i in sorted(key)) for row in rows.elements())
            assert all(count == 1 for count in seen.values()), (key, rows)


def keys(relation: Relation) -> list[set[int]]:
    return [set(key) for key in unique_keys(relation)]


def test_type_with_several_representations_has_no_key() -> None:
    day, hours = (0, 1, 0), (0, 0, 86_400_000_000)
    interval = ColumnType(INTERVAL)
    assert keys(Constant((((day,), 1), ((hours,), 1)), (interval,))) == []
    both = Constant((((1, day), 1), ((2, hours), 1)), (ColumnType(INT4), interval))
    assert keys(both) == [{0}]
    assert keys(Constant((((day,), 1),), (interval,))) == [set()]


def test_keys_propagate_through_plans() -> None:
    assert keys(U) == [{0}]
    assert keys(Project(U, (1, 0))) == [{1}]
    assert keys(Project(U, (1,))) == []
    assert keys(Filter(U, (Call("eq", (A, ONE), BOOL),))) == [set()]
    assert keys(Reduce(T, (A, B), (count_all(),))) == [{0, 1}]
    assert keys(Reduce(T, (), (count_all(),))) == [set()]
    assert keys(Reduce(U, (B, A), ())) == [{1}]
    assert keys(TopK(T, (1,), (), Literal(1, INT8))) == [{1}]
    assert keys(TopK(T, (1,), (), Literal(2, INT8))) == []


def test_join_on_key_keeps_keys() -> None:
    self_join = Join((U, U), ((B, Column(2, INT4)),))
    assert keys(self_join) == [{0}]
    assert keys(Join((U, U))) == [{0, 2}]
    assert keys(Join((T, U), ((A, Column(3, INT4)),))) == []
    fixed = Join((U, Reduce(T, (), (count_all(),))))
    assert keys(fixed) == [{0}]


def test_default_index_key_is_unique_key_or_all_columns() -> None:
    assert default_key(U) == (0,)
    assert default_key(T) == (0, 1, 2)
    assert default_key(Reduce(T, (), (count_all(),))) == (0,)
    assert is_unique(Map(U, (ONE,)), [0, 2])


def test_rejects_null_detects_strict_predicates() -> None:
    assert 0 in rejected_as_null(Call("lt", (A, ONE), BOOL))
    assert 0 not in rejected_as_null(Call("is_null", (A,), BOOL))
    assert 0 not in rejected_as_null(Call("eq", (Call("coalesce", (A, ONE), INT4), ONE), BOOL))
    assert 0 not in rejected_as_null(Call("is_distinct", (A, ONE), BOOL))
