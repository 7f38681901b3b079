"""Bind calls of window functions and the definitions of windows."""

from foreshore.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    GroupingError,
    InvalidColumnReference,
    UserError,
    WindowingError,
    WrongObjectType,
)
from foreshore.expr.columns import type_of
from foreshore.expr.functions.aggregates import is_aggregate
from foreshore.expr.functions.registry import NO_LITERAL, function_exists, resolve_aggregate
from foreshore.expr.functions.resolve import implicitly_castable
from foreshore.expr.functions.windows import (
    ResolvedWindow,
    check_offset,
    is_window_function,
    resolve_window,
    window_of_aggregate,
)
from foreshore.expr.ir import (
    Call,
    Column,
    Frame,
    FrameBound,
    Literal,
    OrderKey,
    Scalar,
    WindowFunction,
)
from foreshore.sql import ast
from foreshore.sql.bind.aggregate_call import both
from foreshore.sql.bind.binder import Binder, Clause
from foreshore.sql.bind.bound_query import order_key
from foreshore.sql.bind.coerce import coerce, is_unknown, to_known
from foreshore.sql.bind.near_functions import undefined_function
from foreshore.sql.bind.planning import located
from foreshore.sql.bind.positions import at_of
from foreshore.sql.bind.windows import BoundWindow, Windows, derived
from foreshore.sql.lower.outer_columns import has_subquery
from foreshore.sql.rewrite.scalars import map_scalar, uses_row
from foreshore.types import FLOAT8, INT8, INTERVAL, NUMERIC, SqlType

_INTEGERS = frozenset(("int2", "int4", "int8"))
_MOMENTS = frozenset(("date", "timestamp", "timestamptz", "time", "interval"))


def bind_window_call(binder: Binder, name: str, expr: ast.FunctionCall) -> Scalar:
    """Return the value of a call with OVER."""
    assert expr.over is not None
    if not (is_aggregate(name) or is_window_function(name)):
        return _not_a_window_function(binder, name, expr)
    windows = _windows_of(binder.clause, expr.at)
    inner = _within(binder, Clause("window functions", nested_window=True))
    found, args = _resolved(inner, name, expr)
    _check_call(name, expr)
    condition = None
    if expr.filter is not None:
        filtering = binder.over(Clause("FILTER"))
        condition = filtering.boolean(expr.filter, "FILTER")
    window = bind_over(binder, windows, expr.over)
    zone = binder.planning.zone

    def filled(scalar: Scalar) -> Scalar:
        return _with_columns(scalar, args)

    references = []
    for core in found.cores:
        core_args = tuple(zone.applied_within(filled(arg)) for arg in core.args)
        frame = window.frame if found.framed else core.frame
        kept = None if core.filter is None else filled(core.filter)
        function = WindowFunction(core.function, core_args, core.type, frame, both(kept, condition))
        references.append(windows.add(window, function))
    return _with_columns(found.finish, tuple(references))


def require_over(binder: Binder, name: str, expr: ast.FunctionCall) -> WrongObjectType:
    """Return the error of a call of a window function without OVER."""
    resolve_window(name, [type_of(binder.bind(arg)) for arg in expr.args])
    return WrongObjectType(f"window function {name} requires an OVER clause", position=expr.at + 1)


def _windows_of(clause: Clause, at: int) -> Windows:
    if clause.windows is not None:
        return clause.windows
    if clause.nested_window:
        raise WindowingError("window function calls cannot be nested", position=at + 1)
    if clause.nested:
        raise GroupingError(
            "aggregate function calls cannot contain window function calls", position=at + 1
        )
    raise WindowingError(f"window functions are not allowed in {clause.name}", position=at + 1)


def _within(binder: Binder, clause: Clause) -> Binder:
    """Return a binder of what a window function is over, where aggregates are allowed."""
    clause.aggregates = binder.clause.aggregates
    return binder.over(clause)


def _check_call(name: str, expr: ast.FunctionCall) -> None:
    if expr.distinct:
        raise FeatureNotSupported(
            "DISTINCT is not implemented for window functions", position=expr.at + 1
        )
    if expr.order_by:
        raise FeatureNotSupported(
            "aggregate ORDER BY is not implemented for window functions", position=expr.at + 1
        )
    if expr.filter is not None and not is_aggregate(name):
        raise FeatureNotSupported(
            "FILTER is not implemented for non-aggregate window functions", position=expr.at + 1
        )


def _not_a_window_function(binder: Binder, name: str, expr: ast.FunctionCall) -> Scalar:
    types = [type_of(binder.bind(arg)) for arg in expr.args]
    if not function_exists(name):
        raise undefined_function(name, types, expr.at)
    raise WrongObjectType(
        f"OVER specified, but {name} is not a window function nor an aggregate function",
        position=expr.at + 1,
    )


def _resolved(
    binder: Binder, name: str, expr: ast.FunctionCall
) -> tuple[ResolvedWindow, tuple[Scalar, ...]]:
    """Return the composition of a call, and its arguments."""
    if expr.star and name != "count" and is_aggregate(name):
        raise undefined_function(name, [], expr.at)
    args = tuple(binder.bind(arg) for arg in expr.args)
    if is_aggregate(name) and not args and not expr.star:
        raise WrongObjectType(
            f"{name}(*) must be used to call a parameterless aggregate function",
            position=expr.at + 1,
        )
    with located(expr.at):
        types = tuple(map(type_of, args))
        if is_aggregate(name):
            literals = tuple(a.value if isinstance(a, Literal) else NO_LITERAL for a in args)
            found = window_of_aggregate(resolve_aggregate(name, types, literals))
        else:
            found = resolve_window(name, types)
    return found, binder.coerced(args, found.arg_types, tuple(map(at_of, expr.args)))


