"""MERGE: rows of a source change, delete or insert rows of a table.

Where the source says by a key which rows these can be (`sql/bind/merge_keys.py`), they are locked
and looked up by that, as those of UPDATE by key are; the join is over these rows alone, in this
process. Any other MERGE reads tables whole, and conflicts with whoever writes to them.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.adapter.client import Completed
from foreshore.adapter.key_index import MANY
from foreshore.adapter.local import evaluate_linear, is_linear, negated, split_diffs
from foreshore.adapter.result import Outcome
from foreshore.adapter.sequence.by_key import locked_rows
from foreshore.adapter.sequence.insert import returned_rows, rows_with, with_numbers, written_rows
from foreshore.adapter.sequence.peek import evaluate_here
from foreshore.adapter.sequence.tables import (
    as_stored,
    checked,
    planned_table,
    require_writable,
    unique_constraints,
    write_rows,
)
from foreshore.adapter.substitute import fill, filler
from foreshore.compute.arrange.key import hash_columns
from foreshore.constraint import Unique
from foreshore.errors import CardinalityViolation
from foreshore.sql.plan import Merge, MergeKeys
from foreshore.types import Datum

if TYPE_CHECKING:
    from foreshore.adapter.session import Session
    from foreshore.adapter.statement import Prepared


async def merge(
    session: "Session", prepared: "Prepared", plan: Merge, args: Sequence[Datum]
) -> Outcome:
    """Run a MERGE."""
    require_writable(session, "MERGE", plan.table)
    both = await _rows_by_key(session, prepared, plan, args)
    if both is None:
        both = await written_rows(session, prepared, args, (plan.table,), locking=True)
    both = await with_numbers(session, both, plan.over, args)
    (action, count, *columns), diffs = split_diffs(both)
    width = len(planned_table(session, plan.table).desc.names)
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
    come = checked(session, plan.table, rows_with(new, times).filter(pa.array(acts != "delete")))
    gone = rows_with(old, times).filter(pa.array(acts != "insert"))
    gone = as_stored(session, plan.table, gone)
    await write_rows(session, plan.table, negated(gone), come)
    if plan.returning is None:
        return Completed(f"MERGE {pc.sum(times).as_py() or 0}")
    deleted = gone.filter(pa.array(acts[acts != "insert"] == "delete"))
    order = np.concatenate([np.flatnonzero(acts != "delete"), np.flatnonzero(acts == "delete")])
    became, times = split_diffs(pa.concat_tables([come, deleted]).combine_chunks())
    beside = [column.take(pa.array(order)) for column in source]
    done = pa.array(np.char.upper(acts[order]))
    rows = rows_with([*beside, *became, done], times)
    return await returned_rows(session, "MERGE", plan.returning, rows, args)


async def _rows_by_key(
    session: "Session", prepared: "Prepared", plan: Merge, args: Sequence[Datum]
) -> pa.Table | None:
    """Return the rows of the plan's selection after the keys of its source have been locked.

    None, if the source has no key of the table, or more than are locked one by one.
    """
    coordinator, transaction, peek = session.coordinator, session.begin(), prepared.peek
    assert peek is not None
    if plan.keys is None or plan.table not in coordinator.state.objects:
        return None
    constraint = _constraint(session, plan, plan.keys)
    if constraint is None or not is_linear(plan.keys.source):
        return None
    replace = filler(args, session.environment_values(coordinator.oracle.read_ts()))
    columns, _ = split_diffs(evaluate_linear(fill(plan.keys.source, replace)))
    columns = [columns[plan.keys.columns.index(i)] for i in constraint.columns]
    present = pa.table(columns, names=[str(i) for i in constraint.columns]).drop_null()
    if present.num_rows > MANY:
        return None
    if transaction.time is None:  # what is written follows from the newest, at any isolation
        transaction.isolation = "strict serializable"
    keys = [column.combine_chunks() for column in present.columns]
    rows = await locked_rows(session, plan.table, constraint, keys)
    if rows is None:
        return None
    time = transaction.time
    assert time is not None
    replace = filler(args, session.environment_values(time))
    block = peek.block(fill(peek.query.relation, replace), replace)
    return await evaluate_here(session, block, time, {plan.table: rows})


def _constraint(session: "Session", plan: Merge, keys: MergeKeys) -> Unique | None:
    """Return a unique constraint of the table all of whose columns the source has."""
    for each in unique_constraints(planned_table(session, plan.table)):
        if set(each.columns) <= set(keys.columns):
            return each
    return None
