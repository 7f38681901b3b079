"""Columns as Spark knows them: Arrow types of batches, and values that differ in Spark.

Spark has no numeric without a scale, no time of day and no unsigned numbers:

    numeric without a scale   decimal(38, 20); a value that does not fit fails
    time                      text
    timestamp                 timestamp_ntz; infinite ones are the extremes
    all else                  as docs/format.md says
"""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import NumericValueOutOfRange
from foreshore.types import NUMERIC_DIGITS


def spark_type(type: pa.DataType) -> pa.DataType:
    """Return the Arrow type in which a column of `type` is given to Spark."""
    if is_numeric(type):
        return type.field("value").type
    if pa.types.is_time(type):
        return pa.string()
    if pa.types.is_list(type):
        return pa.list_(spark_type(type.value_type))
    return type


def is_numeric(type: pa.DataType) -> bool:
    """Whether it is how numerics without a scale are stored."""
    return bool(
        pa.types.is_struct(type)
        and type.num_fields == 3
        and [type.field(i).name for i in range(3)] == ["value", "rest", "scale"]
    )


def for_spark(name: str, column: pa.Array) -> pa.Array:
    """Return a column's values for Spark; raises NumericValueOutOfRange if one does not fit."""
    if is_numeric(column.type):
        rest = column.field("rest")
        exact = pc.fill_null(pc.equal(pc.binary_length(rest), 0), True)
        if not pc.all(exact, min_count=0).as_py():
            raise NumericValueOutOfRange(
                f'a value of column "{name}" does not fit decimal({NUMERIC_DIGITS}, 20)',
                hint="Cast it in a view, to text or to a numeric of another scale.",
            )
        return pc.struct_field(column, "value")
    if pa.types.is_time(column.type):
        return column.cast(pa.string())
    if pa.types.is_list(column.type) and spark_type(column.type) != column.type:
        values = for_spark(name, column.values)
        return pa.ListArray.from_arrays(column.offsets, values, mask=column.is_null())
    return column


def spark_schema(schema: pa.Schema) -> Any:
    """Return the StructType of columns."""
    from pyspark.sql.pandas.types import from_arrow_schema

    fields = [pa.field(each.name, spark_type(each.type), each.nullable) for each in schema]
    return from_arrow_schema(pa.schema(fields), prefer_timestamp_ntz=True)
