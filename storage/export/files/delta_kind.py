"""Delta tables as a kind of target."""

import pyarrow as pa

from foreshore import blocking
from foreshore.errors import (
    DatatypeMismatch,
    FeatureNotSupported,
    InvalidParameterValue,
    UndefinedColumn,
)
from foreshore.sinks.places import RETENTION_MS, DeltaTarget, PartitionField
from foreshore.storage.export.exporter import Exporter
from foreshore.storage.export.files.delta import DeltaExporter, errors
from foreshore.storage.export.files.delta_upkeep import kept_properties
from foreshore.storage.export.files.place import location_of, own_columns
from foreshore.storage.export.messages import Export
from foreshore.storage.lake import delta
from foreshore.storage.lake.columns import check_delta, check_distinct_without_case, file_type
from foreshore.storage.lake.partitions import (
    bucket_fields,
    bucket_properties,
    buckets_of,
    check_buckets,
    check_columns,
    check_delta_types,
    delta_partitions,
)


class DeltaSinkKind:
    """Delta tables."""

    def exporter(self, export: Export) -> Exporter:
        """Return a new exporter."""
        return DeltaExporter(export, lambda: location_of(export))

    async def check(self, export: Export) -> None:
        """Make the table if it is not there; raises if it lacks a column."""
        if export.spec.envelope == "debezium":
            raise FeatureNotSupported(
                "ENVELOPE DEBEZIUM is not for tables", hint="Use UPSERT or APPEND."
            )
        await blocking.run(None, lambda: _check(export))


def _check(export: Export) -> None:
    columns = own_columns(export)
    check_delta(list(columns), list(columns.values()))
    check_distinct_without_case(list(columns))
    wanted = {name: file_type(type) for name, type in columns.items()}
    location = location_of(export)
    target = export.spec.target
    assert isinstance(target, DeltaTarget), target
    check_columns(target.partition_by, list(columns))
    partitions = delta_partitions(target.partition_by)
    buckets = bucket_fields(target.partition_by, export.spec.key, list(columns))
    check_buckets(buckets, pa.schema(list(wanted.items())))
    wanted |= {field.name: pa.int32() for field in buckets}
    schema = pa.schema(list(wanted.items()))
    check_delta_types(partitions, schema)
    with errors():
        retention = RETENTION_MS if target.retention_ms is None else target.retention_ms
        properties = kept_properties(retention) | bucket_properties(buckets)
        table = delta.made(location, schema, partitions, properties)
        found = pa.schema(table.schema().to_arrow())
        check_delta_types(table.metadata().partition_columns, found)
        there = buckets_of(table.metadata().configuration)
    if buckets and sorted(map(PartitionField.text, buckets)) != sorted(
        map(PartitionField.text, there)
    ):
        has = ", ".join(map(PartitionField.text, there)) or "no buckets"
        raise InvalidParameterValue(
            f"the Delta table has {has} instead of {', '.join(map(PartitionField.text, buckets))}",
            hint="Leave out PARTITION BY: a table that is there keeps its partitions.",
        )
    bucket_fields(there, export.spec.key, list(columns))
    for name, type in wanted.items():
        if name not in found.names:
            raise UndefinedColumn(
                f'the Delta table has no column "{name}"',
                hint=f"It has {', '.join(found.names)}.",
            )
        if not _is_same(found.field(name).type, type):
            raise DatatypeMismatch(
                f'column "{name}" of the Delta table is of type {found.field(name).type}',
                hint=f"The sink writes {type}.",
            )


def _is_same(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether two types are one in a Delta table; those of elements have names in Arrow."""
    if pa.types.is_list(found) and pa.types.is_list(wanted):
        return _is_same(found.value_type, wanted.value_type)
    return bool(found == wanted)


KIND = DeltaSinkKind()
