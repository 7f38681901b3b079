"""The registry: look up functions by key, and resolve names and types to keys.

    resolve("+", (INT4, INT8))        -> Resolved("add(int8,int8)", (INT8, INT8), INT8)
    resolve_cast(INT4, TEXT, "explicit")
    resolve_aggregate("avg", (INT4,)) -> core aggregates and a scalar over them
    resolve_table("generate_series", (INT4, INT4))
    scalar_function("add(int8,int8)") -> signature, kernel, renderings

Keys are stable names within plans; they are not SQL. Importing this module loads all families.
"""

from collections.abc import Collection, Sequence
from dataclasses import replace
from importlib import import_module

from foreshore.errors import CannotCoerce, DatatypeMismatch, InternalError, UserError
from foreshore.expr.bounds import never_overflows
from foreshore.expr.columns import type_of
from foreshore.expr.functions import resolve as _resolve
from foreshore.expr.functions.aggregates import ResolvedAggregate, resolve_aggregate
from foreshore.expr.functions.casts import Context, cast_context, resolve_cast
from foreshore.expr.functions.function import (
    BY_KEY,
    NO_LITERAL,
    SCALARS,
    TABLES,
    Literals,
    Resolved,
    ScalarFunction,
    Signature,
    numeric_of_text,
)
from foreshore.expr.functions.python import python_scalar
from foreshore.expr.functions.resolve import select_common_type
from foreshore.expr.functions.tables import ResolvedTable, resolve_table
from foreshore.expr.ir import Call, Scalar
from foreshore.python_functions.definition import is_python
from foreshore.types import TYPES, SqlType, category_of, without_modifiers

_FAMILIES = (
    "arithmetic",
    "comparison",
    "conditional",
    "numeric",
    "parts",
    "floats",
    "angles",
    "number_templates",
    "moments",
    "buckets",
    "casting",
    "unsigned",
    "number",
    "number_casts",
    "number_sums",
    "whole_numbers",
    "text",
    "intervals",
    "datetime",
    "fields",
    "bins",
    "stamps",
    "overlapping",
    "templates",
    "template_reading",
    "octets",
    "bit_strings",
    "unicode_forms",
    "checksums",
    "hashes",
    "stored_sizes",
    "identifiers",
    "acls",
    "pattern",
    "regexp_forms",
    "jsonb",
    "jsonb_changes",
    "jsonb_building",
    "jsonb_casts",
    "jsonwritten",
    "jsonpaths",
    "arrays",
    "extracted_rows",
    "records",
    "json_records",
    "shaped",
    "keyword_rows",
    "lists",
    "maps",
    "ordered_sets",
    "combining",
    "vectors",
    "windows",
    "enums",
    "ranges",
    "network",
    "zones",
    "midnights",
    "zoned_clocks",
    "amounts",
    "system",
)

for _family in _FAMILIES:
    import_module(f"foreshore.expr.functions.{_family}")

from foreshore.expr.functions.fields import total_unit  # noqa: E402
from foreshore.expr.functions.pattern import total_pattern  # noqa: E402


def _total_forms() -> dict[str, str]:
    """Declare the forms that cannot fail once an argument is known; key to key."""
    forms: dict[str, str] = {}
    for key, function in list(BY_KEY.items()):
        if function.name in _KNOWN and function.fallible:
            total = key.replace("(", "_total(", 1)
            BY_KEY[total] = replace(function, key=total, fallible=False)
            forms[key] = total
    return forms


_KNOWN = frozenset(
    ["extract", "date_part", "date_trunc", "~~", "!~~", "~~*", "!~~*", "~", "!~", "~*", "!~*"]
)
_TOTAL = _total_forms()
_WIDTHS = (frozenset({"int2", "int4", "int8"}), frozenset({"float4", "float8"}))
_COMMON = {"coalesce": "COALESCE", "greatest": "GREATEST", "least": "LEAST"}
_DISTINCT = {"is distinct from": "is_distinct", "is not distinct from": "is_not_distinct"}


