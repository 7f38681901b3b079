"""Partitions of lake tables that are made here."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from foreshore.errors import (
    DatatypeMismatch,
    DuplicateColumn,
    FeatureNotSupported,
    UndefinedColumn,
)
from foreshore.sinks.places import PartitionField


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
    """Return the columns by which a Delta table has partitions."""
    for field in fields:
        if field.transform != "identity":
            raise FeatureNotSupported(
                f"Delta tables with partitions by {field.text()}",
                hint="Partition by a column of the relation, such as one that is date_trunc(...).",
            )
    return [field.column for field in fields]


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
        is_column = field.transform == "identity"
        name = field.column if is_column else f"{field.column}_{field.transform}"
        made.append(Made(source.field_id, 1000 + number, transform, name))
    return schema, PartitionSpec(*made)
