"""Random plans over small tables, for whoever rewrites, splits or runs plans.

`bound_relations` draws what the binder might make of SQL: joins with conditions, LATERAL, subqueries
of each kind, correlated over any number of levels. `lowered_relations` draws what the optimiser and
the engines work on, signed multiplicities included. `contents` draws what the tables hold, and
`histories` how that changes. There are few values, NULL among them, so that rows meet and repeat;
each plan is well typed, and one drawn without `failing` has no error over any contents.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Literal as OneOf

from hypothesis import reject
from hypothesis import strategies as st

from foreshore.errors import FeatureNotSupported
from foreshore.expr.columns import columns_of
from foreshore.expr.ir import (
    IN_STEP,
    Aggregate,
    And,
    AnySubquery,
    Call,
    Case,
    Column,
    Constant,
    Exists,
    Filter,
    FlatMap,
    Frame,
    FrameBound,
    Get,
    Join,
    JoinOn,
    Let,
    LetRec,
    Literal,
    LocalGet,
    Map,
    Negate,
    Or,
    OrderKey,
    OuterColumn,
    Project,
    Reduce,
    Relation,
    Scalar,
    ScalarSubquery,
    TemporalFilter,
    Threshold,
    TopK,
    Union,
    Window,
    WindowFunction,
)
from foreshore.expr.temporal import check_outside
from foreshore.expr.traversal import walk_relations
from foreshore.ids import GlobalId
from foreshore.types import (
    BOOL,
    FLOAT8,
    INT4,
    INT8,
    MZ_TIMESTAMP,
    TEXT,
    ColumnType,
    SqlType,
    array_of,
    numeric,
    numeric_of_scale,
)
from tests.model import NAN, NEGATIVE_ZERO, Row, Rows

Kind = OneOf["inner", "left", "right", "full"]
Operator = OneOf["lt", "le", "ge", "gt"]

NUMERIC = numeric(10, 2)
FLOATS = array_of(FLOAT8)
INTS = array_of(INT4)
VALUES: dict[SqlType, tuple[Any, ...]] = {
    INT4: (0, 1, 2),
    INT8: (0, 1, 2),
    TEXT: ("", "a", "b"),
    BOOL: (False, True),
    NUMERIC: ("0.00", "1.00", "1.50"),
    FLOAT8: (0.0, NEGATIVE_ZERO, 1.5, NAN),
    FLOATS: ((0.0,), (NEGATIVE_ZERO,), (NAN, None)),
}

TABLES = (
    Get(GlobalId("u1"), (ColumnType(INT4), ColumnType(INT4, False), ColumnType(TEXT))),
    Get(GlobalId("u2"), (ColumnType(INT4, False), ColumnType(INT4)), keys=((0,),)),
    Get(
        GlobalId("u3"),
        (ColumnType(TEXT), ColumnType(NUMERIC), ColumnType(FLOAT8), ColumnType(FLOATS)),
    ),
)

FALLIBLE = ("add(", "subtract(", "multiply(", "divide(", "single_row_check")


def fallible(call: Call) -> bool:
    """Whether a call in one of these plans may fail: what the registry says of such functions."""
    stepped = call.function.startswith("generate_series(") and len(call.args) == 3
    return call.function.startswith(FALLIBLE) or stepped


# --- what tables hold ----------------------------------------------------------------------


def _values(column: ColumnType) -> st.SearchStrategy[Any]:
    values = VALUES[column.type]
    return st.sampled_from((*values, None) if column.nullable else values)


@st.composite
def rows_of(draw: st.DrawFn, table: Get, max_size: int = 4) -> Rows:
    """Draw a multiset of rows that respects the table's keys."""
    row = st.tuples(*map(_values, table.columns))
    if table.keys:
        (key,) = table.keys
        unique = st.lists(row, max_size=max_size, unique_by=lambda r: tuple(r[i] for i in key))
        return Counter(draw(unique))
    return Counter(draw(st.lists(row, max_size=max_size)))


