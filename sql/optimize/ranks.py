"""Keep the first rows of each partition only, where a predicate asks for them by their number.

    Filter(Window(t, [row_number()]), #n <= 3)      Window(TopK(t, limit=3), [row_number()])

The window's functions must depend on earlier rows only, so that they have the same values over the
first rows. `rank` and `dense_rank` number rows like `row_number` where no two rows of a partition
are peers. The Window goes if nothing else uses its columns (`projection.py`).
"""

from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    Call,
    Column,
    Filter,
    Let,
    Literal,
    Relation,
    Scalar,
    TopK,
    Window,
    WindowFunction,
)
from foreshore.expr.split import Test
from foreshore.expr.traversal import inputs_of, walk_relations, with_inputs
from foreshore.sql.optimize import build
from foreshore.sql.optimize.properties import Analysis
from foreshore.types import INT8

_SWAPPED = {"ge": "le", "gt": "lt", "eq": "eq"}


def keep_first_rows(relation: Relation, fallible: Test) -> Relation:
    """Return `relation` with predicates on the numbers of rows applied before they are numbered."""
    if not any(isinstance(node, Window) for node in walk_relations(relation)):
        return relation
    return _keep(relation, Analysis({}), fallible)


def _keep(relation: Relation, analysis: Analysis, fallible: Test) -> Relation:
    if isinstance(relation, Let):
        value = _keep(relation.value, analysis, fallible)
        analysis.known[relation.number] = analysis.keys(value)
        return Let(relation.number, value, _keep(relation.body, analysis, fallible))
    inputs = inputs_of(relation)
    below = tuple(_keep(input, analysis, fallible) for input in inputs)
    if any(a is not b for a, b in zip(inputs, below, strict=True)):
        relation = with_inputs(relation, below)
    if isinstance(relation, Filter) and isinstance(relation.input, Window):
        return _first_rows(relation.input, relation.predicates, analysis, fallible)
    return relation


def _first_rows(
    window: Window, predicates: tuple[Scalar, ...], analysis: Analysis, fallible: Test
) -> Relation:
    """Return Filter(window, predicates)."""
    filtered = Filter(window, predicates)
    if not all(map(_looks_back, window.functions)):
        return filtered
    width = len(columns_of(window.input))
    numbers = {
        width + i
        for i, function in enumerate(window.functions)
        if function.function == "row_number"
        or (function.function in ("rank", "dense_rank") and not _has_peers(window, analysis))
    }
    limits = [limit for p in predicates if (limit := _limit(p, numbers)) is not None]
    if not limits:
        return filtered
    limit = min(limits)
    kept = tuple(p for p in predicates if not _is_met(p, numbers, limit))
    first = _limited(window, limit)
    if first is None:
        return filtered if kept == predicates else build.filter_(window, kept, fallible)
    over = build.window(first, window.partition, window.order_key, window.functions)
    return build.filter_(over, kept, fallible)


def _limited(window: Window, limit: int) -> Relation | None:
    """Return the first rows of the window's input, None if it has no others."""
    input, group, order = window.input, window.partition, window.order_key
    match input:
        case TopK(group_key=same, order_key=key, offset=None, limit=Literal(value=int(least))) if (
            same == group and key == order and least <= limit
        ):
            return None
    return build.top_k(input, group, order, Literal(max(limit, 0), INT8), None)


def _looks_back(function: WindowFunction) -> bool:
    """Return whether `function` depends on no later row."""
    match function.function:
        case "row_number" | "rank" | "dense_rank" | "last_known":
            return True
        case "lag":
            rows = function.args[1]
            return isinstance(rows, Literal) and rows.value is not None and rows.value >= 0
        case "lead":
            return False
    frame = function.frame
    end = frame.end
    return (
        frame.unit == "rows"
        and frame.exclude in ("nothing", "current row")
        and end is not None
        and end.side != "following"
    )


def _has_peers(window: Window, analysis: Analysis) -> bool:
    """Return whether several rows of a partition may be equal in the order's keys."""
    columns = {key.expr.index for key in window.order_key if isinstance(key.expr, Column)}
    given = columns | set(window.partition)
    return not any(key <= given for key in analysis.keys(window.input))


def _limit(predicate: Scalar, numbers: set[int]) -> int | None:
    """Return the number of the last row that meets `predicate`, None if there is no last one."""
    match predicate:
        case Call(function=name, args=(Column(index=i), Literal(value=int(bound)))) if i in numbers:
            return _last(name, bound)
        case Call(function=name, args=(Literal(value=int(bound)), Column(index=i))) if i in numbers:
            return _last(_SWAPPED.get(name, ""), bound)
    return None


def _last(comparison: str, bound: int) -> int | None:
    match comparison:
        case "le" | "eq":
            return bound
        case "lt":
            return bound - 1
    return None


def _is_met(predicate: Scalar, numbers: set[int], limit: int) -> bool:
    """Return whether the first `limit` rows meet `predicate`."""
    last = _limit(predicate, numbers)
    if last is None or last < limit:
        return False
    is_equality = isinstance(predicate, Call) and predicate.function == "eq"
    return not is_equality or limit <= 0 or last == limit == 1
