"""The interface through which binding queries the catalog; `sql` does not import the catalog.

SHOW statements, except SHOW CREATE and SHOW variable, are queries over the builtin relations of
`mz_catalog` and `pg_catalog`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import Protocol

from foreshore.constraint import Constraint, Unique
from foreshore.expr.ir import Relation, Scalar
from foreshore.ids import GlobalId
from foreshore.sequence import Generated, Sequence
from foreshore.sql.plan import Name
from foreshore.types import RelationDesc

ItemKind = OneOf[
    "table", "view", "materialized view", "index", "sequence", "subscription", "builtin"
]


@dataclass(frozen=True, slots=True)
class ItemView:
    """A catalog item as seen by binding."""

    id: GlobalId
    kind: ItemKind
    name: Name
    desc: RelationDesc
    # The lowered relation of a view, substituted where it is named, or of a subscription; None for
    # items with a collection of their own.
    definition: Relation | None = None
    # Of a table: the default of each column, the constraints, and the defining statement.
    defaults: tuple[Scalar, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    create_sql: str = ""
    # Of a table: how each column is generated; None for ordinary columns.
    generated: tuple[Generated | None, ...] = ()
    oid: int = 0
    sequence: Sequence | None = None
    # If the columns of the table differ from those its definition knows: the SELECT that yields the
    # known ones.
    select: str = ""
    # For a view whose rows depend on the reader's time zone: its relation in a given zone. The
    # definition is in UTC, and maintained objects use that.
    in_zone: Callable[[str], Relation] | None = None


class CatalogReader(Protocol):
    """Resolve names to items at one catalog version."""

    @property
    def database(self) -> str:
        """Return the session's current database."""
        ...

    @property
    def search_path(self) -> tuple[str, ...]:
        """Return the schemas searched for unqualified names, in order, implicit ones included."""
        ...

    def resolve_item(self, parts: tuple[str, ...]) -> ItemView:
        """Return the item that `[[database.]schema.]item` names.

        Raises UndefinedTable `relation "x" does not exist`, InvalidSchemaName, or
        FeatureNotSupported for cross-database references, worded as in PostgreSQL.
        """
        ...

    def item(self, id: GlobalId) -> ItemView:
        """Return the item bound to `id`."""
        ...

    def resolve_new(self, parts: tuple[str, ...], *, temporary: bool = False) -> Name:
        """Return the full name under which a new item would be created, `temporary` or not.

        Its schema must exist, except for the schema of temporary items. Raises
        InvalidTableDefinition if the schema is not of the required sort.
        """
        ...

    def is_taken(self, name: Name) -> bool:
        """Return whether a relation, or the index of a constraint, has that full name."""
        ...

    def find_key(self, parts: tuple[str, ...]) -> tuple[ItemView, Unique] | None:
        """Return the table whose key has the index that `parts` name, and the key."""
        ...

    def cluster_exists(self, name: str) -> bool:
        """Return whether cluster `name` exists."""
        ...