def contents(max_size: int = 4) -> st.SearchStrategy[dict[GlobalId, Rows]]:
    """Draw what all tables hold."""
    return st.fixed_dictionaries({table.id: rows_of(table, max_size) for table in TABLES})


def histories(times: int, max_size: int = 3) -> st.SearchStrategy[list[dict[GlobalId, Rows]]]:
    """Draw what all tables hold at each of so many times; the differences are the updates."""
    return st.lists(contents(max_size), min_size=times, max_size=times)


# --- plans ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Context:
    """What may be drawn at this place of a plan."""

    bound: bool
    failing: bool
    outer: tuple[tuple[ColumnType, ...], ...] = ()  # the rows outside, the innermost first
    locals: tuple[tuple[int, tuple[ColumnType, ...]], ...] = ()
    numbers: list[int] = field(default_factory=lambda: [0], compare=False)
    subqueries: bool = True
    times: Sequence[int] = ()  # that temporal filters compare mz_now() with; none: no such filter
    rounds: int = 0  # that recursions have at most; 0: there are none

    def within(self, columns: tuple[ColumnType, ...]) -> "Context":
        return replace(self, outer=(columns, *self.outer))


@st.composite
def lowered_relations(
    draw: st.DrawFn,
    size: int = 4,
    failing: bool = False,
    times: Sequence[int] = (),
    rounds: int = 0,
) -> Relation:
    """Draw a plan of about `size` nodes, as the optimiser and the engines see them.

    With `times` it may have temporal filters, with `rounds` recursions, as views may.
    """
    context = Context(False, failing, subqueries=False, times=times, rounds=rounds)
    return relation(draw, context, size)


@st.composite
def bound_relations(draw: st.DrawFn, size: int = 4, failing: bool = False) -> Relation:
    """Draw a plan of about `size` nodes, as the binder makes them."""
    return relation(draw, Context(bound=True, failing=failing), size)


@st.composite
def window_relations(draw: st.DrawFn, failing: bool = False) -> Relation:
    """Draw window functions over a small plan."""
    context = Context(bound=False, failing=failing, subqueries=False)
    return _window(draw, context, draw(st.integers(0, 1)))


def relation(draw: st.DrawFn, context: Context, size: int) -> Relation:
    """Draw a relation."""
    if size <= 0:
        return _leaf(draw, context)
    kinds = ["leaf", "filter", "map", "project", "join", "reduce", "top_k", "window", "flat_map"]
    kinds += ["union", "except", "distinct", "let"]
    if context.bound:
        kinds += ["join", "filter", "map", "lateral"]
    else:
        kinds += ["negate"]
    if context.times:
        kinds += ["temporal"] * 4
    if context.rounds:
        kinds += ["recursion"] * 6
    return _KINDS[draw(st.sampled_from(kinds))](draw, context, size - 1)


def _leaf(draw: st.DrawFn, context: Context, size: int = 0) -> Relation:
    leaves: list[Relation] = [*TABLES, *(LocalGet(n, columns) for n, columns in context.locals)]
    if draw(st.integers(0, 9)) == 0:
        columns = (ColumnType(INT4), ColumnType(TEXT))
        row = st.tuples(st.tuples(*map(_values, columns)), st.integers(1, 2))
        unique = st.lists(row, max_size=2, unique_by=lambda r: r[0])
        return Constant(tuple(draw(unique)), columns)
    return draw(st.sampled_from(leaves))


def _positive(input: Relation) -> Relation:
    """Return `input`, by all appearances of no negative multiplicity."""
    signed = any(isinstance(node, Negate | LocalGet) for node in walk_relations(input))
    return Threshold(input) if signed else input


