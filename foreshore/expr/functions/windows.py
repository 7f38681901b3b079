"""SQL window functions, composed of the IR's and of scalar functions over them.

    percent_rank()  =  (rank() - 1) / (count(*) - 1)
    ntile(n)       =  a scalar of row_number(), count(*) and the n of the partition's first row

In a `ResolvedWindow`, `Column(i)` within `cores` is the i-th argument, coerced to `arg_types`; in
`finish`, `Column(j)` is the result of the j-th core.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from foreshore.datum import to_array
from foreshore.errors import DatatypeMismatch, UndefinedFunction
from foreshore.expr.columns import type_of
from foreshore.expr.functions.aggregates import ResolvedAggregate
from foreshore.expr.functions.function import Outcome, Signature, hidden
from foreshore.expr.functions.resolve import (
    implicitly_castable,
    select_common_type,
    spelled,
)
from foreshore.expr.functions.rows import Failure, computed, fail, mapped
from foreshore.expr.ir import Call, Column, Literal, Scalar, WindowFunction
from foreshore.expr.windows import WHOLE
from foreshore.types import FLOAT8, INT4, INT8, SqlType

ONE = Literal(1, INT8)


@dataclass(frozen=True, slots=True)
class ResolvedWindow:
    """The composition of a window function; see the module."""

    arg_types: tuple[SqlType, ...]
    cores: tuple[WindowFunction, ...]
    finish: Scalar
    framed: bool = True  # whether the cores take the call's frame

    @property
    def result(self) -> SqlType:
        """Return the type of the function."""
        return type_of(self.finish)


def _plain(core: WindowFunction, types: tuple[SqlType, ...] = ()) -> ResolvedWindow:
    return ResolvedWindow(types, (core,), Column(0, core.type, core.nullable))


def _number(name: str) -> Callable[[tuple[SqlType, ...]], ResolvedWindow | None]:
    core = WindowFunction(name, (), INT8)  # type: ignore[arg-type]
    return lambda types: _plain(core)


_COUNT = WindowFunction("count", (), INT8, WHOLE)
_RANK = WindowFunction("rank", (), INT8)
_UP_TO_PEERS = WindowFunction("count", (), INT8)


def _share(
    name: str, core: WindowFunction
) -> Callable[[tuple[SqlType, ...]], ResolvedWindow | None]:
    counts = (Column(0, INT8, False), Column(1, INT8, False))
    finish = Call(f"{name}(int8,int8)", counts, FLOAT8)
    return lambda types: ResolvedWindow((), (core, _COUNT), finish, framed=False)


def _ntile(types: tuple[SqlType, ...]) -> ResolvedWindow | None:
    if not _is_int4(types[0]):
        return None
    cores = (
        WindowFunction("row_number", (), INT8),
        _COUNT,
        WindowFunction("nth_value", (Column(0, INT4), ONE), INT4, WHOLE),
    )
    counts = (Column(0, INT8, False), Column(1, INT8, False), Column(2, INT4))
    finish = Call("ntile(int8,int8,int4)", counts, INT4)
    return ResolvedWindow((INT4,), cores, finish, framed=False)


def _known(type: SqlType) -> SqlType:
    """Return the type of an argument of any type; raises DatatypeMismatch if it is unknown."""
    if type.name == "unknown":
        raise DatatypeMismatch(
            "could not determine polymorphic type because input has type unknown"
        )
    return type


def _is_int4(type: SqlType) -> bool:
    return type.name == "unknown" or implicitly_castable(type, INT4)


def _lag(name: str) -> Callable[[tuple[SqlType, ...]], ResolvedWindow | None]:
    def resolve(types: tuple[SqlType, ...]) -> ResolvedWindow | None:
        if len(types) > 1 and not _is_int4(types[1]):
            return None
        if len(types) == 3:
            value = select_common_type((types[0], types[2]))
            if value is None:
                return None
            arg_types: tuple[SqlType, ...] = (value, INT4, value)
        else:
            value = _known(types[0])
            arg_types = (value, INT4)[: len(types)]
        rows: Scalar = ONE
        if len(types) > 1:
            rows = Call("cast(int4,int8)", (Column(1, INT4),), INT8)
        default: Scalar = Column(2, value) if len(types) == 3 else Literal(None, value)
        args = (Column(0, value), rows, default)
        core = WindowFunction(name, args, value)  # type: ignore[arg-type]
        return _plain(core, arg_types)

    return resolve


def _first_value(types: tuple[SqlType, ...]) -> ResolvedWindow | None:
    type = _known(types[0])
    return _plain(WindowFunction("nth_value", (Column(0, type), ONE), type), (type,))


def _last_value(types: tuple[SqlType, ...]) -> ResolvedWindow | None:
    type = _known(types[0])
    return _plain(WindowFunction("last_value", (Column(0, type),), type), (type,))


def _last_known(types: tuple[SqlType, ...]) -> ResolvedWindow | None:
    type = _known(types[0])
    return _plain(WindowFunction("last_known", (Column(0, type),), type), (type,))


def _nth_value(types: tuple[SqlType, ...]) -> ResolvedWindow | None:
    if not _is_int4(types[1]):
        return None
    type = _known(types[0])
    n = Call("nth_argument(int4)", (Column(1, INT4),), INT8)
    return _plain(WindowFunction("nth_value", (Column(0, type), n), type), (type, INT4))


Rule = Callable[[tuple[SqlType, ...]], ResolvedWindow | None]
_WINDOWS: dict[str, tuple[tuple[int, ...], Rule]] = {
    "row_number": ((0,), _number("row_number")),
    "rank": ((0,), _number("rank")),
    "dense_rank": ((0,), _number("dense_rank")),
    "percent_rank": ((0,), _share("percent_rank", _RANK)),
    "cume_dist": ((0,), _share("cume_dist", _UP_TO_PEERS)),
    "ntile": ((1,), _ntile),
    "lag": ((1, 2, 3), _lag("lag")),
    "lead": ((1, 2, 3), _lag("lead")),
    "first_value": ((1,), _first_value),
    "last_value": ((1,), _last_value),
    "nth_value": ((2,), _nth_value),
    "_last_known": ((1,), _last_known),  # no function of users
}


def window_function_names() -> Collection[str]:
    """Return the names of the window functions that are not aggregates."""
    return _WINDOWS.keys()


def is_window_function(name: str) -> bool:
    """Return whether `name` is a window function that is not an aggregate."""
    return name in _WINDOWS


def resolve_window(name: str, arg_types: Sequence[SqlType]) -> ResolvedWindow:
    """Return the composition of a window function; raises UndefinedFunction."""
    types = tuple(arg_types)
    counts, rule = _WINDOWS[name]
    resolved = rule(types) if len(types) in counts else None
    if resolved is None:
        raise UndefinedFunction(
            f"function {spelled(name, types)} does not exist",
            hint="No function matches the given name and argument types. "
            "You might need to add explicit type casts.",
        )
    return resolved


def window_of_aggregate(found: ResolvedAggregate) -> ResolvedWindow:
    """Return an aggregate as a window function."""
    cores = tuple(
        WindowFunction(core.function, core.args, core.type, filter=core.filter)
        for core in found.cores
    )
    return ResolvedWindow(found.arg_types, cores, found.finish)


# --- scalar functions ---------------------------------------------------------------------------


def _percent_rank(rank: int, count: int) -> float:
    return (rank - 1) / (count - 1) if count > 1 else 0.0


def _bucket(number: int, count: int, buckets: int) -> int:
    """Return the bucket of a row of `count`, where the first buckets have one row more."""
    if buckets <= 0:
        raise fail("22014", "argument of ntile must be greater than zero")
    size, longer = divmod(count, buckets)
    if number <= longer * (size + 1):
        return (number - 1) // (size + 1) + 1
    return longer + (number - 1 - longer * (size + 1)) // size + 1


def _nth(n: int) -> int:
    if n <= 0:
        raise fail("22016", "argument of nth_value must be greater than zero")
    return n


def check_offset(which: str, value: Any) -> Failure | None:
    """Return the error of a frame's offset in rows, groups or a distance, if it has one."""
    end = "starting" if which.endswith("start") else "ending"
    if value is None:
        return fail("22004", f"frame {end} offset must not be null")
    is_range = which.startswith("range")
    if isinstance(value, tuple | list):
        months, days, micros = value
        negative = (months * 30 + days) * 86_400_000_000 + micros < 0
    else:
        number = float(value) if isinstance(value, str) else value
        negative = number < 0 or number != number
    if not negative:
        return None
    if is_range:
        return fail("22013", "invalid preceding or following size in window function")
    return fail("22013", f"frame {end} offset must not be negative")


def _offset(which: str) -> Callable[..., Outcome]:
    def compute(value: Any) -> Any:
        failure = check_offset(which, value[0])
        if failure is not None:
            raise failure
        return value[0]

    def kernel(types: Signature, values: pa.Array) -> Outcome:
        from foreshore.datum import from_array

        given = [((value,),) for value in from_array(values, types.args[0])]
        results, errors = computed(compute, given)
        result = to_array(results, types.result)
        return result if errors is None else (result, errors)

    return kernel


hidden("percent_rank(int8,int8)", "int8 int8", "float8", mapped(_percent_rank))
hidden("cume_dist(int8,int8)", "int8 int8", "float8", mapped(lambda rows, count: rows / count))
hidden("ntile(int8,int8,int4)", "int8 int8 int4", "int4", mapped(_bucket), fallible=True)
hidden("nth_argument(int4)", "int4", "int8", mapped(_nth), fallible=True)
for _which in ("frame_start", "frame_end", "range_start", "range_end"):
    hidden(
        f"{_which}(anyelement)",
        "anyelement",
        lambda args, literals: args[0],
        _offset(_which),
        strict=False,
        fallible=True,
    )
