"""The columns of a relation that a message has."""

from collections.abc import Sequence

import pyarrow as pa

from foreshore.types import ColumnType, RelationDesc


class Columns:
    """Some columns of a relation: their names, places and types."""

    def __init__(self, desc: RelationDesc, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self.places = tuple(desc.names.index(each) for each in names)
        self.types = tuple(desc.columns[each] for each in self.places)

    def of(self, batch: pa.RecordBatch) -> list[tuple[pa.Array, ColumnType]]:
        """Return the values of each column, and its type."""
        return [
            (batch.column(place), column)
            for place, column in zip(self.places, self.types, strict=True)
        ]
