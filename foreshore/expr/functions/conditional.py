"""Functions on NULL and truth values, and functions that choose among their arguments.

Arguments of `coalesce` after the first non-NULL one are not evaluated, so their errors do not
occur. `evaluate` and the dialects implement that; the kernel only chooses.
"""

from collections.abc import Sequence
from functools import reduce

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.expr.functions.comparison import comparable, compare
from foreshore.expr.functions.function import (
    Kernel,
    Outcome,
    Renderer,
    Rendering,
    Signature,
    declare,
    hidden,
)


def template(text: str) -> Rendering:
    """Return a rendering that substitutes the arguments, the same on both engines."""
    return lambda dialect, types, args: text.format(*args)


def _coalesce(types: Signature, *arrays: pa.Array) -> Outcome:
    return reduce(lambda a, b: pc.if_else(a.is_valid(), a, b), arrays)


def _nullif(types: Signature, a: pa.Array, b: pa.Array) -> Outcome:
    same = compare("eq", types.args, a, b).fill_null(False)
    return pc.if_else(same, pa.scalar(None, a.type), a)


def _extreme(kind: str) -> Kernel:
    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        def better(a: pa.Array, b: pa.Array) -> pa.Array:
            wins = compare(kind, (types.result, types.result), b, a).fill_null(False)
            return pc.if_else(pc.or_(wins, a.is_null()), b, a)

        return reduce(better, arrays)

    return kernel


def _extreme_sql(name: str) -> Rendering:
    def render(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
        if types.result.name in ("interval", "jsonb", "number") or types.result.element is not None:
            return None
        return f"{name}({', '.join(args)})" if len(args) > 1 else args[0]

    return render


def _nullif_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str | None:
    sides = comparable(dialect, types, args)
    if sides is None:
        return None
    return f"CASE WHEN {sides[0]} = {sides[1]} THEN NULL ELSE {args[0]} END"


def _coalesce_sql(dialect: Renderer, types: Signature, args: Sequence[str]) -> str:
    return f"COALESCE({', '.join(args)})"


def _declare(key: str, args: str, kernel: Kernel, text: str, *, strict: bool = False) -> None:
    rendering = template(text)
    hidden(key, args, "bool", kernel, strict=strict, duckdb=rendering, spark=rendering)


hidden(
    "coalesce",
    "anyelement",
    "anyelement",
    _coalesce,
    strict=False,
    variadic=True,
    duckdb=_coalesce_sql,
    spark=_coalesce_sql,
)
hidden(
    "nullif",
    "any any",
    "any",
    _nullif,
    strict=False,
    duckdb=_nullif_sql,
    spark=_nullif_sql,
)
for _name, _kind in (("greatest", "gt"), ("least", "lt")):
    hidden(
        _name,
        "anyelement",
        "anyelement",
        _extreme(_kind),
        strict=False,
        variadic=True,
        duckdb=_extreme_sql(_name),
        spark=_extreme_sql(_name),
    )

_declare("is_null", "any", lambda types, a: a.is_null(), "({0} IS NULL)")


def _count_nulls(wanted: bool) -> Kernel:
    """Return the kernel that counts the arguments that are NULL, or those that are not."""

    def kernel(types: Signature, *arrays: pa.Array) -> pa.Array:
        flags = [array.is_null() if wanted else array.is_valid() for array in arrays]
        total = flags[0].cast(pa.int32())
        for flag in flags[1:]:
            total = pc.add(total, flag.cast(pa.int32()))
        return total

    return kernel


for _name, _wanted in (("num_nulls", True), ("num_nonnulls", False)):
    declare(_name, "any", "int4", _count_nulls(_wanted), strict=False, variadic=True)
_declare("is_not_null", "any", lambda types, a: a.is_valid(), "({0} IS NOT NULL)")
_declare("not", "bool", lambda types, a: pc.invert(a), "(NOT {0})", strict=True)
_declare("is_true", "bool", lambda types, a: a.fill_null(False), "COALESCE({0}, FALSE)")
_declare(
    "is_not_true",
    "bool",
    lambda types, a: pc.invert(a.fill_null(False)),
    "NOT COALESCE({0}, FALSE)",
)
_declare(
    "is_false", "bool", lambda types, a: pc.invert(a.fill_null(True)), "NOT COALESCE({0}, TRUE)"
)
_declare("is_not_false", "bool", lambda types, a: a.fill_null(True), "COALESCE({0}, TRUE)")
_declare("is_unknown", "bool", lambda types, a: a.is_null(), "({0} IS NULL)")
_declare("is_not_unknown", "bool", lambda types, a: a.is_valid(), "({0} IS NOT NULL)")
# Markers that plans put around a value without changing it.
hidden(
    "relabel",
    "any",
    "any",
    lambda types, a: a,
    strict=False,
    duckdb=template("{0}"),
    spark=template("{0}"),
)
