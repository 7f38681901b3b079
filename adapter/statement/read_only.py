"""What a read-only transaction may write."""

from foreshore.adapter.statement.context import StatementContext
from foreshore.catalog.item import Item
from foreshore.ids import GlobalId
from foreshore.isolation import BoundedStaleness


def require_writable(context: StatementContext, verb: str, table: GlobalId) -> None:
    """Raise if the transaction is read-only, unless the table is the session's own."""
    if not context.read_only:
        return
    item = context.planner.state.get(table)
    temporary = isinstance(item, Item) and item.temporary
    if not temporary or isinstance(context.isolation, BoundedStaleness):
        context.require_writable(verb)
