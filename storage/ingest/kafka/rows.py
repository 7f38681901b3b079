"""Messages to updates: decode their keys and values, and lay them out as rows."""

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Message

from foreshore.json_text import canonical_json
from foreshore.sources.kafka import Include, Messages
from foreshore.sources.outputs import ERRORS
from foreshore.storage.external.access import Accesses
from foreshore.storage.ingest.connector import Batch
from foreshore.storage.ingest.formats.decoder import Decoded
from foreshore.storage.ingest.formats.decoders import decoder_of
from foreshore.storage.ingest.kafka.layout import Layout
from foreshore.storage.ingest.kafka.upsert import KeyedRows
from foreshore.storage.ingest.messages import OutputRelation
from foreshore.types import SqlType
from foreshore.update import DIFF, DIFF_FIELD

MOST_ERROR_BYTES = 65_536  # of what could not be decoded
_UTC = pa.timestamp("us", "UTC")
_ERROR_SCHEMA = pa.schema(
    [
        ("part", pa.string()),
        ("offset", pa.int64()),
        ("output", pa.string()),
        ("error", pa.string()),
        ("data", pa.binary()),
        ("read_at", _UTC),
        (DIFF, pa.int64()),
    ]
)


class RowMaker:
    """Makes the batches of an output; for one thread. Of keyed envelopes it keeps the rows."""

    def __init__(
        self, spec: Messages, reference: str, output: OutputRelation, accesses: Accesses
    ) -> None:
        self._reference = reference
        layout = msgspec.json.decode(output.details, type=Layout)
        self._spec, self._layout, self._desc = spec, layout, output.desc
        self._schema = output.desc.stored_schema()
        types = [each.type for each in output.desc.columns]
        is_change = spec.envelope == "debezium"
        self._value = decoder_of(
            spec.value, layout.value, _at(types, layout.value_at), accesses, is_change=is_change
        )
        self._key = None
        if spec.key is not None and layout.key is not None:
            key_types = _at(types, layout.key_at)
            self._key = decoder_of(
                spec.key, layout.key, key_types, accesses, is_key_of_change=is_change
            )
        self.present: KeyedRows | None = None
        if spec.envelope != "none":
            self.present = KeyedRows(self._schema, layout.key_at, _at(types, layout.key_at))

    def load(self, rows: pa.Table) -> None:
        """Take rows of the relation as they are when the source starts."""
        assert self.present is not None, self._spec
        self.present.load(rows)

    def batch(self, messages: Sequence[Message], moved: Mapping[str, int]) -> Batch:
        """Return the updates that messages stand for, and the position that follows them."""
        if not messages:
            return Batch({}, moved)
        values = [each.value() for each in messages]
        decoded = self._value.decode(values)
        keys = None
        if self._key is not None:
            keys = self._key.decode([each.key() for each in messages])
        errors = {**decoded.errors, **({} if keys is None else keys.errors)}
        columns = self._columns(messages, decoded, keys)
        gone = decoded.deleted | {row for row, each in enumerate(values) if each is None}
        unknown = self._refuse_nulls(columns, errors, gone)
        rows: dict[str, pa.Table] = {}
        if self.present is None:
            rows[self._reference] = _inserted(columns, self._schema, errors)
        else:
            rows[self._reference] = self._changed(columns, errors, gone, unknown)
        if errors:
            rows[ERRORS] = _errors(self._reference, messages, errors, values)
        return Batch({name: each for name, each in rows.items() if each.num_rows}, moved)

    # --- rows ----------------------------------------------------------------------------------

    def _columns(
        self, messages: Sequence[Message], value: Decoded, key: Decoded | None
    ) -> list[pa.Array]:
        """Return the columns of the relation, a row for each message."""
        layout, schema = self._layout, self._schema
        columns: list[Any] = [None] * len(schema)
        for at, column in zip(layout.value_at, value.columns, strict=True):
            columns[at] = column
        if key is not None:
            for at, column in zip(layout.key_at, key.columns, strict=True):
                columns[at] = column
        if layout.error_at is not None:
            told = [value.errors.get(row) for row in range(len(messages))]
            columns[layout.error_at] = pa.array(told, pa.string())
        for at, include in zip(layout.includes_at, self._spec.includes, strict=True):
            columns[at] = _included(messages, include, schema.field(at).type)
        return columns

    def _refuse_nulls(
        self, columns: Sequence[pa.Array], errors: dict[int, str], gone: set[int] | frozenset[int]
    ) -> set[int]:
        """Note the rows with NULL where there may be none; return those without a key.

        Inline errors are rows, so what is wrong with their values is taken from `errors`.
        """
        is_inline = self._layout.error_at is not None
        unknown: set[int] = set()
        keys = set(self._layout.key_at) if self.present is not None else set()
        if self._key is not None and self.present is not None:
            for at in keys:
                if columns[at].null_count:
                    unknown |= set(_where_null(columns[at]))
            for row in unknown:
                errors.setdefault(row, "the message has no key")
        if is_inline:
            for row in [row for row in errors if row not in unknown]:
                del errors[row]
        for at, described in enumerate(self._desc.columns):
            if described.nullable or at in keys or not columns[at].null_count:
                continue
            name = self._desc.names[at]
            for row in _where_null(columns[at]):
                if self.present is None or row not in gone:
                    errors.setdefault(
                        row, f'null value in column "{name}" violates not-null constraint'
                    )
        return unknown

    def _changed(
        self,
        columns: Sequence[pa.Array],
        errors: Mapping[int, str],
        gone: set[int] | frozenset[int],
        unknown: set[int],
    ) -> pa.Table:
        """Return the updates of keyed rows."""
        assert self.present is not None
        rows = pa.Table.from_arrays(
            [each.cast(field.type) for each, field in zip(columns, self._schema, strict=True)],
            schema=self._schema,
        )
        keys = self.present.keys_of(rows)
        count = rows.num_rows
        stays = [True] * count
        for row in gone:
            stays[row] = False
        if errors:
            good = [row for row in range(count) if row not in errors]
            keys, stays = [keys[row] for row in good], [stays[row] for row in good]
            rows = rows.take(pa.array(good, pa.int64()))
        return self.present.change(keys, stays, rows)


