"""Bind aggregates with WITHIN GROUP: percentiles, mode, and hypothetical ranks.

    percentile_disc(0.5) WITHIN GROUP (ORDER BY x)
        = percentile_disc(0.5, array_agg(x ORDER BY x) FILTER (WHERE x IS NOT NULL))
    rank(5) WITHIN GROUP (ORDER BY x)
        = count(*) FILTER (WHERE x < 5) + 1

So they are core aggregates with a scalar over them, like all aggregates, and are maintained as
those are. A percentile of a maintained view sorts the values of each changed group.
"""

from collections.abc import Sequence
from typing import cast as cast_

from foreshore.errors import FeatureNotSupported, WrongObjectType
from foreshore.expr.columns import type_of
from foreshore.expr.functions.ordered_sets import is_ordered_set
from foreshore.expr.functions.registry import resolve_aggregate
from foreshore.expr.functions.resolve import implicitly_castable
from foreshore.expr.ir import (
    FALSE,
    Aggregate,
    And,
    Call,
    Case,
    Column,
    Literal,
    Or,
    OrderKey,
    Scalar,
)
from foreshore.sql import ast
from foreshore.sql.bind.binder import Binder
from foreshore.sql.bind.coerce import common_type, to_common, to_known
from foreshore.sql.bind.composed_aggregates import Composed, never_null, order_key
from foreshore.sql.bind.near_functions import undefined_function
from foreshore.sql.bind.planning import located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.rewrite.scalars import uses_row
from foreshore.types import BOOL, FLOAT8, INT8, INTERVAL, SqlType, array_of

_RANKS = frozenset(("rank", "dense_rank", "percent_rank", "cume_dist"))


def compose_ordered_set(
    binder: Binder, inner: Binder, name: str, expr: ast.FunctionCall
) -> Composed:
    """Return the composition of a call with WITHIN GROUP over the row at which it stands.

    `inner` binds the aggregated arguments, `binder` the direct ones.
    """
    assert expr.within_group is not None
    if name in _RANKS:
        return _rank(binder, inner, name, expr)
    if not is_ordered_set(name):
        args = [inner.bind(arg) for arg in (*expr.args, *(key.expr for key in expr.within_group))]
        with located(expr.at):
            resolve_aggregate(name, tuple(map(type_of, args)))
        raise WrongObjectType(
            f"{name} is not an ordered-set aggregate, so it cannot have WITHIN GROUP",
            position=expr.at + 1,
        )
    keys = tuple(order_key(inner, key) for key in expr.within_group)
    direct = tuple(binder.bind(arg) for arg in expr.args)
    types = [*map(type_of, direct), *(type_of(key.expr) for key in keys)]
    if len(keys) != 1 or len(direct) != (name != "mode"):
        raise undefined_function(name, types, expr.at)
    (key,) = keys
    value = key.expr
    if name == "percentile_cont":
        target = _continuous_type(type_of(value))
        if target is None:
            raise undefined_function(name, types, expr.at)
        value = to_common(binder.planning, value, target, name, expr.at)
    type = type_of(value)
    if type.element is not None:
        raise FeatureNotSupported(f"{name} of arrays is not supported", position=expr.at + 1)
    array = Aggregate(
        "array_agg",
        (value,),
        array_of(type),
        filter=Call("is_not_null", (value,), BOOL),
        order_by=(OrderKey(value, key.descending, key.nulls_first),),
    )
    values = Column(0, array.type)
    if name == "mode":
        return Composed((array,), Call("mode(anyarray)", (values,), type), (value,))
    several = type_of(direct[0]).element is not None
    fraction_type = array_of(FLOAT8) if several else FLOAT8
    if not implicitly_castable(type_of(direct[0]), fraction_type):
        raise undefined_function(name, types, expr.at)
    (fraction,) = binder.coerced(direct, (fraction_type,), (at_of(expr.args[0]),))
    patterns = {"percentile_disc": "anyarray"}
    pattern = patterns.get(name, f"{type.name}[]")
    fractions = "float8[]" if several else "float8"
    result = array.type if several else type
    # The array is the only column of `finish`; direct arguments are over the rows, and become
    # scalars over the groups with the rest of the query.
    return Composed(
        (array,),
        Call(f"{name}({fractions},{pattern})", (values, values), result),
        (value,),
        direct={0: fraction},
    )


