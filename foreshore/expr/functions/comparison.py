"""Comparison: the order and equality of the values of each type in SQL.

NaN equals NaN and is greater than all other floats, -0.0 equals 0.0. Text compares by bytes
(collation C). Intervals compare by length with months of 30 days, numerics by value whatever their
scale, arrays element by element with NULL greatest, and jsonb as PostgreSQL's btree does.

`order_keys` returns Python values with the order and equality of a column's values, for sorting or
hashing rows without an engine.
"""

import operator
import struct
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore import numbers
from foreshore.errors import UndefinedFunction
from foreshore.expr.datum import from_array
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
    REG_NAMES,
    SORTED_BYTES,
    UNCONSTRAINED_SCALE,
    SqlType,
    parts_of,
)

DAY = 86_400_000_000
_WIDE = Context(prec=80)

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

# Types whose order in Arrow and both engines is SQL's.
PLAIN = frozenset(
    [
        "bool",
        "bytea",
        "char",
        "name",
        "int8",
        "int2",
        "int4",
        "text",
        "oid",
        "bpchar",
        "varchar",
        "date",
        "time",
        "timestamp",
        "timestamptz",
        "uuid",
        "xid",
        "cid",
        "mz_timestamp",
        "money",
        "unknown",
        "uint2",
        "uint4",
        "enum",
        *REG_NAMES,
        *SORTED_BYTES,
    ]
)


# Types without an operator =, so that they have no order either.
_UNEQUAL = frozenset({"json", "jsonpath"})


def _has_unequal(type: SqlType) -> bool:
    return type.name in _UNEQUAL or any(map(_has_unequal, parts_of(type)))


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


def order_keys(array: pa.Array, type: SqlType) -> list[Any]:
    """Return for each row a value with SQL's order and equality; None for NULL."""
    if type.name == "interval":
        totals = interval_totals(array).tolist()
        return [t if v else None for t, v in zip(totals, array.is_valid().to_pylist(), strict=True)]
    return [None if d is None else order_key(d, type) for d in from_array(array, type)]


def order_key(value: Any, type: SqlType) -> Any:
    """Return the key of one datum (not NULL)."""
    if type.element is not None:
        element = type.element
        return tuple((1, 0) if v is None else (0, order_key(v, element)) for v in value)
    match type.name:
        case "float4" | "float8":
            return (1, 0.0) if value != value else (0, value + 0.0)
        case "interval":
            return (value[0] * 30 + value[1]) * DAY + value[2]
        case "numeric":
            return Decimal(value)
        case "number":
            return numbers.order_key(numbers.number(value))
        case "jsonb":
            from foreshore.expr.functions.jsontext import json_order_key

            return json_order_key(value)
        case "text" | "varchar" | "bpchar" | "name" | "char" | "unknown":
            return value.encode()
        case "bool":
            return int(value)
        case _:
            return value


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
    if first.name in PLAIN:
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
        x, y = order_keys(a, first), order_keys(b, second)
        result = _pairwise(kind, x, y)
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


def _pairwise(kind: str, x: list[Any], y: list[Any]) -> Any:
    import operator

    holds = getattr(operator, kind)
    return [p is not None and q is not None and holds(p, q) for p, q in zip(x, y, strict=True)]


def _kernel(kind: str) -> Callable[..., Outcome]:
    return lambda types, a, b: compare(kind, types.args, a, b)


def equal_or_both_null(types: Sequence[SqlType], a: pa.Array, b: pa.Array) -> pa.Array:
    """Return whether the two are not distinct; never NULL."""
    same = compare("eq", types, a, b).fill_null(False)
    return pc.or_(same, pc.and_(a.is_null(), b.is_null()))


def comparable(dialect: Renderer, types: Signature, args: Sequence[str]) -> tuple[str, str] | None:
    """Return both sides in forms that the engine compares as SQL does, or None."""
    first, second = types.args[0], types.args[1]
    if first.name in PLAIN or first.name in ("float4", "float8"):
        return args[0], args[1]
    if first.name == "numeric":
        return (args[0], args[1]) if first.scale == second.scale else None
    if first.name == "interval":
        return interval_key(dialect, args[0]), interval_key(dialect, args[1])
    if first.name == "number":
        return number_key(dialect, args[0]), number_key(dialect, args[1])
    if first.element is not None and first.element.name in PLAIN and dialect.name == "duckdb":
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
    return lambda types: compute if PLAIN.issuperset(t.name for t in types.args) else None


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


def order_bytes(array: pa.Array, type: SqlType) -> list[bytes | None]:
    """Return for each row bytes with SQL's order and equality."""
    return [None if d is None else datum_bytes(d, type) for d in from_array(array, type)]


def datum_bytes(datum: Any, type: SqlType) -> bytes:
    """Return the bytes of one datum (not NULL) that define its order."""
    if type.element is not None:
        element = type.element
        parts = [b"\x02" if d is None else b"\x01" + _ended(datum_bytes(d, element)) for d in datum]
        return b"".join(parts) + b"\x00"
    match type.name:
        case "jsonb":
            from foreshore.expr.functions.jsontext import json_order_bytes

            return json_order_bytes(datum)
        case "float4" | "float8":
            return float_bytes(datum)
        case "interval":
            return int(order_key(datum, type) + 2**95).to_bytes(12, "big")
        case "number":
            value, rest = order_key(datum, type)
            return bytes(_unit_bytes(value, UNCONSTRAINED_SCALE) + rest)
        case "numeric":
            return _unit_bytes(Decimal(datum), type.scale or 0)
        case _ if isinstance(datum, bytes):
            return datum
        case "bool":
            return b"\x01" if datum else b"\x00"
        case _ if isinstance(datum, str):
            return datum.encode()
        case _ if isinstance(datum, tuple):
            return b"".join((d + 2**63).to_bytes(8, "big") for d in datum)
        case _:
            return (int(datum) + 2**63).to_bytes(8, "big")


def _unit_bytes(value: Decimal, scale: int) -> bytes:
    units = int(value.scaleb(scale, _WIDE))
    return int(units + 2**127).to_bytes(16, "big")


def _ended(data: bytes) -> bytes:
    """Return `data` with a terminator that keeps the order, so that none is a prefix of another."""
    return data.replace(b"\x00", b"\x00\xff") + b"\x00\x00"


def float_bytes(value: float) -> bytes:
    """Return the bytes that define the order of a double: NaN last, -0.0 as 0.0."""
    if value != value:
        return b"\xff" * 8
    (bits,) = struct.unpack(">Q", struct.pack(">d", value + 0.0))
    flipped = bits ^ (2**64 - 1) if bits >> 63 else bits | 2**63
    return int(flipped).to_bytes(8, "big")


hidden(
    "order_bytes",
    "any",
    "bytea",
    lambda types, a: pa.array(order_bytes(a, types.args[0]), pa.binary()),
)
