"""Ranges and multiranges: constructors, operators, functions, and what their aggregates finish."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import pyarrow as pa

from foreshore.datum import from_array
from foreshore.expr.functions.function import (
    Kernel,
    Outcome,
    Signature,
    declare,
    declare_table,
    hidden,
)
from foreshore.expr.functions.rows import collect, fail
from foreshore.ranges import (
    BOUNDS,
    MULTIRANGES,
    POSITIONS,
    Bound,
    Range,
    Ranges,
    contains,
    cut,
    difference,
    intersection,
    lower_bound,
    make_range,
    overlap,
    range_of,
    ranges_of,
    spanned,
    stored,
    stored_ranges,
    union,
    upper_bound,
)

_POSITION_NAMES = {
    "<<": "range_before",
    ">>": "range_after",
    "&<": "range_overleft",
    "&>": "range_overright",
    "-|-": "range_adjacent",
}
_FLAGS = {"[]": (True, True), "[)": (True, False), "(]": (False, True), "()": (False, False)}


def _kernel(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel of `compute(*data)` over rows without NULLs."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        columns = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
        return collect(types, compute, zip(*columns, strict=True))

    return kernel


def _kernel_of_nulls(compute: Callable[..., Any]) -> Kernel:
    """Return the kernel of `compute(*data)` over all rows; a NULL is None."""

    def kernel(types: Signature, *arrays: pa.Array) -> Outcome:
        columns = [from_array(a, t) for a, t in zip(arrays, types.args, strict=True)]
        rows = [tuple((datum,) for datum in row) for row in zip(*columns, strict=True)]
        return collect(types, lambda *row: compute(*(datum for (datum,) in row)), rows)

    return kernel


# --- readings of arguments --------------------------------------------------------------------


def _of_range(datum: bytes, type: str) -> Ranges:
    found = range_of(datum, type)
    return () if found is None else (found,)


def _of_element(datum: Any, type: str) -> Ranges:
    return (Range(cut(datum, after=False, type=type), cut(datum, after=True, type=type)),)


def _reader(pattern: str, type: str) -> Callable[[Any], Ranges]:
    """Return the function that reads an argument of the type `pattern` as ranges."""
    if pattern == type:
        return partial(_of_range, type=type)
    if pattern in MULTIRANGES:
        return partial(ranges_of, type=type)
    return partial(_of_element, type=type)


def _operator(
    name: str,
    args: str,
    result: str,
    type: str,
    compute: Callable[[Ranges, Ranges], Any],
    *,
    stem: str,
    fallible: bool = False,
) -> None:
    """Declare an operator over two arguments that are read as ranges."""
    first, second = (_reader(pattern, type) for pattern in args.split())
    kernel = _kernel(lambda a, b: compute(first(a), second(b)))
    declare(name, args, result, kernel, stem=stem, fallible=fallible)


# --- ranges -----------------------------------------------------------------------------------


def _construct(type: str) -> Callable[..., bytes]:
    def construct(low: Any, high: Any, flags: str | None = "[)") -> bytes:
        if flags is None:
            raise fail("22000", "range constructor flags argument must not be null")
        if flags not in _FLAGS:
            raise fail("42601", "invalid range bound flags")
        lower, upper = _FLAGS[flags]
        return stored(
            make_range(
                None if low is None else Bound(low, lower),
                None if high is None else Bound(high, upper),
                type,
            )
        )

    return construct


def _one(what: str, found: Ranges) -> bytes:
    if len(found) > 1:
        raise fail("22000", f"result of range {what} would not be contiguous")
    return stored(found[0] if found else None)


def _span(a: Ranges, b: Ranges) -> Range | None:
    both = (*a, *b)
    if not both:
        return None
    return Range(min(each.low for each in both), max(each.high for each in both))


def _value(bound: Bound | None) -> Any:
    return None if bound is None else bound.value


def _edges(read: Callable[[Any], Ranges], type: str) -> dict[str, Callable[[Any], Any]]:
    """Return the functions of the bounds of a range or multirange."""

    def low(datum: Any) -> Bound | None:
        ranges = read(datum)
        return lower_bound(ranges[0], type) if ranges else None

    def high(datum: Any) -> Bound | None:
        ranges = read(datum)
        return upper_bound(ranges[-1], type) if ranges else None

    return {
        "isempty": lambda datum: not read(datum),
        "lower": lambda datum: _value(low(datum)),
        "upper": lambda datum: _value(high(datum)),
        "lower_inc": lambda datum: (bound := low(datum)) is not None and bound.inclusive,
        "upper_inc": lambda datum: (bound := high(datum)) is not None and bound.inclusive,
        "lower_inf": lambda datum: bool(read(datum)) and low(datum) is None,
        "upper_inf": lambda datum: bool(read(datum)) and high(datum) is None,
    }


def _declare_edges(pattern: str, type: str) -> None:
    for name, compute in _edges(_reader(pattern, type), type).items():
        result = BOUNDS[type].name if name in ("lower", "upper") else "bool"
        # A bound of a numrange may have more digits than a numeric.
        declare(name, pattern, result, _kernel(compute), fallible=result == "numeric")


def _declare_common(type: str, many: str) -> None:
    """Declare the operators that ranges and multiranges share."""
    element = BOUNDS[type].name
    pairs = [(type, type), (type, many), (many, type), (many, many)]
    for a, b in pairs:
        args = f"{a} {b}"

        def named(operator: str, name: str, both: bool = (a, b) == (type, type)) -> str:
            return f"{operator} {name}" if both else operator

        contain = named("@>", "range_contains")
        _operator(contain, args, "bool", type, contains, stem="range_contains")
        _operator(
            *(named("<@", "range_contained_by"), args, "bool", type),
            lambda x, y: contains(y, x),
            stem="range_contained",
        )
        _operator(named("&&", "range_overlaps"), args, "bool", type, overlap, stem="range_overlaps")
        for name, test in POSITIONS.items():
            names = named(name, _POSITION_NAMES[name])
            _operator(names, args, "bool", type, test, stem=f"range {name} ")
    for each in (type, many):
        is_range = each == type
        _operator(
            "@> range_contains_elem" if is_range else "@>",
            *(f"{each} {element}", "bool", type, contains),
            stem="range_contains",
        )
        _operator(
            "<@ elem_contained_by_range" if is_range else "<@",
            *(f"{element} {each}", "bool", type),
            lambda x, y: contains(y, x),
            stem="range_contained",
        )
        _declare_edges(each, type)


def _declare_ranges(type: str) -> None:
    element = BOUNDS[type].name
    args = f"{element} {element}"
    construct = _kernel_of_nulls(_construct(type))
    declare(type, args, type, construct, strict=False, fallible=True)
    declare(type, f"{args} text", type, construct, strict=False, fallible=True)
    both = f"{type} {type}"
    _operator(
        *("+ range_union", both, type, type),
        lambda a, b: _one("union", union((*a, *b))),
        stem="range_union",
        fallible=True,
    )
    _operator(
        "* range_intersect",
        both,
        type,
        type,
        lambda a, b: _one("", intersection(a, b)),
        stem="range_both",
    )
    _operator(
        *("- range_minus", both, type, type),
        lambda a, b: _one("difference", difference(a, b)),
        stem="range_without",
        fallible=True,
    )
    first = _reader(type, type)
    declare("range_merge", both, type, _kernel(lambda a, b: stored(_span(first(a), first(b)))))


def _declare_multiranges(type: str, many: str) -> None:
    one, several = _reader(type, type), _reader(many, type)

    def construct(*data: bytes) -> bytes:
        return stored_ranges(union(each for datum in data for each in one(datum)))

    def construct_of_many(*data: bytes | None) -> bytes | None:
        if len(data) == 1 and data[0] is None:
            return None
        given = [datum for datum in data if datum is not None]
        if len(given) < len(data):
            raise fail("22004", "multirange values cannot contain null members")
        return construct(*given)

    declare(many, "", many, lambda types: pa.array([b""], pa.binary()))
    declare(
        *(f"{many} multirange", type, many, _kernel_of_nulls(construct_of_many)),
        strict=False,
        fallible=True,
        fails=lambda types: len(types.args) > 1,
        variadic=True,
    )
    hidden(f"cast({type},{many})", type, many, _kernel(construct))
    both = f"{many} {many}"
    results: dict[str, tuple[str, Callable[[Ranges, Ranges], Ranges]]] = {
        "+": ("union", lambda a, b: union((*a, *b))),
        "*": ("both", intersection),
        "-": ("without", difference),
    }
    for name, (stem, compute) in results.items():
        _operator(
            *(name, both, many, type),
            lambda a, b, compute=compute: stored_ranges(compute(a, b)),  # type: ignore[misc]
            stem=f"multirange_{stem}",
        )
    declare("range_merge", many, type, _kernel(lambda a: stored(spanned(several(a)))))
    declare_table("unnest", many, f"{type}[]", _kernel(lambda a: tuple(map(stored, several(a)))))

    def present(data: Iterable[bytes | None]) -> list[bytes]:
        return [datum for datum in data if datum is not None]

    def met(read: Callable[[Any], Ranges], data: Iterable[bytes | None]) -> Ranges | None:
        found: Ranges | None = None
        for datum in present(data):
            found = read(datum) if found is None else intersection(found, read(datum))
        return found

    def united(read: Callable[[Any], Ranges], data: Iterable[bytes | None]) -> bytes | None:
        given = present(data)
        return stored_ranges(union(e for d in given for e in read(d))) if given else None

    for pattern, read in ((type, one), (many, several)):
        args = f"{pattern}[]"
        hidden(f"range_agg({args})", args, many, _kernel(partial(united, read)))
    hidden(
        f"range_intersect_agg({type}[])",
        f"{type}[]",
        type,
        _kernel(lambda data: None if (m := met(one, data)) is None else _one("", m)),
    )
    hidden(
        f"range_intersect_agg({many}[])",
        f"{many}[]",
        many,
        _kernel(lambda data: None if (m := met(several, data)) is None else stored_ranges(m)),
    )


for _many, _type in MULTIRANGES.items():
    _declare_ranges(_type)
    _declare_common(_type, _many)
    _declare_multiranges(_type, _many)
