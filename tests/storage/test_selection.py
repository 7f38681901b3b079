"""Selecting from a batch file equals selecting from its rows, whatever its row groups."""

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from foreshore.expr.ir import Call, Column, Literal, Scalar
from foreshore.storage.selection import Reading, Selection, later, read_parts
from foreshore.types import BOOL, INT4, INT8, INTERVAL, TEXT, SqlType, arrow_type
from foreshore.update import update_schema

# A field of the interval and a column of that name are two things.
COLUMNS = (("x", INTERVAL), ("x.days", INT4), ("t", TEXT), ("n", INT8))
TEXTS = ("", "a", "a" * 5000, "a" * 5000 + "b", "\ue000", "\U0001f600", "\U0010ffff")
VALUES = {
    INT4: st.integers(-2, 2) | st.sampled_from((-(2**31), 2**31 - 1)),
    INT8: st.integers(-2, 2) | st.sampled_from((-(2**63), 2**63 - 1)),
    TEXT: st.sampled_from(TEXTS),
}
SCHEMA = update_schema(pa.schema([pa.field(name, arrow_type(type)) for name, type in COLUMNS]))
ROW = st.tuples(
    st.builds(lambda days: {"months": 0, "days": days, "micros": 0}, st.integers(50, 60)),
    *(st.none() | VALUES[type] for _, type in COLUMNS[1:]),
    st.integers(0, 5),
    st.sampled_from((1, -1)),
)


@st.composite
def predicates(draw: st.DrawFn) -> Scalar:
    at = draw(st.integers(1, len(COLUMNS) - 1))
    type: SqlType = COLUMNS[at][1]
    sides: list[Scalar] = [Column(at, type), Literal(draw(st.none() | VALUES[type]), type)]
    operator = draw(st.sampled_from(("eq", "ne", "lt", "le", "gt", "ge")))
    return Call(operator, tuple(draw(st.permutations(sides))), BOOL)


SELECTIONS = st.builds(
    Selection,
    st.none() | st.lists(st.integers(0, len(COLUMNS) - 1), unique=True).map(tuple),
    st.lists(predicates(), max_size=2).map(tuple),
)


@given(st.lists(ROW, min_size=1, max_size=8), SELECTIONS, st.none() | st.integers(0, 5))
def test_row_groups_without_selected_rows_are_skipped(
    rows: Sequence[tuple[object, ...]], selection: Selection, after: int | None
) -> None:
    table = pa.Table.from_arrays(
        [
            pa.array(list(column), field.type)
            for column, field in zip(zip(*rows, strict=True), SCHEMA, strict=True)
        ],
        schema=SCHEMA,
    )
    file = io.BytesIO()
    pq.write_table(table, file, row_group_size=2)
    (batch,) = table.combine_chunks().to_batches()
    wanted = selection.of(later(batch, after))
    read = read_parts(pq.ParquetFile(file), SCHEMA, selection, after, Reading(), 64)
    found = pa.Table.from_batches(list(read), schema=selection.schema(SCHEMA))
    assert found.to_pylist() == pa.Table.from_batches([wanted]).to_pylist()
