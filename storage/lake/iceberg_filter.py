"""Filters of sources of Iceberg tables: files that have no such rows are not read."""

from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.errors import InvalidParameterValue

LONGEST = 1000  # characters
_ROW = "__row"


class RowFilter:
    """A condition over the columns of a table, as pyiceberg writes it."""

    def __init__(self, text: str, schema: Any) -> None:
        """Parse a text; raises InvalidParameterValue if it is none, or names unknown columns."""
        from pyiceberg.expressions.parser import parse
        from pyiceberg.expressions.visitors import bind, extract_field_ids

        if len(text) > LONGEST:
            raise InvalidParameterValue(f"a filter has {LONGEST} characters at most")
        try:
            self.expression = parse(text)
            bound = bind(schema, self.expression, case_sensitive=True)
        except Exception as error:  # of its parser, and of values that do not fit
            said = str(error).partition("\n")[0][:200]
            raise InvalidParameterValue(
                f"the filter of the Iceberg table: {said}",
                hint="A filter compares columns with values, such as \"id > 5 and p = 'a'\".",
            ) from None
        ids = extract_field_ids(bound)
        self.fields = tuple(field for field in schema.fields if field.field_id in ids)

    def mask(self, rows: pa.RecordBatch, schema: Any) -> np.ndarray:
        """Return which rows, with the columns of `schema`, meet the condition."""
        from pyiceberg.expressions.visitors import bind
        from pyiceberg.io.pyarrow import expression_to_pyarrow

        bound = bind(schema, self.expression, case_sensitive=True)
        numbers = pa.array(np.arange(rows.num_rows, dtype=np.int64))
        numbered = pa.Table.from_batches([rows]).append_column(_ROW, numbers)
        found = numbered.filter(expression_to_pyarrow(bound)).column(_ROW).to_numpy()
        mask = np.zeros(rows.num_rows, bool)
        mask[found] = True
        return mask
