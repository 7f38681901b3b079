"""The `CatalogReader` of a session: the names it sees, as the items that binding works with.

It reads one state of the catalog: the transaction's own, if the transaction has changed it.

Binding replaces a view by its definition. The views in `arranged` are left as they are, so that a
query that reads only such a view can be answered from its index; `unexpanded_views` collects them,
so that a caller without such an index can plan again.

Maintained collections lack the uncommitted writes of a transaction. So everything made of relations
that the transaction sees differently from others (`own`) is replaced by its definition, down to
tables.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.catalog import Planned
from foreshore.catalog.item import Item
from foreshore.catalog.known_columns import as_known
from foreshore.catalog.names import IMPLICIT_SCHEMAS, Names
from foreshore.catalog.state import State, is_system
from foreshore.constraint import Unique
from foreshore.errors import Conflict, UndefinedTable
from foreshore.expr.ir import Relation, sources_of
from foreshore.expr.share import put_in, share
from foreshore.ids import GlobalId
from foreshore.sql.catalog_reader import ItemView
from foreshore.sql.parse.lexer import cut
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateView, Name
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.column_names import columns_as_known, definition_without_qualifiers
from foreshore.sql.rewrite.full_names import renamed
from foreshore.sql.rewrite.session_zone import SessionZone
from foreshore.types import RelationDesc

_NO_COLUMNS = RelationDesc((), ())


@dataclass(eq=False)
class SessionCatalog(Names):
    """One state of the catalog as a session sees it."""

    planned: Mapping[GlobalId, Planned]
    arranged: frozenset[GlobalId] = frozenset()
    own: Callable[[GlobalId], bool] | None = None
    unexpanded_views: set[GlobalId] = field(default_factory=set)
    used: set[GlobalId] = field(default_factory=set)  # the items that were looked up
    _own_definitions: dict[GlobalId, Relation | None] = field(default_factory=dict)

    def as_defined(self) -> "SessionCatalog":
        """Return the same catalog, in which all views are replaced by their definitions."""
        return replace(self, arranged=frozenset(), unexpanded_views=set(), _own_definitions={})

    def resolve_item(self, parts: tuple[str, ...]) -> ItemView:
        """Return the item `[[database.]schema.]name`."""
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

    def _view(self, found: Item | Builtin) -> ItemView:
        if isinstance(found, Builtin):
            name = Name(None, found.schema, found.name)
            return ItemView(found.id, "builtin", name, found.desc)
        self.used.add(found.id)
        database, schema, _ = self.state.full_name(found)
        name = Name(database or None, schema, found.name)
        planned = self.planned.get(found.id)
        if planned is None:  # it exists only in the state that the transaction began with
            raise Conflict(
                f'could not serialize access: {found.kind} "{found.name}" was altered or dropped '
                "by another session"
            )
        if is_system(found.id):
            return ItemView(found.id, "builtin", name, planned.desc, oid=found.oid)
        view = ItemView(found.id, found.type, name, planned.desc, oid=found.oid)
        match found.type:
            case "index":
                return replace(view, desc=_NO_COLUMNS)
            case "sequence":
                return replace(view, sequence=planned.sequence)
            case "table":
                return replace(
                    view,
                    defaults=planned.defaults,
                    constraints=planned.constraints,
                    create_sql=with_present_names(self.state, found),
                    generated=planned.generated,
                )
            case "subscription":
                return replace(view, definition=planned.definition)
            case "materialized view":
                return replace(view, definition=self._own_definition(found.id))
            case "view":
                in_zone = partial(self._definition_in, found) if planned.depends_on_zone else None
                if found.id in self.arranged:
                    self.unexpanded_views.add(found.id)
                    return replace(view, in_zone=in_zone)
                definition = self._own_definition(found.id) or planned.definition
                return replace(view, definition=definition, in_zone=in_zone)

    def _definition_in(self, view: Item, zone: str) -> Relation:
        """Return the relation of a view for readers in the time zone `zone`."""
        (syntax,) = parse(view.create_sql)
        reader = DefinitionCatalog(self.state, self.planned, view, own=self.own)
        in_zone = SessionZone(zone, of_constants="UTC")
        plan = plan_statement(syntax, reader, zone=in_zone, defined=True)
        assert isinstance(plan, CreateView), view
        return plan.query.relation

    def _own_definition(self, id: GlobalId) -> Relation | None:
        """Return the definition of `id` if the transaction sees it differently from others.

        The definitions below it are shared, so the plan grows with the number of relations below,
        however often each is used.
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
        """Return the full name under which a new item would be created, `temporary` or not."""
        return Name(*self.new_name(parts, temporary=temporary))

    def is_taken(self, name: Name) -> bool:
        """Return whether a relation, or the index of a constraint, has that full name."""
        found = self.schema(name.database or self.database, name.schema or "")
        return found is not None and self.state.is_taken(found.id, name.item)

    def find_key(self, parts: tuple[str, ...]) -> tuple[ItemView, Unique] | None:
        """Return the table with a key whose index is called `parts`, and the key."""
        table = self.table_with_key(parts)
        if table is None:
            return None
        view = self.item(table.id)
        keys = (each for each in view.constraints if isinstance(each, Unique))
        return view, next(key for key in keys if key.name == parts[-1])

    def cluster_exists(self, name: str) -> bool:
        """Return whether cluster `name` exists."""
        return self.state.cluster(name) is not None


class DefinitionCatalog(SessionCatalog):
    """The catalog as an item's own statement sees it: names keep their original meanings.

    The item itself keeps its original name, or has its present one if it is `shown`.
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
        super().__init__(state, database, path, schema, planned, own=own)
        # Directories of older versions may have longer names than the parser keeps now.
        self._bound = {tuple(map(cut, then)): id for then, id in item.bound}
        self._known = item.known or {}
        self._known_keys = item.known_keys or {}

    def find(self, parts: tuple[str, ...]) -> Item | Builtin | None:
        """Return the object that `parts` named when the statement was written."""
        id = self._bound.get(parts) if len(parts) == 3 else None
        return super().find(parts) if id is None else self.state.item(id)

    def _view(self, found: Item | Builtin) -> ItemView:
        view = super()._view(found)
        known = self._known.get(found.id)
        if known is None:
            return view
        desc, relation = as_known(view.id, view.desc, known, self._known_keys.get(found.id))
        select = columns_as_known(
            view.desc.names, [(each.name, each.now, each.type) for each in known]
        )
        return replace(view, desc=desc, definition=relation, select=select)

    def resolve_new(self, parts: tuple[str, ...], *, temporary: bool = False) -> Name:
        """Return the name as it is written, or as it is shown."""
        if self._shown is not None:
            return self._shown
        padded = (*(None,) * (3 - len(parts)), *parts)
        return Name(padded[0], padded[1], parts[-1])

    def cluster_exists(self, name: str) -> bool:
        """Return True: the item's own cluster may have been renamed."""
        return True


def with_present_names(state: State, item: Item) -> str:
    """Return the statement of a table, an index or a sequence with the present names."""
    names = state.present_names(item)
    if all(then == now for then, now in names.items()):
        return item.create_sql
    return definition_without_qualifiers(renamed(item.create_sql, names))
