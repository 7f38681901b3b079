"""Bind constants of long lists column by column; see `sql/parse/long_lists.py`.

A column of integers is converted by the kernel of its cast. Arrow reads fractions that the column
holds as they are written, and `parse_column` strings; any other constant is converted by itself.
None is returned where a constant is no literal of the wanted type, or fails: then the caller binds
all rows one by one, which finds the first error and its position.
"""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from operator import itemgetter

import pyarrow as pa

from foreshore.datum import from_array, to_array
from foreshore.errors import DatabaseError
from foreshore.expr.columns import type_of
from foreshore.expr.evaluate import constant as computed
from foreshore.expr.evaluate import is_constant, outcome
from foreshore.expr.ir import Column, Literal, Scalar
from foreshore.parse_columns import parse_column
from foreshore.sql import ast
from foreshore.sql.ast.constant_list import integers, unquoted
from foreshore.sql.bind.coerce import number
from foreshore.types import BOOL, INT4, TEXT, UNKNOWN, Datum, SqlType, arrow_type

INTEGERS = ("int2", "int4", "int8")

Convert = Callable[[Scalar, int], Scalar]


def kinds_of(texts: list[str]) -> list[Scalar]:
    """Return a literal of each type that constants have."""
    if integers(texts) is not None:
        return [Literal(0, INT4)]
    if _begins(texts) == {"'"}:
        return [constant(texts[0])]
    found: dict[SqlType, Scalar] = {}
    for text in texts:
        scalar = constant(text)
        found.setdefault(type_of(scalar), scalar)
    return list(found.values())


def fits(texts: list[str], type: SqlType) -> bool:
    """Whether constants are compared with a `type` as they are: integers, or strings as text."""
    if type == TEXT:
        return _begins(texts) == {"'"}
    return type.name in INTEGERS and integers(texts) is not None


def _begins(texts: list[str]) -> set[str]:
    return set(map(itemgetter(0), texts))


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
    texts: list[str],
    at: int,
    type: SqlType,
    convert: Convert,
    through: Sequence[SqlType] | None = (),
) -> Sequence[Datum] | None:
    """Return constants after `convert`, which makes literals of `type`.

    `convert` takes a scalar and an offset for errors. It casts to the types `through` before; None:
    it does something else.
    """
    begins = _begins(texts)
    if begins & {"n", "N"} and begins - {"n", "N"}:
        given = [text for text in texts if text[0] not in "nN"]
        values = column_values(given, at, type, convert, through)
        null = column_values(["NULL"], at, type, convert, through)
        if values is None or null is None:
            return None
        rest = iter(values)
        return [null[0] if text[0] in "nN" else next(rest) for text in texts]
    numbers = integers(texts)
    try:
        if numbers is not None:
            return _converted(numbers, convert(Column(0, INT4, nullable=False), at), type)
        if through is not None and type_of(convert(constant(texts[0]), at)) == type:
            found = _as_written(texts, type, through)
            if found is not None:
                return found
        known: dict[str, Datum] = {}
        for text in texts:
            if text not in known:
                literal = _literal(convert(constant(text), at))
                if literal is None or literal.type != type:
                    return None
                known[text] = literal.value
    except DatabaseError:
        return None
    return [known[text] for text in texts]


def _literal(scalar: Scalar) -> Literal | None:
    """Return a converted constant as one; None if that is not known before execution."""
    if isinstance(scalar, Literal) or not is_constant(scalar):
        return scalar if isinstance(scalar, Literal) else None
    value = computed(scalar)
    return None if isinstance(value, str) else value


_TEXTS = ("text", "varchar")
_POSITIVE = r"(?:-(?=[0.]*+[1-9]))?+"  # or 0
_AS_WRITTEN = {
    "int8": r"-?[0-9]{1,19}",
    "float8": rf"{_POSITIVE}[0-9]{{1,15}}(?:\.[0-9]{{1,15}})?",
    "number": rf"{_POSITIVE}(?:0|[1-9][0-9]{{0,15}})(?:\.[0-9]{{1,15}})?",
}
# Types whose strings `parse_column` reads as a literal is read if they begin as a number does.
_READ_BY_COLUMN = frozenset(
    ("int2", "int4", "int8", "float4", "float8", "numeric", "date", "timestamp", "timestamptz")
)
_BEGINS_NUMBER = frozenset("+-0123456789")
_NAMES_ZONE = re.compile(
    r"'[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9:.]+(?:[+-][0-9]{2}(?::?[0-9]{2})?|Z)'", re.ASCII
)
LONGEST_READ = 100  # characters of a string that is read by column


@lru_cache(256)
def _written_form(type: SqlType) -> re.Pattern[str] | None:
    """Return what matches numbers that Arrow reads as PostgreSQL does; None if there are none."""
    if type.name == "numeric" and type.length is not None and type.scale:
        whole = type.length - type.scale
        return re.compile(rf"-?[0-9]{{1,{whole}}}(?:\.[0-9]{{1,{type.scale}}})?") if whole else None
    form = _AS_WRITTEN.get(type.name)
    return None if form is None else re.compile(form)


def _as_written(
    texts: list[str], type: SqlType, through: Sequence[SqlType] = ()
) -> Sequence[Datum] | None:
    """Return the values of constants if they are written as `type` has them.

    Strings are read by the type's input function. Raises its errors.
    """
    begins = _begins(texts)
    if begins == {"'"} and type.name in _TEXTS:
        longest = max(map(len, texts)) - 2
        keeps = (e.name in _TEXTS and (e.length or longest) >= longest for e in (type, *through))
        return list(map(unquoted, texts)) if all(keeps) else None
    if not all(_keeps(each, type) for each in through):
        return None
    if begins == {"'"}:
        return _read_strings(texts, type)
    form = _written_form(type)
    if form is None or not all(map(form.fullmatch, texts)):
        return None
    if type.name == "number":
        return texts
    try:
        return from_array(pa.array(texts, pa.string()).cast(arrow_type(type)), type)
    except pa.ArrowInvalid:  # no int8
        return None


def _keeps(cast: SqlType, type: SqlType) -> bool:
    """Return whether values of a `type` are the same after a cast before."""
    if cast.name != type.name or cast.element is not None:
        return False
    return cast == type or (cast.length is None and (cast.scale or 0) >= (type.scale or 0))


def _read_strings(texts: list[str], type: SqlType) -> Sequence[Datum] | None:
    """Return the values of strings, by the input function of a type; None if it is not known."""
    if type.name not in _READ_BY_COLUMN or (type.name == "numeric" and type.length is None):
        return None
    if not {text[1] for text in texts} <= _BEGINS_NUMBER or max(map(len, texts)) > LONGEST_READ:
        return None  # "today", or an empty string
    if type.name == "timestamptz" and not all(map(_NAMES_ZONE.fullmatch, texts)):
        return None  # it depends on the session
    return from_array(parse_column(pa.array(map(unquoted, texts), pa.string()), type, "UTC"), type)


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
