"""The model is held against facts that PostgreSQL's documentation and one's fingers can count."""

from collections import Counter
from itertools import pairwise

from foreshore.expr.ir import (
    FALSE,
    Aggregate,
    And,
    AnySubquery,
    Call,
    Case,
    Column,
    Constant,
    ErrorOf,
    Exists,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Literal,
    LocalGet,
    Map,
    Negate,
    OrderKey,
    OuterColumn,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
    Threshold,
    TopK,
    Union,
    count_all,
)
from foreshore.ids import GlobalId
from foreshore.types import BOOL, FLOAT8, INT4, INT8, JSONB, TEXT, ColumnType, numeric_of_scale
from tests.model import NAN, Rows, evaluate, ordinal, sum_float

A = Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(INT4)))
B = Get(GlobalId("u2"), (ColumnType(INT4),))
ROWS: dict[GlobalId, Rows] = {
    GlobalId("u1"): Counter({(1, 0): 2, (None, 1): 1, (3, 1): 1}),
    GlobalId("u2"): Counter({(1,): 1, (None,): 1}),
}
X, Y, Z = (Column(i, INT4) for i in range(3))
ZERO_DIVIDED = "22012 division by zero"


def call(name: str, *args: Scalar) -> Call:
    return Call(name, args, BOOL if name in ("eq", "lt", "is_null", "not") else INT4)


DIVIDED = call("divide(int4,int4)", X, Y)


def rows(relation: Relation) -> Counter[tuple[object, ...]]:
    result, errors = evaluate(relation, ROWS)
    assert not errors
    return result


def test_a_row_that_fails_is_an_error_with_its_multiplicity() -> None:
    assert evaluate(Map(A, (DIVIDED,)), ROWS) == (
        Counter({(None, 1, None): 1, (3, 1, 3): 1}),
        Counter({ZERO_DIVIDED: 2}),
    )
    assert evaluate(Negate(Map(Negate(A), (DIVIDED,))), ROWS)[1] == Counter({ZERO_DIVIDED: 2})


def test_case_and_and_guard() -> None:
    zero = call("eq", Y, Literal(0, INT4))
    assert rows(Filter(A, (call("not", zero), call("lt", Literal(2, INT4), DIVIDED)))) == Counter(
        {(3, 1): 1}
    )
    guarded = Case(((zero, Literal(None, INT4)),), DIVIDED, INT4)
    assert rows(Map(A, (guarded,)))[(1, 0, None)] == 2
    assert rows(Map(A, (ErrorOf(And((FALSE, call("lt", DIVIDED, X)))),)))[(1, 0, None)] == 2


def test_null_equals_nothing_except_where_it_does() -> None:
    both = ((X, Z),)
    assert rows(Join((A, B), both)) == Counter({(1, 0, 1): 2})
    assert rows(Join((A, B), both, (0,))) == Counter({(1, 0, 1): 2, (None, 1, None): 1})
    assert rows(Join((), ())) == Counter({(): 1})


def test_outer_joins_keep_what_has_no_partner() -> None:
    equal = call("eq", X, Z)
    inner = Counter({(1, 0, 1): 2})
    left = Counter({(None, 1, None): 1, (3, 1, None): 1})
    right = Counter({(None, None, None): 1})
    assert rows(JoinOn(A, B, "inner", equal)) == inner
    assert rows(JoinOn(A, B, "left", equal)) == inner + left
    assert rows(JoinOn(A, B, "right", equal)) == inner + right
    assert rows(JoinOn(A, B, "full", equal)) == inner + left + right


def test_subqueries_see_the_row_outside() -> None:
    outer = OuterColumn(1, 0, INT4)
    same = Filter(B, (call("eq", X, outer),))
    assert rows(Filter(A, (Exists(same),))) == Counter({(1, 0): 2})
    found = AnySubquery(call("eq", X, outer), B)
    assert rows(Map(A, (found,))) == Counter({(1, 0, True): 2, (None, 1, None): 1, (3, 1, None): 1})
    count = ScalarSubquery(Reduce(same, (), (count_all(),)), INT8)
    assert rows(Map(A, (count,)))[(3, 1, 0)] == 1
    assert evaluate(Map(A, (ScalarSubquery(B, INT4),)), ROWS)[1].total() == 4
    lateral = JoinOn(B, Filter(A, (call("eq", X, outer),)), "left", call("eq", X, X), lateral=True)
    assert rows(lateral) == Counter({(1, 1, 0): 2, (None, None, None): 1})


