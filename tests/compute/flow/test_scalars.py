"""Each function that programs compute themselves gives what the registry's function gives."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from foreshore.compute.flow import memo
from foreshore.compute.flow.batch import Batch
from foreshore.compute.flow.compiler import Compiler
from foreshore.compute.flow.convert import columns_of, words_of
from foreshore.compute.flow.intern import Interner
from foreshore.compute.flow.layout import layout_of
from foreshore.compute.flow.program import Context
from foreshore.datum import from_array, to_array
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.registry import scalar_function
from foreshore.expr.functions.temporal import LEAST
from foreshore.expr.ir import Call, Column, Literal, Scalar
from foreshore.types import (
    DATE,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    TEXT,
    TIMESTAMP,
    ColumnType,
    SqlType,
    numeric,
    numeric_of_scale,
)

DAY = 86_400_000_000
BOOL, INTERVAL = SqlType("bool"), SqlType("interval")
FIELDS = "year quarter month day dow isodow doy hour minute second".split()
TRUNCATIONS = "year quarter month week day hour minute second".split()
WHOLE, CENTS = numeric_of_scale(0), numeric_of_scale(2)
LONG, TRIMMED = numeric_of_scale(20), numeric_of_scale(20, trim=True)
NARROW = numeric(10, 2)
FLOATS = (0.0, -0.0, 1.5, -2.25, 1e308, -1e308, 5e-324, 1e-200, float("inf"), float("-inf"))


def value_of(type: SqlType, random: Random) -> Any:
    """Return a value, often a small, an extreme or a special one."""
    match type.name:
        case "int2" | "int4" | "int8":
            bound = 1 << ({"int2": 16, "int4": 32, "int8": 64}[type.name] - 1)
            return random.choice((0, 1, -1, 2, 3, 10, -7, bound - 1, -bound, bound // 3))
        case "numeric":
            digits = random.choice((1, 2, 4, 9, 17, 18, type.length or 38))
            value = random.randrange(10 ** min(digits, type.length or 38))
            if random.random() < 0.3:
                value -= value % 10 ** random.randrange(digits)
            text = str(value).rjust((type.scale or 0) + 1, "0")
            cut = len(text) - (type.scale or 0)
            shown = f"{text[:cut]}.{text[cut:]}" if type.scale else text
            return f"-{shown}" if value and random.random() < 0.4 else shown
        case "float8":
            return random.choice((*FLOATS, float("nan"), random.gauss(0, 1)))
        case "date":
            return random.choice(
                (-(2**31), 2**31 - 1, 0, -1, random.randrange(-900_000, 2_000_000))
            )
        case "timestamp" | "timestamptz":
            extremes = (-(2**63), 2**63 - 1, 0, -1, LEAST)
            return random.choice((*extremes, random.randrange(-900_000 * DAY, 2_000_000 * DAY)))
        case _:
            return random.choice(("", "a", "ab", "special requests", "x%y", "naïve"))


def compared() -> Iterator[tuple[str, tuple[SqlType, ...], SqlType]]:
    """Yield comparisons."""
    pairs = [(INT4, INT4), (CENTS, WHOLE), (WHOLE, CENTS), (LONG, NARROW), (NARROW, NARROW)]
    for pair in (*pairs, (FLOAT8, FLOAT8), (TEXT, TEXT), (DATE, DATE)):
        for name in ("eq", "ne", "lt", "le", "gt", "ge"):
            yield name, pair, BOOL


def arithmetic() -> Iterator[tuple[str, tuple[SqlType, ...], SqlType]]:
    """Yield arithmetic and casts."""
    for type in (INT2, INT4, INT8):
        for stem in ("add", "subtract", "multiply", "divide", "modulo"):
            yield f"{stem}({type.name},{type.name})", (type, type), type
        yield f"negate({type.name})", (type,), type
        yield f"cast({type.name},numeric)", (type,), WHOLE
        yield f"cast({type.name},numeric)", (type,), numeric(6, 3)
        yield f"abs({type.name})", (type,), type
        yield f"cast({type.name},float8)", (type,), FLOAT8
        for numeric_type in (WHOLE, CENTS, LONG, NARROW):
            yield f"cast(numeric,{type.name})", (numeric_type,), type
        for other in (INT2, INT4, INT8):
            if other != type:
                yield f"cast({type.name},{other.name})", (type,), other
    for source, target in ((WHOLE, CENTS), (CENTS, numeric(9, 4)), (NARROW, LONG), (CENTS, CENTS)):
        yield "cast(numeric,numeric)", (source,), target
    for source, target in (
        (LONG, numeric(30, 3)),
        (CENTS, numeric(20, 0)),
        (NARROW, numeric(5, 1)),
    ):
        yield "cast(numeric,numeric)", (source,), target
    for source in (WHOLE, CENTS, LONG, NARROW, TRIMMED):
        for function in ("round", "trunc", "ceil", "floor"):
            yield f"{function}(numeric)", (source,), WHOLE
        yield "abs(numeric)", (source,), source
    for stem in ("add", "subtract", "multiply", "divide"):
        yield f"{stem}(float8,float8)", (FLOAT8, FLOAT8), FLOAT8
        for pair in (
            (CENTS, WHOLE),
            (WHOLE, CENTS),
            (CENTS, CENTS),
            (NARROW, LONG),
            (TRIMMED, CENTS),
        ):
            yield f"{stem}(numeric,numeric)", pair, result_of(stem, pair)
    for total in (WHOLE, CENTS, TRIMMED, NARROW):
        yield "average(numeric,int8)", (total, INT8), result_of("divide", (total, WHOLE))


def result_of(stem: str, types: tuple[SqlType, ...]) -> SqlType:
    """Return the type of an operation on numerics."""
    return typed(f"{stem}(numeric,numeric)", types, None)


def typed(function: str, types: tuple[SqlType, ...], literals: Any) -> SqlType:
    """Return the type of a function whose type follows from its arguments."""
    made = scalar_function(function).result
    assert callable(made)
    return made(types, literals)


def call(function: str, types: tuple[SqlType, ...], result: SqlType) -> Scalar:
    """Return a call over the columns."""
    return Call(function, tuple(Column(i, type) for i, type in enumerate(types)), result)


def compiled(
    scalar: Scalar,
    types: tuple[SqlType, ...],
    rows: list[tuple[Any, ...]],
    *,
    native: bool | None = True,
) -> tuple[list[Any], list[str | None]]:
    """Return the values and the errors that a program gives; it must be `native`, if not None."""
    columns = tuple(ColumnType(type) for type in types)
    interner = Interner()
    compiler = Compiler(layout_of(columns), interner)
    (resolved,) = map(compiler.resolved, [scalar])
    compiler.put_row(columns)
    result = (ColumnType(resolved.type),)  # type: ignore[union-attr]
    checker = Compiler(layout_of(columns), interner)
    checker.check([resolved], 0)
    checker.put(result, [resolved], "row")
    program = checker.program()
    assert native is None or bool(program.given) is not native
    context = Context(interner, 1)
    arrays = [to_array([row[i] for row in rows], type) for i, type in enumerate(types)]
    words = words_of(arrays, len(rows), layout_of(columns), interner)
    places = np.arange(len(rows))
    out = program.run(Batch(words, places, np.ones(len(rows), np.int64)), context)
    values: list[Any] = [None] * len(rows)
    (array,) = columns_of(out.words, layout_of(result), interner)
    for place, value in zip(out.times.tolist(), from_array(array, resolved.type), strict=True):  # type: ignore[union-attr]
        values[place] = value
    errors: list[str | None] = [None] * len(rows)
    for failed in context.failures().get(0, []):
        texts = interner.strings(failed.words[:, 0], pa.string()).to_pylist()
        for place, text in zip(failed.times.tolist(), texts, strict=True):
            errors[place] = text
    return values, errors


def expected(
    scalar: Scalar, types: tuple[SqlType, ...], rows: list[tuple[Any, ...]]
) -> tuple[list[Any], list[str | None]]:
    """Return the values and the errors of the registry's functions."""
    arrays = [to_array([row[i] for row in rows], type) for i, type in enumerate(types)]
    values, errors = outcome(scalar, arrays, len(rows))
    found = from_array(values, scalar.type)  # type: ignore[union-attr]
    return found, [None] * len(rows) if errors is None else errors.to_pylist()


