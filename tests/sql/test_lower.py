"""Lowering preserves answers: the model evaluates the bound and the lowered form."""

import cProfile
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from foreshore.errors import FeatureNotSupported
from foreshore.expr.ir import (
    Aggregate,
    AnySubquery,
    Call,
    Case,
    Column,
    Exists,
    Filter,
    Join,
    JoinOn,
    Let,
    Literal,
    LocalGet,
    Map,
    OuterColumn,
    Project,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
    TopK,
    count_all,
)
from foreshore.expr.lowered import check_lowered
from foreshore.expr.scalars import scalars_of
from foreshore.expr.traversal import walk_relations, walk_scalars
from foreshore.ids import GlobalId
from foreshore.sql.lower.lateral import before_lateral
from foreshore.sql.lower.lower import lower
from foreshore.sql.optimize.scalars import conjuncts
from foreshore.types import BOOL, INT4, INT8
from tests.compute.cases import reads_all
from tests.effort import examples
from tests.model import Rows, evaluate
from tests.relations import TABLES, bound_relations, contents, fallible

T, U, V = TABLES
A, B = Column(0, INT4), Column(1, INT4)
OUT_A, OUT_B = OuterColumn(1, 0, INT4), OuterColumn(1, 1, INT4)
ZERO, ONE = Literal(0, INT4), Literal(1, INT4)
HELD: dict[GlobalId, Rows] = {
    T.id: Counter({(1, 0, "a"): 2, (None, 1, "b"): 1, (2, 1, None): 1, (0, 2, ""): 1}),
    U.id: Counter({(0, 1): 1, (1, None): 1, (2, 1): 1}),
    V.id: Counter(),
}


def eq(a: Scalar, b: Scalar) -> Call:
    return Call("eq", (a, b), BOOL)


def divide(a: Scalar, b: Scalar) -> Call:
    return Call("divide(int4,int4)", (a, b), INT4)


def lowered(relation: Relation) -> Relation:
    result = lower(relation, fallible)
    check_lowered(result)
    return result


def relations_within(relation: Relation) -> Iterator[Relation]:
    """Yield all relations of a plan, those of subqueries included."""
    for node in walk_relations(relation):
        yield node
        for scalar in scalars_of(node):
            for each in walk_scalars(scalar):
                if isinstance(each, Exists | ScalarSubquery | AnySubquery):
                    yield from relations_within(each.relation)


def keeps_all(relation: Relation) -> bool:
    """Whether no condition takes rows away before a lateral join, where they may have errors."""
    return not any(
        before_lateral(node.input, conjuncts(node.predicates), fallible)[0] != node.input
        for node in relations_within(relation)
        if isinstance(node, Filter)
    )


@settings(max_examples=examples(300))
@given(bound_relations(size=4), contents())
def test_lowered_plan_gives_same_rows(relation: Relation, tables: dict[GlobalId, Rows]) -> None:
    assert evaluate(lowered(relation), tables) == evaluate(relation, tables)


@settings(max_examples=examples(200), suppress_health_check=list(HealthCheck))
@given(bound_relations(size=4, failing=True), contents())
def test_lowered_plan_keeps_errors(relation: Relation, tables: dict[GlobalId, Rows]) -> None:
    assume(reads_all(relation))  # what nobody reads is left out with its errors, as in PostgreSQL
    assume(keeps_all(relation))
    expected, errors = evaluate(relation, tables, lenient=True)
    rows, found = evaluate(lowered(relation), tables)
    assert bool(errors) <= bool(found)
    if not found:
        assert rows == expected


COUNT = ScalarSubquery(
    Reduce(Filter(U, (eq(B, OUT_B),)), (), (count_all(),)),
    INT8,
)


@pytest.mark.parametrize(
    "predicate",
    [
        Exists(Filter(U, (eq(A, OUT_A),))),
        Call("not", (Exists(Filter(U, (eq(A, OUT_A),))),), BOOL),
        AnySubquery(eq(A, OUT_A), Project(U, (1,))),
        Call("not", (AnySubquery(eq(A, OUT_A), Project(U, (1,))),), BOOL),
        Call("not", (AnySubquery(eq(A, OUT_A), Filter(U, (eq(B, OUT_B),))),), BOOL),
        Exists(Filter(U, (Literal(False, BOOL),))),
        eq(COUNT, Literal(0, INT8)),
    ],
)
def test_where_with_subquery_gives_same_rows(predicate: Scalar) -> None:
    for held in (HELD, {**HELD, U.id: Counter()}):
        for plan in (Filter(T, (predicate,)), Map(T, (predicate,))):
            assert evaluate(lowered(plan), held) == evaluate(plan, held)


