"""Names and containment: the keys under which objects are found, and what contains them."""

from collections.abc import Iterator
from typing import TypeAlias

from foreshore.catalog.item import Connection, Item, Object, Replica, Schema, Secret

NameKey: TypeAlias = tuple[str, str | None, str]  # kind, parent and name of an object


def parent_of(each: Object) -> str | None:
    """Return the id of the object that contains `each`."""
    match each:
        case Schema(database=parent) | Replica(cluster=parent):
            return parent
        case Item(schema=parent) | Secret(schema=parent) | Connection(schema=parent):
            return parent
        case _:
            return None


def wholes_of(each: Object) -> list[str]:
    """Return the ids of the objects that `each` is part of and is dropped with."""
    found = [parent_of(each)]
    if isinstance(each, Item):
        found += [each.cluster, each.owned_by.table if each.owned_by else None]
    return [id for id in found if id is not None]


def name_key(each: Object) -> NameKey:
    """Return the key under which `each` is found by name."""
    if isinstance(each, Item) and each.is_function:
        return ("function", each.schema, f"{each.name}({','.join(each.arguments or ())})")
    if isinstance(each, Item) and each.policy:
        return ("policy", each.policy.table, each.name)
    return (each.collection, parent_of(each), each.name)


def names_of_keys(item: Item) -> Iterator[tuple[str, str]]:
    """Yield the schema and names of the indexes of a table's constraints."""
    return ((item.schema, each.name) for each in item.constraints if each.has_index)
