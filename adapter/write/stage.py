"""Check new rows, and stage rows on their way into a table as part of the transaction.

`check` is about NOT NULL and CHECK. `stage_rows` checks the keys, against the committed rows and
those that the transaction has written before; group commit checks them once more
(`adapter/session/commit.py`). Foreign keys follow (`stage_changes.py`).

`RowRules` are a program over tuples, which a statement about few rows makes. Rows in columns, and
tuples of which one breaks a rule, are checked column by column: that finds the first row with an
error, in the order that PostgreSQL has.
"""

from collections.abc import Sequence
from itertools import repeat

import pyarrow as pa
import pyarrow.compute as pc

from foreshore import blocking
from foreshore.adapter.plans.row_read import no_value
from foreshore.adapter.plans.row_rules import NEW, checks_of
from foreshore.adapter.plans.target import Target
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.transaction.transaction import Written
from foreshore.adapter.transaction.violations import check_fails, failing_row, key_exists, null_in
from foreshore.adapter.write.target import require_unaltered
from foreshore.adapter.write.uncommitted import kept_in_transaction
from foreshore.compute.engine import check_memory
from foreshore.compute.keys.key_index import KeyIndex
from foreshore.compute.keys.layout import FEW, MANY, KeyedRows
from foreshore.compute.keys.own_rows import OwnRows
from foreshore.constraint import Check, Unique, same
from foreshore.errors import ConcurrentUpdate, DataError, InternalError, append_only_error
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import Scalar
from foreshore.expr.scalars import bind_scalar
from foreshore.ids import GlobalId
from foreshore.rows import split_diffs
from foreshore.sql.rewrite.bind_parameters import is_open_scalar, parameter_bindings
from foreshore.table_rows import TableRows
from foreshore.types import RelationDesc

FEW_BYTES = 1 << 20  # of more than a few rows, that are hashed on the event loop


def checked(context: StatementContext, target: Target, rows: TableRows) -> TableRows:
    """Return new rows with the values of generated columns, which fulfil the constraints.

    Raise NotNullViolation or CheckViolation for the first row that breaks a constraint.

    The constraints are those for which the rows were made; `stage_rows` refuses the rows if the
    table's definition has changed since.
    """
    rules = context.prepared.made.programs.rules
    if rows.are_tuples and rules is not None and rules.planned is target.planned:
        is_timed = bool(rules.read.program.session_values)
        value = context.session_value(context.times.oracle.read_ts()) if is_timed else no_value
        made = rules.read.over(NEW, rows.tuples, (), value)
        if made is not None:
            return TableRows(target.desc, made) if target.planned.computed else rows
    rows = with_generated(target, rows)
    _check_columns(context, target, rows)
    return rows


def with_generated(target: Target, rows: TableRows) -> TableRows:
    """Return rows with the values of the table's generated columns."""
    if not target.planned.computed:
        return rows
    columns, diffs = split_diffs(rows.table)
    found = list(columns)
    for place, value in target.planned.computed:
        found[place] = values_of(value, columns, rows.num_rows)
    return TableRows.of_columns(target.desc, found, diffs)


def values_of(value: Scalar, columns: Sequence[pa.Array], rows: int) -> pa.Array:
    """Return a scalar over the columns of rows; raises the first row's error."""
    found, errors = outcome(value, columns, rows)
    if errors is not None and errors.null_count < len(errors):
        raise DataError.parse(errors.drop_null()[0].as_py())
    return found


def _check_columns(context: StatementContext, target: Target, rows: TableRows) -> None:
    desc = target.desc
    columns, _ = split_diffs(rows.table)
    # Row, order of checks, and the column or CHECK that it breaks, or the CHECK's error.
    broken: list[tuple[int, int, str | Check | DataError]] = []
    for name, column, values in zip(desc.names, desc.columns, columns, strict=True):
        if not column.nullable and values.null_count:
            broken.append((pc.index(pc.is_null(values), True).as_py(), len(broken), name))
    for each in checks_of(target.planned):
        failing = _first_failing(context, each.condition, columns, rows.num_rows)
        if failing is not None:
            broken.append((failing[0], len(broken), failing[1] or each))
    if not broken:
        return
    row, _, constraint = min(broken, key=lambda each: each[:2])
    if isinstance(constraint, DataError):
        raise constraint
    state = context.planner.reader().state
    table = state.item(target.id)
    detail = failing_row(state, table, columns, desc, row, context.viewer)
    if isinstance(constraint, Check):
        raise check_fails(state, table, constraint, detail)
    raise null_in(state, table, constraint, detail)


def first_failing(
    context: StatementContext, condition: Scalar, columns: Sequence[pa.Array], rows: int
) -> int | None:
    """Return the first row for which `condition` is FALSE; raises the error of a row before it."""
    found = _first_failing(context, condition, columns, rows)
    if found is None:
        return None
    row, error = found
    if error is not None:
        raise error
    return row


def _first_failing(
    context: StatementContext, condition: Scalar, columns: Sequence[pa.Array], rows: int
) -> tuple[int, DataError | None] | None:
    """Return the first row for which `condition` is FALSE or has an error, and that error."""
    if is_open_scalar(condition):
        now = context.times.oracle.read_ts()
        condition = bind_scalar(condition, parameter_bindings((), context.session_value(now)))
    values, errors = outcome(condition, columns, rows)
    place = pc.index(values, pa.scalar(False)).as_py()
    if errors is not None and errors.null_count < len(errors):
        failed = pc.index(pc.is_valid(errors), True).as_py()
        if not 0 <= place < failed:
            return failed, DataError.parse(errors[failed].as_py())
    return None if place < 0 else (place, None)


