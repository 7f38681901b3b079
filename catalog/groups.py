"""Groups of a state's objects, for questions that would otherwise go over all of them.

A state keeps for each group the ids of its objects, and changes only the groups of what changes.
The objects that name another one are a group, for each kind of reference.
"""

from collections.abc import Iterator
from typing import TypeAlias

from foreshore.catalog.item import Connection, Item, Object, Secret
from foreshore.catalog.references import Reference, references
from foreshore.layered_map import LayeredMap

Group: TypeAlias = tuple[str, str]  # a kind of group, and what its objects have in common
Ids: TypeAlias = LayeredMap[str, bool]  # the keys are a set
NO_IDS: Ids = LayeredMap()
METRICS: Group = ("metrics", "")


def groups_of(each: Object) -> Iterator[Group]:
    """Yield the groups that an object is in, one for each of its references among them."""
    yield from references(each)
    if not isinstance(each, Item):
        yield of_kind(each.collection)
        return
    if each.on is not None and each.cluster is not None:
        yield indexes_in(each.cluster)
    if each.type in ("view", "materialized view"):
        yield views_named(each.name)
    if each.is_function:
        yield functions_named(each.schema, each.name)
    if each.metric:
        yield METRICS
    if each.row_security:
        yield SECURED


SECURED: Group = "secured", ""  # tables with row-level security


def of_kind(collection: str) -> Group:
    """Return the group of the objects of one kind, other than items."""
    return "kind", collection


def indexes_in(cluster: str) -> Group:
    """Return the group of the indexes that a cluster maintains."""
    return "indexes", cluster


def views_named(name: str) -> Group:
    """Return the group of the views, also materialized ones, with this name in lower case."""
    return "views", name.lower()


def functions_named(schema: str, name: str) -> Group:
    """Return the group of the functions with a name."""
    return "functions", f"{schema}.{name}"


def depending_on(item: str) -> Group:
    """Return the group of the items that depend on another one itself."""
    return Reference("dependency", item)


def indexes_on(relation: str) -> Group:
    """Return the group of the indexes on a relation."""
    return Reference("indexed relation", relation)


def policies_on(table: str) -> Group:
    """Return the group of the policies of a table."""
    return Reference("table of a policy", table)


def owned_by(table: str) -> Group:
    """Return the group of the sequences that columns of a table own."""
    return Reference("owning table", table)


def parts_of(item: str) -> Group:
    """Return the group of the items that are parts of another one."""
    return Reference("whole", item)


def using(used: Connection | Secret) -> Group:
    """Return the group of the sources, sinks and connections that use a connection or a secret."""
    return Reference("secret" if isinstance(used, Secret) else "connection", used.id)


def referring_to(table: str) -> Group:
    """Return the group of the tables with foreign keys that refer to a table."""
    return Reference("referenced table", table)
