"""System functions that need no catalog, functions with side effects, and checks in plans."""

import hashlib
import re
import uuid
from collections.abc import Sequence
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa

from foreshore.digits import is_digits
from foreshore.errors import data_error
from foreshore.expr.functions.function import (
    Outcome,
    Signature,
    declare,
    declare_table,
    hidden,
)
from foreshore.expr.functions.number import rows_of
from foreshore.expr.functions.rows import Failure, fail, mapped, rowwise
from foreshore.identifiers import cut, fold
from foreshore.interval_fields import of_interval_typmod
from foreshore.numbers import shown
from foreshore.privileges import LETTERS
from foreshore.types import (
    BOOL,
    INT4,
    OTHER_TYPES,
    REGCLASS,
    TEXT,
    TYPES,
    SqlType,
    arrow_type,
    format_type,
    numeric,
    oid_of,
    type_of_oid,
    written_type,
)

MORE_THAN_ONE_ROW = data_error(
    "21000", "more than one row returned by a subquery used as an expression"
)


# The names of types that no value has.
_PSEUDO_TYPES = {oid: name for name, oid in OTHER_TYPES.items()} | {
    OTHER_TYPES["any"]: '"any"',
    TYPES["array"].oid: "anyarray",
    TYPES["enum"].oid: "anyenum",
}


def _type_oid(types: Signature, a: pa.Array) -> Outcome:
    return pa.array([oid_of(types.args[0])] * len(a), pa.int64())


def _format_type(types: Signature, oid: pa.Array, modifier: pa.Array) -> Outcome:
    shown = [
        None if o is None else _formatted(o, m)
        for o, m in zip(oid.to_pylist(), modifier.to_pylist(), strict=True)
    ]
    return pa.array(shown, pa.string())


def _formatted(oid: int, modifier: int | None) -> str:
    type = type_of_oid(oid)
    if type is None:
        return "-" if oid == 0 else _PSEUDO_TYPES.get(oid, "???")
    if modifier is None:
        return str(type)
    if modifier < 0:  # there is no modifier
        return written_type(type)
    if type.element is not None:
        return f"{_formatted(oid_of(type.element), modifier)}[]"
    match type.name:
        case "numeric" | "number" if modifier >= 4:
            precision, scale = (modifier - 4) >> 16, (modifier - 4) & 0x7FF
            return format_type(numeric(precision, (scale ^ 0x400) - 0x400))
        case "varchar" | "bpchar" if modifier > 4:
            return format_type(SqlType(type.name, modifier - 4))
        case "interval":
            fields, digits = of_interval_typmod(modifier)
            return format_type(SqlType("interval", digits, fields=fields))
        case "time" | "timetz" | "timestamp" | "timestamptz" | "bit" | "varbit":
            return format_type(SqlType(type.name, modifier))
        case _:
            return str(type)


def _refuse_aggregate(name: str) -> str:
    """Raise, as pg_get_functiondef does for an aggregate."""
    raise fail("42809", f'"{name}" is an aggregate function')


def _single_row(types: Signature, count: pa.Array) -> Outcome:
    from foreshore.expr.functions.rows import Failure

    def check(rows: int) -> bool:
        if rows > 1:
            raise Failure(MORE_THAN_ONE_ROW)
        return False

    return rowwise(types, check, count)


def _always(types: Signature, *arrays: pa.Array) -> Outcome:
    return pa.array([True] * len(arrays[0]), pa.bool_())


declare("pg_typeof", "any", "regtype", _type_oid, strict=False)
declare("format_type _format_type", "oid int4", "text", _format_type, strict=False)
declare("_aggregate_definition", "text", "text", mapped(_refuse_aggregate), fallible=True)
# FALSE, or the error of a scalar subquery with more than one row, given the number of rows.
hidden(
    "single_row_check",
    "int8",
    "bool",
    _single_row,
    fallible=True,
    error=MORE_THAN_ONE_ROW,
    duckdb=lambda d, t, a: f"(CASE WHEN {a[0]} <= 1 THEN FALSE END)",
    spark=lambda d, t, a: f"(CASE WHEN {a[0]} <= 1 THEN FALSE END)",
)


