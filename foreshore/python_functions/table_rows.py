"""Rows of functions that RETURN TABLE: from Python's rows to arrays of records.

A row is a sequence with a value for each column, such as a tuple, or a mapping by the columns'
names. Where there is one column, its value alone will do. A vectorized function returns lists of
structs, with the columns in order.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from foreshore.datum import from_array
from foreshore.errors import data_error
from foreshore.python_functions.definition import record_sent
from foreshore.python_functions.values import Wrong, from_python
from foreshore.structured import stored
from foreshore.types import arrow_type

Columns = Sequence[tuple[str, str]]  # names and kinds


def sets_from_python(
    values: Sequence[Any], columns: Columns, arrow: pa.DataType
) -> tuple[pa.Array, dict[int, str]]:
    """Return the arrays of rows that calls have returned, and errors by call."""
    errors: dict[int, str] = {}
    rows: list[Sequence[Any]] = []
    owners: list[int] = []
    counts: list[int | None] = []
    for place, value in enumerate(values):
        try:
            made = None if value is None else [_row(row, columns) for row in _rows(value)]
        except Wrong as wrong:
            errors[place], made = str(wrong), None
        counts.append(None if made is None else len(made))
        rows += made or ()
        owners += [place] * len(made or ())
    arrays = []
    for at, (_, kind) in enumerate(columns):
        type = arrow_type(record_sent(columns).members[at].type)
        array, failed = from_python([row[at] for row in rows], kind, type)
        errors = {owners[row]: text for row, text in reversed(failed.items())} | errors
        arrays.append(array)
    found = [None if place in errors else count for place, count in enumerate(counts)]
    return _sets(arrays, columns, counts, arrow, found), errors


def sets_from_structs(array: pa.Array, columns: Columns, arrow: pa.DataType) -> pa.Array:
    """Return the arrays of rows that a vectorized function has returned; raises Wrong."""
    kind = array.type
    if not (pa.types.is_list(kind) and pa.types.is_struct(kind.value_type)):
        raise Wrong(data_error("42804", f"a column of type {kind} is no list of structs"))
    fields = array.flatten().flatten()
    if len(fields) != len(columns):
        raise Wrong(_wrong_width(len(fields), columns))
    members = record_sent(columns).members
    arrays = [
        field.cast(arrow_type(member.type)) for field, member in zip(fields, members, strict=True)
    ]
    counts = array.value_lengths().to_pylist()
    return _sets(arrays, columns, counts, arrow, counts)


def _rows(value: Any) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        raise Wrong(
            data_error("42804", f"a value of Python type {type(value).__name__} is no set of rows")
        )
    return value if isinstance(value, list) else list(value)


def _row(row: Any, columns: Columns) -> Sequence[Any]:
    """Return the values of a row in the order of its columns; raises Wrong."""
    if isinstance(row, Mapping):
        missing = next((name for name, _ in columns if name not in row), None)
        if missing is not None:
            raise Wrong(data_error("42804", f'a row has no key "{missing}"'))
        return [row[name] for name, _ in columns]
    if isinstance(row, tuple | list):
        if len(row) != len(columns):
            raise Wrong(_wrong_width(len(row), columns))
        return row
    if len(columns) == 1:
        return (row,)
    raise Wrong(data_error("42804", f"a value of Python type {type(row).__name__} is no row"))


def _wrong_width(found: int, columns: Columns) -> str:
    return data_error("42804", f"a row has {found} values, and not {len(columns)}")


def _sets(
    arrays: Sequence[pa.Array],
    columns: Columns,
    counts: Sequence[int | None],
    arrow: pa.DataType,
    kept: Sequence[int | None],
) -> pa.Array:
    """Return arrays of records: so many of each call, NULL where nothing is `kept`."""
    type = record_sent(columns)
    data = [from_array(a, m.type) for a, m in zip(arrays, type.members, strict=True)]
    records = [stored(row, type) for row in zip(*data, strict=True)]
    sets: list[list[bytes] | None] = []
    at = 0
    for count, keeps in zip(counts, kept, strict=True):
        end = at + (count or 0)
        sets.append(None if keeps is None else records[at:end])
        at = end
    return pa.array(sets, arrow)
