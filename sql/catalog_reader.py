"""What binding may ask the catalog: a Protocol, so that `sql` knows no catalog.

SHOW statements other than SHOW CREATE and SHOW variable are queries over the builtin relations of
`mz_catalog` and `pg_catalog`, planned like any other.
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
    """An item of the catalog as binding sees it."""

    id: GlobalId
    kind: ItemKind
    name: Name
    desc: RelationDesc
    # A view's lowered relation, put in where it is named; None for what has its own collection.
    # That of a subscription is what it is for.
    definition: Relation | None = None
    # A table's defaults, one scalar a column; its constraints; and the statement that defines it.
    defaults: tuple[Scalar, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    create_sql: str = ""
    # What each column of a table generates: None for one that does not.
    generated: tuple[Generated | None, ...] = ()
    oid: int = 0
    sequence: Sequence | None = None
    # Of a table that has other columns than a definition knows: what to select for those.
    select: str = ""
    # Of a view whose rows depend on the reader's time zone: its relation in that. The definition is
    # in UTC, and what is maintained follows that.
    in_zone: Callable[[str], Relation] | None = None


class CatalogReader(Protocol):
    """Names to items, at one moment."""

    @property
    def database(self) -> str:
        """The session's current database."""
        ...

    @property
    def search_path(self) -> tuple[str, ...]:
        """The schemas searched for unqualified names, in order, implicit ones included."""
        ...

    def resolve_item(self, parts: tuple[str, ...]) -> ItemView:
        """Return what `[[database.]schema.]item` names.

        Raises UndefinedTable `relation "x" does not exist`, InvalidSchemaName,
        FeatureNotSupported for cross-database references as PostgreSQL words them.
        """
        ...

    def item(self, id: GlobalId) -> ItemView:
        """Return the item bound to `id`."""
        ...

    def resolve_new(self, parts: tuple[str, ...], *, temporary: bool = False) -> Name:
        """Return the full name under which a new item would be created, `temporary` or not.

        Its schema must exist, but for that of the session's temporary items. Raises
        InvalidTableDefinition where the name's schema is not of that sort.
        """
        ...

    def is_taken(self, name: Name) -> bool:
        """Whether a relation, or the index of a constraint, has that full name."""
        ...

    def find_key(self, parts: tuple[str, ...]) -> tuple[ItemView, Unique] | None:
        """Return the table whose key has the index that `parts` name, and the key."""
        ...

    def cluster_exists(self, name: str) -> bool:
        """Whether there is a cluster `name`."""
        ...
