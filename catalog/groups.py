"""Groups of a state's objects, for questions that would otherwise go over all of them.

A state keeps for each group the ids of its objects, and changes only the groups of what changes.
"""

from collections.abc import Iterator
from typing import TypeAlias

from foreshore.catalog.item import Item, Object
from foreshore.layered_map import LayeredMap
from foreshore.sinks.spec import connections_of as connections_of_target
from foreshore.sinks.spec import secrets_of as secrets_of_target
from foreshore.sources.spec import connections_of, connections_of_messages, secrets_of

Group: TypeAlias = tuple[str, str]  # a kind of group, and what its objects have in common
Ids: TypeAlias = LayeredMap[str, bool]  # the keys are a set
NO_IDS: Ids = LayeredMap()
METRICS: Group = ("metrics", "")


def groups_of(each: Object) -> Iterator[Group]:
    """Yield the groups that an object is in."""
    if not isinstance(each, Item):
        yield of_kind(each.collection)
        return
    if each.on is not None and each.cluster is not None:
        yield indexes_in(each.cluster)
    if each.type in ("view", "materialized view"):
        yield views_named(each.name)
    if each.is_function:
        yield functions_named(each.schema, each.name)
    if each.owned_by:
        yield owned_by(each.owned_by.table)
    if each.part_of:
        yield parts_of(each.part_of)
    if each.feed and each.feed.spec is not None:
        for used in (*connections_of(each.feed.spec), *secrets_of(each.feed.spec)):
            yield using(used)
    if each.feed:
        yield from map(using, connections_of_messages(each.feed.messages))
    if each.metric:
        yield METRICS
    if each.sink:
        target = each.sink.target
        yield from map(using, (*connections_of_target(target), *secrets_of_target(target)))
    if each.row_security:
        yield SECURED
    for key in each.foreign_keys or ():
        yield referring_to(key.references)


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


def owned_by(table: str) -> Group:
    """Return the group of the sequences that columns of a table own."""
    return "owned", table


def parts_of(item: str) -> Group:
    """Return the group of the items that are parts of another one."""
    return "parts", item


def using(used: str) -> Group:
    """Return the group of the sources and sinks that use a connection or a secret."""
    return "using", used


def referring_to(table: str) -> Group:
    """Return the group of the tables with foreign keys that refer to a table."""
    return "referring", table
