"""Rows on their way into a table: checked, in the table's columns, kept in the transaction.

Constraints are checked here, at the statement: NOT NULL and CHECK of each row, keys against what is
committed and what the transaction has written before. Keys are checked once more when the
transaction commits (`adapter/transaction/constraint_guard.py`).
"""

from collections.abc import Iterable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.adapter.read.timestamp_selection import BoundedStaleness
from foreshore.adapter.session.context import StatementContext
from foreshore.adapter.transaction.transaction import Written
from foreshore.adapter.write.key_index import MANY, Changes, KeyIndex
from foreshore.adapter.write.violations import check_fails, failing_row, key_exists, null_in
from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import Item
from foreshore.compute.arrange.arrangement import Arrangement
from foreshore.compute.arrange.run import Updates
from foreshore.constraint import Check, Unique, same
from foreshore.errors import DataError, InternalError, TableAltered, WrongObjectType
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import Scalar
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs
from foreshore.sql.rewrite.bind_parameters import bind_scalar, is_open_scalar, parameter_bindings
from foreshore.types import RelationDesc
from foreshore.update import DIFF, Timestamp


def plan_of_table(context: StatementContext, id: GlobalId) -> Planned:
    """Return what the table `id` is to the running transaction.

    Raises TableAltered or TableDropped if it has gone since the statement was planned.
    """
    if not id.startswith("u"):
        raise WrongObjectType("cannot change a system relation", sqlstate="42501")
    planned = context.planner.reader().planned.get(id)
    if planned is None:
        raise context.coordinator.group.gone(id)
    return planned


def require_writable(context: StatementContext, what: str, table: GlobalId) -> None:
    """Raise if the transaction is read-only, unless the table is the session's own."""
    transaction = context.transaction
    if not transaction.read_only:
        return
    item = context.planner.state.get(table)
    temporary = isinstance(item, Item) and item.temporary
    if not temporary or isinstance(transaction.isolation, BoundedStaleness):
        transaction.require_writable(what)


def table_desc(context: StatementContext, id: GlobalId) -> RelationDesc:
    """Return the columns of table `id`."""
    return plan_of_table(context, id).desc


def unique_constraints(planned: Planned) -> list[Unique]:
    """Return the unique constraints of a table."""
    return [each for each in planned.constraints if isinstance(each, Unique)]


def as_stored(context: StatementContext, id: GlobalId, rows: pa.Table) -> pa.Table:
    """Return rows with `__diff` in the columns of table `id`."""
    columns, diffs = split_diffs(rows)
    schema = table_desc(context, id).stored_schema()
    return pa.Table.from_arrays(
        [*columns, diffs], schema=schema.append(pa.field(DIFF, pa.int64(), nullable=False))
    )


async def take_to_alter(context: StatementContext, ids: Iterable[GlobalId]) -> None:
    """Take tables that the transaction alters, renames or drops, until it ends.

    Raises TableAltered if others have altered one since the transaction changed the catalog first.
    """
    coordinator, change = context.coordinator, context.catalog_change()
    taken = [id for id in ids if id in coordinator.state.objects]
    if not taken:
        return
    transaction = context.transaction
    await coordinator.locks.acquire_to_alter(taken, transaction)
    if any(coordinator.state.get(id) is not change.base.get(id) for id in taken):
        raise TableAltered


async def lock_shared_against_ddl(context: StatementContext, id: GlobalId) -> None:
    """Let a plain write of table `id`, which takes no locks, meet ALTER TABLE at most once.

    It waits for who is altering the table, and for others to come it stands in the way until the
    transaction ends. Raises TableAltered if the table became another.
    """
    transaction, locks = context.transaction, context.coordinator.locks
    if transaction.met_alter or locks.alters_another(id, transaction):
        known = plan_of_table(context, id)
        await locks.acquire_beside(id, transaction)
        require_unaltered(context, id, known)