@pytest.mark.parametrize("kind", ["inner", "left", "right", "full"])
@pytest.mark.parametrize(
    "on",
    [
        eq(A, Column(4, INT4)),
        Literal(True, BOOL),
        Literal(None, BOOL),
        Call("lt", (A, Column(3, INT4, False)), BOOL),
        Exists(Filter(T, (eq(A, OuterColumn(1, 4, INT4)), eq(B, OUT_A)))),
    ],
)
def test_join_of_any_kind_gives_same_rows(kind: str, on: Scalar) -> None:
    plan = JoinOn(T, U, kind, on)  # type: ignore[arg-type]
    for held in (HELD, {**HELD, U.id: Counter()}, {**HELD, T.id: Counter()}):
        assert evaluate(lowered(plan), held) == evaluate(plan, held)


def test_scalar_subquery_with_several_rows_fails() -> None:
    one = ScalarSubquery(Project(Filter(U, (eq(A, OUT_A),)), (1,)), INT4)
    assert not evaluate(lowered(Map(T, (one,))), HELD)[1]
    several = ScalarSubquery(Project(Filter(U, (eq(B, OUT_B),)), (0,)), INT4)
    assert list(evaluate(lowered(Map(T, (several,))), HELD)[1]) == [
        "21000 more than one row returned by a subquery used as an expression"
    ]


def test_branch_not_taken_does_not_fail() -> None:
    quotient = ScalarSubquery(Map(Reduce(U, (), ()), (divide(ONE, OUT_B),)), INT4)
    guarded = Case(((eq(B, ZERO), ZERO),), quotient, INT4)
    plan = Map(T, (guarded,))
    assert not evaluate(plan, HELD)[1]
    assert evaluate(lowered(plan), HELD) == evaluate(plan, HELD)
    nonzero = Call("ne", (B, ZERO), BOOL)
    plan_ = Filter(T, (nonzero, Call("lt", (quotient, Literal(9, INT4)), BOOL)))
    assert evaluate(lowered(plan_), HELD) == evaluate(plan_, HELD)


def test_subquery_without_from_becomes_scalar() -> None:
    half = Project(Map(Map(Join(()), (divide(OUT_A, OUT_B),)), (eq(A, OUT_A),)), (1,))
    same = ScalarSubquery(half, BOOL)
    guarded = Case(((eq(B, ZERO), Literal(None, BOOL)),), same, BOOL)
    for plan in (Map(T, (guarded,)), Filter(T, (Call("ne", (B, ZERO), BOOL), same))):
        assert not evaluate(plan, HELD)[1]
        assert evaluate(lowered(plan), HELD) == evaluate(plan, HELD)
        assert not [n for n in walk_relations(lowered(plan)) if isinstance(n, Reduce)]
    assert evaluate(lowered(Map(T, (same,))), HELD)[1] == evaluate(Map(T, (same,)), HELD)[1]


def test_correlated_with_query_is_inlined() -> None:
    same = Filter(U, (eq(B, OUT_B),))
    nested = Exists(Filter(LocalGet(0, U.columns), (eq(A, OuterColumn(1, 0, INT4)),)))
    body = Let(0, same, Filter(LocalGet(0, U.columns), (nested,)))
    plan = Filter(T, (Exists(body),))
    assert evaluate(lowered(plan), HELD) == evaluate(plan, HELD)


def test_lateral_top_k_gives_same_rows() -> None:
    smallest = Aggregate("min", (A,), INT4)
    top = TopK(Filter(U, (eq(B, OUT_B),)), (), (), Literal(1, INT8))
    for right in (top, Reduce(top, (), (smallest,))):
        for kind in ("inner", "left"):
            plan = JoinOn(T, right, kind, Literal(True, BOOL), lateral=True)
            assert evaluate(lowered(plan), HELD) == evaluate(plan, HELD)


def test_limit_depending_on_row_is_rejected() -> None:
    top = TopK(U, (), (), OuterColumn(1, 0, INT8))
    with pytest.raises(FeatureNotSupported):
        lower(JoinOn(T, top, "inner", Literal(True, BOOL), lateral=True), fallible)


@settings(max_examples=examples(20))
@given(st.integers(300, 600))
def test_deep_plan_is_lowered(depth: int) -> None:
    plan: Relation = T
    for _ in range(depth):
        plan = Filter(plan, (eq(A, A),))
    lowered(plan)


def test_cost_of_a_map_grows_with_its_scalars_only() -> None:
    def calls(count: int) -> int:
        scalars = tuple(
            Call("add<int4,int4>", (Literal(i, INT4), Literal(1, INT4)), INT4) for i in range(count)
        )
        profile = cProfile.Profile()
        profile.runcall(lower, Map(Join((), ()), scalars))
        return sum(entry.callcount for entry in profile.getstats())

    assert calls(400) < 3 * calls(200)
