"""What lowering works with: keys, the rows at hand, and putting the two together."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

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
    columns_of,
    walk_relations,
)
from foreshore.expr.split import Test, shift
from foreshore.sql.lower.outer_columns import (
    Reference,
    Scopes,
)
from foreshore.types import TEXT, ColumnType, SqlType, has_one_form


@dataclass(frozen=True)
class Outer:
    """The keys that a relation is applied to: distinct rows, and where references find them."""

    relation: Relation
    types: tuple[ColumnType, ...]
    places: dict[Reference, int]

    @property
    def width(self) -> int:
        """How many columns the keys have."""
        return len(self.types)

    def columns(self) -> tuple[Column, ...]:
        """Return the columns of the keys, which come first in what is applied to them."""
        return tuple(Column(i, c.type, c.nullable) for i, c in enumerate(self.types))


NOTHING_OUTSIDE = Outer(Join(()), (), {})


class Row:
    """The rows at hand, to which the results of subqueries are appended as columns.

    `columns` says where the columns are that the scalars of the node know by their positions.
    """

    def __init__(self, relation: Relation, columns: Sequence[int], outer: Outer) -> None:
        self.relation = relation
        self.columns = list(columns)
        self.outer = outer
        self.types = list(columns_of(relation))

    def place(self, reference: Reference) -> int:
        """Return where the column is that a subquery here knows by `reference`."""
        level, index = reference
        return self.columns[index] if level == 1 else self.outer.places[(level - 1, index)]

    def within(self) -> "Row":
        """Return the same rows as a subquery here knows them: none of their columns is its own."""
        here = {(1, i): place for i, place in enumerate(self.columns)}
        further = {(level + 1, i): place for (level, i), place in self.outer.places.items()}
        places = {**here, **further}
        return Row(self.relation, (), Outer(self.outer.relation, self.outer.types, places))

    def append(self, relation: Relation, column: ColumnType) -> Column:
        """Let `relation` be the rows, which has one column more."""
        self.relation = relation
        self.types.append(column)
        return Column(len(self.types) - 1, column.type, column.nullable)

    def identity(self) -> tuple[int, ...]:
        """Return the places of all columns."""
        return tuple(range(len(self.types)))


def filter_(relation: Relation, predicates: Sequence[Scalar]) -> Relation:
    """Return `relation` filtered, if there is anything to filter by."""
    return Filter(relation, tuple(predicates)) if predicates else relation


def columns_at(types: Sequence[ColumnType]) -> tuple[Column, ...]:
    """Return the columns of a row of these types."""
    return tuple(Column(i, c.type, c.nullable) for i, c in enumerate(types))


def keys_of(types: Sequence[ColumnType], places: Sequence[int]) -> tuple[Scalar, ...]:
    """Return a key for each of `places` that is equal where rows of these types are the same there.

    It is the column; or, where values may be equal and yet differ (-0.0 and 0.0, an interval of a
    month and one of thirty days), its text, of which `value_of` is the value.
    """
    columns = columns_at(types)
    return tuple(
        columns[place]
        if has_one_form(types[place].type)
        else _cast(columns[place], types[place].type, TEXT)
        for place in places
    )


def value_of(key: Column, type: SqlType) -> Scalar:
    """Return the value of that type whose key is `key`."""
    return key if key.type == type or has_one_form(type) else _cast(key, key.type, type)


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
    """The state of lowering one plan, and what its parts have in common."""

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
        self.values: dict[int, Relation] = {}  # the same, by number
        self.locals: dict[int, Relation] = {}  # what a LocalGet of the bound plan now is

    def let(self, value: Relation) -> Relation:
        """Return a relation that may be used several times for `value`."""
        if isinstance(value, Get | LocalGet | Constant):
            return value
        number = self.next_number
        self.next_number += 1
        self.bindings.append((number, value))
        self.values[number] = value
        return LocalGet(number, columns_of(value))

    @abstractmethod
    def apply(self, relation: Relation, outer: Outer) -> Relation:
        """Return each of the rows of `outer` beside the rows of `relation` for it."""
        ...

    def row(self, relation: Relation, outer: Outer) -> Row:
        """Return the rows of `relation` applied to `outer`, to evaluate scalars in."""
        applied = self.apply(relation, outer)
        width = len(columns_of(applied))
        return Row(applied, range(outer.width, width), outer)

    def close(self, row: Row) -> Relation:
        """Return the rows with the keys and the node's columns, and no others."""
        wanted = (*range(row.outer.width), *row.columns)
        return row.relation if wanted == row.identity() else Project(row.relation, wanted)

    def without(self, outer: Outer, found: Relation) -> Relation:
        """Return the keys that are not among `found`, which holds each key once at most."""
        return Union((outer.relation, Negate(found)))

    def rejoin(self, rows: Relation, keys: Sequence[Scalar], keyed: Relation) -> Relation:
        """Return `rows` beside what `keyed` has for their `keys`, which are its first columns."""
        width = len(columns_of(rows))
        theirs = columns_of(keyed)
        joined = equi_join(rows, keys, keyed, columns_at(theirs)[: len(keys)], len(keys))
        return Project(joined, (*range(width), *range(width + len(keys), width + len(theirs))))
