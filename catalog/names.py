"""Names as a session sees them: which object a name means, and where a new one is created.

A name is looked up in one state of the catalog, from one database, along one search path. Objects
in the system's schemas are found by unqualified names too.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from foreshore.catalog.builtin.registry import builtins_by_name
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.item import (
    ColumnOf,
    Connection,
    ForeignKeyOf,
    Item,
    Object,
    Role,
    Schema,
    Secret,
)
from foreshore.catalog.rights import holds
from foreshore.catalog.state import State, is_system
from foreshore.errors import (
    FeatureNotSupported,
    InsufficientPrivilege,
    InvalidCatalogName,
    InvalidSchemaName,
    InvalidTableDefinition,
    UndefinedObject,
    UndefinedTable,
    WrongObjectType,
)
from foreshore.ids import is_temporary
from foreshore.item_view import Name
from foreshore.near_names import nearest
from foreshore.settings import split_names
from foreshore.sources.outputs import is_auxiliary
from foreshore.sources.spec import is_pushed

IMPLICIT_SCHEMAS = ("mz_catalog", "pg_catalog")
TEMPORARY = "pg_temp"  # the name by which each session may call its own temporary schema

# Relations that ALTER TABLE renames, moves and gives to others, as in PostgreSQL.
_AS_TABLES = frozenset(("view", "materialized view", "sequence", "index"))


@dataclass(eq=False)
class Names:
    """The names of one state of the catalog, for one session."""

    state: State
    database: str
    search_path: tuple[str, ...]
    temporary: str  # the session's temporary schema, which may not exist yet
    role: Role | None  # whose right to use schemas counts; None: it does not matter
    schemas_named: set[str] = field(default_factory=set, init=False)  # their ids

    def find(self, parts: tuple[str, ...]) -> Item | Builtin | None:
        """Return the relation `[[database.]schema.]name`, or None.

        Raises FeatureNotSupported if it is a temporary one of another session.
        """
        database, schema, name = self._qualified(parts)
        schemas = self._searched(database, schema)
        found = next(
            (found for each in schemas if (found := self._find_in(database, each, name))), None
        )
        if isinstance(found, Item):
            self.check_own(found)
        return found

    def near(self, parts: tuple[str, ...]) -> tuple[str, str] | None:
        """Return schema and name of the only relation whose name is nearest to that in `parts`."""
        database, schema, name = self._qualified(parts)
        found = [each for each in self._searched(database, schema) if self.schema(database, each)]
        places = {self.schema(database, each).id: each for each in found}  # type: ignore[union-attr]
        known: dict[str, str] = {}
        for space, parent, other in self.state.names:
            if space == "item" and parent in places:
                known.setdefault(other, places[parent])
        meant = nearest(name, known)
        return None if meant is None else (known[meant], meant)

    def _find_in(self, database: str, schema: str, name: str) -> Item | Builtin | None:
        builtin = builtins_by_name().get((schema, name))
        if builtin is not None:
            return builtin
        found = self.schema(database, schema)
        item = None if found is None else self.state.item_in(found.id, name)
        return None if item is None or item.is_type else item

    def find_type(self, parts: tuple[str, ...]) -> Item | None:
        """Return the type `[[database.]schema.]name` of the catalog, or None."""
        database, schema, name = self._qualified(parts)
        for each in self._searched(database, schema):
            found = self.schema(database, each)
            item = None if found is None else self.state.item_in(found.id, name)
            if item is not None and item.is_type:
                return item
        return None

    def find_functions(self, parts: tuple[str, ...]) -> list[Item]:
        """Return the functions `[[database.]schema.]name`, those of nearer schemas first.

        A nearer one hides another of the same types.
        """
        database, schema, name = self._qualified(parts)
        found: dict[tuple[str, ...], Item] = {}
        for each in self._searched(database, schema):
            owner = self.schema(database, each)
            for item in () if owner is None else self.state.functions_in(owner.id, name):
                found.setdefault(item.arguments or (), item)
        return list(found.values())

    def check_own(self, item: Item) -> None:
        """Raise FeatureNotSupported if `item` is a temporary one of another session."""
        if item.temporary and item.schema != self.temporary:
            raise FeatureNotSupported("cannot access temporary tables of other sessions")

    def _qualified(self, parts: tuple[str, ...]) -> tuple[str, str | None, str]:
        """Return the database, the schema, None if it is not given, and the name."""
        match parts:
            case (name,):
                return self.database, None, name
            case (schema, name):
                return self.database, schema, name
            case (database, schema, name):
                if self.state.database(database) is None:
                    raise InvalidCatalogName(f'database "{database}" does not exist')
                return database, schema, name
            case _:
                raise UndefinedTable(
                    f"improper qualified name (too many dotted names): {'.'.join(parts)}",
                    sqlstate="42601",
                )

    def _searched(self, database: str, schema: str | None) -> tuple[str, ...]:
        """Return the schemas to search for a name, of which one with a schema needs its USAGE."""
        if schema is None:
            return self.search_path
        found = self.schema(database, schema)
        if found is not None and found.database is not None and not found.temporary:
            self.schemas_named.add(found.id)
            if self.role is not None and not holds(self.state, self.role, found, "USAGE"):
                raise InsufficientPrivilege(f"permission denied for schema {schema}")
        return (schema,)

    def schema(self, database: str, name: str) -> Schema | None:
        """Return the schema `name` as seen from `database`."""
        if name == TEMPORARY or is_temporary(name):
            found = self.state.get(self.temporary if name == TEMPORARY else name)
            return found if isinstance(found, Schema) else None
        owner = self.state.database(database)
        return self.state.schema(owner.id if owner else "", name)

    def table_with_key(self, parts: tuple[str, ...]) -> Item | None:
        """Return the table with a key whose index is called `parts`."""
        *qualifier, name = parts
        database = qualifier[0] if len(qualifier) > 1 else self.database
        for each in (qualifier[-1],) if qualifier else self.search_path:
            schema = self.schema(database, each)
            if schema is None:
                continue
            if self.state.item_in(schema.id, name) is not None:
                return None
            table = self.state.with_key(schema.id, name)
            if table is not None:
                self.check_own(table)
                return table
        return None

    # --- new relations -------------------------------------------------------------------------

    def resolve_new(self, parts: tuple[str, ...], *, temporary: bool = False) -> Name:
        """Return the full name under which a new relation is created, `temporary` or not.

        The session's own temporary schema may not exist yet. Raises InvalidTableDefinition if the
        schema is of the other sort.
        """
        database, schema, name = self._qualified(parts)
        if schema is None:
            schema = TEMPORARY if temporary else self._schema_for_new()
        if schema in (TEMPORARY, self.temporary):
            own = self.state.get(self.temporary)
            if isinstance(own, Schema):
                database = self.state.objects[own.database or ""].name
            else:
                database = self.database
            return Name(database, self.temporary, name)
        if self.schema(database, schema) is None:
            raise InvalidSchemaName(f'schema "{schema}" does not exist')
        if is_temporary(schema):
            raise InvalidTableDefinition(
                "cannot create relations in temporary schemas of other sessions"
            )
        if temporary:
            raise InvalidTableDefinition("cannot create temporary relation in non-temporary schema")
        return Name(database, schema, name)

    def _schema_for_new(self) -> str:
        """Return the first schema of the path that may have new relations.

        The temporary one counts only if the setting of the path names it, after another.
        """
        for place, schema in enumerate(self.search_path):
            if schema == self.temporary:
                if place > 0:
                    return schema
            elif schema not in IMPLICIT_SCHEMAS and self.schema(self.database, schema):
                return schema
        raise InvalidSchemaName("no schema has been selected to create in")

    def is_taken(self, name: Name) -> bool:
        """Return whether a relation, or the index of a constraint, has that full name."""
        found = self.schema(name.database or self.database, name.schema or "")
        return found is not None and self.state.is_taken(found.id, name.item)

    # --- objects in messages -------------------------------------------------------------------

    def describe(self, each: Object | ColumnOf | ForeignKeyOf) -> str:
        """Return an object's kind and name, qualified if the search path does not find it."""
        match each:
            case ColumnOf(name=name, table=table):
                return f"column {name} of {self.describe(table)}"
            case ForeignKeyOf(name=name, table=table):
                return f"constraint {name} on {self.describe(table)}"
            case Item() if each.is_function:
                return f"function {self._described_function(each)}"
            case Item(policy=policy) if policy:
                return f"policy {each.name} on {self.describe(self.state.item(policy.table))}"
            case Item() if not self.is_visible(each):
                _, schema, item = self.state.full_name(each)
                return f"{'type' if each.is_type else each.kind} {schema}.{item}"
            case Item() if each.is_type:
                return f"type {each.name}"
            case _:
                return f"{each.kind} {each.name}"

    def _described_function(self, item: Item) -> str:
        visible = any(each.id == item.id for each in self.find_functions((item.name,)))
        name = item.name if visible else ".".join(self.state.full_name(item)[1:])
        return f"{name}({','.join(self.argument_types(item))})"

    def argument_types(self, item: Item) -> list[str]:
        """Return the types of a function's parameters as messages show them."""
        return list(item.arguments or ())

    def is_visible(self, item: Item) -> bool:
        """Return whether the unqualified name of a relation finds it."""
        found = (self.find_type if item.is_type else self.find)((item.name,))
        return isinstance(found, Item) and found.id == item.id

    # --- objects of all kinds ------------------------------------------------------------------

    def object_called(self, kind: str, parts: tuple[str, ...], *, altered: bool = False) -> Object:
        """Return the object of `kind` called `parts`.

        Raises PostgreSQL's errors, which differ for statements that alter the object.
        """
        *qualifier, name = parts
        match kind:
            case "database":
                if found := self.state.database(name):
                    return found
                raise InvalidCatalogName(f'database "{name}" does not exist')
            case "schema":
                if schema := self.schema(qualifier[0] if qualifier else self.database, name):
                    return schema
                raise InvalidSchemaName(f'schema "{name}" does not exist')
            case "cluster":
                if cluster := self.state.cluster(name):
                    return cluster
                raise UndefinedObject(f'unknown cluster "{name}"')
            case "cluster replica":
                cluster = self.state.cluster(qualifier[0])
                if cluster and (replica := self.state.replica(cluster.id, name)):
                    return replica
                raise UndefinedObject(f'unknown cluster replica "{qualifier[0]}.{name}"')
            case "network policy":
                if policy := self.state.network_policy(name):
                    return policy
                raise UndefinedObject(f'network policy "{name}" does not exist')
            case "secret" | "connection":
                find = self.state.secret_in if kind == "secret" else self.state.connection_in
                if (inside := self._in_schemas(parts, find)) is not None:
                    return inside
                raise UndefinedObject(f'{kind} "{name}" does not exist')
            case _:
                return self._relation_called(kind, parts, altered)

    def _in_schemas(
        self, parts: tuple[str, ...], find: Callable[[str, str], Secret | Connection | None]
    ) -> Secret | Connection | None:
        """Return what `find` finds by a schema's id and a name, on the search path."""
        database, schema, name = self._qualified(parts)
        for each in self._searched(database, schema):
            owner = self.schema(database, each)
            found = None if owner is None else find(owner.id, name)
            if found is not None:
                return found
        return None

    def _relation_called(self, kind: str, parts: tuple[str, ...], altered: bool) -> Item:
        if kind in ("type", "domain"):
            if (type := self.find_type(parts)) is not None:
                if kind == "domain" and type.type != kind:
                    raise WrongObjectType(f'"{type.name}" is not a domain')
                return type
            raise UndefinedObject(f'type "{".".join(parts)}" does not exist')
        found = self.find(parts)
        if found is None:
            if altered and kind != "subscription":
                raise UndefinedTable(f'relation "{parts[-1]}" does not exist')
            code = "42704" if kind in ("index", "subscription") else "42P01"
            raise UndefinedObject(f'{kind} "{parts[-1]}" does not exist', sqlstate=code)
        if isinstance(found, Builtin) or is_system(found.id):
            raise InsufficientPrivilege(f'permission denied: "{found.name}" is a system catalog')
        is_table = found.type in _AS_TABLES if altered else _is_table_of_source(found)
        if found.kind != kind and not (kind == "table" and is_table):
            raise WrongObjectType(
                f'"{found.name}" is not {with_article(kind)}',
                hint=None
                if altered
                else f"Use DROP {found.kind.upper()} to remove {with_article(found.kind)}.",
            )
        return found


