"""The connector of Python functions: what a generator yields, and where it has come to.

A function gets its last position, None at first, and yields pairs of rows and the position after
them: a number, or numbers by the names of parts. It may be a generator, which has a thread, or an
asynchronous one.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from foreshore.errors import DatabaseError, InvalidParameterValue
from foreshore.sources.outputs import ERRORS, OWN_ROWS
from foreshore.sources.python import PythonSource
from foreshore.storage.ingest.connector import Batch, Durable, Position
from foreshore.storage.ingest.errors import Unreadable, error_rows
from foreshore.storage.ingest.python.rows import as_arrow, stored
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
                async for each in _on_thread(found):
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
        table = as_arrow(rows, self._desc)
        diffs = _diffs(table)
        if not table.num_rows:
            return Batch({}, moved)
        try:
            made = stored(table, self._desc)
        except DatabaseError as error:
            part, offset = next(iter(moved.items()))
            told = f"{table.num_rows} rows are left out: {error.message}"
            return Batch({ERRORS: error_rows([Unreadable(part, offset, told)])}, moved)
        return Batch({OWN_ROWS: made.append_column(DIFF, diffs)}, moved)


async def _on_thread(found: Iterator[Any]) -> AsyncIterator[Any]:
    """Yield what a generator yields, which has a thread of its own: it may wait for long."""
    loop, end = asyncio.get_running_loop(), object()
    thread = ThreadPoolExecutor(1, "generator")
    try:
        while (each := await loop.run_in_executor(thread, next, found, end)) is not end:
            yield each
    finally:
        thread.shutdown(wait=False, cancel_futures=True)


def _is_part(part: tuple[Any, Any]) -> bool:
    name, number = part
    return isinstance(name, str) and isinstance(number, int) and abs(number) < FURTHEST


def _given(position: Mapping[str, int]) -> int | dict[str, int] | None:
    """Return a position as the function has yielded it."""
    if not position:
        return None
    return position[NUMBER] if position.keys() == {NUMBER} else dict(position)


def _diffs(table: pa.Table) -> pa.Array:
    """Return the column `__diff`, ones if there is none."""
    if DIFF in table.schema.names:
        return table.column(DIFF).cast(pa.int64())
    return pa.array([1] * table.num_rows, pa.int64())


def _failed(spec: PythonSource, error: Exception) -> DatabaseError:
    return InvalidParameterValue(
        f'function "{spec.function}" has failed: {type(error).__name__}: {error}'
    )
