"""Aggregates over the rows of a group, as functions of the tuples of their arguments."""

from collections.abc import Callable, Sequence
from decimal import Context, Decimal, InvalidOperation
from typing import Any

from foreshore.compute.render.exact import comoment_float, sum_float
from foreshore.compute.rows.ordering import SortKey, sort_of, sort_rows
from foreshore.compute.rows.source import NotCompiled, TooMany
from foreshore.errors import NumericValueOutOfRange
from foreshore.expr.columns import column_type, type_of
from foreshore.expr.equality import has_one_form, is_plain, python_key
from foreshore.expr.ir import Aggregate
from foreshore.types import NUMERIC_DIGITS, ColumnType, Datum, SqlType, is_float

Entry = tuple[Datum, ...]  # the aggregate's arguments for a row, then the keys of its order
Finish = Callable[[list[Entry]], Datum]

_INTEGERS = frozenset({"int2", "int4", "int8", "uint2", "uint4", "oid", "money"})
_EXACT = Context(prec=2 * NUMERIC_DIGITS)


def finish_of(aggregate: Aggregate) -> Finish:
    """Return the function that computes an aggregate from the entries of a group's rows.

    Rows that its filter leaves out are not among them. Raises NotCompiled.
    """
    make = _FINISHES.get(aggregate.function)
    if make is None:
        raise NotCompiled(aggregate.function)
    finish = make(aggregate)
    if not aggregate.distinct or not aggregate.args:
        return finish
    keys = [_equal_form(type_of(arg)) for arg in aggregate.args]

    def distinct(entries: list[Entry]) -> Datum:
        firsts: dict[tuple[Any, ...], Entry] = {}
        for entry in entries:
            key = tuple(
                None if datum is None else of(datum) for datum, of in zip(entry, keys, strict=False)
            )
            firsts.setdefault(key, entry)
        return finish(list(firsts.values()))

    return distinct


def _equal_form(type: SqlType) -> Callable[[Any], Any]:
    if not has_one_form(type) and not is_float(type):
        raise NotCompiled(f"distinct values of {type.name}")
    return (lambda datum: datum) if is_plain(type) else lambda datum: python_key(datum, type)


def _count(aggregate: Aggregate) -> Finish:
    if not aggregate.args:
        return len
    width = len(aggregate.args)
    if width == 1:
        return lambda entries: sum([entry[0] is not None for entry in entries])
    return lambda entries: sum([None not in entry[:width] for entry in entries])


def _sum(aggregate: Aggregate) -> Finish:
    type = type_of(aggregate.args[0])
    scale = aggregate.type.scale or 0
    if type.name in _INTEGERS and aggregate.type.name == "numeric" and not scale:

        def integers(entries: list[Entry]) -> Datum:
            data: list[Any] = [entry[0] for entry in entries if entry[0] is not None]
            return str(sum(data)) if data else None

        return integers
    if type.name != "numeric" or aggregate.type.name != "numeric" or aggregate.type.trim:
        raise NotCompiled(f"sum of {type.name}")

    def numerics(entries: list[Entry]) -> Datum:
        data = [Decimal(str(entry[0])) for entry in entries if entry[0] is not None]
        if not data:
            return None
        total = data[0]
        for each in data[1:]:
            total = _EXACT.add(total, each)
        try:
            total = _EXACT.quantize(total, Decimal(1).scaleb(-scale))
        except InvalidOperation as error:
            raise NumericValueOutOfRange("numeric field overflow") from error
        if len(total.as_tuple().digits) > NUMERIC_DIGITS:
            raise NumericValueOutOfRange("numeric field overflow")
        return format(total, "f")

    return numerics


def _sum_of_floats(aggregate: Aggregate) -> Finish:
    def finish(entries: list[Entry]) -> Datum:
        data: list[Any] = [(entry[0], 1) for entry in entries if entry[0] is not None]
        return sum_float(data) if data else None

    return finish


def _comoment(aggregate: Aggregate) -> Finish:
    def finish(entries: list[Entry]) -> Datum:
        data: list[Any] = [(x, y, 1) for x, y, *_ in entries if x is not None and y is not None]
        return comoment_float(data) if data else None

    return finish


def _extreme(aggregate: Aggregate) -> Finish:
    """Return the function that finds an extreme; it raises TooMany if equal ones look different."""
    type = type_of(aggregate.args[0])
    has_one = has_one_form(type)
    best = max if aggregate.function == "max" else min

    def key(datum: Datum) -> Any:
        return python_key(datum, type)

    def finish(entries: list[Entry]) -> Datum:
        data: list[Any] = [entry[0] for entry in entries if entry[0] is not None]
        found = best(data, key=key) if data else None
        if data and not has_one and len({repr(e) for e in data if key(e) == key(found)}) > 1:
            raise TooMany
        return found

    return finish


def _array(aggregate: Aggregate) -> Finish:
    keys, sort = sort_keys(aggregate), sort_of([ColumnType(type_of(e)) for e in aggregate.args])

    def finish(entries: list[Entry]) -> Datum:
        sort(entries, keys)
        return tuple([entry[0] for entry in entries]) if entries else None

    return finish


def _string(aggregate: Aggregate) -> Finish:
    keys = sort_keys(aggregate)

    def finish(entries: list[Entry]) -> Datum:
        entries = [entry for entry in entries if entry[0] is not None]
        sort_rows(entries, keys)
        return joined(entries)

    return finish


def joined(entries: Sequence[Entry]) -> Datum:
    """Return texts with delimiters, the first one's left out; NULL if there are none."""
    parts: list[Any] = []
    for text, delimiter, *_ in entries:
        parts += (delimiter or text[:0], text)  # type: ignore[index]
    return parts[0][:0].join(parts[1:]) if parts else None


def sort_keys(aggregate: Aggregate) -> list[SortKey]:
    """Return the keys of the order of an aggregate's entries: its own, then all arguments."""
    width = len(aggregate.args)
    own = [
        SortKey(width + number, column_type(key.expr), key.descending, key.nulls_first)
        for number, key in enumerate(aggregate.order_by)
    ]
    rest = [
        SortKey(number, ColumnType(type_of(arg)), descending=False, nulls_first=False)
        for number, arg in enumerate(aggregate.args)
    ]
    return own + rest


_FINISHES: dict[str, Callable[[Aggregate], Finish]] = {
    "count": _count,
    "sum": _sum,
    "sum_float": _sum_of_floats,
    "comoment_float": _comoment,
    "min": _extreme,
    "max": _extreme,
    "array_agg": _array,
    "string_agg": _string,
}
