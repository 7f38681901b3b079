"""The dependents of an object that changes."""

from foreshore import blocking
from foreshore.adapter.definitions.plan_items import plan_item
from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.planned import Planned
from foreshore.ids import GlobalId


async def plan_dependents(context: StatementContext, id: GlobalId) -> None:
    """Plan the dependents of a table again, in the running transaction."""
    change, planned = context.catalog_change(), dict(context.planner.reader().planned)
    state = change.state
    items = state.items_above(id)

    def plan() -> dict[GlobalId, Planned]:
        for item in items:
            planned[item.id] = plan_item(state, planned, item)
        return {item.id: planned[item.id] for item in items}

    change.planned.update(await blocking.run(None, plan))
