"""Find the part of an index, in the order of its key, that holds the rows of a query.

    Filter(Get v, a = 1 AND b >= 5 AND b < $1)              on (a, b): from (1, 5) to before (1, $1)
    Filter(Get v, a > 1 OR a = 1 AND b > 2)                 from after (1, 2): (a, b) > (1, 2)
    Get v, ORDER BY a LIMIT 10                              all, in order, until there are enough

NULL comes last in this order, and a comparison is TRUE for no NULL. The range may hold more rows
than the query has: the query's relation is evaluated over them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile

from foreshore.expr.ir import And, Call, Column, Or, OrderKey, Relation, Scalar
from foreshore.expr.keys import Constant, End, KeyRange
from foreshore.sql.optimize.lookup import (
    RANGES,
    TEXTS,
    as_read,
    constant_in,
    definitions_of,
    is_part,
    predicates_of,
)
from foreshore.types import SqlType

_FLIPPED = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq"}
_PLAIN = frozenset("bool int2 int4 int8 date time timestamp timestamptz numeric uuid".split())


@dataclass(frozen=True, slots=True)
class _Comparison:
    """The columns of a key from `first` on compare with `values` by `function`."""

    first: int
    function: str
    values: tuple[Constant, ...]


def key_range(
    relation: Relation, index_key: Sequence[Scalar], order_by: Sequence[OrderKey]
) -> KeyRange | None:
    """Return the range of an index on `index_key` that holds the rows of `relation`.

    `relation` is Map, Filter and Project over one Get, `order_by` the order that LIMIT cuts off, if
    any. None if all rows are needed, in any order.
    """
    parts = _ordered_parts(relation, index_key)
    if not parts:
        return None
    comparisons = [
        found for p in predicates_of(relation) if (found := _comparison(p, parts, 0)) is not None
    ]
    equal = _equal_values(comparisons)
    range = KeyRange(*_ends(comparisons, equal))
    direction = _direction(relation, order_by, parts, len(equal))
    if direction is not None:
        return replace(range, descending=direction == "descending", is_ordered=True)
    return range if range.low.values or range.high.values else None


def _ordered_parts(relation: Relation, index_key: Sequence[Scalar]) -> list[Column]:
    """Return the first columns of the key that an index keeps in the order of SQL."""
    parts = as_read(relation, index_key)
    columns = takewhile(lambda part: isinstance(part, Column) and has_key_order(part.type), parts)
    return [part for part in columns if isinstance(part, Column)]


def has_key_order(type: SqlType) -> bool:
    """Whether indexes keep values of a type in the order of SQL."""
    if type.name == "numeric":
        return type.length is not None and type.length <= 18
    return type.name in _PLAIN or type.name in TEXTS


def _equal_values(comparisons: Sequence[_Comparison]) -> tuple[Constant, ...]:
    """Return the values that the first columns of the key must have."""
    values = {each.first: each.values[0] for each in comparisons if each.function == "eq"}
    width = next(i for i in range(len(values) + 1) if i not in values)
    return tuple(values[i] for i in range(width))


def _ends(comparisons: Sequence[_Comparison], equal: tuple[Constant, ...]) -> tuple[End, End]:
    """Return the ends of the rows whose key begins with `equal`, as the comparisons bound them."""
    low = high = End(equal, decisive=len(equal))
    for each in comparisons:
        if each.first != len(equal) or each.function == "eq":
            continue
        end = End((*equal, *each.values), each.function in ("ge", "le"), decisive=len(equal) + 1)
        if each.function in ("gt", "ge") and len(low.values) == len(equal):
            low = end
        elif each.function in ("lt", "le") and len(high.values) == len(equal):
            high = end
    if len(low.values) > len(equal) == len(high.values):
        high = End(equal, before_null=True, decisive=len(equal))
    return low, high


def _comparison(predicate: Scalar, parts: Sequence[Column], first: int) -> _Comparison | None:
    """Return what a predicate says of columns of the key."""
    match predicate:
        case Call(function=function, args=(a, b)) if function in _FLIPPED:
            return _of_columns(function, a, b, parts) or _of_columns(
                _FLIPPED[function], b, a, parts
            )
        case Or(args=(one, other)):
            return _of_rows(one, other, parts) or _of_rows(other, one, parts)
        case _:
            return None


def _of_columns(
    function: str, scalar: Scalar, value: Scalar, parts: Sequence[Column]
) -> _Comparison | None:
    known = constant_in(value)
    if known is None:
        return None
    for place, part in enumerate(parts):
        if is_part(scalar, part) and _is_comparable(known.type, part.type):
            return _Comparison(place, function, (known,))
    return None


def _of_rows(strict: Scalar, rest: Scalar, parts: Sequence[Column]) -> _Comparison | None:
    """Return (a, b) > (x, y) for a > x OR a = x AND b > y, and its like for more columns."""
    beyond = _comparison(strict, parts, 0)
    if beyond is None or beyond.function not in ("lt", "gt") or not isinstance(rest, And):
        return None
    equal = _comparison(rest.args[0], parts, 0)
    if equal is None or (equal.first, equal.function) != (beyond.first, "eq"):
        return None
    if equal.values != beyond.values:
        return None
    inner = _comparison(rest.args[1], parts, 0) if len(rest.args) == 2 else None
    if inner is None or inner.first != beyond.first + 1 or inner.function[0] != beyond.function[0]:
        return None
    return _Comparison(beyond.first, inner.function, (*beyond.values, *inner.values))


def _is_comparable(value: SqlType, key: SqlType) -> bool:
    """Whether a value compares with keys in their order."""
    groups = (RANGES.keys() | {"numeric"}, TEXTS)
    same = any(value.name in group and key.name in group for group in groups)
    return same or value.name == key.name


def _direction(
    relation: Relation, order_by: Sequence[OrderKey], parts: Sequence[Column], equal: int
) -> str | None:
    """Return the direction in which the index has the query's order, if it has it."""
    definitions = definitions_of(relation)
    if not order_by or definitions is None:
        return None
    descending = order_by[0].descending
    place = 0
    for key in order_by:
        if not isinstance(key.expr, Column):
            return None
        wanted = definitions[key.expr.index]
        while place < equal and wanted != parts[place]:
            place += 1  # all rows have the same value there
        if place >= len(parts) or wanted != parts[place] or key.descending != descending:
            return None
        if parts[place].nullable and key.nulls_first != descending:
            return None
        place += 1
    return "descending" if descending else "ascending"
