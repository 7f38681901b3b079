"""Plans that take much memory beside an engine's limit are known by estimates."""

from typing import Literal as OneOf

import pytest
from hypothesis import example, given

from foreshore.expr.block import Block, Recursion
from foreshore.expr.columns import columns_of
from foreshore.expr.held import MUCH, Known, Shape, block_holds_much, holds_much
from foreshore.expr.ir import (
    Aggregate,
    Call,
    Column,
    Constant,
    Filter,
    FlatMap,
    Get,
    Join,
    Let,
    Literal,
    LocalGet,
    Map,
    Project,
    Reduce,
    Relation,
    Scalar,
    Union,
    Window,
    WindowFunction,
)
from foreshore.ids import GlobalId
from foreshore.types import FLOAT8, INT4, INT8, TEXT, ColumnType, SqlType, array_of
from tests.relations import TABLES, lowered_relations, window_relations

STORED = GlobalId("u1")
Gathering = OneOf["array_agg", "string_agg", "sum_float"]


def series(stop: int) -> Relation:
    bounds = (Literal(1, INT4), Literal(stop, INT4))
    return FlatMap(Join(()), "generate_series(int4,int4)", bounds, (ColumnType(INT4, False),))


def gathered(relation: Relation, function: Gathering = "array_agg", type: SqlType = INT4) -> Reduce:
    arguments: tuple[Scalar, ...] = (Column(0, type),)
    if function == "string_agg":
        arguments = (Column(0, TEXT), Literal(",", TEXT))
    made = array_of(type) if function == "array_agg" else type
    return Reduce(relation, (), (Aggregate(function, arguments, made),))


def read(relation: Relation) -> Map:
    """A text read as an array."""
    array = array_of(SqlType("int4range"))
    return Map(relation, (Call("cast(text,anyarray)", (Column(0, TEXT),), array),))


def by_key(relation: Relation) -> Relation:
    """Arrays of the first column by itself, then the key."""
    made = Aggregate("array_agg", (Column(0, INT4),), array_of(INT4))
    return Project(Reduce(relation, (Column(0, INT4),), (made,)), (1, 0))


KEYED = {STORED: Shape(3000, (16, 16)), GlobalId("u2"): Shape(5000, (16, 16))}


def joined_by(
    *pairs: tuple[int, int],
    keys: tuple[tuple[int, ...], ...] = ((0,),),
    null_safe: tuple[int, ...] = (),
) -> Relation:
    """Gathered rows of a table with keys, and of another one, with equal columns."""
    columns = (ColumnType(INT4), ColumnType(INT4))
    keyed = Project(Filter(Get(STORED, columns[::-1], tuple(keys)), ()), (0, 1))
    equal = tuple((Column(one, INT4), Column(other, INT4)) for one, other in pairs)
    return gathered(Join((keyed, Get(GlobalId("u2"), columns)), equal, null_safe))


def largest(relation: Relation) -> Relation:
    return Reduce(relation, (), (Aggregate("max", (Column(0, TEXT),), TEXT),))


def removed(relation: Relation) -> Relation:
    array = array_of(INT4)
    call = Call(
        "array_remove(anycompatiblearray,anycompatible)", (Column(0, array), Column(1, INT4)), array
    )
    return Map(relation, (call,))


