"""Coercion: convert scalars to the type that their context requires.

There are three contexts, as in PostgreSQL: *implicit* (an operand), *assignment* (a column's value)
and *explicit* (a cast). A literal of unknown type is read once, here, by the input function of its
type, so that an invalid literal is an error with a position. An undeclared parameter takes the
type.
"""

import re
from collections.abc import Sequence
from contextlib import suppress

from foreshore.bits import fitted, parse_bits
from foreshore.digits import is_digits
from foreshore.errors import (
    CannotCoerce,
    DatabaseError,
    DataError,
    DatatypeMismatch,
    FeatureNotSupported,
)
from foreshore.expr.columns import type_of
from foreshore.expr.functions.casting import array_of_text, is_of_sized_strings
from foreshore.expr.functions.registry import (
    Context,
    numeric_of_text,
    resolve,
    resolve_cast,
    select_common_type,
    without_modifiers,
)
from foreshore.expr.ir import Call, Column, Environment, Literal, Parameter, Scalar
from foreshore.expr.number_cost import digits_written
from foreshore.number_text import INTEGERS
from foreshore.shaped import has_shape, shaped_of
from foreshore.sql.bind.planning import Planning, located
from foreshore.sql.bind.record_columns import columns_of_record, make_record
from foreshore.sql.bind.reg_values import (
    reg_constant,
    reg_name,
    reg_names,
    reg_of_text,
    reg_of_texts,
)
from foreshore.text import parse_text
from foreshore.types import (
    BIT_TYPES,
    DATE,
    INT4,
    NUMBER,
    NUMERIC,
    REG_NAMES,
    TEXT,
    TIMESTAMPTZ,
    UNKNOWN,
    VECTORS,
    SqlType,
    array_of,
    category_of,
    item_of,
    shaped_array,
)

_BIGINT_DIGITS = 19
# Digits that `1e100000` and its kind write out in a literal; with more it is cast at execution.
MOST_DIGITS_READ = 10_000
_MOMENTS = frozenset(("now", "today", "tomorrow", "yesterday"))
_CLOCKS = frozenset(("time", "timetz"))
_WORDS = re.compile("|".join(_MOMENTS), re.IGNORECASE)
_DAYS = {"today": 0, "tomorrow": 1, "yesterday": -1}


def is_unknown(scalar: Scalar) -> bool:
    """Return whether the scalar is of unknown type: a bare literal, NULL or parameter."""
    return type_of(scalar).name == "unknown"


