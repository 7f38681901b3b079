"""Records: constructors, columns, and casts between records, lists or maps of other parts."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from foreshore.datum import from_array, to_array
from foreshore.expr.functions.apply import apply
from foreshore.expr.functions.casts import Context, resolve_cast
from foreshore.expr.functions.function import BY_KEY, Kernel, Outcome, Signature, hidden
from foreshore.shaped import shaped_of, stored_shaped
from foreshore.structured import pairs_of, stored, stored_map, values_of
from foreshore.types import Datum, SqlType, arrow_type, item_of, list_of


def over_rows(make: Callable[[Signature], Callable[..., Any]]) -> Kernel:
    """Return the kernel that applies `make(types)` to the data of each row; a NULL is None."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        compute = make(types)
        data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
        return to_array([compute(*row) for row in zip(*data, strict=True)], types.result)

    return kernel


def strictly(make: Callable[[Signature], Callable[..., Any]]) -> Kernel:
    """Return the kernel that applies `make(types)` to the data of rows without NULLs."""

    def whole(types: Signature) -> Callable[..., Any]:
        compute = make(types)
        return lambda *row: None if None in row else compute(*row)

    return over_rows(whole)


def _row(types: Signature, *arrays: pa.Array) -> Outcome:
    """Return records of the arguments."""
    if not arrays:
        return pa.array([b""], pa.binary())
    data = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
    return pa.array([stored(row, types.result) for row in zip(*data, strict=True)], pa.binary())


def _column(types: Signature, record: pa.Array, place: pa.Array) -> Outcome:
    """Return the column of each record at a place from 0."""
    rows = zip(record.to_pylist(), place.to_pylist(), strict=True)
    values = [None if d is None else values_of(d, types.args[0])[at] for d, at in rows]
    return to_array(values, types.result)


def _all_null(wanted: bool) -> Callable[[Signature], Callable[..., Any]]:
    """IS [NOT] NULL: whether all columns are (not) NULL."""

    def make(types: Signature) -> Callable[..., Any]:
        def test(datum: bytes | None) -> bool:
            if datum is None:
                return wanted
            return all((value is None) == wanted for value in values_of(datum, types.args[0]))

        return test

    return make


# --- casts ------------------------------------------------------------------------------------


def _parts(datum: bytes, type: SqlType) -> Sequence[Datum]:
    if type.name == "map":
        return tuple(pairs_of(datum, type).values())
    if type.name == "shaped":
        return shaped_of(datum, type).items
    return values_of(datum, type)


def _joined(datum: bytes, source: SqlType, target: SqlType, values: Sequence[Datum]) -> bytes:
    """Return the value of `target` that has `values` in place of the parts of `datum`."""
    if source.name == "map":
        return stored_map(dict(zip(pairs_of(datum, source), values, strict=True)), target)
    if source.name == "shaped":
        return stored_shaped(shaped_of(datum, source)._replace(items=tuple(values)), target)
    return stored(values, target)


def _recast(types: Signature, a: pa.Array, context: Context = "explicit") -> Outcome:
    """Cast each part of the values."""
    source, target = types.args[0], types.result
    data = a.to_pylist()
    rows = [() if datum is None else tuple(_parts(datum, source)) for datum in data]
    if source.name == "record":
        columns = [[row[i] if row else None for row in rows] for i in range(len(source.members))]
        done = [
            _cast_all(column, of.type, to.type)
            for column, of, to in zip(columns, source.members, target.members, strict=True)
        ]
        values = [tuple(column[i] for column, _ in done) for i in range(len(rows))]
        failed = [next((e[i] for _, e in done if e[i] is not None), None) for i in range(len(rows))]
    else:
        flat = [value for row in rows for value in row]
        items, errors = _cast_all(flat, item_of(source), item_of(target), context)
        values, failed = [], []
        at = 0
        for row in rows:
            end = at + len(row)
            values.append(tuple(items[at:end]))
            failed.append(next((e for e in errors[at:end] if e is not None), None))
            at = end
    result = [
        None if datum is None or error is not None else _joined(datum, source, target, row)
        for datum, error, row in zip(data, failed, values, strict=True)
    ]
    column = pa.array(result, pa.binary())
    if all(error is None for error in failed):
        return column
    return column, pa.array(failed, pa.string())


def _cast_all(
    values: Sequence[Datum], source: SqlType, target: SqlType, context: Context = "explicit"
) -> tuple[list[Datum], list[str | None]]:
    """Return the values cast to `target`, and the errors."""
    step = resolve_cast(source, target, context)
    assert step is not None, (source, target)
    array, errors = to_array(values, source), None
    if step.key != "relabel":
        array, errors = apply(BY_KEY[step.key], Signature((source,), step.result), [array])
    if array.type != arrow_type(step.result):
        array = array.cast(arrow_type(step.result))
    texts = [None] * len(values) if errors is None else errors.to_pylist()
    return from_array(array, step.result), texts


def _array_as_list(types: Signature, a: pa.Array) -> Outcome:
    """Return the lists of arrays' elements, cast to the items."""
    element = types.args[0].element
    assert element is not None, types
    of = list_of(element)
    lists = strictly(lambda _: lambda items: stored(items, of))(Signature(types.args, of), a)
    return _recast(Signature((of,), types.result), lists)


def _parts_may_fail(types: Signature) -> bool:
    for of, to in zip(types.args[0].members, types.result.members, strict=True):
        step = resolve_cast(of.type, to.type, "explicit")
        if step is None or (
            step.key != "relabel" and BY_KEY[step.key].may_fail(Signature((of.type,), step.result))
        ):
            return True
    return False


hidden("row(any)", "any", "record", _row, strict=False, variadic=True)
hidden("column(anyrecord,int4)", "anyrecord int4", "any", _column)
for _key, _wanted in (("record_is_null", True), ("record_is_not_null", False)):
    _test = over_rows(_all_null(_wanted))
    hidden(f"{_key}(anyrecord)", "anyrecord", "bool", _test, strict=False)
hidden("cast_array_to_list(anyarray)", "anyarray", "list", _array_as_list, fallible=True)
for _name in ("record", "list", "map", "shaped"):
    hidden(
        f"cast_{_name}(any{_name})",
        f"any{_name}",
        f"any{_name}",
        _recast,
        fallible=True,
        fails=_parts_may_fail,
    )
hidden(
    "assign_shaped(anyshaped)",
    "anyshaped",
    "anyshaped",
    partial(_recast, context="assignment"),
    fallible=True,
)
