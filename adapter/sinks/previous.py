"""The relation that a sink wrote before ALTER SINK ... SET FROM, as long as its target may have it.

    frontier of the target   it has
    at most the cut          the previous relation, as it was just before the frontier
    later                    the present relation, likewise

The cut is the time at which the statement was committed. The change that leads from the one to the
other is the difference of their contents. So until a position is beyond the cut, the previous
relation is needed: its history is held, and it cannot be dropped.
"""

from collections.abc import Iterable
from itertools import chain

from msgspec.structs import replace

from foreshore.adapter.services.collections import Stored
from foreshore.catalog.catalog import Catalog
from foreshore.catalog.item import AT_COMMIT, Item, Object
from foreshore.catalog.state import with_objects
from foreshore.catalog.subscription_positions import Previous
from foreshore.catalog.transaction import Transaction
from foreshore.errors import DependentObjectsStillExist
from foreshore.ids import GlobalId
from foreshore.update import Timestamp


def previous_of(catalog: Catalog, id: GlobalId) -> Previous | None:
    """Return the relation that a sink wrote before, if it had another one."""
    item = catalog.state.get(id)
    if not isinstance(item, Item) or not item.sink or not item.sink.previous:
        return None
    return Previous(GlobalId(item.sink.previous), item.sink.cut)


def set_cut_times(
    transaction: Transaction, changed: Iterable[Object | None], time: Timestamp
) -> None:
    """Let the sinks that a transaction gives another relation write that from `time` on."""
    sinks: dict[str, Object | None] = {
        item.id: replace(item, sink=replace(item.sink, cut=time))
        for item in changed
        if isinstance(item, Item) and item.sink and item.sink.cut == AT_COMMIT
    }
    if sinks:
        transaction.state = with_objects(transaction.state, sinks)


def refuse_awaited(
    coordinator: Stored, changed: Iterable[Object], dropped: Iterable[Object]
) -> None:
    """Raise DependentObjectsStillExist if a sink needs what is dropped for its next change.

    `changed` are the objects that the catalog gets, in which a sink may be that needs it from now.
    """
    gone = {each.id: each for each in dropped if isinstance(each, Item)}
    if not gone:
        return
    begun = [
        (each.id, GlobalId(each.sink.previous))
        for each in changed
        if isinstance(each, Item) and each.sink and each.sink.cut == AT_COMMIT
    ]
    for id, relation in chain(coordinator.subscriptions.awaited(), begun):
        if relation in gone and id not in gone:
            item = gone[relation]
            sink = coordinator.state.item(id).name
            raise DependentObjectsStillExist(
                f'cannot drop or alter {item.kind} "{item.name}" because sink "{sink}" needs it',
                detail="The target of the sink does not have the last changes of it.",
                hint=f"Run WAIT FOR SINKS {sink} first.",
            )
