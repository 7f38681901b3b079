"""The interface through which binding queries the catalog; `sql` does not import the catalog.

SHOW statements, except SHOW CREATE and SHOW variable, are queries over the builtin relations of
`mz_catalog` and `pg_catalog`.
"""

from collections.abc import Sequence
from typing import Protocol

from foreshore.connection_spec import ConnectionKind
from foreshore.constraint import Unique
from foreshore.domain import Domain
from foreshore.expr.ir import Relation
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView, Name
from foreshore.sql_function import SqlFunction
from foreshore.types import Datum, SqlType


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

    @property
    def keeps_digits(self) -> bool:
        """Return whether a numeric without a scale keeps the digits of each value."""
        ...

    def resolve_item(self, parts: tuple[str, ...]) -> ItemView:
        """Return the item that `[[database.]schema.]item` names.

        Raises UndefinedTable `relation "x" does not exist`, InvalidSchemaName, or
        FeatureNotSupported for cross-database references, worded as in PostgreSQL.
        """
        ...

    def keys_of_indexes(self, id: GlobalId) -> Sequence[str]:
        """Return the keys of each index of a relation, in parentheses as they are written."""
        ...

    def nearest_relation(self, parts: tuple[str, ...]) -> str | None:
        """Return the name, with its schema, of the only relation that `parts` are near to."""
        ...

    def type_named(self, parts: tuple[str, ...]) -> tuple[GlobalId, SqlType] | None:
        """Return the type `[[database.]schema.]name` of the catalog, or None."""
        ...

    def connection_named(self, parts: tuple[str, ...]) -> tuple[str, ConnectionKind]:
        """Return the id and the kind of a connection, or raise UndefinedObject."""
        ...

    def secret_named(self, parts: tuple[str, ...]) -> str:
        """Return the id of a secret, or raise UndefinedObject."""
        ...

    def domain_named(self, parts: tuple[str, ...]) -> tuple[GlobalId, Domain] | None:
        """Return the domain `[[database.]schema.]name`, or None."""
        ...

    def functions_named(self, parts: tuple[str, ...]) -> Sequence[tuple[GlobalId, SqlFunction]]:
        """Return the functions that `[[database.]schema.]name` may mean, the nearest first."""
        ...

    def within(self, id: GlobalId) -> "CatalogReader":
        """Return the catalog as the statement of item `id` sees it."""
        ...

    def statement_of(self, id: GlobalId) -> str:
        """Return the statement that defines item `id`, with names as it was created."""
        ...

    def item(self, id: GlobalId) -> ItemView:
        """Return the item bound to `id`."""
        ...

    def definition_of(self, id: GlobalId, *, with_errors: bool = False) -> Relation:
        """Return the relation that a materialized view holds the rows of at each time.

        Raises FeatureNotSupported if it has a refresh schedule: its rows are those of a refresh.
        With `with_errors` it is the relation as it was defined, whatever the view leaves out.
        """
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

    def session_value(self, name: str) -> Datum:
        """Return the value of an `Environment` scalar for the session; the plan has it then."""
        ...

    def cluster_exists(self, name: str) -> bool:
        """Return whether cluster `name` exists."""
        ...
