"""Names of the catalog's items, and the items as the binding of statements sees them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal as OneOf

from foreshore.constraint import Constraint
from foreshore.expr.ir import Relation, Scalar
from foreshore.foreign_key import ForeignKey
from foreshore.ids import GlobalId, is_temporary
from foreshore.policy import PolicyView, Securing
from foreshore.sequence import Generated, Sequence
from foreshore.types import RelationDesc

ItemKind = OneOf[
    "table",
    "view",
    "materialized view",
    "index",
    "sequence",
    "subscription",
    "source",
    "sink",
    "type",
    "domain",
    "function",
    "policy",
    "builtin",
]


@dataclass(frozen=True, slots=True)
class Name:
    """A resolved name; parts that the kind does not have are None."""

    database: str | None
    schema: str | None
    item: str

    @property
    def temporary(self) -> bool:
        """Return whether it is in the schema of a session's temporary items."""
        return is_temporary(self.schema or "")

    @property
    def parts(self) -> tuple[str, ...]:
        """Return the parts that the name has."""
        return tuple(p for p in (self.database, self.schema, self.item) if p is not None)


@dataclass(frozen=True, slots=True)
class ItemView:
    """A catalog item as seen by binding."""

    id: GlobalId
    kind: ItemKind
    name: Name
    desc: RelationDesc
    # The lowered relation of a subscription, or of a table or materialized view that is not read
    # as it is, substituted where it is named; None for items with a collection of their own.
    definition: Relation | None = None
    # Of a table: the default of each column, the constraints, and the defining statement.
    defaults: tuple[Scalar, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    create_sql: str = ""
    foreign_keys: tuple[ForeignKey, ...] = ()
    # Of a table: how each column is generated; None for ordinary columns.
    generated: tuple[Generated | None, ...] = ()
    # Of a table: whether its numerics without a scale keep the digits of each value.
    keeps_digits: bool = True
    oid: int = 0
    sequence: Sequence | None = None
    # If the columns of the table differ from those its definition knows: the SELECT that yields the
    # known ones.
    select: str = ""
    # Then also the present name of each column; None: it was dropped.
    present: tuple[str | None, ...] = ()
    # For a view whose rows depend on the reader's time zone: its relation in a given zone. The
    # definition is in UTC, and maintained objects use that.
    in_zone: Callable[[str], Relation] | None = None
    # Of a view over tables with row-level security: its relation in a given zone, as its owner or
    # who reads it sees the tables.
    for_reader: Callable[[str, Securing], Relation] | None = None
    # Of a table with row-level security: its policies for a role, None: for the current one. None
    # if the role sees all rows.
    policies: Callable[[str | None], tuple[PolicyView, ...] | None] | None = None
    # Of a view: the relation that reads it by its id, which stands for it in other views'
    # definitions, and what returns its relation over collections. See `catalog/planned.py`.
    reference: Relation | None = None
    expanded: Callable[[], Relation] | None = None
