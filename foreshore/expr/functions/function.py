"""Declarations of functions: a signature, a kernel over Arrow arrays, equivalent renderings.

The module of a family declares its functions in `SCALARS`, `CASTS` and `TABLES`. `registry.py`
loads the families and is the interface for all other code.

A kernel receives the exact types of the call and, for each argument, an array of its physical form,
all of one length. It returns the results, or the results and the errors: texts of
`foreshore.errors.data_error`, NULL for successful rows; a failed row has a NULL result. A strict
kernel may return anything in rows with a NULL argument: `apply.py` makes them NULL.

A rendering receives the SQL of the arguments, which cannot fail, and returns SQL with exactly the
kernel's value, NULL where the kernel fails. It returns None if there is no such SQL for these
types; then the engine calls the kernel.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from foreshore.arrow_alone import use_arrow_alone
from foreshore.types import (
    MAX_PLANNED_SCALE,
    NUMERIC,
    TYPES,
    DefinedType,
    Member,
    SqlType,
    array_of,
    numeric_of_scale,
)

use_arrow_alone()  # before modules of functions make scalars


class Signature(msgspec.Struct, frozen=True):
    """The exact types of one call, with scales and lengths."""

    args: tuple[SqlType, ...]
    result: SqlType


Outcome = Any  # pa.Array, or (pa.Array, pa.Array of text or None)
Kernel = Callable[..., Outcome]  # (Signature, *arrays)
One = Callable[[Signature], Callable[..., Any] | None]  # from the types, the function of data
Literals = tuple[Any, ...] | None  # the datum of each literal argument, otherwise `NO_LITERAL`
ResultRule = Callable[[tuple[SqlType, ...], Literals], SqlType]
NamesOf = Callable[[Literals], tuple[str, ...]]


class _NoLiteral:
    def __repr__(self) -> str:
        return "NO_LITERAL"


NO_LITERAL = _NoLiteral()


class Renderer(Protocol):
    """The dialect for which a rendering is made."""

    name: str  # "duckdb" or "spark"

    def type_name(self, type: SqlType) -> str:
        """Return the engine's type for a column of `type`."""
        ...

    def literal(self, datum: Any, type: SqlType) -> str:
        """Return SQL for a constant."""
        ...


Rendering = Callable[[Renderer, Signature, Sequence[str]], str | None]


@dataclass(frozen=True, slots=True)
class ScalarFunction:
    """A scalar function; `args` are type patterns: a type's name, `text[]`, or polymorphic."""

    key: str
    name: str
    args: tuple[str, ...]
    result: "str | ResultRule"
    kernel: Kernel
    strict: bool = True
    fallible: bool = False
    volatility: str = "immutable"
    variadic: bool = False  # the last of `args` may be repeated, at least once
    duckdb: Rendering | None = None
    spark: Rendering | None = None
    duckdb_sure: Rendering | None = None  # for calls that surely do not fail
    # Whether the function can fail for given types, if it cannot for all.
    fails: Callable[[Signature], bool] | None = None
    # The error's text, if arguments that are not NULL give NULL only by this error.
    error: "str | Callable[[Signature], str | None] | None" = None
    # SQL for the error's text or NULL, for both engines, if there are several errors.
    error_sql: Rendering | None = None
    # The kernel for one row, on data, without NULLs if it is strict; raises Failure. None if data
    # of the types do not have the equality of values.
    one: One | None = None

    def may_fail(self, signature: Signature) -> bool:
        """Return whether a call of these types can fail."""
        return self.fallible and (self.fails is None or self.fails(signature))

    def only_error(self, signature: Signature) -> str | None:
        """Return the only error that calls of these types can raise, if there is just one."""
        return self.error(signature) if callable(self.error) else self.error


@dataclass(frozen=True, slots=True)
class Resolved:
    """A resolved call or cast: its key, the types to coerce its arguments to, and its type."""

    key: str
    arg_types: tuple[SqlType, ...]
    result: SqlType


@dataclass(frozen=True, slots=True)
class TableFunction:
    """A function that returns rows, the elements of the array that a scalar function returns.

    `names` are its columns: the element, and for each of `more`, (key, type), the result of that
    scalar function over the first argument and the element. A type of None is that of the first
    argument's elements or values. With `item_last` the element is the last column,
    with `item_hidden` it is none. Where the columns follow from the constants of a call, `names_of`
    gives them, and the elements are jsonb arrays of their texts.
    """

    names: tuple[str, ...]
    more: tuple[tuple[str, SqlType | None], ...] = ()
    item_last: bool = False
    item_hidden: bool = False
    names_of: NamesOf | None = None


@dataclass(frozen=True, slots=True)
class Overload:
    """A callable form: arguments match `patterns` and are then coerced to `targets`.

    They differ where PostgreSQL has an operator over two types that is computed in the wider one.
    """

    patterns: tuple[str, ...]
    function: ScalarFunction
    targets: tuple[str, ...]


