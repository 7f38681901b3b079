"""Conditions that the rows found by a look-up are held to before they are copied.

A condition is five integers: a word of the row, the least and the greatest value that it may have,
and the mask word and bit by which it is NULL, -1 if it is never.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foreshore.compute.flow.batch import Ints, Words
from foreshore.compute.flow.convert import is_direct, words_of_values
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import Layout, kind_of
from foreshore.compute.flow.shared import Shared
from foreshore.datum import to_array
from foreshore.expr.columns import type_of
from foreshore.expr.functions.decimals import scale_of
from foreshore.expr.ir import Call, Column, Literal, Scalar
from foreshore.types import SqlType

_LEAST, _GREATEST = -(1 << 63), (1 << 63) - 1
_SWAPPED = {"eq": "eq", "lt": "gt", "le": "ge", "gt": "lt", "ge": "le"}


@dataclass(frozen=True, slots=True, eq=False)
class Conditions(Shared):
    """Conditions, and the numbers of the strings among their bounds, which stay as long."""

    bounds: Words
    pinned: Ints


NO_CONDITIONS = Conditions(np.empty((0, 5), np.int64), np.empty(0, np.int64))


def split_conditions(
    filters: Sequence[Scalar], layout: Layout, interner: Interner
) -> tuple[Conditions, tuple[Scalar, ...]]:
    """Return the filters over rows of a layout that are conditions as such, and the others."""
    found: list[tuple[int, ...]] = []
    others: list[Scalar] = []
    for scalar in filters:
        condition = _condition(scalar, layout, interner)
        if condition is None:
            others.append(scalar)
        else:
            found.append(condition)
    strings = [low for word, low, *_ in found if low > 0 and word in _words_of_strings(layout)]
    pinned = np.array(strings, np.int64)
    if strings:
        interner.pin(pinned)
    return Conditions(np.array(found, np.int64).reshape(-1, 5), pinned), tuple(others)


def _words_of_strings(layout: Layout) -> set[int]:
    return {place.word for place in layout.places if place.kind == "bytes"}


def _condition(scalar: Scalar, layout: Layout, interner: Interner) -> tuple[int, ...] | None:
    match scalar:
        case Call("is_not_null", (Column() as column,)):
            bounds: tuple[int, int] | None = (_LEAST, _GREATEST)
        case Call(function, (Column() as column, Literal() as literal)) if function in _SWAPPED:
            bounds = _bounds(function, type_of(column), literal, interner)
        case Call(function, (Literal() as literal, Column() as column)) if function in _SWAPPED:
            bounds = _bounds(_SWAPPED[function], type_of(column), literal, interner)
        case _:
            return None
    if bounds is None:
        return None
    place = layout.places[column.index]
    mask, bit = divmod(place.bit, 64) if place.bit >= 0 else (0, -1)
    return place.word, *bounds, mask, bit


def _bounds(
    function: str, type: SqlType, literal: Literal, interner: Interner
) -> tuple[int, int] | None:
    """Return the least and the greatest word that compares so to a literal; None if unknown."""
    kind, other = kind_of(type), kind_of(literal.type)
    is_text = kind == "bytes" and function == "eq" and is_direct(type) and is_direct(literal.type)
    is_number = kind == "int" and type.name == literal.type.name
    if type.name == "numeric":
        is_number = is_number and scale_of(type) == scale_of(literal.type)
    if kind != other or not (is_text or is_number) or literal.value is None:
        return None
    column = to_array([literal.value], literal.type)
    (word,) = words_of_values(column, literal.type, "row", interner)[0].tolist()
    match function:
        case "eq":
            return word, word
        case "lt":
            return (_LEAST, word - 1) if word > _LEAST else None
        case "le":
            return _LEAST, word
        case "gt":
            return (word + 1, _GREATEST) if word < _GREATEST else None
        case _:
            return word, _GREATEST
