"""Rows by literal keys, from a table's key index: on the event loop, without a replica.

The rows are those at the transaction's time, with what it has written itself; AS OF another time
without that. A statement that changes them locks their keys first, by all of the table's unique
constraints: those of the rows as they are when it has the locks.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import pyarrow as pa

from foreshore.adapter.read.peek_plan import PeekPlan
from foreshore.adapter.read.times import move_forward, read_time, value_of
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.locks import KeyLock
from foreshore.adapter.write.key_index import KeyIndex
from foreshore.adapter.write.tables import own_index
from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.arrange.key import key_words
from foreshore.compute.local.linear import evaluate_linear
from foreshore.constraint import Unique
from foreshore.errors import InvalidParameterValue, LockNotAvailable
from foreshore.expr.datum import to_array
from foreshore.expr.evaluate import constant
from foreshore.expr.ir import Finishing, Literal, Scalar
from foreshore.ids import GlobalId
from foreshore.rows import counted
from foreshore.sql.plan import AsOf
from foreshore.sql.rewrite.bind_parameters import (
    Replace,
    bind_relation,
    bind_scalar,
    parameter_bindings,
)
from foreshore.update import Timestamp

Found = tuple[pa.Table, Finishing]
Keys = tuple[tuple[Literal, ...], ...]


async def by_key(
    context: StatementContext, peek: PeekPlan, as_of: AsOf | None = None
) -> Found | None:
    """Return the rows with `__diff` of a query by literal keys, and what finishes them.

    None, if the key index does not know the time.
    """
    lookup = peek.key
    assert lookup is not None
    await context.coordinator.keys.ready(lookup.table)
    index = context.coordinator.keys.named(lookup.table, lookup.constraint)
    if index is None:
        return None
    time = read_time(context, (lookup.table,), as_of, by_key=True)
    replace = parameter_bindings(context.args, context.environment_values(time))
    keys = literal_keys(lookup.keys, replace)
    if as_of is None:
        context.transaction.key_reads |= locks_of(lookup.table, index, keys)
    if not index.readable(time):
        return None
    own = own_index(context, lookup.table, lookup.constraint) if as_of is None else ()
    found = _rows(index, keys, time, own)
    rows = evaluate_linear(bind_relation(lookup.residual, replace), {lookup.table: found})
    return rows, finishing_of(context, peek)


async def locked_by_key(
    context: StatementContext, peek: PeekPlan, *, nowait: bool = False
) -> Found | None:
    """Return what `by_key` does after the keys have been locked.

    Raises LockNotAvailable if somebody has them and `nowait` is said.
    """
    lookup = peek.key
    assert lookup is not None
    coordinator, transaction = context.coordinator, context.transaction
    await coordinator.keys.ready(lookup.table)
    indexes = coordinator.keys.of(lookup.table)
    index = coordinator.keys.named(lookup.table, lookup.constraint)
    if index is None:
        return None
    replace = parameter_bindings(
        context.args, context.environment_values(coordinator.oracle.read_ts())
    )
    keys = literal_keys(lookup.keys, replace)
    wanted = locks_of(lookup.table, index, keys)
    while True:
        if not nowait:
            await coordinator.locks.acquire_keys(wanted, transaction)
        elif not coordinator.locks.try_locks((), wanted, transaction):
            raise row_not_available(context, lookup.table)
        move_forward(context)
        found = await by_key(context, peek)
        if found is None or len(indexes) == 1:
            break
        time = transaction.time
        assert time is not None
        own = own_index(context, lookup.table, lookup.constraint)
        rows = _rows(index, keys, time, own)
        others = wanted.union(*(locks_of_rows(each, rows) for each in indexes.values()))
        if others == wanted:
            break
        wanted = others
    return found


def row_not_available(context: StatementContext, table: GlobalId) -> LockNotAvailable:
    """Return what NOWAIT gives where somebody else has a row."""
    name = context.planner.state.item(table).name
    return LockNotAvailable(f'could not obtain lock on row in relation "{name}"')


async def locked_rows(
    context: StatementContext, table: GlobalId, constraint: Unique, keys: Sequence[pa.Array]
) -> pa.Table | None:
    """Return the rows of a table under `keys`, columns without NULL, each once; they are locked.

    So are the other keys of these rows. None, if the key index does not know the time.
    """
    coordinator, transaction = context.coordinator, context.transaction
    await coordinator.keys.ready(table)
    indexes = coordinator.keys.of(table)
    index = coordinator.keys.named(table, constraint)
    if index is None:
        return None
    hashes = index.hashes_of(keys)
    wanted = frozenset(KeyLock(table, constraint.name, hash) for hash in hashes)
    locked = wanted
    while True:
        await coordinator.locks.acquire_keys(locked, transaction)
        move_forward(context)
        time = read_time(context, (table,), None, by_key=True)
        transaction.key_reads |= wanted
        if not index.readable(time):
            return None
        _, found = index.settled().find(keys, time, *own_index(context, table, constraint))
        _, firsts = np.unique(index.hashes(found), return_index=True)  # a key may be there twice
        rows = pa.Table.from_batches([found.take(pa.array(firsts))])
        each_once = counted(rows)
        others = locked.union(*(locks_of_rows(each, each_once) for each in indexes.values()))
        if others == locked:
            return rows
        locked = others


def locks_of(table: GlobalId, index: KeyIndex, keys: Keys) -> frozenset[KeyLock]:
    """Return the locks of literal keys."""
    if not keys:
        return frozenset()
    name = index.constraint.name
    return frozenset(KeyLock(table, name, hash) for hash in index.hashes_of(_columns(keys)))


def locks_of_rows(index: KeyIndex, rows: pa.Table) -> frozenset[KeyLock]:
    """Return the locks of the keys of some rows with `__diff`."""
    name = index.constraint.name
    hashes = index.prepare(rows).key_hashes.tolist()
    return frozenset(KeyLock(index.table, name, hash) for hash in hashes)


def _rows(index: KeyIndex, keys: Keys, time: Timestamp, own: tuple[Arrangement, ...]) -> pa.Table:
    """Return the table's rows at `time`, with `__diff`, and with what is in `own`."""
    if own and keys:
        _, rows = index.find(_columns(keys), time, *own)
    else:
        sought = [tuple(each.value for each in key) for key in keys]
        rows = index.settled().arrangement.look_up(sought, time)
    return counted(rows)


