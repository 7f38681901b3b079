"""The questions that the rules of statements ask: who owns an object, where may one be created.

Each method raises PostgreSQL's error (42501) for the role of the session.
"""

from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from foreshore.catalog.item import (
    Grantable,
    Item,
    Object,
    Replica,
    Role,
    Schema,
    SystemSettings,
)
from foreshore.catalog.needs import permission_denied
from foreshore.catalog.rights import holds, owns_object
from foreshore.catalog.state import State
from foreshore.errors import DatabaseError, InsufficientPrivilege
from foreshore.item_view import Name
from foreshore.privileges import Privilege
from foreshore.sql.plan import ObjectKind
from foreshore.types import RelationDesc

if TYPE_CHECKING:
    from foreshore.adapter.definitions.catalog_reader import SessionCatalog
    from foreshore.adapter.statement.context import StatementContext
    from foreshore.ids import GlobalId


class Checker:
    """The rights of the current role of a session, which is no superuser."""

    def __init__(self, context: "StatementContext") -> None:
        self.context = context
        self.reader: SessionCatalog = context.planner.reader()
        self.role = context.role

    @property
    def state(self) -> State:
        """The catalog as the transaction sees it."""
        return self.reader.state

    # --- objects -------------------------------------------------------------------------------

    def found(self, kind: ObjectKind, name: Name, *, altered: bool = True) -> Object | None:
        """Return the object that a statement names; None if the statement itself reports it."""
        with suppress(DatabaseError):
            return self.reader.object_called(kind, name.parts, altered=altered)
        return None

    def relation(self, name: Name) -> Item | None:
        """Return the relation of any kind that a statement names."""
        with suppress(DatabaseError):
            found = self.reader.find(name.parts)
            return found if isinstance(found, Item) else None
        return None

    # --- ownership -----------------------------------------------------------------------------

    def own(self, each: Object | None, kind: str | None = None) -> None:
        """Require the rights of the owner of an object, called a `kind` in the error."""
        match each:
            case None:
                return
            case Role() | SystemSettings():
                raise must_own(each)
            case _:
                if not owns_object(self.state, self.role, each):
                    raise must_own(each, kind)

    def own_id(self, id: "GlobalId | None") -> None:
        """Require the rights of the owner of an item; a system table has none."""
        self.own(None if id is None else self.state.get(id))

    def own_or_its_schema(self, each: Object | None) -> None:
        """Require the rights of the owner of an object, or of the owner of its schema."""
        if isinstance(each, Item):
            schema = self.state.objects[each.schema]
            assert isinstance(schema, Schema), schema
            if owns_object(self.state, self.role, schema):
                return
        if isinstance(each, Replica):
            each = self.state.objects[each.cluster]
        self.own(each)

    # --- rights --------------------------------------------------------------------------------

    def need(self, each: Grantable, privilege: Privilege) -> None:
        """Require a right on an object."""
        if not holds(self.state, self.role, each, privilege):
            raise permission_denied(each)

    def use_types(self, ids: Iterable["GlobalId"]) -> None:
        """Require the right to define something with each of these that is a type."""
        for id in sorted(ids):
            item = self.state.get(id)
            if isinstance(item, Item) and item.is_type:
                self.need(item, "USAGE")

    def use_types_of(self, desc: RelationDesc) -> None:
        """Require the right to define something with the types of these columns."""
        for column in desc.columns:
            type = column.type.element or column.type
            item = None if type.defined is None else self.state.item_with(type.defined.oid)
            self.use_types(() if item is None else (item.id,))

    def create_in(self, name: Name) -> None:
        """Require the right to create an object of this name in its schema."""
        if name.temporary:
            self.create_temporary()
            return
        database = name.database or self.context.database
        schema = self.reader.schema(database, name.schema or "")
        if schema is not None:
            self.create_in_schema(schema)

    def schema_of(self, item: Item) -> Schema:
        """Return the schema of an item."""
        schema = self.state.objects[item.schema]
        assert isinstance(schema, Schema), schema
        return schema

    def create_in_schema(self, schema: Schema) -> None:
        """Require the right to create an object in a schema."""
        if not schema.temporary:
            self.need(schema, "CREATE")

    def create_temporary(self) -> None:
        """Require the right to create temporary objects in the session's database."""
        database = self.state.database(self.context.database)
        if database is not None and not holds(self.state, self.role, database, "TEMPORARY"):
            raise InsufficientPrivilege(
                f'permission denied to create temporary tables in database "{database.name}"'
            )

    def create_on_database(self, name: str) -> None:
        """Require the right to create a schema in a database."""
        database = self.state.database(name)
        if database is not None:
            self.need(database, "CREATE")

    def create_on_cluster(self, name: str | None) -> None:
        """Require the right to maintain an object on a cluster, None: on that of the session."""
        cluster = self.state.cluster(name or self.context.cluster)
        if cluster is not None:
            self.need(cluster, "CREATE")

    def use_cluster(self) -> None:
        """Require the right to query the session's cluster."""
        cluster = self.state.cluster(self.context.cluster)
        if cluster is not None:
            self.need(cluster, "USAGE")


def must_own(each: Object, kind: str | None = None) -> InsufficientPrivilege:
    """Return the error for a role without the rights of an object's owner."""
    kind = kind or each.kind
    if isinstance(each, Item) and each.is_type:
        kind = "type"
    return InsufficientPrivilege(f"must be owner of {kind} {each.name}")
