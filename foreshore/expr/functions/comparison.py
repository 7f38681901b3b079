"""Operators that compare values by SQL's order and equality (`expr/equality.py`)."""

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import UndefinedFunction
from foreshore.expr.equality import DAY, equal_column, is_plain, key_column
from foreshore.expr.functions.decimals import rescale, unscaled, wide
from foreshore.expr.functions.function import (
    BY_KEY,
    One,
    Outcome,
    Renderer,
    Signature,
    hidden,
    overload,
)
from foreshore.types import (
    NUMERIC_DIGITS,
    RANGE_TYPES,
    SqlType,
    is_float,
    parts_of,
)

_ARROW: dict[str, Callable[..., pa.Array]] = {
    "eq": pc.equal,
    "ne": pc.not_equal,
    "lt": pc.less,
    "le": pc.less_equal,
    "gt": pc.greater,
    "ge": pc.greater_equal,
}
_NUMPY: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
OPERATORS = {"eq": "=", "ne": "<>", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}

# Types without an operator =, so that they have no order either.
_UNEQUAL = frozenset({"json", "jsonpath"})


def _has_unequal(type: SqlType) -> bool:
    return type.name in _UNEQUAL or any(map(_has_unequal, parts_of(type)))


def is_comparable(type: SqlType) -> bool:
    """Return whether values of `type` are equal or ordered."""
    return not _has_unequal(type)


def check_equality(type: SqlType) -> None:
    """Raise UndefinedFunction if values of `type` cannot be grouped or told apart."""
    if _has_unequal(type):
        raise UndefinedFunction(f"could not identify an equality operator for type {type}")


def check_ordering(type: SqlType) -> None:
    """Raise UndefinedFunction if values of `type` have no order."""
    if _has_unequal(type):
        raise UndefinedFunction(
            f"could not identify an ordering operator for type {type}",
            hint="Use an explicit ordering operator or modify the query.",
        )


def interval_totals(array: pa.Array) -> Any:
    """Return the microseconds by which each interval is compared, 0 for NULL."""
    fields = [
        array.field(name).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        for name in ("months", "days", "micros")
    ]
    days = fields[0] * 30 + fields[1]
    if len(days) and int(np.abs(days).max()) > 50_000_000:
        return wide(days) * DAY + wide(fields[2])
    low, high = (int(fields[2].min()), int(fields[2].max())) if len(days) else (0, 0)
    if max(abs(low), abs(high)) > 2**62:
        return wide(days) * DAY + wide(fields[2])
    return days * DAY + fields[2]


def _float(kind: str, a: pa.Array, b: pa.Array) -> pa.Array:
    plain = _ARROW[kind](a, b)
    nan_a, nan_b = pc.is_nan(a), pc.is_nan(b)
    if not (pc.any(nan_a).as_py() or pc.any(nan_b).as_py()):
        return plain
    ranks = _ARROW[kind](nan_a.cast(pa.int8()), nan_b.cast(pa.int8()))
    return pc.if_else(pc.or_(nan_a, nan_b), ranks, plain)


def compare(kind: str, types: Sequence[SqlType], a: pa.Array, b: pa.Array) -> pa.Array:
    """Return `a kind b`, NULL where either is NULL."""
    first, second = types[0], types[1]
    if is_plain(first) and is_plain(second):
        return _ARROW[kind](a, b)
    if first.name in ("float4", "float8"):
        return _float(kind, a, b)
    valid = pc.and_(a.is_valid(), b.is_valid())
    if first.name == "numeric":
        scale = max(first.scale or 0, second.scale or 0)
        x = rescale(unscaled(a), scale - (first.scale or 0))
        y = rescale(unscaled(b), scale - (second.scale or 0))
        result = _NUMPY[kind](x, y)
    elif first.name == "number":
        return _numbers(kind, a, b)
    elif first.name == "interval":
        result = _NUMPY[kind](interval_totals(a), interval_totals(b))
    else:
        keys = equal_column if kind in ("eq", "ne") else key_column
        return _ARROW[kind](keys(a, first), keys(b, second))
    return pc.if_else(valid, pa.array(np.asarray(result, dtype=bool)), pa.scalar(None, pa.bool_()))


