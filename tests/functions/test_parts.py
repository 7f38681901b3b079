"""The parts of a numeric sum to it on every engine, and their sums do not overflow."""

from collections.abc import Iterator
from decimal import Context, Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from foreshore.compute.bulk.duckdb import DuckDbEngine
from foreshore.datum import from_array, to_array
from foreshore.expr.evaluate import evaluate
from foreshore.expr.functions.parts import unit_of
from foreshore.expr.ir import Call, Column, Constant, Map
from foreshore.types import ColumnType, SqlType, numeric_of_scale

WIDE = Context(prec=80)
MOST = 10**38 - 1
EDGES = (MOST, -MOST, 10**20, 10**20 - 1, -(10**20), 10**18, -1, 0, 1)


@pytest.fixture(scope="module")
def engine() -> Iterator[DuckDbEngine]:
    """One engine for all cases."""
    engine = DuckDbEngine(threads=1)
    yield engine
    engine.close()


def decimals(array: pa.Array, type: SqlType) -> list[Decimal]:
    return [Decimal(str(datum)) for datum in from_array(array, type)]


@pytest.mark.parametrize("scale", [0, 7, 19, 20, 30])
@given(st.lists(st.sampled_from(EDGES) | st.integers(-MOST, MOST), min_size=5, unique=True))
def test_parts_sum_to_number(engine: DuckDbEngine, scale: int, units: list[int]) -> None:
    type, whole = numeric_of_scale(scale), numeric_of_scale(0)
    texts = [format(Decimal(n).scaleb(-scale, WIDE), "f") for n in units]
    parts = (
        Call("high_part(numeric)", (Column(0, type),), whole),
        Call("low_part(numeric)", (Column(0, type),), type),
    )
    column = to_array(texts, type)
    high, low = (decimals(evaluate(part, [column], len(texts)), part.type) for part in parts)
    wanted = list(zip(map(Decimal, texts), high, low, strict=True))
    unit = Decimal(unit_of(scale))
    for value, upper, lower in wanted:
        assert WIDE.add(WIDE.multiply(upper, unit), lower) == value
        assert lower.copy_abs() < unit
        assert upper.copy_abs() * 10**10 < MOST
    rows = Constant(tuple(((text,), 1) for text in texts), (ColumnType(type),))
    found = engine.evaluate(Map(rows, parts), {}, 0)
    types = (type, whole, type)
    columns = [decimals(found.column(i).combine_chunks(), t) for i, t in enumerate(types)]
    assert sorted(zip(*columns, strict=True)) == sorted(wanted)