# TRUE: a condition that the optimizer leaves where it is, above the rows that policies show.
hidden(
    "row_security",
    "any",
    "bool",
    _always,
    strict=False,
    duckdb=lambda d, t, a: "TRUE",
    spark=lambda d, t, a: "TRUE",
)


_SIZE_LIMIT = 20 * 1024 - 1  # in halves of a unit; from here the next larger unit is used
_SIZE_UNITS = ("kB", "MB", "GB", "TB", "PB")


def _size_pretty(size: int | Decimal) -> str:
    """Return a number of bytes in the largest unit of which there are at least 10."""
    if isinstance(size, Decimal) and not size.is_finite():
        return f"{shown(size)} {_SIZE_UNITS[-1]}"
    if -10 * 1024 < size < 10 * 1024:
        return f"{size:f} bytes" if isinstance(size, Decimal) else f"{size} bytes"
    halves = abs(int(size)) >> 9  # of the unit, so that it can be rounded at the end
    units = iter(_SIZE_UNITS)
    unit = next(units)
    while halves >= _SIZE_LIMIT and unit != _SIZE_UNITS[-1]:
        halves >>= 10
        unit = next(units)
    # Of a Decimal, as Python refuses to write long integers.
    return f"{'-' if size < 0 else ''}{Decimal((halves + 1) // 2):f} {unit}"


def _size_bytes(text: str) -> int:
    """Return the number of bytes that a text such as `1.5 GB` names, rounded to zero."""
    found = _SIZE.fullmatch(text.strip())
    if found is None:
        raise fail("22023", f'invalid size: "{text}"')
    number, unit = found.groups()
    factor = _SIZE_FACTORS.get((unit or "bytes").lower())
    if factor is None:
        raise fail("22023", f'invalid size: "{text}"')
    size = int(Decimal(number) * factor)
    if not -(2**63) <= size < 2**63:
        raise fail("22003", "bigint out of range")
    return size


_SIZE = re.compile(r"([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?)\s*([a-zA-Z]*)", re.ASCII)
_SIZE_FACTORS = {
    "bytes": 1,
    **{unit.lower(): 1024**power for power, unit in enumerate(_SIZE_UNITS, 1)},
}

declare("pg_size_pretty", "int8", "text", mapped(_size_pretty))
for _t in ("numeric", "number"):
    declare("pg_size_pretty", _t, "text", rows_of(_size_pretty))
declare("pg_size_bytes", "text", "int8", mapped(_size_bytes), fallible=True)


def _only_above(types: Signature, *args: pa.Array) -> Outcome:
    """Fail: the session executes these functions itself, where it can."""
    failed = data_error("0A000", "a function with side effects on the session cannot be used here")
    count = len(args[0]) if args else 1
    return pa.nulls(count, pa.string()), pa.array([failed] * count, pa.string())


SET_CONFIG = "set_config(text,text,bool)"
declare(
    "set_config",
    "text text bool",
    "text",
    _only_above,
    strict=False,  # NULL resets the variable
    fallible=True,
    volatility="volatile",
)
for _args in ("text", "text bool"):
    declare("current_setting", _args, "text", _only_above, fallible=True, volatility="volatile")


def _number_above(types: Signature, *args: pa.Array) -> Outcome:
    """Fail as `_only_above` does, for functions that return a number."""
    values, errors = _only_above(types, *args)
    return values.cast(pa.int64()), errors


def _random_above(types: Signature) -> Outcome:
    """Fail as `_only_above` does, for random values."""
    values, errors = _only_above(types)
    return values.cast(arrow_type(types.result)), errors


# Functions of sequences.
for _key, _args in (
    ("nextval", "regclass"),
    ("currval", "regclass"),
    ("lastval", ""),
    ("setval", "regclass int8 bool"),
):
    hidden(_key, _args, "int8", _number_above, fallible=True, volatility="volatile")