def _is_table_of_source(item: Item) -> bool:
    """Return whether CREATE TABLE may make such an item, so that DROP TABLE drops it."""
    if not item.feed:
        return False
    if item.feed.spec is not None:
        return is_pushed(item.feed.spec)
    return not is_auxiliary(item.feed.reference)


def with_article(kind: str) -> str:
    """Return a kind of object with its indefinite article."""
    return f"{'an' if kind == 'index' else 'a'} {kind}"


def effective_path(
    state: State, database: str, role: Role, setting: str, temporary: str
) -> tuple[str, ...]:
    """Return the schemas that a session searches, in order: those that its role may use.

    The session's temporary one and the system's come first unless `setting`, the value of
    search_path, names them. Missing schemas are left out, but not a temporary one that is named,
    since new relations may be created there.
    """
    words = {"$user": role.name, TEMPORARY: temporary}
    named = tuple(words.get(each, each) for each in split_names(setting))
    implicit = tuple(each for each in (temporary, *IMPLICIT_SCHEMAS) if each not in named)
    owner = state.database(database)

    def exists(schema: str) -> bool:
        if schema == temporary:
            return schema in named or schema in state.objects
        found = state.schema(owner.id if owner is not None else "", schema)
        if found is None:
            return False
        return found.database is None or holds(state, role, found, "USAGE")

    return tuple(each for each in (*implicit, *named) if exists(each))
