"""Policies of row-level security: which rows of a table a role may read and write.

    CREATE POLICY own ON orders FOR SELECT TO sales USING (seller = current_user)

A policy is an item of the catalog, whose statement has its expressions. Which of a table's policies
count for a role is decided by `catalog/row_security.py`, and what they mean for a statement by
`sql/bind/row_security.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal as OneOf

import msgspec

from foreshore.ids import GlobalId
from foreshore.types import Datum

PolicyCommand = OneOf["all", "select", "insert", "update", "delete"]


class PolicyOf(msgspec.Struct, frozen=True):
    """What a policy is for; without `roles`, which are ids, it is for PUBLIC.

    Each ALTER POLICY of its expressions gives it another `version`; new names do not.
    """

    table: GlobalId
    command: PolicyCommand = "all"
    permissive: bool = True
    roles: tuple[str, ...] = ()
    version: int = 0

    def on(self, table: GlobalId) -> "PolicyOf":
        """Return the same for a table with another id."""
        return msgspec.structs.replace(self, table=table)


class PolicyTexts(msgspec.Struct, frozen=True):
    """The expressions of a policy over the row of its table, with full names.

    In them the table is called `table`, or `schema`.`table`.
    """

    table: str
    schema: str | None
    using: str | None
    check: str | None


class PolicyView(msgspec.Struct, frozen=True):
    """A policy that counts for the role which runs a statement."""

    id: GlobalId
    name: str
    command: PolicyCommand
    permissive: bool
    texts: PolicyTexts


@dataclass
class Securing:
    """How policies are bound in a statement: `tables` are those whose policies are being bound.

    `used` is what the policies name. If there are `values`, the session's values in policies are
    taken from there when the statement is planned, as for SUBSCRIBE, which sees all the time what
    they show when it begins. While the query of a view is bound whose rows are locked, `locking` is
    true. Once policies have hidden rows of a table, `restricts` is.
    """

    tables: set[GlobalId] = field(default_factory=set)
    used: set[GlobalId] = field(default_factory=set)
    values: Callable[[str], Datum] | None = None
    locking: bool = False
    restricts: bool = False
