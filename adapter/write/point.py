"""Statements about one row, or a few, by tuples: no columns are made before the group is committed.

The same happens as on the way of columns (`by_key.py`, `insert.py`, `tables.py`), which is taken
where this one does not lead: None is returned then, and nothing has been written.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foreshore.adapter.read.times import move_forward, read_time
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

if TYPE_CHECKING:
    from foreshore.adapter.session.session import Session

FEW_ROWS = 16  # up to which rows with keys are looked at one by one

Own = dict[Row, Row | None]


async def row_by_key(
    session: "Session", point: PointPlan, args: Sequence[Datum]
) -> list[Row] | None:
    """Return what a query selects of the one row under its key, if there is one."""
    indexes = await _indexes(session, point.table, point.rules)
    transaction = session.begin()
    if indexes is None:
        return None
    index = indexes[point.constraint.name]
    own = transaction.own_of(point.table, point.constraint.name)
    if own is None:
        return None
    time = read_time(session, (point.table,), None, args, by_key=True)
    givens = _givens(session, point, args, time)
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
    session: "Session", point: PointPlan, args: Sequence[Datum], *, deleting: bool = False
) -> tuple[Values, Values] | None:
    """Let the transaction change or delete the one row under a key; return it, and what it became.

    Its keys are locked first, by all unique constraints of the table.
    """
    coordinator, transaction, id = session.coordinator, session.begin(), point.table
    indexes = await _indexes(session, id, point.rules)
    if indexes is None:
        return None
    index = indexes[point.constraint.name]
    if transaction.own_of(id, point.constraint.name) is None:
        return None
    desc = point.rules.planned.desc
    nothing = Values(desc, [], []), Values(desc, [], [])
    givens = _givens(session, point, args, coordinator.oracle.read_ts())
    key = point.key(givens)
    hash = None if key is None else index.hash(key)
    wanted = frozenset(() if hash is None else (KeyLock(id, point.constraint.name, hash),))
    while True:
        if not coordinator.locks.try_keys(wanted, transaction):
            await coordinator.locks.acquire_keys(wanted, transaction)
        move_forward(session)
        time = read_time(session, (id,), None, args, by_key=True)
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
    givens = _givens(session, point, args, time)
    selected = point.selected(givens, row)
    if selected is None:
        return nothing
    width = len(desc.columns)
    old = Values(desc, [row], [-1])
    if deleting:
        return (old, nothing[1]) if _write(session, id, point.rules, indexes, old) else None
    new = selected[width:]
    _check(session, id, point.rules, Values.coming(desc, [new]))
    both = Values(desc, [row, new], [-1, 1])
    if not _write(session, id, point.rules, indexes, both):
        return None
    return old, Values.coming(desc, [new])


async def insert_rows(session: "Session", id: GlobalId, rules: RowRules, values: Values) -> bool:
    """Let the transaction write new rows to table `id`; False if they go by columns.

    Raises what a broken constraint says.
    """
    if rules.unique and values.num_rows > FEW_ROWS:
        return False
    indexes = await _indexes(session, id, rules)
    if indexes is None:
        return False
    _check(session, id, rules, values)
    return _write(session, id, rules, indexes, values)


async def _indexes(session: "Session", id: GlobalId, rules: RowRules) -> dict[str, KeyIndex] | None:
    """Return the indexes of a table's keys, if all that is committed and written is in them."""
    coordinator = session.coordinator
    if session.begin().catalog is not None:
        return None
    if not rules.unique:
        return {}
    await coordinator.keys.ready(id)
    found = coordinator.keys.of(id)
    if coordinator.catalog.planned.get(id) is not rules.planned:
        return None
    indexes = {each.name: found[each.name] for each in rules.unique if each.name in found}
    return indexes if len(indexes) == len(rules.unique) == len(found) else None


def _givens(
    session: "Session", point: PointPlan, args: Sequence[Datum], time: Timestamp
) -> list[Datum]:
    return point.givens.values(args, session.environment_values(time))


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


def _check(session: "Session", id: GlobalId, rules: RowRules, values: Values) -> None:
    """Raise what PostgreSQL says of a row that the table does not allow."""
    try:
        if all(map(rules.allow, values.rows)):
            return
    except DataError:
        pass  # the first error counts, and that may be another's
    checked(session, id, values.table())
    raise InternalError("a row was refused for no reason")


def _write(
    session: "Session",
    id: GlobalId,
    rules: RowRules,
    indexes: dict[str, KeyIndex],
    values: Values,
) -> bool:
    """Let the transaction write rows that are allowed; raises UniqueViolation.

    Returns False, and has done nothing, if they cannot be written one by one.
    """
    transaction, coordinator = session.begin(), session.coordinator
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
            state = session.planner.reader().state
            raise key_exists(state, rules.planned.desc, duplicate, session.time_zone)
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
