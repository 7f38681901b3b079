"""Avro: fields of a record as columns.

Messages are read with the schema that wrote them, of which they have the id, as the schema that was
the newest when the relation was made.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from foreshore.datum import to_array
from foreshore.errors import DatabaseError, InvalidParameterValue, UndefinedObject
from foreshore.json_text import canonical_json
from foreshore.sources.outputs import Column
from foreshore.storage.ingest.formats.avro_bounds import Schema, parsed
from foreshore.storage.ingest.formats.decoder import Decoded, Values, told, without_wrong
from foreshore.storage.ingest.formats.frames import Frame, SchemaId
from foreshore.types import SqlType, arrow_type

_PRIMITIVE = {
    "boolean": "bool",
    "int": "int4",
    "long": "int8",
    "float": "float4",
    "double": "float8",
    "bytes": "bytea",
    "string": "text",
    "enum": "text",
    "fixed": "bytea",
}
_LOGICAL = {
    "date": "date",
    "time-millis": "time",
    "time-micros": "time",
    "timestamp-millis": "timestamptz",
    "timestamp-micros": "timestamptz",
    "local-timestamp-millis": "timestamp",
    "local-timestamp-micros": "timestamp",
    "uuid": "uuid",
}
_MOST_DIGITS = 38


# --- columns -----------------------------------------------------------------------------------


def columns_of(document: Any, name: str, *, is_change: bool) -> tuple[tuple[Column, ...], bool]:
    """Return the columns of a schema, and whether there is one for the whole message.

    Those of a change (ENVELOPE DEBEZIUM) are those of its field `after`. Raises
    InvalidParameterValue if the schema is wrong.
    """
    schema: Any = parsed(document).parsed
    known: dict[str, Any] = {}
    _define(schema, known)
    if is_change:
        schema = _after(schema, known)
    if isinstance(schema, dict) and schema.get("type") == "record":
        fields = schema["fields"]
        return tuple(_column(each["name"], each["type"], known) for each in fields), False
    return (_column(name, schema, known),), True


def _define(schema: Any, known: dict[str, Any]) -> None:
    """Note the named types within a schema."""
    if isinstance(schema, list):
        for each in schema:
            _define(each, known)
    elif isinstance(schema, dict):
        if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
            known[schema["name"]] = schema
        for each in ("type", "items", "values"):
            _define(schema.get(each), known)
        for field in schema.get("fields", ()):
            _define(field["type"], known)


def _after(schema: Any, known: Mapping[str, Any]) -> Any:
    fields = schema.get("fields", ()) if isinstance(schema, dict) else ()
    for field in fields:
        if field["name"] == "after":
            found, _ = _without_null(field["type"])
            return known.get(found, found) if isinstance(found, str) else found
    raise InvalidParameterValue(
        'the Avro schema has no field "after"', hint="Is it written by Debezium?"
    )


def _without_null(schema: Any) -> tuple[Any, bool]:
    """Return a schema without its null, and whether it has one."""
    if not isinstance(schema, list):
        return schema, schema == "null"
    others = [each for each in schema if each != "null"]
    return others[0] if len(others) == 1 else others, len(others) < len(schema)


def _column(name: str, schema: Any, known: Mapping[str, Any]) -> Column:
    schema, nullable = _without_null(schema)
    return Column(name, _type(schema, known), nullable)


def _type(schema: Any, known: Mapping[str, Any]) -> str:
    """Return the SQL type of a schema: jsonb for what has parts but arrays of simple values."""
    if isinstance(schema, str) and schema in known:
        schema = known[schema]
    if isinstance(schema, str):
        return _PRIMITIVE.get(schema, "jsonb")
    if not isinstance(schema, dict):
        return "jsonb"  # a union
    logical = schema.get("logicalType")
    if logical == "decimal" and schema["precision"] <= _MOST_DIGITS:
        return f"numeric({schema['precision']}, {schema.get('scale', 0)})"
    if logical == "decimal":
        return "numeric"
    if logical in _LOGICAL:
        return _LOGICAL[logical]
    if schema["type"] == "array":
        item = _type(schema["items"], known)
        return "jsonb" if item == "jsonb" or item.endswith("]") else f"{item}[]"
    return _PRIMITIVE.get(schema["type"], "jsonb") if isinstance(schema["type"], str) else "jsonb"


# --- values ------------------------------------------------------------------------------------


class AvroDecoder:
    """Decodes by the schemas that wrote messages, which `writer` gives by their ids.

    `frame` separates the id from the message; None: messages have none.
    """

    def __init__(
        self,
        schema: str,
        names: Sequence[str],
        types: Sequence[SqlType],
        *,
        is_single: bool,
        frame: Frame | None,
        is_change: bool,
        writer: Callable[[Any], Any] | None,
    ) -> None:
        self._unknown: dict[SchemaId, str] = {}  # ids that the registry does not have, and why
        self._reader = parsed(json.loads(schema))
        self._names, self._types = tuple(names), tuple(types)
        self._is_single, self._frame, self._writer = is_single, frame, writer
        self._is_change = is_change
        self._known: dict[SchemaId, Schema] = {}

    def decode(self, values: Values) -> Decoded:
        """Return the fields of each message."""
        errors: dict[int, str] = {}
        self._unknown.clear()  # it may have been registered meanwhile
        rows = [self._row(each, row, errors) for row, each in enumerate(values)]
        deleted = frozenset[int]()
        if self._is_change:
            rows = [each and each["after"] for each in rows]
            deleted = frozenset(
                row for row, each in enumerate(rows) if each is None and row not in errors
            )
        columns = []
        for name, type in zip(self._names, self._types, strict=True):
            found = rows if self._is_single else [r if r is None else r[name] for r in rows]
            columns.append(without_wrong(found, _convert(type), errors))
        return Decoded(tuple(columns), errors, deleted)

    def _row(self, value: bytes | None, row: int, errors: dict[int, str]) -> Any:
        if value is None:
            return None
        try:
            writer = self._reader
            if self._frame is not None:
                id, value = self._frame(value)
                writer = self._schema_of(id)
            data = BytesIO(value)
            found = writer.read(data, self._reader)
            if data.tell() < len(value):
                raise ValueError("there is more after the record")
            return found
        except (DatabaseError, OSError):
            raise  # not the fault of the message: the registry is away
        except Exception as error:  # of many classes, if bytes are no Avro
            errors[row] = f"invalid Avro: {told(error)}"
            return None

    def _schema_of(self, id: SchemaId) -> Schema:
        """Return the schema that wrote a message."""
        if self._writer is None:
            return self._reader
        if id in self._unknown:
            raise ValueError(self._unknown[id])
        if id not in self._known:
            try:
                self._known[id] = parsed(self._writer(id))
            except (UndefinedObject, InvalidParameterValue) as error:
                self._unknown[id] = error.message
                raise ValueError(error.message) from error
        return self._known[id]


def _convert(type: SqlType) -> Callable[[Sequence[Any]], pa.Array]:
    """Return what makes a column of decoded values."""
    match type.name:
        case "jsonb":
            return lambda values: pa.array(
                [
                    None if v is None else canonical_json(json.dumps(v, default=_shown))
                    for v in values
                ],
                arrow_type(type),
            )
        case "uuid":
            return lambda values: pa.array(
                [each if each is None else uuid.UUID(str(each)).bytes for each in values],
                arrow_type(type),
            )
        case "number":
            return lambda values: to_array([None if v is None else str(v) for v in values], type)
    return lambda values: pa.array(values, arrow_type(type))


def _document(value: Any) -> str:
    return canonical_json(json.dumps(value, default=_shown))


def _shown(value: Any) -> Any:
    """Return a value within a document as JSON has it: bytes in hexadecimal, others as text."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return dict(value)
    return str(value)