def coerce(
    planning: Planning, scalar: Scalar, target: SqlType, context: Context, at: int
) -> Scalar | None:
    """Return `scalar` as a `target`, or None if not allowed in this context.

    The type of the result differs from `target` only in modifiers, and only where `target` has
    none.
    """
    source = type_of(scalar)
    if context == "explicit" and source.name == "shaped" and target.element is not None:
        target = shaped_array(target.element)  # a cast keeps the shape
    if source == target:
        return scalar
    if isinstance(scalar, Parameter):
        read = planning.parameters.read_as(planning, scalar, target, context, at)
        if read is not None:
            return read
    vector_element = VECTORS.get(source.name)
    if vector_element is not None and target.element is not None:
        # The physical form of a vector is that of the array to which it casts.
        source = array_of(vector_element)
        scalar = Call("relabel", (scalar,), source)
        if source == target:
            return scalar
    if isinstance(scalar, Literal) and scalar.value is None:
        if source != UNKNOWN and resolve_cast(source, target, context) is None:
            return None
        return Literal(None, target)
    if source == UNKNOWN:
        if isinstance(scalar, Literal):
            return literal_of(planning, scalar.value, target, context, at)
        if isinstance(scalar, Parameter):
            # Names of objects but relations are looked up by the plan: its argument has texts.
            wanted = target
            if context != "assignment" and target.name in REG_NAMES and target.name != "regclass":
                wanted = TEXT
            elif context != "assignment" and _is_of_names(target):
                wanted = array_of(TEXT)
            scalar = planning.parameters.learn(scalar.number, wanted, at)
            source = scalar.type
            if source == target:
                return scalar
    if source.name == target.name == "record" and isinstance(scalar, Call | Literal):
        return _row_as(planning, scalar, target, context, at)
    if source.name in REG_NAMES and category_of(target) == "S":
        if context == "implicit":
            return None
        with located(at):
            return cast(planning, reg_name(planning, scalar), target, at)
    if target.name in REG_NAMES and category_of(source) == "S":
        if context == "assignment":
            return None
        text = coerce(planning, scalar, TEXT, "implicit", at)
        assert text is not None
        with located(at):
            return reg_of_text(planning, text, target)
    if _is_of_names(target) and "S" in (category_of(source), category_of(source.element or source)):
        return None if context == "implicit" else _oids_of_names(planning, scalar, target, at)
    if _is_of_names(source) and "S" in (category_of(target), category_of(target.element or target)):
        if context == "implicit":
            return None
        with located(at):
            return cast(planning, reg_names(planning, scalar), target, at)
    between = _between_arrays(source, target)
    if between is not None:
        half = coerce(planning, scalar, between, context, at)
        if half is None or target.element is not None:
            return None if half is None else coerce(planning, half, target, context, at)
        scalar, source = half, type_of(half)
        target = shaped_array(source.element or item_of(target))
    resolved = resolve_cast(source, target, context)
    if resolved is None:
        return None
    if isinstance(scalar, Literal):
        if resolved.key == "relabel":
            return Literal(scalar.value, resolved.result)
        folded = _fold(scalar, resolved.result)
        if folded is not None:
            return folded
    if resolved.key == "relabel" and resolved.result == source:
        return scalar
    return planning.zone.applied(Call(resolved.key, (scalar,), resolved.result))


def _between_arrays(source: SqlType, target: SqlType) -> SqlType | None:
    """Return the plain array that a cast between a plain array and one of any shape goes through.

    It is None if they have the same elements, or are no such arrays.
    """
    if source.element is not None and target.name == "shaped":
        return None if source.element == item_of(target) else array_of(item_of(target))
    if source.name == "shaped" and target.element is not None:
        return None if item_of(source) == target.element else array_of(item_of(source))
    return None


def _oids_of_names(planning: Planning, names: Scalar, target: SqlType, at: int) -> Scalar:
    """Return the oids of the objects that an array of texts, or its text, names."""
    with located(at):
        return reg_of_texts(planning, cast(planning, names, array_of(TEXT), at), target)


def _row_as(
    planning: Planning, row: Call | Literal, target: SqlType, context: Context, at: int
) -> Scalar | None:
    """Return a record with each of its columns coerced, if they are known one by one."""
    source = type_of(row)
    if len(source.members) != len(target.members) or not target.members:
        return None
    if isinstance(row, Literal) and row.value is None:
        return Literal(None, target)
    if isinstance(row, Call) and row.function != "row(any)":
        resolved = resolve_cast(source, target, context)
        return None if resolved is None else Call(resolved.key, (row,), resolved.result)
    items = []
    for column, member in zip(columns_of_record(row), target.members, strict=True):
        item: Scalar | None
        if isinstance(column, Literal) and column.type == TEXT and column.value is None:
            item = Literal(None, member.type)
        elif isinstance(column, Literal) and column.type == TEXT:
            item = literal_of(planning, column.value, member.type, context, at)
        else:
            item = coerce(planning, column, member.type, context, at)
        if item is None:
            return None
        items.append(item)
    return make_record(tuple(items), target)


_TIMES = frozenset(("date", "timestamp", "timestamptz"))
# A date or local time becomes a moment to compare with without an error, however late it is.
_COMPARED = {
    "cast(date,timestamp)": "compared(date,timestamp)",
    "cast(date,timestamptz)": "compared(date,timestamptz)",
    "timezone(text,timestamp)": "compared(text,timestamp)",
}


def are_different_times(*args: Scalar) -> bool:
    """Return whether the arguments are dates, timestamps and timestamptz, of more than one type."""
    names = {type_of(arg).name for arg in args}
    return len(names) > 1 and names <= _TIMES


