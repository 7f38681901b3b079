"""Changes of the catalog, and how one that was made of an earlier state is made of the present one.

A transaction changes the catalog as it was when it began to, and others do so meanwhile. What they
have changed in common is a conflict; the rest goes together.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
from msgspec.structs import replace as replace_item

from foreshore.adapter.write.key_index import KeyIndex
from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import Item, Object
from foreshore.catalog.state import State, name_key, wholes_of, with_allotted, with_objects
from foreshore.catalog.transaction import Transaction
from foreshore.errors import Conflict
from foreshore.expr.ir import Relation, sources_of
from foreshore.ids import GlobalId, is_user


@dataclass(frozen=True, slots=True)
class CatalogChange:
    """A change of the catalog, and what planning made of its new items.

    `indexes` are those of the keys of tables that are new or altered, by the constraints' names;
    `contents` the rows that the shard of a table begins with at its `Item.since`.
    """

    transaction: Transaction
    planned: Mapping[GlobalId, Planned] = field(default_factory=dict)
    indexes: Mapping[GlobalId, Mapping[str, KeyIndex]] = field(default_factory=dict)
    contents: Mapping[GlobalId, pa.Table] = field(default_factory=dict)


def rebased(
    change: CatalogChange,
    now: State,
    planned: Mapping[GlobalId, Planned],
    relation_of: Callable[[Item], Relation],
) -> CatalogChange:
    """Return `change` on top of the state `now`; raises Conflict if it no longer fits.

    `planned` is what items are now, and `relation_of` gives what an index is over.
    """
    transaction = change.transaction
    if transaction.base is now:
        return change
    changes = _changes(transaction, now)
    _refuse_unfit(changes, transaction.base, now)
    _refuse_redefined(change, now)
    merged = Transaction(now)
    merged.state = with_objects(now, changes)
    for space, number in transaction.state.allotted.items():
        number = max(number, now.allotted.get(space, 0))
        merged.state = with_allotted(merged.state, space, number)
    _check_parents_exist(merged.state)
    _check_sequence_owners(transaction.base, now, merged.state)
    _refuse_doubled(changes, merged.state)
    _refuse_stale(merged.state, change, planned, relation_of)
    return replace(change, transaction=merged)


def _changes(transaction: Transaction, now: State) -> dict[str, Object | None]:
    """Return what becomes of each object that the transaction changes; None: it goes."""
    old, new = dict(transaction.base.objects), dict(transaction.state.objects)
    changes: dict[str, Object | None] = {}
    for id in old.keys() | new.keys():
        if old.get(id) is new.get(id):
            continue
        if now.get(id) is not old.get(id):
            raise _conflict()
        changes[id] = new.get(id)
    return changes


def _refuse_unfit(changes: Mapping[str, Object | None], base: State, now: State) -> None:
    """Raise Conflict if others use what goes or changes, or have what is used here, or a name."""
    for id, each in changes.items():
        if now.dependents.get(id, frozenset()) - base.dependents.get(id, frozenset()):
            if each is None:
                raise Conflict("could not serialize access: a dropped object is used meanwhile")
            if _is_redefined(base.get(id), each):
                raise _conflict()
        if each is None:
            continue
        needs = each.depends_on if isinstance(each, Item) else ()
        if now.names.get(name_key(each), id) not in (id, *changes) or any(
            need not in now.objects and need not in changes for need in needs
        ):
            raise _conflict()


def _refuse_redefined(change: CatalogChange, now: State) -> None:
    """Raise Conflict if what the change has planned stands on what others have changed since.

    A view is put in where it is named, so what it stands on counts as well. The columns of a view
    are always the same, which is all that an index on it or a view of a maintained one knows.
    """
    base, state = change.transaction.base, change.transaction.state
    seen: set[str] = set()
    stack: list[str] = []
    for id in change.planned:
        item = state.get(id)
        on = state.get(item.on) if isinstance(item, Item) and item.on is not None else None
        if isinstance(item, Item) and not (isinstance(on, Item) and on.type == "view"):
            stack += item.depends_on
    while stack:
        need = stack.pop()
        if need in seen:
            continue
        seen.add(need)
        then = base.get(need)
        if now.get(need) is not then and _is_redefined(then, now.get(need)):
            raise _conflict()
        if isinstance(then, Item) and then.type == "view":
            stack += then.depends_on


def _is_redefined(then: Object | None, now: Object | None) -> bool:
    """Whether what is made of a relation may be another because it has changed.

    Who names it by its id is not concerned by its name.
    """
    if not isinstance(then, Item) or then.type == "sequence":
        return False
    if not isinstance(now, Item):
        return True
    if then.type != "table":
        return then.create_sql != now.create_sql
    return then != replace_item(
        now,
        schema=then.schema,
        name=then.name,
        owner=then.owner,
        bound=then.bound,
        retain_ms=then.retain_ms,
        comment=then.comment,
        column_comments=then.column_comments,
    )


def _check_parents_exist(state: State) -> None:
    """Raise Conflict if in `state` something is part of what is no more.

    One has dropped a schema, say, and another made something in it.
    """
    for each in state.objects.values():
        if not all(whole in state.objects for whole in wholes_of(each)):
            raise _conflict()


def _check_sequence_owners(base: State, now: State, state: State) -> None:
    """Raise Conflict if a sequence got a column of a table that was redefined meanwhile.

    Of sequence and table one was changed from `base` to `now`, the other from there to `state`.
    The column may be called otherwise, or be no more.
    """
    for item in state.all(Item):
        owner = item.owned_by
        then = base.get(item.id)
        if not owner or (isinstance(then, Item) and then.owned_by == owner):
            continue
        if item is now.get(item.id):
            redefined = _is_redefined(now.get(owner.table), state.get(owner.table))
        else:
            redefined = _is_redefined(base.get(owner.table), now.get(owner.table))
        if redefined:
            raise _conflict()


def _refuse_doubled(changes: Mapping[str, Object | None], state: State) -> None:
    """Raise Conflict if in `state` two relations of a schema share a name, indexes of keys too.

    Those are no objects of their own: another table may have got a key of that name meanwhile.
    """
    schemas = {each.schema for each in changes.values() if isinstance(each, Item)}
    taken: set[tuple[str, str]] = set()
    for item in state.all(Item):
        if item.schema in schemas:
            keys = (each.name for each in item.constraints if each.has_index)
            for name in (item.name, *keys):
                if (item.schema, name) in taken:
                    raise _conflict()
                taken.add((item.schema, name))


def _refuse_stale(
    state: State,
    change: CatalogChange,
    planned: Mapping[GlobalId, Planned],
    relation_of: Callable[[Item], Relation],
) -> None:
    """Raise Conflict if in `state` something would be made of a collection that is no more.

    Changes that touch no object in common may come to that: one puts a view or an index on a view,
    the other gives a table below another collection.
    """
    for item in state.all(Item):
        known = change.planned.get(item.id)
        relation: Relation | None
        if item.on is not None:
            relation = None if known is not None else relation_of(item)
        else:
            relation = (known or planned[item.id]).definition
        sources = sources_of(relation) if relation is not None else frozenset()
        if any(is_user(id) and id not in state.objects for id in sources):
            raise _conflict()


def _conflict() -> Conflict:
    return Conflict("could not serialize access due to a concurrent change of the catalog")