def _filter(draw: st.DrawFn, context: Context, size: int) -> Relation:
    input = relation(draw, context, size)
    columns = columns_of(input)
    count = draw(st.integers(1, 2))
    return Filter(input, tuple(scalar(draw, context, columns, BOOL, 2) for _ in range(count)))


def _map(draw: st.DrawFn, context: Context, size: int) -> Relation:
    input = relation(draw, context, size)
    columns = columns_of(input)
    scalars: list[Scalar] = []
    for _ in range(draw(st.integers(1, 2))):
        made = scalar(draw, context, columns, draw(st.sampled_from([INT4, BOOL, TEXT, FLOAT8])), 2)
        scalars.append(made)
        columns = columns_of(Map(input, tuple(scalars)))
    return Map(input, tuple(scalars))


def _project(draw: st.DrawFn, context: Context, size: int) -> Relation:
    input = relation(draw, context, size)
    positions = st.integers(0, len(columns_of(input)) - 1)
    if not columns_of(input):
        return input
    return Project(input, tuple(draw(st.lists(positions, min_size=1, max_size=4))))


def _of_types(draw: st.DrawFn, context: Context, size: int, types: Sequence[SqlType]) -> Relation:
    """Draw a relation with columns of these types."""
    input = relation(draw, context, size)
    columns = columns_of(input)
    scalars = tuple(scalar(draw, context, columns, type, 1) for type in types)
    return Project(Map(input, scalars), tuple(range(len(columns), len(columns) + len(types))))


