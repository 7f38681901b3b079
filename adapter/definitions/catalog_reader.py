"""The `CatalogReader` of a session, and that of the statement which defines an item.

They read one state of the catalog: the transaction's own, if the transaction has changed it.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.item import Item
from foreshore.catalog.known_columns import as_known
from foreshore.catalog.names import IMPLICIT_SCHEMAS
from foreshore.catalog.planned import Planned
from foreshore.catalog.reader import Reader
from foreshore.catalog.row_security import RowReader
from foreshore.catalog.state import State
from foreshore.expr.ir import Relation
from foreshore.identifiers import cut
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView, Name
from foreshore.policy import PolicyTexts, Securing
from foreshore.sql.parse.parse import parse
from foreshore.sql.plan import CreateView
from foreshore.sql.planner import plan_statement
from foreshore.sql.rewrite.column_names import columns_as_known, definition_without_qualifiers
from foreshore.sql.rewrite.full_names import renamed
from foreshore.sql.rewrite.index_keys import keys_text
from foreshore.sql.rewrite.policy_texts import policy_texts
from foreshore.sql.rewrite.session_zone import SessionZone


@dataclass(eq=False)
class SessionCatalog(Reader):
    """One state of the catalog as a session sees it."""

    def text_of(self, table: Item) -> str:
        """Return the statement of a table with the present names."""
        return with_present_names(self.state, table)

    def keys_of_indexes(self, id: GlobalId) -> Sequence[str]:
        """Return the keys of each index of a relation, in parentheses as they are written."""
        indexes = self.state.indexes_on(id)
        self.used.update(index.id for index in indexes)
        texts = (with_present_names(self.state, index) for index in indexes)
        return [keys for keys in map(keys_text, texts) if keys]

    def texts_of(self, policy: Item) -> PolicyTexts:
        """Return the expressions of a policy."""
        return policy_texts(policy.create_sql)

    def within(self, id: GlobalId) -> "DefinitionCatalog":
        """Return the catalog as the statement of item `id` sees it."""
        self.lookups.only_system = False
        reader = DefinitionCatalog(self.state, self.planned, self.state.item(id), own=self.own)
        reader.arranged, reader.used = self.arranged, self.used
        reader.unexpanded_views, reader.row_reader = self.unexpanded_views, self.row_reader
        return reader

    def definition_in(self, view: Item, zone: str, securing: Securing | None = None) -> Relation:
        """Return the relation of a view for readers in the time zone `zone`."""
        (syntax,) = parse(view.create_sql)
        reader = DefinitionCatalog(self.state, self.planned, view, own=self.own)
        reader.row_reader = self.row_reader
        in_zone = SessionZone(zone, of_constants="UTC")
        role = None if view.security_invoker is True else view.owner
        plan = plan_statement(
            syntax, reader, zone=in_zone, defined=True, as_role=role, securing=securing
        )
        assert isinstance(plan, CreateView), view
        return plan.query.relation


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
        super().__init__(state, database, path, schema, None, planned, own=own)
        self.row_reader = RowReader(item.owner)
        # Directories of older versions may have longer names than the parser keeps now.
        self._bound: dict[tuple[str, ...], GlobalId] = {}
        self._functions: dict[tuple[str, ...], list[Item]] = {}
        for then, id in item.bound:
            used = state.get(id)
            if isinstance(used, Item) and used.is_function:
                self._functions.setdefault(then, []).append(used)
            else:
                self._bound[tuple(map(cut, then))] = id
        self._keeps_digits = item.keeps_digits is True
        self._known = item.known or {}
        self._known_keys = item.known_keys or {}

    @property
    def keeps_digits(self) -> bool:
        """Return whether the item was defined since numerics keep their digits."""
        return self._keeps_digits

    def find(self, parts: tuple[str, ...]) -> Item | Builtin | None:
        """Return the object that `parts` named when the statement was written."""
        id = self._bound.get(parts) if len(parts) == 3 else None
        return super().find(parts) if id is None else self.state.item(id)

    def find_type(self, parts: tuple[str, ...]) -> Item | None:
        """Return the type that `parts` named when the statement was written."""
        id = self._bound.get(parts) if len(parts) == 3 else None
        return super().find_type(parts) if id is None else self.state.item(id)

    def find_functions(self, parts: tuple[str, ...]) -> list[Item]:
        """Return the functions that `parts` named when the statement was written."""
        found = self._functions.get(parts) if len(parts) == 3 else None
        return super().find_functions(parts) if found is None else found

    def _view(self, found: Item | Builtin) -> ItemView:
        view = super()._view(found)
        known = self._known.get(found.id)
        if known is None:
            return view
        keys, zoned = self._known_keys.get(found.id), view.in_zone

        def relation_as_known(definition: Relation | None) -> Relation:
            return as_known(view.id, view.desc, known, keys, definition)[1]

        relation: Relation | None
        desc, relation = as_known(view.id, view.desc, known, keys, view.definition)
        expanded = view.expanded
        if view.reference is not None:
            view = replace(view, reference=relation_as_known(None))
        if expanded is not None:
            view = replace(view, expanded=lambda: relation_as_known(expanded()))
            relation = None
        if zoned is not None:
            view = replace(view, in_zone=lambda zone: relation_as_known(zoned(zone)))
        select = columns_as_known(
            view.desc.names, [(each.name, each.now, each.type) for each in known]
        )
        present = tuple(each.now for each in known)
        return replace(view, desc=desc, definition=relation, select=select, present=present)

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
    text = renamed(item.create_sql, names)
    return text if item.is_policy else definition_without_qualifiers(text)
