"""The catalog: the current state and the plan of each item.

`State` is durable and has names and definitions. `Planned` is what the adapter's planner made of an
item's definition; it is made again at every start. Both change together, in `commit`, after the new
state's rows are durable, so a reader sees a DDL statement completely or not at all. Both are
immutable, so a caller that holds them has a consistent view of the catalog.
"""

from collections.abc import Iterable, Mapping

from foreshore.catalog.item import Item, Object
from foreshore.catalog.naming import name_key, wholes_of
from foreshore.catalog.planned import Planned
from foreshore.catalog.state import State
from foreshore.catalog.transaction import Transaction
from foreshore.errors import RelationRedefined
from foreshore.expr.ir import Get, Relation
from foreshore.expr.temporal import temporal_filters
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.layered_map import LayeredMap
from foreshore.update import Timestamp


class Catalog:
    """The owner of the catalog's state.

    `counters` allot the numbers of ids for all transactions, so they may be ahead of the state: by
    the numbers allotted to transactions that are running or were rolled back.
    """

    def __init__(self, state: State, planned: Mapping[GlobalId, Planned]) -> None:
        self.state = state
        self.planned = LayeredMap(planned)
        self.counters = dict(state.allotted)
        self._defined: dict[str, Timestamp] = {}  # when names and definitions changed last
        self._bases: dict[GlobalId, frozenset[GlobalId]] = {}  # in the present state
        self.check()

    def transaction(self) -> Transaction:
        """Return an empty transaction on the current state."""
        return Transaction(self.state, self.counters)

    def commit(self, transaction: Transaction, time: Timestamp) -> None:
        """Publish the changes of `transaction` after its rows have become durable at `time`."""
        assert transaction.base is self.state, "two changes of the catalog at once"
        old, self.state = self.state, transaction.state
        changed = self.state.changed(old)
        planned: dict[GlobalId, Planned | None] = dict(transaction.planned)
        for id in changed:
            each = self.state.get(id)
            if each is None:
                self._defined.pop(id, None)
                planned[GlobalId(id)] = None
            elif _meaning(each) != _meaning(old.get(id)):
                self._defined[id] = time
        planned.update((id, None) for id in planned if id not in self.state.objects)
        self._bases = {}
        self.planned = self.planned.changed(planned)
        self.state.check(changed)
        for id in changed:
            is_item = isinstance(self.state.get(id), Item)
            assert is_item == (id in self.planned), f"{id} is planned and no item, or not planned"

    def check_defined(self, ids: Iterable[GlobalId], time: Timestamp) -> None:
        """Raise RelationRedefined if the name or definition of an item changed after `time`."""
        for id in ids:
            item = self.state.get(id)
            if isinstance(item, Item):
                times = map(self._defined.get, (id, *wholes_of(item)))
                if any(changed is not None and changed > time for changed in times):
                    raise RelationRedefined(item.name)

    def relation_of(self, item: Item) -> Relation:
        """Return the relation that a collection holds the rows of; a table's is itself."""
        return relation_of(self.state, self.planned, item)

    def sources(self, id: GlobalId) -> frozenset[GlobalId]:
        """Return the collections that the relation of item `id` reads."""
        return sources_of(self.relation_of(self.state.item(id)))

    def bases(self, id: GlobalId) -> frozenset[GlobalId]:
        """Return the tables and builtin relations from which the contents of `id` come."""
        found = self._bases.get(id)
        if found is None:
            planned = self.planned.get(id)
            definition = None if planned is None else planned.definition
            found = frozenset({id}) if definition is None else self.bases_of(definition)
            self._bases[id] = found
        return found

    def bases_of(self, relation: Relation) -> frozenset[GlobalId]:
        """Return the tables and builtin relations that `relation` reads in the end."""
        return frozenset().union(*map(self.bases, sources_of(relation)))

    def relaxed(self, planned: Mapping[GlobalId, Planned]) -> list[Item]:
        """Return the tables that lose keys or NOT NULL when they are planned anew."""
        found = []
        for id, new in planned.items():
            item, old = self.state.get(id), self.planned.get(id)
            if old is not None and isinstance(item, Item) and item.type == "table":
                columns = zip(old.desc.columns, new.desc.columns, strict=True)
                if set(old.desc.keys) - set(new.desc.keys) or any(
                    now.nullable and not was.nullable for was, now in columns
                ):
                    found.append(item)
        return found

    def check(self) -> None:
        """Assert that exactly the items are planned."""
        items = {item.id for item in self.state.items()}
        assert items == self.planned.keys(), items ^ self.planned.keys()
        self.state.check()


def _meaning(each: Object | None) -> object:
    """Return what a query takes from an object: its name, where it is, and its definition."""
    return each and (name_key(each), each.create_sql if isinstance(each, Item) else None)


def relation_of(state: State, planned: Mapping[GlobalId, Planned], item: Item) -> Relation:
    """Return the relation that a collection holds the rows of; a table's is itself."""
    if item.on is not None:
        on = planned[item.on]
        if state.item(item.on).type == "view":
            assert on.definition is not None
            return temporal_filters(on.definition)
        return Get(item.on, on.desc.columns, on.desc.keys)
    own = planned[item.id]
    if item.type == "table":
        return Get(item.id, own.desc.columns)
    assert own.definition is not None, item
    return own.definition
