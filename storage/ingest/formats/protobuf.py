"""Protobuf: fields of a message as columns.

A schema is kept compiled: a FileDescriptorSet in base64, with the name of the message.
"""

import json
import subprocess
import sys
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from foreshore.errors import DataError, InvalidParameterValue
from foreshore.json_text import canonical_json
from foreshore.processes.child_environment import child_environment, private_home
from foreshore.sources.outputs import Column
from foreshore.storage.ingest.formats.decoder import Decoded, Values, told, without_wrong
from foreshore.types import SqlType, arrow_type

COMPILE_SECONDS = 20.0
PACKED = "\\x"  # at the beginning of a schema that is compiled
_TIMESTAMP = "google.protobuf.Timestamp"
_SECONDS = range(-62_135_596_800, 253_402_300_800)  # the years 1 to 9999
_NANOS = range(1_000_000_000)
_NO_WRAPPERS = ("google.protobuf.Value", "google.protobuf.ListValue", "google.protobuf.NullValue")
_TYPES: Mapping[int, str] = {
    FieldDescriptor.CPPTYPE_BOOL: "bool",
    FieldDescriptor.CPPTYPE_INT32: "int4",
    FieldDescriptor.CPPTYPE_INT64: "int8",
    FieldDescriptor.CPPTYPE_UINT32: "int8",
    FieldDescriptor.CPPTYPE_UINT64: "numeric(20, 0)",
    FieldDescriptor.CPPTYPE_FLOAT: "float4",
    FieldDescriptor.CPPTYPE_DOUBLE: "float8",
    FieldDescriptor.CPPTYPE_ENUM: "text",
    FieldDescriptor.CPPTYPE_STRING: "text",
    FieldDescriptor.CPPTYPE_MESSAGE: "jsonb",
}


