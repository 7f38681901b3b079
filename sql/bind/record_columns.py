"""Records as scalars: made of the columns of a row, and taken apart into them."""

from foreshore.expr.columns import type_of
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.structured import stored, values_of
from foreshore.types import INT4, SqlType

_ROW = "row(any)"


def make_record(items: tuple[Scalar, ...], type: SqlType) -> Scalar:
    """Return the record of scalars that have the types of its columns."""
    literals = [item for item in items if isinstance(item, Literal)]
    if len(literals) == len(items):
        return Literal(stored([literal.value for literal in literals], type), type)
    return Call(_ROW, items, type)


def columns_of_record(record: Scalar) -> tuple[Scalar, ...]:
    """Return the columns of a record."""
    return tuple(column_at(record, place) for place in range(len(type_of(record).members)))


def column_at(record: Scalar, place: int) -> Scalar:
    """Return the column of a record at a place from 0."""
    type = type_of(record)
    column = type.members[place].type
    if isinstance(record, Call) and record.function == _ROW:
        return record.args[place]
    if isinstance(record, Literal):
        value = None if record.value is None else values_of(record.value, type)[place]
        return Literal(value, column)
    return Call("column(anyrecord,int4)", (record, Literal(place, INT4)), column)
