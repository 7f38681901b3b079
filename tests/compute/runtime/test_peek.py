"""Index lookups are answered on the event loop if few rows are involved."""

import pyarrow as pa
import pytest

from foreshore.compute.arrange.arrangement import Arrangement, TooManyRows
from foreshore.compute.arrange.table_index import table_index
from foreshore.compute.engine import ERRORS, rows_schema
from foreshore.compute.inputs import with_times
from foreshore.compute.peek import FEW_KEYS, FEW_ROWS, LocalIndex, answer_from_index
from foreshore.compute.protocol import Peek
from foreshore.expr.ir import Column, Literal
from foreshore.types import INT4
from tests.compute.runtime.harness import KV, KV_SCHEMA, id_, table

(U1,) = table("u1")


def index_of(keys: list[int]) -> LocalIndex:
    rows = table_index(id_("u2"), KV, (Column(0, KV[0].type),), 0)
    errors = table_index(id_("u2"), ERRORS, (), 0)
    assert rows.schema.equals(rows_schema(KV))
    columns = [pa.array(keys, pa.int32()), pa.array(["v"] * len(keys))]
    rows.insert(with_times(pa.table(columns, schema=KV_SCHEMA), 0), 1)
    return LocalIndex(rows, errors)


def is_small(peek: Peek, index: LocalIndex) -> bool:
    """Whether the peek is answered on the loop, after checking the answer elsewhere is equal."""
    whole = answer_from_index(peek, index)
    try:
        answer = answer_from_index(peek, index, small=True)
    except TooManyRows:
        return False
    assert answer.equals(whole)
    return True


@pytest.mark.parametrize("in_tail", [False, True])
@pytest.mark.parametrize(
    ("asked", "few"),
    [
        ([7], False),  # a key with many rows
        ([1, 2, 3], True),
        ([1, 2, 7], False),
        ([9_999_999], True),  # a key without rows
        (list(range(100, 101 + FEW_KEYS)), False),  # too many keys
    ],
)
def test_row_limit_counts_examined_rows(asked: list[int], few: bool, in_tail: bool) -> None:
    index = index_of([*range(100), *[7] * FEW_ROWS])
    if in_tail:
        columns = [pa.array([1], pa.int32()), pa.array(["w"])]
        assert isinstance(index.rows, Arrangement)
        index.rows.insert(with_times(pa.table(columns, schema=KV_SCHEMA), 1), 2)
    keys = tuple((Literal(key, INT4),) for key in asked)
    assert is_small(Peek(1, 0, U1, None, id_("u3"), keys, (), {}), index) == few


def test_scan_of_small_index_counts_as_small() -> None:
    peek = Peek(1, 0, U1, None, id_("u3"), None, (), {})
    assert is_small(peek, index_of(list(range(FEW_ROWS))))
    assert not is_small(peek, index_of(list(range(FEW_ROWS + 1))))
    assert not is_small(peek, index_of([7] * (FEW_ROWS + 1)))  # one row with a large multiplicity
