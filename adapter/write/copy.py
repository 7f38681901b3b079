"""COPY: rows in from the client, all or none; rows out."""

from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore.adapter.client import CopyIn, CopyOut
from foreshore.adapter.read.result import Taking
from foreshore.adapter.read.select import select
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.side_effects import results_by_row
from foreshore.adapter.subscribe.subscribe import subscribe
from foreshore.adapter.write.stage import check, stage
from foreshore.adapter.write.target import lock_before_nextval, lock_shared_against_ddl, target_of
from foreshore.errors import DatatypeMismatch, UndefinedColumn
from foreshore.expr.ir import Column, Scalar
from foreshore.rows import counted
from foreshore.sql.plan import CopyFrom, CopyTo, Select
from foreshore.sql.rewrite.bind_parameters import parameter_bindings
from foreshore.table_rows import TableRows
from foreshore.types import RelationDesc

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
        self._context = context  # of the last attempt
        self._given = given
        self._received: list[pa.Table] = []  # rows as they were given
        self._table = _Table(context, given)
        self._rows: list[TableRows] = []  # the same in the table's columns, not yet all of them

    async def write(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""
        self._context.interrupts.check()
        self._follow_table()
        self._received.append(counted(batch))
        transaction = self._context.transaction
        if not self._context.coordinator.locks.is_taken(self._table.target.id, transaction):
            await self._make_rows()

    async def finish(self, *, last: bool) -> str:
        """Complete the statement; `last` says that nothing follows in its implicit transaction."""
        prepared, alone = self._context.prepared, self._context.alone and last
        await self._session.attempt(self._write, prepared, (), alone=alone)
        return f"COPY {sum(part.num_rows for part in self._received)}"

    async def _write(self, context: StatementContext) -> None:
        """Stage the rows, in the columns that the table has now."""
        self._context = context
        self._follow_table()
        target = self._table.target
        await lock_shared_against_ddl(context, target)
        if len(self._rows) < len(self._received):
            await lock_before_nextval(context, target)
            await self._make_rows()
        if self._rows:
            rows = pa.concat_tables([each.table for each in self._rows])
            await stage(context, target, inserted=[TableRows.of_table(target.desc, rows)])
        if context.alone:
            await self._session.transactions.commit_implicit()

    def _follow_table(self) -> None:
        """Make the rows again if the table has been altered since."""
        if not self._table.is_present(self._context):
            self._context.planner.prepare_again(self._context.prepared)
            self._table = _Table(self._context, self._given)
            self._rows = []

    async def _make_rows(self) -> None:
        """Put received rows into the table's columns, if they are not yet."""
        table, rows = self._table, self._rows
        for received in self._received[len(rows) :]:
            rows.append(await table.rows(self._context, received))

    def abort(self) -> None:
        """Forget all rows."""
        self._received, self._rows = [], []


class _Table:
    """The table of a COPY as it is planned now, and how its rows are made of the given ones."""

    def __init__(self, context: StatementContext, given: RelationDesc) -> None:
        """Raise UndefinedColumn or DatatypeMismatch if the table does not take what is `given`."""
        plan = context.prepared.plan
        assert isinstance(plan, CopyFrom), plan
        self.target = target_of(context, plan.table)
        desc = self.target.desc
        item = context.planner.reader().state.item(plan.table)
        places: dict[int, int] = {}  # by the position in the table
        for place, (name, column) in enumerate(zip(given.names, given.columns, strict=True)):
            if name not in desc.names:
                raise UndefinedColumn(f'column "{name}" of relation "{item.name}" does not exist')
            position = desc.names.index(name)
            if desc.columns[position].type != column.type:
                raise DatatypeMismatch(
                    f'column "{name}" is of type {desc.columns[position].type} but COPY began '
                    f"when it was of type {column.type}"
                )
            places[position] = place
        self._replace = parameter_bindings(
            (), context.session_value(context.coordinator.oracle.read_ts())
        )
        self._row: list[Scalar] = []  # the table's columns, over those given
        for i in range(len(desc.names)):
            if i in places:
                column = given.columns[places[i]]
                self._row.append(Column(places[i], column.type, column.nullable))
            else:
                self._row.append(plan.defaults[i])
        self._plain = [places.get(i) for i in range(len(desc.names))] == [*range(len(places))]

    def is_present(self, context: StatementContext) -> bool:
        """Whether the table is still what it was."""
        return context.planner.reader().planned.get(self.target.id) is self.target.planned

    async def rows(self, context: StatementContext, received: pa.Table) -> TableRows:
        """Return rows with `__diff`, as they were given, in the table's columns, checked."""
        if not self._plain:
            received = await results_by_row(context, received, self._row, self._replace)
        rows = TableRows.of_table(self.target.desc, received)
        check(context, self.target, rows)
        return rows


async def copy_to(context: StatementContext, plan: CopyTo) -> CopyOut:
    """Run COPY ... TO STDOUT."""
    source = plan.source
    if isinstance(source, Select):
        selected = await select(context, source)
    else:
        selected = await subscribe(context, source)
    context.close_at_end(selected.source)
    taking = Taking(selected, 0, context.interrupts)
    return CopyOut(
        selected.desc,
        plan.options,
        taking.batches(),
        lambda count: f"COPY {count}",
        selected.source.streaming,
    )
