"""Calls of the function of a memo: with rows as it wants them, again after failures, bounded.

A call that is not over in time is given up. One of a synchronous function cannot be stopped: its
thread goes on, and only so many threads of a process may do so; then the source fails.
"""

import asyncio
import inspect
import threading
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import pyarrow as pa

from foreshore.errors import DatabaseError, InvalidParameterValue
from foreshore.sources.python import MemoSource
from foreshore.storage.external.python import for_function
from foreshore.storage.external.retries import waits
from foreshore.storage.ingest.python.rows import as_arrow, as_dictionaries, stored
from foreshore.types import RelationDesc

ERROR_CHARACTERS = 2000
MOST_GIVEN_UP = 64  # threads whose calls have not ended
_given_up: Counter[str] = Counter()  # such threads of this process, by functions


def is_asynchronous(function: Callable[..., Any]) -> bool:
    """Return whether calls of a function are awaited, and so can be given up."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
        getattr(function, "__call__", None)  # noqa: B004 - its type may have no such method
    )


class Calls:
    """Calls a function. A call of a synchronous one has a thread of its own."""

    def __init__(
        self,
        spec: MemoSource,
        function: Callable[..., Any],
        inputs: RelationDesc,
        results: RelationDesc,
    ) -> None:
        self._spec, self._function = spec, function
        self._inputs, self._results = inputs, results
        self._is_asynchronous = is_asynchronous(function)

    async def results(self, rows: pa.Table) -> pa.Table:
        """Return the results for rows, as they are stored; raises DatabaseError after all tries."""
        pauses = waits()
        for left in reversed(range(self._spec.retries + 1)):
            try:
                return await self._once(rows)
            except TooManyCalls:
                raise
            except Exception as error:
                if not left:
                    raise _failure(error) from error
            await asyncio.sleep(next(pauses))
        raise AssertionError("there is a last try")

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
        async with asyncio.timeout(self._spec.timeout_ms / 1000):
            if self._is_asynchronous:
                return await self._function(argument, **arguments)
            found = await self._on_thread(partial(self._function, argument, **arguments))
            return await found if isinstance(found, Awaitable) else found

    async def _on_thread(self, call: Callable[[], Any]) -> Any:
        """Return what a call returns, on a thread that ends with the process if not before."""
        if _given_up[self._spec.function] >= MOST_GIVEN_UP:
            raise TooManyCalls(f"{MOST_GIVEN_UP} calls that were given up have not ended")
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[Any] = loop.create_future()

        def settle(found: Any, error: BaseException | None) -> None:
            if ended.done():
                _given_up[self._spec.function] -= 1
            elif error is not None:
                ended.set_exception(error)
            else:
                ended.set_result(found)

        def run() -> None:
            found, failed = None, None
            try:
                found = call()
            except BaseException as error:
                failed = error if isinstance(error, Exception) else None
                if failed is None or isinstance(error, StopIteration):  # no future takes these
                    failed = RuntimeError(f"{type(error).__name__}: {error}")
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, found, failed)

        threading.Thread(target=run, name="function", daemon=True).start()
        try:
            return await ended
        finally:
            if ended.cancelled():
                _given_up[self._spec.function] += 1


class TooManyCalls(OSError):
    """The process has too many threads whose calls have not ended."""


def _failure(error: Exception) -> DatabaseError:
    if isinstance(error, DatabaseError):
        return error
    if isinstance(error, TimeoutError) and not str(error):
        return InvalidParameterValue("TimeoutError: the call has taken longer than TIMEOUT")
    return InvalidParameterValue(f"{type(error).__name__}: {error}"[:ERROR_CHARACTERS])