def _continuous_type(type: SqlType) -> SqlType | None:
    if type.name == "interval":
        return INTERVAL
    return FLOAT8 if implicitly_castable(type, FLOAT8) else None


# --- hypothetical ranks ----------------------------------------------------------------------


def _rank(binder: Binder, inner: Binder, name: str, expr: ast.FunctionCall) -> Composed:
    assert expr.within_group is not None
    keys = tuple(order_key(inner, key) for key in expr.within_group)
    direct = tuple(binder.bind(arg) for arg in expr.args)
    if len(keys) != len(direct):
        types = [*map(type_of, direct), *(type_of(key.expr) for key in keys)]
        error = undefined_function(name, types, expr.at)
        error.hint = (
            f"To use the hypothetical-set aggregate {name}, the number of hypothetical direct "
            f"arguments (here {len(direct)}) must match the number of ordering columns "
            f"(here {len(keys)})."
        )
        raise error
    if any(uses_row(scalar, 0) for scalar in direct):
        raise FeatureNotSupported(
            f"an argument of {name} that depends on the group is not supported",
            position=expr.at + 1,
        )
    pairs = [
        _alike(binder, key, scalar, at_of(arg), syntax.at)
        for key, scalar, arg, syntax in zip(keys, direct, expr.args, expr.within_group, strict=True)
    ]
    before, equal = _before(inner, pairs, expr.at), _equal([(k.expr, v) for k, v in pairs])
    if name == "dense_rank":
        args = tuple(part for key, _ in pairs for part in never_null(key.expr))
        core = Aggregate("count", args, INT8, True, before)
    elif name == "cume_dist":
        core = Aggregate("count", (), INT8, False, Or((before, equal)))
    else:
        core = Aggregate("count", (), INT8, False, before)
    used = tuple(key.expr for key, _ in pairs)
    first: Scalar = Column(0, INT8, False)
    if name in ("rank", "dense_rank"):
        return Composed((core,), inner.call("+", (first, Literal(1, INT8)), expr.at), used)
    rows: Scalar = Column(1, INT8, False)
    if name == "cume_dist":
        first, rows = (inner.call("+", (n, Literal(1, INT8)), expr.at) for n in (first, rows))
    share = inner.call("/", tuple(_as_float(n) for n in (first, rows)), expr.at)
    if name == "percent_rank":
        none = inner.call("=", (rows, Literal(0, INT8)), expr.at)
        share = Case(((none, Literal(0.0, FLOAT8)),), share, FLOAT8)
    return Composed((core, Aggregate("count", (), INT8)), share, used)


def _as_float(scalar: Scalar) -> Scalar:
    return Call("cast(int8,float8)", (scalar,), FLOAT8)


def _alike(
    binder: Binder, key: OrderKey, scalar: Scalar, at: int, key_at: int
) -> tuple[OrderKey, Scalar]:
    """Return a key and its hypothetical value, of one type."""
    common = common_type((key.expr, scalar), "WITHIN GROUP", (key_at, at))
    planning = binder.planning
    column = to_common(planning, key.expr, common, "WITHIN GROUP", key_at)
    value = to_known(planning, to_common(planning, scalar, common, "WITHIN GROUP", at), at)
    return OrderKey(column, key.descending, key.nulls_first), value


def _before(binder: Binder, pairs: Sequence[tuple[OrderKey, Scalar]], at: int) -> Scalar:
    """Return whether the row sorts before the hypothetical values."""
    terms: list[Scalar] = []
    for i, (key, value) in enumerate(pairs):
        operator = ">" if key.descending else "<"
        less = binder.call(operator, (key.expr, value), at)
        first, last = (key.expr, value) if key.nulls_first else (value, key.expr)
        null = And((Call("is_null", (first,), BOOL), Call("is_not_null", (last,), BOOL)))
        term: Scalar = Or((less, null))
        if i:
            term = And((_equal([(k.expr, v) for k, v in pairs[:i]]), term))
        terms.append(term)
    return Or((*terms, FALSE)) if len(terms) > 1 else terms[0]


def _equal(pairs: Sequence[tuple[Scalar, Scalar]]) -> Scalar:
    tests = tuple(Call("is_not_distinct", pair, BOOL) for pair in pairs)
    return And(cast_("tuple[Scalar, ...]", tests)) if len(tests) > 1 else tests[0]
