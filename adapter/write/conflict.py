"""INSERT ... ON CONFLICT: rows whose key is there already change what is there, or nothing.

Which rows these are is looked up in the key indexes, at the time at which the transaction reads and
with what it has written itself. No row is changed twice by one statement.
"""

from collections.abc import Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from foreshore.adapter.read.key_lookup import locks_of_rows
from foreshore.adapter.read.timestamp import move_forward, read_time
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.locks import KeyLock
from foreshore.adapter.write.key_index import MANY, KeyIndex
from foreshore.adapter.write.tables import (
    as_stored,
    base_index,
    checked,
    own_index,
    require_unaltered,
    unique_constraints,
    write_rows,
)
from foreshore.catalog.catalog import Planned
from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.arrange.key import hash_columns
from foreshore.compute.arrange.run import Ints
from foreshore.compute.finish import expanded
from foreshore.compute.local.linear import evaluate_linear
from foreshore.errors import CardinalityViolation, ConcurrentUpdate
from foreshore.rows import counted, negated, split_diffs
from foreshore.sql.plan import Insert, OnConflict
from foreshore.sql.rewrite.bind_parameters import bind_relation, parameter_bindings
from foreshore.update import DIFF_FIELD

Arbiter = tuple[KeyIndex, tuple[Arrangement, ...]]

NONE = -1


async def insert_on_conflict(
    context: StatementContext,
    plan: Insert,
    conflict: OnConflict,
    planned: Planned,
    rows: pa.Table,
) -> pa.Table:
    """Write `rows`, with `__diff`; return those that were inserted or that replaced others.

    They are of a statement to which the table was what is `planned`. Raises ConcurrentUpdate if
    the transaction reads at a time since which a row has come to have such a key, or none any more.
    """
    coordinator, transaction = context.coordinator, context.transaction
    id = plan.table
    require_unaltered(context, id, planned)
    proposed = expanded(checked(context, id, rows))
    constraints = unique_constraints(planned)
    await coordinator.keys.ready(id)
    arbiters = [
        (base_index(context, id, each), own_index(context, id, each))
        for each in constraints
        if each.name in conflict.arbiters
    ]
    few = proposed.num_rows <= MANY
    keys: dict[KeyIndex, frozenset[KeyLock]] = {}
    if id in coordinator.state.objects:
        if few:
            rows = counted(proposed)
            keys = {index: locks_of_rows(index, rows) for index, _ in arbiters}
            await coordinator.locks.acquire_keys(chain.from_iterable(keys.values()), transaction)
            move_forward(context)
        else:
            await coordinator.locks.acquire((id,), transaction)
        require_unaltered(context, id, planned)  # while that was waited for
    time = read_time(context, (id,), None, by_key=few)
    for index, read in keys.items():
        if index.arrangement.since <= time:
            transaction.key_reads |= read
            if read and index.latest([key.hash for key in read]) > time:
                raise ConcurrentUpdate
    # An index that the transaction's ALTER TABLE has made knows the rows from then on. Others have
    # not changed them since, and may not have done so between `time`, at which all else is read,
    # and then. A table that was made anew is another one, and is read as it was then.
    newer = any(index.arrangement.since > time for index, _ in arbiters)
    if (newer or not few) and id in coordinator.group and coordinator.group.changed(id) > time:
        raise ConcurrentUpdate
    there, existing = _existing(arbiters, proposed, time)
    new = np.flatnonzero(there == NONE)
    first = new[_firsts(arbiters, proposed.take(pa.array(new)))]
    inserted = counted(proposed.take(pa.array(first)))
    if conflict.update is None:
        await write_rows(context, id, planned, as_stored(context, id, inserted))
        return inserted
    if len(first) < len(new):
        raise _twice()
    places, replacing = _replaced(context, plan, conflict, proposed, there, existing)
    _require_met_once(existing, there, places)
    old = existing.take(pa.array(there[places]))
    replacing = checked(context, id, replacing)
    replaced = as_stored(context, id, counted(old))
    inserted = as_stored(context, id, inserted)
    await write_rows(context, id, planned, negated(replaced), inserted, replacing)
    order = np.argsort(np.concatenate([first, places]), kind="stable")
    return pa.concat_tables([inserted, replacing]).take(pa.array(order))