def to_compare(arg: Scalar, coerced: Scalar) -> Scalar:
    """Return `coerced`, which a comparison makes of `arg`, so that no time is out of range.

    PostgreSQL compares a date beyond what timestamps hold as later than all of them. Here it is the
    last one: it is equal to that one microsecond, and in order with all other times.
    """
    if coerced is arg or not isinstance(coerced, Call) or coerced.function not in _COMPARED:
        return coerced
    *zone, inner = coerced.args
    return Call(_COMPARED[coerced.function], (*zone, to_compare(arg, inner)), coerced.type)


def _fold(literal: Literal, target: SqlType) -> Literal | None:
    """Return a number as a constant of another type, if that is exact and cannot fail."""
    value, source = literal.value, literal.type.name
    if source in INTEGERS:
        if target.name in INTEGERS:
            low, high = INTEGERS[target.name]
            return Literal(value, target) if low <= value <= high else None
        if target.name == "mz_timestamp" and value >= 0:
            return Literal(value, target)
        if target.name == "float8" and abs(value) < 2**53:
            return Literal(float(value), target)
    if source == "number" and target.name in ("float4", "float8"):
        try:
            return Literal(parse_text(value, target), target)
        except DataError:
            return None
    if target.name in ("numeric", "number") and (
        source in INTEGERS or source in ("numeric", "number")
    ):
        try:
            return Literal(parse_text(str(value), target), target)
        except (DataError, FeatureNotSupported):
            return None
    return None


def _is_of_names(type: SqlType) -> bool:
    """Return whether a type is an array of a `reg*` type."""
    return type.element is not None and type.element.name in REG_NAMES


def literal_of(planning: Planning, text: str, target: SqlType, context: Context, at: int) -> Scalar:
    """Return `text` as a constant of type `target`, read by the type's input function."""
    if target == UNKNOWN:
        return Literal(text, UNKNOWN)
    if _is_moment(text, target):
        return _moment(planning, text.strip().lower(), target, at)
    if target.name in REG_NAMES and not is_digits(text.strip()):
        if text == "-":
            return literal_of(planning, "0", target, "explicit", at)
        return reg_constant(planning, text, target, at)
    if _is_of_names(target):
        names = array_of_text(text, array_of(TEXT))
        if not all(name is None or is_digits(str(name)) for name in names):
            return _oids_of_names(planning, Literal(names, array_of(TEXT)), target, at)
    if context != "assignment" and target.element is not None and has_shape(text):
        target = shaped_array(target.element)
    element = item_of(target) if target.name == "shaped" else target.element
    if element is not None and element.name in (*_TIMES, *_CLOCKS):
        array = _array_of_moments(planning, text, target, element, at)
        if array is not None:
            return array
    if _has_numbers(target) and digits_written((text,)) > MOST_DIGITS_READ:
        resolved = resolve_cast(TEXT, target, "explicit")
        if resolved is not None:
            return Call(resolved.key, (Literal(text, TEXT),), resolved.result)
    if context == "explicit":
        if target in (NUMERIC, NUMBER):
            with located(at):
                return literal_of_number(text)
        if target.name in ("varchar", "bpchar") and target.length is not None:
            text = text[: target.length]
        elif target.name in BIT_TYPES:
            with located(at):
                text = fitted(parse_bits(text), target)
        elif is_of_sized_strings(target) and target.name == "shaped":
            texts = literal_of(planning, text, shaped_array(TEXT), "assignment", at)
            return cast(planning, texts, target, at)
        elif is_of_sized_strings(target):
            with located(at):
                return Literal(array_of_text(text, target), target)
    elif target == NUMERIC and context == "implicit":
        target = numeric_of_text(text)
    try:
        return Literal(planning.zone.read(text, target), target)
    except DatabaseError:
        with located(at):
            planning.zone.read(text, without_modifiers(target))
        raise  # of what is longer than declared PostgreSQL says no position


def _has_numbers(type: SqlType) -> bool:
    """Whether values of a type are numbers of any length, or have such."""
    return type.name.startswith("num") or (type.element is not None and _has_numbers(type.element))


