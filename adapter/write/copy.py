"""COPY: rows in from the client, all or none; rows out."""

from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore.adapter.client import CopyIn, CopyOut
from foreshore.adapter.read.result import Selected, Taking
from foreshore.adapter.retry import attempted
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
    from foreshore.adapter.session.prepared import Prepared
    from foreshore.adapter.session.session import Session


def copy_from(session: "Session", prepared: "Prepared", plan: CopyFrom, *, alone: bool) -> CopyIn:
    """Begin a COPY ... FROM STDIN; the rows come through the target.

    If it is `alone`, the target commits when it is told that nothing follows.
    """
    require_writable(session, "COPY FROM", plan.table)
    desc = table_desc(session, plan.table)
    given = RelationDesc(
        tuple(desc.names[i] for i in plan.columns), tuple(desc.columns[i] for i in plan.columns)
    )
    item = session.planner.reader().state.item(plan.table)
    return CopyIn(item.name, given, plan.options, _Target(session, prepared, given, alone=alone))


class _Target:
    """Where the rows of one COPY go: into the transaction, when all of them are there."""

    def __init__(
        self, session: "Session", prepared: "Prepared", given: RelationDesc, *, alone: bool
    ) -> None:
        self._session = session
        self._prepared = prepared
        self._given = given
        self._alone = alone
        self._came: list[pa.Table] = []  # rows as they were given
        self._table = _Table(session, prepared, given)
        self._rows: list[pa.Table] = []  # the same as rows of the table, not yet all of them

    async def write(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""
        self._session.interrupts.check()
        ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
        came = pa.Table.from_arrays(
            [*batch.columns, ones], schema=pa.schema([*batch.schema, DIFF_FIELD])
        )
        self._follow_table()
        self._came.append(came)
        transaction = self._session.begin()
        if not self._session.coordinator.locks.is_taken(self._table.plan.table, transaction):
            await self._make_rows()

    async def finish(self, *, last: bool) -> str:
        """Complete the statement; `last` says that nothing follows in its implicit transaction."""
        alone = self._alone and last
        await attempted(self._session, lambda: self._write(alone), self._prepared, alone=alone)
        return f"COPY {sum(part.num_rows for part in self._came)}"

    async def _write(self, alone: bool) -> None:
        """Let the transaction write the rows, in the columns that the table has now."""
        session = self._session
        self._follow_table()
        table = self._table
        await lock_shared_against_ddl(session, table.plan.table)
        if len(self._rows) < len(self._came):
            await lock_before_nextval(session, table.plan.table, table.planned)
            await self._make_rows()
        if self._rows:
            await write_rows(session, table.plan.table, table.planned, pa.concat_tables(self._rows))
        if alone:
            await session.commit_implicit()

    def _follow_table(self) -> None:
        """Forget what rests on the table as it was, if it has been altered since."""
        if not self._table.is_present():
            self._session.planner.prepare_again(self._prepared)
            self._table = _Table(self._session, self._prepared, self._given)
            self._rows = []

    async def _make_rows(self) -> None:
        """Make rows of the table of those that came and are none yet."""
        table, rows = self._table, self._rows
        for came in self._came[len(rows) :]:
            rows.append(await table.rows(came))

    def abort(self) -> None:
        """Forget all rows."""
        self._came, self._rows = [], []


class _Table:
    """The table of a COPY as it is planned now: how it gets its rows from those that are given."""

    def __init__(self, session: "Session", prepared: "Prepared", given: RelationDesc) -> None:
        """Raise UndefinedColumn or DatatypeMismatch if the table does not take what is `given`."""
        assert isinstance(prepared.plan, CopyFrom), prepared.plan
        self.plan = prepared.plan
        self._session = session
        self.planned = plan_of_table(session, self.plan.table)
        desc = self.planned.desc
        item = session.planner.reader().state.item(self.plan.table)
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
            (), session.environment_values(session.coordinator.oracle.read_ts())
        )
        self._row: list[Scalar] = []  # what the table's columns are, over those given
        for i in range(len(desc.names)):
            if i in places:
                column = given.columns[places[i]]
                self._row.append(Column(places[i], column.type, column.nullable))
            else:
                self._row.append(self.plan.defaults[i])
        self._plain = [places.get(i) for i in range(len(desc.names))] == [*range(len(places))]

    def is_present(self) -> bool:
        """Whether the table is still what it was."""
        return self._session.planner.reader().planned.get(self.plan.table) is self.planned

    async def rows(self, came: pa.Table) -> pa.Table:
        """Return rows with `__diff`, as they were given, as rows of the table.

        Raises what a broken NOT NULL or CHECK says.
        """
        if not self._plain:
            came = await carried_out_by_row(self._session, came, self._row, self._replace)
        return checked(self._session, self.plan.table, came)


def copy_to(session: "Session", options: CopyOptions, selected: Selected) -> CopyOut:
    """Return the rows of `selected` as a COPY ... TO STDOUT."""
    session.streaming(selected.source)
    taking = Taking(selected, 0, session.interrupts)
    return CopyOut(
        selected.desc,
        options,
        taking.batches(),
        lambda count: f"COPY {count}",
        selected.source.streaming,
    )
