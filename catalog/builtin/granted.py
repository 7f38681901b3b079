"""Who has which rights: views of the information schema, default rights, settings of roles.

The information schema shows what concerns the roles whose rights the session's role has (its
*enabled* roles): rights that they have given, and rights given to them, or to PUBLIC where the
view's name does not begin with `role_`.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from foreshore.catalog import acl
from foreshore.catalog.builtin.relation import IntrospectionSnapshot, Row
from foreshore.catalog.builtin.standard_routines import routine_name
from foreshore.catalog.item import Cluster, Database, Item, Role, Schema
from foreshore.catalog.rights import grants_on, members_of, roles_with_rights_of
from foreshore.catalog.state import is_system
from foreshore.privileges import LETTERS, PUBLIC, RIGHTS, Grant

NAMES = {letter: name for name, letter in LETTERS.items()}
_RELATIONS = ("table", "view", "materialized view")
# The letters of pg_default_acl for kinds of objects.
_DEFAULT_KINDS = {"table": "r", "sequence": "S", "function": "f", "type": "T", "schema": "n"}


@dataclass(frozen=True, slots=True)
class _Right:
    """One right of one grantee; owners may grant all rights of theirs."""

    grant: Grant
    letter: str
    is_grantable: bool


def _rights(grants: tuple[Grant, ...], owner: str) -> Iterator[_Right]:
    """Yield the single rights of a list."""
    for grant in grants:
        for letter in grant.rights:
            yield _Right(grant, letter, letter in grant.grantable or grant.grantee == owner)


def _enabled(snapshot: IntrospectionSnapshot) -> frozenset[str]:
    role = snapshot.role
    if role is None or role.superuser:
        return frozenset(each.id for each in snapshot.state.all(Role))
    return roles_with_rights_of(snapshot.state, role)


def _name(snapshot: IntrospectionSnapshot, id: str) -> str:
    return "PUBLIC" if id == PUBLIC else snapshot.name(id)


def _row(snapshot: IntrospectionSnapshot, right: _Right) -> Row:
    return {
        "grantor": _name(snapshot, right.grant.grantor),
        "grantee": _name(snapshot, right.grant.grantee),
        "privilege_type": NAMES[right.letter],
        "is_grantable": "YES" if right.is_grantable else "NO",
    }


Shows = Callable[[IntrospectionSnapshot, Grant], bool]


def _to_anybody(snapshot: IntrospectionSnapshot, grant: Grant) -> bool:
    """Return whether a grant concerns the enabled roles or PUBLIC."""
    enabled = _enabled(snapshot)
    return grant.grantee in enabled or grant.grantor in enabled or grant.grantee == PUBLIC


def _to_roles(snapshot: IntrospectionSnapshot, grant: Grant) -> bool:
    """Return whether a grant concerns the enabled roles themselves."""
    enabled = _enabled(snapshot)
    return grant.grantee in enabled or grant.grantor in enabled


def table_rights(shows: Shows) -> Callable[[IntrospectionSnapshot], Iterator[Row]]:
    """Return the rows of table_privileges, or of role_table_grants."""

    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        for item in snapshot.own_items:
            if item.type not in _RELATIONS or is_system(item.id):
                continue
            for right in _rights(grants_on(item), item.owner):
                if shows(snapshot, right.grant):
                    yield {
                        **_row(snapshot, right),
                        **_table(snapshot, item),
                        "with_hierarchy": "YES" if right.letter == "r" else "NO",
                    }

    return rows


def _table(snapshot: IntrospectionSnapshot, item: Item) -> Row:
    return {
        "table_catalog": snapshot.database,
        "table_schema": snapshot.name(item.schema),
        "table_name": item.name,
    }


def column_rights(shows: Shows) -> Callable[[IntrospectionSnapshot], Iterator[Row]]:
    """Return the rows of column_privileges: rights on columns, and on their relations."""

    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        for item in snapshot.own_items:
            if item.type not in _RELATIONS or is_system(item.id):
                continue
            for position, name in enumerate(snapshot.desc_of(item.id).names, 1):
                grants = grants_on(item)
                for grant in (item.column_grants or {}).get(position, ()):
                    grants = acl.added(grants, grant)
                for right in _rights(grants, item.owner):
                    if right.letter in RIGHTS["column"] and shows(snapshot, right.grant):
                        row = {**_row(snapshot, right), **_table(snapshot, item)}
                        yield {**row, "column_name": name}

    return rows


def usage_rights(shows: Shows) -> Callable[[IntrospectionSnapshot], Iterator[Row]]:
    """Return the rows of usage_privileges: of domains and sequences."""
    called = {"domain": "DOMAIN", "sequence": "SEQUENCE"}

    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        for item in (*snapshot.own_items, *snapshot.types):
            if item.type not in called:
                continue
            for right in _rights(grants_on(item), item.owner):
                if right.letter == "U" and shows(snapshot, right.grant):
                    yield {
                        **_row(snapshot, right),
                        "object_catalog": snapshot.database,
                        "object_schema": snapshot.name(item.schema),
                        "object_name": item.name,
                        "object_type": called[item.type],
                    }

    return rows


def type_rights(shows: Shows) -> Callable[[IntrospectionSnapshot], Iterator[Row]]:
    """Return the rows of udt_privileges: of composite types; their `TYPE USAGE`."""

    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        for item, _ in snapshot.composites:
            for right in _rights(grants_on(item), item.owner):
                if shows(snapshot, right.grant):
                    yield {
                        **_row(snapshot, right),
                        "udt_catalog": snapshot.database,
                        "udt_schema": snapshot.name(item.schema),
                        "udt_name": item.name,
                        "privilege_type": "TYPE USAGE",
                    }

    return rows


def routine_rights(shows: Shows) -> Callable[[IntrospectionSnapshot], Iterator[Row]]:
    """Return the rows of routine_privileges."""

    def rows(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
        for item in snapshot.database_items:
            for right in _rights(grants_on(item), item.owner) if item.is_function else ():
                if shows(snapshot, right.grant):
                    yield {**_row(snapshot, right), **routine_name(snapshot, item)}

    return rows


def enabled_roles(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the roles whose rights the session's role has."""
    for id in sorted(_enabled(snapshot)):
        yield {"role_name": snapshot.name(id)}


