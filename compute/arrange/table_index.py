"""An index of the tables that a dataflow puts out: an arrangement of them by scalars."""

import pyarrow as pa

from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.engine import rows_schema
from foreshore.compute.output import Output
from foreshore.expr.columns import type_of
from foreshore.expr.ir import Column, Scalar
from foreshore.ids import GlobalId
from foreshore.types import ColumnType
from foreshore.update import Timestamp


class TableIndex(Arrangement):
    """An index of the tables that a dataflow puts out."""

    def insert_output(self, output: Output, upper: Timestamp) -> None:
        """Insert the output of the dataflow's next windows, until `upper`."""
        self.insert(output.rows, upper)


def table_index(
    id: GlobalId,
    relation_columns: tuple[ColumnType, ...],
    key: tuple[Scalar, ...],
    since: int,
    kind: type[TableIndex] = TableIndex,
) -> TableIndex:
    """Return an empty index, of that kind, of rows of these columns by `key`."""
    schema = rows_schema(relation_columns)
    types = tuple(type_of(scalar) for scalar in key)
    if all(isinstance(scalar, Column) for scalar in key):
        places = [scalar.index for scalar in key if isinstance(scalar, Column)]
        return kind(id, schema, types, lambda rows: [rows.column(i) for i in places], since)

    def columns(rows: pa.RecordBatch) -> list[pa.Array]:
        from foreshore.expr.evaluate import evaluate

        return [evaluate(scalar, rows.columns, rows.num_rows) for scalar in key]

    return kind(id, schema, types, columns, since)
