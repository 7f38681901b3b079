"""Avro schemas of relations, as they are registered.

Columns that may be NULL are unions with null, which is their default. Characters of names that Avro
does not know become underscores.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from foreshore.storage.export.formats.columns import Columns
from foreshore.types import NUMERIC_DIGITS, SqlType

NAMESPACE = "foreshore.sink"
_SIMPLE: dict[str, Any] = {
    "bool": "boolean",
    "int2": "int",
    "int4": "int",
    "uint2": "int",
    "int8": "long",
    "oid": "long",
    "uint4": "long",
    "mz_timestamp": "long",
    "float4": "float",
    "float8": "double",
    "bytea": "bytes",
    "date": {"type": "int", "logicalType": "date"},
    "time": {"type": "long", "logicalType": "time-micros"},
    "timestamp": {"type": "long", "logicalType": "local-timestamp-micros"},
    "timestamptz": {"type": "long", "logicalType": "timestamp-micros"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "json": {"type": "string", "connect.name": "io.debezium.data.Json"},
    "jsonb": {"type": "string", "connect.name": "io.debezium.data.Json"},
}


def record_schema(
    columns: Columns, name: str, doc: str | None, docs: Mapping[str, str]
) -> dict[str, Any]:
    """Return the schema of rows, with what is to be said of them and of columns."""
    fields: list[dict[str, Any]] = []
    names = avro_names(columns.names)
    for field, called, column in zip(names, columns.names, columns.types, strict=True):
        schema = type_schema(column.type)
        if column.nullable:
            fields.append({"name": field, "type": ["null", schema], "default": None})
        else:
            fields.append({"name": field, "type": schema})
        if called in docs:
            fields[-1]["doc"] = docs[called]
    said = {} if doc is None else {"doc": doc}
    return {"type": "record", "name": name, "namespace": NAMESPACE, **said, "fields": fields}


def change_schema(columns: Columns, doc: str | None, docs: Mapping[str, str]) -> dict[str, Any]:
    """Return the schema of changes of rows (ENVELOPE DEBEZIUM), as `record_schema` does."""
    row = record_schema(columns, "row", doc, docs)
    return {
        "type": "record",
        "name": "envelope",
        "namespace": NAMESPACE,
        "fields": [
            {"name": "before", "type": ["null", row], "default": None},
            {"name": "after", "type": ["null", f"{NAMESPACE}.row"], "default": None},
        ],
    }


def type_schema(type: SqlType) -> Any:
    """Return the schema of values that are not NULL; text for what Avro has no type."""
    if type.element is not None:
        return {"type": "array", "items": ["null", type_schema(type.element)]}
    if type.name == "numeric":
        return {
            "type": "bytes",
            "logicalType": "decimal",
            "precision": type.length or NUMERIC_DIGITS,
            "scale": type.scale,
        }
    return _SIMPLE.get(type.name, "string")


def avro_names(names: Sequence[str]) -> list[str]:
    """Return names that Avro allows, each once."""
    found: list[str] = []
    for name in names:
        base = re.sub(r"[^A-Za-z0-9_]", "_", name)
        if not base or base[0].isdigit():
            base = f"_{base}"
        fresh, number = base, 0
        while fresh in found or (fresh != name and fresh in names):
            number += 1
            fresh = f"{base}{number}"
        found.append(fresh)
    return found