def _join(draw: st.DrawFn, context: Context, size: int) -> Relation:
    left = relation(draw, context, size // 2)
    right = relation(draw, context, size - size // 2 - 1)
    if context.bound:
        kind: Kind = draw(st.sampled_from(["inner", "left", "right", "full"]))
        columns = columns_of(JoinOn(left, right, "full", Literal(True, BOOL)))
        return JoinOn(left, right, kind, scalar(draw, context, columns, BOOL, 2))
    if draw(st.integers(0, 3)) == 0:
        inputs: tuple[Relation, ...] = (left, right, _leaf(draw, context))
    else:
        inputs = (left, right)
    equivalences = []
    for _ in range(draw(st.integers(0, 2))):
        type = draw(st.sampled_from([INT4, TEXT, FLOAT8, FLOATS]))
        start = 0
        sides: list[Scalar] = []
        for input in inputs:
            columns = columns_of(input)
            if draw(st.integers(0, 4)):
                sides.append(_shifted(draw, context, columns, type, start))
            start += len(columns)
        if len(sides) > 1:
            equivalences.append(tuple(sides))
    safe = tuple(i for i in range(len(equivalences)) if draw(st.booleans()))
    return Join(inputs, tuple(equivalences), safe)


def _shifted(
    draw: st.DrawFn,
    context: Context,
    columns: tuple[ColumnType, ...],
    type: SqlType,
    start: int,
) -> Scalar:
    from foreshore.expr.split import shift

    return shift(scalar(draw, replace(context, subqueries=False), columns, type, 1), start)


def _lateral(draw: st.DrawFn, context: Context, size: int) -> Relation:
    left = relation(draw, context, size // 2)
    right = relation(draw, context.within(columns_of(left)), size - size // 2)
    columns = (*columns_of(left), *columns_of(right))
    kind: Kind = draw(st.sampled_from(["inner", "left"]))
    on = scalar(draw, context, columns, BOOL, 1)
    return JoinOn(left, right, kind, on, lateral=True)


def _reduce(draw: st.DrawFn, context: Context, size: int) -> Relation:
    input = _positive(relation(draw, context, size))
    columns = columns_of(input)
    plain = replace(context, subqueries=False)
    types = draw(st.lists(st.sampled_from([INT4, TEXT, BOOL, FLOAT8, FLOATS]), max_size=2))
    key = tuple(scalar(draw, plain, columns, type, 1) for type in types)
    aggregates = draw(st.integers(0 if key else 1, 2))
    return Reduce(input, key, tuple(_aggregate(draw, plain, columns) for _ in range(aggregates)))


def _aggregate(draw: st.DrawFn, context: Context, columns: tuple[ColumnType, ...]) -> Aggregate:
    def of(type: SqlType) -> Scalar:
        return scalar(draw, context, columns, type, 1)

    distinct = draw(st.booleans())
    filter = of(BOOL) if draw(st.integers(0, 3)) == 0 else None
    match draw(
        st.sampled_from(
            ["rows", "count", "sum", "decimal", "float", "moment", "min", "max", "list", "text"]
        )
    ):
        case "rows":
            return Aggregate("count", (), INT8, filter=filter)
        case "count":
            return Aggregate("count", (of(TEXT),), INT8, distinct, filter)
        case "sum":
            return Aggregate("sum", (of(INT4),), numeric_of_scale(0), distinct, filter)
        case "decimal":
            return Aggregate("sum", (of(NUMERIC),), numeric_of_scale(2), distinct, filter)
        case "float":
            return Aggregate("sum_float", (of(FLOAT8),), FLOAT8, distinct, filter)
        case "moment":
            pair = (of(FLOAT8), of(FLOAT8))
            return Aggregate("comoment_float", pair, FLOAT8, distinct, filter)
        case "min":
            type = draw(st.sampled_from([INT4, FLOAT8, FLOATS]))
            return Aggregate("min", (of(type),), type, distinct, filter)
        case "max":
            return Aggregate("max", (of(TEXT),), TEXT, distinct, filter)
        case "list":
            order = (_order_key(draw, of(INT4)),) if draw(st.booleans()) and not distinct else ()
            type = draw(st.sampled_from([TEXT, FLOAT8]))
            return Aggregate("array_agg", (of(type),), array_of(type), distinct, filter, order)
        case _:
            return Aggregate("string_agg", (of(TEXT), Literal(",", TEXT)), TEXT, distinct, filter)


def _order_key(draw: st.DrawFn, expr: Scalar) -> OrderKey:
    return OrderKey(expr, draw(st.booleans()), draw(st.booleans()))


def _top_k(draw: st.DrawFn, context: Context, size: int) -> Relation:
    input = _positive(relation(draw, context, size))
    columns = columns_of(input)
    if not columns:
        return input
    group = draw(st.lists(st.integers(0, len(columns) - 1), max_size=1))
    plain = replace(context, subqueries=False)
    keys = [
        _order_key(
            draw, scalar(draw, plain, columns, draw(st.sampled_from([INT4, TEXT, FLOAT8])), 1)
        )
        for _ in range(draw(st.integers(0, 2)))
    ]
    limit, offset = (draw(st.sampled_from([None, 0, 1, 2])) for _ in range(2))
    return TopK(
        input,
        tuple(group),
        tuple(keys),
        None if limit is None else Literal(limit, INT8),
        None if offset is None else Literal(offset, INT8),
    )


def _window(draw: st.DrawFn, context: Context, size: int) -> Relation:
    input = _positive(relation(draw, context, size))
    columns = columns_of(input)
    if not columns:
        return input
    partition = draw(st.lists(st.integers(0, len(columns) - 1), max_size=1))
    plain = replace(context, subqueries=False)
    types = draw(st.lists(st.sampled_from([INT4, TEXT, FLOAT8, NUMERIC]), max_size=2))
    keys = [_order_key(draw, scalar(draw, plain, columns, type, 1)) for type in types]
    ranged = types[0] if len(types) == 1 and types[0] != TEXT else None
    functions = [
        _window_function(draw, plain, columns, _frame(draw, ranged))
        for _ in range(draw(st.integers(1, 2)))
    ]
    return Window(input, tuple(partition), tuple(keys), tuple(functions))


def _frame(draw: st.DrawFn, ranged: SqlType | None) -> Frame:
    """Draw a frame; `ranged` is the type of the only order key if distances make sense for it."""
    unit: Any = draw(st.sampled_from(["range", "range", "rows", "groups"]))
    values: tuple[Any, ...] = (0, 1, 2)
    type = INT8
    if unit == "range" and ranged is not None:
        type = INT8 if ranged == INT4 else ranged
        values = (
            VALUES[NUMERIC] if ranged == NUMERIC else (0.0, 1.5) if ranged == FLOAT8 else values
        )
    offsets = unit != "range" or ranged is not None

    def bound(sides: Sequence[Any]) -> FrameBound | None:
        side = draw(st.sampled_from([*sides, None]))
        if side is None:
            return None
        if side == "current":
            return FrameBound("current")
        return FrameBound(side, Literal(draw(st.sampled_from(values)), type))

    sides = ["preceding", "current", "following"] if offsets else ["current"]
    start = bound(sides)
    end = bound(sides if start is None else sides[sides.index(start.side) :])
    exclude: Any = draw(st.sampled_from(["nothing"] * 3 + ["current row", "group", "ties"]))
    return Frame(unit, start, end, exclude)


def _window_function(
    draw: st.DrawFn, context: Context, columns: tuple[ColumnType, ...], frame: Frame
) -> WindowFunction:
    type = draw(st.sampled_from([INT4, TEXT, FLOAT8]))
    name: Any = draw(
        st.sampled_from(
            ["row_number", "rank", "dense_rank", "lag", "lead", "nth_value", "last_value"]
            + ["last_known"]
            + ["aggregate"] * 5
        )
    )

    def of(type: SqlType) -> Scalar:
        return scalar(draw, context, columns, type, 1)

    match name:
        case "row_number" | "rank" | "dense_rank":
            return WindowFunction(name, (), INT8)
        case "lag" | "lead":
            rows = of(INT8) if draw(st.booleans()) else Literal(draw(st.integers(-2, 2)), INT8)
            return WindowFunction(name, (of(type), rows, of(type)), type)
        case "nth_value":
            n = Literal(draw(st.integers(1, 2)), INT8)
            return WindowFunction(name, (of(type), n), type, frame)
        case "last_known":
            return WindowFunction(name, (of(type),), type)
        case "last_value":
            return WindowFunction(name, (of(type),), type, frame)
    core = _aggregate(draw, context, columns)
    return WindowFunction(core.function, core.args, core.type, frame, core.filter)


def _flat_map(draw: st.DrawFn, context: Context, size: int) -> Relation:
    input = relation(draw, context, size)
    columns = columns_of(input)
    plain = replace(context, subqueries=False)
    ends = (Literal(0, INT4), scalar(draw, replace(plain, failing=False), columns, INT4, 1))
    out = (ColumnType(INT4, False), ColumnType(INT8, False))[: draw(st.integers(1, 2))]
    if context.failing and draw(st.booleans()):
        args = (*ends, scalar(draw, plain, columns, INT4, 1))
        return FlatMap(input, "generate_series(int4,int4,int4)", args, out)
    if draw(st.booleans()):
        return FlatMap(input, "generate_series(int4,int4)", ends, out)
    series = [
        Call("generate_series(int4,int4)", (ends[0], scalar(draw, plain, columns, INT4, 1)), INTS)
        for _ in range(draw(st.integers(1, 3)))
    ]
    series[0] = Call("generate_series(int4,int4)", ends, INTS)
    added = (ColumnType(INT4),) * len(series)
    return FlatMap(input, IN_STEP, tuple(series), (*added, *out[1:]))


def _union(draw: st.DrawFn, context: Context, size: int) -> Relation:
    types = draw(st.lists(st.sampled_from([INT4, TEXT, FLOAT8, FLOATS]), min_size=1, max_size=2))
    return Union(
        (
            _of_types(draw, context, size // 2, types),
            _of_types(draw, context, size - size // 2 - 1, types),
        )
    )


def _except(draw: st.DrawFn, context: Context, size: int) -> Relation:
    both = _union(draw, context, size)
    assert isinstance(both, Union)
    return Threshold(Union((both.inputs[0], Negate(_positive(both.inputs[1])))))


def _negate(draw: st.DrawFn, context: Context, size: int) -> Relation:
    return Negate(relation(draw, context, size))


def _temporal(draw: st.DrawFn, context: Context, size: int) -> Relation:
    input = relation(draw, context, size)
    columns = columns_of(input)
    bounds: list[Scalar] = []
    conditions: list[tuple[Operator, int]] = []
    times = st.sampled_from([*context.times, None])
    for _ in range(draw(st.integers(1, 2))):
        which = scalar(draw, replace(context, subqueries=False), columns, BOOL, 1)
        values = [Literal(draw(times), MZ_TIMESTAMP) for _ in range(2)]
        conditions.append(
            (draw(st.sampled_from(["lt", "le", "ge", "gt"])), len(columns) + len(bounds))
        )
        bounds.append(Case(((which, values[0]),), values[1], MZ_TIMESTAMP))
    filter = TemporalFilter(Map(input, tuple(bounds)), tuple(conditions))
    return Project(filter, tuple(range(len(columns)))) if draw(st.booleans()) else filter


def _distinct(draw: st.DrawFn, context: Context, size: int) -> Relation:
    input = _positive(relation(draw, context, size))
    columns = columns_of(input)
    keys = tuple(Column(i, column.type, column.nullable) for i, column in enumerate(columns))
    return Reduce(input, keys, ()) if keys else input


def _let(draw: st.DrawFn, context: Context, size: int) -> Relation:
    number = context.numbers[0]
    context.numbers[0] += 1
    value = relation(draw, context, size // 2)
    inner = replace(context, locals=(*context.locals, (number, columns_of(value))))
    return Let(number, value, relation(draw, inner, size - size // 2))


def _recursion(draw: st.DrawFn, context: Context, size: int) -> Relation:
    """Draw one or two values that read each other, for few rounds; there is no other inside."""
    count = draw(st.integers(1, 2))
    numbers = tuple(range(context.numbers[0], context.numbers[0] + count))
    context.numbers[0] += count
    types = [draw(st.lists(st.sampled_from([INT4, TEXT]), min_size=1, max_size=2)) for _ in numbers]
    columns = tuple(tuple(map(ColumnType, each)) for each in types)
    found = replace(context, locals=(*context.locals, *zip(numbers, columns, strict=True)))
    inside = replace(found, rounds=0)
    values = tuple(_of_types(draw, inside, size // 2, each) for each in types)
    body = relation(draw, found, size - size // 2)
    loop = LetRec(numbers, columns, values, body, draw(st.integers(1, context.rounds)), fails=False)
    try:
        check_outside(loop)
    except FeatureNotSupported:  # no view has such a temporal filter
        reject()
    return loop


_KINDS: dict[str, Callable[[st.DrawFn, Context, int], Relation]] = {
    "leaf": _leaf,
    "filter": _filter,
    "map": _map,
    "project": _project,
    "join": _join,
    "lateral": _lateral,
    "reduce": _reduce,
    "top_k": _top_k,
    "window": _window,
    "flat_map": _flat_map,
    "union": _union,
    "except": _except,
    "negate": _negate,
    "distinct": _distinct,
    "let": _let,
    "temporal": _temporal,
    "recursion": _recursion,
}


# --- scalars -------------------------------------------------------------------------------


def scalar(
    draw: st.DrawFn,
    context: Context,
    columns: tuple[ColumnType, ...],
    type: SqlType,
    depth: int,
) -> Scalar:
    """Draw a scalar of `type` over `columns`."""

    def of(type: SqlType) -> Scalar:
        return scalar(draw, context, columns, type, depth - 1)

    def any_type() -> SqlType:
        return draw(st.sampled_from([INT4, TEXT, FLOAT8]))

    kinds = ["leaf"] * 2
    if depth > 0:
        kinds += {BOOL: ["compare"] * 3 + ["connect", "test"], INT4: ["case"], TEXT: ["case"]}.get(
            type, []
        )
        if context.failing and type == INT4:
            kinds += ["fail", "fail"]
        if context.subqueries:
            kinds += ["subquery"] * 2
    match draw(st.sampled_from(kinds)):
        case "compare":
            side = any_type()
            name = draw(st.sampled_from(["eq", "eq", "eq", "ne", "lt", "ge", "is_distinct"]))
            return Call(name, (of(side), of(side)), BOOL)
        case "connect":
            args = (of(BOOL), of(BOOL))
            return And(args) if draw(st.booleans()) else Or(args)
        case "test":
            if draw(st.booleans()):
                return Call("not", (of(BOOL),), BOOL)
            return Call("is_null", (of(any_type()),), BOOL)
        case "case":
            if draw(st.booleans()):
                return Call("coalesce", (of(type), of(type)), type)
            return Case(((of(BOOL), of(type)),), of(type), type)
        case "fail":
            name = draw(st.sampled_from(["divide", "add"]))
            return Call(f"{name}(int4,int4)", (of(INT4), of(INT4)), INT4)
        case "subquery":
            return _subquery(draw, context, columns, type, depth)
        case _:
            return _operand(draw, context, columns, type)


def _operand(
    draw: st.DrawFn, context: Context, columns: tuple[ColumnType, ...], type: SqlType
) -> Scalar:
    found: list[Scalar] = [
        Column(i, column.type, column.nullable)
        for i, column in enumerate(columns)
        if column.type == type
    ]
    found += found
    found += [
        OuterColumn(level, i, column.type, column.nullable)
        for level, row in enumerate(context.outer, 1)
        for i, column in enumerate(row)
        if column.type == type
    ]
    # DuckDB takes constants 0.0 and -0.0 for one (docs/compatibility.md): only rows have -0.0.
    values = [v for v in VALUES.get(type, ()) if v is not NEGATIVE_ZERO and v != (NEGATIVE_ZERO,)]
    found += [Literal(value, type) for value in (*values, None)]
    return draw(st.sampled_from(found))


def _subquery(
    draw: st.DrawFn,
    context: Context,
    columns: tuple[ColumnType, ...],
    type: SqlType,
    depth: int,
) -> Scalar:
    inner = context.within(columns)
    size = draw(st.integers(0, 2)) if depth > 1 else 0
    if type == BOOL and draw(st.booleans()):
        return Exists(relation(draw, inner, size + 1))
    if type == BOOL:
        body = relation(draw, inner, size)
        predicate_context = replace(inner, subqueries=False)
        return AnySubquery(scalar(draw, predicate_context, columns_of(body), BOOL, 1), body)
    if draw(st.booleans()):  # FROM nothing but a value
        shared = scalar(draw, inner, (), type, 1)
        row = Map(Join(()), (shared,))
        computed = scalar(draw, inner, (ColumnType(type),), type, depth - 1)
        return ScalarSubquery(Project(Map(row, (computed,)), (1,)), type)
    if not context.failing or draw(st.booleans()):  # at most one row, whatever the tables hold
        body = _positive(_of_types(draw, inner, size, [type]))
        if draw(st.booleans()) and type in (INT4, TEXT):
            body = Reduce(body, (), (Aggregate("max", (Column(0, type),), type),))
        else:
            body = TopK(body, (), (), Literal(1, INT8))
    else:
        body = _of_types(draw, inner, size, [type])
    return ScalarSubquery(body, type)


def show(rows: Rows) -> list[tuple[Row, int]]:
    """Return the rows in an order that is the same each time, to compare and print."""
    return sorted(rows.items(), key=repr)