def _with_columns(scalar: Scalar, values: tuple[Scalar, ...]) -> Scalar:
    """Return `scalar`, over columns only, with `values` substituted."""

    def replace(node: Scalar, depth: int) -> Scalar | None:
        return values[node.index] if isinstance(node, Column) and depth == 0 else None

    return map_scalar(scalar, replace)


# --- definitions ----------------------------------------------------------------------------


def bind_named_windows(
    binder: Binder, windows: Windows, named: tuple[ast.NamedWindow, ...]
) -> None:
    """Bind the WINDOW clause; a definition may be based on an earlier one."""
    for each in named:
        if each.name in windows.named:
            raise WindowingError(
                f'window "{each.name}" is already defined', position=each.definition.at + 1
            )
        windows.named[each.name] = _bind_definition(
            binder, windows, each.definition, in_clause=True
        )


def bind_over(binder: Binder, windows: Windows, definition: ast.WindowDefinition) -> BoundWindow:
    """Return the window of an OVER clause."""
    if definition.bare:
        assert definition.base is not None
        return windows.find(definition.base, definition.base_at)
    return _bind_definition(binder, windows, definition, in_clause=False)


def _bind_definition(
    binder: Binder,
    windows: Windows,
    definition: ast.WindowDefinition,
    *,
    in_clause: bool,
) -> BoundWindow:
    inner = _within(binder, Clause("window definitions"))
    base = None
    if definition.base is not None:
        base = windows.find(definition.base, definition.base_at)
        derived(base, definition, in_clause=in_clause)
    partition = tuple(
        to_known(inner.planning, inner.bind(expr), at_of(expr)) for expr in definition.partition_by
    )
    order = tuple(_order_key(inner, key) for key in definition.order_by)
    if base is not None:
        partition, order = base.partition, order or base.order_by
    frame = Frame()
    if definition.frame is not None:
        frame = _bind_frame(inner, definition, definition.frame, order)
    return BoundWindow(partition, order, frame, definition.frame is not None)


def _order_key(binder: Binder, key: ast.SortKey) -> OrderKey:
    return order_key(key, to_known(binder.planning, binder.bind(key.expr), key.at))


def _bind_frame(
    binder: Binder,
    definition: ast.WindowDefinition,
    clause: ast.FrameClause,
    order: tuple[OrderKey, ...],
) -> Frame:
    if clause.unit == "groups" and not order:
        raise WindowingError("GROUPS mode requires an ORDER BY clause", position=definition.at + 1)
    offsets = (clause.start.offset, clause.end.offset)
    if clause.unit == "range" and any(offsets) and len(order) != 1:
        raise WindowingError(
            "RANGE with offset PRECEDING/FOLLOWING requires exactly one ORDER BY column",
            position=definition.at + 1,
        )
    start = _bind_bound(binder, clause, clause.start, "start", order)
    end = _bind_bound(binder, clause, clause.end, "end", order)
    return Frame(clause.unit, start, end, clause.exclude)


def _bind_bound(
    binder: Binder,
    clause: ast.FrameClause,
    bound: ast.FrameBound,
    which: str,
    order: tuple[OrderKey, ...],
) -> FrameBound | None:
    if bound.offset is None:
        return FrameBound("current") if bound.side == "current" else None
    at, unit = at_of(bound.offset), clause.unit.upper()
    inner = binder.over(Clause(f"window {unit}"))
    scalar = inner.bind(bound.offset)
    if uses_row(scalar, 0):
        raise InvalidColumnReference(
            f"argument of {unit} must not contain variables", position=at + 1
        )
    if has_subquery(scalar) or uses_row(scalar):
        raise FeatureNotSupported(
            f"subqueries and outer columns in the argument of {unit} are not supported",
            position=at + 1,
        )
    if unit == "RANGE":
        type = _distance(type_of(order[0].expr), scalar, bound)
        function = f"range_{which}"
    else:
        type, function = INT8, f"frame_{which}"
    value = coerce(binder.planning, scalar, type, "assignment", at)
    if value is None:
        raise DatatypeMismatch(
            f"argument of {unit} must be type {type}, not type {type_of(scalar)}",
            position=at + 1,
        )
    if isinstance(value, Literal):
        failure = check_offset(function, value.value)
        if failure is not None:
            raise UserError(failure.text[6:], sqlstate=failure.text[:5])
        return FrameBound(bound.side, value)
    return FrameBound(bound.side, Call(f"{function}(anyelement)", (value,), type_of(value)))


def _distance(key: SqlType, offset: Scalar, bound: ast.FrameBound) -> SqlType:
    """Return the type of an offset from values of type `key`."""
    given = type_of(offset)
    assert bound.offset is not None
    at = bound.offset
    if key.name in _INTEGERS:
        allowed = is_unknown(offset) or given.name in _INTEGERS
        wanted = INT8
    elif key.name == "numeric":
        allowed, wanted = is_unknown(offset) or implicitly_castable(given, NUMERIC), NUMERIC
    elif key.name in ("float4", "float8"):
        allowed, wanted = is_unknown(offset) or implicitly_castable(given, FLOAT8), FLOAT8
    elif key.name in _MOMENTS:
        allowed, wanted = is_unknown(offset) or implicitly_castable(given, INTERVAL), INTERVAL
    else:
        raise FeatureNotSupported(
            f"RANGE with offset PRECEDING/FOLLOWING is not supported for column type {key}",
            position=at_of(at) + 1,
        )
    if not allowed:
        raise FeatureNotSupported(
            "RANGE with offset PRECEDING/FOLLOWING is not supported for column type "
            f"{key} and offset type {given}",
            hint="Cast the offset value to an appropriate type.",
            position=at_of(at) + 1,
        )
    return wanted
