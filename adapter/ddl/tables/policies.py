"""CREATE, ALTER and DROP POLICY, COMMENT ON POLICY, ALTER TABLE ... ROW LEVEL SECURITY.

The table gets another plan, though an equal one, so that a write which was planned with its former
policies is planned again (`require_unaltered`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from msgspec.structs import replace as with_fields

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.drop import drop_objects
from foreshore.adapter.ddl.sequences import remember_committed
from foreshore.adapter.definitions.catalog_reader import with_present_names
from foreshore.adapter.definitions.plan_items import planned_as
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.role_names import role_of
from foreshore.adapter.write.target import lock_to_alter
from foreshore.catalog.item import Item
from foreshore.catalog.policies import (
    check_policy_name_free,
    create_policy,
    policy_called,
    redefine_policy,
    set_row_security,
)
from foreshore.errors import SyntaxError_
from foreshore.ids import GlobalId
from foreshore.policy import PolicyOf
from foreshore.role_options import RoleName
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import (
    AlterPolicy,
    CommentPolicy,
    CreatePolicy,
    DropPolicy,
    SetRowSecurity,
)
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.policy_texts import (
    policy_statement,
    policy_texts,
)


async def create(context: StatementContext, plan: CreatePolicy) -> Completed:
    """Run CREATE POLICY."""
    table = await _locked(context, plan.table)
    change = context.catalog_change()
    check_policy_name_free(change.state, table, plan.name)
    roles = _roles(context, plan.roles)
    policy = PolicyOf(table.id, plan.command, plan.permissive, roles)
    item = create_policy(change, table, plan.name, policy, plan.sql, plan.depends_on)
    change.planned[item.id] = planned_as(plan, context.planner.reader().planned)
    return Completed("CREATE POLICY")


async def alter(context: StatementContext, plan: AlterPolicy) -> Completed:
    """Run ALTER POLICY."""
    table = await _locked(context, plan.table)
    change = context.catalog_change()
    item = policy_called(change.state, table, plan.name)
    assert item.policy, item
    if plan.rename is not None:
        check_policy_name_free(change.state, table, plan.rename)
        change.put(with_fields(item, name=plan.rename))
        return Completed("ALTER POLICY")
    if plan.check is not None and item.policy.command in ("select", "delete"):
        raise SyntaxError_("only USING expression allowed for SELECT, DELETE")
    if plan.using is not None and item.policy.command == "insert":
        raise SyntaxError_("only WITH CHECK expression allowed for INSERT")
    if plan.roles is not None:
        roles = _roles(context, plan.roles)
        item = change.put(with_fields(item, policy=with_fields(item.policy, roles=roles)))
    if plan.using is not None or plan.check is not None:
        _redefine(context, table, item, plan)
    return Completed("ALTER POLICY")


def _redefine(context: StatementContext, table: Item, item: Item, plan: AlterPolicy) -> None:
    """Give a policy other expressions; what is not given stays, with present names."""
    change = context.catalog_change()
    kept = policy_texts(with_present_names(change.state, item))
    using = kept.using if plan.using is None else plan.using
    check = kept.check if plan.check is None else plan.check
    sql = policy_statement(item.name, change.state.full_name(table), using, check)
    (syntax,) = parse(sql)
    reader = context.planner.reader()
    made = plan_statement(syntax, reader)
    assert isinstance(made, CreatePolicy), made
    redefine_policy(change, item, made.sql, made.depends_on)
    change.planned[item.id] = planned_as(made, reader.planned)


async def drop(context: StatementContext, plan: DropPolicy) -> Completed:
    """Run DROP POLICY."""
    if plan.table is None:
        context.notice(f'relation "{plan.table_name}" does not exist, skipping')
        return Completed("DROP POLICY")
    table = await _locked(context, plan.table)
    state = context.catalog_change().state
    if plan.if_exists and state.policy_on(table.id, plan.name) is None:
        context.notice(f'policy "{plan.name}" for relation "{table.name}" does not exist, skipping')
        return Completed("DROP POLICY")
    drop_objects(context, [policy_called(state, table, plan.name)], cascade=False)
    return Completed("DROP POLICY")


def comment(context: StatementContext, plan: CommentPolicy) -> Completed:
    """Run COMMENT ON POLICY."""
    change = context.catalog_change()
    table = change.state.item(plan.table)
    change.comment(policy_called(change.state, table, plan.name), plan.text)
    return Completed("COMMENT")


async def set_security(context: StatementContext, plan: SetRowSecurity) -> Completed:
    """Run ALTER TABLE ... ROW LEVEL SECURITY."""
    if plan.table is None:
        context.notice(f'relation "{plan.table_name}" does not exist, skipping')
        return Completed("ALTER TABLE")
    table = await _locked(context, plan.table)
    set_row_security(context.catalog_change(), table, plan.actions)
    return Completed("ALTER TABLE")


async def _locked(context: StatementContext, id: GlobalId) -> Item:
    """Return a table whose policies change, and that nobody writes meanwhile."""
    await lock_to_alter(context, (id,))
    remember_committed(context.transaction, context.names.catalog, id)
    change = context.catalog_change()
    change.planned[id] = replace(context.planner.reader().planned[id])
    return change.state.item(id)


def _roles(context: StatementContext, names: Sequence[RoleName]) -> tuple[str, ...]:
    """Return the ids of the roles that a policy is for; none if it is for PUBLIC."""
    if any(each.means == "public" for each in names):
        if len(names) > 1:
            context.notice(
                "ignoring specified roles other than PUBLIC",
                severity="WARNING",
                sqlstate="22023",
                hint="All roles are members of the PUBLIC role.",
            )
        return ()
    return tuple(dict.fromkeys(_ids(context, names)))


def _ids(context: StatementContext, names: Iterable[RoleName]) -> Iterable[str]:
    return (role_of(context, each).id for each in names)