# --- keys ----------------------------------------------------------------------------------


async def stage_rows(
    context: StatementContext,
    target: Target,
    *,
    deleted: TableRows | None = None,
    inserted: TableRows | None = None,
) -> None:
    """Let the transaction delete and insert rows, which have been checked, as one change.

    A key may go from a deleted row to an inserted one. Raises UniqueViolation if two rows would
    have the same key, CollectionCorrupted if the table is corrupt, TableAltered if its definition
    has changed, OutOfMemory if the transaction has written more than its role may keep,
    InternalError if more rows would be deleted than there are.
    """
    tables, transaction, id = context.tables, context.transaction, target.id
    committed = context.names.catalog.planned.get(id)
    if committed is not target.planned or transaction.staged.catalog is not None:
        require_unaltered(context, target)
    parts = _parts(deleted, inserted)
    if not parts:
        return
    if deleted is not None and deleted.num_rows and target.desc.append_only:
        raise append_only_error(context.planner.state.item(id).name)
    if tables.storage.corruptions.messages:
        tables.storage.corruptions.check(id)
    if target.desc.watermark is not None and id in tables.capabilities:
        await tables.watermarks.ready(id)
    unique = target.planned.unique
    keyed: list[dict[str, KeyedRows]] = [*map(dict, repeat((), len(parts)))]  # by each key
    if unique:
        await tables.keys.ready(id)
        before = transaction.staged.rows.get(id)
        are_few = (len(parts) == 1 and parts[0].num_rows <= FEW) or _are_few(parts)
    for constraint in unique:
        index = key_index(context, id, target.desc, constraint)
        own = before.by_key(index.layout) if before else None
        args = context, target, index, own, parts, deleted is not None
        if are_few:
            found = _by_key(*args)
        else:
            index.settled()
            found = await blocking.run(context.engines.executor, _by_key, *args)
        for by_key, part_by_key in zip(keyed, found, strict=True):
            by_key[constraint.name] = part_by_key
    for part, by_key in zip(parts, keyed, strict=True):
        part, size = await kept_in_transaction(context, part, len(unique))
        transaction.write(id, Written(part, by_key), committed, size)
    memory = context.variables.settings.most_memory
    if memory is not None:
        check_memory(transaction.written_bytes, memory)
    gone = 0 if deleted is None else abs(deleted.count)
    come = 0 if inserted is None else inserted.count
    tables.activity.changed(id, gone, come, lambda: _estimated_rows(context, id))
    transaction.counted.append((id, gone, come))


def _estimated_rows(context: StatementContext, id: GlobalId) -> int:
    """Return about how many committed rows a table has."""
    return context.tables.storage.count_updates(id) if id in context.tables.capabilities else 0


def _parts(deleted: TableRows | None, inserted: TableRows | None) -> list[TableRows]:
    """Return what is written: tuples as one part, columns, which would be copied, as two."""
    if deleted is None:
        return [inserted] if inserted is not None and inserted.num_rows else []
    if inserted is not None and deleted.are_tuples and inserted.are_tuples:
        change = TableRows.change(deleted, inserted)
        return [change] if change.num_rows else []
    parts = (deleted.deleted(), inserted)
    return [part for part in parts if part is not None and part.num_rows]


def _are_few(parts: Sequence[TableRows]) -> bool:
    """Return whether keys of rows are found on the event loop, which hashes all that rows hold."""
    count = sum([part.num_rows for part in parts])
    if count <= FEW:
        return True
    return count <= MANY and sum([part.size_bytes for part in parts]) <= FEW_BYTES


def _by_key(
    context: StatementContext,
    target: Target,
    index: KeyIndex,
    own: OwnRows | None,
    parts: Sequence[TableRows],
    deletes: bool,
) -> list[KeyedRows]:
    """Return the rows by a key; raises if one would be there twice, or be deleted too often.

    Raises ConcurrentUpdate if others have changed a row that gives way to one of the same key.
    """
    found = [*map(KeyedRows, repeat(index.layout), parts)]
    duplicate = index.duplicate(found, own)
    lost = index.overdrawn(found, own) if deletes else None
    transaction = context.transaction
    read = transaction.began if transaction.time is None else transaction.time
    if duplicate is not None:
        if lost is not None and lost > read:  # what takes its place was not seen
            raise ConcurrentUpdate
        state = context.planner.reader().state
        raise key_exists(state, target.desc, duplicate, context.viewer)
    # A row that others have deleted since `read` is left to the commit, which refuses it.
    if lost is not None and lost <= read:
        raise InternalError("a row was to be taken away more often than it is there")
    return found


def key_index(
    context: StatementContext, id: GlobalId, desc: RelationDesc, constraint: Unique
) -> KeyIndex:
    """Return the index of the committed rows; an empty one for a table that is new."""
    index = context.tables.keys.named(id, constraint)  # as nearly always
    index = index or committed_index(context, id, constraint, desc)
    return index or KeyIndex(id, constraint, desc, 0)


def committed_index(
    context: StatementContext, id: GlobalId, constraint: Unique, desc: RelationDesc
) -> KeyIndex | None:
    """Return the index of the committed rows; None if the transaction has made the table.

    The transaction may have renamed the constraint, or given its name to another one.
    """
    transaction = context.transaction
    named = context.tables.keys.named(id, constraint)
    if named is not None:
        return named
    built = transaction.altered(id).indexes.values()
    for index in (*context.tables.keys.of(id).values(), *built):
        if same(index.constraint, constraint):
            return index.renamed(constraint, desc)
    return None
