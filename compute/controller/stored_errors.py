"""The contents of the table that stores the errors of materialized views.

The table has a row (id, SQLSTATE, message, time) for each time at which the least error of a view
changed; SQLSTATE and message are NULL if the view had no error from then on.
"""

from collections.abc import Collection, Iterator

import pyarrow as pa

from foreshore.compute.controller.error_log import Steps
from foreshore.ids import GlobalId
from foreshore.update import Timestamp

Row = tuple[GlobalId, str | None, str | None, Timestamp, int]  # the last value is the diff


class StoredErrors:
    """The stored steps of each view, and the rows that change them."""

    def __init__(self) -> None:
        self._steps: dict[GlobalId, dict[Timestamp, str | None]] = {}

    def __iter__(self) -> Iterator[GlobalId]:
        """Yield the views with rows."""
        return iter([*self._steps])

    def load(self, rows: pa.Table) -> None:
        """Add the rows of the table."""
        names = ("object_id", "sqlstate", "error", "at")
        columns = (rows.column(name).to_pylist() for name in names)
        for id, sqlstate, error, at in zip(*columns, strict=True):
            text = None if error is None else f"{sqlstate} {error}"
            self._steps.setdefault(GlobalId(id), {})[at] = text

    def of(self, id: GlobalId) -> Steps:
        """Return the stored steps of a view."""
        return dict(self._steps.get(id, {}))

    def difference(self, id: GlobalId, times: Collection[Timestamp], steps: Steps) -> list[Row]:
        """Return the rows to write so that a view has exactly `steps` at `times`."""
        stored, absent = self.of(id), object()
        changed = [at for at in times if stored.get(at, absent) != steps.get(at, absent)]
        removed = [_row(id, at, stored[at], -1) for at in changed if at in stored]
        return removed + [_row(id, at, steps[at], 1) for at in changed if at in steps]

    def replace(self, id: GlobalId, times: Collection[Timestamp], steps: Steps) -> None:
        """Record that the view has exactly `steps` at `times`."""
        stored = self._steps.setdefault(id, {})
        for at in times:
            stored.pop(at, None)
            if at in steps:
                stored[at] = steps[at]

    def remove(self, id: GlobalId) -> None:
        """Record that a view has no rows."""
        self._steps.pop(id, None)


def table_of(rows: Collection[Row], schema: pa.Schema) -> pa.Table:
    """Return rows as a table with `schema`, which includes `__diff`."""
    columns = zip(zip(*rows, strict=True), schema, strict=True)
    return pa.table([pa.array(values, field.type) for values, field in columns], schema=schema)


def _row(id: GlobalId, at: Timestamp, text: str | None, diff: int) -> Row:
    sqlstate, error = (None, None) if text is None else (text[:5], text[6:])
    return id, sqlstate, error, at, diff
