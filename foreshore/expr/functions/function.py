"""Functions as declared: a signature, a meaning over Arrow arrays, renderings that mean the same.

A family's module declares its functions into `SCALARS`, `CASTS` and `TABLES`; `registry.py` loads
the families and is what the rest of the system asks.

A kernel gets the exact types of the call and one array of physical form for each argument, all of
one length. It returns the results, or the results and the errors: texts of
`foreshore.errors.data_error`, NULL where a row is fine; where a row failed its result is NULL. A
strict kernel may leave anything in rows with a NULL argument: `apply` makes them NULL.

A rendering is given the SQL of the arguments, total already, and returns SQL whose value is the
kernel's to the byte, NULL where the kernel fails; or None where these types have no such form, and
then an engine calls the kernel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.types import MAX_PLANNED_SCALE, NUMERIC, TYPES, SqlType, array_of, numeric_of_scale


class Signature(msgspec.Struct, frozen=True):
    """The exact types, scales and lengths included, of one call."""

    args: tuple[SqlType, ...]
    result: SqlType


Outcome = Any  # pa.Array, or (pa.Array, pa.Array of text or None)
Kernel = Callable[..., Outcome]  # (Signature, *arrays)
One = Callable[[Signature], Callable[..., Any] | None]  # of the types, what computes of data
Literals = tuple[Any, ...] | None  # the datum of each argument that is a literal, else `NO_LITERAL`
ResultRule = Callable[[tuple[SqlType, ...], Literals], SqlType]


class _NoLiteral:
    def __repr__(self) -> str:
        return "NO_LITERAL"


NO_LITERAL = _NoLiteral()


class Renderer(Protocol):
    """What a rendering may ask of the dialect it renders for."""

    name: str  # "duckdb" or "spark"

    def type_name(self, type: SqlType) -> str:
        """Return the engine's name of the type of a column of `type`."""
        ...

    def literal(self, datum: Any, type: SqlType) -> str:
        """Return SQL for a constant."""
        ...


Rendering = Callable[[Renderer, Signature, Sequence[str]], str | None]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """One function. `args` are type patterns: a type's name, `text[]`, or a polymorphic name."""

    key: str
    name: str
    args: tuple[str, ...]
    result: "str | ResultRule"
    kernel: Kernel
    strict: bool = True
    fallible: bool = False
    volatility: str = "immutable"
    variadic: bool = False  # the last of `args` may come any number of times, at least once
    duckdb: Rendering | None = None
    spark: Rendering | None = None
    # Where the function fails for some types only.
    fails: Callable[[Signature], bool] | None = None
    # The error's text, where arguments that are not NULL give NULL only by this one error.
    error: "str | Callable[[Signature], str | None] | None" = None
    # SQL for the error's text or NULL, on either engine, where there are several errors.
    error_sql: Rendering | None = None
    # What the kernel does to a row without NULLs, on data; raises Failure. For strict functions;
    # None where data of the types are not told apart, or not alike, as values are.
    one: One | None = None

    def may_fail(self, signature: Signature) -> bool:
        """Whether a call of these types can fail."""
        return self.fallible and (self.fails is None or self.fails(signature))

    def only_error(self, signature: Signature) -> str | None:
        """Return the one error that calls of these types can have, if it is just one."""
        return self.error(signature) if callable(self.error) else self.error


@dataclass(frozen=True, slots=True)
class Resolved:
    """What a name and types, or a cast, come to: a call, and what to coerce its arguments to."""

    key: str
    arg_types: tuple[SqlType, ...]
    result: SqlType


@dataclass(frozen=True, slots=True)
class TableFunction:
    """A function that gives rows, each an element of the array that a scalar function gives.

    `names` are its columns: the element, and for each of `more`, (key, type), what that scalar
    function makes of the first argument and the element.
    """

    names: tuple[str, ...]
    more: tuple[tuple[str, SqlType], ...] = ()


@dataclass(frozen=True, slots=True)
class Overload:
    """A surface form: matched by `patterns`, its arguments are then coerced to `targets`.

    Patterns and `targets` differ where PostgreSQL has an operator over two types that we compute in
    the wider one.
    """

    patterns: tuple[str, ...]
    function: ScalarFunction
    targets: tuple[str, ...]


# By surface name, in order of declaration; by key.
SCALARS: dict[str, list[Overload]] = {}
BY_KEY: dict[str, ScalarFunction] = {}
TABLES: dict[str, list[tuple[Overload, TableFunction]]] = {}


