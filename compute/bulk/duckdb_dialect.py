"""Scalars as SQL of DuckDB.

The connection must have TimeZone UTC. Values have the physical form of `foreshore.types`, which
DuckDB reads from Arrow and Parquet as it is.
"""

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import duckdb
import pyarrow as pa

from foreshore.compute.bulk.dialect import ArrowFunction, Dialect
from foreshore.expr.functions.comparison import PLAIN, interval_key
from foreshore.expr.functions.function import Rendering, ScalarFunction, Signature
from foreshore.types import INT8, NUMERIC_DIGITS, Datum, SqlType

_TYPES = {
    "bool": "BOOLEAN",
    "bytea": "BLOB",
    "uuid": "BLOB",
    "int2": "SMALLINT",
    "int4": "INTEGER",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "date": "DATE",
    "time": "TIME",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
    "interval": "STRUCT(months INTEGER, days INTEGER, micros BIGINT)",
    "oid": "BIGINT",
    "regclass": "BIGINT",
    "regtype": "BIGINT",
    "regproc": "BIGINT",
    "regnamespace": "BIGINT",
    "mz_timestamp": "BIGINT",
    "int2vector": "SMALLINT[]",
    "oidvector": "BIGINT[]",
}


_STAMPS = frozenset({-(2**63), 2**63 - 1})
_EXTREMES = {
    "date": frozenset({-(2**31), 2**31 - 1}),
    "timestamp": _STAMPS,
    "timestamptz": _STAMPS,
}


class DuckDbDialect(Dialect):
    """DuckDB's SQL."""

    name = "duckdb"

    def rendering(self, function: ScalarFunction) -> Rendering | None:
        """Return the function's rendering for DuckDB."""
        return function.duckdb

    def type_name(self, type: SqlType) -> str:
        """Return DuckDB's name of the type; all kinds of text are VARCHAR, as is jsonb."""
        return type_name(type)

    def literal(self, datum: Datum, type: SqlType) -> str:
        """Return SQL for a constant."""
        name = type_name(type)
        if datum is None:
            return f"CAST(NULL AS {name})"
        if type.element is not None:
            assert isinstance(datum, tuple), datum
            items = ", ".join(self.literal(item, type.element) for item in datum)
            return f"CAST([{items}] AS {name})"
        match datum:
            case bool():
                return "TRUE" if datum else "FALSE"
            case bytes():
                return f"unhex('{datum.hex()}')"
            case tuple():
                if type.name == "interval":
                    months, days, micros = datum
                    parts = f"'months': {months}, 'days': {days}, 'micros': {micros}"
                    return f"CAST({{{parts}}} AS {name})"
                return f"CAST([{', '.join(map(str, datum))}] AS {name})"
            case float():
                return f"CAST('{datum!r}' AS {name})"
            case int() if type.name in _EXTREMES and datum in _EXTREMES[type.name]:
                # DuckDB has infinities of its own; ours are the extremes of the integer.
                raw = Signature((INT8,), type)
                return self.arrow_call("of_integer(int8)", raw, [f"CAST({datum} AS BIGINT)"])
            case int():
                return _integral(datum, type, name)
            case str() if type.name == "numeric":
                return f"CAST('{datum}' AS {name})"
            case str():
                return quote(datum)
            case _:
                raise AssertionError(f"no datum of {type}: {datum!r}")

    def key(self, sql: str, type: SqlType) -> str:
        """Return the form in which DuckDB's equality and order are SQL's."""
        if type.name in PLAIN or type.name == "numeric":
            return sql
        if type.name in ("float4", "float8"):
            return f"({sql} + CAST(0 AS {type_name(type)}))"
        if type.name == "interval":
            return f"({interval_key(self, sql)})"
        if type.element is not None and type.element.name in PLAIN:
            return sql
        return self.order_bytes(sql, type)


def _integral(datum: int, type: SqlType, name: str) -> str:
    match type.name:
        case "date":
            return f"(CAST('1970-01-01' AS DATE) + CAST({datum} AS INTEGER))"
        case "time":
            return f"CAST(make_timestamp(CAST({datum} AS BIGINT)) AS TIME)"
        case "timestamp":
            return f"make_timestamp(CAST({datum} AS BIGINT))"
        case "timestamptz":
            return f"CAST(make_timestamp(CAST({datum} AS BIGINT)) AS TIMESTAMPTZ)"
        case _:
            return f"CAST('{datum}' AS {name})" if datum < 0 else f"CAST({datum} AS {name})"


def type_name(type: SqlType) -> str:
    """Return DuckDB's name of the type."""
    if type.element is not None:
        return f"{type_name(type.element)}[]"
    if type.name == "numeric":
        return f"DECIMAL({NUMERIC_DIGITS},{type.scale})"
    return _TYPES.get(type.name, "VARCHAR")


def quote(text: str) -> str:
    """Return a string constant."""
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


_registered: "weakref.WeakKeyDictionary[Any, set[str]]" = weakref.WeakKeyDictionary()


def register_duckdb(connection: Any, functions: Sequence[ArrowFunction]) -> None:
    """Make `functions` callable in the database of `connection`, those that are not yet.

    Functions belong to the database, so that cursors of one connection share them; to be told of a
    cursor what its parent has, the catalog is asked.
    """
    wanted = [f for f in functions if f.name not in _known(connection)]
    for function in wanted:
        parameters = [duckdb.sqltype(type_name(t)) for t in function.types.args]
        try:
            connection.create_function(
                function.name,
                _of_arity(function, len(parameters)),
                parameters,
                duckdb.sqltype(type_name(function.result)),
                type="arrow",
                null_handling="special",
            )
        except duckdb.NotImplementedException as error:  # another cursor was first
            if "already created" not in str(error):
                raise
        _known(connection).add(function.name)


def _known(connection: Any) -> set[str]:
    try:
        return _registered.setdefault(connection, set())
    except TypeError:
        return set()


def _of_arity(function: ArrowFunction, count: int) -> Callable[..., pa.Array]:
    """Return `function` with as many parameters as DuckDB will count."""
    names = ", ".join(f"a{i}" for i in range(count))
    scope: dict[str, Any] = {"function": function}
    made: Callable[..., pa.Array] = eval(f"lambda {names}: function({names})", scope)
    return made  # of names only, none of a user's
