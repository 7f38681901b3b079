"""Finishing uses PostgreSQL's order."""

from typing import Any

import pyarrow as pa
import pytest

from foreshore.compute.finish import finish
from foreshore.datum import to_array
from foreshore.expr.ir import Column, Finishing, OrderKey
from foreshore.types import FLOAT8, INT4, INTERVAL, JSONB, TEXT, SqlType, array_of, numeric

NAN = float("nan")
CASES: list[tuple[SqlType, list[Any]]] = [
    (FLOAT8, [float("-inf"), -2.5, -0.1, 0.0, 1e-300, 3.0, float("inf"), NAN]),
    (TEXT, ["", "A", "B", "a", "ab", "é"]),
    (INT4, [-5, 0, 7]),
    (numeric(10, 2), ["-1.00", "0.00", "2.50"]),
    (INTERVAL, [(0, 0, -1), (0, 29, 0), (1, 0, 1), (0, 31, 0)]),
    (array_of(INT4), [(), (1,), (1, 2), (2,)]),
    (JSONB, ["null", '"a"', "1", "1.5", "true", "[1]", '{"a": 1}']),
]


@pytest.mark.parametrize(
    ("type", "data"), CASES, ids=lambda v: str(v) if isinstance(v, SqlType) else ""
)
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("nulls_first", [False, True])
def test_rows_come_in_order(
    type: SqlType, data: list[Any], descending: bool, nulls_first: bool
) -> None:
    ordered = data[::-1] if descending else data
    expected = [None, *ordered] if nulls_first else [*ordered, None]
    shuffled = [data[i] for i in range(0, len(data), 2)] + [None] + data[1::2]
    rows = pa.RecordBatch.from_arrays([to_array(shuffled, type)], names=["c0"])
    key = OrderKey(Column(0, type), descending, nulls_first)
    found = finish(rows, Finishing((key,), None, 0, (0,)))
    wanted = to_array(expected, type)
    assert str(found.column(0).to_pylist()) == str(wanted.to_pylist())


def test_limit_offset_and_projection() -> None:
    rows = pa.RecordBatch.from_arrays(
        [pa.array([1, 2, 3, 4], pa.int32()), pa.array(["x", "y", "x", "y"])], names=["c0", "c1"]
    )
    keys = (OrderKey(Column(1, TEXT)), OrderKey(Column(0, INT4), True, True))
    found = finish(rows, Finishing(keys, 2, 1, (0, 1, 0)))
    assert [c.to_pylist() for c in found.columns] == [[1, 4], ["x", "y"], [1, 4]]
    assert found.schema.names == ["c0", "c1", "c2"]
    assert finish(rows, Finishing((), 0, 0, (0,))).num_rows == 0
    assert finish(rows, Finishing((), 5, 9, (0,))).num_rows == 0
    assert finish(rows, Finishing((), 3, 0, ())).num_rows == 3
