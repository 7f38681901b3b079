"""Spark's dialect: scalars as Spark SQL.

The session must be configured by `register_spark`: ANSI, UTC, and decimals that keep their scale.
Spark's own functions are used if they cannot fail or have a `try_` form. Its casts of text,
rounding and regular expressions are Java's, so the kernels do those. A time of day is a BIGINT of
microseconds (`spark_form`), because Spark's TIME cannot be exchanged as Arrow.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any, ClassVar

import pyarrow as pa

from foreshore.compute.render.dialect import ArrowFunction, Dialect, is_infinity, of_arity
from foreshore.deep_trees import FRAMES_OF_WORKERS, allow_depth
from foreshore.expr.functions.function import Rendering, ScalarFunction
from foreshore.types import SqlType, arrow_type

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}


class SparkDialect(Dialect):
    """Spark's dialect."""

    name = "spark"
    text = "STRING"
    types: ClassVar[Mapping[str, str]] = {
        "bytea": "BINARY",
        "uuid": "BINARY",
        "int4": "INT",
        "time": "BIGINT",
        "timestamp": "TIMESTAMP_NTZ",
        "timestamptz": "TIMESTAMP",
        "interval": "STRUCT<months: INT, days: INT, micros: BIGINT>",
        "number": "STRUCT<value: DECIMAL(38,20), rest: BINARY, scale: SMALLINT>",
    }

    def rendering(self, function: ScalarFunction, *, sure: bool) -> Rendering | None:
        """Return the function's rendering for Spark."""
        return function.spark

    @staticmethod
    def list_type(element: str) -> str:
        """Return the name of the type of lists of `element`."""
        return f"ARRAY<{element}>"

    @staticmethod
    def list_of(items: Sequence[str]) -> str:
        """Return a list of SQL values."""
        return f"array({', '.join(items)})"

    @staticmethod
    def bytes_of(datum: bytes) -> str:
        """Return SQL for a byte string."""
        return f"X'{datum.hex()}'"

    @staticmethod
    def interval_of(months: int, days: int, micros: int) -> str:
        """Return SQL for an interval."""
        return (
            f"named_struct('months', CAST({months} AS INT), 'days', CAST({days} AS INT),"
            f" 'micros', CAST({micros} AS BIGINT))"
        )

    def number_of(self, value: Decimal, rest: bytes, scale: int) -> str:
        """Return SQL for a number."""
        return (
            f"named_struct('value', CAST('{value:f}' AS DECIMAL(38,20)),"
            f" 'rest', {self.bytes_of(rest)}, 'scale', CAST({scale} AS SMALLINT))"
        )

    @staticmethod
    def native_interval(months: int, days: int, micros: int) -> str:
        """Return the calendar interval; an OVER has either months or the rest."""
        seconds = f"{micros // 1_000_000}.{micros % 1_000_000:06}"
        return f"make_interval(0, {months}, 0, {days}, 0, 0, {seconds})"

    @staticmethod
    def moment_of_time(sql: str) -> str:
        """Return the timestamp of microseconds since midnight."""
        return f"timestamp_micros({sql})"

    def integral(self, datum: int, type: SqlType) -> str:
        """Return SQL for an integer, date or timestamp."""
        # Comparisons with files convert constants to java.sql types, which have a smaller range.
        if is_infinity(datum, type):
            return self.raw(datum, type)
        match type.name:
            case "date":
                return f"date_from_unix_date({datum})"
            case "timestamp":
                return f"CAST(timestamp_micros({datum}) AS {self.type_name(type)})"
            case "timestamptz":
                return f"timestamp_micros({datum})"
            case _:
                return f"CAST({datum} AS {self.type_name(type)})"

    @staticmethod
    def quote(text: str) -> str:
        """Return SQL for a string; Spark interprets backslashes in it."""
        escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
        return f"'{escaped}'"

    @staticmethod
    def identifier(name: str) -> str:
        """Return a name as a quoted identifier."""
        return "`" + name.replace("`", "``") + "`"

    def of_group(self, column: str, identity: tuple[str, ...]) -> str:
        """Return an aggregate if the column is a float: Spark groups -0.0 under 0.0."""
        return column if identity == (column,) else f"any_value({column})"

    def is_negative_zero(self, sql: str) -> str:
        """Return whether a float is -0.0, which only its text shows."""
        return f"({sql} = 0 AND CAST({sql} AS STRING) = '-0.0')"

    def each(self, items: str, name: str, item: str) -> str:
        """Return a transform."""
        return f"transform({items}, {name} -> {item})"


def spark_form(type: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark has values of `type`: times are microseconds."""
    if pa.types.is_time(type):
        return pa.int64()
    return pa.list_(spark_form(type.value_type)) if pa.types.is_list(type) else type


def configure_spark(session: Any) -> None:
    """Apply the settings that the rendered SQL needs."""
    for name, value in SETTINGS.items():
        session.conf.set(name, value)


def register_spark(session: Any, functions: Sequence[ArrowFunction]) -> None:
    """Register `functions` in the session, and apply the settings that the SQL needs.

    The workers import `foreshore`, which must be on their path.
    """
    from pyspark.sql.functions import ArrowUDFType, arrow_udf

    known: set[str] | None = getattr(session, "_foreshore_functions", None)
    if known is None:
        known = set()
        session._foreshore_functions = known
        configure_spark(session)
    for function in functions:
        if function.name not in known:
            body = of_arity(_in_spark_form(function), len(function.types.args))
            returned = SparkDialect.type_name(function.result)
            # The kind is given explicitly: these have no type hints.
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                udf = arrow_udf(body, returned, ArrowUDFType.SCALAR)
            session.udf.register(function.name, udf)
            known.add(function.name)


def _in_spark_form(function: ArrowFunction) -> Callable[..., pa.Array]:
    """Return `function` with its result in Spark's form."""
    returned = spark_form(arrow_type(function.result))

    def call(*arrays: pa.Array) -> pa.Array:
        allow_depth(FRAMES_OF_WORKERS)  # as the server takes deeply nested values
        values = function(*arrays)
        return values if values.type == returned else values.cast(returned)

    return call