def _is_moment(text: str, target: SqlType) -> bool:
    """Return whether a text is that of a time which is known at execution."""
    if target.name in _CLOCKS:
        return text.strip().lower() == "now"
    return target.name in _TIMES and text.strip().lower() in _MOMENTS


def _array_of_moments(
    planning: Planning, text: str, target: SqlType, element: SqlType, at: int
) -> Scalar | None:
    """Return an array one of whose elements is known at execution; None for any other."""
    if not _WORDS.search(text) or (target.name == "array" and has_shape(text)):
        return None
    shape, of_texts = None, shaped_array(TEXT)
    with located(at):
        if target.name == "shaped":
            shape = Literal(parse_text(text, of_texts), of_texts)
            items = shaped_of(shape.value, of_texts).items
        else:
            items = array_of_text(text, array_of(TEXT))
    texts = [None if item is None else str(item) for item in items]
    if not any(item is not None and _is_moment(item, element) for item in texts):
        return None
    scalars = [
        Literal(None, element)
        if item is None
        else literal_of(planning, item, element, "assignment", at)
        for item in texts
    ]
    array = Call("array", tuple(scalars), array_of(element))
    if shape is None:
        return array
    return Call("reshaped(anyarray,anyshaped)", (array, shape), target)


def _moment(planning: Planning, word: str, target: SqlType, at: int) -> Scalar:
    """Return the scalar of `now`, `today`, ..., evaluated at execution."""
    scalar: Scalar = Environment("now", TIMESTAMPTZ)
    if word != "now":
        scalar = cast(planning, scalar, DATE, at)
        found = resolve("+", (DATE, INT4))
        scalar = Call(found.key, (scalar, Literal(_DAYS[word], INT4)), found.result)
    result = coerce(planning, scalar, target, "explicit", at)
    assert result is not None
    return result


def common_type(
    scalars: Sequence[Scalar], what: str, offsets: Sequence[int], *, keeps_digits: bool = False
) -> SqlType:
    """Return the common type of the scalars; raises DatatypeMismatch.

    Scalars of unknown type take the type of the others without length or scale: `'1.555'` keeps its
    value beside a numeric(5,2). NULL fits any type. If it `keeps_digits`, constants of several
    scales are numerics without one, so that each shows its own digits.
    """
    types = [type_of(scalar) for scalar in scalars]
    common = select_common_type(types)
    if common is not None:
        common = select_common_type([_room_for(s, common) for s in scalars]) or common
        if keeps_digits and common.name == "numeric" and _differ_in_scale(scalars, common):
            return NUMBER
        if common.element is not None and any(map(is_text_with_shape, scalars)):
            return shaped_array(common.element)
        return common
    known = [(t, at) for t, at in zip(types, offsets, strict=True) if t != UNKNOWN]
    for i in range(2, len(known) + 1):
        if select_common_type([t for t, _ in known[:i]]) is None:
            # The last type does not match the common type of those before.
            before = select_common_type([t for t, _ in known[: i - 1]])
            raise DatatypeMismatch(
                f"{what} types {before} and {known[i - 1][0]} cannot be matched",
                position=known[i - 1][1] + 1,
            )
    raise AssertionError(types)


def is_text_with_shape(scalar: Scalar) -> bool:
    """Return whether the scalar is a text that, as an array, has dimensions or bounds."""
    if not isinstance(scalar, Literal) or scalar.type != UNKNOWN or scalar.value is None:
        return False
    return has_shape(scalar.value)


def _differ_in_scale(scalars: Sequence[Scalar], common: SqlType) -> bool:
    """Return whether all are constants, of numerics that show different numbers of digits.

    Text of an unknown type that no planned scale holds, as NaN, differs from all.
    """
    if not all(isinstance(scalar, Literal) for scalar in scalars):
        return False
    known = [s for s in scalars if not (isinstance(s, Literal) and s.value is None)]
    types = [_room_for(scalar, common) for scalar in known]
    return NUMERIC in types or len({type.scale or 0 for type in types}) > 1


