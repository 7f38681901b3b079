"""The connector of Python functions: what a generator yields, and where it has come to.

A function gets its last position, None at first, and yields pairs of rows and the position after
them: a number, or numbers by the names of parts. It may be a generator, which has a thread, or an
asynchronous one.
"""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

from foreshore.errors import BadCopyFileFormat, DatabaseError, InvalidParameterValue
from foreshore.sources.outputs import ERRORS, OWN_ROWS
from foreshore.sources.python import PythonSource
from foreshore.storage.ingest.connector import Batch, Durable, Position
from foreshore.storage.ingest.errors import Unreadable, error_rows
from foreshore.storage.lake.columns import WrongValue, from_file
from foreshore.types import RelationDesc
from foreshore.update import DIFF

NUMBER = "position"  # the part of a position that is a number
FURTHEST = 1 << 62


class PythonConnector:
    """Calls the function and takes what it yields."""

    def __init__(
        self, spec: PythonSource, desc: RelationDesc, function: Callable[[], Callable[..., Any]]
    ) -> None:
        self._spec = spec
        self._desc = desc
        self._function = function

    async def run(self, durable: Durable) -> AsyncIterator[Batch]:
        """Yield what the function yields."""
        position = dict(durable.position)
        function = await asyncio.to_thread(self._function)
        try:
            found = function(_given(position), **self._spec.arguments)
        except Exception as error:
            raise _failed(self._spec, error) from error
        async for pair in self._pairs(found):
            rows, moved = self._taken(pair)
            yield await asyncio.to_thread(self._batch, rows, moved)

    def committed(self, position: Position) -> None:
        """Do nothing: the function is not told."""

    async def _pairs(self, found: Any) -> AsyncIterator[Any]:
        """Yield what a generator of either kind yields; its errors are DatabaseErrors."""
        try:
            if inspect.isasyncgen(found):
                async for each in found:
                    yield each
            elif isinstance(found, Iterator):
                end = object()
                while (each := await asyncio.to_thread(next, found, end)) is not end:
                    yield each
            else:
                raise InvalidParameterValue(f'function "{self._spec.function}" is no generator')
        except DatabaseError:
            raise
        except Exception as error:
            raise _failed(self._spec, error) from error

    def _taken(self, pair: Any) -> tuple[Any, Position]:
        """Return the rows and the position that were yielded."""
        if not (isinstance(pair, tuple) and len(pair) == 2):
            raise InvalidParameterValue(
                f'function "{self._spec.function}" must yield pairs of rows and a position'
            )
        rows, position = pair
        moved = {NUMBER: position} if isinstance(position, int) else position
        if not (isinstance(moved, Mapping) and moved and all(map(_is_part, moved.items()))):
            raise InvalidParameterValue(
                f'function "{self._spec.function}" must yield as a position a number, or numbers by'
                " names"
            )
        return rows, dict(moved)

    def _batch(self, rows: Any, moved: Position) -> Batch:
        table = _as_arrow(rows, self._desc)
        diffs = _diffs(table)
        if not table.num_rows:
            return Batch({}, moved)
        try:
            arrays = [
                from_file(name, _array(table, name), column.type)
                for name, column in zip(self._desc.names, self._desc.columns, strict=True)
            ]
            for name, column, array in zip(
                self._desc.names, self._desc.columns, arrays, strict=True
            ):
                if not column.nullable and array.null_count:
                    raise BadCopyFileFormat(f'null value in column "{name}"')
        except (WrongValue, DatabaseError) as error:
            told = error.error if isinstance(error, WrongValue) else error
            part, offset = next(iter(moved.items()))
            wrong = Unreadable(part, offset, f"{table.num_rows} rows are left out: {told.message}")
            return Batch({ERRORS: error_rows([wrong])}, moved)
        made = pa.Table.from_arrays(arrays, schema=self._desc.stored_schema())
        return Batch({OWN_ROWS: made.append_column(DIFF, diffs)}, moved)


def _is_part(part: tuple[Any, Any]) -> bool:
    name, number = part
    return isinstance(name, str) and isinstance(number, int) and abs(number) < FURTHEST


def _given(position: Mapping[str, int]) -> int | dict[str, int] | None:
    """Return a position as the function has yielded it."""
    if not position:
        return None
    return position[NUMBER] if position.keys() == {NUMBER} else dict(position)


def _as_arrow(rows: Any, desc: RelationDesc) -> pa.Table:
    """Return Arrow tables, data frames or dictionaries as a table."""
    if isinstance(rows, pa.Table):
        return rows
    if isinstance(rows, pa.RecordBatch):
        return pa.Table.from_batches([rows])
    if hasattr(rows, "to_arrow"):
        found: pa.Table = rows.to_arrow()
        return found
    if hasattr(rows, "__arrow_c_stream__"):
        return pa.table(rows)
    if hasattr(rows, "columns"):
        return pa.Table.from_pandas(rows, preserve_index=False)
    if isinstance(rows, Mapping):
        rows = [rows]
    return _of_dictionaries(list(rows), desc)


def _of_dictionaries(rows: Sequence[Mapping[str, Any]], desc: RelationDesc) -> pa.Table:
    columns = {}
    for name, column in zip(desc.names, desc.columns, strict=True):
        values = [row.get(name) for row in rows]
        if column.type.name in ("json", "jsonb"):
            values = [None if each is None else json.dumps(each) for each in values]
        try:
            columns[name] = pa.array(values)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidParameterValue(f'column "{name}": {error}') from None
    columns[DIFF] = pa.array([row.get(DIFF, 1) for row in rows], pa.int64())
    return pa.table(columns)


def _array(table: pa.Table, name: str) -> pa.Array:
    if name not in table.schema.names:
        raise InvalidParameterValue(f'the rows have no column "{name}"')
    column = table.column(name).combine_chunks()
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _diffs(table: pa.Table) -> pa.Array:
    """Return the column `__diff`, ones if there is none."""
    if DIFF in table.schema.names:
        return table.column(DIFF).cast(pa.int64())
    return pa.array([1] * table.num_rows, pa.int64())


def _failed(spec: PythonSource, error: Exception) -> DatabaseError:
    return InvalidParameterValue(
        f'function "{spec.function}" has failed: {type(error).__name__}: {error}'
    )
