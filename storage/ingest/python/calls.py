"""Calls of the function of a memo: with rows as it wants them, again after failures, bounded."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from foreshore.errors import DatabaseError, InvalidParameterValue
from foreshore.sources.python import MemoSource
from foreshore.storage.external.python import for_function
from foreshore.storage.external.retries import waits
from foreshore.storage.ingest.python.rows import as_arrow, as_dictionaries, stored
from foreshore.types import RelationDesc

ERROR_CHARACTERS = 2000


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Return whether calls of a function are awaited, and so can be given up."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - its type may have no such method
    )


class Calls:
    """Calls a function. Synchronous ones have as many threads as calls may run at a time."""

    def __init__(
        self,
        spec: MemoSource,
        function: Callable[..., Any],
        inputs: RelationDesc,
        results: RelationDesc,
    ) -> None:
        self._spec, self._function = spec, function
        self._inputs, self._results = inputs, results
        self._threads: ThreadPoolExecutor | None = None
        if not is_asynchronous(function):
            self._threads = ThreadPoolExecutor(spec.concurrency, "function")

    async def results(self, rows: pa.Table) -> pa.Table:
        """Return the results for rows, as they are stored; raises DatabaseError after all tries."""
        pauses = waits()
        for left in reversed(range(self._spec.retries + 1)):
            try:
                return await self._once(rows)
            except Exception as error:
                if not left:
                    raise _failure(error) from error
            await asyncio.sleep(next(pauses))
        raise AssertionError("there is a last try")

    def close(self) -> None:
        """Begin no further calls, and wait for none."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)

    async def _once(self, rows: pa.Table) -> pa.Table:
        if self._spec.batch is None:
            (row,) = as_dictionaries(rows, self._inputs)
            return self._stored([await self._call(row)], 1)
        given = await asyncio.to_thread(for_function, rows, self._inputs)
        answer = await self._call(given)
        return await asyncio.to_thread(self._stored, answer, rows.num_rows)

    def _stored(self, answer: Any, count: int) -> pa.Table:
        """Return `count` results as they are stored: of one column values, else by names."""
        names = self._results.names
        if isinstance(answer, list):
            answer = [self._named(each) for each in answer]
        elif len(names) == 1 and isinstance(answer, pa.Array | pa.ChunkedArray):
            answer = pa.table({names[0]: answer})
        table = as_arrow(answer, self._results)
        if table.num_rows != count:
            raise InvalidParameterValue(
                f"the function has returned {table.num_rows} results for {count} rows"
            )
        return stored(table, self._results)

    def _named(self, result: Any) -> Mapping[str, Any]:
        """Return the result for one row by columns."""
        names = self._results.names
        if len(names) == 1:
            return {names[0]: result}
        if not isinstance(result, Mapping) or not result.keys() >= {*names}:
            raise InvalidParameterValue(
                f"the function must return a dictionary with {', '.join(names)}"
            )
        return result

    async def _call(self, argument: Any) -> Any:
        arguments = self._spec.arguments
        if self._threads is None:
            async with asyncio.timeout(self._spec.timeout_ms / 1000):
                return await self._function(argument, **arguments)

        def run() -> Any:
            try:
                return self._function(argument, **arguments)
            except (SystemExit, KeyboardInterrupt, StopIteration) as error:
                raise RuntimeError(f"{type(error).__name__}: {error}") from error

        found = await asyncio.get_running_loop().run_in_executor(self._threads, run)
        if isinstance(found, Awaitable):
            async with asyncio.timeout(self._spec.timeout_ms / 1000):
                return await found
        return found


def _failure(error: Exception) -> DatabaseError:
    if isinstance(error, DatabaseError):
        return error
    return InvalidParameterValue(f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS])