def _room_for(scalar: Scalar, common: SqlType) -> SqlType:
    """Return the type of the scalar or, if unknown, the type of kind `common` that holds it."""
    if not is_unknown(scalar):
        return type_of(scalar)
    if isinstance(scalar, Literal):
        if scalar.value is None:
            return UNKNOWN
        if common.name == "numeric":
            return numeric_of_text(scalar.value)
    return without_modifiers(common)


def to_common(planning: Planning, scalar: Scalar, common: SqlType, what: str, at: int) -> Scalar:
    """Return `scalar` as the common type."""
    result = coerce(planning, scalar, common, "implicit", at)
    if result is None:
        raise CannotCoerce(
            f"{what} could not convert type {type_of(scalar)} to {common}", position=at + 1
        )
    if type_of(result) != common and isinstance(result, Literal):
        # A literal keeps its own scale unless the context requires another, as here.
        recast = coerce(planning, result, common, "explicit", at)
        return result if recast is None else recast
    return result


def to_known(planning: Planning, scalar: Scalar, at: int) -> Scalar:
    """Return `scalar` with unknown type resolved to text, as in output columns."""
    if not is_unknown(scalar):
        return scalar
    result = coerce(planning, scalar, TEXT, "implicit", at)
    assert result is not None
    return result


def cast(planning: Planning, scalar: Scalar, target: SqlType, at: int) -> Scalar:
    """Return CAST(scalar AS target)."""
    result = coerce(planning, scalar, target, "explicit", at)
    if result is None:
        raise CannotCoerce(
            f"cannot cast type {type_of(scalar)} to {target}",
            detail=_why_rows_differ(planning, scalar, target, at),
            position=at + 1,
        )
    return result


def _why_rows_differ(planning: Planning, scalar: Scalar, target: SqlType, at: int) -> str | None:
    """Return why a record cannot be cast to a type of records; None of other types."""
    members, wanted = type_of(scalar).members, target.members
    if type_of(scalar).name != "record" or target.name != "record" or not members or not wanted:
        return None
    if len(members) != len(wanted):
        return f"Input has too {'few' if len(members) < len(wanted) else 'many'} columns."
    for place, (given, member) in enumerate(zip(members, wanted, strict=True), 1):
        if coerce(planning, Column(0, given.type), member.type, "explicit", at) is None:
            return f"Cannot cast type {given.type} to {member.type} in column {place}."
    return None


def assign(planning: Planning, scalar: Scalar, target: SqlType, column: str, at: int) -> Scalar:
    """Return `scalar` as a value of the column; raises DatatypeMismatch."""
    if (
        isinstance(scalar, Literal)
        and scalar.type == UNKNOWN
        and scalar.value is not None
        and target == NUMERIC
    ):
        with located(at):
            return Literal(parse_text(scalar.value, NUMERIC), NUMERIC)
    result = coerce(planning, scalar, target, "assignment", at)
    if result is None:
        raise DatatypeMismatch(
            f'column "{column}" is of type {target} but expression is of type {type_of(scalar)}',
            hint="You will need to rewrite or cast the expression.",
            position=at + 1,
        )
    return result


def number(text: str) -> Literal:
    """Return the constant of a number in the text: int4, int8 or numeric.

    A numeric has a planned scale if that holds all its digits.
    """
    digits = text.lstrip("+-")
    if is_digits(digits) and len(digits.lstrip("0")) <= _BIGINT_DIGITS:
        value = int(text)
        for name in ("int4", "int8"):
            low, high = INTEGERS[name]
            if low <= value <= high:
                return Literal(value, SqlType(name))
    return literal_of_number(text)


def literal_of_number(text: str) -> Literal:
    """Return the constant of a numeric that shows the digits of `text`; raises a DataError."""
    type = numeric_of_text(text)
    if type != NUMERIC:
        with suppress(DataError, FeatureNotSupported):
            return Literal(parse_text(text, type), type)
    return Literal(parse_text(text, NUMBER), NUMBER)


def has_gained_shape(scalar: Scalar, target: SqlType) -> bool:
    """Return whether a text, read as a plain array, has turned out to have a shape."""
    return target.element is not None and type_of(scalar).name == "shaped"
