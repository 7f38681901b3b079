"""Builtin relations and the introspection snapshot they are computed from.

A `Builtin` has an id, a description and a function from a `IntrospectionSnapshot`, the state of the
system at one moment, to rows. Rows are dicts with only the columns that have a value. Missing
columns are NULL or, if they are never NULL, the type's empty value. This keeps the functions short,
because PostgreSQL's catalogs have many columns for features that Foreshore lacks.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from foreshore.catalog.item import Connection, Item, NamedConstraint, Role, Schema
from foreshore.catalog.planned import Planned
from foreshore.catalog.role_names import is_role, role_name, role_oid
from foreshore.catalog.state import State
from foreshore.constraint import Constraint, Unique, is_implied
from foreshore.domain import Domain, DomainCheck
from foreshore.expr.ir import Column
from foreshore.ids import FIRST_BUILTIN, GlobalId, global_id, number_of
from foreshore.in_turns import Steps, run_at_once
from foreshore.index_key import DEFAULT, IndexKey
from foreshore.redaction import without_literals
from foreshore.sequence import Generated, Position
from foreshore.sequence import Sequence as SequenceDefinition
from foreshore.types import (
    NUMERIC,
    ColumnType,
    RelationDesc,
    SqlType,
    array_of,
    arrow_type,
)

Row = Mapping[str, Any]
_DOMAIN_CHECKS = 1 << 31  # the first oid of checks of domains


@dataclass(frozen=True, slots=True)
class Frontier:
    """The readable interval of a collection, from `since` to `upper`; None: not readable.

    `inputs` are the collections it is computed from, `bases` the tables at the bottom; both are
    empty for a table.
    """

    id: GlobalId
    since: int | None
    upper: int | None
    inputs: frozenset[GlobalId] = frozenset()
    bases: frozenset[GlobalId] = frozenset()


@dataclass(frozen=True)
class IntrospectionSnapshot:
    """The state of the system at one moment, as the querying session sees it."""

    state: State
    planned: Mapping[GlobalId, Planned]
    builtins: "Sequence[Builtin]"
    database: str
    definition_of: Callable[[GlobalId], str]  # the text of a view's query
    default_of: Callable[[GlobalId, int], str | None]  # the text of a table column's default
    position_of: Callable[[GlobalId], Position] = lambda id: Position(1, called=False)
    # Of a subscription: its position, and the milliseconds of history that it holds; None: it has
    # not begun.
    subscription_state_of: Callable[[GlobalId], tuple[int, int] | None] = lambda id: None
    frontiers: Callable[[], Iterable[Frontier]] = tuple
    live: Callable[[str], Iterable[Row]] = lambda name: ()  # rows of the relations called so
    now: int = 0  # in milliseconds since 1970
    temporary: str = ""  # id of the session's temporary schema
    search_path: Sequence[str] = ()  # schema names
    # The expressions of a policy, USING and WITH CHECK.
    policy_texts_of: Callable[[GlobalId], tuple[str | None, str | None]] = lambda id: (None, None)
    # A view's query with the names of databases, which `definition_of` leaves out.
    full_definition_of: Callable[[GlobalId], str] = lambda id: ""
    index_keys_of: Callable[[GlobalId], Sequence[IndexKey]] = lambda id: ()  # as they were written
    # The options of a relation or index, as `name=value`, that its CREATE statement needs.
    options_of: Callable[[GlobalId], Sequence[str]] = lambda id: ()
    # The oids of domains that a table's columns are declared with, by their positions from 0.
    column_domains_of: Callable[[GlobalId], Mapping[int, int]] = lambda id: {}
    # The statement that creates an object, None if it has none to show.
    create_sql_of: Callable[[Item | Connection], str | None] = lambda each: None
    role: Role | None = None  # whose rights the information schema shows
    ids: frozenset[GlobalId] | None = None  # of the items that are shown; None: all
    is_rest: bool = True  # whether it shows what belongs to no item, such as types of the system

    def part(self, ids: frozenset[GlobalId]) -> "IntrospectionSnapshot":
        """Return a snapshot with these items only."""
        part = replace(self, ids=ids, is_rest=False, builtins=())
        vars(part).update(schemas=self.schemas, system_names=self.system_names)
        return part

    def rest(self) -> "IntrospectionSnapshot":
        """Return a snapshot without items."""
        return replace(self, ids=frozenset())

    @cached_property
    def system_names(self) -> frozenset[tuple[str, str]]:
        """Return the schemas and names of all builtin relations."""
        return frozenset((builtin.schema, builtin.name) for builtin in self.builtins)

    @cached_property
    def all_items(self) -> tuple[Item, ...]:
        """Return the items of all databases, of every type, that the snapshot shows."""
        if self.ids is None:
            return tuple(self.state.all(Item))
        return tuple(self.state.item(id) for id in sorted(self.ids, key=number_of))

    @cached_property
    def database_items(self) -> tuple[Item, ...]:
        """Return the items of the session's database, of every type."""
        return tuple(item for item in self.all_items if item.schema in self.schemas)

    def desc_of(self, id: GlobalId) -> RelationDesc:
        """Return the columns of a relation."""
        return self.planned[id].desc

    def index_key_of(self, id: GlobalId) -> list[tuple[int, str]]:
        """Return for each key column of an index its position from 1, or 0, and its text."""
        on = self.state.item(id).on
        assert on is not None, id
        names = self.desc_of(on).names
        return [
            (key.index + 1, names[key.index]) if isinstance(key, Column) else (0, written.shown)
            for key, written in zip(self.planned[id].key, self.written_keys_of(id), strict=True)
        ]

    def written_keys_of(self, id: GlobalId) -> list[IndexKey]:
        """Return the keys of an index as its statement has them, of a default index any."""
        keys, written = self.planned[id].key, self.index_keys_of(id)
        return [*written] if len(written) == len(keys) else [DEFAULT] * len(keys)

    def generated_of(self, id: GlobalId, position: int) -> Generated | None:
        """Return how a table's column is generated."""
        generated = self.planned[id].generated
        return generated[position] if generated else None

    def sequence_of(self, id: GlobalId) -> SequenceDefinition:
        """Return the definition of a sequence."""
        found = self.planned[id].sequence
        assert found is not None, id
        return found

    @cached_property
    def schemas(self) -> dict[str, Schema]:
        """Return the schemas visible from the session's database, by id."""
        database = self.state.database(self.database)
        return {
            schema.id: schema
            for schema in self.state.all(Schema)
            if schema.database is None or (database and schema.database == database.id)
        }

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """Return the items of the session's database that are relations in PostgreSQL."""
        return tuple(
            item
            for item in self.database_items
            if item.type not in ("subscription", "type", "domain", "function", "policy")
        )

    @cached_property
    def types(self) -> tuple[Item, ...]:
        """Return the types of the session's database."""
        return tuple(item for item in self.database_items if item.is_type)

    def domain_of(self, id: GlobalId) -> Domain | None:
        """Return a domain, None for another type."""
        return self.planned[id].domain

    def domain_checks(self, item: Item) -> tuple[DomainCheck, ...]:
        """Return the checks that a domain has of its own, beside those of its base."""
        domain = self.domain_of(item.id)
        inherited: set[str] = set()
        for id in item.depends_on:
            base = self.planned[id].domain
            inherited |= {check.name for check in base.checks} if base else set()
        return tuple(each for each in domain.checks if each.name not in inherited) if domain else ()

    @cached_property
    def all_domain_checks(self) -> tuple[tuple[Item, int, DomainCheck], ...]:
        """Return the checks of the database's domains, each with its oid.

        A check has no oid in the catalog. Its oid is beyond those that are allotted, and is its
        own, for up to 16 checks of a domain.
        """
        return tuple(
            (item, _DOMAIN_CHECKS + item.oid * 16 + number, check)
            for item in self.types
            for number, check in enumerate(self.domain_checks(item)[:16])
        )

    def structure_of(self, id: GlobalId) -> SqlType | None:
        """Return the structure of a type of records, lists or maps, None for another type."""
        return self.planned[id].structure

    @cached_property
    def composites(self) -> tuple[tuple[Item, SqlType], ...]:
        """Return the composite types, with their columns."""
        found = ((item, self.structure_of(item.id)) for item in self.types)
        return tuple((item, type) for item, type in found if type and type.name == "record")

    def labels_of(self, id: GlobalId) -> tuple[str, ...]:
        """Return the labels of an enum."""
        return self.planned[id].labels

    @cached_property
    def own_items(self) -> tuple[Item, ...]:
        """Return the items, except temporary ones of other sessions."""
        return tuple(item for item in self.items if self._is_own(item))

    @cached_property
    def own_constraints(self) -> tuple[tuple[Item, NamedConstraint, Constraint], ...]:
        """Return the constraints of `own_items`."""
        return tuple(each for each in self.constraints if self._is_own(each[0]))

    def _is_own(self, item: Item) -> bool:
        return not item.temporary or item.schema == self.temporary

    @cached_property
    def constraints(self) -> tuple[tuple[Item, NamedConstraint, Constraint], ...]:
        """Return the table constraints of the session's database, without unique indexes."""
        return tuple(
            (item, named, constraint)
            for item, named, constraint in self._named_constraints
            if not (isinstance(constraint, Unique) and constraint.is_index)
        )

    @cached_property
    def _named_constraints(self) -> tuple[tuple[Item, NamedConstraint, Constraint], ...]:
        return tuple(
            (item, each, constraints[each.name])
            for item in self.items
            if item.constraints
            for constraints in (
                {c.name: c for c in self.planned[item.id].constraints if not is_implied(c)},
            )
            for each in item.constraints
        )

    @cached_property
    def keys(self) -> tuple[tuple[Item, NamedConstraint, Unique], ...]:
        """Return unique constraints, which have an index of the same name and oid, and indexes."""
        return tuple(
            (item, named, constraint)
            for item, named, constraint in self._named_constraints
            if isinstance(constraint, Unique)
        )

    def oid(self, id: str) -> int:
        """Return the oid of the object `id`; a role may be missing."""
        return role_oid(self.state, id) if is_role(id) else self.state.objects[id].oid

    def name(self, id: str) -> str:
        """Return the name of the object `id`; a role may be missing."""
        return role_name(self.state, id) if is_role(id) else self.state.objects[id].name


