"""Names as a session sees them: the `CatalogReader` that binding asks.

A reader looks at one state of the catalog (a transaction's own, if it has changed it), from one
database, along one search path. What is in the system's schemas is found without naming them.

Binding puts a view's definition in where the view is named. A reader that is told of `arranged`
relations gives those without: a query of nothing but such a view can be answered from its index.
`unexpanded_views` lists them, so that a caller without such an index can plan again.

Nothing that is maintained knows what a transaction has written. A reader that is told which
relations it sees otherwise than others (`own`) gives the definitions of what comes from them, down
to tables.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from foreshore.catalog.builtin.registry import all_builtins
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import Item, KnownColumn, Schema
from foreshore.catalog.state import State, is_system
from foreshore.constraint import Unique
from foreshore.errors import (
    Conflict,
    FeatureNotSupported,
    InvalidCatalogName,
    InvalidSchemaName,
    InvalidTableDefinition,
    UndefinedTable,
)
from foreshore.expr.ir import Get, Literal, Map, Project, Relation, sources_of
from foreshore.expr.share import put_in, share
from foreshore.ids import GlobalId, is_temporary
from foreshore.settings import split_names
from foreshore.sql.catalog_reader import ItemView
from foreshore.sql.parse.keywords import quote_identifier
from foreshore.sql.parse.lexer import cut
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateView, Name
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.column_names import definition_without_qualifiers
from foreshore.sql.rewrite.full_names import FullName, renamed
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.types import ColumnType, RelationDesc, written_type

IMPLICIT_SCHEMAS = ("mz_catalog", "pg_catalog")
TEMPORARY = "pg_temp"  # what each session may call its own temporary schema

BUILTINS: dict[GlobalId, Builtin] = {builtin.id: builtin for builtin in all_builtins()}
_BUILTIN_NAMES = {(builtin.schema, builtin.name): builtin for builtin in BUILTINS.values()}
_NO_COLUMNS = RelationDesc((), ())


@dataclass(eq=False)
class SessionCatalog:
    """One state of the catalog from where a session stands."""

    state: State
    planned: Mapping[GlobalId, Planned]
    database: str
    search_path: tuple[str, ...]
    arranged: frozenset[GlobalId] = frozenset()
    own: Callable[[GlobalId], bool] | None = None
    unexpanded_views: set[GlobalId] = field(default_factory=set)
    used: set[GlobalId] = field(default_factory=set)  # the items that were asked for
    temporary: str = ""  # the session's own temporary schema, which need not be there yet
    _own_definitions: dict[GlobalId, Relation | None] = field(default_factory=dict)

    def as_defined(self) -> "SessionCatalog":
        """Return the same catalog with all views as they are defined."""
        return replace(self, arranged=frozenset(), unexpanded_views=set(), _own_definitions={})

    def resolve_item(self, parts: tuple[str, ...]) -> ItemView:
        """Return what `[[database.]schema.]item` names."""
        found = self.find(parts)
        if found is None:
            raise UndefinedTable(f'relation "{".".join(parts)}" does not exist')
        return self._view(found)

    def item(self, id: GlobalId) -> ItemView:
        """Return the item bound to `id`."""
        if id in BUILTINS:
            return self._view(BUILTINS[id])
        if self.state.get(id) is None:
            raise UndefinedTable(f"relation {id} was dropped")
        return self._view(self.state.item(id))

    def find(self, parts: tuple[str, ...]) -> Item | Builtin | None:
        """Return the object that `parts` name, None if there is none.

        Raises FeatureNotSupported if it is another session's.
        """
        found = self._find(parts)
        if isinstance(found, Item):
            self.refuse_others(found)
        return found

    def refuse_others(self, item: Item) -> None:
        """Raise if `item` is another session's."""
        if item.temporary and item.schema != self.temporary:
            raise FeatureNotSupported("cannot access temporary tables of other sessions")

    def _find(self, parts: tuple[str, ...]) -> Item | Builtin | None:
        match parts:
            case (name,):
                for schema in self.search_path:
                    found = self._in_schema(self.database, schema, name)
                    if found is not None:
                        return found
                return None
            case (schema, name):
                return self._in_schema(self.database, schema, name)
            case (database, schema, name):
                if self.state.database(database) is None:
                    raise InvalidCatalogName(f'database "{database}" does not exist')
                return self._in_schema(database, schema, name)
            case _:
                raise UndefinedTable(
                    f"improper qualified name (too many dotted names): {'.'.join(parts)}",
                    sqlstate="42601",
                )

    def _in_schema(self, database: str, schema: str, name: str) -> Item | Builtin | None:
        builtin = _BUILTIN_NAMES.get((schema, name))
        if builtin is not None:
            return builtin
        found = self.schema(database, schema)
        return None if found is None else self.state.item_in(found.id, name)

    def schema(self, database: str, name: str) -> Schema | None:
        """Return the schema `name` as seen from `database`."""
        if name == TEMPORARY or is_temporary(name):
            found = self.state.get(self.temporary if name == TEMPORARY else name)
            return found if isinstance(found, Schema) else None
        owner = self.state.database(database)
        return self.state.schema(owner.id if owner else "", name)

    def _view(self, found: Item | Builtin) -> ItemView:
        if isinstance(found, Builtin):
            name = Name(None, found.schema, found.name)
            return ItemView(found.id, "builtin", name, found.desc)
        self.used.add(found.id)
        database, schema, _ = self.state.full_name(found)
        name = Name(database or None, schema, found.name)
        planned = self.planned.get(found.id)
        if planned is None:  # there is nothing of it but in the state that a transaction began with
            raise Conflict(
                f'could not serialize access: {found.kind} "{found.name}" was altered or dropped '
                "by another session"
            )
        if is_system(found.id):  # nobody else changes it
            return ItemView(found.id, "builtin", name, planned.desc, oid=found.oid)
        match found.type:
            case "index":
                return ItemView(found.id, "index", name, _NO_COLUMNS, oid=found.oid)
            case "sequence":
                return ItemView(
                    found.id,
                    "sequence",
                    name,
                    planned.desc,
                    oid=found.oid,
                    sequence=planned.sequence,
                )
            case "table":
                return ItemView(
                    found.id,
                    "table",
                    name,
                    planned.desc,
                    None,
                    planned.defaults,
                    planned.constraints,
                    with_present_names(self.state, found),
                    planned.generated,
                    found.oid,
                )
            case "subscription":
                return ItemView(
                    found.id, "subscription", name, planned.desc, planned.definition, oid=found.oid
                )
            case "view":
                definition = None
                if found.id in self.arranged:
                    self.unexpanded_views.add(found.id)
                else:
                    definition = self._own_definition(found.id) or planned.definition
                return ItemView(
                    found.id,
                    "view",
                    name,
                    planned.desc,
                    definition,
                    oid=found.oid,
                    in_zone=partial(self._definition_in, found)
                    if planned.depends_on_zone
                    else None,
                )
            case "materialized view":
                definition = self._own_definition(found.id)
                return ItemView(
                    found.id, "materialized view", name, planned.desc, definition, oid=found.oid
                )

    def _definition_in(self, view: Item, zone: str) -> Relation:
        """Return what a view is made of for readers in the time zone `zone`."""
        (syntax,) = parse(view.create_sql)
        reader = DefinitionCatalog(self.state, self.planned, view, own=self.own)
        in_zone = SessionZone(zone, of_constants="UTC")
        plan = plan_statement(syntax, reader, zone=in_zone, defined=True)
        assert isinstance(plan, CreateView), view
        return plan.query.relation

    def _own_definition(self, id: GlobalId) -> Relation | None:
        """Return what `id` is made of, if the transaction sees it otherwise than others do.

        What is below and seen otherwise is put in, so the plan grows with the number of relations
        below, however often each is used.
        """
        planned = self.planned.get(id)
        if self.own is None or planned is None or planned.definition is None:
            return None
        if id not in self._own_definitions:
            definition = planned.definition
            sources = sources_of(definition)
            below = {
                each: found for each in sources if (found := self._own_definition(each)) is not None
            }
            if below:
                self._own_definitions[id] = share(put_in(definition, below))
            else:
                is_own = self.own(id) or any(map(self.own, sources))
                self._own_definitions[id] = definition if is_own else None
        return self._own_definitions[id]

    def resolve_new(self, parts: tuple[str, ...], *, temporary: bool = False) -> Name:
        """Return the full name under which a new item would be created, `temporary` or not.

        The session's own temporary schema need not be there.
        """
        name = self._resolve_new(parts, temporary)
        if is_temporary(name.schema or ""):
            if name.schema != self.temporary:
                raise InvalidTableDefinition(
                    "cannot create relations in temporary schemas of other sessions"
                )
        elif temporary:
            raise InvalidTableDefinition("cannot create temporary relation in non-temporary schema")
        return name

    def _resolve_new(self, parts: tuple[str, ...], temporary: bool) -> Name:
        match parts:
            case (name,) if temporary:
                return self._own(name)
            case (name,):
                for place, schema in enumerate(self.search_path):
                    if schema == self.temporary and place > 0:
                        return self._own(name)
                    if schema == self.temporary or schema in IMPLICIT_SCHEMAS:
                        continue
                    if self.schema(self.database, schema):
                        return Name(self.database, schema, name)
                raise InvalidSchemaName("no schema has been selected to create in")
            case (schema, name):
                database = self.database
            case (database, schema, name):
                if self.state.database(database) is None:
                    raise InvalidCatalogName(f'database "{database}" does not exist')
            case _:
                raise UndefinedTable(
                    f"improper qualified name (too many dotted names): {'.'.join(parts)}",
                    sqlstate="42601",
                )
        if schema in (TEMPORARY, self.temporary):
            return self._own(name)
        if self.schema(database, schema) is None:
            raise InvalidSchemaName(f'schema "{schema}" does not exist')
        return Name(database, schema, name)

    def _own(self, name: str) -> Name:
        """Return the full name of a temporary item of this session."""
        schema = self.state.get(self.temporary)
        database = self.database
        if isinstance(schema, Schema):
            database = self.state.objects[schema.database or ""].name
        return Name(database, self.temporary, name)

    def is_taken(self, name: Name) -> bool:
        """Whether a relation, or the index of a constraint, has that full name."""
        found = self.schema(name.database or self.database, name.schema or "")
        return found is not None and self.state.is_taken(found.id, name.item)

    def find_key(self, parts: tuple[str, ...]) -> tuple[ItemView, Unique] | None:
        """Return the table whose key has the index that `parts` name, and the key."""
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
                self.refuse_others(table)
                view = self.item(table.id)
                for key in view.constraints:
                    if isinstance(key, Unique) and key.name == name:
                        return view, key
        return None

    def cluster_exists(self, name: str) -> bool:
        """Whether there is a cluster `name`."""
        return self.state.cluster(name) is not None


