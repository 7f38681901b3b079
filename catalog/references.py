"""References: which objects of the catalog each object names by its id.

This list is the only one. A state keeps for each kind of reference and each id the objects that
name it (`groups.py`); a commit is refused that would leave a reference to nothing, and `/check`,
the doctor and `foreshore repair` look for those (`dangling.py`); tests go over all kinds.

Not in the list:

- What the system has (`s1`, `n_pg_catalog`): it is never dropped.
- Names in settings: as in PostgreSQL, `search_path` or `role` may name what does not exist. A
  network policy must exist, or nobody could connect.
- The relation that a sink wrote before (`SinkSpec.previous`): it is needed only for a time
  (adapter/sinks/previous.py), and stays in the definition after it was dropped.
"""

from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Literal as OneOf
from typing import NamedTuple, assert_never

from foreshore.catalog.item import (
    OBJECTS,
    Cluster,
    Connection,
    Database,
    Granted,
    Item,
    NetworkPolicy,
    Object,
    Replica,
    Role,
    Schema,
    Secret,
    SystemSettings,
)
from foreshore.ids import is_builtin
from foreshore.network_policy import DEFAULT, SETTING
from foreshore.privileges import PUBLIC, Grant
from foreshore.sinks.spec import connections_of as connections_of_target
from foreshore.sinks.spec import secrets_of as secrets_of_target
from foreshore.sources.spec import connections_of, connections_of_messages, secrets_of

ReferenceKind = OneOf[
    "owner",
    "grantee",
    "grantor",
    "role of a membership",
    "grantor of a membership",
    "schema of default privileges",
    "database of settings",
    "network policy",
    "database",
    "schema",
    "cluster",
    "dependency",
    "known table",
    "indexed relation",
    "whole",
    "owning table",
    "referenced table",
    "source",
    "table of a policy",
    "role of a policy",
    "connection",
    "secret",
]


# What type of object each kind of reference names.
NAMED: Mapping[ReferenceKind, type[Object]] = MappingProxyType(
    {
        "owner": Role,
        "grantee": Role,
        "grantor": Role,
        "role of a membership": Role,
        "grantor of a membership": Role,
        "schema of default privileges": Schema,
        "database of settings": Database,
        "network policy": NetworkPolicy,
        "database": Database,
        "schema": Schema,
        "cluster": Cluster,
        "dependency": Item,
        "known table": Item,
        "indexed relation": Item,
        "whole": Item,
        "owning table": Item,
        "referenced table": Item,
        "source": Item,
        "table of a policy": Item,
        "role of a policy": Role,
        "connection": Connection,
        "secret": Secret,
    }
)
_KINDS: Mapping[type[Object], tuple[ReferenceKind, ...]] = {
    type: tuple(kind for kind, named in NAMED.items() if named is type) for type in OBJECTS
}


class Reference(NamedTuple):
    """A kind of reference, and the id that is named: of a network policy its name."""

    kind: ReferenceKind
    id: str


def references(each: Object) -> Iterator[Reference]:
    """Yield the references of an object, some of them more than once."""
    if not isinstance(each, Role):
        yield Reference("owner", each.owner)
    if isinstance(each, Granted):
        yield from _of_grants(each.grants or ())
    match each:
        case Role():
            yield from _of_role(each)
        case Database():
            pass
        case Schema(database=database):
            if database is not None:
                yield Reference("database", database)
        case Secret(schema=schema):
            yield Reference("schema", schema)
        case Connection():
            yield from _of_connection(each)
        case Cluster():
            pass
        case Replica(cluster=cluster):
            yield Reference("cluster", cluster)
        case SystemSettings(settings=settings):
            yield from _of_settings(settings)
        case NetworkPolicy():
            pass
        case Item():
            yield from _of_item(each)
            yield from _of_source_or_sink(each)
        case _:
            assert_never(each)


def _of_grants(grants: Iterable[Grant]) -> Iterator[Reference]:
    for grant in grants:
        if grant.grantee != PUBLIC:
            yield Reference("grantee", grant.grantee)
        yield Reference("grantor", grant.grantor)


def _of_role(role: Role) -> Iterator[Reference]:
    for membership in role.member_of:
        yield Reference("role of a membership", membership.role)
        yield Reference("grantor of a membership", membership.grantor)
    for defaults in role.default_grants:
        if defaults.schema is not None:
            yield Reference("schema of default privileges", defaults.schema)
        yield from _of_grants(defaults.grants)
    for database in role.database_settings:
        yield Reference("database of settings", database)
    yield from _of_settings(role.settings)


def _of_settings(settings: Mapping[str, str]) -> Iterator[Reference]:
    if (name := settings.get(SETTING, DEFAULT)) != DEFAULT:
        yield Reference("network policy", name)


def _of_connection(connection: Connection) -> Iterator[Reference]:
    yield Reference("schema", connection.schema)
    for secret in connection.spec.secrets:
        yield Reference("secret", secret)
    if connection.spec.tunnel is not None:
        yield Reference("connection", connection.spec.tunnel)


def _of_item(item: Item) -> Iterator[Reference]:
    """Yield what an item names, but for what its source or sink uses."""
    yield Reference("schema", item.schema)
    if item.cluster is not None:
        yield Reference("cluster", item.cluster)
    for need in (*item.depends_on, *(id for _, id in item.bound)):
        if not is_builtin(need):
            yield Reference("dependency", need)
    for table in (*(item.known or ()), *(item.known_keys or ())):
        if not is_builtin(table):
            yield Reference("known table", table)
    if item.on is not None and not is_builtin(item.on):
        yield Reference("indexed relation", item.on)
    if item.part_of:
        yield Reference("whole", item.part_of)
    if item.owned_by:
        yield Reference("owning table", item.owned_by.table)
    for key in item.foreign_keys or ():
        yield Reference("referenced table", key.references)
    if item.column_grants:
        for grants in item.column_grants.values():
            yield from _of_grants(grants)
    if item.policy:
        yield Reference("table of a policy", item.policy.table)
        for role in item.policy.roles:
            yield Reference("role of a policy", role)


def _of_source_or_sink(item: Item) -> Iterator[Reference]:
    """Yield the source of a relation, and the connections and secrets of a source or a sink."""
    if item.feed:
        yield Reference("source", item.feed.source)
        connections = connections_of_messages(item.feed.messages)
        yield from (Reference("connection", each) for each in connections)
        if item.feed.spec is not None:
            spec = item.feed.spec
            yield from (Reference("connection", each) for each in connections_of(spec))
            yield from (Reference("secret", each) for each in secrets_of(spec))
    if item.sink:
        target = item.sink.target
        yield from (Reference("connection", each) for each in connections_of_target(target))
        yield from (Reference("secret", each) for each in secrets_of_target(target))


def references_to(each: Object) -> Iterator[Reference]:
    """Yield a reference of each kind to an object, as others may have it."""
    if isinstance(each, NetworkPolicy):
        yield Reference("network policy", each.name)
    else:
        yield from (Reference(kind, each.id) for kind in _KINDS[type(each)])