def _columns(keys: Keys) -> list[pa.Array]:
    return [
        to_array([each.value for each in part], part[0].type) for part in zip(*keys, strict=True)
    ]


def literal_keys(keys: tuple[tuple[Scalar, ...], ...], replace: Replace) -> Keys:
    """Return the keys as literals, one of those that SQL calls equal.

    Those with a NULL, or out of range, equal nothing.
    """
    found: dict[tuple[int, ...], tuple[Literal, ...]] = {}
    for key in keys:
        literals = [_literal(scalar, replace) for scalar in key]
        present = tuple(each for each in literals if each is not None)
        if len(present) == len(literals):
            words = key_words([each.value for each in present], [each.type for each in present])
            if words is not None:
                found.setdefault(words, present)
    return tuple(found.values())


def _literal(scalar: Scalar, replace: Replace) -> Literal | None:
    """Return the value of a part of a key; None if it is out of the type's range."""
    value = bind_scalar(scalar, replace)
    if isinstance(value, Literal):
        return value
    found = constant(value)
    return None if isinstance(found, str) else found


def finishing_of(context: StatementContext, peek: PeekPlan) -> Finishing:
    """Return what finishes a query's result, with arguments put in."""
    query = peek.query
    finishing = query.finishing
    if query.limit is not None:
        finishing = msgspec.structs.replace(
            finishing, limit=bound_of(context, query.limit, "LIMIT")
        )
    if query.offset is not None:
        finishing = msgspec.structs.replace(
            finishing, offset=bound_of(context, query.offset, "OFFSET") or 0
        )
    return finishing


def bound_of(context: StatementContext, scalar: Scalar | None, word: str) -> int | None:
    """Return the number of LIMIT or OFFSET, as `word` says; None: there is none."""
    value = None if scalar is None else value_of(context, scalar, 0)
    if value is None:
        return None
    number = int(str(value))
    if number < 0:
        code = "2201W" if word == "LIMIT" else "2201X"
        raise InvalidParameterValue(f"{word} must not be negative", sqlstate=code)
    return number
