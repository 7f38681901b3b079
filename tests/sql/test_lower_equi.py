"""Pulling up correlation by equality preserves answers."""

from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    TRUE,
    Aggregate,
    AnySubquery,
    Call,
    Column,
    Exists,
    Filter,
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
)
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.sql.lower.equality import pull
from foreshore.sql.lower.lower import lower
from foreshore.sql.lower.outer_columns import Scopes
from foreshore.sql.optimize.pipeline import optimize
from foreshore.types import BOOL, INT4, INT8, TEXT
from tests import relations
from tests.effort import examples
from tests.model import Rows, evaluate
from tests.relations import TABLES, Context, contents, fallible

T, U, _ = TABLES
BOUND = Context(bound=True, failing=False)
PLAIN = Context(bound=True, failing=False, subqueries=False)


def eq(a: Scalar, b: Scalar) -> Call:
    return Call("eq", (a, b), BOOL)


def _filtered(draw: st.DrawFn, inner: Relation, outer: list[Scalar]) -> Relation:
    """Draw `inner` with its columns equal to some of `outer`."""
    predicates = []
    for _ in range(draw(st.integers(1, 2))):
        theirs = draw(st.sampled_from(outer))
        assert isinstance(theirs, OuterColumn)
        ours = relations._operand(draw, PLAIN, columns_of(inner), theirs.type)
        predicates.append(eq(ours, theirs) if draw(st.booleans()) else eq(theirs, ours))
    return Filter(inner, tuple(predicates))


def _over(draw: st.DrawFn, relation: Relation) -> Relation:
    """Draw a node over `relation`."""
    columns = columns_of(relation)
    positive = relations._positive(relation)
    match draw(st.sampled_from("map project top distinct filter reduce join let".split())):
        case "map":
            return Map(relation, (relations.scalar(draw, PLAIN, columns, INT4, 1),))
        case "project":
            places = st.lists(st.integers(0, len(columns) - 1), min_size=1, max_size=3)
            return Project(relation, tuple(draw(places)))
        case "top":
            return TopK(positive, (), (), Literal(1, INT8))
        case "distinct":
            every = tuple(Column(i, c.type, c.nullable) for i, c in enumerate(columns))
            return Reduce(positive, every, ())
        case "filter":
            return Filter(relation, (relations.scalar(draw, PLAIN, columns, BOOL, 1),))
        case "reduce":
            key = relations.scalar(draw, PLAIN, columns, INT4, 1)
            return Reduce(positive, (key,), (relations._aggregate(draw, PLAIN, columns),))
        case "join":
            other = relations._leaf(draw, PLAIN)
            both = (*columns, *columns_of(other))
            kind: relations.Kind = draw(st.sampled_from(["inner", "left"]))
            return JoinOn(relation, other, kind, relations.scalar(draw, PLAIN, both, BOOL, 1))
        case _:
            local = LocalGet(77, T.columns)
            return Let(77, T, JoinOn(relation, local, "inner", TRUE))


@st.composite
def correlated(draw: st.DrawFn) -> Relation:
    """Draw a plan with a subquery that is correlated by equality."""
    base = relations.relation(draw, BOUND, 1)
    outer: list[Scalar] = [
        OuterColumn(1, i, c.type, c.nullable)
        for i, c in enumerate(columns_of(base))
        if c.type in (INT4, TEXT)
    ]
    inner = relations.relation(draw, PLAIN, 2)
    body = _filtered(draw, inner, outer) if outer else inner
    for _ in range(draw(st.integers(0, 2))):
        body = _over(draw, body)
    value = relations.scalar(draw, PLAIN, columns_of(body), INT4, 1)
    match draw(st.sampled_from(["exists", "not exists", "value", "aggregate", "one", "any"])):
        case "exists":
            return Filter(base, (Exists(body),))
        case "not exists":
            return Filter(base, (Call("not", (Exists(body),), BOOL),))
        case "value":
            return Map(base, (Exists(body),))
        case "aggregate":
            aggregates = (Aggregate("count", (value,), INT8), Aggregate("max", (value,), INT4))
            over_all = Reduce(relations._positive(body), (), aggregates)
            integers = [c for c in outer if isinstance(c, OuterColumn) and c.type == INT4]
            defaults: list[Scalar] = [*integers, Literal(7, INT4)]
            default = draw(st.sampled_from(defaults))
            made = Map(over_all, (Call("coalesce", (Column(1, INT4), default), INT4),))
            one = Project(made, (draw(st.integers(0, 2)),))
            return Map(base, (ScalarSubquery(one, columns_of(one)[0].type),))
        case "one":
            single = Project(Map(body, (value,)), (len(columns_of(body)),))
            first = TopK(relations._positive(single), (), (), Literal(1, INT8))
            return Map(base, (ScalarSubquery(first, INT4),))
        case _:
            integers = [c for c in outer if isinstance(c, OuterColumn) and c.type == INT4]
            found = AnySubquery(eq(value, draw(st.sampled_from([*integers, value]))), body)
            test = found if draw(st.booleans()) else Call("not", (found,), BOOL)
            return Filter(base, (test,)) if draw(st.booleans()) else Map(base, (test,))


@settings(max_examples=examples(300))
@given(correlated(), contents(5))
def test_pulled_up_correlation_gives_same_rows(
    relation: Relation, tables: dict[GlobalId, Rows]
) -> None:
    expected = evaluate(relation, tables)
    plan = lower(relation, fallible)
    assert evaluate(plan, tables) == expected
    assert evaluate(optimize(plan, fallible), tables) == expected


def test_pulled_up_subquery_is_computed_once() -> None:
    same = Filter(U, (eq(Column(1, INT4), OuterColumn(1, 0, INT4)),))
    pulled = pull(same, Scopes(), fallible)
    assert pulled is not None
    assert pulled.outer == (Column(0, INT4),)
    plan = optimize(lower(Filter(T, (Exists(same),)), fallible), fallible)
    assert sum(node == T for node in walk_relations(plan)) == 1


def test_fallible_subquery_is_not_pulled_up() -> None:
    quotient = Call("divide(int4,int4)", (Column(0, INT4), Column(1, INT4)), INT4)
    inner = Map(Filter(U, (eq(Column(1, INT4), OuterColumn(1, 0, INT4)),)), (quotient,))
    assert pull(inner, Scopes(), fallible) is None


def test_other_correlation_is_not_pulled_up() -> None:
    less = Call("lt", (Column(1, INT4), OuterColumn(1, 0, INT4)), BOOL)
    assert pull(Filter(U, (less,)), Scopes(), fallible) is None
    mixed = Call("add(int4,int4)", (Column(1, INT4), OuterColumn(1, 0, INT4)), INT4)
    assert pull(Filter(U, (eq(mixed, Column(0, INT4)),)), Scopes(), fallible) is None