# By SQL name, in order of declaration; by key.
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
    duckdb_sure: Rendering | None = None,
    fails: Callable[[Signature], bool] | None = None,
    error: str | Callable[[Signature], str | None] | None = None,
    error_sql: Rendering | None = None,
    volatility: str = "immutable",
    stem: str | None = None,
    one: One | None = None,
) -> ScalarFunction:
    """Declare a function under each of `names`; `stem` (default: the first name) begins its key."""
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
        duckdb_sure=duckdb_sure,
        fails=fails,
        error=error,
        error_sql=error_sql,
        one=one or getattr(kernel, "one", None),
    )
    assert function.key not in BY_KEY, function.key
    BY_KEY[function.key] = function
    for name in (first, *others):
        SCALARS.setdefault(name, []).append(Overload(patterns, function, patterns))
    return function


def overload(names: str, args: str, function: ScalarFunction, targets: str | None = None) -> None:
    """Let `names` over `args` call `function`, with the arguments coerced to `targets`.

    Without `targets`, to the declared types.
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
    more: tuple[tuple[str, SqlType | None], ...] = (),
    item_last: bool = False,
    item_hidden: bool = False,
    names_of: NamesOf | None = None,
    **options: Any,
) -> None:
    """Declare a table function by the scalar function that gives its rows as an array."""
    patterns = tuple(args.split())
    function = hidden(f"{name}({','.join(patterns)})", args, result, kernel, **options)
    table = TableFunction(tuple((columns or name).split()), more, item_last, item_hidden, names_of)
    TABLES.setdefault(name, []).append((Overload(patterns, function, patterns), table))


def hidden(
    key: str, args: str, result: str | ResultRule, kernel: Kernel, **options: Any
) -> ScalarFunction:
    """Declare a function without an SQL name: a cast, a finishing step, a generic form."""
    patterns = tuple(args.split())
    options.setdefault("one", getattr(kernel, "one", None))
    function = ScalarFunction(
        key=key, name=key.split("(")[0], args=patterns, result=result, kernel=kernel, **options
    )
    assert key not in BY_KEY, key
    BY_KEY[key] = function
    return function


def type_key(type: SqlType) -> str:
    """Return the name of a type in patterns: no modifiers, `int4[]`, `enum:16385`, `list<int4>`."""
    if type.element is not None:
        return f"{type_key(type.element)}[]"
    name = type.name if type.defined is None else f"{type.name}:{type.defined.oid}"
    if type.members:
        return f"{name}<{','.join(type_key(member.type) for member in type.members)}>"
    return name


def parse_type(pattern: str) -> SqlType:
    """Return the type of a pattern without polymorphism."""
    if pattern.endswith("[]"):
        return array_of(parse_type(pattern[:-2]))
    head, _, inner = pattern.partition("<")
    name, _, oid = head.partition(":")
    defined = DefinedType(int(oid), 0, (name,)) if oid else None
    assert name in TYPES, pattern
    if name == "numeric":
        return NUMERIC
    members = tuple(Member("", parse_type(key)) for key in _split_keys(inner[:-1]))
    return SqlType(name, defined=defined, members=members)


def name_of_key(key: str) -> str:
    """Return the name of the type in a key that is no array's: `list` of `list<int4>`."""
    return key.partition("<")[0].partition(":")[0]


def member_keys(key: str) -> list[str]:
    """Return the keys within the key of a structured type."""
    return _split_keys(key.partition("<")[2][:-1])


def _split_keys(keys: str) -> list[str]:
    """Return the keys that commas separate, but for those within brackets."""
    found: list[str] = []
    depth = start = 0
    for at, character in enumerate(keys):
        depth += (character == "<") - (character == ">")
        if character == "," and depth == 0:
            found.append(keys[start:at])
            start = at + 1
    return [*found, keys[start:]] if keys else found


def natural_numeric(source: SqlType, literal: Any = NO_LITERAL) -> SqlType:
    """Return the numeric type that holds the values of `source` unchanged."""
    match source.name:
        case "numeric":
            return source
        case "number":
            return NUMERIC
        case "money":
            return numeric_of_scale(2)
        case "int2" | "int4" | "int8" | "oid" | "mz_timestamp" | "uint2" | "uint4" | "uint8":
            return numeric_of_scale(0)
        case "unknown" if isinstance(literal, str):
            return numeric_of_text(literal)
        case _:
            return NUMERIC


def numeric_of_text(text: str) -> SqlType:
    """Return the type of a numeric literal, with the fractional digits of the text."""
    mantissa, _, exponent = text.strip().lower().partition("e")
    fraction = len(mantissa.partition(".")[2].replace("_", ""))
    try:
        scale = fraction - int(exponent or "0")
    except ValueError:
        return NUMERIC
    return numeric_of_scale(max(scale, 0)) if scale <= MAX_PLANNED_SCALE else NUMERIC


def quoted_literal(sql: str) -> str | None:
    """Return the text of `sql` if it is a plain string constant."""
    inner = sql[1:-1]
    if len(sql) >= 2 and sql[0] == sql[-1] == "'" and "'" not in inner and "\\" not in inner:
        return inner
    return None


def arguments_of(types: tuple[SqlType, ...]) -> tuple[str, ...]:
    """Return the keys of parameters' types by which functions of one name differ."""
    return tuple(type_key(SqlType("numeric") if t.name == "number" else t) for t in types)
