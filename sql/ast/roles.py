"""Syntax of statements about roles, their memberships and their rights."""

from typing import Literal as OneOf

from foreshore.role_options import RoleName, RoleOptions
from foreshore.sql.ast.expressions import Syntax
from foreshore.sql.ast.functions import FunctionName
from foreshore.sql.ast.query import TableRef


class CreateRoleStatement(Syntax):
    """CREATE ROLE, USER or GROUP."""

    name: RoleName
    options: RoleOptions
    in_roles: tuple[RoleName, ...]
    members: tuple[RoleName, ...]
    admins: tuple[RoleName, ...]


class AlterRoleStatement(Syntax):
    """ALTER ROLE with attributes."""

    name: RoleName
    options: RoleOptions


class RenameRoleStatement(Syntax):
    """ALTER ROLE ... RENAME TO."""

    name: str
    to: str


class RoleSettingStatement(Syntax):
    """ALTER ROLE or DATABASE ... SET or RESET; `role` None is ALL, `setting` None RESET ALL.

    `values` are those of SET, None for RESET and for TO DEFAULT, empty for FROM CURRENT.
    """

    role: RoleName | None
    database: str | None
    setting: str | None
    values: tuple[str, ...] | None
    of_database: bool  # ALTER DATABASE


class AlterSystemStatement(Syntax):
    """ALTER SYSTEM SET or RESET; see `RoleSettingStatement`."""

    setting: str | None
    values: tuple[str, ...] | None


class DropRoleStatement(Syntax):
    """DROP ROLE."""

    names: tuple[RoleName, ...]
    if_exists: bool


class GrantRoleStatement(Syntax):
    """GRANT or REVOKE of memberships, also ALTER GROUP ... ADD USER.

    `option`: WITH ADMIN OPTION, or ADMIN OPTION FOR.
    """

    grants: bool
    roles: tuple[RoleName, ...]
    members: tuple[RoleName, ...]
    option: bool
    granted_by: RoleName | None
    tag: str


class PrivilegeSyntax(Syntax):
    """A privilege as written, on columns if there are any; None is ALL."""

    name: str | None
    columns: tuple[str, ...]


class GrantStatement(Syntax):
    """GRANT or REVOKE of rights on objects of a kind.

    `option`: WITH GRANT OPTION, or GRANT OPTION FOR. With `in_schemas` the objects are all of the
    kind in the schemas that `names` name.
    """

    grants: bool
    privileges: tuple[PrivilegeSyntax, ...]
    kind: str  # of privileges.RIGHTS, or domain, or system
    names: tuple[TableRef, ...]
    functions: tuple[FunctionName, ...]
    in_schemas: bool
    grantees: tuple[RoleName, ...]
    option: bool
    cascade: bool
    granted_by: RoleName | None


class CreateTokenStatement(Syntax):
    """CREATE TOKEN; no role is the current one."""

    name: str
    role: RoleName | None
    valid_until: str | None


class DropTokenStatement(Syntax):
    """DROP TOKEN."""

    name: str
    role: RoleName | None
    if_exists: bool


class DefaultPrivilegesStatement(Syntax):
    """ALTER DEFAULT PRIVILEGES; no `roles` are the current one, no `schemas` all."""

    roles: tuple[RoleName, ...]
    schemas: tuple[str, ...]
    grant: GrantStatement


class OwnedStatement(Syntax):
    """DROP OWNED BY, or REASSIGN OWNED BY ... TO."""

    kind: OneOf["drop", "reassign"]
    roles: tuple[RoleName, ...]
    to: RoleName | None
    cascade: bool