@dataclass(frozen=True, slots=True)
class Builtin:
    """A builtin relation."""

    id: GlobalId
    oid: int
    schema: str
    name: str
    desc: RelationDesc
    rows: Callable[[IntrospectionSnapshot], Iterable[Row]]

    def table(self, snapshot: IntrospectionSnapshot) -> pa.Table:
        """Return the rows in physical form."""
        return run_at_once(self.steps(snapshot))

    def steps(self, snapshot: IntrospectionSnapshot) -> Steps[pa.Table]:
        """Return the rows in physical form; yield after each row and each column."""
        names = self.desc.names
        columns: list[list[Any]] = [[] for _ in names]
        is_redacted = "redacted_create_sql" in names
        empties = [None if c.nullable else _empty(c.type) for c in self.desc.columns]
        for row in self.rows(snapshot):
            assert row.keys() <= set(names), f"{self.name} has no {row.keys() - set(names)}"
            if is_redacted and (statement := row.get("create_sql")) is not None:
                shown = without_literals(str(statement), shown_as="'<REDACTED>'")
                row = {**row, "redacted_create_sql": shown}
            for column, name, empty in zip(columns, names, empties, strict=True):
                column.append(row.get(name, empty))
            yield
        arrays = []
        for values, described in zip(columns, self.desc.columns, strict=True):
            arrays.append(pa.array(values, arrow_type(described.type)))
            yield
        return pa.Table.from_arrays(arrays, names=list(names))


