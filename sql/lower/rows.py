"""The data that lowering works with: keys, the current rows, and joins of the two."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from foreshore.expr.columns import columns_of
from foreshore.expr.equality import has_one_form
from foreshore.expr.functions.registry import resolve_cast
from foreshore.expr.ir import (
    Call,
    Column,
    Constant,
    Filter,
    Get,
    Join,
    Let,
    LocalGet,
    Negate,
    Project,
    Recursive,
    Relation,
    Scalar,
    Union,
)
from foreshore.expr.split import Test, shift
from foreshore.expr.traversal import walk_relations
from foreshore.sql.lower.outer_columns import (
    Reference,
    Scopes,
)
from foreshore.types import (
    BYTEA,
    STRUCTURED,
    TEXT,
    ColumnType,
    SqlType,
    array_of,
    arrow_type,
)


@dataclass(frozen=True)
class Outer:
    """The keys to which a relation is applied: distinct rows, and the columns of references."""

    relation: Relation
    types: tuple[ColumnType, ...]
    places: dict[Reference, int]

    @property
    def width(self) -> int:
        """Return the number of columns of the keys."""
        return len(self.types)

    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the keys, which are the first columns of an applied relation."""
        return tuple(Column(i, c.type, c.nullable) for i, c in enumerate(self.types))


NOTHING_OUTSIDE = Outer(Join(()), (), {})


class Row:
    """The current rows, to which results of subqueries are appended as columns.

    `columns` are the positions of the columns that the scalars of the node refer to.
    """

    def __init__(self, relation: Relation, columns: Sequence[int], outer: Outer) -> None:
        self.relation = relation
        self.columns = list(columns)
        self.outer = outer
        self.types = list(columns_of(relation))

    def place(self, reference: Reference) -> int:
        """Return the position of the column to which a subquery refers by `reference`."""
        level, index = reference
        return self.columns[index] if level == 1 else self.outer.places[(level - 1, index)]

    def within(self) -> "Row":
        """Return the same rows as seen from a subquery, which has none of their columns itself."""
        here = {(1, i): place for i, place in enumerate(self.columns)}
        further = {(level + 1, i): place for (level, i), place in self.outer.places.items()}
        places = {**here, **further}
        return Row(self.relation, (), Outer(self.outer.relation, self.outer.types, places))

    def append(self, relation: Relation, column: ColumnType) -> Column:
        """Replace the rows by `relation`, which has one more column."""
        self.relation = relation
        self.types.append(column)
        return Column(len(self.types) - 1, column.type, column.nullable)

    def identity(self) -> tuple[int, ...]:
        """Return the positions of all columns."""
        return tuple(range(len(self.types)))


def filter_(relation: Relation, predicates: Sequence[Scalar]) -> Relation:
    """Return `relation` filtered, or unchanged if there are no predicates."""
    return Filter(relation, tuple(predicates)) if predicates else relation


def columns_at(types: Sequence[ColumnType]) -> tuple[Column, ...]:
    """Return columns 0, 1, ... of these types."""
    return tuple(Column(i, c.type, c.nullable) for i, c in enumerate(types))


def keys_of(types: Sequence[ColumnType], places: Sequence[int]) -> tuple[Scalar, ...]:
    """Return scalars that are equal exactly if rows of these types are identical in `places`.

    This is the column itself or, where equal values may differ (-0.0 and 0.0, one month and thirty
    days), its text or its stored form, from which `value_of` restores the value.
    """
    columns = columns_at(types)
    return tuple(
        columns[place]
        if has_one_form(types[place].type)
        else _converted(columns[place], types[place].type, _identity(types[place].type))
        for place in places
    )


def value_of(key: Column, type: SqlType) -> Scalar:
    """Return the value of that type whose key is `key`."""
    return key if key.type == type or has_one_form(type) else _converted(key, key.type, type)


def _identity(type: SqlType) -> SqlType:
    """Return the type of what tells values of a type apart that are equal and look different."""
    if type.element is not None and type.element.name in STRUCTURED:
        return array_of(BYTEA)
    return BYTEA if type.name in STRUCTURED else TEXT


def _converted(value: Scalar, source: SqlType, target: SqlType) -> Call:
    if arrow_type(source) == arrow_type(target):
        return Call("relabel", (value,), target)
    return _cast(value, source, target)


def _cast(value: Scalar, source: SqlType, target: SqlType) -> Call:
    cast = resolve_cast(source, target, "explicit")
    assert cast is not None, (source, target)
    return Call(cast.key, (value,), cast.result)


def equi_join(
    rows: Relation,
    keys: Sequence[Scalar],
    others: Relation,
    other_keys: Sequence[Scalar] | None,
    shared: int,
) -> Relation:
    """Join on `keys` and `other_keys` (None: all columns), the first `shared` NULL-safe."""
    start = len(columns_of(rows))
    theirs = columns_at(columns_of(others)) if other_keys is None else other_keys
    equivalences = tuple((a, shift(b, start)) for a, b in zip(keys, theirs, strict=True))
    return Join((rows, others), equivalences, tuple(range(shared)))


class Lowering(ABC):
    """The state of lowering one plan, with helpers for all parts."""

    def __init__(self, relation: Relation, fallible: Test) -> None:
        self.fallible = fallible
        self.scopes = Scopes()
        self.next_number = 1 + max(
            (
                node.number
                for node in walk_relations(relation)
                if isinstance(node, Let | LocalGet | Recursive)
            ),
            default=-1,
        )
        self.bindings: list[tuple[int, Relation]] = []
        self.values: dict[int, Relation] = {}  # the same by number
        self.locals: dict[int, Relation] = {}  # the lowered form of each LocalGet of the bound plan

    def let(self, value: Relation) -> Relation:
        """Return a relation for `value` that may be used several times."""
        if isinstance(value, Get | LocalGet | Constant):
            return value
        number = self.next_number
        self.next_number += 1
        self.bindings.append((number, value))
        self.values[number] = value
        return LocalGet(number, columns_of(value))

    @abstractmethod
    def apply(self, relation: Relation, outer: Outer) -> Relation:
        """Return the rows of `outer` joined with the rows that `relation` has for each."""
        ...

    def row(self, relation: Relation, outer: Outer) -> Row:
        """Return the rows of `relation` applied to `outer`, over which scalars are evaluated."""
        applied = self.apply(relation, outer)
        width = len(columns_of(applied))
        return Row(applied, range(outer.width, width), outer)

    def close(self, row: Row) -> Relation:
        """Return the rows with exactly the keys and the columns of the node."""
        wanted = (*range(row.outer.width), *row.columns)
        return row.relation if wanted == row.identity() else Project(row.relation, wanted)

    def without(self, outer: Outer, found: Relation) -> Relation:
        """Return the keys that are not in `found`, which holds each key at most once."""
        return Union((outer.relation, Negate(found)))

    def rejoin(self, rows: Relation, keys: Sequence[Scalar], keyed: Relation) -> Relation:
        """Join `rows` to `keyed` by the keys, which are the first columns of `keyed`."""
        width = len(columns_of(rows))
        theirs = columns_of(keyed)
        joined = equi_join(rows, keys, keyed, columns_at(theirs)[: len(keys)], len(keys))
        return Project(joined, (*range(width), *range(width + len(keys), width + len(theirs))))