SLEEP, SET_SEED = "pg_sleep(float8)", "setseed(float8)"
declare("setseed", "float8", "void", _only_above, fallible=True, volatility="volatile")
declare("pg_sleep", "float8", "void", _only_above, fallible=True, volatility="volatile")


# Random values, one for each row.
declare("random", "", "float8", _random_above, fallible=True, volatility="volatile")
declare("gen_random_uuid", "", "uuid", _random_above, fallible=True, volatility="volatile")
RANDOM, RANDOM_UUID = "random()", "gen_random_uuid()"


def _random_of(types: Signature, seeds: pa.Array, numbers: pa.Array) -> Outcome:
    """Return values from 0 on, below 1: a mixture of the bits of seed and number (splitmix64)."""
    bits = seeds.fill_null(0).to_numpy(zero_copy_only=False).view(np.uint64)
    rows = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
    with np.errstate(over="ignore"):
        mixed = _mixed(_mixed(bits) + rows * np.uint64(0x9E3779B97F4A7C15))
    return pa.array((mixed >> np.uint64(11)).astype(np.float64) / 2.0**53)


def _mixed(bits: Any) -> Any:
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))


def _uuid_of(seed: bytes, number: int) -> bytes:
    """Return a random UUID, version 4."""
    drawn = hashlib.blake2b(
        number.to_bytes(8, "big", signed=True), digest_size=16, key=seed
    ).digest()
    return uuid.UUID(bytes=drawn, version=4).bytes


# The function of a seed and a row number that gives random values like those of a call.
DRAWN = {RANDOM: "random_of(float8,int8)", RANDOM_UUID: "random_uuid_of(uuid,int8)"}
hidden(DRAWN[RANDOM], "float8 int8", "float8", _random_of)
hidden(DRAWN[RANDOM_UUID], "uuid int8", "uuid", mapped(_uuid_of))


def _answer_above(types: Signature, *args: pa.Array) -> Outcome:
    """Fail as `_only_above` does, for functions that return success as a boolean."""
    values, errors = _only_above(types, *args)
    return values.cast(pa.bool_()), errors


NOTIFY = "pg_notify(text,text)"
declare(
    "pg_notify",
    "text text",
    "void",
    _only_above,
    strict=False,
    fallible=True,
    volatility="volatile",
)


def _names_of_session(types: Signature, names: pa.Array) -> Outcome:
    return names


# Its argument is a value of the session, which the binder adds (`sql/bind/call.py`).
LISTENING = "pg_listening_channels"
declare_table(LISTENING, "text[]", "text[]", _names_of_session)

# Signals to sessions, called once per row.
SIGNALS = (
    "pg_cancel_backend(int4)",
    "pg_terminate_backend(int4)",
    "pg_terminate_backend(int4,int8)",
)
for _key in SIGNALS:
    _name, _, _args = _key.removesuffix(")").partition("(")
    _args = _args.replace(",", " ")
    declare(_name, _args, "bool", _answer_above, fallible=True, volatility="volatile")

# Reads the server's configuration files again.
RELOAD = "pg_reload_conf()"
declare("pg_reload_conf", "", "bool", _answer_above, fallible=True, volatility="volatile")

# Gives up the removal of what a dropped source or sink has left in another system.
FORGET_LEFTOVER = "mz_forget_leftover(text)"
declare("mz_forget_leftover", "text", "bool", _answer_above, fallible=True, volatility="volatile")

# Advisory locks: waiting forms return void, others return success as a boolean.
ADVISORY = tuple(
    f"pg_{word}{scope}{shared}({args})"
    for word, scopes in (
        ("advisory", ("_lock", "_xact_lock")),
        ("try_advisory", ("_lock", "_xact_lock")),
        ("advisory", ("_unlock",)),
    )
    for scope in scopes
    for shared in ("", "_shared")
    for args in ("int8", "int4,int4")
)
for _key in ADVISORY:
    _name, _, _args = _key.removesuffix(")").partition("(")
    _waits = not _name.startswith("pg_try_") and "_unlock" not in _name
    declare(
        _name,
        _args.replace(",", " "),
        "void" if _waits else "bool",
        _only_above if _waits else _answer_above,
        fallible=True,
        volatility="volatile",
    )


