"""Rows on their way into a table, in either of two forms: tuples of data, or Arrow columns.

A statement about one row makes tuples, as columns of one value each cost more than all else that it
does. A query or COPY makes columns. Each form is made of the other when it is first asked for.
"""

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from typing import Any

import pyarrow as pa

from foreshore.by_identity import ByIdentity
from foreshore.datum import from_array, to_array
from foreshore.few_updates import FewUpdates, few_updates
from foreshore.rows import count, negated, split_diffs
from foreshore.types import INT8, ColumnType, Datum, RelationDesc, arrow_type
from foreshore.update import DIFF_FIELD, Timestamp, update_schema

Row = tuple[Datum, ...]


class TableRows:
    """Rows in the columns of `desc`, each with its diff: 1 if it is inserted, -1 if deleted.

    `tuples` and `diffs` are made of the `table`, which has `__diff`, or it of them, when they are
    first asked for: reading an attribute that is there costs no call. Rows that came as columns may
    have greater diffs. Of rows with one key, deleted rows come before inserted ones.
    """

    __slots__ = (
        "are_tuples",
        "count",
        "desc",
        "diffs",
        "has_tuples",
        "num_rows",
        "table",
        "tuples",
    )

    desc: RelationDesc
    num_rows: int  # equal rows with a greater diff are one
    count: int  # these are counted each
    are_tuples: bool  # whether no columns have been made
    has_tuples: bool  # whether tuples have been made
    tuples: Sequence[Row]
    diffs: Sequence[int]
    table: pa.Table  # in the columns of the table's shard

    def __init__(
        self,
        desc: RelationDesc,
        tuples: Sequence[Row] | None,
        diffs: Sequence[int] | None = None,
        table: pa.Table | None = None,
    ) -> None:
        """Take `tuples`, which are inserted unless `diffs` say else, or a `table` with `__diff`."""
        self.desc = desc
        self.are_tuples = self.has_tuples = table is None
        if table is not None:
            self.table, self.num_rows = table, table.num_rows
        else:
            assert tuples is not None
            self.tuples, self.num_rows = tuples, len(tuples)
            self.diffs = [1] * len(tuples) if diffs is None else diffs
            self.count = sum(self.diffs)

    def __getattr__(self, name: str) -> Any:
        """Make an attribute that is not there yet."""
        made: Any
        match name:
            case "tuples":
                made, self.has_tuples = self._made_tuples(), True
            case "count":
                made = count(self.table)
            case "diffs":
                made = self.table.columns[-1].to_pylist()
            case "table":
                columns = columns_of_rows(self.tuples, self.desc.columns)
                diffs = to_array(self.diffs, INT8)
                made = pa.Table.from_arrays([*columns, diffs], schema=_row_schema(self.desc))
                self.are_tuples = False
            case _:
                raise AttributeError(name)
        setattr(self, name, made)
        return made

    def _made_tuples(self) -> Sequence[Row]:
        columns, diffs = split_diffs(self.table)
        data = [
            from_array(column, each.type)
            for column, each in zip(columns, self.desc.columns, strict=True)
        ]
        return list(zip(*data, strict=True)) if data else [()] * len(diffs)

    @classmethod
    def change(cls, deleted: "TableRows", inserted: "TableRows") -> "TableRows":
        """Return the deletion and the insertion of new rows, which are tuples, as one value."""
        old, new = deleted.tuples, inserted.tuples
        return cls(deleted.desc, [*old, *new], [-1] * len(old) + [1] * len(new))

    @classmethod
    def of_table(cls, desc: RelationDesc, table: pa.Table) -> "TableRows":
        """Return rows with `__diff`, whose columns have the types of `desc`."""
        columns, diffs = split_diffs(table)
        return cls.of_columns(desc, columns, diffs)

    @classmethod
    def of_columns(
        cls, desc: RelationDesc, columns: Sequence[pa.Array], diffs: pa.Array
    ) -> "TableRows":
        """Return rows whose columns have the types of `desc`."""
        schema = _row_schema(desc)
        return cls(desc, None, None, pa.Table.from_arrays([*columns, diffs], schema=schema))

    @property
    def size_bytes(self) -> int:
        """About how many bytes they take as columns."""
        if not self.are_tuples:
            return int(self.table.nbytes)
        return sum(
            len(datum) if isinstance(datum, str | bytes) else 8
            for row in self.tuples
            for datum in row
        )

    def deleted(self) -> "TableRows":
        """Return the same rows with their diffs negated."""
        if self.are_tuples:
            return TableRows(self.desc, self.tuples, [-diff for diff in self.diffs])
        return TableRows.of_table(self.desc, negated(self.table))


def updates_at(parts: Sequence[TableRows], time: Timestamp) -> pa.Table | FewUpdates:
    """Return all rows of `parts`, which are tuples of one table, as updates at `time`.

    A few of plain types stay tuples.
    """
    desc = parts[0].desc
    if len(parts) == 1:
        rows, diffs = parts[0].tuples, parts[0].diffs
    else:
        rows = list(chain.from_iterable([part.tuples for part in parts]))
        diffs = list(chain.from_iterable([part.diffs for part in parts]))
    schema = _update_schema_of(desc)
    few = few_updates(schema, time, rows, diffs)
    if few is not None:
        return few
    columns = columns_of_rows(rows, desc.columns)
    columns += [to_array([time] * len(rows), INT8), to_array(diffs, INT8)]
    return pa.Table.from_arrays(columns, schema=schema)


@lru_cache(1024)
def _row_schema(desc: RelationDesc) -> pa.Schema:
    return desc.stored_schema().append(DIFF_FIELD)


@lru_cache(1024)
def _update_schema(desc: RelationDesc) -> pa.Schema:
    return update_schema(desc.stored_schema())


_update_schema_of = ByIdentity(_update_schema)


def columns_of_rows(rows: Sequence[Row], types: Sequence[ColumnType]) -> list[pa.Array]:
    """Return the columns, of these types, that hold `rows`."""
    if not rows:
        return [pa.array([], arrow_type(each.type)) for each in types]
    columns = zip(*rows, strict=True)
    return [to_array(data, each.type) for data, each in zip(columns, types, strict=True)]