async def lock_before_nextval(
    context: StatementContext, id: GlobalId, known: Planned, *, whole: bool = False
) -> None:
    """Wait for who has all of table `id`, for whose rows numbers are about to be drawn.

    Whoever has it may begin the sequence anew. Outside of a block it is taken, beside others or as
    a `whole`, so that nobody comes between. Raises TableAltered if it is not what was `known`.
    """
    transaction, locks = context.transaction, context.coordinator.locks
    if id not in context.coordinator.state.objects:
        return
    if transaction.block and not locks.is_taken(id, transaction):
        return
    if whole:
        await locks.acquire((id,), transaction)
    else:  # a block's table may be renamed meanwhile
        await locks.acquire_beside(id, transaction, by_name=not transaction.block)
    require_unaltered(context, id, known)


def require_unaltered(context: StatementContext, id: GlobalId, known: Planned) -> None:
    """Raise TableAltered if table `id` is no longer what it was `known` to be.

    Its rows may be held to other constraints or get other defaults, and the shard be the same.
    """
    if plan_of_table(context, id) is not known:
        raise TableAltered


def checked(context: StatementContext, id: GlobalId, rows: pa.Table) -> pa.Table:
    """Return new rows with `__diff` in the columns of table `id`.

    Raises NotNullViolation or CheckViolation for the first row that may not be there.
    """
    planned = plan_of_table(context, id)
    columns, _ = split_diffs(rows)
    broken: list[tuple[int, int, str | Check]] = []  # row, order of checks, what it breaks
    for name, column, values in zip(planned.desc.names, planned.desc.columns, columns, strict=True):
        if not column.nullable and values.null_count:
            broken.append((pc.index(pc.is_null(values), True).as_py(), len(broken), name))
    checks = [each for each in planned.constraints if isinstance(each, Check)]
    for check in sorted(checks, key=lambda each: each.name):
        failing = first_failing(context, check.condition, columns, rows.num_rows)
        if failing is not None:
            broken.append((failing, len(broken), check))
    if broken:
        row, _, what = min(broken, key=lambda each: each[:2])
        state = context.planner.reader().state
        table = state.item(id)
        detail = failing_row(columns, planned.desc, row, context.time_zone)
        if isinstance(what, Check):
            raise check_fails(state, table, what, detail)
        raise null_in(state, table, what, detail)
    return as_stored(context, id, rows)


def first_failing(
    context: StatementContext, condition: Scalar, columns: Sequence[pa.Array], rows: int
) -> int | None:
    """Return the first row for which `condition` is FALSE; raises the error of one that fails."""
    if is_open_scalar(condition):
        now = context.coordinator.oracle.read_ts()
        condition = bind_scalar(condition, parameter_bindings((), context.environment_values(now)))
    values, errors = outcome(condition, columns, rows)
    if errors is not None and errors.null_count < len(errors):
        raise DataError.parse(errors.drop_null()[0].as_py())
    place = pc.index(values, pa.scalar(False)).as_py()
    return None if place < 0 else int(place)