# --- names and privileges, for the functions that ask the catalog ------------------------------

_NAME_PART = re.compile(r'\s*(?:"((?:[^"]|"")+)"|([^\W\d][\w$]*))\s*(\.|\Z)')


def parts_of_name(text: str) -> tuple[str, ...]:
    """Return the parts of a qualified name, folded and cut as in SQL; raises 42602."""
    parts: list[str] = []
    position, dot = 0, "."
    while dot:
        found = _NAME_PART.match(text, position)
        if found is None:
            raise fail("42602", "invalid name syntax")
        quoted, plain, dot = found.groups()
        parts.append(fold(plain) if quoted is None else cut(quoted.replace('""', '"')))
        position = found.end()
    return tuple(parts)


def _last_part(text: str) -> str | None:
    """Return the last part of a qualified name, None for what is no name."""
    try:
        return parts_of_name(text)[-1]
    except Failure:
        return None


_TABLE_PRIVILEGES = frozenset(
    ["select", "insert", "update", "delete", "truncate", "references", "trigger"]
)
_COLUMN_PRIVILEGES = frozenset(["select", "insert", "update", "references"])
_PRIVILEGES = {
    "table": _TABLE_PRIVILEGES | {"rule"},
    "any_column": _COLUMN_PRIVILEGES,
    "column": _COLUMN_PRIVILEGES,
    "sequence": frozenset(["usage", "select", "update"]),
    "database": frozenset(["create", "temporary", "temp", "connect"]),
    "schema": frozenset(["create", "usage"]),
    "type": frozenset(["usage"]),
    "function": frozenset(["execute"]),
    "language": frozenset(["usage"]),
    "tablespace": frozenset(["create"]),
    "server": frozenset(["usage"]),
    "foreign_data_wrapper": frozenset(["usage"]),
    "parameter": frozenset(["set", "alter system"]),
    "role": frozenset(["member", "usage"]),
    "cluster": frozenset(["usage", "create"]),
    "connection": frozenset(["usage"]),
    "secret": frozenset(["usage"]),
    "system": frozenset(["createrole", "createdb", "createcluster", "createnetworkpolicy"]),
}
_OPTIONS = (" with grant option", " with admin option")
# Of kinds whose rights are no grants on an object: memberships, and attributes of roles.
_OTHER_LETTERS = {
    "role": {"member": "M", "usage": "U"},
    "system": {
        **{"createrole": "R", "createdb": "B"},
        **{"createcluster": "N", "createnetworkpolicy": "P"},
    },
}


def _asked(kind: str, words: str) -> str:
    """Return the letters of a list of privileges, with a star for a grant option; raises 22023.

    PostgreSQL still accepts RULE, which no role can hold. Of memberships, `A` is the admin option.
    """
    if kind not in _PRIVILEGES:
        raise fail("22023", f'unrecognized kind of object: "{kind}"')
    options = _OPTIONS if kind == "role" else _OPTIONS[:1]
    found: list[str] = []
    for word in words.split(","):
        name = word.strip().lower()
        option = next((each for each in options if name.endswith(each)), "")
        name = name.removesuffix(option)
        if name not in _PRIVILEGES[kind]:
            raise fail("22023", f'unrecognized privilege type: "{word.strip()}"')
        if kind in _OTHER_LETTERS:
            is_admin = kind == "role" and option
            found.append("A" if is_admin else _OTHER_LETTERS[kind][name] + ("*" if option else ""))
        elif name != "rule":
            letter = LETTERS.get({"temp": "TEMPORARY"}.get(name, name.upper()), "s")  # type: ignore[call-overload]
            found.append(letter + ("*" if option else ""))
    return " ".join(found)


