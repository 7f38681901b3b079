"""Statements about one row, or a few, by tuples: no columns are made before the group is committed.

The same happens as on the way of columns (`by_key.py`, `insert.py`, `tables.py`), which is taken
where this one does not lead: None is returned then, and nothing has been written.
"""

from foreshore.adapter.read.timestamp import move_forward, read_time
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.locks import KeyLock
from foreshore.adapter.transaction.transaction import Written
from foreshore.adapter.write.key_index import Changes, Duplicate, KeyIndex
from foreshore.adapter.write.point_plan import PointPlan, RowRules
from foreshore.adapter.write.tables import checked
from foreshore.adapter.write.values import Row, Values
from foreshore.adapter.write.violations import key_exists
from foreshore.errors import DataError, InternalError
from foreshore.ids import GlobalId
from foreshore.types import Datum
from foreshore.update import Timestamp

FEW_ROWS = 16  # up to which rows with keys are looked at one by one

Own = dict[Row, Row | None]


async def row_by_key(context: StatementContext, point: PointPlan) -> list[Row] | None:
    """Return what a query selects of the one row under its key, if there is one."""
    indexes = await _indexes(context, point.table, point.rules)
    transaction = context.transaction
    if indexes is None:
        return None
    index = indexes[point.constraint.name]
    own = transaction.own_of(point.table, point.constraint.name)
    if own is None:
        return None
    time = read_time(context, (point.table,), None, by_key=True)
    givens = _givens(context, point, time)
    key = point.key(givens)
    if key is None:
        return []
    hash = index.hash(key)
    transaction.key_reads.add(KeyLock(point.table, point.constraint.name, hash))
    found = _row(index, own, hash, key, time)
    if found is None:
        return None
    selected = None if found[0] is None else point.selected(givens, found[0])
    return [] if selected is None else [selected]


async def changed_by_key(
    context: StatementContext, point: PointPlan, *, deleting: bool = False
) -> tuple[Values, Values] | None:
    """Let the transaction change or delete the one row under a key; return it, and what it became.

    Its keys are locked first, by all unique constraints of the table.
    """
    coordinator, transaction, id = context.coordinator, context.transaction, point.table
    indexes = await _indexes(context, id, point.rules)
    if indexes is None:
        return None
    index = indexes[point.constraint.name]
    if transaction.own_of(id, point.constraint.name) is None:
        return None
    desc = point.rules.planned.desc
    nothing = Values(desc, [], []), Values(desc, [], [])
    givens = _givens(context, point, coordinator.oracle.read_ts())
    key = point.key(givens)
    hash = None if key is None else index.hash(key)
    wanted = frozenset(() if hash is None else (KeyLock(id, point.constraint.name, hash),))
    while True:
        if not coordinator.locks.try_keys(wanted, transaction):
            await coordinator.locks.acquire_keys(wanted, transaction)
        move_forward(context)
        time = read_time(context, (id,), None, by_key=True)
        if key is None or hash is None:
            return nothing
        transaction.key_reads |= wanted
        own = transaction.own_of(id, point.constraint.name)
        found = None if own is None else _row(index, own, hash, key, time)
        if found is None:
            return None
        row = found[0]
        if row is None:
            return nothing
        if len(indexes) == 1:
            break
        others = wanted.union(
            KeyLock(id, name, each.hash(other))
            for name, each in indexes.items()
            if (other := each.key(row)) is not None
        )
        if others == wanted:
            break
        wanted = others
    givens = _givens(context, point, time)
    selected = point.selected(givens, row)
    if selected is None:
        return nothing
    width = len(desc.columns)
    old = Values(desc, [row], [-1])
    if deleting:
        return (old, nothing[1]) if _write(context, id, point.rules, indexes, old) else None
    new = selected[width:]
    _check(context, id, point.rules, Values.coming(desc, [new]))
    both = Values(desc, [row, new], [-1, 1])
    if not _write(context, id, point.rules, indexes, both):
        return None
    return old, Values.coming(desc, [new])


async def insert_rows(
    context: StatementContext, id: GlobalId, rules: RowRules, values: Values
) -> bool:
    """Let the transaction write new rows to table `id`; False if they go by columns.

    Raises what a broken constraint says.
    """
    if rules.unique and values.num_rows > FEW_ROWS:
        return False
    indexes = await _indexes(context, id, rules)
    if indexes is None:
        return False
    _check(context, id, rules, values)
    return _write(context, id, rules, indexes, values)


async def _indexes(
    context: StatementContext, id: GlobalId, rules: RowRules
) -> dict[str, KeyIndex] | None:
    """Return the indexes of a table's keys, if all that is committed and written is in them."""
    coordinator = context.coordinator
    if context.transaction.catalog is not None:
        return None
    if not rules.unique:
        return {}
    await coordinator.keys.ready(id)
    found = coordinator.keys.of(id)
    if coordinator.catalog.planned.get(id) is not rules.planned:
        return None
    indexes = {each.name: found[each.name] for each in rules.unique if each.name in found}
    return indexes if len(indexes) == len(rules.unique) == len(found) else None


def _givens(context: StatementContext, point: PointPlan, time: Timestamp) -> list[Datum]:
    return point.givens.values(context.args, context.environment_values(time))


def _row(
    index: KeyIndex, own: Own, hash: int, key: Row, time: Timestamp
) -> tuple[Row | None] | None:
    """Return the row under a key at `time`, in a tuple; None if it has been changed since."""
    if key in own:
        return (own[key],)
    entry = index.newest.newest(hash, key)
    if entry.time > time or not index.readable(time):
        return None
    return (entry.row,)


def _check(context: StatementContext, id: GlobalId, rules: RowRules, values: Values) -> None:
    """Raise what PostgreSQL says of a row that the table does not allow."""
    try:
        if all(map(rules.allow, values.rows)):
            return
    except DataError:
        pass  # the first error counts, and that may be another's
    checked(context, id, values.table())
    raise InternalError("a row was refused for no reason")


def _write(
    context: StatementContext,
    id: GlobalId,
    rules: RowRules,
    indexes: dict[str, KeyIndex],
    values: Values,
) -> bool:
    """Let the transaction write rows that are allowed; raises UniqueViolation.

    Returns False, and has done nothing, if they cannot be written one by one.
    """
    transaction, coordinator = context.transaction, context.coordinator
    coordinator.storage.corruptions.check(id)
    keyed: dict[str, Changes] = {}
    owns: list[Own] = []
    for name, index in indexes.items():
        own = transaction.own_of(id, name)
        if own is None:
            return False
        changes = index.changes(values)
        key = index.newest.taken(changes.changes, own)
        if key is not None:
            duplicate = Duplicate(id, index.constraint, key)
            state = context.planner.reader().state
            raise key_exists(state, rules.planned.desc, duplicate, context.time_zone)
        keyed[name] = changes
        owns.append(own)
    transaction.described.setdefault(id, rules.planned)
    if indexes and transaction.checked is None:
        transaction.checked = coordinator.oracle.read_ts()
    for own, changes in zip(owns, keyed.values(), strict=True):
        for change in changes.changes:
            own[change.key] = change.row if change.diff > 0 else None
    transaction.write(id, Written(values, dict(keyed)))
    transaction.forget_own(id, rows=False)
    return True
