"""JSON: one jsonb column, or members as columns.

msgspec decodes all messages as an array in one call, to objects with the members that are wanted:
numbers and texts to values of their types, others to what they are written as. If that fails, as a
member is a text where a number is wanted, say, values are parsed from the texts of members, as
jsonb_populate_record would do it.
"""

from collections.abc import Sequence
from decimal import Decimal
from secrets import token_hex
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from foreshore.errors import DataError, InvalidTextRepresentation
from foreshore.sources.outputs import Column
from foreshore.storage.ingest.formats.decoder import WRONG_JSON, Decoded, Values, without_wrong
from foreshore.storage.ingest.formats.jsonb_documents import Documents
from foreshore.storage.ingest.formats.plain import parsed, texts_of
from foreshore.types import SqlType, arrow_type

_MANY = 4096  # messages that are tried together after a failure
_DIRECT = {
    "bool": bool,
    "int2": int,
    "int4": int,
    "int8": int,
    "float4": float,
    "float8": float,
    "text": str,
}


class JsonbDecoder:
    """One jsonb column."""

    def __init__(self) -> None:
        self._documents = Documents()

    def decode(self, values: Values) -> Decoded:
        """Return the documents in the form of jsonb."""
        errors: dict[int, str] = {}
        without_wrong(values, texts_of, errors)  # what is not UTF-8
        if errors:
            values = [None if row in errors else value for row, value in enumerate(values)]
        return Decoded((self._documents.column(values, errors),), errors)


class MembersDecoder:
    """Members of objects as columns of their names; null has NULL in all of them."""

    def __init__(self, columns: Sequence[Column], types: Sequence[SqlType]) -> None:
        self._names = tuple(each.name for each in columns)
        self._types = tuple(types)
        # No message can have the key between messages, so none can pass for several.
        between = token_hex(16)
        self._between = f'{{"{between}":'.encode()
        self._typed = self._decoder([_wanted(each) for each in self._types], between)
        self._raw = self._decoder([msgspec.Raw for _ in self._types], between)

    def _decoder(self, wanted: Sequence[Any], between: str) -> Any:
        """Return what decodes joined messages to objects with the members in `f0`, `f1`, ..."""
        members: Any = msgspec.defstruct(
            "Members",
            [(f"f{number}", type, None) for number, type in enumerate(wanted)],
            rename={f"f{number}": name for number, name in enumerate(self._names)},
            gc=False,
        )
        message: Any = msgspec.defstruct(
            "Message",
            [("members", members | None)],
            rename={"members": between},
            forbid_unknown_fields=True,
            gc=False,
        )
        return msgspec.json.Decoder(list[message])

    def decode(self, values: Values) -> Decoded:
        """Return the members of each object."""
        joined = self._joined(values)
        try:
            objects = [each.members for each in self._typed.decode(joined)]
            if len(objects) == len(values):
                columns = [_column(objects, *each) for each in enumerate(self._types)]
                return Decoded(tuple(columns), {})
        except (*WRONG_JSON, DataError, pa.ArrowException, ValueError, OverflowError):
            pass  # some are wrong, or written in another way
        try:
            objects = [each.members for each in self._raw.decode(joined)]
            if len(objects) == len(values):
                return self._coerced(objects)
        except WRONG_JSON as error:
            if len(values) == 1:
                columns = [pa.nulls(1, arrow_type(type)) for type in self._types]
                return Decoded(tuple(columns), {0: _invalid(values[0] or b"", error)})
        return self._in_parts(values)

    def _joined(self, values: Values) -> bytes:
        """Return messages as one array."""
        texts = (b"}," + self._between).join([b"null" if v is None else v for v in values])
        return b"[" + self._between + texts + b"}]"

    def _in_parts(self, values: Values) -> Decoded:
        """Decode in parts, so that few messages are decoded one by one."""
        size = min(_MANY, max(1, len(values) // 16))
        parts: list[tuple[pa.Array, ...]] = []
        errors: dict[int, str] = {}
        for start in range(0, len(values), size):
            part = self.decode(values[start : start + size])
            parts.append(part.columns)
            errors |= {start + row: error for row, error in part.errors.items()}
        columns = tuple(pa.concat_arrays(each) for each in zip(*parts, strict=True))
        return Decoded(columns, errors)

    def _coerced(self, objects: Sequence[Any]) -> Decoded:
        """Return members coerced from their texts; an object with a wrong one has none."""
        errors: dict[int, str] = {}
        columns = []
        for number, type in enumerate(self._types):
            name = f"f{number}"
            raw = [None if each is None else getattr(each, name) for each in objects]
            columns.append(parsed([_text(each, type) for each in raw], type, errors))
        if errors:
            is_good = np.ones(len(objects), np.bool_)
            is_good[list(errors)] = False
            rows = pa.array(np.where(is_good, np.arange(len(objects)), -1))
            rows = pc.if_else(pc.greater_equal(rows, 0), rows, None)
            columns = [each.take(rows) for each in columns]
        return Decoded(tuple(columns), errors)


def _invalid(value: bytes, error: Exception) -> str:
    """Return why a message is no object."""
    try:
        found = msgspec.json.decode(value)
    except WRONG_JSON as wrong:
        return f"invalid input syntax for type json: {wrong}"
    return f"a JSON object is expected, and not {type(found).__name__}: {error}"


def _wanted(type: SqlType) -> Any:
    """Return what msgspec decodes a member to."""
    if type.name in ("numeric", "number"):
        return Decimal | None
    if type.name in ("jsonb", "json"):
        return msgspec.Raw
    return _DIRECT.get(type.name, str) | None  # a date, say, from its text


def _column(objects: Sequence[Any], number: int, type: SqlType) -> pa.Array:
    """Return a member of all objects; raises if a value does not fit."""
    name = f"f{number}"
    values = [None if each is None else getattr(each, name) for each in objects]
    match type.name:
        case "text":
            texts = pa.array(values, pa.string())
            if pc.any(pc.match_substring(texts, "\0")).as_py():
                raise InvalidTextRepresentation("unsupported Unicode escape sequence")
            return texts
        case "bool" | "int2" | "int4" | "int8" | "float4" | "float8":
            return pa.array(values, arrow_type(type))
        case "numeric" | "number":
            values = [None if each is None else str(each) for each in values]
        case "jsonb" | "json":
            errors: dict[int, str] = {}
            written = [_written(each) for each in values]
            texts = [None if each is None else each.encode() for each in written]
            found = Documents().column(texts, errors)
            if errors:
                raise InvalidTextRepresentation(next(iter(errors.values())))
            return found
    wrong: dict[int, str] = {}
    column = parsed(values, type, wrong)
    if wrong:
        raise InvalidTextRepresentation(next(iter(wrong.values())))
    return column


def _written(raw: Any) -> str | None:
    text = None if raw is None else bytes(raw).decode()
    return None if text == "null" else text


def _text(raw: Any, type: SqlType) -> str | None:
    """Return the text of a member, from which a value of `type` is parsed."""
    written = _written(raw)
    if written is None or type.name in ("json", "jsonb"):
        return written
    if written.startswith('"'):
        return str(msgspec.json.decode(written))
    if type.element is not None and written.startswith("["):
        return _array_text(msgspec.json.decode(written, type=list[msgspec.Raw]), type.element)
    return written


def _array_text(items: Sequence[Any], element: SqlType) -> str:
    texts = [_text(each, element) for each in items]
    quoted = [
        "NULL" if each is None else '"' + each.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for each in texts
    ]
    return "{" + ",".join(quoted) + "}"
