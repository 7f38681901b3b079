"""The direct and indirect dependencies of objects, in Materialize's relations."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.item import Item
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId

_MAINTAINED = ("materialized view", "index")


def _transitive(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield each object with all that it depends on."""
    known: dict[GlobalId, frozenset[GlobalId]] = {}
    for item in snapshot.state.items():  # dependencies come first
        used = frozenset(item.depends_on)
        known[item.id] = used.union(*(known.get(each, frozenset()) for each in used))
        for each in sorted(known[item.id]):
            yield {"object_id": item.id, "referenced_object_id": each}


def _of_dataflows(snapshot: IntrospectionSnapshot, types: tuple[str, ...]) -> Iterator[Row]:
    """Yield the collections that each dataflow reads; views are expanded in it."""
    for item in snapshot.state.all(Item):
        if item.type not in types:
            continue
        on = snapshot.state.get(item.on) if item.on is not None else item
        if on is not item and not (isinstance(on, Item) and on.type == "view"):
            inputs = [item.on] if item.on is not None else []
        else:
            definition = snapshot.planned[on.id].definition
            inputs = [] if definition is None else sorted(sources_of(definition))
        for each in inputs:
            yield {"object_id": item.id, "dependency_id": each}


ROWS: Mapping[str, Callable[[IntrospectionSnapshot], Iterable[Row]]] = {
    "mz_object_transitive_dependencies": _transitive,
    "mz_compute_dependencies": lambda snapshot: _of_dataflows(snapshot, _MAINTAINED),
    "mz_materialization_dependencies": lambda snapshot: _of_dataflows(
        snapshot, ("materialized view",)
    ),
}
