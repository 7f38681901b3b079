"""Syntax of statements about row-level security."""

from typing import Literal as OneOf

from foreshore.policy import PolicyCommand
from foreshore.role_options import RoleName
from foreshore.sql.ast.expressions import Syntax
from foreshore.sql.ast.query import TableRef


class PolicyExpression(Syntax):
    """The text of USING or WITH CHECK, which begins at the offset `at`."""

    text: str
    at: int


class CreatePolicyStatement(Syntax):
    """CREATE POLICY name ON table; without `roles` it is for PUBLIC."""

    name: str
    table: TableRef
    command: PolicyCommand
    permissive: bool
    roles: tuple[RoleName, ...]
    using: PolicyExpression | None
    check: PolicyExpression | None


class AlterPolicyStatement(Syntax):
    """ALTER POLICY name ON table; what is None stays as it is."""

    name: str
    table: TableRef
    rename: str | None
    roles: tuple[RoleName, ...] | None
    using: PolicyExpression | None
    check: PolicyExpression | None


class DropPolicyStatement(Syntax):
    """DROP POLICY [IF EXISTS] name ON table."""

    name: str
    table: TableRef
    if_exists: bool


class CommentPolicyStatement(Syntax):
    """COMMENT ON POLICY name ON table IS text."""

    name: str
    table: TableRef
    text: str | None


class RowSecurityStatement(Syntax):
    """ALTER TABLE ... ENABLE, DISABLE, FORCE or NO FORCE ROW LEVEL SECURITY, several of them."""

    table: TableRef
    actions: tuple[OneOf["enable", "disable", "force", "no force"], ...]
    if_exists: bool
