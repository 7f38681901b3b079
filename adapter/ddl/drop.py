"""DROP, ALTER ... RENAME TO, and ALTER ... SET (RETAIN HISTORY)."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

import msgspec

from foreshore import blocking
from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.enums import plan_again
from foreshore.adapter.ddl.error_policy import with_policy
from foreshore.adapter.ddl.marks import check_no_marks
from foreshore.adapter.ddl.objects import find_all, find_if_exists
from foreshore.adapter.ddl.policy_names import follow_names
from foreshore.adapter.ddl.sequences import drop_default, remember_committed
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.news import Notices
from foreshore.adapter.write.target import lock_to_alter
from foreshore.catalog.dropped import Dropped, check_identity_sequences
from foreshore.catalog.groups import parts_of
from foreshore.catalog.item import ColumnOf, Database, ForeignKeyOf, Item, NetworkPolicy, Object
from foreshore.catalog.network_policies import check_unused
from foreshore.errors import (
    FeatureNotSupported,
    ObjectNotInPrerequisiteState,
    WrongObjectType,
)
from foreshore.expr.recursion import check_may_skip_errors
from foreshore.ids import GlobalId
from foreshore.sql.plan import (
    Drop,
    LimitMemory,
    Rename,
    Retain,
    SetErrorPolicy,
    SetSecurityInvoker,
)
from foreshore.sql.rewrite.definition_parts import is_assertion


async def drop(context: StatementContext, plan: Drop) -> Completed:
    """Run DROP."""
    targets = await find_all(context, plan)
    if any(_is_current_database(context.database, each) for each in targets):
        raise ObjectNotInPrerequisiteState(
            "cannot drop the currently open database", sqlstate="55006"
        )
    for each in targets:
        if isinstance(each, NetworkPolicy):
            check_unused(context.planner.state, each)
    check_identity_sequences(context.planner.state, targets)
    check_no_marks(context.planner.state, targets)
    if plan.assertions:
        _check_assertions(targets)
    dropped = drop_objects(context, targets, cascade=plan.cascade)
    await lock_to_alter(context, _tables(dropped.objects))
    notify_cascaded(context.notice, dropped)
    return Completed("DROP ASSERTION" if plan.assertions else f"DROP {plan.kind.upper()}")


def _check_assertions(targets: Iterable[Object]) -> None:
    for each in targets:
        if isinstance(each, Item) and not is_assertion(each.create_sql):
            raise WrongObjectType(f'"{each.name}" is not an assertion')


def _is_current_database(database: str, each: Object) -> bool:
    return isinstance(each, Database) and each.name == database


def _tables(objects: Iterable[Object | ColumnOf | ForeignKeyOf]) -> list[GlobalId]:
    tables = [each.id for each in objects if isinstance(each, Item) and each.type == "table"]
    return tables + [each.table.id for each in objects if isinstance(each, ForeignKeyOf)]


def drop_objects(
    context: StatementContext, targets: Sequence[Object | ColumnOf], *, cascade: bool
) -> Dropped:
    """Drop objects in the transaction, with their dependents if `cascade`.

    Raises DependentObjectsStillExist.
    """
    change = context.catalog_change()
    dropped = change.drop(
        targets,
        cascade=cascade,
        describe=context.planner.reader().describe,
        drop_default=lambda table, sequence: drop_default(context, table, sequence, cascade),
    )
    for each in dropped.objects:
        if isinstance(each, ForeignKeyOf):
            table = each.table.id
            remember_committed(context.transaction, context.names.catalog, table)
            planned = context.planner.reader().planned[table]
            context.catalog_change().planned[table] = replace(planned)
        if isinstance(each, Item):
            context.transaction.unwrite(each.id)
            context.catalog_change().planned.pop(each.id, None)
    return dropped


def notify_cascaded(notice: Notices, dropped: Dropped) -> None:
    """Tell the client which dependents were dropped."""
    if len(dropped.cascaded) == 1:
        notice(f"drop cascades to {dropped.cascaded[0]}")
    elif dropped.cascaded:
        notice(
            f"drop cascades to {len(dropped.cascaded)} other objects",
            detail="\n".join(f"drop cascades to {each}" for each in dropped.cascaded),
        )


async def rename(context: StatementContext, plan: Rename) -> Completed:
    """Run ALTER ... RENAME TO; dependents refer to the object by its id, not by its name."""
    found = find_if_exists(
        context.planner,
        context.notice,
        plan.kind,
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    if found is not None:
        if _is_current_database(context.database, found):
            raise FeatureNotSupported("current database cannot be renamed")
        await lock_to_alter(context, _tables((found,)))
        renamed = context.catalog_change().rename(found, plan.to)
        if isinstance(renamed, Item) and renamed.is_type:
            plan_again(context, renamed)
        if isinstance(renamed, Item) and renamed.type == "table":
            await blocking.run(None, follow_names, context, renamed)
    return Completed(f"ALTER {plan.kind.upper()}")


def limit_memory(context: StatementContext, plan: LimitMemory) -> Completed:
    """Run ALTER ... SET (MEMORY LIMIT = ...)."""
    found = find_if_exists(
        context.planner,
        context.notice,
        plan.kind,
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    if found is not None:
        assert isinstance(found, Item), found
        context.catalog_change().limit_memory(found, plan.memory_limit)
    return Completed(f"ALTER {plan.kind.upper()}")


def set_error_policy(context: StatementContext, plan: SetErrorPolicy) -> Completed:
    """Run ALTER MATERIALIZED VIEW ... SET (ON ERROR = ...), also for what counts violations."""
    found = find_if_exists(
        context.planner,
        context.notice,
        plan.kind,
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    if found is not None:
        assert isinstance(found, Item), found
        definition = context.planner.reader().planned[found.id].definition
        assert definition is not None, found
        if plan.skips:
            check_may_skip_errors(definition)
        change = context.catalog_change()
        for each in (found, *context.planner.state.items_of(parts_of(found.id))):
            if each.type == "materialized view":
                change.put(with_policy(each, skips=plan.skips))
    return Completed(f"ALTER {plan.kind.upper()}")


def set_security_invoker(context: StatementContext, plan: SetSecurityInvoker) -> Completed:
    """Run ALTER VIEW ... SET (security_invoker = ...)."""
    found = find_if_exists(
        context.planner,
        context.notice,
        plan.kind,
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    if found is not None:
        assert isinstance(found, Item), found
        invoker = plan.invoker or msgspec.UNSET
        context.catalog_change().put(msgspec.structs.replace(found, security_invoker=invoker))
    return Completed(f"ALTER {plan.kind.upper()}")


def retain(context: StatementContext, plan: Retain) -> Completed:
    """Run ALTER ... SET (RETAIN HISTORY FOR ...)."""
    found = find_if_exists(
        context.planner,
        context.notice,
        plan.kind,
        plan.name,
        if_exists=plan.if_exists,
        altered=True,
    )
    if found is not None:
        assert isinstance(found, Item), found
        if found.type in ("view", "sequence"):
            raise WrongObjectType(f'"{found.name}" is not a table')
        context.catalog_change().retain(found, plan.retain_ms)
    return Completed(f"ALTER {plan.kind.upper()}")
