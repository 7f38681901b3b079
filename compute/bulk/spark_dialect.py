"""Scalars as SQL of Spark.

The session must be as `register_spark` sets it: ANSI, UTC, and decimals that keep their scale.
Spark's own functions are used where they are total or have a `try_` form that is; its casts of
text, rounding and regular expressions are Java's, so those go to the kernels. A time of day is a
BIGINT of microseconds there (`spark_form`), for Spark's TIME does not travel as Arrow.
"""

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from foreshore.compute.bulk.dialect import ArrowFunction, Dialect
from foreshore.expr.functions.comparison import PLAIN, interval_key
from foreshore.expr.functions.function import Rendering, ScalarFunction
from foreshore.types import NUMERIC_DIGITS, Datum, SqlType, arrow_type

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
    "spark.sql.parser.escapedStringLiterals": "false",
    "spark.sql.variable.substitute": "false",
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
}

_TYPES = {
    "bool": "BOOLEAN",
    "bytea": "BINARY",
    "uuid": "BINARY",
    "int2": "SMALLINT",
    "int4": "INT",
    "int8": "BIGINT",
    "float4": "FLOAT",
    "float8": "DOUBLE",
    "date": "DATE",
    "time": "BIGINT",
    "timestamp": "TIMESTAMP_NTZ",
    "timestamptz": "TIMESTAMP",
    "interval": "STRUCT<months: INT, days: INT, micros: BIGINT>",
    "oid": "BIGINT",
    "regclass": "BIGINT",
    "regtype": "BIGINT",
    "regproc": "BIGINT",
    "regnamespace": "BIGINT",
    "mz_timestamp": "BIGINT",
    "int2vector": "ARRAY<SMALLINT>",
    "oidvector": "ARRAY<BIGINT>",
}


class SparkDialect(Dialect):
    """Spark's SQL."""

    name = "spark"

    def rendering(self, function: ScalarFunction) -> Rendering | None:
        """Return the function's rendering for Spark."""
        return function.spark

    def type_name(self, type: SqlType) -> str:
        """Return Spark's name of the type; all kinds of text are STRING, as is jsonb."""
        return type_name(type)

    def literal(self, datum: Datum, type: SqlType) -> str:
        """Return SQL for a constant."""
        name = type_name(type)
        if datum is None:
            return f"CAST(NULL AS {name})"
        if type.element is not None:
            assert isinstance(datum, tuple), datum
            items = ", ".join(self.literal(item, type.element) for item in datum)
            return f"CAST(array({items}) AS {name})"
        match datum:
            case bool():
                return "TRUE" if datum else "FALSE"
            case bytes():
                return f"X'{datum.hex()}'"
            case tuple():
                if type.name == "interval":
                    months, days, micros = datum
                    parts = (
                        f"'months', CAST({months} AS INT), 'days', CAST({days} AS INT),"
                        f" 'micros', CAST({micros} AS BIGINT)"
                    )
                    return f"named_struct({parts})"
                return f"CAST(array({', '.join(map(str, datum))}) AS {name})"
            case float():
                return f"CAST('{datum!r}' AS {name})"
            case int():
                return _integral(datum, type, name)
            case str() if type.name == "numeric":
                return f"CAST('{datum}' AS {name})"
            case str():
                return quote(datum)
            case _:
                raise AssertionError(f"no datum of {type}: {datum!r}")

    def key(self, sql: str, type: SqlType) -> str:
        """Return the form in which Spark's equality and order are SQL's."""
        if type.name in PLAIN or type.name == "numeric":
            return sql
        if type.name in ("float4", "float8"):
            return f"({sql} + CAST(0 AS {type_name(type)}))"
        if type.name == "interval":
            return f"({interval_key(self, sql)})"
        return self.order_bytes(sql, type)


def _integral(datum: int, type: SqlType, name: str) -> str:
    match type.name:
        case "date":
            return f"date_from_unix_date({datum})"
        case "timestamp":
            return f"CAST(timestamp_micros({datum}) AS {name})"
        case "timestamptz":
            return f"timestamp_micros({datum})"
        case _:
            return f"CAST({datum} AS {name})"


def type_name(type: SqlType) -> str:
    """Return Spark's name of the type."""
    if type.element is not None:
        return f"ARRAY<{type_name(type.element)}>"
    if type.name == "numeric":
        return f"DECIMAL({NUMERIC_DIGITS},{type.scale})"
    return _TYPES.get(type.name, "STRING")


def quote(text: str) -> str:
    """Return a string constant; Spark reads backslashes in it."""
    escaped = text.replace("\\", "\\\\").replace("'", "\\'").replace("$", "\\u0024")
    return f"'{escaped}'"


def spark_form(type: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which Spark has values of `type`: times are microseconds."""
    if pa.types.is_time(type):
        return pa.int64()
    return pa.list_(spark_form(type.value_type)) if pa.types.is_list(type) else type


def configure_spark(session: Any) -> None:
    """Set what our SQL counts on."""
    for name, value in SETTINGS.items():
        session.conf.set(name, value)


def register_spark(session: Any, functions: Sequence[ArrowFunction]) -> None:
    """Make `functions` callable in the session's SQL, and set what our SQL counts on.

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
            body = _of_arity(function, len(function.types.args))
            returned = type_name(function.result)
            session.udf.register(function.name, arrow_udf(body, returned, ArrowUDFType.SCALAR))
            known.add(function.name)


def _of_arity(function: ArrowFunction, count: int) -> Callable[..., pa.Array]:
    """Return `function` with as many parameters as Spark will count, its result in Spark's form."""
    names = ", ".join(f"a{i}" for i in range(count))
    returned = spark_form(arrow_type(function.result))

    def call(*arrays: pa.Array) -> pa.Array:
        values = function(*arrays)
        return values if values.type == returned else values.cast(returned)

    scope: dict[str, Any] = {"function": call}
    made: Callable[..., pa.Array] = eval(f"lambda {names}: function({names})", scope)
    return made  # of names only, none of a user's
