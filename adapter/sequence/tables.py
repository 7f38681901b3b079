"""Rows on their way into a table: checked, in the table's columns, kept in the transaction."""

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.local import split_diffs
from foreshore.errors import NotNullViolation, WrongObjectType
from foreshore.expr.datum import from_array
from foreshore.ids import GlobalId
from foreshore.text import format_text
from foreshore.types import RelationDesc
from foreshore.update import DIFF

if TYPE_CHECKING:
    from foreshore.adapter.session import Session


def table_desc(session: "Session", id: GlobalId) -> RelationDesc:
    """Return the columns of table `id`."""
    if not id.startswith("u"):
        raise WrongObjectType("cannot change a system relation", sqlstate="42501")
    return session.planner.reader().planned[id].desc


def checked(session: "Session", id: GlobalId, rows: pa.Table) -> pa.Table:
    """Return rows with `__diff` in the columns of table `id`; raises NotNullViolation."""
    desc = table_desc(session, id)
    columns, diffs = split_diffs(rows)
    for name, column, values in zip(desc.names, desc.columns, columns, strict=True):
        if not column.nullable and values.null_count:
            first = pc.index(pc.is_null(values), True).as_py()
            table = session.planner.reader().state.item(id).name
            shown = ", ".join(
                _shown(session, each, each_column.type, first)
                for each, each_column in zip(columns, desc.columns, strict=True)
            )
            raise NotNullViolation(
                f'null value in column "{name}" of relation "{table}" violates not-null constraint',
                detail=f"Failing row contains ({shown}).",
            )
    schema = desc.arrow_schema().append(pa.field(DIFF, pa.int64(), nullable=False))
    return pa.Table.from_arrays([*columns, diffs], schema=schema)


def _shown(session: "Session", values: pa.Array, type: object, row: int) -> str:
    datum = from_array(values.slice(row, 1), type)[0]  # type: ignore[arg-type]
    if datum is None:
        return "null"
    return format_text(datum, type, zone=session.time_zone)  # type: ignore[arg-type]


def count(rows: pa.Table) -> int:
    """Return how many rows there are, each as often as its `__diff` says."""
    return int(pc.sum(rows.column(DIFF)).as_py() or 0)
