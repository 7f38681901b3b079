"""COPY with files of the server: rows of many files in, all or none; rows of a query out.

Files are read and written on threads, a batch at a time; between batches the statement can be
cancelled. Rows that come in are staged as those of COPY FROM STDIN are, so nothing of them is
visible before the commit. Files that go out are visible all at once (`storage/lake/writing.py`).
"""

import asyncio
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.external.access import accesses
from foreshore.adapter.files.publish import may_publish, publish
from foreshore.adapter.read.select import select
from foreshore.adapter.services.copies import Copies, Progress
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.interrupts import Interrupts
from foreshore.adapter.statement.result import taken
from foreshore.adapter.statement.sessions import Peer
from foreshore.adapter.write.copy import GivenRows
from foreshore.adapter.write.target import target_of
from foreshore.compute.engine import Cancellation
from foreshore.errors import DatabaseError, UndefinedFile
from foreshore.result_limits import is_unlimited
from foreshore.sql.plan import CopyFromFiles, CopyToFiles, FileOptions
from foreshore.storage.external.aws import bucket_of
from foreshore.storage.lake.columns import WrongValue, from_file
from foreshore.storage.lake.detect import format_in
from foreshore.storage.lake.places import Location
from foreshore.storage.lake.reading import Apart, CsvForm, FileRows, rows_of
from foreshore.storage.lake.tables import TABLES
from foreshore.storage.lake.writing import Export, Writer
from foreshore.types import RelationDesc

if TYPE_CHECKING:
    from foreshore.adapter.statement.interrupts import Interrupts

WRITERS = 4


async def copy_from_files(
    session: Peer, context: StatementContext, plan: CopyFromFiles
) -> Completed:
    """Run COPY table FROM files."""
    desc = target_of(context, plan.table, "COPY FROM").desc
    given = RelationDesc(
        tuple(desc.names[i] for i in plan.columns), tuple(desc.columns[i] for i in plan.columns)
    )
    table = context.planner.reader().state.item(plan.table).name
    copies, url = context.process.copies, plan.files.url
    threads = copies.threads(plan.files)
    is_table = plan.files.format in TABLES
    location = await _found(context, plan.files, is_pattern=not is_table)
    options = plan.files
    if options.format == "found":
        with context.interrupts.running():
            options = replace(options, format=await blocking.run(threads, format_in, location))
        is_table = options.format in TABLES
        if options.version is not None and not is_table:
            raise UndefinedFile(f'there is no Delta or Iceberg table in "{url}"')
    with context.interrupts.running():
        files = [] if is_table else await blocking.run(threads, location.files)
    if not files and not is_table:
        raise UndefinedFile(f'could not open file "{url}" for reading: No such file or directory')
    places = _Places(table)
    rows = GivenRows(given, context.tables.storage.scratch)
    progress = Progress("COPY FROM", session.database, plan.table)
    with copies.shown(context.pid, progress):
        cancellation, stack = Cancellation(), ExitStack()
        apart = _Apart(context, cancellation, stack)
        batches = _converted(location, files, options, given, table, apart)
        reading = _Reading(copies, threads, batches, cancellation, stack)
        try:
            while (found := await reading.next(context.interrupts)) is not None:
                progress.bytes += found.bytes
                progress.rows += found.rows.num_rows
                if found.rows.num_rows:
                    places.add(found)
                    await rows.add(found.rows)
        finally:
            await reading.end()
        await rows.stage(context, plan.table, plan.defaults, places.tell, plan.where)
    return Completed(f"COPY {rows.count}")


class _Reading:
    """Reads batches on threads, one at a time, and can be interrupted in the middle of one."""

    def __init__(
        self,
        copies: Copies,
        threads: Executor | None,
        batches: Iterator[FileRows],
        cancellation: Cancellation,
        stack: ExitStack,
    ) -> None:
        """Stop a step by `cancellation`, and close `stack` at the end."""
        self._copies = copies
        self._threads, self._batches = threads, batches
        self._cancellation, self._stack = cancellation, stack
        self._step: asyncio.Future[FileRows | None] | None = None

    async def next(self, interrupts: "Interrupts") -> FileRows | None:
        """Return the next batch; None at the end."""
        with interrupts.running():
            step = blocking.run(self._threads, next, self._batches, None)
            self._step = asyncio.ensure_future(step)
            return await asyncio.shield(self._step)

    async def end(self) -> None:
        """Free what the reading holds; a step that is under way is stopped, and not waited for."""
        if self._step is None or self._step.done():
            await blocking.run(self._threads, self._close)
            return
        self._cancellation.cancel()
        self._copies.end_soon(partial(self._end_after, self._step))

    async def _end_after(self, step: "asyncio.Future[FileRows | None]") -> None:
        await asyncio.wait([step])
        if not step.cancelled():
            step.exception()  # which is for nobody
        await blocking.run(self._threads, self._close)

    def _close(self) -> None:
        try:
            self._batches.close()  # type: ignore[attr-defined]
        finally:
            self._stack.close()


class _Apart:
    """Reads files in a process whose memory has a limit, which starts with the first of them."""

    def __init__(
        self, context: StatementContext, cancellation: Cancellation, stack: ExitStack
    ) -> None:
        self._isolated = context.engines.isolated
        self._memory = context.variables.settings.most_memory
        self._cancellation, self._stack = cancellation, stack
        self._evaluations: Any = None

    def __call__(
        self, read: Callable[..., Iterator[pa.RecordBatch]], *arguments: Any
    ) -> Iterator[pa.RecordBatch]:
        if self._evaluations is None:
            self._evaluations = self._stack.enter_context(
                self._isolated.evaluations(self._cancellation, self._memory)
            )
        found: Iterator[pa.RecordBatch] = self._evaluations.batches(read, *arguments)
        return found


