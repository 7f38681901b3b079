"""Calls of all registered functions with hostile arguments that fit into a short statement.

Arguments are literals as a client would write them: long texts, numbers of many digits or with huge
exponents, deep and wide documents, times at the ends of their ranges.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import product

from foreshore import datum
from foreshore.errors import DatabaseError
from foreshore.expr.evaluate import outcome
from foreshore.expr.functions.function import BY_KEY
from foreshore.expr.functions.registry import resolve, resolve_cast, resolve_table
from foreshore.expr.ir import Call, Literal, Scalar
from foreshore.types import TEXT, SqlType, array_of

LENGTH = 400  # of texts
_A = "a" * LENGTH
_NINES = "9" * LENGTH
_TEXTS = (
    _A,
    _NINES,
    "(a*)*(a*)*(a|b|ab)*(a|aa)+$" * 10,
    "%999999999s",
    "%*$s" * 50,
    "[" * 60 + "]" * 60,
    "(a{0,200}){0,50}",
    "9D" + "9" * 300,
    "$.**" * 90,
    "\\" * LENGTH,
    "%_" * 200,
    "é\u0301" * 200,
)
_INTEGERS = ("0", "1", "3", "-1", "1000000", "2147483647", "-2147483648")
_NUMBERS = (
    "7",
    _NINES,
    "1e130000",
    "1e-16000",
    "9.9e16000",
    "-" + _NINES + "." + _NINES,
    "100000.5",
    "131071.3",
)
_TIMES = ("4713-01-01 BC", "294276-12-31 23:59:59", "2020-02-29 12:34:56.789")
_DOCUMENTS = (
    "[" * 60 + "]" * 60,
    "[" + ",".join(["1"] * 195) + "]",
    '{"a":' * 60 + "1e130000" + "}" * 60,
    '"' + _A + '"',
    "1e130000",
)
_OF: dict[str, Sequence[str]] = {
    "bool": ("true",),
    "int2": ("0", "-1", "32767"),
    "int4": _INTEGERS,
    "int8": (*_INTEGERS, "9223372036854775807", "-9223372036854775808"),
    "float4": ("0", "3e38", "-1e-38", "7.5"),
    "float8": ("0", "1e308", "-1e-308", "7.5", "NaN"),
    "number": _NUMBERS,
    "text": _TEXTS,
    "name": (_A,),
    "bytea": (_A, "\\x" + "ff" * 200),
    "json": _DOCUMENTS,
    "jsonb": _DOCUMENTS,
    "jsonpath": ("$" + ".**" * 120, '$.** ? (@ like_regex "(a*)*$")', "$[*]" + "[*]" * 120),
    "timestamp": _TIMES,
    "timestamptz": _TIMES,
    "date": ("4713-01-01 BC", "5874897-12-31", "2020-02-29"),
    "time": ("23:59:59.999999",),
    "interval": ("1 microsecond", "178000000 years", "-1 day", "1 month 1 day 1 microsecond"),
    "bit": ("1" * LENGTH,),
    "varbit": ("1" * LENGTH,),
    "uuid": ("a" * 32,),
    "money": ("92233720368547758.07",),
    "inet": ("::1/0", "10.0.0.0/8"),
    "text[]": ("{" + ",".join(["a"] * 195) + "}", "{" + _A + "}"),
    "int4[]": ("{" + ",".join(["1"] * 195) + "}",),
    "float8[]": ("{" + ",".join(["1e300"] * 60) + "}",),
    "number[]": ("{" + ",".join(["1e130000"] * 40) + "}",),
    "int4range": ("[-2147483648,2147483646]",),
    "int4multirange": ("{" + ",".join(f"[{i},{i}]" for i in range(1, 140, 3)) + "}",),
    "nummultirange": ("{[1e-16000,1e130000]}",),
    "numrange": ("[1e-16000,1e130000]",),
}
_ANY = {"any": "text", "anyelement": "text", "anyarray": "text[]", "anynonarray": "text",
        "anycompatible": "text", "anycompatiblearray": "text[]"}  # fmt: skip


def type_named(name: str) -> SqlType:
    """Return the type with a name."""
    element = name.removesuffix("[]")
    return SqlType(element) if element == name else array_of(SqlType(element))


@lru_cache(1024)
def cast_of(value: str, name: str) -> Call | Literal | None:
    """Return the cast of a literal to a type, unevaluated; None if there is no such cast."""
    if name == "text":
        return Literal(value, TEXT)
    resolved = resolve_cast(TEXT, type_named(name), "explicit")
    return (
        None if resolved is None else Call(resolved.key, (Literal(value, TEXT),), resolved.result)
    )


@lru_cache(1024)
def literal_of(value: str, name: str) -> Literal | None:
    """Return the literal of a type that a text means; None if it means none."""
    scalar = cast_of(value, name)
    if scalar is None or isinstance(scalar, Literal):
        return scalar
    values, errors = outcome(scalar, (), 1)
    if errors is not None:
        return None
    return Literal(datum.from_array(values, scalar.type)[0], scalar.type)


def casts() -> Iterator[Scalar]:
    """Return casts of all hostile texts, also to types that they do not fit."""
    for name, values in _OF.items():
        for value in dict.fromkeys((*values, *_TEXTS[:6])):
            if (scalar := cast_of(value, name)) is not None and isinstance(scalar, Call):
                yield scalar


def calls(key: str, most: int) -> Iterator[Scalar]:
    """Return at most so many calls of the function with a key."""
    function = BY_KEY[key]
    names = [_ANY.get(each, each) for each in function.args]
    is_ours = function.name.startswith("_")  # of plans, never of statements
    if is_ours or function.volatility != "immutable" or not all(name in _OF for name in names):
        return
    if function.variadic:
        names = names * 3 if len(names) == 1 else [*names, names[-1]]
    chosen = [_OF[name] for name in names]
    count = 0
    for values in product(*chosen):
        literals = [literal_of(*each) for each in zip(values, names, strict=True)]
        if any(each is None for each in literals):
            continue
        scalar = _call(function.name, key, [each for each in literals if each is not None])
        if scalar is not None:
            yield scalar
            count += 1
            if count == most:
                return


def _call(name: str, key: str, literals: Sequence[Literal]) -> Scalar | None:
    types = [each.type for each in literals]
    data = tuple(each.value for each in literals)
    with suppress(DatabaseError):
        scalar = resolve(name, types, data)
        if scalar.key == key:
            return Call(key, tuple(literals), scalar.result)
    with suppress(DatabaseError):
        table = resolve_table(name, types, data)
        if table.key == key:
            return Call(key, tuple(literals), array_of(table.element.type))
    return None