STORED_ROWS = Get(STORED, (ColumnType(TEXT, False), ColumnType(INT4, False)))
FEW, MANY = 10_000, 10_000_000
PLANS: dict[str, tuple[Relation, Relation, Known, Known]] = {
    "array_agg": (gathered(series(MANY)), gathered(series(FEW)), {}, {}),
    "sums of floats": (
        gathered(series(MANY), "sum_float", FLOAT8), gathered(series(FEW), "sum_float", FLOAT8), {}, {},
    ),
    "of stored rows": (
        gathered(STORED_ROWS, "string_agg"), gathered(STORED_ROWS, "string_agg"),
        {STORED: Shape(MANY, (16, 16))}, {STORED: Shape(FEW, (16, 16))},
    ),
    "of few long stored values": (
        gathered(STORED_ROWS, "string_agg"), gathered(STORED_ROWS, "string_agg"),
        {STORED: Shape(100, (1 << 20, 16))}, {STORED: Shape(100, (1 << 10, 16))},
    ),
    "of a union": (
        gathered(Union((series(MANY), series(2)))), gathered(Union((series(FEW), series(2)))), {}, {},
    ),
    "of a named relation": (
        Let(1, series(MANY), gathered(LocalGet(1, (ColumnType(INT4, False),)))),
        Let(1, series(FEW), gathered(LocalGet(1, (ColumnType(INT4, False),)))), {}, {},
    ),
    "calls over gathered rows": (
        removed(Join((gathered(series(100_000)), series(300)), ())),
        removed(Join((gathered(series(1_000)), series(300)), ())), {}, {},
    ),
    "calls over grouped rows": (
        removed(Join((by_key(series(100_000)), series(300)), ())),
        removed(Join((by_key(series(1_000)), series(300)), ())), {}, {},
    ),
    "many groups": (
        gathered(by_key(series(MANY))), gathered(by_key(series(FEW))), {}, {},
    ),
    "the largest of long values": (
        removed(Join((largest(STORED_ROWS), series(300)), ())),
        removed(Join((largest(STORED_ROWS), series(300)), ())),
        {STORED: Shape(10, (1 << 20, 16))}, {STORED: Shape(10, (1 << 10, 16))},
    ),
    "joins by other columns than a key": (
        joined_by((1, 2)), joined_by((0, 2)), KEYED, KEYED,
    ),
    "joins by a part of a key": (
        joined_by((0, 2), keys=((0, 1),)), joined_by((0, 2), (1, 3), keys=((0, 1),)), KEYED, KEYED,
    ),
    "joins by a key that may be NULL": (
        joined_by((0, 2), null_safe=(0,)), joined_by((0, 2)), KEYED, KEYED,
    ),
    "joins by keys that other inputs do not have": (
        joined_by((0, 0)), joined_by((0, 2)), KEYED, KEYED,
    ),
    "equal rows": (
        gathered(Constant(((("x" * 1000,), 100_000),), (ColumnType(TEXT),)), "string_agg"),
        gathered(Constant(((("x" * 1000,), 10_000),), (ColumnType(TEXT),)), "string_agg"), {}, {},
    ),
    "calls over long stored values": (
        Map(STORED_ROWS, (Call("quote_ident(text)", (Column(0, TEXT),), TEXT),)),
        Map(STORED_ROWS, (Call("quote_ident(text)", (Column(0, TEXT),), TEXT),)),
        {STORED: Shape(1000, (1 << 20, 16))}, {STORED: Shape(10, (1 << 20, 16))},
    ),
    "frames": (
        Window(series(20_000), (), (), (WindowFunction("array_agg", (Column(0, INT4),), array_of(INT4)),)),
        Window(series(100), (), (), (WindowFunction("array_agg", (Column(0, INT4),), array_of(INT4)),)),
        {}, {},
    ),
    "elements of a text": (
        read(gathered(series(200_000), "string_agg", TEXT)),
        read(gathered(series(2_000), "string_agg", TEXT)), {}, {},
    ),
    "a projection": (
        removed(Project(Join((series(300), gathered(series(100_000))), ()), (1, 0))),
        removed(Project(Join((series(300), gathered(series(1_000))), ()), (1, 0))), {}, {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PLANS)
def test_estimates_tell_large_plans_from_small_ones(name: str) -> None:
    large, small, known_large, known_small = PLANS[name]
    assert holds_much(large, known_large)
    assert not holds_much(small, known_small)


def test_rows_that_an_engine_counts_are_left_to_it() -> None:
    counted = Reduce(series(MANY), (Column(0, INT4),), (Aggregate("count", (), INT8),))
    assert not holds_much(counted, {})
    assert not holds_much(STORED_ROWS, {STORED: Shape(MANY, (100, 16))})
    total = WindowFunction("sum_float", (Column(0, FLOAT8),), FLOAT8)
    assert not holds_much(Window(series(FEW), (), (), (total,)), {})
    listed = by_key(series(MUCH // 100))
    text = Call(
        "array_to_string(anyarray,text)", (Column(0, array_of(INT4)), Literal(",", TEXT)), TEXT
    )
    assert not holds_much(Map(listed, (text,)), {})


NUMBERS = (ColumnType(INT4, False),)
WORKING, RESULT = GlobalId("t1"), GlobalId("t2")
STEP = Project(
    Map(
        Get(WORKING, (ColumnType(TEXT),)),
        (Call("upper(text)", (Column(0, TEXT),), TEXT),),
    ),
    (1,),
)


def recursive(base: Relation, step: Relation, query: Relation) -> Block:
    recursion = Recursion(WORKING, RESULT, Block(base), Block(step), distinct=False)
    return Block(query, (recursion,))


def text_of(length: int) -> Relation:
    return Constant((((("x" * length),), 1),), (ColumnType(TEXT),))


@pytest.mark.parametrize(
    ("large", "small"),
    [
        (  # many rows of the base
            recursive(series(MANY), Get(WORKING, NUMBERS), gathered(Get(RESULT, NUMBERS))),
            recursive(series(FEW), Get(WORKING, NUMBERS), gathered(Get(RESULT, NUMBERS))),
        ),
        (  # long values
            recursive(text_of(100_000), STEP, gathered(Get(RESULT, (ColumnType(TEXT),)), "string_agg")),
            recursive(text_of(100), STEP, gathered(Get(RESULT, (ColumnType(TEXT),)), "string_agg")),
        ),
        (  # calls over what is gathered
            recursive(
                series(1), Get(WORKING, NUMBERS),
                removed(Join((gathered(Get(RESULT, NUMBERS)), series(1000)), ())),
            ),
            recursive(
                series(1), Get(WORKING, NUMBERS),
                removed(Join((gathered(Get(RESULT, NUMBERS)), series(10)), ())),
            ),
        ),
        (  # in the step
            recursive(series(1), gathered(Join((Get(WORKING, NUMBERS), series(FEW)), ())), series(1)),
            recursive(series(1), gathered(Join((Get(WORKING, NUMBERS), series(10)), ())), series(1)),
        ),
    ],
)  # fmt: skip
def test_results_of_recursions_are_estimated(large: Block, small: Block) -> None:
    assert block_holds_much(large, {})
    assert not block_holds_much(small, {})


@example(Map(series(2), (Column(0, INT4), Column(1, INT4), Column(2, INT4))))
@given(lowered_relations(size=6, failing=True, times=(1, 2), rounds=2) | window_relations())
def test_any_plan_has_an_estimate(plan: Relation) -> None:
    columns = columns_of(plan)
    gathered_columns = tuple(
        Aggregate("array_agg", (Column(place, each.type),), array_of(each.type))
        for place, each in enumerate(columns)
        if each.type.element is None
    )
    whole = Reduce(plan, (), gathered_columns or (Aggregate("array_agg", (), array_of(INT4)),))
    assert not holds_much(whole, {each.id: Shape(10, (8,) * len(each.columns)) for each in TABLES})
