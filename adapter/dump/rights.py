"""Owners and rights in a dump. They follow all objects, as views need rights of their owners.

A new object has the rights of `privileges.initial`, so a dump has what differs from them: rights
that are gone, then those of grants in an order in which each grantor has the option before. What
another role than the owner has given is given as that role.
"""

from collections.abc import Iterable, Iterator, Mapping

from foreshore.adapter.definitions.catalog_reader import SessionCatalog
from foreshore.adapter.dump.statement import Dumped, signature
from foreshore.adapter.show.connections import full_name
from foreshore.catalog import acl
from foreshore.catalog.bootstrap import FIRST_CLUSTER
from foreshore.catalog.item import (
    FIRST_ROLE_ID,
    Cluster,
    Connection,
    Grantable,
    Item,
    Role,
    Schema,
    Secret,
)
from foreshore.catalog.rights import grants_on, kind_of
from foreshore.catalog.state import State
from foreshore.privileges import LETTERS, PUBLIC, Grant, initial, open_to_all
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.rewrite.full_names import dotted

_NAMES = {letter: name for name, letter in LETTERS.items()}
_WITHOUT_RIGHTS = ("index", "policy", "subscription")
_PLURAL = {
    "table": "TABLES",
    "sequence": "SEQUENCES",
    "function": "FUNCTIONS",
    "type": "TYPES",
    "schema": "SCHEMAS",
}

Others = Iterable[Cluster | Schema | Secret | Connection]


def owners(reader: SessionCatalog, others: Others, items: Iterable[Item]) -> Iterator[Dumped]:
    """Yield the owners of objects; indexes, policies and columns' sequences have their table's."""
    state = reader.state
    for each in others:
        if not (_is_first(each) and each.owner == FIRST_ROLE_ID):
            yield from _owner(state, each, f"{each.kind.upper()} {_dotted(state, each)}")
    for item in items:
        if item.type not in ("index", "policy") and not item.owned_by:
            yield from _owner(state, item, _called(reader, item))


def privileges(reader: SessionCatalog, others: Others, items: Iterable[Item]) -> Iterator[Dumped]:
    """Yield the rights on objects and on columns."""
    state = reader.state
    for each in others:
        yield from _on_object(state, each, f"ON {each.kind.upper()} {_dotted(state, each)}")
    for item in items:
        if item.type in _WITHOUT_RIGHTS:
            continue
        kind = kind_of(item)
        name = dotted(state.full_name(item)[1:])
        if kind == "function":
            yield from _on_object(state, item, f"ON FUNCTION {signature(reader, item)}")
            continue
        on = f"ON {item.type.upper() if kind == 'type' else kind.upper()} {name}"
        yield from _on_object(state, item, on)
        columns = reader.planned[item.id].desc.names if item.column_grants else ()
        for place, grants in sorted((item.column_grants or {}).items()):
            column = f" ({quote_identifier(columns[place - 1])})"
            for sql in _granted(state, (), grants, item.owner, on, column):
                yield _about(state, item, sql)


def default_privileges(state: State, schemas: Mapping[str, Schema]) -> Iterator[Dumped]:
    """Yield the rights on what roles create later, in all schemas or in some."""
    for role in sorted(state.all(Role), key=lambda each: each.name):
        for each in sorted(role.default_grants, key=lambda each: (each.schema or "", each.kind)):
            if each.schema is not None and each.schema not in schemas:
                continue
            within, usual = "", initial(each.kind, role.id)
            if each.schema is not None:  # these are added to the others
                within = f" IN SCHEMA {quote_identifier(schemas[each.schema].name)}"
                usual = ()
            head = f"ALTER DEFAULT PRIVILEGES FOR ROLE {quote_identifier(role.name)}{within} "
            on = f"ON {_PLURAL[each.kind]}"
            changes = (
                *_lost(state, usual, each.grants, on),
                *_granted(state, usual, each.grants, role.id, on),
            )
            for sql in changes:
                yield Dumped("role", role.name, head + sql, "privilege")


def _owner(state: State, each: Grantable, called: str) -> Iterator[Dumped]:
    if each.owner in state.objects:
        sql = f"ALTER {called} OWNER TO {_role(state, each.owner)}"
        yield _about(state, each, sql)._replace(part="owner")