async def write_rows(
    context: StatementContext, id: GlobalId, planned: Planned, *parts: pa.Table
) -> None:
    """Let the transaction write rows with `__diff`, in the table's columns, to table `id`.

    The rows are of a statement to which the table was what is `planned`. What leaves and what comes
    are one change: a key may go from one row to another. Raises UniqueViolation if two rows would
    have the same one, CollectionCorrupted if the table is damaged, TableAltered if it is another
    now, InternalError if more would leave than is there.
    """
    transaction = context.transaction
    coordinator = context.coordinator
    require_unaltered(context, id, planned)
    parts = tuple(part for part in parts if part.num_rows)
    if not parts:
        return
    coordinator.storage.corruptions.check(id)
    committed = coordinator.catalog.planned.get(id)
    if committed is not None:
        transaction.described.setdefault(id, committed)
    constraints = unique_constraints(planned)
    if not constraints:
        for part in parts:
            transaction.write(id, Written(part, {}))
        return
    await coordinator.keys.ready(id)
    if transaction.checked is None:
        transaction.checked = coordinator.oracle.read_ts()
    indexes = [
        (base_index(context, id, each), own_index(context, id, each)) for each in constraints
    ]
    read = transaction.checked if transaction.time is None else transaction.time

    def prepared() -> list[list[Updates]]:
        found = []
        for base, own in indexes:
            updates = [base.prepare(part) for part in parts]
            duplicate = base.duplicate(updates, *own)
            if duplicate is not None:
                state = context.planner.reader().state
                raise key_exists(state, planned.desc, duplicate, context.time_zone)
            over = base.overdrawn(updates, *own)
            # What others have taken away since it was read is for the commit to refuse.
            if len(over) and base.arrangement.latest(over) <= read:
                raise InternalError("a row was to be taken away more often than it is there")
            found.append(updates)
        return found

    many = sum(part.num_rows for part in parts) > MANY
    by_key = await blocking.run(coordinator.executor, prepared) if many else prepared()
    for (_, own), updates in zip(indexes, by_key, strict=True):
        for arrangement in own:
            arrangement.insert_prepared(updates, 0, 1)
            arrangement.maintain()
    for place, part in enumerate(parts):
        keyed: dict[str, Updates | Changes] = {
            each.name: updates[place] for each, updates in zip(constraints, by_key, strict=True)
        }
        transaction.write(id, Written(part, keyed))
    transaction.forget_own(id, rows=True)


def base_index(context: StatementContext, id: GlobalId, constraint: Unique) -> KeyIndex:
    """Return the index of what is committed, settled; an empty one for a new table."""
    index = committed_index(context, id, constraint)
    if index is None:
        return KeyIndex(id, constraint, table_desc(context, id), 0)
    return index.settled()


def committed_index(context: StatementContext, id: GlobalId, constraint: Unique) -> KeyIndex | None:
    """Return the index of what is committed; None if the transaction has made the table.

    The transaction may have renamed the constraint, or given its name to another one.
    """
    coordinator, transaction = context.coordinator, context.transaction
    named = coordinator.keys.named(id, constraint)
    if named is not None:
        return named
    built = [index for (table, _), index in transaction.built.items() if table == id]
    for index in (*coordinator.keys.of(id).values(), *built):
        if same(index.constraint, constraint):
            return index.called(constraint)
    return None


def own_index(
    context: StatementContext, id: GlobalId, constraint: Unique
) -> tuple[Arrangement, ...]:
    """Return what the transaction has written to table `id`, by key; nothing if there is none."""
    transaction = context.transaction
    if id not in transaction.writes:
        return ()
    key = (id, constraint.name)
    found = transaction.own.get(key)
    if found is None:
        found = transaction.own[key] = KeyIndex(id, constraint, table_desc(context, id), 0)
        for written in transaction.writes[id]:
            updates = written.keyed.get(constraint.name)
            if updates is None:  # the constraint is newer than the rows
                updates = written.keyed[constraint.name] = found.prepare(written.rows)
            elif isinstance(updates, Changes):
                updates = updates.updates(found)
            found.arrangement.insert_prepared([updates], 0, 1)
    return (found.arrangement,)


async def committed_rows(
    context: StatementContext, id: GlobalId, desc: RelationDesc, time: Timestamp
) -> pa.Table:
    """Return a table's rows with `__diff` at `time`, without what the transaction has written."""
    coordinator = context.coordinator
    if id in context.transaction.contents:
        return context.transaction.contents[id]
    if id not in coordinator.capabilities:
        schema = desc.stored_schema().append(pa.field(DIFF, pa.int64(), nullable=False))
        return schema.empty_table()
    snapshot = coordinator.storage.snapshot(coordinator.capabilities[id][0], time)
    try:
        return await snapshot.contents()
    finally:
        snapshot.release()