def _gives(rights: str, grantable: str, asked: str) -> bool:
    """Return whether an entry of rights has one of those that `_asked` has returned."""
    return any(each[0] in (grantable if each.endswith("*") else rights) for each in asked.split())


def _raised(sqlstate: str, message: str) -> str:
    """Fail with the error text that the caller provides."""
    if len(sqlstate) != 5:
        raise fail("22023", f'invalid SQLSTATE: "{sqlstate}"')
    raise fail(sqlstate, message)


_TYPE_ALIASES = {
    "int": "integer",
    "decimal": "numeric",
    "dec": "numeric",
    "float": "double precision",
    "string": "text",
    "char": "character",
}


@cache
def _types_by_name() -> dict[str, int]:
    """Return the oids of types by their names and by their format_type."""
    found = dict(OTHER_TYPES)
    for name, info in TYPES.items():
        if name == "number":
            continue  # a form of numeric
        for each in (info.display, "anyarray" if name == "array" else name):
            found[each] = info.oid
            if info.array_oid:
                found[f"{each}[]"] = found[f"_{each}"] = info.array_oid
    return found


def _oid_of_type(text: str) -> int | None:
    """Return the oid of the type named in `text`, with or without modifiers, or given by number."""
    name = text.strip().lower()
    if is_digits(name) and len(name) <= 10:
        return int(name)
    name = re.sub(r"\s*\[[0-9]*\]$", "[]", re.sub(r"\([0-9, ]*\)", "", name))
    name = name.removeprefix("pg_catalog.")
    base, array = name.removesuffix("[]"), name[len(name.removesuffix("[]")) :]
    return _types_by_name().get(_TYPE_ALIASES.get(base, base) + array)


declare("_oid_of_type", "text", "oid", mapped(_oid_of_type))
declare("_name_parts", "text", "text[]", mapped(parts_of_name), fallible=True)
declare("_last_part", "text", "text", mapped(_last_part))
declare("_asked", "text text", "text", mapped(_asked), fallible=True)
declare("_gives", "text text text", "bool", mapped(_gives))
declare("_raised", "text text", "text", mapped(_raised), fallible=True)


# --- options, written as `name=value` ---------------------------------------------------------


def _option_names(options: Sequence[str | None]) -> tuple[str, ...]:
    return tuple((each or "").partition("=")[0] for each in options)


def _option_value(options: Sequence[str | None], name: str) -> str | None:
    for each in options:
        key, equals, value = (each or "").partition("=")
        if key == name:
            return value if equals else None
    return None


hidden("option_value(text[],text)", "text[] text", "text", mapped(_option_value))
declare_table(
    "pg_options_to_table",
    "text[]",
    "text[]",
    mapped(_option_names),
    columns="option_name option_value",
    more=(("option_value(text[],text)", TEXT),),
)


def _no_parent(_relation: int, _part: int) -> None:
    """Return NULL: there are no partitioned tables."""


def _no_ancestors(_relation: int) -> tuple[int, ...]:
    """Return the tables of which a relation is a partition: there are no partitioned tables."""
    return ()


hidden("parentrelid(regclass,regclass)", "regclass regclass", "regclass", mapped(_no_parent))
hidden("isleaf(regclass,regclass)", "regclass regclass", "bool", mapped(_no_parent))
hidden("level(regclass,regclass)", "regclass regclass", "int4", mapped(_no_parent))
declare_table(
    "pg_partition_tree",
    "regclass",
    "regclass[]",
    mapped(_no_ancestors),
    columns="relid parentrelid isleaf level",
    more=(
        ("parentrelid(regclass,regclass)", REGCLASS),
        ("isleaf(regclass,regclass)", BOOL),
        ("level(regclass,regclass)", INT4),
    ),
)
declare_table("pg_partition_ancestors", "regclass", "regclass[]", mapped(_no_ancestors))