def scalar_function(key: str) -> ScalarFunction:
    """Return the function with the key `key`."""
    function = BY_KEY.get(key)
    if function is None and is_python(key):
        return python_scalar(key)
    if function is None:
        raise InternalError(f"no function {key}")
    return function


def scalar_names() -> Collection[str]:
    """Return the SQL names of the scalar functions and operators."""
    return {*SCALARS, *_COMMON, "nullif"}


def function_exists(name: str) -> bool:
    """Return whether a scalar function has the SQL name `name`."""
    return name in SCALARS or name in _COMMON or name == "nullif"


def resolve(name: str, arg_types: Sequence[SqlType], literals: Literals = None) -> Resolved:
    """Return the resolved call of the function or operator `name` over these argument types.

    Also accepts coalesce, greatest, least, nullif, `is distinct from` and `is not distinct from`.
    `literals` may give the datum of each literal argument (`NO_LITERAL` for others), from which the
    scale of round(x, 2), or of a numeric compared with '1.5', follows. Raises UndefinedFunction,
    AmbiguousFunction, DatatypeMismatch.
    """
    if name in _COMMON:
        common = select_common_type(arg_types)
        if common is None:
            raise _no_common(_COMMON[name], arg_types)
        return Resolved(name, (common,) * len(arg_types), common)
    if name in _DISTINCT:
        equality = _resolve.resolve("=", arg_types, literals)
        return Resolved(_DISTINCT[name], equality.arg_types, equality.result)
    if name == "nullif":
        equality = _resolve.resolve("=", arg_types, literals)
        left, right = equality.arg_types
        if any(left.name in kind and arg_types[0].name in kind for kind in _WIDTHS):
            left = arg_types[0]  # unchanged when compared with a wider number
        return Resolved("nullif", (left, right), left)
    resolved = _resolve.resolve(name, arg_types, literals)
    total = _TOTAL.get(resolved.key)
    if total is not None and literals is not None and _cannot_fail(resolved, literals):
        return Resolved(total, resolved.arg_types, resolved.result)
    return resolved


def _cannot_fail(resolved: Resolved, literals: tuple[object, ...]) -> bool:
    if resolved.key.startswith(("extract", "date_")):
        return total_unit(resolved.key, literals, resolved.arg_types)
    return total_pattern(resolved.key, literals)


def _no_common(what: str, types: Sequence[SqlType]) -> UserError:
    """Return the error of CASE, COALESCE and similar over types without a common type."""
    first, other = _unlike(types)
    if category_of(first) == category_of(other):
        preferred = TYPES[other.name].preferred and not TYPES[first.name].preferred
        source, target = (first, other) if preferred else (other, first)
        return CannotCoerce(f"{what} could not convert type {source} to {target}")
    return DatatypeMismatch(f"{what} types {first} and {other} cannot be matched")


def _unlike(types: Sequence[SqlType]) -> tuple[SqlType, SqlType]:
    known = [t for t in types if t.name != "unknown"]
    for i in range(2, len(known) + 1):
        if select_common_type(known[:i]) is None:
            return known[0], known[i - 1]
    return known[0], known[-1]


def signature(call: Call) -> Signature:
    """Return the types of a call."""
    return Signature(tuple(map(type_of, call.args)), call.type)


def may_fail(scalar: Scalar) -> bool:
    """Return whether evaluating `scalar` itself, apart from its operands, may fail."""
    return (
        isinstance(scalar, Call)
        and scalar_function(scalar.function).may_fail(signature(scalar))
        and not never_overflows(scalar)
    )


__all__ = [
    "NO_LITERAL",
    "TABLES",
    "Context",
    "Resolved",
    "ResolvedAggregate",
    "ResolvedTable",
    "ScalarFunction",
    "cast_context",
    "function_exists",
    "may_fail",
    "numeric_of_text",
    "resolve",
    "resolve_aggregate",
    "resolve_cast",
    "resolve_table",
    "scalar_function",
    "select_common_type",
    "signature",
    "without_modifiers",
]
