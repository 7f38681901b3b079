"""The positions from which durable subscriptions go on."""

from foreshore.adapter.statement.context import StatementContext
from foreshore.adapter.statement.planner import Planner
from foreshore.catalog.durable import Position
from foreshore.catalog.subscription_positions import Move
from foreshore.errors import (
    ObjectNotInPrerequisiteState,
    UndefinedObject,
)
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId


def start_from_position(context: StatementContext, id: GlobalId) -> Position:
    """Return the position from which a SUBSCRIBE starts, and note that the transaction uses it."""
    transaction, state = context.transaction, context.planner.state
    position = readable_position(context, id)
    if id not in transaction.staged.moves:
        name = state.full_name(state.item(id))
        transaction.stage_move(id, Move(name, position, position))
    return position


def readable_position(context: StatementContext, id: GlobalId) -> Position:
    """Return a subscription's position.

    Raise 55000 if its history is lost: a materialized view below it had no replica for too long.
    """
    transaction = context.transaction
    name = context.planner.state.item(id).name
    if transaction.made(id):
        raise ObjectNotInPrerequisiteState(
            f'subscription "{name}" has not begun',
            detail="It begins when the transaction that creates it commits.",
        )
    position = context.tables.subscriptions.position(id, transaction.moves)
    if position is None:
        raise UndefinedObject(f'subscription "{name}" does not exist')
    since = max(map(context.times.since, inputs_of(context.planner, id)), default=0)
    if since > position.as_of:
        raise ObjectNotInPrerequisiteState(
            f'subscription "{name}" cannot go on from its position',
            detail=f"It is at {position.reached}; its query can be read from {since} on.",
            hint="Drop the subscription and create it anew.",
        )
    return position


def inputs_of(planner: Planner, id: GlobalId) -> frozenset[GlobalId]:
    """Return the collections that a subscription's query reads."""
    definition = planner.reader().planned[id].definition
    assert definition is not None, id
    return sources_of(definition)
