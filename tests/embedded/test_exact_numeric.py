"""Numerics without a scale of results: each as it is in rows and frames, an error in Arrow."""

from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pyarrow as pa
import pytest

from foreshore.adapter.files.arrow_columns import for_stream, stream_field
from foreshore.datum import to_array
from foreshore.embedded.frames import frame_of
from foreshore.embedded.result import Result
from foreshore.errors import DatabaseError, NumericValueOutOfRange
from foreshore.exact_numeric import UNSCALED
from foreshore.types import NUMBER, SqlType, array_of

BEYOND = ("NaN", "Infinity", "-Infinity", "1" + "0" * 40, "0." + "0" * 29 + "1", "-0." + "3" * 25)
WITHIN = ("0", "1.5", "-123456789.25", "0.00000000000000000001")


def result(type: SqlType, values: Sequence[Any]) -> Result:
    """Return values as the server sends them and a client gets them, in two batches."""
    field = stream_field("x", type, exact_numeric=True)
    batches = []
    for part in (values[:1], values[1:]):
        column = for_stream("x", to_array([None, *part], type).slice(1), type, exact_numeric=True)
        batches.append(pa.RecordBatch.from_arrays([column], schema=pa.schema([field])))
    return Result(pa.Table.from_batches(batches))


@pytest.mark.parametrize("text", BEYOND)
def test_numeric_beyond_decimals_of_arrow(text: str) -> None:
    value = Decimal(text)
    for type, values in ((NUMBER, [text, None, "1.5"]), (array_of(NUMBER), [[text, None], None])):
        found = result(type, values)
        assert found.types == [str(type)]
        first = found.fetchall()[0][0]
        assert str(first[0] if isinstance(first, list) else first) == str(value)
        exact = found.df(exact=True).x[0]
        assert str(exact[0] if isinstance(exact, list) else exact) == str(value)
        reads: list[Callable[[], object]] = [found.arrow, partial(pa.table, found)]
        for read in reads:
            with pytest.raises(NumericValueOutOfRange, match='column "x" has') as error:
                read()
            assert error.value.hint is not None
            assert "Cast it in the query" in error.value.hint
    numbers = result(NUMBER, [text, None, "1.5"])
    assert str(numbers.df().x.tolist()) == str([float(text), float("nan"), 1.5])
    assert text[:20] in repr(numbers) or str(value) in repr(numbers)


def test_numerics_within_decimals_of_arrow() -> None:
    values = [*WITHIN, None]
    found = result(NUMBER, list(values))
    decimals = [None if text is None else Decimal(text) for text in values]
    assert [x for (x,) in found] == decimals
    assert found.arrow().schema.field("x").type == UNSCALED
    assert found.arrow().column("x").to_pylist() == decimals
    lists = result(array_of(NUMBER), [list(values), None, []])
    assert lists.fetchall() == [(decimals,), (None,), ([],)]
    assert lists.arrow().column("x").to_pylist() == [decimals, None, []]
    assert lists.arrow().schema.field("x").type == pa.list_(UNSCALED)
    assert result(NUMBER, []).arrow().schema.field("x").type == UNSCALED


def test_frame_with_numeric_that_arrow_has_not_says_so() -> None:
    with pytest.raises(DatabaseError, match='column "x" has Infinity, which Arrow'):
        frame_of([{"x": Decimal("Infinity")}, {"x": Decimal(1)}])
