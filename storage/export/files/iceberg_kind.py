"""Tables of Iceberg catalogs as a kind of target."""

from typing import Any

import pyarrow as pa

from foreshore import blocking
from foreshore.errors import DatatypeMismatch, FeatureNotSupported, UndefinedColumn
from foreshore.sinks.places import RETENTION_MS, IcebergTarget
from foreshore.storage.export.exporter import Exporter
from foreshore.storage.export.files.iceberg import IcebergExporter
from foreshore.storage.export.files.iceberg_change import check_writable
from foreshore.storage.export.files.iceberg_rows import APPENDED
from foreshore.storage.export.files.iceberg_upkeep import kept_properties
from foreshore.storage.export.messages import Export
from foreshore.storage.external.iceberg import catalog_of, errors
from foreshore.storage.lake.columns import check_distinct, check_distinct_without_case, file_type
from foreshore.storage.lake.partitions import check_columns, iceberg_partitions
from foreshore.types import SqlType

FORMAT = "2"


class IcebergSinkKind:
    """Tables of Iceberg catalogs."""

    def exporter(self, export: Export) -> Exporter:
        """Return a new exporter."""
        return IcebergExporter(export)

    async def check(self, export: Export) -> None:
        """Make the table if it is not there; raises if it does not fit."""
        if export.spec.envelope == "debezium":
            raise FeatureNotSupported(
                "ENVELOPE DEBEZIUM is not for tables", hint="Use UPSERT or APPEND."
            )
        await blocking.run(None, lambda: _check(export))


def _columns(export: Export) -> dict[str, SqlType]:
    """Return the columns that a sink writes."""
    desc = export.desc
    check_distinct(desc.names)
    check_distinct_without_case(desc.names)
    found = {name: column.type for name, column in zip(desc.names, desc.columns, strict=True)}
    return found | APPENDED if export.spec.envelope == "append" else found


def _check(export: Export) -> None:
    target = export.spec.target
    assert isinstance(target, IcebergTarget), target
    columns = _columns(export)
    arrow = pa.schema([(name, file_type(type)) for name, type in columns.items()])
    check_columns(target.partition_by, list(columns))
    catalog = catalog_of(target.of, export.accesses)
    retention = RETENTION_MS if target.retention_ms is None else target.retention_ms
    with errors():
        schema, spec = iceberg_partitions(target.partition_by, arrow)
        table = catalog.create_table_if_not_exists(
            target.of.identifier,
            schema,
            partition_spec=spec,
            properties={"format-version": FORMAT, **kept_properties(retention)},
        )
        check_writable(table)
        _check_columns(export, table, catalog._convert_schema_if_needed(arrow))
        table.io.new_output(table.location_provider().new_data_location("check"))


def _check_columns(export: Export, table: Any, wanted: Any) -> None:
    """Raise if a table lacks a column, has it with another type, or needs one that we lack."""
    found = {field.name: field for field in table.schema().fields}
    for field in wanted.fields:
        if field.name not in found:
            raise UndefinedColumn(
                f'the Iceberg table has no column "{field.name}"',
                hint=f"It has {', '.join(found)}.",
            )
        there = found[field.name].field_type
        if _shape(there) != _shape(field.field_type):
            raise DatatypeMismatch(
                f'column "{field.name}" of the Iceberg table is of type {there}',
                hint=f"The sink writes {field.field_type}.",
            )
    desc = export.desc
    filled = {
        name for name, each in zip(desc.names, desc.columns, strict=True) if not each.nullable
    }
    filled |= APPENDED.keys() if export.spec.envelope == "append" else frozenset()
    for name, field in found.items():
        if field.required and name not in filled:
            raise DatatypeMismatch(
                f'column "{name}" of the Iceberg table is required',
                detail="The sink may have no value for it.",
            )


def _shape(type: Any) -> str:
    """Return a type without the ids in it."""
    return f"list of {_shape(type.element_type)}" if hasattr(type, "element_type") else str(type)


KIND = IcebergSinkKind()
