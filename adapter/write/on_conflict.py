"""INSERT ... ON CONFLICT: a proposed row whose key exists updates that row, or is left out.

The existing rows are looked up in the key indexes, at the time at which the transaction reads and
with the rows that it has written itself. No row is changed twice by one statement.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from foreshore.adapter.calls.side_effects import results_of
from foreshore.adapter.plans.calls import calls_in
from foreshore.adapter.plans.row_read import RowRead, no_value, plan_over_rows
from foreshore.adapter.plans.target import Target
from foreshore.adapter.read.bound.timestamp import move_forward, read_time
from foreshore.adapter.read.keys.key_lookup import locks_of_rows
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.executions import parts_of, require_distinct, require_single
from foreshore.adapter.write.executions import Key, require_apart
from foreshore.adapter.write.returning import WRITTEN, over_written
from foreshore.adapter.write.row_checks import require_policies
from foreshore.adapter.write.stage import checked, key_index
from foreshore.adapter.write.stage_changes import stage
from foreshore.adapter.write.target import require_unaltered
from foreshore.compute.arrange.run import Ints
from foreshore.compute.finish import expanded
from foreshore.compute.keys.conflicts import NONE, existing_rows, first_of_each_key, repeated
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.key_sets import Keys, joined
from foreshore.compute.keys.layout import FEW, MANY
from foreshore.compute.local.linear import evaluate_linear
from foreshore.compute.rows.program import MOST
from foreshore.errors import CardinalityViolation, ConcurrentUpdate, DataError
from foreshore.rows import counted, split_diffs, table_of
from foreshore.sql.plan import OnConflict
from foreshore.sql.rewrite.bind_parameters import bind_relation
from foreshore.table_rows import Row, TableRows

Counts = Sequence[int]  # of the rows of each execution


async def stage_on_conflict(
    context: StatementContext,
    target: Target,
    conflict: OnConflict,
    rows: TableRows,
    counts: Counts,
) -> tuple[TableRows, Counts]:
    """Stage checked rows, or updates of those that exist; return what is inserted and updated.

    Each execution has so many of the rows. Raises ConcurrentUpdate if the rows under the keys have
    changed since the time at which the transaction reads.
    """
    await context.tables.keys.ready(target.id)
    named = [each for each in target.planned.unique if each.name in conflict.arbiters]
    arbiters = [key_index(context, target.id, target.desc, each) for each in named]
    most = FEW if len(context.many) == 1 else MOST
    if rows.num_rows <= most and all(index.layout.takes_tuples for index in arbiters):
        done = await _stage_few(context, target, conflict, rows, counts, arbiters)
        if done is not None:
            return done
    require_single(context, len(context.many) // 2)
    whole = await _stage_columns(context, target, conflict, rows, arbiters)
    return whole, (whole.count,)


# --- few rows, as tuples -------------------------------------------------------------------


def plan_update(conflict: OnConflict | None) -> RowRead | None:
    """Return the program of DO UPDATE over rows; None if there is none, or columns compute it."""
    if conflict is None or conflict.update is None or calls_in(conflict.update):
        return None
    return plan_over_rows(WRITTEN, over_written(conflict.update))


async def _stage_few(
    context: StatementContext,
    target: Target,
    conflict: OnConflict,
    rows: TableRows,
    counts: Counts,
    arbiters: Sequence[KeyIndex],
) -> tuple[TableRows, Counts] | None:
    """Do what `stage_on_conflict` does; None if columns have to do it."""
    update = context.prepared.made.programs.upsert
    if (conflict.update is not None and update is None) or rows.count != rows.num_rows:
        return None
    proposed = rows.tuples
    keys = [[index.layout.key(row) for row in proposed] for index in arbiters]
    named = _named(arbiters, keys, counts) if len(counts) > 1 else ()
    if conflict.update is not None:
        require_distinct(named)
    met = await _rows_met(context, target, arbiters, keys, len(proposed))
    if met is None:
        return None
    new = [place for place, row in enumerate(met) if row is None]
    first = _without_repeated(new, keys)
    inserted = [proposed[place] for place in first]
    if conflict.update is None:
        found = rows if len(first) == len(proposed) else TableRows(target.desc, inserted)
        await stage(context, target, inserted=found)
        return found, _counts_at(first, counts)
    if len(first) < len(new):
        raise _twice()
    assert update is not None
    updated = _updated_few(context, update, proposed, met, counts)
    if updated is None:
        return None
    last = {row: place for place, row in enumerate(met) if row is not None}
    places = [int(str(place)) for place, *_ in updated]
    if any(last[_there(met, place)] > place for place in places):
        raise _twice()
    old = TableRows(target.desc, [_there(met, place) for place in places])
    changed = TableRows(target.desc, [row[1:] for row in updated])
    await require_policies(context, target, conflict.existing_checks, old)
    await require_policies(context, target, conflict.checks, changed)
    changed = checked(context, target, changed)
    both = sorted([*zip(first, inserted, strict=True), *zip(places, changed.tuples, strict=True)])
    whole = TableRows(target.desc, [row for _, row in both])
    counted = _counts_at([place for place, _ in both], counts)
    if named:
        before = parts_of(old.tuples, _counts_at(places, counts))
        require_apart(
            context, target, zip(named, before, parts_of(whole.tuples, counted), strict=True)
        )
    await stage(context, target, deleted=old, inserted=whole, updated=(old, changed))
    return whole, counted


async def _rows_met(
    context: StatementContext,
    target: Target,
    arbiters: Sequence[KeyIndex],
    keys: Sequence[Sequence[Row | None]],
    count: int,
) -> list[Row | None] | None:
    """Return the existing row of each of `count` proposed ones, by their `keys` under the arbiters.

    These are locked. None if the rows are not known one by one.
    """
    locks: dict[KeyIndex, Keys] = {}
    for index, own in zip(arbiters, keys, strict=True):
        hashes = {index.layout.hash(key) for key in own if key is not None}
        locks[index] = {(target.id, index.constraint.name): hashes}
    time = await _locked_at(context, target, arbiters, locks)
    written = context.transaction.staged.rows.get(target.id)
    met: list[Row | None] = [None] * count
    for index, own in zip(arbiters, keys, strict=True):
        newest = written.by_key(index.layout).newest if written else {}
        if newest is None or index.arrangement.since > time:
            return None
        for place, key in enumerate(own):
            if key is not None and met[place] is None:
                met[place] = newest[key] if key in newest else _committed(index, key)
    return met


def _updated_few(
    context: StatementContext,
    update: RowRead,
    proposed: Sequence[Row],
    met: Sequence[Row | None],
    counts: Counts,
) -> list[Row] | None:
    """Return what the rows that are met become, each after the place of its proposed row."""
    is_timed = bool(update.program.session_values)
    value = context.session_value(context.times.oracle.read_ts()) if is_timed else no_value
    updated, begin = list[Row](), 0
    for args, count in zip(context.many, counts, strict=True):
        places = range(begin, begin + count)
        begin += count
        given = [(*row, *proposed[at], at) for at in places if (row := met[at]) is not None]
        found = update.over(WRITTEN, given, args, value) if given else []
        if found is None:
            return None
        updated += found
    return updated


def _named(
    arbiters: Sequence[KeyIndex], keys: Sequence[Sequence[Row | None]], counts: Counts
) -> list[list[Key]]:
    """Return the keys that each execution proposes, with their constraints."""
    names = [index.constraint.name for index in arbiters]
    by_row = [
        [(name, key) for name, key in zip(names, own, strict=True) if key is not None]
        for own in zip(*keys, strict=True)
    ]
    return [[*chain.from_iterable(part)] for part in parts_of(by_row, counts)]


def _counts_at(places: Sequence[int], counts: Counts) -> Counts:
    """Return how many of these places of proposed rows each execution has."""
    if len(counts) == 1:
        return (len(places),)
    executions = [number for number, count in enumerate(counts) for _ in range(count)]
    found = Counter([executions[place] for place in places])
    return [found[number] for number in range(len(counts))]


def _committed(index: KeyIndex, key: Row) -> Row | None:
    return index.newest.newest(index.layout.hash(key), key).row


def _there(met: Sequence[Row | None], place: int) -> Row:
    row = met[place]
    assert row is not None, place
    return row


def _without_repeated(places: Sequence[int], keys: Sequence[Sequence[Row | None]]) -> list[int]:
    """Return the places whose rows share no key with one before among them."""
    seen: list[set[Row | None]] = [set() for _ in keys]
    kept = []
    for place in places:
        own = [each[place] for each in keys]
        if not any(key in each for key, each in zip(own, seen, strict=True)):
            kept.append(place)
            for key, each in zip(own, seen, strict=True):
                if key is not None:
                    each.add(key)
    return kept


# --- many rows, as columns -----------------------------------------------------------------


async def _stage_columns(
    context: StatementContext,
    target: Target,
    conflict: OnConflict,
    rows: TableRows,
    indexes: Sequence[KeyIndex],
) -> TableRows:
    """Do what `stage_on_conflict` does, of one execution."""
    proposed = expanded(rows.table)
    own = context.transaction.rows(target.id)
    arbiters = [(index, own.by_key(index.layout)) for index in indexes]
    locks = None
    if proposed.num_rows <= MANY:
        locks = {index: locks_of_rows(index, proposed) for index in indexes}
    time = await _locked_at(context, target, indexes, locks)
    there, existing = existing_rows(arbiters, proposed, time)
    new = np.flatnonzero(there == NONE)
    first = new[first_of_each_key(arbiters, proposed.take(pa.array(new)))]
    inserted = _table_rows(target, proposed.take(pa.array(first)))
    if conflict.update is None:
        await stage(context, target, inserted=inserted)
        return inserted
    if len(first) < len(new):
        raise _twice()
    try:
        places, updated = await _updated(context, target, conflict, proposed, there, existing)
    except DataError:  # it tells of rows that may have to be hidden
        met = _table_rows(target, existing.take(pa.array(np.unique(there[there != NONE]))))
        await require_policies(context, target, conflict.existing_checks, met)
        raise
    if repeated(existing, there, places):
        raise _twice()
    replaced = _table_rows(target, existing.take(pa.array(there[places])))
    await require_policies(context, target, conflict.existing_checks, replaced)
    await require_policies(context, target, conflict.checks, updated)
    updated = checked(context, target, updated)
    done = np.concatenate([first, places])
    order = np.argsort(done, kind="stable")
    whole = pa.concat_tables([inserted.table, updated.table]).take(pa.array(order))
    written = TableRows.of_table(target.desc, whole)
    pairs = (replaced, updated)
    await stage(context, target, deleted=replaced, inserted=written, updated=pairs)
    return written


def _table_rows(target: Target, rows: pa.RecordBatch) -> TableRows:
    return TableRows.of_table(target.desc, counted(rows))


async def _locked_at(
    context: StatementContext,
    target: Target,
    arbiters: Sequence[KeyIndex],
    keys: Mapping[KeyIndex, Keys] | None,
) -> int:
    """Lock the `keys` of the proposed rows, or the table for many; return the time to read at."""
    tables, id, transaction = context.tables, target.id, context.transaction
    if id in context.names.catalog.state.objects:
        if keys is not None:
            wanted = joined(*keys.values())
            if not tables.locks.try_keys(wanted, transaction):
                await tables.locks.acquire_keys(wanted, transaction, context.lock_timeout_ms)
            move_forward(context)
        else:
            await tables.locks.acquire((id,), transaction, context.lock_timeout_ms)
        require_unaltered(context, target)
    few = keys is not None
    time = read_time(context, (id,), None, by_key=few, at_once=True)
    for index, read in keys.items() if keys is not None else ():
        if index.arrangement.since <= time:
            transaction.read_keys(read)
            hashes = [hash for each in read.values() for hash in each]
            if index.newest.changed > time and index.latest(hashes) > time:
                raise ConcurrentUpdate
    # An index that the transaction's ALTER TABLE has made has the rows from then on. The table is
    # locked since, but must not have changed between `time`, at which all else is read, and then.
    # A rewritten table has another shard, and is read as it was then.
    newer = any(index.arrangement.since > time for index in arbiters)
    if (newer or not few) and id in tables.group and tables.group.changed(id) > time:
        raise ConcurrentUpdate
    return time


async def _updated(
    context: StatementContext,
    target: Target,
    conflict: OnConflict,
    proposed: pa.RecordBatch,
    there: Ints,
    existing: pa.RecordBatch,
) -> tuple[Ints, TableRows]:
    """Return which proposed rows update an existing row, and the rows that it becomes."""
    assert conflict.update is not None
    meeting = np.flatnonzero(there != NONE)
    excluded = proposed.take(pa.array(meeting))
    present = existing.take(pa.array(there[meeting]))
    columns = [*present.columns, *excluded.columns, pa.array(meeting, pa.int64())]
    given = table_of(columns, pa.array(np.ones(len(meeting), np.int64)))
    bindings = context.bindings(context.times.oracle.read_ts())
    update = bind_relation(conflict.update, bindings)
    if calls := calls_in(update):
        update = bind_relation(update, (await results_of(context, calls)).get)
    (places, *new), diffs = split_diffs(evaluate_linear(update, {0: given}))
    assert len(new) == target.width
    return places.to_numpy(), TableRows.of_columns(target.desc, new, diffs)


def _twice() -> CardinalityViolation:
    return CardinalityViolation(
        "ON CONFLICT DO UPDATE command cannot affect row a second time",
        hint="Ensure that no rows proposed for insertion within the same command have duplicate"
        " constrained values.",
    )
