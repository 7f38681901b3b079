"""COPY: rows in from the client, all or none; rows out."""

from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore.adapter.client import CopyIn, CopyOut
from foreshore.adapter.read.result import Selected, Taking
from foreshore.adapter.retry import attempted
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.side_effects import carried_out_by_row
from foreshore.adapter.write.tables import (
    checked,
    lock_before_nextval,
    lock_shared_against_ddl,
    plan_of_table,
    require_writable,
    table_desc,
    write_rows,
)
from foreshore.errors import DatatypeMismatch, UndefinedColumn
from foreshore.expr.ir import Column, Scalar
from foreshore.sql.plan import CopyFrom, CopyOptions
from foreshore.sql.rewrite.bind_parameters import parameter_bindings
from foreshore.types import RelationDesc
from foreshore.update import DIFF_FIELD

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session


def copy_from(session: "Session", context: StatementContext, plan: CopyFrom) -> CopyIn:
    """Begin a COPY ... FROM STDIN; the rows come through the target.

    If the statement is alone, the target commits when it is told that nothing follows.
    """
    require_writable(context, "COPY FROM", plan.table)
    desc = table_desc(context, plan.table)
    given = RelationDesc(
        tuple(desc.names[i] for i in plan.columns), tuple(desc.columns[i] for i in plan.columns)
    )
    item = context.planner.reader().state.item(plan.table)
    return CopyIn(item.name, given, plan.options, _Target(session, context, given))


class _Target:
    """Where the rows of one COPY go: into the transaction, when all of them are there."""

    def __init__(self, session: "Session", context: StatementContext, given: RelationDesc) -> None:
        self._session = session
        self._context = context  # of the last attempt
        self._given = given
        self._came: list[pa.Table] = []  # rows as they were given
        self._table = _Table(context, given)
        self._rows: list[pa.Table] = []  # the same as rows of the table, not yet all of them

    async def write(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""
        self._context.interrupts.check()
        ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
        came = pa.Table.from_arrays(
            [*batch.columns, ones], schema=pa.schema([*batch.schema, DIFF_FIELD])
        )
        self._follow_table()
        self._came.append(came)
        transaction = self._context.transaction
        if not self._context.coordinator.locks.is_taken(self._table.plan.table, transaction):
            await self._make_rows()

    async def finish(self, *, last: bool) -> str:
        """Complete the statement; `last` says that nothing follows in its implicit transaction."""
        prepared, alone = self._context.prepared, self._context.alone and last
        await attempted(self._session, self._write, prepared, (), alone=alone)
        return f"COPY {sum(part.num_rows for part in self._came)}"

    async def _write(self, context: StatementContext) -> None:
        """Let the transaction write the rows, in the columns that the table has now."""
        self._context = context
        self._follow_table()
        table = self._table
        await lock_shared_against_ddl(context, table.plan.table)
        if len(self._rows) < len(self._came):
            await lock_before_nextval(context, table.plan.table, table.planned)
            await self._make_rows()
        if self._rows:
            await write_rows(context, table.plan.table, table.planned, pa.concat_tables(self._rows))
        if context.alone:
            await self._session.commit_implicit()

    def _follow_table(self) -> None:
        """Forget what rests on the table as it was, if it has been altered since."""
        if not self._table.is_present(self._context):
            self._context.planner.prepare_again(self._context.prepared)
            self._table = _Table(self._context, self._given)
            self._rows = []

    async def _make_rows(self) -> None:
        """Make rows of the table of those that came and are none yet."""
        table, rows = self._table, self._rows
        for came in self._came[len(rows) :]:
            rows.append(await table.rows(self._context, came))

    def abort(self) -> None:
        """Forget all rows."""
        self._came, self._rows = [], []


class _Table:
    """The table of a COPY as it is planned now: how it gets its rows from those that are given."""

    def __init__(self, context: StatementContext, given: RelationDesc) -> None:
        """Raise UndefinedColumn or DatatypeMismatch if the table does not take what is `given`."""
        plan = context.prepared.plan
        assert isinstance(plan, CopyFrom), plan
        self.plan = plan
        self.planned = plan_of_table(context, self.plan.table)
        desc = self.planned.desc
        item = context.planner.reader().state.item(self.plan.table)
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
            (), context.environment_values(context.coordinator.oracle.read_ts())
        )
        self._row: list[Scalar] = []  # what the table's columns are, over those given
        for i in range(len(desc.names)):
            if i in places:
                column = given.columns[places[i]]
                self._row.append(Column(places[i], column.type, column.nullable))
            else:
                self._row.append(self.plan.defaults[i])
        self._plain = [places.get(i) for i in range(len(desc.names))] == [*range(len(places))]

    def is_present(self, context: StatementContext) -> bool:
        """Whether the table is still what it was."""
        return context.planner.reader().planned.get(self.plan.table) is self.planned

    async def rows(self, context: StatementContext, came: pa.Table) -> pa.Table:
        """Return rows with `__diff`, as they were given, as rows of the table.

        Raises what a broken NOT NULL or CHECK says.
        """
        if not self._plain:
            came = await carried_out_by_row(context, came, self._row, self._replace)
        return checked(context, self.plan.table, came)


def copy_to(context: StatementContext, options: CopyOptions, selected: Selected) -> CopyOut:
    """Return the rows of `selected` as a COPY ... TO STDOUT."""
    context.close_at_end(selected.source)
    taking = Taking(selected, 0, context.interrupts)
    return CopyOut(
        selected.desc,
        options,
        taking.batches(),
        lambda count: f"COPY {count}",
        selected.source.streaming,
    )