def _at(types: Sequence[SqlType], places: Sequence[int]) -> list[SqlType]:
    return [types[at] for at in places]


def _where_null(column: pa.Array) -> list[int]:
    found: list[int] = np.flatnonzero(pc.is_null(column).to_numpy(zero_copy_only=False)).tolist()
    return found


def _inserted(
    columns: Sequence[pa.Array], schema: pa.Schema, errors: Mapping[int, str]
) -> pa.Table:
    """Return the rows of messages without errors, each once more than before."""
    arrays = [each.cast(field.type) for each, field in zip(columns, schema, strict=True)]
    diffs = pa.repeat(pa.scalar(1, pa.int64()), len(arrays[0]))
    table = pa.Table.from_arrays([*arrays, diffs], schema=schema.append(DIFF_FIELD))
    if errors:
        keeps = np.ones(table.num_rows, np.bool_)
        keeps[list(errors)] = False
        table = table.filter(pa.array(keeps))
    return table


def _included(messages: Sequence[Message], include: Include, type: pa.DataType) -> pa.Array:
    """Return a column of what messages have beside their values."""
    match include.what:
        case "partition":
            return pa.array([each.partition() for each in messages], type)
        case "offset":
            return pa.array([each.offset() for each in messages], type)
        case "timestamp":
            times = [each.timestamp() for each in messages]
            return pa.array([1000 * at if kind else None for kind, at in times], pa.int64()).cast(
                type
            )
        case "headers":
            return pa.array([_headers(each.headers() or []) for each in messages], type)
        case "header":
            found = [dict(each.headers() or []).get(include.header) for each in messages]
            if include.is_bytes:
                return pa.array(found, type)
            return pa.array([each if each is None else _shown(each) for each in found], type)


def _headers(headers: Sequence[tuple[str, bytes | None]]) -> str:
    shown = [{"key": key, "value": None if v is None else _shown(v)} for key, v in headers]
    return canonical_json(json.dumps(shown))


def _shown(value: bytes) -> str:
    """Return the value of a header: UTF-8, or bytes as bytea is written."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return "\\x" + value.hex()
    return text.replace("\0", "\\0")


def _errors(
    reference: str,
    messages: Sequence[Message],
    errors: Mapping[int, str],
    values: Sequence[bytes | None],
) -> pa.Table:
    """Return the rows of what could not be decoded."""
    rows = sorted(errors)
    data = [values[row] for row in rows]
    columns = [
        [str(messages[row].partition()) for row in rows],
        [messages[row].offset() for row in rows],
        [reference] * len(rows),
        [errors[row].replace("\0", "\\0") for row in rows],
        [None if each is None else each[:MOST_ERROR_BYTES] for each in data],
        [time.time_ns() // 1000] * len(rows),
        [1] * len(rows),
    ]
    arrays = [
        pa.array(each, field.type) for each, field in zip(columns, _ERROR_SCHEMA, strict=True)
    ]
    return pa.Table.from_arrays(arrays, schema=_ERROR_SCHEMA)