class DefinitionCatalog(SessionCatalog):
    """The catalog as an item's own statement sees it: its names mean what they meant at first.

    Its own one as well; if it is `shown`, that is what it is called now.
    """

    def __init__(
        self,
        state: State,
        planned: Mapping[GlobalId, Planned],
        item: Item,
        *,
        shown: bool = False,
        own: Callable[[GlobalId], bool] | None = None,
    ) -> None:
        database, schema, name = state.full_name(item)
        self._shown = Name(database or None, schema, name) if shown else None
        path = (*IMPLICIT_SCHEMAS, schema)
        super().__init__(state, planned, database, path, own=own, temporary=schema)
        # In directories of before names may be longer than what is read of them now.
        self._bound = {tuple(map(cut, then)): id for then, id in item.bound}
        self._known = item.known or {}
        self._known_keys = item.known_keys or {}

    def find(self, parts: tuple[str, ...]) -> Item | Builtin | None:
        """Return the object that `parts` named when the statement was made."""
        id = self._bound.get(parts) if len(parts) == 3 else None
        return super().find(parts) if id is None else self.state.item(id)

    def _view(self, found: Item | Builtin) -> ItemView:
        view = super()._view(found)
        known = self._known.get(found.id)
        return view if known is None else _as_known(view, known, self._known_keys.get(found.id))

    def resolve_new(self, parts: tuple[str, ...], *, temporary: bool = False) -> Name:
        """Return the name as it was then, or as it is shown."""
        if self._shown is not None:
            return self._shown
        padded = (*(None,) * (3 - len(parts)), *parts)
        return Name(padded[0], padded[1], parts[-1])

    def cluster_exists(self, name: str) -> bool:
        """Let the item's own cluster count, whatever it was called."""
        return True