def _called(reader: SessionCatalog, item: Item) -> str:
    """Return how ALTER names an item."""
    if item.is_function:
        function = reader.planned[item.id].function
        kind = "AGGREGATE" if function is not None and function.is_aggregate else "FUNCTION"
        return f"{kind} {signature(reader, item)}"
    return f"{item.kind.upper()} {dotted(reader.state.full_name(item)[1:])}"


def _dotted(state: State, each: Cluster | Schema | Secret | Connection) -> str:
    if isinstance(each, Secret | Connection):
        return dotted(full_name(state, each)[1:])
    return quote_identifier(each.name)


def _about(state: State, each: Grantable, sql: str) -> Dumped:
    name = each.name
    if isinstance(each, Item):
        name = ".".join(state.full_name(each)[1:])
    elif isinstance(each, Secret | Connection):
        name = ".".join(full_name(state, each)[1:])
    return Dumped(each.kind, name, sql, "privilege")


def _is_first(each: Grantable) -> bool:
    """Return whether each directory or database has such an object from the beginning."""
    return (isinstance(each, Schema) and each.name == "public") or (
        isinstance(each, Cluster) and each.name == FIRST_CLUSTER
    )


def _on_object(state: State, each: Grantable, on: str) -> Iterator[Dumped]:
    kind = kind_of(each)
    usual = open_to_all(kind, each.owner, "U") if _is_first(each) else initial(kind, each.owner)
    present = grants_on(each)
    for sql in (
        *_lost(state, usual, present, on),
        *_granted(state, usual, present, each.owner, on),
    ):
        yield _about(state, each, sql)


def _lost(state: State, usual: acl.Grants, present: acl.Grants, on: str) -> Iterator[str]:
    """Yield what takes away the rights that are usual and not present."""
    has = {(each.grantee, each.grantor): each.rights for each in present}
    for each in _of_present_roles(state, usual):
        if rights := acl.without(each.rights, has.get((each.grantee, each.grantor), "")):
            yield f"REVOKE {_names(rights)} {on} FROM {_role(state, each.grantee)}"


def _granted(
    state: State,
    usual: acl.Grants,
    present: acl.Grants,
    owner: str,
    on: str,
    column: str = "",
) -> Iterator[str]:
    """Yield what gives the rights that are present and not usual."""
    for each in _in_order(state, _of_present_roles(state, present), owner):
        same = [has for has in usual if (has.grantee, has.grantor) == (each.grantee, each.grantor)]
        rights = acl.without(each.rights, each.grantable + "".join(has.rights for has in same))
        to = f"{on} TO {_role(state, each.grantee)}"
        given = []
        if rights:
            given.append(f"GRANT {_names(rights, column)} {to}")
        if each.grantable:
            given.append(f"GRANT {_names(each.grantable, column)} {to} WITH GRANT OPTION")
        if given and each.grantor != owner:
            given = [f"SET ROLE {_role(state, each.grantor)}", *given, "RESET ROLE"]
        yield from given


def _of_present_roles(state: State, grants: acl.Grants) -> acl.Grants:
    """Return the grants without those of missing roles, which no statement can name."""
    return tuple(
        each
        for each in grants
        if each.grantor in state.objects
        and (each.grantee == PUBLIC or each.grantee in state.objects)
    )


def _in_order(state: State, grants: acl.Grants, owner: str) -> Iterator[Grant]:
    """Yield the owner's grants, then those of roles that have been given their options, and so on.

    Those left over are on columns, by roles with the option on the table.
    """
    waiting = sorted(grants, key=lambda each: (_role(state, each.grantee), each.grantor))
    options: set[tuple[str, str]] = set()
    while waiting:
        ready = [
            each
            for each in waiting
            if each.grantor == owner or options >= {(each.grantor, right) for right in each.rights}
        ] or waiting
        yield from ready
        options |= {(each.grantee, right) for each in ready for right in each.grantable}
        waiting = [each for each in waiting if each not in ready]


def _names(rights: str, column: str = "") -> str:
    return ", ".join(f"{_NAMES[letter]}{column}" for letter in rights)


def _role(state: State, id: str) -> str:
    return "PUBLIC" if id == PUBLIC else quote_identifier(state.objects[id].name)
