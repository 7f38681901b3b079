"""Bind long lists of constants column by column; see `sql/parse/long_lists.py`.

A column of integers is converted by the kernel of its cast. Arrow reads fractions, ISO dates and
times that the column holds as they are written; any other constant is converted by itself. None is
returned where a constant is no literal of the wanted type, or fails: then the caller binds all rows
one by one, which finds the first error and its position.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

import pyarrow as pa

from foreshore.datum import from_array, to_array
from foreshore.errors import DatabaseError
from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import outcome
from foreshore.expr.ir import Column, Literal, Scalar
from foreshore.sql import ast
from foreshore.sql.ast.constant_rows import ConstantRows, integers, unquoted
from foreshore.sql.bind.coerce import number
from foreshore.types import BOOL, INT4, TEXT, UNKNOWN, Datum, SqlType, arrow_type

INTEGERS = ("int2", "int4", "int8")

Convert = Callable[[Scalar, int], Scalar]


def kinds_of(rows: ConstantRows, column: int) -> list[Scalar]:
    """Return a literal of each type that the constants of a column have."""
    texts = rows.columns[column]
    if integers(texts) is not None:
        return [Literal(0, INT4)]
    found: dict[SqlType, Scalar] = {}
    for text in texts:
        scalar = constant(text)
        found.setdefault(type_of(scalar), scalar)
    return list(found.values())


def fits(rows: ConstantRows, types: Sequence[SqlType]) -> bool:
    """Whether constants are compared with `types` as they are: integers, or strings as text."""
    if len(types) != rows.width:
        return False
    for column, type in enumerate(types):
        texts = rows.columns[column]
        strings = type == TEXT and all(text[0] == "'" for text in texts)
        if not strings and not (type.name in INTEGERS and integers(texts) is not None):
            return False
    return True


def constant(text: str) -> Scalar:
    """Return a constant as written, of unknown type if it is a string or NULL."""
    match ast.node_of_constant(text, 0):
        case ast.Number(text=digits):
            return number(digits)
        case ast.String(value=value):
            return Literal(value, UNKNOWN)
        case ast.Boolean(value=truth):
            return Literal(truth, BOOL)
    return Literal(None, UNKNOWN)


def column_values(
    rows: ConstantRows, column: int, type: SqlType, convert: Convert
) -> Sequence[Datum] | None:
    """Return a column's constants after `convert`, which makes literals of `type`.

    `convert` takes a scalar and an offset for errors.
    """
    texts = rows.columns[column]
    numbers = integers(texts)
    try:
        if numbers is not None:
            return _converted(numbers, convert(Column(0, INT4, nullable=False), rows.start), type)
        first = convert(constant(texts[0]), rows.start)
        if type == TEXT == type_of(first) and all(text[0] == "'" for text in texts):
            return list(map(unquoted, texts))
        if type_of(first) == type and (values := _as_written(texts, type)) is not None:
            return values
        known: dict[str, Datum] = {}
        for text in texts:
            if text not in known:
                scalar = convert(constant(text), rows.start)
                if not isinstance(scalar, Literal) or scalar.type != type:
                    return None
                known[text] = scalar.value
    except DatabaseError:
        return None
    return [known[text] for text in texts]


_DATE = r"[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}"
_AS_WRITTEN = {
    "date": f"'{_DATE}'",
    "timestamp": rf"'{_DATE}[ T][0-9]{{2}}:[0-9]{{2}}:[0-9]{{2}}(?:\.[0-9]{{1,6}})?'",
}


@lru_cache(256)
def _written_form(type: SqlType) -> re.Pattern[str] | None:
    """Return what matches constants that Arrow reads as PostgreSQL does; None if there are none."""
    if type.name == "numeric" and type.length is not None and type.scale:
        whole = type.length - type.scale
        return re.compile(rf"-?[0-9]{{1,{whole}}}(?:\.[0-9]{{1,{type.scale}}})?") if whole else None
    if type.name == "timestamp" and type.length not in (None, 6):
        return None
    form = _AS_WRITTEN.get(type.name)
    return None if form is None else re.compile(form)


def _as_written(texts: list[str], type: SqlType) -> Sequence[Datum] | None:
    """Return the values of constants if all are fractions, dates or times as `type` has them."""
    form = _written_form(type)
    if form is None or not all(map(form.fullmatch, texts)):
        return None
    is_quoted = texts[0][0] == "'"
    written = pa.array([text[1:-1] for text in texts] if is_quoted else texts, pa.string())
    try:
        return from_array(written.cast(arrow_type(type)), type)
    except pa.ArrowInvalid:  # February 30
        return None


def _converted(numbers: Sequence[int], scalar: Scalar, type: SqlType) -> Sequence[Datum] | None:
    """Return the values of a scalar over a column of integers."""
    if type_of(scalar) != type:
        return None
    if isinstance(scalar, Column):
        return numbers
    values, errors = outcome(scalar, [to_array(numbers, INT4)], len(numbers))
    if errors is not None and errors.null_count < len(errors):
        return None
    return from_array(values, type)