def _as_known(
    view: ItemView, known: Sequence[KnownColumn], known_keys: Sequence[tuple[str, ...]] | None
) -> ItemView:
    """Return a table as a definition knows it; by now it has other columns, or promises more."""
    nullable = {each.now for each in known if each.nullable}
    present = {each.name: each.now for each in known}
    keys = view.desc.keys
    if known_keys is not None:
        keys = _still_keys(view.desc, [[present[name] for name in key] for key in known_keys])
    table = RelationDesc(
        view.desc.names,
        tuple(
            ColumnType(column.type, nullable=column.nullable or name in nullable)
            for name, column in zip(view.desc.names, view.desc.columns, strict=True)
        ),
        keys,
    )
    gone = tuple(Literal(None, each.type) for each in known if each.type is not None)
    places: list[int] = []
    shown: list[str] = []
    for each in known:
        name = quote_identifier(each.name)
        if each.now is None:
            assert each.type is not None, each
            places.append(len(table.names) + sum(p >= len(table.names) for p in places))
            shown.append(f"NULL::{written_type(each.type)} AS {name}")
        else:
            places.append(table.names.index(each.now))
            now = quote_identifier(each.now)
            shown.append(name if now == name else f"{now} AS {name}")
    columns = [*table.columns, *(ColumnType(literal.type) for literal in gone)]
    shown_keys = tuple(
        tuple(places.index(i) for i in key) for key in table.keys if set(key) <= set(places)
    )
    relation: Relation = Get(view.id, table.columns, table.keys)
    if gone:
        relation = Map(relation, gone)
    return replace(
        view,
        desc=RelationDesc(
            tuple(each.name for each in known), tuple(columns[i] for i in places), shown_keys
        ),
        definition=Project(relation, tuple(places)),
        select="" if shown == [*map(quote_identifier, table.names)] else ", ".join(shown),
    )


