"""MERGE: rows of a source change, delete or insert rows of a table.

Which rows these can be may be known by their keys, as for UPDATE (`written_rows`). Any other MERGE
reads tables whole, and conflicts with whoever writes to them.
"""

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.client import Completed
from foreshore.adapter.read.result import Outcome
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.session.side_effects import calls_of, draws
from foreshore.adapter.write.insert import changing_rows, returned_rows, with_numbers
from foreshore.adapter.write.tables import (
    as_stored,
    checked,
    lock_before_nextval,
    plan_of_table,
    require_writable,
    write_rows,
)
from foreshore.compute.arrange.key import hash_columns
from foreshore.errors import CardinalityViolation
from foreshore.rows import negated, split_diffs, table_of
from foreshore.sql.plan import Merge

if TYPE_CHECKING:
    pass


async def merge(context: StatementContext, plan: Merge) -> Outcome:
    """Run a MERGE."""
    require_writable(context, "MERGE", plan.table)
    planned = plan_of_table(context, plan.table)
    both = await changing_rows(context, plan)
    if draws(calls_of(plan.row_outputs)):
        await lock_before_nextval(context, plan.table, planned)
    if plan.row_outputs:
        both = await with_numbers(context, both, plan.row_outputs)
    (action, count, *columns), diffs = split_diffs(both)
    width = len(planned.desc.names)
    old, new, source = columns[:width], columns[width : 2 * width], columns[2 * width :]
    acts = np.array([*plan.actions, ""])[action.to_numpy()]
    changes = np.flatnonzero(acts != "insert")
    hashes = hash_columns([column.take(pa.array(changes)) for column in old], None, len(changes))
    if len(np.unique(hashes)) < len(changes) or (diffs.to_numpy()[changes] > 1).any():
        raise CardinalityViolation(
            "MERGE command cannot affect row a second time",
            hint="Ensure that not more than one source row matches any one target row.",
        )
    times = pc.if_else(pa.array(acts == "insert"), diffs, count)
    come = checked(context, plan.table, table_of(new, times).filter(pa.array(acts != "delete")))
    gone = table_of(old, times).filter(pa.array(acts != "insert"))
    gone = as_stored(context, plan.table, gone)
    await write_rows(context, plan.table, planned, negated(gone), come)
    if plan.returning is None:
        return Completed(f"MERGE {pc.sum(times).as_py() or 0}")
    deleted = gone.filter(pa.array(acts[acts != "insert"] == "delete"))
    order = np.concatenate([np.flatnonzero(acts != "delete"), np.flatnonzero(acts == "delete")])
    became, times = split_diffs(pa.concat_tables([come, deleted]).combine_chunks())
    beside = [column.take(pa.array(order)) for column in source]
    done = pa.array(np.char.upper(acts[order]))
    rows = table_of([*beside, *became, done], times)
    return await returned_rows(context, "MERGE", plan.returning, rows)
