"""Statements about durable subscriptions: CREATE SUBSCRIPTION, ADVANCE, and where a stream starts.

A position moves when its transaction commits. The transaction moves it from where it was when the
transaction subscribed to it, or otherwise began; if another has moved it since, it gets 40001.
"""

from msgspec.structs import replace

from foreshore.adapter.client import Completed
from foreshore.adapter.ddl.objects import add_item, is_taken, schema_of
from foreshore.adapter.definitions.plan_items import plan_item
from foreshore.adapter.read.bound.bind import timestamp_of
from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.adapter.subscribe.positions import inputs_of, readable_position
from foreshore.catalog.builtin.registry import refuse_system_inputs
from foreshore.catalog.durable import Position
from foreshore.catalog.item import Item
from foreshore.catalog.subscription_positions import Move
from foreshore.errors import (
    ConcurrentUpdate,
    DependentObjectsStillExist,
    InvalidParameterValue,
    ObjectNotInPrerequisiteState,
    UndefinedObject,
    WrongObjectType,
)
from foreshore.ids import GlobalId
from foreshore.sql.plan import Advance, CreateSubscription


def create_subscription(context: StatementContext, plan: CreateSubscription) -> Completed:
    """Run CREATE SUBSCRIPTION; it begins at the time at which the transaction commits."""
    refuse_system_inputs(plan.query.relation, "a subscription")
    if is_taken(context, plan.name, if_not_exists=plan.if_not_exists):
        return Completed("CREATE SUBSCRIPTION")
    schema = schema_of(context, plan.name)
    item = add_item(context, plan, schema, plan.name.item, plan.depends_on)
    # Plan it from its text as the next start will, so that the same history is held.
    change, planned = context.catalog_change(), context.planner.reader().planned
    change.planned[item.id] = plan_item(change.state, planned, item)
    return Completed("CREATE SUBSCRIPTION")


async def advance(context: StatementContext, plan: Advance) -> Completed:
    """Run ALTER SUBSCRIPTION ... ADVANCE TO; the position moves when the transaction commits."""
    transaction = context.transaction
    for notice in plan.notices:
        context.notice(notice)
    if plan.id is None:
        return Completed("ALTER SUBSCRIPTION")
    item = context.planner.state.item(plan.id)
    name, full_name = item.name, context.planner.state.full_name(item)
    if item.part_of:  # it moves with the rows of its source
        raise WrongObjectType(f'subscription "{name}" belongs to a source')
    moves = transaction.staged.moves
    if any(id != plan.id and each.name == full_name for id, each in moves.items()):
        raise ConcurrentUpdate  # the one that the transaction subscribed to was renamed
    to = timestamp_of(context, plan.to, transaction.time)
    if to <= context.times.clock.now():  # tables may be a moment behind the clock
        await context.tables.group.reached(to)
        if context.planner.state.get(plan.id) is None:
            raise UndefinedObject(f'subscription "{name}" does not exist')
    position = readable_position(context, plan.id)
    before = _position_before(context, plan.id, position)
    if plan.since is not None:
        since = timestamp_of(context, plan.since, transaction.time)
        if since != position.reached:
            raise ObjectNotInPrerequisiteState(
                f'cannot move subscription "{name}" from {since}',
                detail=f"It is at {position.reached}.",
            )
    if to < position.reached:
        raise InvalidParameterValue(
            f'cannot move subscription "{name}" back to {to}',
            detail=f"It is at {position.reached}; earlier changes are not kept.",
        )
    now = context.times.oracle.read_ts()
    if to > now + 1:
        raise InvalidParameterValue(
            f'cannot move subscription "{name}" to {to}',
            detail=f"The newest time that can be read is {now}.",
        )
    if to > position.reached:
        after = replace(position, reached=to)
        transaction.stage_move(plan.id, Move(full_name, before, after))
    return Completed("ALTER SUBSCRIPTION")


def _position_before(context: StatementContext, id: GlobalId, position: Position) -> Position:
    """Return the position from which the transaction moves; raise if another has moved it."""
    transaction, positions = context.transaction, context.tables.subscriptions
    before = position
    if id in transaction.staged.moves:
        before = transaction.staged.moves[id].before
    elif positions.moved_after(id, transaction.began):
        raise ConcurrentUpdate
    if before != positions.position(id):
        raise ConcurrentUpdate
    return before


def refuse_subscribed(planner: Planner, table: Item) -> None:
    """Raise if a durable subscription reads `table`, whose history an ALTER TABLE would end."""
    describe = planner.reader().describe
    if (item := subscribed_by(planner, table)) is not None:
        raise DependentObjectsStillExist(
            f"cannot alter {describe(table)} because other objects depend on it",
            detail=f"{describe(item)} depends on {describe(table)}",
            hint=f"Its history ends with this change: drop the {item.kind} first, "
            "and create it anew.",
        )


def subscribed_by(planner: Planner, table: Item) -> Item | None:
    """Return a durable subscription or a sink that reads a table itself; None if none does."""
    for item in planner.reader().state.items_above(table.id):
        if item.type == "subscription" and table.id in inputs_of(planner, item.id):
            return item
    return None
