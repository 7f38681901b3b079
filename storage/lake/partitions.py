"""Partitions of lake tables that are made here."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from foreshore.errors import (
    DatatypeMismatch,
    DuplicateColumn,
    FeatureNotSupported,
    InvalidParameterValue,
    UndefinedColumn,
)
from foreshore.sinks.places import PartitionField

BUCKET = "bucket"
BUCKETS = "foreshore.buckets"  # the property of a Delta table: its buckets' columns and numbers
MOST_BUCKETS = 16_384


def check_columns(fields: Sequence[PartitionField], names: Sequence[str]) -> None:
    """Raise UndefinedColumn if a partition is by a column that is not there.

    Raises DuplicateColumn if two are by one column: most of these are redundant, or have one name.
    """
    for place, field in enumerate(fields):
        if field.column not in names:
            raise UndefinedColumn(
                f'column "{field.column}" of PARTITION BY does not exist',
                hint=f"There are {', '.join(names)[:300]}.",
            )
        if field.column in (each.column for each in fields[:place]):
            raise DuplicateColumn(
                f'column "{field.column}" is in PARTITION BY more than once',
                hint="Keep the finest of its partitions.",
            )


def delta_partitions(fields: Sequence[PartitionField]) -> list[str]:
    """Return the columns by which a Delta table has partitions; those of buckets are added to it.

    Raises FeatureNotSupported for other transforms.
    """
    for field in fields:
        if field.transform not in ("identity", BUCKET):
            raise FeatureNotSupported(
                f"Delta tables with partitions by {field.text()}",
                hint="Partition by a column of the relation, such as one that is date_trunc(...),"
                " or by bucket(n, column).",
            )
    return [field.name for field in fields]


def bucket_fields(
    fields: Sequence[PartitionField], key: Sequence[str], names: Sequence[str]
) -> list[PartitionField]:
    """Return the buckets of a Delta table; `key` is that of UPSERT, else it is empty.

    Raises InvalidParameterValue if rows of one key may be in several buckets, or there are too
    many, and DuplicateColumn if a column has the name of one.
    """
    found = [field for field in fields if field.transform == BUCKET]
    for field in found:
        if key and field.column not in key:
            raise InvalidParameterValue(
                f'PARTITION BY {field.text()}: column "{field.column}" is not in the key',
                hint=f"Use a column of the key ({', '.join(key)}).",
            )
        if not 1 <= field.number <= MOST_BUCKETS:
            raise InvalidParameterValue(
                f"PARTITION BY {field.text()}: there can be 1 to {MOST_BUCKETS} buckets"
            )
        if field.name in names:
            raise DuplicateColumn(
                f'column "{field.name}" has the name of the column of PARTITION BY {field.text()}',
                hint="Rename it in a materialized view.",
            )
    return found


def bucket_properties(fields: Sequence[PartitionField]) -> dict[str, str]:
    """Return what a Delta table remembers of its buckets, which stay what they are."""
    if not fields:
        return {}
    return {BUCKETS: json.dumps({field.column: field.number for field in fields})}


def buckets_of(properties: Mapping[str, str]) -> list[PartitionField]:
    """Return the buckets of a Delta table that has these properties."""
    known = json.loads(properties.get(BUCKETS, "{}"))
    return [PartitionField(column, BUCKET, number) for column, number in known.items()]


def with_buckets(rows: pa.RecordBatch, fields: Sequence[PartitionField]) -> pa.RecordBatch:
    """Return rows with a column for each of their buckets, by the hash that Iceberg has."""
    for field in fields:
        column = rows.column(field.column)
        rows = rows.append_column(
            pa.field(field.name, pa.int32()), _buckets(column, field).cast(pa.int32())
        )
    return rows


def check_buckets(fields: Sequence[PartitionField], schema: pa.Schema) -> None:
    """Raise DatatypeMismatch if a column's values have no bucket."""
    for field in fields:
        try:
            _buckets(pa.nulls(0, schema.field(field.column).type), field)
        except (KeyError, ValueError, NotImplementedError, pa.ArrowException):
            raise DatatypeMismatch(
                f"PARTITION BY {field.text()}: the column is of type"
                f" {schema.field(field.column).type} in the table"
            ) from None


def _buckets(column: pa.Array, field: PartitionField) -> pa.Array:
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids
    from pyiceberg.transforms import BucketTransform

    schema = pa.schema([pa.field("c", column.type)])
    type = _pyarrow_to_schema_without_ids(schema).fields[0].field_type
    transform = BucketTransform(field.number)
    if not transform.can_transform(type):
        raise ValueError(f"no buckets of {type}")
    return transform.pyarrow_transform(type)(column)


def check_delta_types(partitions: Sequence[str], schema: pa.Schema) -> None:
    """Raise FeatureNotSupported if logs of Delta tables cannot have the values of a partition."""
    for name in partitions:
        type = schema.field(name).type
        if pa.types.is_nested(type) or pa.types.is_binary(type):
            raise FeatureNotSupported(
                f'Delta tables with partitions by column "{name}", of type {type} in the table',
                hint="Cast the column to text, or partition by another one.",
            )


def iceberg_partitions(fields: Sequence[PartitionField], arrow: pa.Schema) -> tuple[Any, Any]:
    """Return the schema of a new Iceberg table with these columns, and its partitions."""
    from pyiceberg.catalog import Catalog
    from pyiceberg.partitioning import PartitionField as Made
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import assign_fresh_schema_ids
    from pyiceberg.transforms import parse_transform

    schema = assign_fresh_schema_ids(Catalog._convert_schema_if_needed(arrow))
    made = []
    for number, field in enumerate(fields):
        source = schema.find_field(field.column)
        how = field.transform + (f"[{field.number}]" if field.number else "")
        transform = parse_transform(how)
        if not transform.can_transform(source.field_type):
            raise DatatypeMismatch(
                f"PARTITION BY {field.text()}: the column is of type {source.field_type}"
            )
        made.append(Made(source.field_id, 1000 + number, transform, field.name))
    return schema, PartitionSpec(*made)