def _memberships(snapshot: IntrospectionSnapshot, *, admin: bool) -> Iterator[Row]:
    role = snapshot.role
    if role is None:
        return
    for id in sorted(members_of(snapshot.state, role)):
        member = snapshot.state.objects[id]
        assert isinstance(member, Role), member
        for each in member.member_of:
            if each.admin or not admin:
                yield {
                    "grantee": member.name,
                    "role_name": snapshot.name(each.role),
                    "is_grantable": "YES" if each.admin else "NO",
                }


def applicable_roles(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the memberships by which the session's role is a member of others."""
    return _memberships(snapshot, admin=False)


def administrable_roles(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the memberships by which the session's role may make others members."""
    return _memberships(snapshot, admin=True)


INFORMATION_SCHEMA = {
    "table_privileges": table_rights(_to_anybody),
    "role_table_grants": table_rights(_to_roles),
    "column_privileges": column_rights(_to_anybody),
    "role_column_grants": column_rights(_to_roles),
    "usage_privileges": usage_rights(_to_anybody),
    "role_usage_grants": usage_rights(_to_roles),
    "udt_privileges": type_rights(_to_anybody),
    "role_udt_grants": type_rights(_to_roles),
    "routine_privileges": routine_rights(_to_anybody),
    "role_routine_grants": routine_rights(_to_roles),
    "enabled_roles": enabled_roles,
    "applicable_roles": applicable_roles,
    "administrable_role_authorizations": administrable_roles,
}


# --- pg_catalog ----------------------------------------------------------------------------------


def default_acl(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_default_acl."""
    for role in snapshot.state.all(Role):
        for each in role.default_grants:
            if each.schema is not None and each.schema not in snapshot.schemas:
                continue
            yield {
                "oid": each.oid,
                "defaclrole": role.oid,
                "defaclnamespace": snapshot.oid(each.schema) if each.schema else 0,
                "defaclobjtype": _DEFAULT_KINDS[each.kind],
                "defaclacl": acl.items(each.grants, snapshot.name),
            }


def role_settings(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of pg_db_role_setting: of databases, of roles, and of roles in databases."""
    for database in snapshot.state.all(Database):
        if database.settings:
            yield _settings(database.settings, database=database.oid)
    for role in snapshot.state.all(Role):
        if role.settings:
            yield _settings(role.settings, role=role.oid)
        for id, settings in role.database_settings.items():
            found = snapshot.state.get(id)
            if found is not None:
                yield _settings(settings, database=found.oid, role=role.oid)


def _settings(settings: dict[str, str], *, database: int = 0, role: int = 0) -> Row:
    config = [f"{name}={value}" for name, value in settings.items()]
    return {"setdatabase": database, "setrole": role, "setconfig": config}


# --- mz_catalog and mz_internal ------------------------------------------------------------------


def role_members(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_role_members."""
    for role in snapshot.state.all(Role):
        for each in role.member_of:
            yield {"role_id": each.role, "member": role.id, "grantor": each.grantor}


def role_parameters(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_role_parameters."""
    for role in snapshot.state.all(Role):
        for name, value in role.settings.items():
            yield {"role_id": role.id, "parameter_name": name, "parameter_value": value}


def system_privileges(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_system_privileges: the attributes of roles, as Materialize grants."""
    for role in snapshot.state.all(Role):
        letters = ("R" if role.create_role else "") + ("B" if role.create_db else "")
        letters += "N" if role.create_cluster else ""
        letters += "P" if role.create_network_policy else ""
        if letters:
            yield {"privileges": f"{role.id}={letters}/s1"}


def shown_privileges(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield each right on each object, by names, as SHOW PRIVILEGES lists them."""
    for each in snapshot.state.objects.values():
        if not isinstance(each, Database | Schema | Cluster | Item) or is_system(each.id):
            continue
        if isinstance(each, Item) and each.type in ("index", "subscription"):
            continue
        schema = snapshot.state.objects[each.schema] if isinstance(each, Item) else each
        database = schema.database if isinstance(schema, Schema) else None
        where: Row = {
            "database": snapshot.name(database) if database is not None else None,
            "schema": schema.name if isinstance(each, Item) else None,
            "name": each.name,
            "object_type": each.kind,
        }
        for right in _rights(grants_on(each), each.owner):
            yield {
                **where,
                "grantor": snapshot.name(right.grant.grantor),
                "grantee": _name(snapshot, right.grant.grantee),
                "privilege_type": NAMES[right.letter],
            }


def default_privileges(snapshot: IntrospectionSnapshot) -> Iterator[Row]:
    """Yield the rows of mz_default_privileges."""
    for role in snapshot.state.all(Role):
        for each in role.default_grants:
            schema = snapshot.state.get(each.schema) if each.schema is not None else None
            for grant in each.grants:
                yield {
                    "role_id": role.id,
                    "database_id": schema.database if isinstance(schema, Schema) else None,
                    "schema_id": each.schema,
                    "object_type": each.kind,
                    "grantee": grant.grantee or "p",
                    "privileges": grant.rights,
                }