def _still_keys(
    table: RelationDesc, keys: Sequence[Sequence[str | None]]
) -> tuple[tuple[int, ...], ...]:
    """Return those of `keys`, by the names of now, in whose columns rows still differ."""
    places = [
        tuple(table.names.index(name) for name in key if name is not None)
        for key in keys
        if None not in key
    ]
    return tuple(key for key in places if any(set(each) <= set(key) for each in table.keys))


def with_present_names(state: State, item: Item) -> str:
    """Return the statement of a table, an index or a sequence with names as they are now."""
    names = present_names(state, item)
    if all(then == now for then, now in names.items()):
        return item.create_sql
    return definition_without_qualifiers(renamed(item.create_sql, names))


def present_names(state: State, item: Item) -> dict[FullName, FullName]:
    """Return what is called how by now of that which the item's statement mentions."""
    return {then: state.full_name(state.item(id)) for then, id in item.bound}


def effective_path(
    state: State, database: str, user: str, setting: str, temporary: str
) -> tuple[str, ...]:
    """Return the schemas searched, in order.

    First the session's own temporary one and the system's, unless the setting places them.
    """
    words = {"$user": user, TEMPORARY: temporary}
    named = tuple(words.get(each, each) for each in split_names(setting))
    implicit = tuple(each for each in (temporary, *IMPLICIT_SCHEMAS) if each not in named)
    owner = state.database(database)

    def is_there(schema: str) -> bool:
        if schema == temporary:  # where it is named it is where things are made
            return schema in named or schema in state.objects
        return state.schema(owner.id if owner is not None else "", schema) is not None

    return tuple(each for each in (*implicit, *named) if is_there(each))