def test_aggregates_know_null_distinct_and_filter() -> None:
    total = Aggregate("sum", (Y,), numeric_of_scale(0))
    values = Aggregate("array_agg", (X,), INT4, order_by=(OrderKey(X, True, True),))
    once = Aggregate("count", (Y,), INT8, distinct=True, filter=call("is_null", X))
    assert rows(Reduce(A, (), (count_all(), total, values, once))) == Counter(
        {(4, "2", (None, 3, 1, 1), 1): 1}
    )
    nothing = Filter(A, (FALSE,))
    assert rows(Reduce(nothing, (), (count_all(), total, values))) == Counter({(0, None, None): 1})
    assert not rows(Reduce(nothing, (X,), (count_all(),)))
    assert rows(Reduce(Union((B, B)), (X,), ())) == Counter({(1,): 1, (None,): 1})
    assert sum_float([1e308, 1e308, -1e308]) == 1e308
    assert sum_float([float("inf"), float("-inf")]) is NAN


def test_top_k_breaks_ties_by_all_columns() -> None:
    top = TopK(A, (), (OrderKey(Y, descending=True),), limit=Literal(2, INT8))
    assert rows(top) == Counter({(3, 1): 1, (None, 1): 1})
    second = TopK(A, (1,), (OrderKey(X),), Literal(1, INT8), Literal(1, INT8))
    assert rows(second) == Counter({(1, 0): 1, (None, 1): 1})


def test_text_is_ordered_by_bytes() -> None:
    words = Constant(tuple(((word,), 1) for word in ("b", "B", "é", "z")), (ColumnType(TEXT),))
    agg = Aggregate("array_agg", (Column(0, TEXT),), TEXT, order_by=(OrderKey(Column(0, TEXT)),))
    assert rows(Reduce(words, (), (agg,))) == Counter({(("B", "b", "z", "é"),): 1})


def test_nan_is_the_greatest_number_and_equal_to_itself() -> None:
    floats = Constant((((NAN,), 1), ((1.0,), 1)), (ColumnType(FLOAT8),))
    column = Column(0, FLOAT8)
    assert rows(Reduce(floats, (), (Aggregate("max", (column,), FLOAT8),))) == Counter({(NAN,): 1})
    assert rows(Join((floats, floats), ((column, Column(1, FLOAT8)),)))[(NAN, NAN)] == 1


def test_threshold_drops_what_is_not_there() -> None:
    assert rows(Threshold(Union((A, Negate(A), Negate(A))))) == Counter()
    assert rows(Threshold(Union((A, Negate(A), A)))) == ROWS[GlobalId("u1")]


def test_a_table_function_gives_rows_or_fails() -> None:
    series = FlatMap(B, "generate_series(int4,int4)", (Literal(0, INT4), X), (ColumnType(INT4),))
    assert rows(series) == Counter({(1, 0): 1, (1, 1): 1})
    stuck = (Literal(0, INT4), X, Literal(0, INT4))
    endless = FlatMap(B, "generate_series(int4,int4,int4)", stuck, (ColumnType(INT4),))
    assert evaluate(endless, ROWS)[1] == Counter({"22023 step size cannot equal zero": 1})


def test_recursion_ends_where_nothing_new_is_found() -> None:
    columns = (ColumnType(INT4),)
    up = call("add(int4,int4)", X, Literal(1, INT4))
    below = Filter(LocalGet(1, columns), (call("lt", X, Literal(3, INT4)),))
    step = Project(Map(below, (up,)), (1,))
    ones = Constant((((1,), 2),), columns)
    assert rows(Recursive(1, ones, step, all=True)) == Counter({(1,): 2, (2,): 2, (3,): 2})
    assert rows(Recursive(1, ones, step, all=False)) == Counter({(1,): 1, (2,): 1, (3,): 1})
    same = LocalGet(1, columns)
    assert rows(Recursive(1, ones, same, all=False)) == Counter({(1,): 1})


def test_documents_are_in_the_order_of_jsonb() -> None:
    in_order = """
        [] null "" "a" "aa" "b" "é" -1 0 1 1.50 10 99.9 false true [null] ["a"] [1] [2] [true] [[]] [[[]]]
        [{}] [{"a":1}] [{"aa":1}] [{"b":1}] ["a",{}] [1,1] [1,2] [[1],2] [[1,2],1] {} {"":1} {"a":"x"} {"a":1}
        {"a":2} {"a":[]} {"a":{}} {"aa":0} {"aa":1} {"b":1} {"a":1,"b":1} {"b":0,"aa":1} {"b":2,"c":1} {"c":1,"aa":2}
    """.split()  # as PostgreSQL 15 has them, told by ORDER BY
    ordinals = [ordinal(document, JSONB) for document in in_order]
    assert all(one < next for one, next in pairwise(ordinals))
    assert ordinal("[1.0]", JSONB) == ordinal("[1]", JSONB)
