"""COPY: rows in from the client, all or none; rows out."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.adapter.client import CopyIn, CopyOut
from foreshore.adapter.plans.target import Target
from foreshore.adapter.read.select import select
from foreshore.adapter.statement.attempts import Attempts
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.statement.result import Selected, taken
from foreshore.adapter.statement.staging import Staging
from foreshore.adapter.subscribe.subscribe import subscribe
from foreshore.adapter.transaction.transaction import Transaction
from foreshore.adapter.write.source import with_row_outputs
from foreshore.adapter.write.stage import checked, stage_rows
from foreshore.adapter.write.stage_changes import follow_foreign_keys, stage
from foreshore.adapter.write.target import lock_shared_against_ddl, target_of
from foreshore.compute.engine import check_memory
from foreshore.errors import (
    DatabaseError,
    DatatypeMismatch,
    IntegrityConstraintViolation,
    UndefinedColumn,
)
from foreshore.expr.ir import Column, Scalar
from foreshore.ids import GlobalId
from foreshore.rows import counted
from foreshore.spill import PIECE_BYTES, PIECE_ROWS, Spill
from foreshore.sql.plan import CopyFrom, CopyOptions, CopyTo, Select
from foreshore.table_rows import TableRows
from foreshore.types import RelationDesc

Tell = Callable[[int, DatabaseError], None]
FEW_ROWS = 100_000  # among which the one that breaks a constraint is looked for


def copy_from(session: Attempts, context: StatementContext, plan: CopyFrom) -> CopyIn:
    """Begin a COPY ... FROM STDIN; the server writes the rows to the result's target.

    If the statement is alone, finishing the target as the last statement commits.
    """
    desc = target_of(context, plan.table, "COPY FROM").desc
    given = RelationDesc(
        tuple(desc.names[i] for i in plan.columns), tuple(desc.columns[i] for i in plan.columns)
    )
    item = context.planner.reader().state.item(plan.table)
    return CopyIn(item.name, given, plan.options, _Rows(session, context, given))


class _Rows:
    """The rows of one COPY, which are staged in the transaction when all have been received."""

    def __init__(self, session: Attempts, context: StatementContext, given: RelationDesc) -> None:
        self._session = session
        self._context = context
        assert isinstance(context.prepared.made.plan, CopyFrom)
        self._plan = context.prepared.made.plan
        self._rows = GivenRows(given, context.tables.storage.scratch)

    async def write(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""
        self._context.interrupts.check()
        await self._rows.add(batch)
        check_memory(self._rows.received_bytes, self._context.variables.settings.most_memory)

    async def finish(self, *, last: bool) -> str:
        """Complete the statement; `last` says that nothing follows in its implicit transaction."""
        prepared, alone = self._context.prepared, self._context.alone and last
        try:
            await self._session.attempt(self._stage, prepared, alone=alone)
        finally:
            self._rows.forget()
        return f"COPY {self._rows.count}"

    async def _stage(self, context: StatementContext) -> None:
        """Stage the rows, in the columns that the table has now."""
        await context.planner.ready(context.prepared)
        plan = context.prepared.made.plan
        assert isinstance(plan, CopyFrom), plan
        self._plan = plan
        await self._rows.stage(context, plan.table, plan.defaults, self._tell, plan.where)
        if context.alone:
            await self._session.transactions.commit_implicit()

    def _tell(self, row: int, error: DatabaseError) -> None:
        """Say in which line `row` is; a record is one line."""
        table = self._context.planner.reader().state.item(self._plan.table).name
        error.where = f"COPY {table}, line {self._plan.options.header + row}"

    def abort(self) -> None:
        """Forget all rows."""
        self._rows.forget()


class GivenRows:
    """Rows in the columns `given`, until they are staged.

    Many are in a file without a name below `scratch`, also those that are staged: it stays as long
    as the transaction does.
    """

    def __init__(self, given: RelationDesc, scratch: Path) -> None:
        self._given = given
        self._scratch = scratch
        self._received = Spill(scratch)
        self._filter = _Filter(scratch)
        self.count = 0  # rows that were staged

    @property
    def received_bytes(self) -> int:
        """The bytes of all rows that were given."""
        return self._received.size_bytes

    async def add(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""
        await _spill(self._received, counted(batch))

    def forget(self) -> None:
        """Forget all rows but those that are staged."""
        self._received, self._filter = Spill(self._scratch), _Filter(self._scratch)

    async def stage(
        self,
        context: StatementContext,
        table: GlobalId,
        defaults: Sequence[Scalar],
        tell: Tell,
        where: Scalar | None = None,
    ) -> None:
        """Check and stage the rows that `where` takes, in the columns that the table has now.

        `tell` says in an error where the row of a number, from 1, is.
        """
        target = target_of(context, table)
        row = _columns(context.planner, defaults, target, self._given)
        await lock_shared_against_ddl(context, target)
        await blocking.run(None, self._received.flush)
        rows = Spill(self._scratch)
        self._filter = _Filter(self._scratch)
        stays = not row and where is None and not target.planned.computed
        for received in self._received.tables:
            context.interrupts.check()
            made = await with_row_outputs(context, received, row, target)
            if where is not None:
                made = await self._filter.rows_of(context, where, made)
            check = partial(_check, context, target)
            told = partial(self._tell_after, tell, rows.num_rows)
            made = await _first_wrong(context.transaction, check, made, told)
            if stays:
                rows.keep(made)
            else:
                await _spill(rows, made)
            await asyncio.sleep(0)  # there may be many parts
        await blocking.run(None, rows.flush)
        self.count = rows.num_rows
        if self.count > PIECE_ROWS or rows.size_bytes > PIECE_BYTES:
            await self._stage_parts(context, target, rows.tables, tell)
        elif self.count:
            add = partial(_add, context, target)
            together = pa.concat_tables(rows.tables)
            await _first_wrong(
                context.transaction, add, together, partial(self._tell_after, tell, 0)
            )

    async def _stage_parts(
        self, context: StatementContext, target: Target, parts: Sequence[pa.Table], tell: Tell
    ) -> None:
        """Stage rows that are not to be put together; foreign keys see all of them."""
        before, changes = 0, []
        for part in parts:
            context.interrupts.check()
            add = partial(_add_rows, context, target)
            await _first_wrong(
                context.transaction, add, part, partial(self._tell_after, tell, before)
            )
            changes.append(Staging(target, None, TableRows.of_table(target.desc, part)))
            before += part.num_rows
            await asyncio.sleep(0)
        await follow_foreign_keys(context, changes)

    def _tell_after(self, tell: Tell, before: int, row: int, error: DatabaseError) -> None:
        tell(self._filter.line(before + row), error)


async def _spill(spill: Spill, rows: pa.Table) -> None:
    """Add rows, on a thread if a file may be written."""
    if spill.is_for_file(rows):
        await blocking.run(None, spill.add, rows)
    else:
        spill.add(rows)


class _Filter:
    """The condition of COPY ... WHERE, and which of all rows it has taken so far."""

    def __init__(self, scratch: Path) -> None:
        self._seen = 0
        self._taken = Spill(scratch)

    async def rows_of(
        self, context: StatementContext, condition: Scalar, rows: pa.Table
    ) -> pa.Table:
        """Return those of the next `rows` for which the condition holds."""
        found = await with_row_outputs(context, rows, (condition,))
        places = pc.indices_nonzero(pc.fill_null(found.column(0), False))
        numbers = pc.add(places.cast(pa.int64()), self._seen)
        await _spill(self._taken, pa.table([numbers], ["number"]))
        self._seen += rows.num_rows
        return rows.take(places)

    def line(self, row: int) -> int:
        """Return the number, from 1, that the `row`-th row taken has among all."""
        if not self._seen:
            return row
        self._taken.flush()
        numbers = pa.concat_tables(self._taken.tables).column(0)
        return 1 + int(numbers[row - 1].as_py())


async def _check(context: StatementContext, target: Target, rows: pa.Table) -> pa.Table:
    return checked(context, target, TableRows.of_table(target.desc, rows)).table


async def _add_rows(context: StatementContext, target: Target, rows: pa.Table) -> pa.Table:
    await stage_rows(context, target, inserted=TableRows.of_table(target.desc, rows))
    return rows


async def _add(context: StatementContext, target: Target, rows: pa.Table) -> pa.Table:
    await stage(context, target, inserted=TableRows.of_table(target.desc, rows))
    return rows


async def _first_wrong(
    transaction: Transaction,
    work: Callable[[pa.Table], Awaitable[pa.Table]],
    rows: pa.Table,
    tell: Tell,
) -> pa.Table:
    """Return the result of `work` over rows, or tell of an error which row has caused it.

    That is the last of the fewest rows, from the first on, that fail. Of many it is not looked for.
    """
    before = transaction.staged
    try:
        return await work(rows)
    except IntegrityConstraintViolation as error:
        if rows.num_rows > FEW_ROWS:
            raise
        found, low, high = error, 1, rows.num_rows
        while low < high:
            middle = (low + high) // 2
            transaction.staged = before
            try:
                await work(rows.slice(0, middle))
            except IntegrityConstraintViolation as other:
                found, high = other, middle
            else:
                low = middle + 1
            await asyncio.sleep(0)
        tell(high, found)
        raise found from None


def _columns(
    planner: Planner, defaults: Sequence[Scalar], target: Target, given: RelationDesc
) -> Sequence[Scalar]:
    """Return the table's columns over those that are given; none if they are the same.

    Raises UndefinedColumn or DatatypeMismatch if an ALTER TABLE has changed a given column.
    """
    desc, row = target.desc, [*defaults]
    for place, (name, column) in enumerate(zip(given.names, given.columns, strict=True)):
        if name not in desc.names:
            table = planner.reader().state.item(target.id).name
            raise UndefinedColumn(f'column "{name}" of relation "{table}" does not exist')
        position = desc.names.index(name)
        if desc.columns[position].type != column.type:
            raise DatatypeMismatch(
                f'column "{name}" is of type {desc.columns[position].type} but COPY began '
                f"when it was of type {column.type}"
            )
        row[position] = Column(place, column.type, column.nullable)
    return () if given.names == desc.names else row


def copied(context: StatementContext, selected: Selected, options: CopyOptions) -> CopyOut:
    """Return the rows of a statement as those of COPY ... TO STDOUT.

    What a change returns outlasts its transaction, which may be committed before it is sent.
    """
    if not context.transaction.has_effects or selected.source.streaming:
        context.session.portals.streams.append(selected.source)
    limits = context.variables.settings.limits
    rows = taken(selected, 0, context.interrupts, limits=limits)
    return CopyOut(rows.desc, options, rows.batches, lambda count: f"COPY {count}", rows.streaming)


async def copy_to(context: StatementContext, plan: CopyTo) -> CopyOut:
    """Run COPY ... TO STDOUT."""
    source = plan.source
    if isinstance(source, Select):
        selected = await select(context, source)
    else:
        selected = await subscribe(context, source)
    return copied(context, selected, plan.options)