def _existing(
    arbiters: Sequence[Arbiter], proposed: pa.RecordBatch, time: int
) -> tuple[Ints, pa.RecordBatch]:
    """Return for each proposed row the place of the one that has its key, and all of these."""
    there = np.full(proposed.num_rows, NONE)
    found: list[pa.RecordBatch] = []
    for index, own in arbiters:
        known = max(time, index.arrangement.since)  # at which its rows are the same
        places, rows = index.find(index.key_of(proposed), known, *own)
        start = sum(each.num_rows for each in found)
        at = np.arange(start, start + rows.num_rows)
        free = there[places] == NONE
        there[places[free]] = at[free]
        found.append(rows)
    if not found:
        return there, proposed.slice(0, 0)
    return there, pa.concat_batches(found)


def _firsts(arbiters: Sequence[Arbiter], rows: pa.RecordBatch) -> Ints:
    """Return the rows that have no key in common with one before that is among them."""
    every = np.arange(rows.num_rows)
    columns = [index.hashes(rows) for index, _ in arbiters]
    unique = [len(np.unique(hashes)) == len(hashes) for hashes in columns]
    if all(unique):
        return every
    if len(columns) == 1:
        return np.sort(np.unique(columns[0], return_index=True)[1])
    seen: list[set[int]] = [set() for _ in columns]
    kept = []
    for row, keys in enumerate(zip(*(hashes.tolist() for hashes in columns), strict=True)):
        if not any(key in each for key, each in zip(keys, seen, strict=True)):
            kept.append(row)
            for key, each in zip(keys, seen, strict=True):
                each.add(key)
    return np.array(kept)


def _replaced(
    context: StatementContext,
    plan: Insert,
    conflict: OnConflict,
    proposed: pa.RecordBatch,
    there: Ints,
    existing: pa.RecordBatch,
) -> tuple[Ints, pa.Table]:
    """Return which proposed rows change the one that is there, and what that becomes."""
    assert conflict.update is not None
    meeting = np.flatnonzero(there != NONE)
    excluded = proposed.take(pa.array(meeting))
    present = existing.take(pa.array(there[meeting]))
    width = len(excluded.columns)
    columns = [*present.columns, *excluded.columns, pa.array(meeting, pa.int64())]
    fields = [pa.field(f"c{i}", column.type) for i, column in enumerate(columns)]
    ones = pa.array(np.ones(len(meeting), np.int64))
    given = pa.Table.from_arrays([*columns, ones], schema=pa.schema([*fields, DIFF_FIELD]))
    values = context.environment_values(context.coordinator.oracle.read_ts())
    result = evaluate_linear(
        bind_relation(conflict.update, parameter_bindings(context.args, values)), {0: given}
    )
    (places, *new), diffs = split_diffs(result)
    assert len(new) == width
    replacing = pa.Table.from_arrays(
        [*new, diffs],
        schema=pa.schema([*(pa.field(f"c{i}", c.type) for i, c in enumerate(new)), DIFF_FIELD]),
    )
    return places.to_numpy(), replacing


def _require_met_once(existing: pa.RecordBatch, there: Ints, places: Ints) -> None:
    """Raise if a proposed row meets one that another before it, of `places`, has changed."""
    meeting = np.flatnonzero(there != NONE)
    met = existing.take(pa.array(there[meeting]))
    _, groups = np.unique(hash_columns(met.columns, None, len(meeting)), return_inverse=True)
    last = np.zeros(len(meeting), np.int64)  # place at which the row of a group is met
    np.maximum.at(last, groups, meeting)
    if (last[groups[np.searchsorted(meeting, places)]] > places).any():
        raise _twice()


def _twice() -> CardinalityViolation:
    return CardinalityViolation(
        "ON CONFLICT DO UPDATE command cannot affect row a second time",
        hint="Ensure that no rows proposed for insertion within the same command have duplicate"
        " constrained values.",
    )