def _numbers(kind: str, a: pa.Array, b: pa.Array) -> pa.Array:
    """Compare the values of numbers, then what their decimals do not hold."""
    valid = pc.and_(a.is_valid(), b.is_valid())
    same = pc.equal(a.field("value"), b.field("value"))
    first = _ARROW[kind](a.field("value"), b.field("value"))
    then = _ARROW[kind](a.field("rest"), b.field("rest"))
    return pc.if_else(valid, pc.if_else(same, then, first), pa.scalar(None, pa.bool_()))


def number_key(dialect: Renderer, sql: str) -> str:
    """Return SQL for what identifies and orders a number, whatever its display scale."""
    if dialect.name == "duckdb":
        made = f"{{'value': ({sql}).value, 'rest': ({sql}).rest}}"
    else:
        made = f"named_struct('value', ({sql}).value, 'rest', ({sql}).rest)"
    return f"(CASE WHEN {sql} IS NOT NULL THEN {made} END)"


def _kernel(kind: str) -> Callable[..., Outcome]:
    return lambda types, a, b: compare(kind, types.args, a, b)


def equal_or_both_null(types: Sequence[SqlType], a: pa.Array, b: pa.Array) -> pa.Array:
    """Return whether the two are not distinct; never NULL."""
    same = compare("eq", types, a, b).fill_null(False)
    return pc.or_(same, pc.and_(a.is_null(), b.is_null()))


def comparable(dialect: Renderer, types: Signature, args: Sequence[str]) -> tuple[str, str] | None:
    """Return both sides in forms that the engine compares as SQL does, or None."""
    first, second = types.args[0], types.args[1]
    if (is_plain(first) and is_plain(second)) or is_float(first):
        return args[0], args[1]
    if first.name == "numeric":
        return (args[0], args[1]) if first.scale == second.scale else None
    if first.name == "interval":
        return interval_key(dialect, args[0]), interval_key(dialect, args[1])
    if first.name == "number":
        return number_key(dialect, args[0]), number_key(dialect, args[1])
    if first.element is not None and is_plain(first.element) and dialect.name == "duckdb":
        return args[0], args[1]
    return None


def interval_key(dialect: Renderer, sql: str) -> str:
    """Return SQL for the microseconds by which an interval is compared."""
    wide_type = "HUGEINT" if dialect.name == "duckdb" else "DECIMAL(28,0)"
    return f"(CAST(({sql}).months AS {wide_type}) * 30 + ({sql}).days) * {DAY} + ({sql}).micros"


def _mixed_scales(
    kind: str, dialect: Renderer, types: Signature, args: Sequence[str]
) -> str | None:
    """Compare numerics of different scales; what exceeds the larger scale compares beyond it."""
    (s, t), (a, b) = (types.args[0].scale or 0, types.args[1].scale or 0), args
    operator = OPERATORS[kind]
    common = f"DECIMAL({NUMERIC_DIGITS},{max(s, t)})"
    low = a if s < t else b
    direct = (
        f"TRY_CAST({a} AS {common}) {operator} {b}"
        if s < t
        else f"{a} {operator} TRY_CAST({b} AS {common})"
    )
    zero = f"CAST(0 AS DECIMAL({NUMERIC_DIGITS},{min(s, t)}))"
    if kind in ("eq", "ne"):
        beyond = "FALSE" if kind == "eq" else "TRUE"
    else:
        beyond = f"{low} {operator} {zero}" if s < t else f"{zero} {operator} {low}"
    return f"CASE WHEN {a} IS NOT NULL AND {b} IS NOT NULL THEN COALESCE({direct}, {beyond}) END"


def _rendering(kind: str) -> Callable[[Renderer, Signature, Sequence[str]], str | None]:
    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
        if types.args[0].name == "numeric" and types.args[0].scale != types.args[1].scale:
            return _mixed_scales(kind, dialect, types, args)
        sides = comparable(dialect, types, args)
        if sides is None:
            return None
        return f"({sides[0]} {OPERATORS[kind]} {sides[1]})"

    return render


