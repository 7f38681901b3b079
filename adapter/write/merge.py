"""MERGE: rows of a source update, delete or insert rows of a table.

The rows may be known by their keys, as for UPDATE (`source.py`). Any other MERGE reads whole
tables, and conflicts with every concurrent write of them.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.client import Completed
from foreshore.adapter.read.result import Outcome
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.write.check import check
from foreshore.adapter.write.returning import returned_of
from foreshore.adapter.write.source import changing_rows, with_row_outputs
from foreshore.adapter.write.stage import stage
from foreshore.adapter.write.target import target_of
from foreshore.compute.arrange.key import hash_columns
from foreshore.errors import CardinalityViolation
from foreshore.rows import split_diffs, table_of
from foreshore.sql.plan import Merge
from foreshore.table_rows import TableRows


async def merge(context: StatementContext, plan: Merge) -> Outcome:
    """Run a MERGE."""
    target = target_of(context, plan.table, "MERGE")
    selected = await changing_rows(context, plan)
    selected = await with_row_outputs(context, selected, plan.row_outputs, target)
    (action, count, *columns), diffs = split_diffs(selected)
    width = target.width
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
    new_rows = table_of(new, times).filter(pa.array(acts != "delete"))
    old_rows = table_of(old, times).filter(pa.array(acts != "insert"))
    inserted = TableRows.of_table(target.desc, new_rows)
    deleted = TableRows.of_table(target.desc, old_rows)
    check(context, target, inserted)
    await stage(context, target, deleted=[deleted], inserted=[inserted])
    if plan.returning is None:
        return Completed(f"MERGE {pc.sum(times).as_py() or 0}")
    old_rows = deleted.table.filter(pa.array(acts[acts != "insert"] == "delete"))
    order = np.concatenate([np.flatnonzero(acts != "delete"), np.flatnonzero(acts == "delete")])
    written, times = split_diffs(pa.concat_tables([inserted.table, old_rows]))
    beside = [column.take(pa.array(order)) for column in source]
    done = pa.array(np.char.upper(acts[order]))
    return returned_of(context, "MERGE", plan.returning, table_of([*beside, *written, done], times))
