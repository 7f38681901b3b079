"""The codec: both ways of encoding rows agree with each other and with `foreshore.text`."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foreshore.datum import from_array, to_array
from foreshore.output_style import OutputStyle
from foreshore.parse_columns import parse_column
from foreshore.server import bulk_rows
from foreshore.server.binary_columns import binary_column
from foreshore.server.codec import RowEncoder, result_formats
from foreshore.server.message import Bind
from foreshore.server.parameters import arguments
from foreshore.text import format_text, parse_text
from foreshore.text_columns import text_column
from foreshore.types import (
    BOOL,
    BPCHAR,
    BYTEA,
    CHAR,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT2VECTOR,
    INT4,
    INT8,
    INTERVAL,
    JSONB,
    MZ_TIMESTAMP,
    NAME,
    NUMERIC,
    OID,
    OIDVECTOR,
    REGCLASS,
    TEXT,
    TIME_OF_DAY,
    TIMESTAMP,
    TIMESTAMPTZ,
    UUID,
    VARCHAR,
    ColumnType,
    Datum,
    RelationDesc,
    SqlType,
    array_of,
    numeric,
)
from tests.effort import examples

ZONES = ("UTC", "America/New_York", "Asia/Kolkata", "+03:30")

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
micros = st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2**51)
timestamps = (micros | st.sampled_from([2**63 - 1, -(2**63)])).filter(
    lambda t: t in (2**63 - 1, -(2**63)) or -210_866_803_200_000_000 <= t < 2**63 - 2**57
)
decimals = st.decimals(-(10**15), 10**15, places=4).map(lambda d: format(d, "f"))
VALUES: list[tuple[SqlType, st.SearchStrategy[Any]]] = [
    (BOOL, st.booleans()),
    (INT2, st.integers(-(2**15), 2**15 - 1)),
    (INT4, st.integers(-(2**31), 2**31 - 1)),
    (INT8, st.integers(-(2**63), 2**63 - 1)),
    (OID, st.integers(0, 2**32 - 1)),
    (REGCLASS, st.integers(0, 2**32 - 1)),
    (MZ_TIMESTAMP, st.integers(0, 2**63 - 1)),
    (FLOAT4, st.floats(width=32)),
    (FLOAT8, st.floats() | st.integers(-(10**17), 10**17).map(float)),
    (numeric(20, 4), decimals.map(lambda text: parse_text(text, numeric(20, 4)))),
    (numeric(5, 0), st.integers(-99999, 99999).map(str)),
    (NUMERIC, decimals.map(lambda text: parse_text(text, NUMERIC))),
    (TEXT, texts),
    (VARCHAR, texts),
    (NAME, texts),
    (CHAR, st.sampled_from(["", "a", "i"])),
    (SqlType("bpchar", 5), st.text("ab é", max_size=5).map(lambda text: text.rstrip(" "))),
    (BPCHAR, st.text("ab", max_size=5)),
    (BYTEA, st.binary(max_size=9)),
    (UUID, st.binary(min_size=16, max_size=16)),
    (JSONB, st.sampled_from(['{"a": 1}', "null", "[1, 2]"])),
    (DATE, st.integers(-2_440_588, 2_145_042_905) | st.sampled_from([2**31 - 1, -(2**31)])),
    (TIME_OF_DAY, st.integers(0, 86_400_000_000)),
    (TIMESTAMP, timestamps),
    (TIMESTAMPTZ, timestamps),
    (INTERVAL, st.tuples(*(st.integers(-b, b) for b in (2**31 - 1, 2**31 - 1, 2**62)))),
    (INT2VECTOR, st.lists(st.integers(-9, 9)).map(tuple)),
    (OIDVECTOR, st.lists(st.integers(0, 9)).map(tuple)),
    (array_of(INT4), st.lists(st.none() | st.integers(-9, 9)).map(tuple)),
    (array_of(TEXT), st.lists(st.none() | st.text('a",\\{} \n', max_size=3)).map(tuple)),
    (array_of(TIMESTAMPTZ), st.lists(st.none() | timestamps).map(tuple)),
    (array_of(numeric(9, 2)), st.lists(st.sampled_from([None, "1.50", "-0.05"])).map(tuple)),
]
PICKED = st.sampled_from(VALUES).flatmap(
    lambda picked: st.tuples(st.just(picked[0]), st.lists(st.none() | picked[1], max_size=8))
)


def cells(messages: bytes) -> list[list[bytes | None]]:
    """Split DataRow messages into values."""
    rows = []
    while messages:
        code, size, width = struct.unpack_from("!cih", messages)
        assert code == b"D"
        row: list[bytes | None] = []
        at = 7
        for _ in range(width):
            (length,) = struct.unpack_from("!i", messages, at)
            at += 4
            row.append(None if length < 0 else messages[at : at + length])
            at += max(0, length)
        assert at == size + 1
        rows.append(row)
        messages = messages[at:]
    return rows


def batch_of(type: SqlType, data: list[Datum]) -> pa.RecordBatch:
    padded = to_array([None, *data, None], type)  # of which a slice is taken, with an offset
    return pa.RecordBatch.from_arrays([padded], ["x"]).slice(1, len(data))


@pytest.fixture(scope="module", autouse=True)
def kernel() -> Iterator[None]:
    bulk_rows.KERNEL.load()
    yield
    bulk_rows.KERNEL.write = None


@example((TIMESTAMPTZ, [2_846_473_200_000_000]), "America/New_York", 0)  # after 2037
@example((numeric(20, 4), ["0.0000"]), "UTC", 0)
@example((numeric(20, 4), ["-0.0500", None, "-1.0001", "7.0000"]), "UTC", 0)
@example((numeric(30, 16), ["0.0000000000000001", "99.5000000000000000", "-0.0001"]), "UTC", 1)
@example((INT8, [-(2**63), 2**63 - 1, None, 0]), "UTC", 0)
@example((DATE, [-719_162, 2_932_896, None, 11_016]), "UTC", 0)
@example((DATE, [-719_163, 2_932_897]), "UTC", 0)
@example((TIMESTAMP, [-62_135_596_800_000_000, -1, 253_402_300_799_999_999]), "UTC", 0)
@example((NUMERIC, ["-0.05", "100", None, "-0.5", "12.3456"]), "UTC", 0)
@given(PICKED, st.sampled_from(ZONES), st.sampled_from([0, 1]))
def test_few_rows_and_many_are_encoded_alike(
    picked: tuple[SqlType, list[Datum]], zone: str, format: int
) -> None:
    type, data = picked
    encoder = RowEncoder(RelationDesc(("x",), (ColumnType(type),)), (format,))
    batch = batch_of(type, data)
    few = encoder.few(batch, OutputStyle(zone))
    assert few == encoder.chunk(batch, OutputStyle(zone))
    assert not data or few == encoder._chunk_by_kernel(batch, OutputStyle(zone))
    tuples = [(datum,) for datum in from_array(batch.column(0), type)]
    assert few == encoder.tuples(tuples, OutputStyle(zone))
    if format == 0:
        shown = [
            [None if v is None else format_text(v, type, OutputStyle(zone)).encode()] for v in data
        ]
        assert cells(few) == shown


@given(PICKED)
def test_binary_format_round_trips(picked: tuple[SqlType, list[Datum]]) -> None:
    type, data = picked
    if type.name in ("int2vector", "oidvector"):
        return  # no client sends them
    sent = binary_column(to_array(data, type), type).to_pylist()
    read = arguments(Bind("", "", (1,), sent, ()), [type] * len(sent), "UTC")
    wanted = to_array(data, type)
    assert to_array(read, type).equals(wanted) or _both_nan(to_array(read, type), wanted)


def _both_nan(left: pa.Array, right: pa.Array) -> bool:
    return str(left) == str(right)


@given(PICKED, st.sampled_from(ZONES))
def test_text_format_round_trips_by_column(picked: tuple[SqlType, list[Datum]], zone: str) -> None:
    type, data = picked
    column = to_array(data, type)
    read = parse_column(text_column(column, type, OutputStyle(zone)), type, zone)
    assert read.equals(column) or _both_nan(read, column)


# One of a kind, many of which are of one length, and what looks much like it.
_NUMBERS = (
    "1", "7", "-1", "+1", "0x1", "1e1", "nan", "inf", "1.5", "-.5", "1000", "99.999", "999.99", "9" * 31,
    "0." + "0" * 330 + "1", "1" + "0" * 310, "32768", "2147483648", "1 ", " 1", "1/", "\u0663", "", "-", "00",
)  # fmt: skip
_TIMES = (
    "2013-01-01", "2013-02-30", "0000-01-01", "0001-01-01", "2013-1-011", "12013-01-0",
    "2013-01-01 05:15:00", "2013-01-01T05:15:00", "2013-01-01 24:00:00", "2013-01-01 05:15:60",
    "2013-01-01 051500.5", "0000-01-01 05:15:00", "2013-01-01 05:15:00Z", "2013-01-01 05:15:00z",
    "2013-01-01 05:15:00+00", "2013-01-01 05:15:00+05", "2013-01-01 05:15:00-00",
    "2013-01-01 05:15:00.25+00:00", "2013-01-01 05:15:00.25+00:30", "2013-01-01 05:15:00.1234567",
    "0001-01-01 00:00:00+00", "2013-01-01 05:15:00.123456",
)  # fmt: skip


@settings(max_examples=examples(300))
@given(
    st.sampled_from(
        [
            INT2,
            INT4,
            INT8,
            FLOAT4,
            FLOAT8,
            numeric(5, 2),
            NUMERIC,
            BOOL,
            DATE,
            TIMESTAMP,
            TIMESTAMPTZ,
        ]
    ),
    st.lists(st.text("0123456789-+.:TZ e", max_size=22), max_size=5)
    | st.lists(st.sampled_from(_NUMBERS), max_size=4)
    | st.lists(st.sampled_from(_TIMES), max_size=4)
    | st.sampled_from(_TIMES).flatmap(
        lambda one: st.lists(st.sampled_from([t for t in _TIMES if len(t) == len(one)]), max_size=4)
    ),
)
def test_texts_parsed_by_column_equal_texts_parsed_singly(type: SqlType, given: list[str]) -> None:
    def outcome(read: Any) -> object:
        try:
            return read()
        except Exception as error:
            return type_and_text(error)

    by_column = outcome(lambda: parse_column(pa.array(given, pa.string()), type, "UTC").to_pylist())
    one_by_one = outcome(
        lambda: to_array([parse_text(text, type) for text in given], type).to_pylist()
    )
    if isinstance(one_by_one, list):
        assert str(by_column) == str(one_by_one)
    else:
        assert not isinstance(by_column, list)


def type_and_text(error: Exception) -> tuple[str, str]:
    return type(error).__name__, str(error)


def test_row_without_columns_is_sent() -> None:
    encoder = RowEncoder(RelationDesc((), ()), ())
    empty = pa.RecordBatch.from_struct_array(pa.array([{}, {}], pa.struct([])))
    assert cells(encoder.few(empty, OutputStyle())) == [[], []]
    assert cells(bytes(encoder.chunk(empty, OutputStyle()))) == [[], []]


def test_result_formats_are_expanded_to_columns() -> None:
    assert result_formats((), 2) == (0, 0)
    assert result_formats((1,), 2) == (1, 1)
    assert result_formats((0, 1), 2) == (0, 1)
    for codes in ((0, 1, 0), (7,)):
        with pytest.raises(Exception, match="format"):
            result_formats(codes, 2)


def test_columns_of_any_size_are_encoded() -> None:
    column = pa.array(np.arange(100_000))
    encoder = RowEncoder(RelationDesc(("x",), (ColumnType(INT8),)), (1,))
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    got = cells(bytes(encoder.chunk(batch.slice(90_000, 10_000), OutputStyle())))
    assert got[-1] == [struct.pack("!q", 99_999)]
    assert len(got) == 10_000


@pytest.mark.parametrize("format", [0, 1])
def test_lengths_of_every_size_are_written(format: int) -> None:
    texts = [
        None if size is None else "x" * size for size in (0, None, 1, 255, 256, 65_536, 70_000)
    ]
    desc = RelationDesc(("x", "y"), (ColumnType(TEXT), ColumnType(TEXT)))
    batch = pa.RecordBatch.from_arrays([pa.array(texts), pa.array(texts[::-1])], ["x", "y"])
    encoder = RowEncoder(desc, (format, format))
    assert bytes(encoder.chunk(batch, OutputStyle())) == encoder.few(batch, OutputStyle())