def _distinct(negated: bool) -> Callable[[Renderer, Signature, Sequence[str]], str | None]:
    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
        sides = comparable(dialect, types, args)
        if sides is None:
            return None
        if dialect.name == "duckdb":
            word = "IS NOT DISTINCT FROM" if negated else "IS DISTINCT FROM"
            return f"({sides[0]} {word} {sides[1]})"
        same = f"({sides[0]} <=> {sides[1]})"
        return same if negated else f"(NOT {same})"

    return render


def _one(kind: str) -> One:
    """Return a comparison of two data whose order in Python is SQL's: texts by code point."""
    compute: Callable[[Any, Any], bool] = getattr(operator, kind)
    return lambda types: compute if all(map(is_plain, types.args)) else None


for _kind in _ARROW:
    hidden(
        _kind,
        "any any",
        "bool",
        _kernel(_kind),
        one=_one(_kind),
        duckdb=_rendering(_kind),
        spark=_rendering(_kind),
    )
hidden(
    "is_distinct",
    "any any",
    "bool",
    lambda types, a, b: pc.invert(equal_or_both_null(types.args, a, b)),
    strict=False,
    duckdb=_distinct(False),
    spark=_distinct(False),
)
hidden(
    "is_not_distinct",
    "any any",
    "bool",
    lambda types, a, b: equal_or_both_null(types.args, a, b),
    strict=False,
    duckdb=_distinct(True),
    spark=_distinct(True),
)

NAMES = {"eq": "=", "ne": "<> !=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
_SAME = [
    "bool",
    "bytea",
    "char",
    "name",
    "int8",
    "int2",
    "int4",
    "text",
    "oid",
    "xid",
    "cid",
    "bpchar",
    "date",
    "time",
    "timestamp",
    "timestamptz",
    "interval",
    "numeric",
    "number",
    "float4",
    "float8",
    "uuid",
    "jsonb",
    "mz_timestamp",
    "money",
    "timetz",
    "anyenum",
    "anyrecord",
    "anylist",
    "anymap",
    "anyshaped",
    "uint2",
    "uint4",
    "uint8",
    *sorted(RANGE_TYPES),
    "inet",
    "macaddr",
    "bit",
    "varbit",
    "oidvector",
    "int2vector",
]
_CROSS = {
    "int2 int4": "int4",
    "int2 int8": "int8",
    "int4 int8": "int8",
    "float4 float8": "float8",
    "date timestamp": "timestamp",
    "date timestamptz": "timestamptz",
    "timestamp timestamptz": "timestamptz",
    "name text": "text",
    "uint2 int2": "int4",
    "uint2 int4": "int4",
    "uint2 int8": "int8",
    "uint4 int2": "int8",
    "uint4 int4": "int8",
    "uint4 int8": "int8",
    "uint2 uint4": "uint4",
    "uint2 uint8": "uint8",
    "uint4 uint8": "uint8",
}

for _kind, _surface in NAMES.items():
    _function = BY_KEY[_kind]
    for _t in _SAME:
        if _t in ("int2vector", "oidvector") and _kind not in ("eq", "ne"):
            continue
        overload(_surface, f"{_t} {_t}", _function, f"{_t} {_t}")
    for _pair, _wider in _CROSS.items():
        _left, _right = _pair.split()
        overload(_surface, f"{_left} {_right}", _function, f"{_wider} {_wider}")
        overload(_surface, f"{_right} {_left}", _function, f"{_wider} {_wider}")
    overload(_surface, "anyarray anyarray", _function, "anyarray anyarray")
    for _t in "date timestamp timestamptz int2 int4 int8 numeric number".split():  # mz_now() <= t
        overload(_surface, f"mz_timestamp {_t}", _function, "mz_timestamp mz_timestamp")
        overload(_surface, f"{_t} mz_timestamp", _function, "mz_timestamp mz_timestamp")


hidden(
    "order_bytes",
    "any",
    "bytea",
    lambda types, a: key_column(a, types.args[0]),
)
