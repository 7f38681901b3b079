"""JSON and Avro of rows, beside what readers of both decode."""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from io import BytesIO
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from foreshore.datum import to_array
from foreshore.sources.formats import AvroFormat
from foreshore.storage.export.formats.avro import AvroEncoder, schema_of
from foreshore.storage.export.formats.avro_schema import avro_names
from foreshore.storage.export.formats.columns import Columns
from foreshore.storage.export.formats.encoder import JsonEncoder, as_bytes
from foreshore.types import (
    BOOL,
    BYTEA,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    JSONB,
    NUMBER,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    ColumnType,
    Datum,
    RelationDesc,
    SqlType,
    array_of,
    numeric,
)

Show = Callable[[Any], Any]
SCHEMA_ID = 0x01020304
START = datetime(1970, 1, 1)
LEAST, MOST = datetime(1, 1, 2), datetime(9999, 12, 30)


def micros(at: datetime) -> int:
    return (at - START) // timedelta(microseconds=1)


def same(value: Any) -> Any:
    return value


def text_of_number(value: float) -> Any:
    if math.isfinite(value):
        return value
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def at_of(value: int) -> datetime:
    return START + timedelta(microseconds=value)


def iso(value: int) -> str:
    whole, _, part = at_of(value).isoformat(timespec="microseconds").partition(".")
    part = part.rstrip("0")
    return f"{whole}.{part}" if part else whole


def of_day(value: int) -> time:
    return (START + timedelta(microseconds=value)).time()


def shown_time(value: int) -> str:
    whole, _, part = of_day(value).isoformat(timespec="microseconds").partition(".")
    part = part.rstrip("0")
    return f"{whole}.{part}" if part else whole


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=5)
moments = st.datetimes(LEAST, MOST).map(micros)
decimals = st.decimals(-(10**9), 10**9, places=3).map(str)
# Each type with its values as data, how JSON shows one, and how Avro does.
CASES: list[tuple[SqlType, st.SearchStrategy[Any], Show, Show]] = [
    (BOOL, st.booleans(), same, same),
    (INT2, integers(16), same, same),
    (INT4, integers(32), same, same),
    (INT8, integers(64), same, same),
    (FLOAT4, st.floats(width=32), lambda v: text_of_number(float(str(np.float32(v)))), same),
    (FLOAT8, st.floats(), text_of_number, same),
    (TEXT, texts, same, same),
    (BYTEA, st.binary(max_size=5), lambda v: f"\\x{v.hex()}", same),
    (numeric(30, 3), decimals, lambda v: f"{Decimal(v):.3f}", Decimal),
    (NUMBER, decimals, str, str),
    (
        DATE,
        st.dates(date(1, 1, 2)).map(lambda d: (d - date(1970, 1, 1)).days),
        lambda v: (date(1970, 1, 1) + timedelta(v)).isoformat(),
        lambda v: date(1970, 1, 1) + timedelta(v),
    ),
    (TIME_OF_DAY, st.integers(0, 86_399_999_999), shown_time, of_day),
    (TIMESTAMP, moments, iso, at_of),
    (TIMESTAMPTZ, moments, lambda v: f"{iso(v)}+00:00", lambda v: at_of(v).replace(tzinfo=UTC)),
    (
        UUID,
        st.binary(min_size=16, max_size=16),
        lambda v: str(uuid.UUID(bytes=v)),
        lambda v: uuid.UUID(bytes=v),
    ),
    (JSONB, st.sampled_from(['{"a": [1, "x"]}', "null", "1.50"]), json.loads, same),
]


def optional(show: Show) -> Show:
    return lambda value: None if value is None else show(value)


def listed(show: Show) -> Show:
    return lambda value: [optional(show)(each) for each in value]


for type, values, as_json, as_avro in list(CASES):
    if type not in (NUMBER, JSONB):
        items = st.lists(st.none() | values, max_size=3).map(tuple)
        CASES.append((array_of(type), items, listed(as_json), listed(as_avro)))


