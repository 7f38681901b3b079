"""The output of a dataflow of operators in a window."""

from functools import cached_property

import pyarrow as pa

from foreshore.compute.engine import ERRORS, empty_output, output_schema
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.convert import columns_of, int64_array
from foreshore.compute.flow.errors import ERROR_LAYOUT
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import Layout
from foreshore.types import ColumnType


class FlowOutput:
    """Changes of rows and of errors as words; tables are made of them only if somebody asks."""

    def __init__(
        self,
        batch: Batch,
        layout: Layout,
        columns: tuple[ColumnType, ...],
        errors: Batch,
        interner: Interner,
    ) -> None:
        self.batch = batch
        self._layout = layout
        self._columns = columns
        self._errors = errors
        self._interner = interner

    @property
    def count(self) -> int:
        """Return the number of updates."""
        return len(self.batch) + len(self._errors)

    @property
    def is_empty(self) -> bool:
        """Whether nothing changes."""
        return not len(self.batch) and not len(self._errors)

    @cached_property
    def rows(self) -> pa.Table:
        """Return the updates of the rows."""
        return _table(self.batch, self._layout, self._columns, self._interner)

    @cached_property
    def errors(self) -> pa.Table:
        """Return the updates of the errors."""
        return _table(self._errors, ERROR_LAYOUT, ERRORS, self._interner)


def _table(
    batch: Batch, layout: Layout, columns: tuple[ColumnType, ...], interner: Interner
) -> pa.Table:
    if not len(batch):
        return empty_output(columns)
    arrays = columns_of(batch.words, layout, interner)
    arrays += [int64_array(batch.times), int64_array(batch.diffs)]
    return pa.Table.from_arrays(arrays, schema=output_schema(columns))
