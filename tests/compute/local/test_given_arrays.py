"""Long arrays of a plan become rows that it reads."""

import pyarrow as pa
import pytest

from foreshore.compute.local.given_arrays import (
    LONG_ARRAY,
    MOST_NUMBERS,
    has_long_arrays,
    over_long_arrays,
)
from foreshore.compute.local.linear import evaluate_linear
from foreshore.expr.ir import (
    IN_STEP,
    Call,
    FlatMap,
    Get,
    Join,
    Literal,
    Project,
    Relation,
    Scalar,
    Union,
)
from foreshore.ids import GlobalId
from foreshore.rows import counted
from foreshore.types import DATE, FLOAT8, INT4, INT8, NUMERIC, TEXT, ColumnType, SqlType, array_of

COUNT = LONG_ARRAY + 10


def unnest(*arrays: tuple[Scalar, SqlType], numbered: bool = False) -> FlatMap:
    """Return rows of arrays in step."""
    types = [type for _, type in arrays] + [INT8] * numbered
    columns = tuple(ColumnType(type) for type in types)
    return FlatMap(Join(()), IN_STEP, tuple(array for array, _ in arrays), columns)


def cast(array: Scalar, element: SqlType) -> Call:
    """Return an array cast to one of other elements."""
    return Call("cast_array(anyarray)", (array,), array_of(element))


INTS = Literal(tuple(range(COUNT)), array_of(INT4))
FLOATS = Literal(tuple(i / 4 for i in range(COUNT)), array_of(FLOAT8))
TEXTS = Literal(("2024-02-29", None) * (COUNT // 2), array_of(TEXT))
SHORT = Literal((1, None), array_of(INT4))
SERIES = FlatMap(
    Join(()),
    "generate_series(int4,int4)",
    (Literal(3, INT4), Literal(2 + COUNT, INT4)),
    (ColumnType(INT4, False),),
)


@pytest.mark.parametrize(
    "node",
    [
        unnest((INTS, INT4)),
        unnest((INTS, INT4), (SHORT, INT4), numbered=True),
        unnest((cast(FLOATS, NUMERIC), NUMERIC)),
        unnest((cast(TEXTS, DATE), DATE), (cast(INTS, TEXT), TEXT)),
        SERIES,
    ],
)
def test_plan_over_long_arrays_has_the_same_rows(node: FlatMap) -> None:
    relation: Relation = Project(node, (*range(len(node.columns)), 0))
    assert has_long_arrays(relation)
    found, given = over_long_arrays(relation)
    assert isinstance(found, Project)
    assert isinstance(found.input, Get)
    collections: dict[GlobalId | int, pa.Table] = {id: counted(rows) for id, rows in given.items()}
    assert evaluate_linear(found, collections).equals(evaluate_linear(relation))


@pytest.mark.parametrize(
    "node",
    [
        unnest((SHORT, INT4)),
        FlatMap(
            Join(()),
            "generate_series(int8,int8)",
            (Literal(1, INT8), Literal(MOST_NUMBERS + 1, INT8)),
            (ColumnType(INT8, False),),
        ),
        FlatMap(SERIES, IN_STEP, (INTS,), (ColumnType(INT4),)),
    ],
)
def test_short_huge_and_repeated_arrays_stay(node: FlatMap) -> None:
    relation = node if node.input == Join(()) else FlatMap(unnest((SHORT, INT4)), *_rest(node))
    assert over_long_arrays(relation) == (relation, {})


def _rest(node: FlatMap) -> tuple[str, tuple[Scalar, ...], tuple[ColumnType, ...]]:
    return node.function, node.args, node.columns


def test_array_with_an_element_that_fails_stays() -> None:
    texts = Literal(("2024-02-29",) * COUNT + ("2024-02-30",), array_of(TEXT))
    relation = unnest((cast(texts, DATE), DATE))
    assert over_long_arrays(relation) == (relation, {})


def test_equal_arrays_are_made_once() -> None:
    _, given = over_long_arrays(Union((SERIES, SERIES)))
    assert len(given) == 1
    assert next(iter(given.values())).column(0)[-1].as_py() == 2 + COUNT
    assert next(iter(given.values())).num_rows == COUNT
