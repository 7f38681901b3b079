"""Plans of statements about roles, their memberships and their rights."""

from dataclasses import dataclass
from typing import ClassVar
from typing import Literal as OneOf

from foreshore.item_view import Name
from foreshore.role_options import RoleName, RoleOptions
from foreshore.sql.plan.query import WritePlan
from foreshore.types import TEXT, ColumnType, RelationDesc, SqlType


@dataclass(frozen=True, slots=True)
class CreateRole(WritePlan):
    """Create a role; `valid_until` is in microseconds since 1970."""

    name: str
    options: RoleOptions
    valid_until: int | None
    in_roles: tuple[RoleName, ...]
    members: tuple[RoleName, ...]
    admins: tuple[RoleName, ...]


@dataclass(frozen=True, slots=True)
class AlterRole(WritePlan):
    role: RoleName
    options: RoleOptions
    valid_until: int | None


@dataclass(frozen=True, slots=True)
class RenameRole(WritePlan):
    name: str
    to: str


@dataclass(frozen=True, slots=True)
class SetRoleSetting(WritePlan):
    """Keep a setting for later sessions of a role, of all roles (None), or in a database.

    `setting` None resets all, `values` None resets one, no values take the present one.
    """

    role: RoleName | None
    database: str | None
    setting: str | None
    values: tuple[str, ...] | None
    of_database: bool


@dataclass(frozen=True, slots=True)
class AlterSystem(WritePlan):
    """Keep a setting for all sessions, or the server; see `SetRoleSetting`."""

    setting: str | None
    values: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class DropRole(WritePlan):
    roles: tuple[RoleName, ...]
    if_exists: bool


@dataclass(frozen=True, slots=True)
class GrantRoles(WritePlan):
    """Make roles members of others, or no longer; `option` is the right to do so, too."""

    grants: bool
    roles: tuple[RoleName, ...]
    members: tuple[RoleName, ...]
    option: bool
    granted_by: RoleName | None
    tag: str


@dataclass(frozen=True, slots=True)
class Rights:
    """Rights as letters of aclitems; None: all that there are for the object."""

    letters: str | None

    def on(self, all_of_kind: str) -> str:
        """Return the letters, for an object that has the rights `all_of_kind`."""
        return all_of_kind if self.letters is None else self.letters


@dataclass(frozen=True, slots=True)
class GrantRights(WritePlan):
    """Grant or revoke rights on objects, or, with `option`, with (only) the option to grant them.

    `rights` is None if there are only column rights. With `in_schemas`, `names` are schemas.
    """

    grants: bool
    kind: str  # of privileges.RIGHTS, or domain, or system
    names: tuple[Name, ...]
    functions: tuple[tuple[tuple[str, ...], tuple[SqlType, ...] | None], ...]
    in_schemas: bool
    rights: Rights | None
    column_rights: tuple[tuple[str, Rights], ...]
    grantees: tuple[RoleName, ...]
    option: bool
    cascade: bool
    granted_by: RoleName | None
    attributes: tuple[str, ...] = ()  # of ON SYSTEM: fields of RoleOptions


@dataclass(frozen=True, slots=True)
class AlterDefaultRights(WritePlan):
    """ALTER DEFAULT PRIVILEGES; no `roles` are the current one, no `schemas` all."""

    roles: tuple[RoleName, ...]
    schemas: tuple[Name, ...]
    grants: bool
    kind: str
    rights: Rights
    grantees: tuple[RoleName, ...]
    option: bool
    cascade: bool


@dataclass(frozen=True, slots=True)
class CreateToken(WritePlan):
    """Create a token of a role, None is the current one; the time is in microseconds since 1970."""

    name: str
    role: RoleName | None
    valid_until: int | None
    desc: ClassVar[RelationDesc] = RelationDesc(("token",), (ColumnType(TEXT, False),))


@dataclass(frozen=True, slots=True)
class DropToken(WritePlan):
    name: str
    role: RoleName | None
    if_exists: bool


@dataclass(frozen=True, slots=True)
class ChangeOwned(WritePlan):
    """DROP OWNED and REASSIGN OWNED."""

    kind: OneOf["drop", "reassign"]
    roles: tuple[RoleName, ...]
    to: RoleName | None
    cascade: bool
