"""The types of expressions: of a scalar's values and of a relation's columns."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import local

from foreshore.expr.ir import (
    And,
    AnySubquery,
    Column,
    Constant,
    ErrorOf,
    Exists,
    Filter,
    FlatMap,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    Or,
    OuterColumn,
    Parameter,
    Project,
    Recursive,
    Reduce,
    Relation,
    Scalar,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
)
from foreshore.types import BOOL, TEXT, ColumnType, SqlType


def type_of(scalar: Scalar) -> SqlType:
    """Return the type of `scalar`'s values."""
    match scalar:
        case And() | Or() | Exists() | AnySubquery():
            return BOOL
        case ErrorOf():
            return TEXT
        case _:
            return scalar.type


class _Known(local):
    """The columns of relations, by their identities, while a thread keeps them."""

    columns: dict[int, tuple[Relation, tuple[ColumnType, ...]]] | None = None


_known = _Known()


@contextmanager
def keeping_columns() -> Iterator[None]:
    """Keep what `columns_of` finds while the block runs, on this thread.

    The rules of the optimizer ask for the columns of the same relations again and again.
    """
    if _known.columns is not None:
        yield
        return
    _known.columns = {}
    try:
        yield
    finally:
        _known.columns = None


def columns_of(relation: Relation) -> tuple[ColumnType, ...]:
    """Return the types of the relation's columns. Nullability errs on the side of nullable."""
    if isinstance(relation, Constant | Get | LocalGet):
        return relation.columns
    known = _known.columns
    if known is None:
        return _columns_of(relation)
    found = known.get(id(relation))
    if found is None:
        # It stays alive for as long as its identity is a key.
        found = known[id(relation)] = relation, _columns_of(relation)
    return found[1]


def _columns_of(relation: Relation) -> tuple[ColumnType, ...]:
    match relation:
        case Constant(columns=columns) | Get(columns=columns) | LocalGet(columns=columns):
            return columns
        case Let(body=body) | LetRec(body=body):
            return columns_of(body)
        case Recursive(base=base):
            return tuple(ColumnType(column.type) for column in columns_of(base))
        case Map(input=input, scalars=scalars):
            return columns_of(input) + tuple(map(column_type, scalars))
        case Filter() | TopK() | TemporalFilter() | Negate() | Threshold():
            return columns_of(relation.input)
        case Project(input=input, outputs=outputs):
            columns = columns_of(input)
            return tuple(columns[i] for i in outputs)
        case FlatMap(input=input, columns=columns):
            return columns_of(input) + columns
        case Join(inputs=inputs):
            return tuple(column for input in inputs for column in columns_of(input))
        case Reduce(group_key=group_key, aggregates=aggregates):
            return tuple(map(column_type, group_key)) + tuple(
                ColumnType(a.type, a.function != "count") for a in aggregates
            )
        case Window(input=input, functions=functions):
            added = tuple(ColumnType(f.type, f.nullable) for f in functions)
            return columns_of(input) + added
        case Union(inputs=inputs):
            each = [columns_of(input) for input in inputs]
            if all(columns == each[0] for columns in each):
                # The common case; the general one took a fifth of the time for long plans.
                return each[0]
            return tuple(
                ColumnType(column.type, any(other[i].nullable for other in each))
                for i, column in enumerate(each[0])
            )
        case JoinOn(left=left, right=right, kind=kind):
            lefts, rights = columns_of(left), columns_of(right)
            if kind in ("right", "full"):
                lefts = tuple(ColumnType(c.type) for c in lefts)
            if kind in ("left", "full"):
                rights = tuple(ColumnType(c.type) for c in rights)
            return lefts + rights


def column_type(scalar: Scalar) -> ColumnType:
    """Return the type of a column that has the values of `scalar`."""
    match scalar:
        case Column(type=type, nullable=nullable) | OuterColumn(type=type, nullable=nullable):
            return ColumnType(type, nullable)
        case Literal(value=value, type=type):
            return ColumnType(type, value is None)
        case Parameter(type=type, nullable=nullable):
            return ColumnType(type, nullable)
        case Exists():
            return ColumnType(BOOL, False)
        case _:
            return ColumnType(type_of(scalar))