def compiled(files: Mapping[str, str], message: str | None) -> str:
    """Return the compiled schema of a message, which is the first of the first file by default.

    Raises InvalidParameterValue if the files are wrong or have no such message.
    """
    main = next(iter(files))
    with tempfile.TemporaryDirectory() as folder:
        for name, text in files.items():
            path = Path(folder, name)
            if not path.resolve().is_relative_to(Path(folder).resolve()):
                raise InvalidParameterValue(f'"{name}" is no name of a file of a schema')
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        output = Path(folder, "compiled")
        try:
            process = subprocess.run(
                [
                    *(sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={folder}"),
                    *("--include_imports", f"--descriptor_set_out={output}", main),
                ],
                capture_output=True,
                timeout=COMPILE_SECONDS,
                check=False,
                env=child_environment(private_home()),
            )
        except subprocess.TimeoutExpired:
            raise InvalidParameterValue("the Protobuf schema takes too long to compile") from None
        if process.returncode:
            told = process.stderr.decode(errors="replace").replace(f"{folder}/", "")
            raise InvalidParameterValue(f"the Protobuf schema is wrong: {_why(told, files)}")
        found = FileDescriptorSet.FromString(output.read_bytes())
    return _described(found, message)


def unpacked(text: str, message: str | None) -> str:
    """Return the schema of a message of a FileDescriptorSet, as `compiled` does.

    Its text is that of a bytea: hexadecimal digits after a backslash and an x.
    """
    try:
        found = FileDescriptorSet.FromString(bytes.fromhex(text.removeprefix(PACKED)))
        return _described(found, message)
    except (ValueError, DecodeError, IndexError, TypeError) as error:
        raise InvalidParameterValue(
            "the Protobuf schema is no whole FileDescriptorSet in hexadecimal digits",
            hint="protoc --include_imports --descriptor_set_out=FILE writes one; or write the"
            " schema itself.",
        ) from error


def _described(found: FileDescriptorSet, message: str | None) -> str:
    """Return the schema of a message, which is the first of the last file by default."""
    own = found.file[-1]
    names = [f"{own.package}.{each.name}".lstrip(".") for each in own.message_type]
    if not names:
        raise InvalidParameterValue("the Protobuf schema has no message")
    name = message or names[0]
    schema = json.dumps({"message": name, "files": b64encode(found.SerializeToString()).decode()})
    try:
        _message_class(schema)
    except KeyError:
        raise InvalidParameterValue(
            f'the Protobuf schema has no message "{name}"', hint=f"It has {', '.join(names)}."
        ) from None
    return schema


def _why(told: str, files: Mapping[str, str]) -> str:
    """Return the errors of the compiler that are about the files."""
    lines = told.splitlines()
    found = [each for each in lines if each.startswith(tuple(f"{name}:" for name in files))]
    return "; ".join(found or lines[-1:])


def _message_class(schema: str) -> Any:
    known = json.loads(schema)
    pool = DescriptorPool()
    for each in FileDescriptorSet.FromString(b64decode(known["files"])).file:
        pool.Add(each)
    return GetMessageClass(pool.FindMessageTypeByName(known["message"]))


def indexes_of(descriptor: Any, *, has_maps: bool = True) -> tuple[int, ...]:
    """Return the place of a message in its file, and of those around it before.

    A map makes a message of its entries, which clients in Java do not count: without `has_maps`.
    """
    outer = descriptor.containing_type
    if outer is None:
        return (list(descriptor.file.message_types_by_name.values()).index(descriptor),)
    beside = [each for each in outer.nested_types if has_maps or not each.GetOptions().map_entry]
    return *indexes_of(outer, has_maps=has_maps), beside.index(descriptor)


def columns_of(schema: str) -> tuple[Column, ...]:
    """Return the columns of a compiled schema."""
    descriptor = _message_class(schema).DESCRIPTOR
    return tuple(Column(each.name, _type(each), each.has_presence) for each in descriptor.fields)


def _type(field: Any) -> str:
    if field.message_type is not None and not field.is_repeated:
        if field.message_type.full_name == _TIMESTAMP:
            return "timestamptz"
        if _is_wrapper(field.message_type):
            return _type(field.message_type.fields_by_name["value"])
    is_bytes = field.type == FieldDescriptor.TYPE_BYTES
    type = "bytea" if is_bytes else _TYPES[field.cpp_type]
    if field.is_repeated:
        return "jsonb" if type == "jsonb" else f"{type}[]"
    return type


class ProtobufDecoder:
    """Decodes messages of one schema; `framed` ones begin with the id of a schema."""

    def __init__(self, schema: str, types: Sequence[SqlType], *, framed: bool) -> None:
        self._class, self._framed, self._types = _message_class(schema), framed, tuple(types)
        descriptor = self._class.DESCRIPTOR
        self._fields, self._indexes = list(descriptor.fields), indexes_of(descriptor)
        self._accepted = {self._indexes, indexes_of(descriptor, has_maps=False)}

    def decode(self, values: Values) -> Decoded:
        """Return the fields of each message."""
        errors: dict[int, str] = {}
        rows = [self._row(each, row, errors) for row, each in enumerate(values)]
        columns = []
        for field, type in zip(self._fields, self._types, strict=True):
            found = self._values(rows, field, type, errors)
            columns.append(
                without_wrong(found, lambda some, t=type: pa.array(some, arrow_type(t)), errors)  # type: ignore[misc]
            )
        return Decoded(tuple(columns), errors)

    def _values(
        self, rows: Sequence[Any], field: Any, type: SqlType, errors: dict[int, str]
    ) -> list[Any]:
        """Return a field of each message; that of one that cannot be shown is None."""
        if field.message_type is None:
            return [None if each is None else _plain(each, field) for each in rows]
        of = _with_parts if type.name == "jsonb" else _known
        found: list[Any] = [None] * len(rows)
        for row, each in enumerate(rows):
            if each is None or (field.has_presence and not each.HasField(field.name)):
                continue
            try:
                found[row] = of(getattr(each, field.name), field)
            except (DataError, TypeError, ValueError, json_format.Error) as error:
                errors.setdefault(row, f'field "{field.name}": {told(error)}')
        return found

    def _framed_value(self, value: bytes) -> bytes:
        """Return a message without what is before it; raises ValueError if it is another one."""
        indexes, at = _frame(value)
        if indexes not in self._accepted:
            raise ValueError(
                f"it is message {list(indexes)} of its schema, and not"
                f" {list(self._indexes)}, {self._class.DESCRIPTOR.full_name}"
            )
        return value[at:]

    def _row(self, value: bytes | None, row: int, errors: dict[int, str]) -> Any:
        if value is None:
            return None
        try:
            return self._class.FromString(self._framed_value(value) if self._framed else value)
        except (DecodeError, ValueError) as error:
            errors[row] = f"invalid Protobuf: {error}"
            return None


def _plain(message: Any, field: Any) -> Any:
    """Return a field that is no message; None if it can be absent and is."""
    value = getattr(message, field.name)
    if field.is_repeated:
        return [_named(each, field) for each in value]
    if field.has_presence and not message.HasField(field.name):
        return None
    return _named(value, field)


def _known(value: Any, field: Any) -> Any:
    """Return a message that stands for a value of SQL: a time, or one that may be absent."""
    if field.message_type.full_name == _TIMESTAMP:
        if value.seconds not in _SECONDS or value.nanos not in _NANOS:
            raise ValueError(f"{value.seconds} s and {value.nanos} ns are no time of Protobuf")
        return value.seconds * 1_000_000 + value.nanos // 1_000
    return value.value


def _with_parts(value: Any, field: Any) -> str:
    """Return a message, or several of them, as jsonb."""
    if _is_map(field):
        of_values = field.message_type.fields_by_name["value"]
        document: Any = {_key(key): _part(value[key], of_values) for key in value}
    elif field.is_repeated:
        document = [_document(each) for each in value]
    else:
        document = _document(value)
    return canonical_json(json.dumps(document))


def _key(key: Any) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


def _part(value: Any, field: Any) -> Any:
    """Return a value of a map as JSON has it."""
    if field.message_type is not None:
        return _document(value)
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, float) and not isfinite(value):
        return {"inf": "Infinity", "-inf": "-Infinity"}.get(str(value), "NaN")
    if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT:
        return float(str(np.float32(value)))  # the shortest digits, as elsewhere in JSON
    if field.cpp_type == FieldDescriptor.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return value if known is None else known.name
    if field.cpp_type in (FieldDescriptor.CPPTYPE_INT64, FieldDescriptor.CPPTYPE_UINT64):
        return str(value)  # as JSON of Protobuf has 64 bits
    return value


