"""Spark's types by their names, without a JVM: PySpark would ask one to parse them."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa

_TOKEN = re.compile(r"\w+(?:\(\d+,\d+\))?|[<>:,]")


def schema_of(columns: Iterable[tuple[str, str]]) -> Any:
    """Return the schema of columns with these names and Spark types."""
    from pyspark.sql.types import StructField, StructType

    return StructType([StructField(name, type_of(type)) for name, type in columns])


@lru_cache(1024)
def arrow_schema(columns: tuple[tuple[str, str], ...]) -> pa.Schema:
    """Return the Arrow schema in which Spark exchanges columns with these Spark types."""
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema_of(columns), timezone="UTC")


@lru_cache(1024)
def type_of(name: str) -> Any:
    """Return the Spark type with a name, as `SparkDialect.type_name` gives it."""
    name = re.sub(r"\s", "", name)
    tokens = _TOKEN.findall(name)
    assert "".join(tokens) == name, name
    type, rest = _parsed(tokens)
    assert not rest, name
    return type


def _parsed(tokens: Sequence[str]) -> tuple[Any, Sequence[str]]:
    """Return the type with which tokens begin, and the rest of them."""
    from pyspark.sql import types

    name, rest = tokens[0], tokens[1:]
    if name == "ARRAY":
        element, rest = _parsed(rest[1:])
        return types.ArrayType(element), rest[1:]
    if name == "STRUCT":
        fields = []
        while rest[0] != ">":  # `<` or `,` stands before each field
            field = rest[1]
            type, rest = _parsed(rest[3:])
            fields.append(types.StructField(field, type))
        return types.StructType(fields), rest[1:]
    if name.startswith("DECIMAL"):
        precision, scale = re.findall(r"\d+", name)
        return types.DecimalType(int(precision), int(scale)), rest
    simple = {
        "BIGINT": types.LongType, "INT": types.IntegerType, "SMALLINT": types.ShortType,
        "STRING": types.StringType, "BINARY": types.BinaryType, "BOOLEAN": types.BooleanType,
        "FLOAT": types.FloatType, "DOUBLE": types.DoubleType, "DATE": types.DateType,
        "TIMESTAMP": types.TimestampType, "TIMESTAMP_NTZ": types.TimestampNTZType,
    }  # fmt: skip
    return simple[name](), rest
