"""Check the constraints that ALTER TABLE adds against the table's rows."""

import pyarrow as pa
from msgspec.structs import replace

from foreshore import blocking
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.transaction.violations import (
    check_is_violated,
    key_is_there_twice,
    nulls_there,
)
from foreshore.adapter.write.stage import first_failing
from foreshore.catalog.planned import Planned
from foreshore.catalog.table_changes import AddedConstraints
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs
from foreshore.update import Timestamp


async def verify(
    context: StatementContext,
    id: GlobalId,
    new: Planned,
    added: AddedConstraints,
    rows: pa.Table,
    committed: pa.Table,
    time: Timestamp,
) -> None:
    """Raise PostgreSQL's error if `rows` violate the added constraints of table `id`.

    `rows` include the transaction's own rows, `committed` are the rows at `time` without these;
    both have `__diff` and the table's new columns. Indexes of added keys are built from
    `committed`.
    """

    def check() -> list[KeyIndex]:
        columns, _ = split_diffs(rows)
        state = context.planner.reader().state
        table = state.item(id)
        for i in added.required:
            if columns[i].null_count:
                raise nulls_there(state, table, new.desc.names[i])
        for check in added.checks:
            if first_failing(context, check.condition, columns, rows.num_rows) is not None:
                raise check_is_violated(state, table, check)
        built = []
        for key in added.keys:
            index = KeyIndex(id, key, new.desc, time)
            duplicate = index.duplicate_of([index.layout.updates(rows)])
            if duplicate is not None:
                raise key_is_there_twice(state, new.desc, duplicate, context.time_zone)
            index.fill(index.layout.updates(committed), time)
            built.append(index)
        return built

    if added:
        built = await blocking.run(context.engines.executor, check)
        table = context.transaction.altered(id)
        indexes = {**table.indexes, **{each.constraint.name: each for each in built}}
        context.transaction.stage_altered(id, replace(table, indexes=indexes))
