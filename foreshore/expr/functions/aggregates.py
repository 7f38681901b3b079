"""SQL aggregates, composed of the IR's core aggregates and scalar functions over them.

    avg(int4)  =  average(sum(x), count(x))        bool_and(b)  =  min(b)
    sum(numeric)  =  sum(high_part(x)) * unit + sum(low_part(x))

In a `ResolvedAggregate`, `Column(i)` within `cores` is the i-th argument, coerced to `arg_types`;
in `finish`, `Column(j)` is the result of the j-th core. DISTINCT, FILTER and ORDER BY apply to
every core. If the argument of a core differs from the aggregate's, DISTINCT would have another
meaning; `distinct` says whether it is allowed.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from functools import partial

from foreshore.errors import UndefinedFunction
from foreshore.expr.columns import type_of
from foreshore.expr.functions import gathered, regression
from foreshore.expr.functions.function import Literals
from foreshore.expr.functions.number_aggregates import average_of, sum_of_distinct, sums_of
from foreshore.expr.functions.parts import needs_parts, unit_of
from foreshore.expr.functions.resolve import ambiguous, implicitly_castable, spelled
from foreshore.expr.functions.spreads import SPREADS
from foreshore.expr.ir import Aggregate, Call, Column, Literal, Scalar
from foreshore.ranges import BOUNDS, multirange_of
from foreshore.types import (
    BIT,
    BIT_TYPES,
    BOOL,
    BYTEA,
    FLOAT4,
    FLOAT8,
    INT8,
    INTERVAL,
    JSON,
    JSONB,
    NUMBER,
    NUMERIC,
    RANGE_TYPES,
    STRUCTURED,
    TEXT,
    UNSIGNED,
    SqlType,
    array_of,
    list_of,
    map_of,
    numeric_of_scale,
    record_of,
    shaped_array,
)

INTEGERS = frozenset({"int2", "int4", "int8"})
WHOLE = numeric_of_scale(0)


@dataclass(frozen=True, slots=True)
class ResolvedAggregate:
    """The composition of an aggregate; see the module."""

    arg_types: tuple[SqlType, ...]
    result: SqlType
    cores: tuple[Aggregate, ...]
    finish: Scalar
    distinct: bool = True


Rule = Callable[[tuple[SqlType, ...]], "ResolvedAggregate | None"]


def _plain(core: Aggregate, arg_types: tuple[SqlType, ...]) -> ResolvedAggregate:
    return ResolvedAggregate(arg_types, core.type, (core,), Column(0, core.type))


@dataclass(frozen=True, slots=True)
class _Total:
    """The exact sum of numbers: core sums and a scalar over them; the first core has index `at`."""

    cores: tuple[Aggregate, ...]
    value: Scalar


def _total(arg: Scalar, at: int = 0, *, parted: bool = True) -> _Total:
    """Return the sum of `arg`, computed in parts if it may exceed the digits of a numeric.

    Without `parted` there are no parts: DISTINCT applies to numbers, whose parts may be equal.
    """
    type = type_of(arg)
    scale = (type.scale or 0) if type.name == "numeric" else 0
    total = numeric_of_scale(scale, trim=type.trim)
    if not (parted and needs_parts(type)):
        return _Total((Aggregate("sum", (arg,), total),), Column(at, total))
    rest = numeric_of_scale(scale)
    high = Aggregate("sum", (Call("high_part(numeric)", (arg,), WHOLE),), WHOLE)
    low = Aggregate("sum", (Call("low_part(numeric)", (arg,), rest),), rest)
    value: Scalar = Column(at, WHOLE)
    if unit_of(scale) > 1:
        unit = Literal(str(unit_of(scale)), WHOLE)
        value = Call("multiply(numeric,numeric)", (value, unit), WHOLE)
    value = Call("add(numeric,numeric)", (value, Column(at + 1, rest)), total)
    return _Total((high, low), value)


def _count(type: SqlType) -> Aggregate:
    return Aggregate("count", (Column(0, type),), INT8)


def quotient_type(dividend: SqlType, divisor: SqlType) -> SqlType:
    """Return the type of a numeric quotient."""
    from foreshore.expr.functions.numeric import quotient

    return quotient((dividend, divisor), None)


def _sum(types: tuple[SqlType, ...], *, distinct: bool = False) -> ResolvedAggregate | None:
    (type,) = types
    match type.name:
        case "int2" | "int4":
            total = _total(Column(0, type))
            finish = Call("cast(numeric,int8)", (total.value,), INT8)
            return ResolvedAggregate(types, INT8, total.cores, finish)
        case "int8" | "numeric":
            total = _total(Column(0, type), parted=not distinct)
            return ResolvedAggregate(types, type_of(total.value), total.cores, total.value)
        case "money":
            cents = Call("money_cents(money)", (Column(0, type),), INT8)
            total = _total(cents, parted=not distinct)
            finish = Call("money_of_total(numeric)", (total.value,), type)
            return ResolvedAggregate(types, type, total.cores, finish)
        case "number":
            made = sum_of_distinct if distinct else partial(sums_of, at=0)
            cores, value = made(Column(0, NUMBER))
            return ResolvedAggregate(types, NUMBER, cores, value)
        case "float8":
            return _plain(Aggregate("sum_float", (Column(0, type),), FLOAT8), types)
        case "float4":
            core = Aggregate("sum_float", (Column(0, type),), FLOAT8)
            finish = Call("cast(float8,float4)", (Column(0, FLOAT8),), FLOAT4)
            return ResolvedAggregate(types, FLOAT4, (core,), finish)
        case "interval":
            cores = _interval_sums()
            parts = tuple(Column(i, core.type) for i, core in enumerate(cores))
            return ResolvedAggregate(
                types,
                INTERVAL,
                cores,
                Call("interval_of_sums(numeric,numeric,numeric)", parts, INTERVAL),
                distinct=False,
            )
        case _:
            return None


def _interval_sums() -> tuple[Aggregate, ...]:
    return tuple(
        Aggregate("sum", (Call(f"interval_{part}(interval)", (Column(0, INTERVAL),), INT8),), WHOLE)
        for part in ("months", "days", "micros")
    )


def _avg(types: tuple[SqlType, ...], *, distinct: bool = False) -> ResolvedAggregate | None:
    (type,) = types
    if type.name in INTEGERS or type.name == "numeric":
        total = _total(Column(0, type), parted=not distinct)
        result = quotient_type(type_of(total.value), WHOLE)
        count = Column(len(total.cores), INT8, False)
        finish = Call("average(numeric,int8)", (total.value, count), result)
        return ResolvedAggregate(types, result, (*total.cores, _count(type)), finish)
    if type.name == "number":
        found = _sum(types, distinct=distinct)
        assert found is not None
        mean = average_of(found.finish, len(found.cores))
        return ResolvedAggregate(types, NUMBER, (*found.cores, _count(type)), mean)
    if type.name in ("float4", "float8"):
        core = Aggregate("sum_float", (Column(0, type),), FLOAT8)
        finish = Call("average(float8,int8)", (Column(0, FLOAT8), Column(1, INT8, False)), FLOAT8)
        return ResolvedAggregate(types, FLOAT8, (core, _count(type)), finish)
    if type.name == "interval":
        length = _sum(types)
        assert length is not None
        finish = Call("average(interval,int8)", (length.finish, Column(3, INT8, False)), INTERVAL)
        return ResolvedAggregate(
            types, INTERVAL, (*length.cores, _count(type)), finish, distinct=False
        )
    return None


def _extreme(function: str) -> Callable[[tuple[SqlType, ...]], ResolvedAggregate | None]:
    def resolve(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
        (type,) = types
        if type.name in ("bool", "uuid", "json", "jsonb", "void", *RANGE_TYPES):
            return None
        if type.name in STRUCTURED and type.name != "shaped":
            return None
        if type.name in ("macaddr", *BIT_TYPES):
            return None
        if type.name == "cidr":
            type = SqlType("inet")
        if type.name in ("varchar", "name", "char"):
            type = TEXT
        core = Aggregate(function, (Column(0, type),), type)  # type: ignore[arg-type]
        return _plain(core, (type,))

    return resolve


def _bool(function: str) -> Callable[[tuple[SqlType, ...]], ResolvedAggregate | None]:
    def resolve(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
        if types[0].name not in ("bool", "unknown"):
            return None
        core = Aggregate(function, (Column(0, BOOL),), BOOL)  # type: ignore[arg-type]
        return _plain(core, (BOOL,))

    return resolve


def _count_of(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
    if not types:
        return _plain(Aggregate("count", (), INT8), ())
    type = TEXT if types[0].name == "unknown" else types[0]
    return _plain(_count(type), (type,))


def _of_rows(composition: gathered.Composition, types: tuple[SqlType, ...]) -> ResolvedAggregate:
    core, value = composition
    return ResolvedAggregate(types, type_of(value), (core,), value)


def _argument_of(function: str) -> Rule:
    def resolve(types: tuple[SqlType, ...]) -> ResolvedAggregate:
        known = tuple(TEXT if type.name == "unknown" else type for type in types)
        return _of_rows(gathered.argument_of_extreme(function, known), known)

    return resolve


def _any_value(types: tuple[SqlType, ...]) -> ResolvedAggregate:
    known = TEXT if types[0].name == "unknown" else types[0]
    return _of_rows(gathered.any_value(known), (known,))


def _count_distinct(types: tuple[SqlType, ...]) -> ResolvedAggregate:
    """Return the number of distinct values, exactly."""
    type = TEXT if types[0].name == "unknown" else types[0]
    return _plain(Aggregate("count", (Column(0, type),), INT8, distinct=True), (type,))


def _string_agg(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
    if any(type.name == "bytea" for type in types):
        if all(type.name in ("bytea", "unknown") for type in types):
            return _of_rows(gathered.joined_bytes(), (BYTEA, BYTEA))
        return None
    if not all(implicitly_castable(t, TEXT) for t in types):
        return None
    columns = (Column(0, TEXT), Column(1, TEXT))
    return _plain(Aggregate("string_agg", columns, TEXT), (TEXT, TEXT))


def _array_agg(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
    (type,) = types
    if type.element is not None or type.name == "shaped":
        shaped = type if type.element is None else shaped_array(type.element)
        core = Aggregate("array_agg", (Column(0, shaped),), array_of(shaped))
        finish = Call("shaped_agg(anyarray)", (Column(0, core.type),), shaped)
        return ResolvedAggregate((shaped,), shaped, (core,), finish)
    type = TEXT if type.name == "unknown" else type
    return _plain(Aggregate("array_agg", (Column(0, type),), array_of(type)), types)


def _list_agg(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
    """Join the lists of one item each."""
    type = TEXT if types[0].name == "unknown" else types[0]
    result = list_of(type)
    one = Call("list(any)", (Column(0, type),), result)
    core = Aggregate("array_agg", (one,), array_of(result))
    finish = Call("lists_joined(anyarray)", (Column(0, core.type),), result)
    return ResolvedAggregate((type,), result, (core,), finish)


def _map_agg(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
    """Make a map of records of a key and a value."""
    if not implicitly_castable(types[0], TEXT):
        return None
    value = TEXT if types[1].name == "unknown" else types[1]
    pair = record_of(("key", "value"), (TEXT, value))
    row = Call("row(any)", (Column(0, TEXT), Column(1, value)), pair)
    core = Aggregate("array_agg", (row,), array_of(pair))
    finish = Call("map_of_records(anyarray)", (Column(0, core.type),), map_of(value))
    return ResolvedAggregate((TEXT, value), map_of(value), (core,), finish)


def _jsonb_agg(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
    type = TEXT if types[0].name == "unknown" else types[0]
    item = Call("to_jsonb(anyelement)", (Column(0, type),), JSONB)
    value = Call("coalesce", (item, Literal("null", JSONB)), JSONB)
    core = Aggregate("array_agg", (value,), array_of(JSONB))
    finish = Call("jsonb_of_array(jsonb[])", (Column(0, core.type),), JSONB)
    return ResolvedAggregate((type,), JSONB, (core,), finish)


def _of_ranges(name: str) -> Rule:
    """Unions and intersections of ranges or multiranges."""

    def resolve(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
        (type,) = types
        if type.name not in RANGE_TYPES:
            return None
        core = Aggregate("array_agg", (Column(0, type),), array_of(type))
        result = type
        if name == "range_agg" and type.name in BOUNDS:
            result = multirange_of(type)
        finish = Call(f"{name}({type.name}[])", (Column(0, core.type),), result)
        return ResolvedAggregate(types, result, (core,), finish)

    return resolve


def _json_agg(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
    type = TEXT if types[0].name == "unknown" else types[0]
    item = Call("to_json(anyelement)", (Column(0, type),), JSON)
    core = Aggregate("array_agg", (item,), array_of(JSON))
    key = "json_of_arrays(json[])" if type.element is not None else "json_of_array(json[])"
    finish = Call(key, (Column(0, core.type),), JSON)
    return ResolvedAggregate((type,), JSON, (core,), finish)


def _bits(operator: str) -> Callable[[tuple[SqlType, ...]], ResolvedAggregate | None]:
    """Bits of integers or strings of bits combined, over the array of the values."""

    def resolve(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
        (type,) = types
        if type.name in BIT_TYPES:
            type = BIT
        elif type.name not in INTEGERS:
            return None
        core = Aggregate("array_agg", (Column(0, type),), array_of(type))
        finish = Call(f"bits_{operator}({type.name}[])", (Column(0, core.type),), type)
        return ResolvedAggregate((type,), type, (core,), finish)

    return resolve


def _jsonb_object_agg(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
    known = tuple(TEXT if type.name == "unknown" else type for type in types)
    columns = tuple(Column(i, type) for i, type in enumerate(known))
    member = Call("jsonb_member(any,any)", columns, JSONB)
    core = Aggregate("array_agg", (member,), array_of(JSONB))
    finish = Call("jsonb_of_members(jsonb[])", (Column(0, core.type),), JSONB)
    return ResolvedAggregate(known, JSONB, (core,), finish)


def _json_object_agg(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
    known = tuple(TEXT if type.name == "unknown" else type for type in types)
    columns = tuple(Column(i, type) for i, type in enumerate(known))
    core = Aggregate("array_agg", (Call("json_member(any,any)", columns, TEXT),), array_of(TEXT))
    finish = Call("json_of_members(text[])", (Column(0, core.type),), JSON)
    return ResolvedAggregate(known, JSON, (core,), finish)


def _spread(name: str) -> Callable[[tuple[SqlType, ...]], ResolvedAggregate | None]:
    """Variances: of exact numbers from their sums, of floats from squared deviations."""

    def resolve(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
        (type,) = types
        if type.name in INTEGERS or type.name == "numeric":
            operand: Scalar = Column(0, type)
            sums: tuple[Scalar, Scalar]
            if type.name in INTEGERS:
                operand = Call(f"cast({type.name},numeric)", (operand,), WHOLE)
            square_type = numeric_of_scale(min(2 * (type.scale or 0), 30), trim=type.trim)
            square = Call("multiply(numeric,numeric)", (operand, operand), square_type)
            first = _total(Column(0, type))
            second = _total(square, len(first.cores), parted=type.name not in ("int2", "int4"))
            cores, sums = (*first.cores, *second.cores), (first.value, second.value)
            key, result = f"{name}(numeric,numeric,int8)", NUMERIC
        elif type.name == "number":
            column = Column(0, NUMBER)
            product = Call("multiply(number,number)", (column, column), NUMBER)
            ones, total = sums_of(column, 0)
            others, of_squares = sums_of(product, len(ones))
            cores, sums = (*ones, *others), (total, of_squares)
            key, result = f"{name}(number,number,int8)", NUMBER
        elif type.name in ("float4", "float8"):
            operand = Column(0, type)
            if type.name == "float4":
                operand = Call("cast(float4,float8)", (operand,), FLOAT8)
            moment = Aggregate("comoment_float", (operand, operand), FLOAT8)
            count = Column(1, INT8, False)
            finish = Call(f"{name}(float8,int8)", (Column(0, FLOAT8), count), FLOAT8)
            return ResolvedAggregate(types, FLOAT8, (moment, _count(type)), finish)
        else:
            return None
        count = Column(len(cores), INT8, False)
        finish = Call(key, (*sums, count), result)
        return ResolvedAggregate(types, result, (*cores, _count(type)), finish, distinct=False)

    return resolve


def _spread_of_distinct(name: str) -> Rule:
    def resolve(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
        (type,) = types
        if type.name not in (*INTEGERS, "numeric", "number", "float4", "float8"):
            return None
        wide = FLOAT8 if type.name in ("float4", "float8") else NUMBER
        return _of_rows(gathered.spread_of_distinct(name, wide), (wide,))

    return resolve


def _of_pairs(name: str) -> Callable[[tuple[SqlType, ...]], ResolvedAggregate | None]:
    """Covariance, correlation and regression."""

    def resolve(types: tuple[SqlType, ...]) -> ResolvedAggregate | None:
        if not all(implicitly_castable(type, FLOAT8) for type in types):
            return None
        cores, finish = regression.composed(name)
        return ResolvedAggregate(regression.PAIR, type_of(finish), cores, finish, distinct=False)

    return resolve


_SPREADS = {"variance": "var_samp", "stddev": "stddev_samp", **{s.name: s.name for s in SPREADS}}
# Aggregates composed differently for DISTINCT arguments.
_OF_DISTINCT: dict[str, Rule] = {
    "sum": partial(_sum, distinct=True),
    "avg": partial(_avg, distinct=True),
    **{name: _spread_of_distinct(kind) for name, kind in _SPREADS.items()},
}
# Aggregates that take unsigned integers as numerics.
_OF_NUMBERS = frozenset(["sum", "avg", *_SPREADS])
_AGGREGATES: dict[str, tuple[tuple[int, ...], Rule]] = {
    "count": ((0, 1), _count_of),
    "sum": ((1,), _sum),
    "avg": ((1,), _avg),
    "min": ((1,), _extreme("min")),
    "max": ((1,), _extreme("max")),
    "bool_and": ((1,), _bool("min")),
    "every": ((1,), _bool("min")),
    "bool_or": ((1,), _bool("max")),
    "string_agg": ((2,), _string_agg),
    "array_agg": ((1,), _array_agg),
    "jsonb_agg": ((1,), _jsonb_agg),
    "list_agg": ((1,), _list_agg),
    "map_agg": ((2,), _map_agg),
    "range_agg": ((1,), _of_ranges("range_agg")),
    "range_intersect_agg": ((1,), _of_ranges("range_intersect_agg")),
    "json_agg": ((1,), _json_agg),
    "json_object_agg": ((2,), _json_object_agg),
    "jsonb_object_agg": ((2,), _jsonb_object_agg),
    "bit_and": ((1,), _bits("and")),
    "bit_or": ((1,), _bits("or")),
    "bit_xor": ((1,), _bits("xor")),
    **{name: ((1,), _spread(kind)) for name, kind in _SPREADS.items()},
    "arg_max": ((2,), _argument_of("arg_max")),
    "max_by": ((2,), _argument_of("arg_max")),
    "arg_min": ((2,), _argument_of("arg_min")),
    "min_by": ((2,), _argument_of("arg_min")),
    "any_value": ((1,), _any_value),
    "approx_count_distinct": ((1,), _count_distinct),
    **{name: ((2,), _of_pairs(name)) for name in regression.NAMES},
}


def aggregate_names() -> Collection[str]:
    """Return the names of the aggregates."""
    return _AGGREGATES.keys()


def is_aggregate(name: str) -> bool:
    """Return whether `name` is an aggregate."""
    return name in _AGGREGATES


def resolve_aggregate(
    name: str, arg_types: Sequence[SqlType], literals: Literals = None, *, distinct: bool = False
) -> ResolvedAggregate:
    """Return the composition of the aggregate, `distinct` or not.

    Raises UndefinedFunction.
    """
    types = tuple(arg_types)
    entry = _AGGREGATES.get(name)
    if entry is not None and len(types) in entry[0]:
        known = types
        if types and types[0].name == "unknown" and name in ("sum", "avg"):
            raise ambiguous(name, types)  # a number, or an interval
        if types and types[0].name == "unknown" and name in ("min", "max"):
            known = (TEXT,)
        if known and known[0].name in UNSIGNED and name in _OF_NUMBERS:
            known = (WHOLE,)
        rule = _OF_DISTINCT.get(name, entry[1]) if distinct else entry[1]
        resolved = rule(known)
        if resolved is not None:
            return resolved
    raise UndefinedFunction(
        f"function {spelled(name, types)} does not exist",
        hint="No function matches the given name and argument types. "
        "You might need to add explicit type casts.",
    )