def _document(message: Any) -> Any:
    return json_format.MessageToDict(
        message,
        preserving_proto_field_name=True,
        descriptor_pool=message.DESCRIPTOR.file.pool,
    )


def _named(value: Any, field: Any) -> Any:
    if field.cpp_type != FieldDescriptor.CPPTYPE_ENUM:
        return value
    found = field.enum_type.values_by_number.get(value)
    return str(value) if found is None else found.name


def _is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _is_wrapper(message_type: Any) -> bool:
    """Return whether a message is one of a value that may be absent."""
    name = message_type.full_name
    return (
        name.startswith("google.protobuf.") and name.endswith("Value") and name not in _NO_WRAPPERS
    )


def _frame(value: bytes) -> tuple[tuple[int, ...], int]:
    """Return the indexes of a message in its schema, and where it begins.

    Before it are a zero, the id of the schema, and these indexes; none stand for a single zero.
    """
    if len(value) < 6 or value[0]:
        raise ValueError("the message does not begin with a zero and the id of a schema")
    count, at = _zigzag(value, 5)
    indexes = []
    for _ in range(count):
        index, at = _zigzag(value, at)
        indexes.append(index)
    return tuple(indexes) or (0,), at


def _zigzag(value: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        if at >= len(value) or shift > 63:
            raise ValueError("the indexes of the message are cut off")
        byte = value[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at