def declare(
    names: str,
    args: str,
    result: str | ResultRule,
    kernel: Kernel,
    *,
    key: str | None = None,
    strict: bool = True,
    fallible: bool = False,
    variadic: bool = False,
    duckdb: Rendering | None = None,
    spark: Rendering | None = None,
    fails: Callable[[Signature], bool] | None = None,
    error: str | Callable[[Signature], str | None] | None = None,
    error_sql: Rendering | None = None,
    volatility: str = "immutable",
    stem: str | None = None,
    one: One | None = None,
) -> ScalarFunction:
    """Declare a function under each of `names`; `stem` (else the first name) begins its key."""
    patterns = tuple(args.split())
    first, *others = names.split()
    function = ScalarFunction(
        key=key or f"{stem or first}({','.join(patterns)})",
        name=first,
        args=patterns,
        result=result,
        kernel=kernel,
        strict=strict,
        fallible=fallible,
        volatility=volatility,
        variadic=variadic,
        duckdb=duckdb,
        spark=spark,
        fails=fails,
        error=error,
        error_sql=error_sql,
        one=one,
    )
    assert function.key not in BY_KEY, function.key
    BY_KEY[function.key] = function
    for name in (first, *others):
        SCALARS.setdefault(name, []).append(Overload(patterns, function, patterns))
    return function


def overload(names: str, args: str, function: ScalarFunction, targets: str | None = None) -> None:
    """Let `names` over `args` mean `function`, with the arguments coerced to `targets`.

    Without `targets`, to what the function declares.
    """
    wanted = function.args if targets is None else tuple(targets.split())
    for name in names.split():
        SCALARS.setdefault(name, []).append(Overload(tuple(args.split()), function, wanted))


def declare_table(
    name: str,
    args: str,
    result: str | ResultRule,
    kernel: Kernel,
    *,
    columns: str = "",
    more: tuple[tuple[str, SqlType], ...] = (),
    **options: Any,
) -> None:
    """Declare a table function by the scalar function that gives its rows as an array."""
    patterns = tuple(args.split())
    function = hidden(f"{name}({','.join(patterns)})", args, result, kernel, **options)
    table = TableFunction(tuple((columns or name).split()), more)
    TABLES.setdefault(name, []).append((Overload(patterns, function, patterns), table))


def hidden(
    key: str, args: str, result: str | ResultRule, kernel: Kernel, **options: Any
) -> ScalarFunction:
    """Declare a function that no SQL name leads to: a cast, a finishing step, a generic form."""
    patterns = tuple(args.split())
    function = ScalarFunction(
        key=key, name=key.split("(")[0], args=patterns, result=result, kernel=kernel, **options
    )
    assert key not in BY_KEY, key
    BY_KEY[key] = function
    return function


def type_key(type: SqlType) -> str:
    """Return the name of a type in keys and patterns: no modifiers, `int4[]` for arrays."""
    return f"{type_key(type.element)}[]" if type.element is not None else type.name


def parse_type(pattern: str) -> SqlType:
    """Return the type that a pattern without polymorphism names."""
    if pattern.endswith("[]"):
        return array_of(parse_type(pattern[:-2]))
    assert pattern in TYPES, pattern
    return NUMERIC if pattern == "numeric" else SqlType(pattern)


def natural_numeric(source: SqlType, literal: Any = NO_LITERAL) -> SqlType:
    """Return the numeric type that holds `source`'s values as they are."""
    match source.name:
        case "numeric":
            return source
        case "int2" | "int4" | "int8" | "oid" | "mz_timestamp":
            return numeric_of_scale(0)
        case "unknown" if isinstance(literal, str):
            return numeric_of_text(literal)
        case _:
            return NUMERIC


def numeric_of_text(text: str) -> SqlType:
    """Return the type of a numeric literal: as many fractional digits as the text has."""
    mantissa, _, exponent = text.strip().lower().partition("e")
    fraction = len(mantissa.partition(".")[2].replace("_", ""))
    try:
        scale = fraction - int(exponent or "0")
    except ValueError:
        return NUMERIC
    return numeric_of_scale(max(scale, 0)) if scale <= MAX_PLANNED_SCALE else NUMERIC


def apply(
    function: ScalarFunction, signature: Signature, arrays: Sequence[pa.Array]
) -> tuple[pa.Array, pa.Array | None]:
    """Run the kernel; return results and errors, both with strictness made good."""
    outcome = function.kernel(signature, *arrays)
    values, errors = outcome if isinstance(outcome, tuple) else (outcome, None)
    if errors is not None and errors.null_count == len(errors):
        errors = None
    if function.strict and any(array.null_count for array in arrays):
        valid = arrays[0].is_valid()
        for array in arrays[1:]:
            if array.null_count:
                valid = pc.and_(valid, array.is_valid())
        values = mask_out(values, valid)
        if errors is not None:
            errors = pc.if_else(valid, errors, pa.scalar(None, pa.string()))
            if errors.null_count == len(errors):
                errors = None
    return values, errors


def mask_out(values: pa.Array, valid: pa.Array) -> pa.Array:
    """Return `values`, NULL where `valid` is not TRUE."""
    return pc.if_else(valid, values, pa.scalar(None, values.type))


def quoted_literal(sql: str) -> str | None:
    """Return the text if `sql` is a plain string constant."""
    inner = sql[1:-1]
    if len(sql) >= 2 and sql[0] == sql[-1] == "'" and "'" not in inner and "\\" not in inner:
        return inner
    return None