def drawn(types: tuple[SqlType, ...], random: Random, count: int) -> list[tuple[Any, ...]]:
    """Return random rows, some with NULLs."""
    return [
        tuple(None if random.random() < 0.1 else value_of(type, random) for type in types)
        for _ in range(count)
    ]


def check(scalar: Scalar, types: tuple[SqlType, ...], *, native: bool = True) -> None:
    """Compare the program with the registry over random rows."""
    rows = drawn(types, Random(repr(scalar)), 300)
    found, wanted = compiled(scalar, types, rows, native=native), expected(scalar, types, rows)
    for row, *pair in zip(rows, zip(*found, strict=True), zip(*wanted, strict=True), strict=True):
        assert repr(pair[0]) == repr(pair[1]), row


CASES = [*compared(), *arithmetic()]


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[0]} {'-'.join(map(str, c[1]))} {c[2]}")
def test_program_gives_what_function_gives(
    case: tuple[str, tuple[SqlType, ...], SqlType],
) -> None:
    function, types, result = case
    check(call(function, types, result), types)


def test_average_of_floats() -> None:
    scalar = call("average(float8,int8)", (FLOAT8, INT8), FLOAT8)
    random = Random(1)
    rows = [(value_of(FLOAT8, random), random.choice((0, 1, 2, 3, 7, 10**12))) for _ in range(700)]
    assert repr(compiled(scalar, (FLOAT8, INT8), rows)) == repr(
        expected(scalar, (FLOAT8, INT8), rows)
    )


