"""Splitting a plan loses no row and no error, compared with the model."""

from collections import Counter

from hypothesis import given, settings

from foreshore.expr.failing_rows import failing_rows
from foreshore.expr.ir import Call, Column, Filter, Get, Join, Map, Project, Relation
from foreshore.expr.lowered import check_lowered
from foreshore.expr.split import columns_used, split_errors
from foreshore.ids import GlobalId
from foreshore.types import BOOL, INT4
from tests.effort import examples
from tests.model import Rows, evaluate
from tests.relations import TABLES, contents, fallible, lowered_relations

A, B = Column(0, INT4), Column(1, INT4)
QUOTIENT = Call("divide(int4,int4)", (A, B), INT4)


@settings(max_examples=examples(200))
@given(lowered_relations(size=5, failing=True), contents())
def test_rows_and_errors_are_those_of_the_plan(
    relation: Relation, tables: dict[GlobalId, Rows]
) -> None:
    check_lowered(relation)
    expected_rows, expected_errors = evaluate(relation, tables)
    rows, errors = split_errors(relation, fallible)
    check_lowered(rows)
    assert evaluate(rows, tables, total=True) == (expected_rows, Counter())
    found: Rows = Counter()
    if errors is not None:
        check_lowered(errors)
        found, none = evaluate(errors, tables, total=True)
        assert not none
    assert found == {(text,): count for text, count in expected_errors.items()}


@settings(max_examples=examples(200))
@given(lowered_relations(size=5, failing=True), contents())
def test_failing_rows_have_the_errors_of_the_plan_and_values_of_their_collections(
    relation: Relation, tables: dict[GlobalId, Rows]
) -> None:
    found: Counter[str] = Counter()
    for part in failing_rows(relation, fallible):
        check_lowered(part.relation)
        rows, none = evaluate(part.relation, tables, total=True)
        assert not none
        for row, count in rows.items():
            *values, text = row
            found[text] += count
            for value, origin in zip(values, part.origins, strict=True):
                if origin is not None:
                    assert value in {each[origin[1]] for each in tables[origin[0]]}
    assert found == evaluate(relation, tables)[1]


def test_failing_rows_have_all_columns_of_their_collection() -> None:
    kept = Project(Filter(TABLES[0], (Call("eq", (A, B), BOOL),)), (1,))
    plan = Map(kept, (Call("divide(int4,int4)", (A, A), INT4),))
    (part,) = failing_rows(plan, fallible)
    width = len(TABLES[0].columns)
    assert part.origins == tuple((TABLES[0].id, i) for i in range(width))
    assert isinstance(part.relation, Filter)
    assert isinstance(part.relation.input, Map)
    assert columns_used(part.relation.input.scalars[0]) == {1}


def test_a_plan_that_cannot_fail_has_no_errors() -> None:
    plan = Filter(TABLES[0], (Call("eq", (A, B), BOOL),))
    assert split_errors(plan, fallible) == (plan, None)


def test_errors_have_no_duplicates() -> None:
    join = Join((TABLES[0], TABLES[1]), ((B, Column(3, INT4)),))
    once = Map(join, (QUOTIENT,))
    twice = Map(once, (Call("divide(int4,int4)", (Column(5, INT4), A), INT4),))
    _, errors = split_errors(twice, fallible)
    assert errors is not None
    assert str(errors).count("Join(") == 1


def test_the_check_for_a_single_row_leaves_no_rows() -> None:
    table = Get(GlobalId("u9"), TABLES[1].columns)
    plan = Filter(table, (Call("single_row_check", (A,), BOOL),))
    rows, errors = split_errors(plan, fallible)
    assert evaluate(rows, {}) == (Counter(), Counter())
    assert errors is not None
    assert evaluate(errors, {table.id: Counter({(2, 0): 1, (1, 0): 1})}, total=True)[0] == {
        ("21000 more than one row returned by a subquery used as an expression",): 1
    }
