"""COPY: rows in from the client, all or none; rows out."""

from typing import TYPE_CHECKING

import pyarrow as pa

from foreshore.adapter.client import CopyIn, CopyOut
from foreshore.adapter.numbering import numbered
from foreshore.adapter.result import Selected, Taking
from foreshore.adapter.sequence.tables import checked, require_writable, table_desc, write_rows
from foreshore.adapter.substitute import filler
from foreshore.expr.ir import Column, Scalar
from foreshore.sql.plan import CopyFrom, CopyOptions
from foreshore.types import RelationDesc
from foreshore.update import DIFF_FIELD

if TYPE_CHECKING:
    from foreshore.adapter.session import Session


def copy_from(session: "Session", plan: CopyFrom, *, alone: bool) -> CopyIn:
    """Begin a COPY ... FROM STDIN; the rows come through the target."""
    require_writable(session, "COPY FROM", plan.table)
    desc = table_desc(session, plan.table)
    given = RelationDesc(
        tuple(desc.names[i] for i in plan.columns), tuple(desc.columns[i] for i in plan.columns)
    )
    item = session.planner.reader().state.item(plan.table)
    return CopyIn(item.name, given, plan.options, _Target(session, plan, given, alone=alone))


class _Target:
    """Where the rows of one COPY go: into the transaction, when all of them are there."""

    def __init__(
        self, session: "Session", plan: CopyFrom, given: RelationDesc, *, alone: bool
    ) -> None:
        self._session = session
        self._plan = plan
        self._alone = alone
        self._parts: list[pa.Table] = []
        self._rows = 0
        desc = table_desc(session, plan.table)
        places = {column: place for place, column in enumerate(plan.columns)}
        self._replace = filler((), session.environment_values(session.coordinator.oracle.read_ts()))
        self._row: list[Scalar] = []  # what the table's columns are, over those given
        for i in range(len(desc.names)):
            if i in places:
                column = given.columns[places[i]]
                self._row.append(Column(places[i], column.type, column.nullable))
            else:
                self._row.append(plan.defaults[i])
        self._plain = [places.get(i) for i in range(len(desc.names))] == [*range(len(places))]

    async def write(self, batch: pa.RecordBatch) -> None:
        """Take more rows."""
        self._session.interrupts.check()
        ones = pa.repeat(pa.scalar(1, pa.int64()), batch.num_rows)
        rows = pa.Table.from_arrays(
            [*batch.columns, ones], schema=pa.schema([*batch.schema, DIFF_FIELD])
        )
        if not self._plain:
            rows = await numbered(self._session, rows, self._row, self._replace)
        self._parts.append(checked(self._session, self._plan.table, rows))
        self._rows += batch.num_rows

    async def finish(self) -> str:
        """Complete the statement."""
        session = self._session
        transaction = session.begin()
        if self._parts:
            await write_rows(session, self._plan.table, pa.concat_tables(self._parts))
        self._parts = []
        if self._alone and not transaction.block:
            await session.commit()
        return f"COPY {self._rows}"

    async def abort(self, reason: str) -> None:
        """Forget all rows."""
        self._parts = []


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