@dataclass(frozen=True, slots=True)
class Declaration:
    """A builtin relation without an id. `columns` are as in `columns.py`."""

    oid: int
    schema: str
    name: str
    columns: str
    rows: Callable[[IntrospectionSnapshot], Iterable[Row]]

    def with_id(self, number: int) -> Builtin:
        """Return the relation with the `number`-th id of the builtins, from s1000 on."""
        names, types = zip(*_parsed(self.columns), strict=True)
        return Builtin(
            global_id("s", FIRST_BUILTIN + number),
            self.oid,
            self.schema,
            self.name,
            RelationDesc(names, types),
            self.rows,
        )


def _parsed(columns: str) -> Iterator[tuple[str, ColumnType]]:
    for column in columns.split(","):
        name, type_name = column.split()
        nullable = type_name.endswith("?")
        type_name = type_name.removesuffix("?")
        type = _type(type_name.removesuffix("[]"))
        yield name, ColumnType(array_of(type) if type_name.endswith("[]") else type, nullable)


def _type(name: str) -> SqlType:
    return NUMERIC if name == "numeric" else SqlType(name)


def _empty(type: SqlType) -> Any:
    arrow = arrow_type(type)
    if pa.types.is_list(arrow):
        return []
    if pa.types.is_boolean(arrow):
        return False
    if pa.types.is_string(arrow):
        return ""
    return 0


def nothing(_: IntrospectionSnapshot) -> Iterable[Row]:
    """Return no rows, for features that Foreshore lacks."""
    return ()


def live(name: str) -> Callable[[IntrospectionSnapshot], Iterable[Row]]:
    """Return the function for the rows of a relation that depends on more than the catalog."""
    return lambda snapshot: snapshot.live(name)