@st.composite
def relations(draw: st.DrawFn) -> tuple[RelationDesc, pa.RecordBatch, list[Any], list[Any]]:
    """Draw rows, and what readers have to see of them."""
    cases = draw(st.lists(st.sampled_from(CASES), min_size=1, max_size=4))
    nullable = [draw(st.booleans()) for _ in cases]
    count = draw(st.integers(0, 5))
    names = tuple(f"column {number}" for number in range(len(cases)))
    data: list[list[Datum]] = []
    for (_, values, _, _), may_lack in zip(cases, nullable, strict=True):
        each = st.none() | values if may_lack else values
        data.append(draw(st.lists(each, min_size=count, max_size=count)))
    desc = RelationDesc(
        names, tuple(ColumnType(case[0], n) for case, n in zip(cases, nullable, strict=True))
    )
    arrays = [to_array(column, case[0]) for column, case in zip(data, cases, strict=True)]
    skipped = draw(st.integers(0, count))  # batches may be parts of others
    batch = pa.RecordBatch.from_arrays(arrays, names=list(names)).slice(skipped)
    rows = list(zip(*data, strict=True))[skipped:]

    def seen(form: int, names: tuple[str, ...]) -> list[Any]:
        shows = [optional(case[form]) for case in cases]
        return [
            {name: show(value) for name, show, value in zip(names, shows, row, strict=True)}
            for row in rows
        ]

    return desc, batch, seen(2, names), seen(3, tuple(avro_names(names)))


def known(value: Any) -> Any:
    """Return a value in a form in which NaN equals itself; JSON writes 1.0 as 1, too."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {name: known(each) for name, each in value.items()}
    return [known(each) for each in value] if isinstance(value, list) else value


@given(relations())
def test_json_has_all_values(drawn: Any) -> None:
    desc, batch, expected, _ = drawn
    encoder = JsonEncoder(Columns(desc, desc.names))
    found = as_bytes(encoder.messages(encoder.rows(batch)))
    assert [known(json.loads(each or b"")) for each in found] == [known(e) for e in expected]


@given(relations())
def test_avro_has_all_values(drawn: Any) -> None:
    desc, batch, _, expected = drawn
    columns = Columns(desc, desc.names)
    encoder = AvroEncoder(columns, SCHEMA_ID)
    schema: Any = fastavro.parse_schema(schema_of(columns, "value", AvroFormat(), is_change=False))
    found = as_bytes(encoder.messages(encoder.rows(batch)))
    assert [known(decoded(each or b"", schema)) for each in found] == [known(e) for e in expected]


@given(relations())
def test_changes_have_the_rows_before_and_after(drawn: Any) -> None:
    desc, batch, as_json, as_avro = drawn
    columns, count = Columns(desc, desc.names), batch.num_rows
    before = pa.array([place if place % 2 else None for place in range(count)], pa.int64())
    after = pa.array([None if place % 3 == 1 else place for place in range(count)], pa.int64())
    schema: Any = fastavro.parse_schema(schema_of(columns, "value", AvroFormat(), is_change=True))
    for encoder, read, rows in (
        (JsonEncoder(columns), json.loads, as_json),
        (AvroEncoder(columns, SCHEMA_ID), lambda each: decoded(each, schema), as_avro),
    ):
        encoded = encoder.rows(batch)
        changes = encoder.changes(encoded.take(before), encoded.take(after))
        for place, message in enumerate(as_bytes(encoder.messages(changes))):
            expected = {
                "before": rows[place] if place % 2 else None,
                "after": None if place % 3 == 1 else rows[place],
            }
            assert known(read(message or b"")) == known(expected)


def decoded(message: bytes, schema: Any) -> Any:
    assert message[:5] == b"\0" + SCHEMA_ID.to_bytes(4, "big")
    data = BytesIO(message[5:])
    found = fastavro.schemaless_reader(data, schema, None)
    assert data.read() == b""
    return found


def test_names_that_avro_does_not_allow_are_replaced() -> None:
    assert avro_names(("a", "b c", "b_c", "b-c", "1", "")) == [
        "a",
        "b_c1",
        "b_c",
        "b_c2",
        "_1",
        "_",
    ]
