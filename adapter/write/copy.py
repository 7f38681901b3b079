"""COPY: rows in from the client, all or none; rows out."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.client import CopyIn, CopyOut
from foreshore.adapter.read.result import Selected, taken
from foreshore.adapter.read.select import select
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.subscribe.subscribe import subscribe
from foreshore.adapter.write.source import with_row_outputs
from foreshore.adapter.write.stage import checked, stage
from foreshore.adapter.write.target import Target, lock_shared_against_ddl, target_of
from foreshore.compute.engine import check_memory
from foreshore.errors import (
    DatabaseError,
    DatatypeMismatch,
    IntegrityConstraintViolation,
    UndefinedColumn,
)
from foreshore.expr.ir import Column, Scalar
from foreshore.ids import GlobalId
from foreshore.result_limits import memory_limit, result_limits
from foreshore.rows import counted
from foreshore.sql.plan import CopyFrom, CopyOptions, CopyTo, Select
from foreshore.table_rows import TableRows
from foreshore.types import RelationDesc

FEW_ROWS = 100_000  # among which the one that breaks a constraint is looked for

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session


def copy_from(session: "Session", context: StatementContext, plan: CopyFrom) -> CopyIn:
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

    def __init__(self, session: "Session", context: StatementContext, given: RelationDesc) -> None:
        self._session = session
        self._context = context
        assert isinstance(context.prepared.plan, CopyFrom)
        self._plan = context.prepared.plan
        self._rows = GivenRows(given, self._tell)

    async def write(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""
        self._context.interrupts.check()
        self._rows.add(batch)
        check_memory(self._rows.received_bytes, memory_limit(self._context.variables))

    async def finish(self, *, last: bool) -> str:
        """Complete the statement; `last` says that nothing follows in its implicit transaction."""
        prepared, alone = self._context.prepared, self._context.alone and last
        await self._session.attempt(self._stage, prepared, (), alone=alone)
        return f"COPY {self._rows.count}"

    async def _stage(self, context: StatementContext) -> None:
        """Stage the rows, in the columns that the table has now."""
        await context.planner.ready(context.prepared)
        plan = context.prepared.plan
        assert isinstance(plan, CopyFrom), plan
        self._plan = plan
        await self._rows.stage(context, plan.table, plan.defaults, plan.where)
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
    """Rows in the columns `given`, until they are staged; `tell` says in an error where one is."""

    def __init__(self, given: RelationDesc, tell: Callable[[int, DatabaseError], None]) -> None:
        self._given = given
        self._tell = tell
        self._received: list[pa.Table] = []
        self._filter = _Filter()
        self.count = 0  # rows that were staged
        self.received_bytes = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""
        self._received.append(counted(batch))
        self.received_bytes += batch.nbytes

    def forget(self) -> None:
        """Forget all rows."""
        self._received = []
        self.received_bytes = 0

    async def stage(
        self,
        context: StatementContext,
        table: GlobalId,
        defaults: Sequence[Scalar],
        where: Scalar | None = None,
    ) -> None:
        """Check and stage the rows that `where` takes, in the columns that the table has now."""
        target = target_of(context, table)
        row = _columns(context, defaults, target, self._given)
        await lock_shared_against_ddl(context, target)
        rows: list[pa.Table] = []
        self._filter = _Filter()
        for received in self._received:
            made = await with_row_outputs(context, received, row, target)
            if where is not None:
                made = await self._filter.rows_of(context, where, made)
            before = sum(part.num_rows for part in rows)
            tell = partial(self._tell_after, before)
            check = partial(_check, context, target)
            rows.append(await _first_wrong(context, check, made, tell))
            await asyncio.sleep(0)  # there may be many parts
        if rows:
            add = partial(_add, context, target)
            await _first_wrong(context, add, pa.concat_tables(rows), partial(self._tell_after, 0))
        self.count = sum(part.num_rows for part in rows)

    def _tell_after(self, before: int, row: int, error: DatabaseError) -> None:
        self._tell(self._filter.line(before + row), error)


class _Filter:
    """The condition of COPY ... WHERE, and which of all rows it has taken so far."""

    def __init__(self) -> None:
        self._seen = 0
        self._taken: list[pa.Array] = []

    async def rows_of(
        self, context: StatementContext, condition: Scalar, rows: pa.Table
    ) -> pa.Table:
        """Return those of the next `rows` for which the condition holds."""
        found = await with_row_outputs(context, rows, (condition,))
        places = pc.indices_nonzero(pc.fill_null(found.column(0), False))
        self._taken.append(pc.add(places.cast(pa.int64()), self._seen))
        self._seen += rows.num_rows
        return rows.take(places)

    def line(self, row: int) -> int:
        """Return the number, from 1, that the `row`-th row taken has among all."""
        if not self._taken:
            return row
        return 1 + int(pa.chunked_array(self._taken)[row - 1].as_py())


async def _check(context: StatementContext, target: Target, rows: pa.Table) -> pa.Table:
    return checked(context, target, TableRows.of_table(target.desc, rows)).table


async def _add(context: StatementContext, target: Target, rows: pa.Table) -> pa.Table:
    await stage(context, target, inserted=TableRows.of_table(target.desc, rows))
    return rows


async def _first_wrong(
    context: StatementContext,
    work: Callable[[pa.Table], Awaitable[pa.Table]],
    rows: pa.Table,
    tell: Callable[[int, DatabaseError], None],
) -> pa.Table:
    """Return the result of `work` over rows, or tell of an error which row has caused it.

    That is the last of the fewest rows, from the first on, that fail. Of many it is not looked for.
    """
    before = context.transaction.staged
    try:
        return await work(rows)
    except IntegrityConstraintViolation as error:
        if rows.num_rows > FEW_ROWS:
            raise
        found, low, high = error, 1, rows.num_rows
        while low < high:
            middle = (low + high) // 2
            context.transaction.staged = before
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
    context: StatementContext, defaults: Sequence[Scalar], target: Target, given: RelationDesc
) -> Sequence[Scalar]:
    """Return the table's columns over those that are given; none if they are the same.

    Raises UndefinedColumn or DatatypeMismatch if an ALTER TABLE has changed a given column.
    """
    desc, row = target.desc, [*defaults]
    for place, (name, column) in enumerate(zip(given.names, given.columns, strict=True)):
        if name not in desc.names:
            table = context.planner.reader().state.item(target.id).name
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
        context.close_at_end(selected.source)
    limits = result_limits(context.variables)
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
