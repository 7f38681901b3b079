"""Stage the changes of a statement, one or several, and follow foreign keys from what they made."""

from collections.abc import Sequence

from msgspec.structs import replace

from foreshore.adapter.plans.target import Target
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.staging import Staging
from foreshore.adapter.write.foreign_keys import follow
from foreshore.adapter.write.stage import stage_rows
from foreshore.compute.keys.references import ReferredKeys
from foreshore.table_rows import TableRows

MOST_NOTED = 64  # changes of a table; the commit finds the keys of more by itself


async def stage(
    context: StatementContext,
    target: Target,
    *,
    deleted: TableRows | None = None,
    inserted: TableRows | None = None,
    updated: tuple[TableRows, TableRows] | None = None,
) -> None:
    """Let the transaction delete and insert rows, which have been checked, as one change.

    `updated` are those that replace each other, in one order. Raises what `stage_rows` does, and
    ForeignKeyViolation.
    """
    if context.staging is not None:
        context.staging.append(Staging(target, deleted, inserted, updated))
        return
    staged, id = context.transaction.staged, target.id
    known: tuple[ReferredKeys, ...] | None = ()  # to which all its other new rows refer
    if id in staged.rows:
        known = staged.refers.get(id) if deleted is None else None
        known = None if known is not None and len(known) > MOST_NOTED else known
    await stage_rows(context, target, deleted=deleted, inserted=inserted)
    found: Sequence[ReferredKeys] | None = ()
    if target.has_foreign_keys:
        found = await follow(context, (Staging(target, deleted, inserted, updated),))
    staged = context.transaction.staged
    if known is not None and found is not None and id in staged.rows:
        refers = {**staged.refers, id: (*known, *found)}
        context.transaction.staged = replace(staged, refers=refers)


async def stage_all(context: StatementContext, changes: Sequence[Staging]) -> None:
    """Stage several changes, and then follow foreign keys."""
    for each in changes:
        await stage_rows(context, each.target, deleted=each.deleted, inserted=each.inserted)
    await follow_foreign_keys(context, changes)


async def follow_foreign_keys(context: StatementContext, changes: Sequence[Staging]) -> None:
    """Check the foreign keys of changes that have been staged, and do what they say."""
    if followed := [each for each in changes if each.target.has_foreign_keys]:
        await follow(context, followed)
