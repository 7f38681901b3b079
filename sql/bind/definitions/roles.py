"""Bind statements about roles and rights: names to full names, privileges to letters."""

from foreshore.errors import InvalidGrant, SyntaxError_
from foreshore.item_view import Name
from foreshore.network_policy import checked_rules
from foreshore.privileges import LETTERS, RIGHTS
from foreshore.role_options import RoleOptions
from foreshore.sql import ast
from foreshore.sql.bind.definitions.functions import types_of_name
from foreshore.sql.bind.definitions.objects import name_of
from foreshore.sql.bind.planning import Planning
from foreshore.sql.plan import (
    AlterDefaultRights,
    AlterNetworkPolicy,
    AlterRole,
    AlterSystem,
    ChangeOwned,
    CreateNetworkPolicy,
    CreateRole,
    CreateToken,
    DropRole,
    DropToken,
    GrantRights,
    GrantRoles,
    ObjectKind,
    Plan,
    RenameRole,
    Rights,
    SetRoleSetting,
)
from foreshore.types import TIMESTAMPTZ

# What messages call a kind whose privileges are wrong, where it is not its own name.
_CALLED = {"table": "relation"}
_SYSTEM = {
    "CREATEROLE": "create_role",
    "CREATEDB": "create_db",
    "CREATECLUSTER": "create_cluster",
    "CREATENETWORKPOLICY": "create_network_policy",
}


def bind_role_statement(planning: Planning, tree: ast.StatementSyntax) -> Plan:
    """Return the plan of a statement about roles or rights."""
    match tree:
        case ast.CreateRoleStatement():
            return CreateRole(
                tree.name.name,
                tree.options,
                _valid_until(planning, tree.options),
                tree.in_roles,
                tree.members,
                tree.admins,
            )
        case ast.AlterRoleStatement():
            return AlterRole(tree.name, tree.options, _valid_until(planning, tree.options))
        case ast.CreateTokenStatement():
            return CreateToken(tree.name, tree.role, _time(planning, tree.valid_until))
        case ast.DropTokenStatement():
            return DropToken(tree.name, tree.role, tree.if_exists)
        case ast.RenameRoleStatement():
            return RenameRole(tree.name, tree.to)
        case ast.RoleSettingStatement():
            return SetRoleSetting(
                tree.role, tree.database, tree.setting, tree.values, tree.of_database
            )
        case ast.NetworkPolicyStatement():
            rules = checked_rules(tree.rules)
            if tree.creates:
                return CreateNetworkPolicy(tree.name, rules)
            return AlterNetworkPolicy(tree.name, rules)
        case ast.AlterSystemStatement():
            return AlterSystem(tree.setting, tree.values)
        case ast.DropRoleStatement():
            return DropRole(tree.names, tree.if_exists)
        case ast.GrantRoleStatement():
            return GrantRoles(
                tree.grants, tree.roles, tree.members, tree.option, tree.granted_by, tree.tag
            )
        case ast.GrantStatement():
            return _grant(planning, tree)
        case ast.DefaultPrivilegesStatement():
            return _default_rights(tree)
        case ast.OwnedStatement():
            return ChangeOwned(tree.kind, tree.roles, tree.to, tree.cascade)
        case _:
            raise AssertionError(tree)


def _valid_until(planning: Planning, options: RoleOptions) -> int | None:
    return _time(planning, options.valid_until)


def _time(planning: Planning, text: str | None) -> int | None:
    """Return a time in microseconds since 1970."""
    if text is None:
        return None
    found = planning.zone.read(text, TIMESTAMPTZ)
    assert isinstance(found, int), found
    return found


def _grant(planning: Planning, tree: ast.GrantStatement) -> GrantRights:
    if tree.kind == "system":
        return _on_system(tree)
    kinds: dict[str, ObjectKind] = {"domain": "domain", "type": "type"}
    kind: ObjectKind = (
        "schema" if tree.in_schemas else kinds.get(tree.kind, tree.kind)  # type: ignore[arg-type]
    )
    names = tuple(name_of(planning, kind, each) for each in tree.names)
    functions = tuple((each.name.name, types_of_name(planning, each)) for each in tree.functions)
    rights, column_rights = _rights(tree)
    return GrantRights(
        tree.grants,
        tree.kind,
        names,
        functions,
        tree.in_schemas,
        rights,
        column_rights,
        tree.grantees,
        tree.option,
        tree.cascade,
        tree.granted_by,
    )


def _rights(tree: ast.GrantStatement) -> tuple[Rights | None, tuple[tuple[str, Rights], ...]]:
    """Return the rights on whole objects, and those on columns, by the columns' names."""
    whole = ""
    has_all = False
    columns: dict[str, Rights] = {}
    for each in tree.privileges:
        letter = None if each.name is None else _letter(each.name, tree.kind, bool(each.columns))
        if each.columns and tree.kind != "table":
            raise InvalidGrant("column privileges are only valid for relations")
        for column in each.columns:
            had = columns.get(column, Rights(""))
            columns[column] = Rights(
                None if letter is None or had.letters is None else had.letters + letter
            )
        if not each.columns:
            has_all, whole = has_all or letter is None, whole + (letter or "")
    if not has_all and not whole:
        return None, tuple(columns.items())
    return Rights(None if has_all else whole), tuple(columns.items())


def _letter(name: str, kind: str, of_column: bool) -> str:
    """Return the letter of a privilege; raises if objects of the kind do not have it."""
    letter = LETTERS.get(name)  # type: ignore[call-overload]
    allowed = RIGHTS["column" if of_column else "type" if kind == "domain" else kind]
    if kind == "table" and not of_column:
        allowed += "U"  # it may be a sequence
    if letter is None or letter not in allowed:
        called = "column" if of_column else _CALLED.get(kind, kind)
        raise InvalidGrant(f"invalid privilege type {name} for {called}")
    return str(letter)


def _on_system(tree: ast.GrantStatement) -> GrantRights:
    """Return the plan of GRANT ... ON SYSTEM: Materialize's form of attributes of roles."""
    names = [each.name for each in tree.privileges]
    if None in names:
        names = list(_SYSTEM)
    for name in names:
        if name not in _SYSTEM:
            raise InvalidGrant(f"invalid privilege type {name} for SYSTEM")
    if tree.option:
        raise SyntaxError_("there are no grant options for rights on SYSTEM")
    attributes = tuple(_SYSTEM[name] for name in names if name is not None)
    return GrantRights(
        tree.grants, "system", (), (), False, None, (), tree.grantees, False, tree.cascade,
        tree.granted_by, attributes,
    )  # fmt: skip


def _default_rights(tree: ast.DefaultPrivilegesStatement) -> AlterDefaultRights:
    rights, columns = _rights(tree.grant)
    if columns or rights is None:
        raise InvalidGrant("default privileges cannot be set for columns")
    if tree.grant.kind == "table" and "U" in (rights.letters or ""):
        raise InvalidGrant("invalid privilege type USAGE for relation")
    schemas = tuple(Name(None, None, each) for each in tree.schemas)
    return AlterDefaultRights(
        tree.roles,
        schemas,
        tree.grant.grants,
        tree.grant.kind,
        rights,
        tree.grant.grantees,
        tree.grant.option,
        tree.grant.cascade,
    )
