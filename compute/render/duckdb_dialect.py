"""DuckDB's dialect: scalars as DuckDB SQL.

The connection must have TimeZone UTC. Values have the physical form of `foreshore.types`, which
DuckDB reads from Arrow and Parquet directly.
"""

import weakref
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import duckdb

from foreshore.compute.render.dialect import ArrowFunction, Dialect, is_infinity, of_arity
from foreshore.compute.render.kernel_calls import NUMBER, may_be_long
from foreshore.expr.equality import DAY, is_plain
from foreshore.expr.functions.function import Rendering, ScalarFunction, Signature
from foreshore.expr.functions.registry import scalar_function
from foreshore.types import SqlType


class DuckDbDialect(Dialect):
    """DuckDB's dialect."""

    name = "duckdb"
    text = "VARCHAR"
    hash_function = "hash"
    types: ClassVar[Mapping[str, str]] = {
        "bytea": "BLOB",
        "uuid": "BLOB",
        "int4": "INTEGER",
        "time": "TIME",
        "timestamp": "TIMESTAMP",
        "timestamptz": "TIMESTAMP WITH TIME ZONE",
        "interval": "STRUCT(months INTEGER, days INTEGER, micros BIGINT)",
        "number": "STRUCT(value DECIMAL(38,20), rest BLOB, scale SMALLINT)",
    }

    def rendering(self, function: ScalarFunction, *, sure: bool) -> Rendering | None:
        """Return the function's rendering for DuckDB; `sure` calls do not fail."""
        return function.duckdb_sure if sure and function.duckdb_sure else function.duckdb

    @staticmethod
    def list_type(element: str) -> str:
        """Return the name of the type of lists of `element`."""
        return f"{element}[]"

    @staticmethod
    def list_of(items: Sequence[str]) -> str:
        """Return a list of SQL values."""
        return f"[{', '.join(items)}]"

    @staticmethod
    def bytes_of(datum: bytes) -> str:
        """Return SQL for a byte string."""
        return f"unhex('{datum.hex()}')"

    @classmethod
    def interval_of(cls, months: int, days: int, micros: int) -> str:
        """Return SQL for an interval."""
        parts = f"'months': {months}, 'days': {days}, 'micros': {micros}"
        return f"CAST({{{parts}}} AS {cls.types['interval']})"

    def number_of(self, value: Decimal, rest: bytes, scale: int) -> str:
        """Return SQL for a number."""
        parts = f"'value': '{value:f}', 'rest': {self.bytes_of(rest)}, 'scale': {scale}"
        return f"CAST({{{parts}}} AS {self.types['number']})"

    @staticmethod
    def native_interval(months: int, days: int, micros: int) -> str:
        """Return an INTERVAL."""
        return f"INTERVAL '{months} months {days} days {micros} microseconds'"

    @staticmethod
    def moment_of_time(sql: str) -> str:
        """Return the sum of a date and the time."""
        return f"(DATE '2000-01-01' + {sql})"

    def integral(self, datum: int, type: SqlType) -> str:
        """Return SQL for an integer, date or timestamp."""
        if is_infinity(datum, type):  # DuckDB's infinities are not the extremes of the integer
            return self.raw(datum, type)
        if type.name == "time" and datum == DAY:  # no timestamp has the time of day 24:00:00
            return self.raw(datum, type)
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
                shown = f"'{datum}'" if datum < 0 else str(datum)
                return f"CAST({shown} AS {self.type_name(type)})"

    @staticmethod
    def quote(text: str) -> str:
        """Return SQL for a string."""
        return "'" + text.replace("'", "''") + "'"

    @staticmethod
    def identifier(name: str) -> str:
        """Return a name as a quoted identifier."""
        return '"' + name.replace('"', '""') + '"'

    def key(self, sql: str, type: SqlType) -> str:
        """Return the form in which DuckDB's equality and order are SQL's; also for lists."""
        if type.element is not None and is_plain(type.element):
            return sql
        return super().key(sql, type)

    def of_group(self, column: str, identity: tuple[str, ...]) -> str:
        """Return the column: DuckDB returns the first value of each group.

        Its any_value, min and max lose the signs of zeros within lists.
        """
        return column

    def is_negative_zero(self, sql: str) -> str:
        """Return whether a float is -0.0."""
        return f"({sql} = 0 AND signbit({sql}))"

    def each(self, items: str, name: str, item: str) -> str:
        """Return a list_transform."""
        return f"list_transform({items}, lambda {name}: {item})"

    def arguments(self, types: Signature, args: Sequence[str]) -> Sequence[str]:
        """Return the arguments, and the number of the query where they may be long."""
        return [*args, NUMBER] if may_be_long((*types.args, types.result)) else args


_registered: "weakref.WeakKeyDictionary[Any, set[str]]" = weakref.WeakKeyDictionary()


def register_duckdb(connection: Any, functions: Sequence[ArrowFunction]) -> None:
    """Register those of `functions` that the database of `connection` lacks.

    Functions belong to the database, and cursors share them. The catalog tells which ones exist.
    """
    wanted = [f for f in functions if f.name not in _known(connection)]
    for function in wanted:
        parameters = [duckdb.sqltype(DuckDbDialect.type_name(t)) for t in function.types.args]
        if may_be_long((*function.types.args, function.types.result)):
            parameters.append(duckdb.sqltype("BIGINT"))
        try:
            connection.create_function(
                function.name,
                of_arity(function, len(parameters)),
                parameters,
                duckdb.sqltype(DuckDbDialect.type_name(function.result)),
                type="arrow",
                null_handling="special",
                side_effects=scalar_function(function.key).volatility == "volatile",
            )
        except duckdb.NotImplementedException as error:  # another cursor was faster
            if "already created" not in str(error):
                raise
        _known(connection).add(function.name)


def _known(connection: Any) -> set[str]:
    try:
        return _registered.setdefault(connection, set())
    except TypeError:
        return set()
