"""PostgreSQL's system views over its catalog, and the roles that they show."""

from collections.abc import Callable, Iterator

from foreshore.catalog.builtin.definitions import index_definition, key_definition
from foreshore.catalog.builtin.relation import Declaration, IntrospectionSnapshot, Row
from foreshore.catalog.builtin.rights import SUPERUSER_OID
from foreshore.catalog.item import Item, Role
from foreshore.catalog.rights import holds
from foreshore.types import oid_of

HIDDEN = "********"  # in place of passwords
_SYSTEM = Role(
    "", SUPERUSER_OID, "pg_system", superuser=True, login=False, create_role=True, create_db=True
)


def authid(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_authid."""
    yield _role(_SYSTEM)
    yield from map(_role, snapshot.state.all(Role))


def _role(role: Role) -> Row:
    return {
        "oid": role.oid,
        "rolname": role.name,
        "rolsuper": role.superuser,
        "rolinherit": role.inherit,
        "rolcreaterole": role.create_role,
        "rolcreatedb": role.create_db,
        "rolcanlogin": role.login,
        "rolbypassrls": role.bypass_rls,
        "rolconnlimit": role.connection_limit,
        "rolpassword": role.verifier,
        "rolvaliduntil": role.valid_until,
    }


def settings_of(role: Role) -> list[str] | None:
    """Return the settings of ALTER ROLE ... SET as `name=value`."""
    return [f"{name}={value}" for name, value in role.settings.items()] or None


def _sequences(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item in snapshot.items:
        if item.type == "sequence":
            found, at = snapshot.sequence_of(item.id), snapshot.position_of(item.id)
            role = snapshot.role
            shown = at.called and (
                role is None
                or holds(snapshot.state, role, item, "SELECT")
                or holds(snapshot.state, role, item, "USAGE")
            )
            yield {
                "schemaname": snapshot.name(item.schema),
                "sequencename": item.name,
                "sequenceowner": snapshot.name(item.owner),
                "data_type": oid_of(found.type),
                "start_value": found.start,
                "min_value": found.minimum,
                "max_value": found.maximum,
                "increment_by": found.increment,
                "cycle": found.cycle,
                "cache_size": found.cache,
                "last_value": at.last if shown else None,
            }


def _roles(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for role in (_SYSTEM, *snapshot.state.all(Role)):
        yield {**_role(role), "rolpassword": HIDDEN, "rolconfig": settings_of(role)}


def _user(role: Role) -> Row:
    return {
        "usename": role.name,
        "usesysid": role.oid,
        "usecreatedb": role.create_db,
        "usesuper": role.superuser,
        "usebypassrls": role.bypass_rls,
        "valuntil": role.valid_until,
        "useconfig": settings_of(role),
    }


def _users(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for role in snapshot.state.all(Role):
        if role.login:
            yield {**_user(role), "passwd": HIDDEN}


def shadow(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_shadow."""
    for role in snapshot.state.all(Role):
        if role.login:
            yield {**_user(role), "passwd": role.verifier}


def groups(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_group: the roles that cannot log in, with their members."""
    for role in snapshot.state.all(Role):
        if not role.login:
            members = (
                member.oid
                for member in snapshot.state.all(Role)
                if any(each.role == role.id for each in member.member_of)
            )
            yield {"groname": role.name, "grosysid": role.oid, "grolist": list(members)}


def _of(kind: str) -> Callable[[IntrospectionSnapshot], Iterator[tuple[Item, str, str]]]:
    def items(snapshot: IntrospectionSnapshot) -> Iterator[tuple[Item, str, str]]:
        for item in snapshot.items:
            if item.type == kind:
                yield item, snapshot.name(item.schema), snapshot.name(item.owner)

    return items


def _tables(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item, schema, owner in _of("table")(snapshot):
        yield {
            "schemaname": schema,
            "tablename": item.name,
            "tableowner": owner,
            "hasindexes": bool(snapshot.state.indexes_on(item.id)),
            "rowsecurity": bool(item.row_security),
        }


def _views(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item, schema, owner in _of("view")(snapshot):
        yield {
            "schemaname": schema,
            "viewname": item.name,
            "viewowner": owner,
            "definition": snapshot.definition_of(item.id),
        }


def _matviews(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item, schema, owner in _of("materialized view")(snapshot):
        yield {
            "schemaname": schema,
            "matviewname": item.name,
            "matviewowner": owner,
            "hasindexes": bool(snapshot.state.indexes_on(item.id)),
            "ispopulated": True,
            "definition": snapshot.definition_of(item.id),
        }


def _indexes(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    for item, schema, _ in _of("index")(snapshot):
        if item.on is not None and item.on in snapshot.state.objects:
            yield {
                "schemaname": schema,
                "tablename": snapshot.name(item.on),
                "indexname": item.name,
                "indexdef": index_definition(snapshot, item),
            }
    for item, named, key in snapshot.keys:
        yield {
            "schemaname": snapshot.name(item.schema),
            "tablename": item.name,
            "indexname": named.name,
            "indexdef": key_definition(snapshot, item, key),
        }


VIEWS = (
    Declaration(
        11_901,
        "pg_catalog",
        "pg_roles",
        "rolname name, rolsuper bool, rolinherit bool, rolcreaterole bool, rolcreatedb bool,"
        "rolcanlogin bool, rolreplication bool, rolconnlimit int4, rolpassword text?,"
        "rolvaliduntil timestamptz?, rolbypassrls bool, rolconfig text[]?, oid oid",
        _roles,
    ),
    Declaration(
        11_902,
        "pg_catalog",
        "pg_user",
        "usename name, usesysid oid, usecreatedb bool, usesuper bool, userepl bool,"
        "usebypassrls bool, passwd text?, valuntil timestamptz?, useconfig text[]?",
        _users,
    ),
    Declaration(
        11_903,
        "pg_catalog",
        "pg_tables",
        "schemaname name, tablename name, tableowner name, tablespace name?, hasindexes bool,"
        "hasrules bool, hastriggers bool, rowsecurity bool",
        _tables,
    ),
    Declaration(
        11_904,
        "pg_catalog",
        "pg_views",
        "schemaname name, viewname name, viewowner name, definition text",
        _views,
    ),
    Declaration(
        11_905,
        "pg_catalog",
        "pg_matviews",
        "schemaname name, matviewname name, matviewowner name, tablespace name?,"
        "hasindexes bool, ispopulated bool, definition text",
        _matviews,
    ),
    Declaration(
        11_906,
        "pg_catalog",
        "pg_indexes",
        "schemaname name, tablename name, indexname name, tablespace name?, indexdef text",
        _indexes,
    ),
    Declaration(
        11_907,
        "pg_catalog",
        "pg_sequences",
        "schemaname name, sequencename name, sequenceowner name, data_type regtype,"
        "start_value int8, min_value int8, max_value int8, increment_by int8, cycle bool,"
        "cache_size int8, last_value int8?",
        _sequences,
    ),
)
