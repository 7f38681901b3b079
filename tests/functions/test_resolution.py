"""Names and types resolve as in PostgreSQL, or raise the same error."""

import json
from itertools import product

import pytest

from foreshore.errors import DatabaseError
from foreshore.expr.functions.casts import cast_context, resolve_cast
from foreshore.expr.functions.registry import resolve, scalar_function
from foreshore.types import (
    FLOAT8,
    INT4,
    INT8,
    NUMERIC,
    TEXT,
    TIMESTAMP,
    TYPES,
    UNKNOWN,
    SqlType,
    array_of,
    numeric,
)
from tests.functions.cases import OPERAND_TYPES, OPERATORS
from tests.functions.parity import RECORDED, type_named


def named(name: str) -> SqlType:
    return UNKNOWN if name == "NULL" else type_named(name)


def ours(name: str, types: tuple[str, ...]) -> str | None:
    try:
        return str(resolve(name, tuple(map(named, types))).result)
    except DatabaseError:
        return None


def differs_by_design(name: str, types: tuple[str, ...]) -> bool:
    """Return whether PostgreSQL considers types that are not supported, or arrays of arrays."""
    if name in ("->", "->>", "@>", "&&", "?") and types[0] == "NULL":
        return True  # json, ranges and geometry make it ambiguous there
    if name == "array_append" and types[0] == "NULL" and types[1].endswith("[]"):
        return True
    if name == "nullif" and types in {
        ("name", "text"), ("name", "varchar"), ("name", "bpchar"),
        ("date", "timestamp"), ("date", "timestamptz"), ("timestamp", "timestamptz"),
    }:  # fmt: skip
        return True  # the result has the type of the comparison
    return name == "trunc" and types == ("NULL", "NULL")


@pytest.mark.parametrize("name", OPERATORS)
def test_operator_has_postgresql_result_type(name: str) -> None:
    lines = (RECORDED / "resolution.txt").read_text().splitlines()
    theirs = {tuple(found[:3]): found[3] for found in map(json.loads, lines)}
    found = []
    for types in product(OPERAND_TYPES, repeat=2):
        if differs_by_design(name, types):
            continue
        want, got = theirs.get((name, *types)), ours(name, types)
        if want != got:
            found.append(f"{name}{types}: PostgreSQL {want}, here {got}")
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("name", "types", "sqlstate", "message"),
    [
        ("+", (INT4, TEXT), "42883", "operator does not exist: integer + text"),
        ("-", (TEXT,), "42883", "operator does not exist: - text"),
        ("foo", (INT4,), "42883", "function foo(integer) does not exist"),
        ("+", (UNKNOWN, UNKNOWN), "42725", "operator is not unique: unknown + unknown"),
        ("coalesce", (INT4, TEXT), "42804", "COALESCE types integer and text cannot be matched"),
        ("array_length", (UNKNOWN, INT4), "42804",
         "could not determine polymorphic type because input has type unknown"),
    ],
)  # fmt: skip
def test_unresolved_call_raises_postgresql_error(
    name: str, types: tuple[SqlType, ...], sqlstate: str, message: str
) -> None:
    with pytest.raises(DatabaseError) as raised:
        resolve(name, types)
    assert (raised.value.sqlstate, raised.value.message) == (sqlstate, message)


def test_each_cast_has_a_function() -> None:
    plain = [NUMERIC if n == "numeric" else SqlType(n) for n in TYPES if n != "array"]
    every = [*plain, array_of(INT4), array_of(TEXT), numeric(5, 2), SqlType("varchar", 3)]
    for source, target in product(every, repeat=2):
        for context in ("implicit", "assignment", "explicit"):
            resolved = resolve_cast(source, target, context)
            if resolved is not None:
                scalar_function(resolved.key)


def test_scale_follows_from_literal() -> None:
    assert resolve("round", (NUMERIC, INT4), (object(), 2)).result.scale == 2
    assert resolve("*", (numeric(10, 2), numeric(10, 3))).result.scale == 5
    assert resolve("+", (numeric(10, 2), INT8)).arg_types[1].scale == 0
    assert resolve("=", (numeric(10, 2), UNKNOWN), (object(), "1.555")).arg_types[1].scale == 3


def test_known_argument_makes_function_total() -> None:
    known = resolve("date_trunc", (UNKNOWN, TIMESTAMP), ("week", object()))
    assert not scalar_function(known.key).fallible
    for unit in ("fortnight", "month"):  # the first month begins before all timestamps
        other = resolve("date_trunc", (UNKNOWN, TIMESTAMP), (unit, object()))
        assert scalar_function(other.key).fallible
    assert not scalar_function(resolve("~~", (TEXT, UNKNOWN), (object(), "a%")).key).fallible


def test_implicit_casts_are_postgresql_ones() -> None:
    assert cast_context("int4", "int8") == "implicit"
    assert cast_context("float8", "int4") == "assignment"
    assert cast_context("int4", "bool") == "explicit"
    assert cast_context("bool", "int8") is None
    assert resolve_cast(FLOAT8, INT4, "implicit") is None