@pytest.mark.parametrize("digits", [-3, 0, 1, 2, 5, 25])
def test_rounding_to_digits(digits: int) -> None:
    for function in ("round(numeric,int4)", "trunc(numeric,int4)"):
        for source in (CENTS, LONG, NARROW, WHOLE):
            result = typed(function, (source, INT4), (None, digits))
            check(Call(function, (Column(0, source), Literal(digits, INT4)), result), (source,))


@pytest.mark.parametrize("unit", FIELDS)
def test_fields_of_times(unit: str) -> None:
    for type in (DATE, TIMESTAMP):
        if type == DATE and unit in ("hour", "minute", "second"):
            continue
        function = f"extract(text,{type.name})"
        args = (Literal(unit, TEXT), Column(0, type))
        check(Call(function, args, typed(function, (TEXT, type), (unit, None))), (type,))


@pytest.mark.parametrize("unit", TRUNCATIONS)
def test_truncated_timestamps(unit: str) -> None:
    args = (Literal(unit, TEXT), Column(0, TIMESTAMP))
    check(Call("date_trunc(text,timestamp)", args, TIMESTAMP), (TIMESTAMP,))


@pytest.mark.parametrize("type", [TIMESTAMP, SqlType("timestamptz")])
def test_bins_of_times(type: SqlType) -> None:
    def bins(width: tuple[int, int, int], origin: int) -> Call:
        args = (Literal(width, INTERVAL), Column(0, type), Literal(origin, type))
        return Call(f"date_bin(interval,{type.name},{type.name})", args, type)

    for origin in (1_767_225_600_000_000, -1, LEAST, 294_275 * 365 * DAY // 10):
        for width in (
            (0, 0, 10_000_000),
            (0, 0, 1),
            (0, 3, 7),
            (0, 9_999_999, 1),
            (0, -1, DAY + 9),
        ):
            check(bins(width, origin), (type,))
    for width, origin in (((1, 0, 0), 0), ((0, 0, 0), 0), ((0, 0, 1), 2**63 - 1)):
        check(bins(width, origin), (type,), native=False)


@pytest.mark.parametrize(
    "case",
    [("like_total(text,text)", ("%special%",), BOOL), ("upper(text)", (), TEXT),
     ("substring(text,int4,int4)", (2, 1), TEXT), ("cast(text,int4)", (), INT4)],
)  # fmt: skip
def test_functions_of_strings_are_remembered(case: tuple[str, tuple[Any, ...], SqlType]) -> None:
    function, values, result = case
    literals = tuple(Literal(each, TEXT if isinstance(each, str) else INT4) for each in values)
    check(Call(function, (Column(0, TEXT), *literals), result), (TEXT,), native=False)


def test_memo_evaluates_each_string_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memo, "MOST", 64)
    evaluated: list[int] = []

    def negated(ids: np.ndarray) -> memo.Values:
        evaluated.extend(ids.tolist())
        return -ids, ids >> 63, ids % 2 == 0, ids % 3

    kept, random = memo.Memo(), np.random.default_rng(1)
    for _ in range(200):
        ids = random.integers(0, 30, 16)
        assert [each.tolist() for each in kept.values(ids, negated, 0)] == [
            (-ids).tolist(), (ids >> 63).tolist(), (ids % 2 == 0).tolist(), (ids % 3).tolist()
        ]  # fmt: skip
    assert sorted(evaluated) == list(range(30))
    many = np.arange(100, 116)
    for start in (0, 16, 32, 48):
        kept.values(many + start, negated, 0)
    assert kept.values(np.array([5, 5]), negated, 0)[0].tolist() == [-5, -5]
    assert evaluated.count(5) == 2


def test_memo_forgets_all_with_each_generation_of_strings() -> None:
    kept = memo.Memo()

    def of(value: int) -> Callable[[np.ndarray], memo.Values]:
        return lambda ids: (ids * 0 + value, ids * 0, ids < 0, ids * 0)

    ids = np.array([5])
    assert kept.values(ids, of(1), 0)[0].tolist() == [1]
    assert kept.values(ids, of(2), 0)[0].tolist() == [1]
    assert kept.values(ids, of(3), 1)[0].tolist() == [3]
