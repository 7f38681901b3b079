"""Calls a function with the changes of an interval, or an object that keeps the frontier.

A function keeps no frontier, so that is in our catalog, and a change is given at least once. An
object of a class says where it has come to, and commits the changes and the frontier together.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from foreshore.errors import InvalidParameterValue
from foreshore.sinks.python import PythonTarget
from foreshore.storage.export.exporter import NOTHING
from foreshore.storage.export.messages import Export
from foreshore.storage.export.python.thread import CallThread
from foreshore.storage.external.python import for_function, function_of
from foreshore.update import Timestamp

TIME, DIFF = "mz_timestamp", "mz_diff"


@dataclass(frozen=True, slots=True)
class Part:
    """Which changes a function gets: part number `part` of those with lower <= time < upper."""

    lower: Timestamp
    upper: Timestamp
    part: int
    last: bool


class PythonExporter:
    """Calls what `module:name` is, from when it is resumed on."""

    def __init__(self, export: Export) -> None:
        assert isinstance(export.spec.target, PythonTarget), export
        self._export, self._target = export, export.spec.target
        self._calls = CallThread(export.name, self._target.timeout_ms / 1000)
        self._function: Any = None
        self._object: Any = None  # of a class, which keeps the frontier
        self._frontier: Timestamp | None = None

    async def resume(self) -> Timestamp | None:
        """Import the module; make an object of a class, and return its frontier."""
        self._function = await asyncio.to_thread(function_of, self._target.function)
        if not inspect.isclass(self._function):
            return None
        self._object = await self._calls.call(self._function, **self._target.arguments)
        found = await self._calls.call(self._object.frontier)
        if found is None:
            return NOTHING
        if not isinstance(found, int) or isinstance(found, bool) or found < 0:
            raise InvalidParameterValue(f"frontier() must return a time or None, not {found!r}")
        self._frontier = found
        return found

    async def write(
        self, parts: AsyncIterator[pa.Table], lower: Timestamp, upper: Timestamp
    ) -> None:
        """Give an interval, one part after the other; an object then commits it."""
        if self._object is not None:
            async for part in parts:
                await self._calls.call(self._object.write, await self._given(part))
            await self._calls.call(self._object.commit, upper)
            self._frontier = upper
            return
        number, before = 0, None
        async for part in parts:
            if before is not None:
                await self._tell(before, Part(lower, upper, number, False))
                number += 1
            before = part
        if before is not None:
            await self._tell(before, Part(lower, upper, number, True))

    async def close(self) -> None:
        """Let an object close itself, when what it does has ended."""
        close = getattr(self._object, "close", None)
        if inspect.iscoroutinefunction(close):
            await self._calls.call(close)
            close = None
        self._calls.end(close)

    async def _tell(self, part: pa.Table, which: Part) -> None:
        given = await self._given(part)
        await self._calls.call(self._function, given, which, **self._target.arguments)

    async def _given(self, part: pa.Table) -> pa.Table:
        return await asyncio.to_thread(given_changes, self._export, part)


def given_changes(export: Export, part: pa.Table) -> pa.Table:
    """Return updates as Python gets them: time, copies that are added, and the row."""
    desc, width = export.desc, len(export.desc.names)
    rows = part.select(range(width)).rename_columns(list(desc.names))
    times, diffs = part.column(width), part.column(width + 1)
    found = for_function(rows, desc) if width else rows
    found = found.add_column(0, DIFF, diffs.cast(pa.int64()))
    return found.add_column(0, TIME, times.cast(pa.int64()))
