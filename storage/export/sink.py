"""One sink in an export process: a task that resumes and writes.

A sink that fails is resumed from the frontier of its target, after a pause that grows.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator

import pyarrow as pa

from foreshore.errors import DatabaseError
from foreshore.processes.transport import Tables
from foreshore.storage.export.exporter import Exporter, SinkKind
from foreshore.storage.export.messages import (
    Changes,
    Exported,
    NextTry,
    Resumes,
    SinkState,
    StartSink,
    Taken,
)
from foreshore.storage.external.process import Send
from foreshore.storage.external.process_memory import out_of_memory
from foreshore.storage.external.retries import Pauses, error_text, is_lasting, is_lost

logger = logging.getLogger(__name__)

# Of all sinks: parts that one asked for must not look as if another of its name had.
_RUNS = itertools.count(1)


class Sink:
    """One sink: its exporter, and the changes that have arrived."""

    def __init__(self, start: StartSink, kind: SinkKind, send: Send) -> None:
        self._id, self._export = start.id, start.export
        self._kind = kind
        self._send = send
        self._run_number = 0
        self._written = False  # whether anything was, since it was resumed
        self._pauses = Pauses()
        self._arrived: asyncio.Queue[tuple[Changes, Tables]] = asyncio.Queue()
        self.task = asyncio.get_running_loop().create_task(self._run())

    def received(self, changes: Changes, tables: Tables) -> None:
        """Take changes, unless they answer an earlier run."""
        if changes.run == self._run_number:
            self._arrived.put_nowait((changes, tables))

    def hurry(self) -> None:
        """Try again at once, if this is a pause after a failure."""
        self._pauses.cut_short()

    async def _run(self) -> None:
        while True:
            self._run_number = next(_RUNS)
            self._arrived = asyncio.Queue()
            self._written = False
            try:
                await self._write()
            except (OSError, DatabaseError) as error:
                logger.warning("a sink stalls: %s", error, extra={"sink": self._id})
                lasting, lost = is_lasting(error), is_lost(error)
                self._send(SinkState(self._id, "stalled", error_text(error), lasting, lost))
            except MemoryError:
                logger.warning("a sink stalls: out of memory", extra={"sink": self._id})
                self._send(SinkState(self._id, "stalled", error_text(out_of_memory())))
            except Exception as error:
                logger.exception("a sink has failed", extra={"sink": self._id})
                self._send(SinkState(self._id, "stalled", f"internal error: {error}"))
            if self._written:
                self._pauses.begin_anew()
            await self._pauses.pause(lambda seconds: self._send(NextTry(self._id, seconds)))

    async def _write(self) -> None:
        """Write what arrives, until something fails."""
        self._send(SinkState(self._id, "starting"))
        exporter = self._kind.exporter(self._export)
        try:
            frontier = await exporter.resume()
            self._send(SinkState(self._id, "running"))
            self._send(Resumes(self._id, self._run_number, frontier))
            while True:
                await self._write_next(exporter)
        finally:
            await exporter.close()

    async def _write_next(self, exporter: Exporter) -> None:
        first = await self._arrived.get()
        changes, _ = first
        parts = self._parts(first)
        await exporter.write(parts, changes.lower, changes.upper)
        async for _ in parts:
            raise AssertionError("the exporter has not taken all changes")
        self._written = True
        self._send(Exported(self._id, self._run_number, changes.upper))

    async def _parts(self, first: tuple[Changes, Tables]) -> AsyncIterator[pa.Table]:
        """Yield the parts of one interval."""
        changes, tables = first
        while True:
            for table in tables:
                yield table
                self._send(Taken(self._id, self._run_number))
            if changes.complete:
                return
            lower, upper = changes.lower, changes.upper
            changes, tables = await self._arrived.get()
            assert (changes.lower, changes.upper) == (lower, upper), "a part of another interval"
