"""Plans of statements about row-level security."""

from dataclasses import dataclass
from typing import Literal as OneOf

from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId
from foreshore.policy import PolicyCommand
from foreshore.role_options import RoleName
from foreshore.sql.plan.query import WritePlan


@dataclass(frozen=True, slots=True)
class CreatePolicy(WritePlan):
    """CREATE POLICY; `sql` is the kept statement, which has only the name and the expressions.

    `rows` are the table's rows that satisfy them, without regard to other policies.
    """

    name: str
    table: GlobalId
    command: PolicyCommand
    permissive: bool
    roles: tuple[RoleName, ...]
    rows: tuple[Relation, ...]
    sql: str
    depends_on: frozenset[GlobalId]


@dataclass(frozen=True, slots=True)
class AlterPolicy(WritePlan):
    """ALTER POLICY; what is None stays. The expressions are as they were written."""

    name: str
    table: GlobalId
    rename: str | None
    roles: tuple[RoleName, ...] | None
    using: str | None
    check: str | None


@dataclass(frozen=True, slots=True)
class DropPolicy(WritePlan):
    """DROP POLICY; `table` is None if there is no such table, and that is allowed."""

    name: str
    table: GlobalId | None
    table_name: str
    if_exists: bool


@dataclass(frozen=True, slots=True)
class CommentPolicy(WritePlan):
    """COMMENT ON POLICY; `text` None removes the comment."""

    name: str
    table: GlobalId
    text: str | None


@dataclass(frozen=True, slots=True)
class SetRowSecurity(WritePlan):
    """ALTER TABLE ... ROW LEVEL SECURITY; `table` is None if it is missing and may be."""

    table: GlobalId | None
    table_name: str
    actions: tuple[OneOf["enable", "disable", "force", "no force"], ...]
