"""Put the changes of a catalog transaction on top of the present state.

The catalog lock lets one transaction at a time change permanent objects. Temporary objects need no
lock: each session has its own. So the state that a transaction started from differs from the
present one only in temporary objects, or the transaction changes these alone.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from foreshore.catalog.dangling import check_references
from foreshore.catalog.item import Item, Object
from foreshore.catalog.naming import name_key, wholes_of
from foreshore.catalog.state import State, with_allotted, with_objects
from foreshore.catalog.transaction import Transaction
from foreshore.errors import Conflict
from foreshore.ids import GlobalId

if TYPE_CHECKING:
    from foreshore.catalog.planned import Planned


def rebased(transaction: Transaction, now: State) -> Transaction:
    """Return a transaction with the same changes on top of `now`.

    Raises Conflict if an item whose meaning the transaction changes has a new dependent, or depends
    on what has changed, since the transaction began; and as `check_references` does.
    """
    base, state = transaction.base, transaction.state
    if base is now:
        return transaction
    changes = _changes(base, state, now)
    for id in changes.keys() | transaction.planned.keys():
        if now.dependents(id) - base.dependents(id):
            raise _conflict()
    for id in _below(base, state, changes):
        if now.get(id) is not base.get(id):
            raise _conflict()
    for id, each in changes.items():
        if each is not None and now.names.get(name_key(each), id) not in (id, *changes):
            raise _conflict()
    changed = with_objects(now, changes)
    for space, number in state.allotted.items():
        number = max(number, now.allotted.get(space, 0))
        changed = with_allotted(changed, space, number)
    check_references(now, changed)
    return transaction.rebased(now, changed)


def without_dropped(state: State, now: State, planned: Mapping[GlobalId, "Planned"]) -> State:
    """Return a transaction's `state` without the items that other sessions have dropped since.

    They are not in the state that is committed `now` and have no plan any more; what depends on
    them goes with them.
    """
    changed = map(state.get, state.changed(now))
    dropped = [each.id for each in changed if isinstance(each, Item) and each.id not in planned]
    gone = {id for each in dropped for id in state.above(each)}
    return with_objects(state, dict.fromkeys(gone)) if gone else state


def _changes(base: State, state: State, now: State) -> dict[str, Object | None]:
    """Return the new value of each changed object, None if it was dropped."""
    changes: dict[str, Object | None] = {}
    for id in state.changed(base):
        old, new, present = base.get(id), state.get(id), now.get(id)
        if old is new or (new is None and present is None):
            continue
        if present is not old:
            raise _conflict()
        changes[id] = new
    return changes


def _below(base: State, state: State, changes: Mapping[str, Object | None]) -> set[str]:
    """Return the objects of `base` that the changed items depend on, directly or through others."""
    found: set[str] = set()
    stack = [each for each in map(state.get, changes) if each is not None]
    while stack:
        each = stack.pop()
        needs = [*wholes_of(each), *(each.depends_on if isinstance(each, Item) else ())]
        for need in needs:
            below = base.get(need)
            if below is not None and need not in changes and need not in found:
                found.add(need)
                stack.append(below)
    return found


def _conflict() -> Conflict:
    return Conflict("could not serialize access due to a concurrent change of the catalog")