async def _found(context: StatementContext, options: FileOptions, *, is_pattern: bool) -> Location:
    """Return the place of a COPY: an allowed one, or a bucket that a connection has keys for."""
    threads = context.process.copies.threads(options)
    if options.aws is not None:
        keys = accesses(context.names, context.planner.state.get, (options.aws,))[options.aws]
        return await blocking.run(threads, bucket_of, options.url, keys)
    find = partial(context.process.copies.places.find, options.url, is_pattern=is_pattern)
    return await blocking.run(threads, find)


def _converted(
    location: Location,
    files: list[str],
    options: FileOptions,
    given: RelationDesc,
    table: str,
    apart: Apart,
) -> Iterator[FileRows]:
    """Yield rows as the table has them. Tells file and row of a value that cannot be one."""
    assert options.format != "found"  # it is known by now
    form = csv_form(options)
    types = [column.type for column in given.columns]
    for each in rows_of(
        *(location, files, options.format, form, given.names, types, options.version), apart=apart
    ):
        if not each.rows.num_rows:
            yield each
            continue
        arrays: list[pa.Array] = []
        for name, column, array in zip(given.names, given.columns, each.rows.columns, strict=True):
            try:
                arrays.append(from_file(name, array, column.type))
            except WrongValue as wrong:
                wrong.error.where = _where(table, each.file, each.first + wrong.row, name)
                raise wrong.error from None
            except DatabaseError as error:
                error.where = f"COPY {table}, file {each.file}, column {name}"
                raise
        rows = pa.RecordBatch.from_arrays(arrays, schema=given.arrow_schema())
        yield FileRows(each.file, each.first, rows, each.bytes)


def _where(table: str, file: str, row: int, column: str | None = None) -> str:
    last = f", column {column}" if column is not None else ""
    return f"COPY {table}, file {file}, row {row}{last}"


class _Places:
    """Of which file and row the rows of a COPY are."""

    def __init__(self, table: str) -> None:
        self._table = table
        # The number of rows before, the file, and its row with which these begin.
        self._starts: list[tuple[int, str, int]] = []
        self._rows = 0

    def add(self, rows: FileRows) -> None:
        """Take up the next rows."""
        self._starts.append((self._rows, rows.file, rows.first))
        self._rows += rows.rows.num_rows

    def tell(self, row: int, error: DatabaseError) -> None:
        """Say in an error where the `row`-th row is, from 1."""
        start, file, first = next(each for each in reversed(self._starts) if each[0] < row)
        error.where = _where(self._table, file, first + row - start - 1)


def csv_form(options: FileOptions) -> CsvForm:
    """Return the form of CSV files."""
    csv = options.options
    return CsvForm(csv.delimiter, csv.null, csv.header, csv.quote, csv.escape, csv.match_header)


async def copy_to_files(session: Peer, context: StatementContext, plan: CopyToFiles) -> Completed:
    """Run COPY query TO files."""
    copies, options, format = context.process.copies, plan.files, plan.files.format
    threads = copies.threads(options)
    assert format != "found"  # which is for COPY FROM
    location = await _found(context, options, is_pattern=False)
    types = [column.type for column in plan.source.desc.columns]
    progress = Progress("COPY TO", session.database, plan.relation)
    with copies.shown(context.pid, progress), tempfile.TemporaryDirectory() as scratch:

        def begin() -> Export:
            return Export(
                location,
                format,
                csv_form(options),
                plan.source.desc.names,
                types,
                options.max_file_bytes,
                Path(scratch),
            )

        export = await blocking.run(threads, begin)
        try:
            whole = may_publish(context, plan) and is_unlimited(context.variables)
            published = await publish(context, plan, export) if whole else None
            if published is None:
                await _export(context, plan, export, progress)
            else:
                progress.rows, progress.bytes = published, export.size
            await blocking.run(threads, export.finish)
        finally:
            await blocking.run(threads, export.close)
    return Completed(f"COPY {progress.rows}")


async def _export(
    context: StatementContext, plan: CopyToFiles, export: Export, progress: Progress
) -> None:
    """Write the rows of the query."""
    selected = await select(context, plan.source)
    context.session.portals.streams.append(selected.source)
    rows = taken(selected, 0, context.interrupts, limits=context.variables.settings.limits)
    ordered = export.single or plan.source.query.finishing.order_by != ()
    threads = context.process.copies.threads(plan.files)
    count = 1 if ordered else WRITERS
    await _write(context.interrupts, export, rows.batches, progress, count, threads)


async def _write(
    interrupts: Interrupts,
    export: Export,
    batches: object,
    progress: Progress,
    count: int,
    threads: Executor | None,
) -> None:
    """Deal the batches to writers, each of which is busy with one at most."""
    free: list[Writer] = [export.writer() for _ in range(count)]
    first = free[0]
    busy: dict[asyncio.Future[None], Writer] = {}
    try:
        async for batch in batches:  # type: ignore[attr-defined]
            interrupts.check()
            while not free:
                with interrupts.running():
                    done, _ = await asyncio.wait(busy, return_when=asyncio.FIRST_COMPLETED)
                for future in done:
                    free.append(busy.pop(future))
                    future.result()
            writer = free.pop(0)
            work = asyncio.ensure_future(blocking.run(threads, writer.write, batch))
            busy[work] = writer
            progress.rows += batch.num_rows
            progress.bytes = export.size
        writers = [*free, *busy.values()]
        for future in list(busy):
            await future
        for writer in writers:
            always = writer is first and progress.rows == 0
            await blocking.run(threads, writer.close, always=always)
        progress.bytes = export.size
    finally:
        if busy:
            await asyncio.wait(busy)
