"""The catalog as the binding of statements reads it: names, and the items that they mean.

Binding replaces a view by its definition, except in the definition of another view. The views in
`arranged` are left as they are, so that a query that reads only such a view can be answered from
its index; `unexpanded_views` collects them, so that a caller without such an index can plan again.

Maintained collections lack the uncommitted writes of a transaction. So everything made of relations
that the transaction sees differently from others (`own`) is replaced by its definition, down to
tables.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Self

from foreshore.catalog.builtin.registry import BUILTINS
from foreshore.catalog.builtin.relation import Builtin
from foreshore.catalog.item import Connection, Item
from foreshore.catalog.lookups import Lookups
from foreshore.catalog.names import Names
from foreshore.catalog.planned import Planned
from foreshore.catalog.row_security import RowReader, policies_for, reads_secured
from foreshore.catalog.state import is_system
from foreshore.connection_spec import ConnectionKind
from foreshore.constraint import Unique
from foreshore.domain import Domain
from foreshore.errors import Conflict, FeatureNotSupported, UndefinedTable
from foreshore.expr.ir import Get, Relation
from foreshore.expr.share import put_in, share
from foreshore.expr.split import split_errors
from foreshore.expr.traversal import sources_of
from foreshore.ids import GlobalId
from foreshore.item_view import ItemView, Name
from foreshore.kept_definition import skips_errors
from foreshore.policy import PolicyTexts, PolicyView, Securing
from foreshore.sql_function import SqlFunction
from foreshore.types import Datum, DefinedType, Member, RelationDesc, SqlType, array_of

_NO_COLUMNS = RelationDesc((), ())


def _read(id: GlobalId, desc: RelationDesc) -> Get:
    return Get(id, desc.columns, desc.keys, desc.append_only, desc.watermark)


def type_of_item(item: Item, name: tuple[str, ...], planned: Planned) -> SqlType:
    """Return the SQL type that an item defines; the oid of its arrays follows its own."""
    structure = planned.structure
    if structure is not None:
        defined = DefinedType(item.oid, item.oid + 1, name)
        return SqlType(structure.name, defined=defined, members=structure.members)
    defined = DefinedType(item.oid, item.oid + 1, name, item.enum_values or (), planned.labels)
    return SqlType("enum", defined=defined)


@dataclass(eq=False)
class Reader(Names, ABC):
    """One state of the catalog as a session sees it; a subclass knows SQL."""

    planned: Mapping[GlobalId, Planned]
    arranged: frozenset[GlobalId] = frozenset()
    own: Callable[[GlobalId], bool] | None = None
    unexpanded_views: set[GlobalId] = field(default_factory=set)
    used: set[GlobalId] = field(default_factory=set)  # the items that were looked up
    altered_parts: set[GlobalId] = field(default_factory=set)  # of sources, seen as tables
    lookups: Lookups = field(init=False)
    _own_definitions: dict[GlobalId, Relation | None] = field(default_factory=dict)
    row_reader: RowReader | None = None  # None: that of the session's role

    def __post_init__(self) -> None:
        """Begin to note the names that are looked up."""
        self.lookups = Lookups(self.search_path)
        if self.row_reader is None and self.role is not None:
            self.row_reader = RowReader(self.role.id)

    @property
    def keeps_digits(self) -> bool:
        """Return True; a definition of an older version has numerics of a planned scale."""
        return True

    @abstractmethod
    def text_of(self, table: Item) -> str:
        """Return the statement of a table with the present names."""

    @abstractmethod
    def definition_in(self, view: Item, zone: str, securing: Securing | None = None) -> Relation:
        """Return the relation of a view for readers in the time zone `zone`."""

    def policies_of(self, table: Item, role: str | None) -> tuple[PolicyView, ...] | None:
        """Return the policies of a table for a role, None: the reader's; None if it sees all."""
        reader = self.row_reader
        if reader is None:
            return None
        return policies_for(self.state, self.texts_of, table, reader, role or reader.role)

    def session_value(self, name: str) -> Datum:
        """Return the value of an `Environment` scalar for the session; the plan has it then."""
        assert self.row_reader is not None, name
        return self.row_reader.value(name)

    @abstractmethod
    def texts_of(self, policy: Item) -> PolicyTexts:
        """Return the expressions of a policy."""

    def as_defined(self) -> Self:
        """Return the same catalog, in which all views are replaced by their definitions."""
        return replace(self, arranged=frozenset(), unexpanded_views=set(), _own_definitions={})

    def resolve_item(self, parts: tuple[str, ...]) -> ItemView:
        """Return the item `[[database.]schema.]name`."""
        found = self.find(parts)
        self.lookups.relations[parts] = None if found is None else found.id
        self.lookups.only_system &= not isinstance(found, Item)
        if found is None:
            raise UndefinedTable(f'relation "{".".join(parts)}" does not exist')
        return self._view(found)

    def nearest_relation(self, parts: tuple[str, ...]) -> str | None:
        """Return the name, with its schema, of the only relation that `parts` are near to."""
        found = self.near(parts)
        return None if found is None else ".".join(found)

    def type_named(self, parts: tuple[str, ...]) -> tuple[GlobalId, SqlType] | None:
        """Return the type `[[database.]schema.]name` of the catalog, or None."""
        found = self._found_type(parts)
        if found is None or found.type != "type":
            return None
        self.used.add(found.id)
        type = type_of_item(found, self.state.full_name(found), self.planned[found.id])
        return found.id, self._with_present_members(type)

    def connection_named(self, parts: tuple[str, ...]) -> tuple[str, ConnectionKind]:
        """Return the id and the kind of a connection, or raise UndefinedObject."""
        found = self.object_called("connection", parts)
        assert isinstance(found, Connection), found
        return found.id, found.spec.kind

    def secret_named(self, parts: tuple[str, ...]) -> str:
        """Return the id of a secret, or raise UndefinedObject."""
        return self.object_called("secret", parts).id

    def domain_named(self, parts: tuple[str, ...]) -> tuple[GlobalId, Domain] | None:
        """Return the domain `[[database.]schema.]name`, or None."""
        found = self._found_type(parts)
        domain = None if found is None else self.planned[found.id].domain
        if found is None or domain is None:
            return None
        self.used.add(found.id)
        return found.id, replace(domain, parts=self.state.full_name(found))

    def _found_type(self, parts: tuple[str, ...]) -> Item | None:
        found = self.find_type(parts)
        self.lookups.types.add(parts)
        self.lookups.only_system &= found is None
        return found

    def functions_named(self, parts: tuple[str, ...]) -> list[tuple[GlobalId, SqlFunction]]:
        """Return the functions that `[[database.]schema.]name` may mean, the nearest first."""
        found = []
        items = self.find_functions(parts)
        self.lookups.functions.add(parts)
        self.lookups.only_system &= not items
        for item in items:
            function = self.planned[item.id].function
            assert function is not None, item
            self.used.add(item.id)
            found.append((item.id, replace(function, parts=self.state.full_name(item))))
        return found

    def argument_types(self, item: Item) -> list[str]:
        """Return the types of a function's parameters as messages show them."""
        function = self.planned[item.id].function
        return [] if function is None else [str(type) for type in function.types]

    def present_type(self, type: SqlType) -> SqlType:
        """Return `type` with its present definition, if it is one of the catalog."""
        if type.element is not None:
            return array_of(self.present_type(type.element))
        if type.defined is not None:
            self.lookups.only_system = False
        item = None if type.defined is None else self.state.item_with(type.defined.oid)
        if item is not None:
            type = type_of_item(item, self.state.full_name(item), self.planned[item.id])
        return self._with_present_members(type)

    def _with_present_members(self, type: SqlType) -> SqlType:
        if not type.members:
            return type
        members = tuple(Member(m.name, self.present_type(m.type)) for m in type.members)
        return SqlType(type.name, defined=type.defined, members=members)

    def statement_of(self, id: GlobalId) -> str:
        """Return the statement that defines item `id`, with names as it was created."""
        return self.state.item(id).create_sql

    def item(self, id: GlobalId) -> ItemView:
        """Return the item bound to `id`."""
        if id in BUILTINS:
            return self._view(BUILTINS[id])
        self.lookups.only_system = False
        if self.state.get(id) is None:
            raise UndefinedTable(f"relation {id} was dropped")
        return self._view(self.state.item(id))

    def _view(self, found: Item | Builtin) -> ItemView:
        if isinstance(found, Builtin):
            name = Name(None, found.schema, found.name)
            return ItemView(found.id, "builtin", name, found.desc, oid=found.oid)
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
        if found.feed and found.id not in self.altered_parts:
            return replace(view, kind="source")
        if found.sink:
            return replace(view, kind="sink", desc=_NO_COLUMNS)
        match found.type:
            case "index" | "type" | "domain" | "function" | "policy":
                return replace(view, desc=_NO_COLUMNS)
            case "sequence":
                return replace(view, sequence=planned.sequence)
            case "table":
                return replace(
                    view,
                    defaults=planned.defaults,
                    constraints=planned.constraints,
                    create_sql=self.text_of(found),
                    generated=planned.generated,
                    foreign_keys=found.foreign_keys or (),
                    keeps_digits=found.keeps_digits is True,
                    policies=partial(self.policies_of, found) if found.row_security else None,
                )
            case "subscription":
                return replace(view, definition=planned.definition)
            case "materialized view":
                return replace(view, definition=self._own_definition(found.id))
            case "view":
                in_zone = partial(self.definition_in, found) if planned.depends_on_zone else None
                secured, by_reader = reads_secured(self.state, found.id)
                if secured:
                    view = replace(view, for_reader=partial(self.definition_in, found))
                if planned.view is not None and planned.view.is_named:
                    view = replace(view, reference=_read(found.id, planned.desc))
                if found.id in self.arranged and not by_reader:
                    self.unexpanded_views.add(found.id)
                    return replace(view, in_zone=in_zone)
                return replace(view, expanded=partial(self._expanded, found.id), in_zone=in_zone)

    def _expanded(self, id: GlobalId) -> Relation:
        definition = self._own_definition(id) or self.planned[id].definition
        assert definition is not None, id
        return definition

    def definition_of(self, id: GlobalId, *, with_errors: bool = False) -> Relation:
        """Return the relation that a materialized view holds the rows of at each time."""
        definition, item = self.planned[id].definition, self.state.item(id)
        if with_errors:
            assert definition is not None, item
            return definition
        if item.refresh:
            raise FeatureNotSupported(f'"{item.name}" has a refresh schedule')
        assert definition is not None, item
        return split_errors(definition)[0] if skips_errors(item.create_sql) else definition

    def _own_definition(self, id: GlobalId) -> Relation | None:
        """Return the definition of `id` if the transaction sees it differently from others.

        The definitions below it are shared, so the plan grows with the number of relations below,
        however often each is used.
        """
        planned = self.planned.get(id)
        if self.own is None or planned is None or planned.body is None:
            return None
        item = self.state.get(id)
        if isinstance(item, Item) and item.refresh and not self.own(id):
            return None  # its rows are those of its last refresh
        if id not in self._own_definitions:
            definition = planned.definition
            assert definition is not None, item
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

    def find_key(self, parts: tuple[str, ...]) -> tuple[ItemView, Unique] | None:
        """Return the table with a key whose index is called `parts`, and the key."""
        self.lookups.only_system = False
        table = self.table_with_key(parts)
        if table is None:
            return None
        view = self.item(table.id)
        keys = (each for each in view.constraints if isinstance(each, Unique))
        return view, next(key for key in keys if key.name == parts[-1])

    def cluster_exists(self, name: str) -> bool:
        """Return whether cluster `name` exists."""
        self.lookups.only_system = False
        return self.state.cluster(name) is not None
