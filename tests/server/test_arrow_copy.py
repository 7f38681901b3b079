from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from foreshore.adapter.client import CopyIn, CopyOptions
from foreshore.datum import from_array, to_array
from foreshore.errors import BadCopyFileFormat, DatabaseError, DataError, NumericValueOutOfRange
from foreshore.server.arrow_copy import ArrowCopyParser, ArrowFormatter
from foreshore.text import format_text, parse_text
from foreshore.types import (
    INT4,
    INT8,
    INTERVAL,
    MONEY,
    NUMBER,
    TEXT,
    TIMESTAMPTZ,
    UINT2,
    UINT8,
    UUID,
    RelationDesc,
    SqlType,
    array_of,
    numeric,
)
from tests.server.fake import FakeClient, FakeTarget, desc_of

CASES: list[tuple[SqlType, list[str | None], str, list[Any]]] = [
    (INT4, ["1", None, "-7"], "int32", [1, None, -7]),
    (numeric(10, 2), ["1.25", None], "decimal128(38, 2)", [Decimal("1.25"), None]),
    (NUMBER, ["1.5", None], "decimal128(38, 20)", [Decimal("1.5"), None]),
    (TEXT, ["a\tb", None, ""], "string", ["a\tb", None, ""]),
    (SqlType("bpchar", 4), ["ab", None], "string", ["ab", None]),
    (MONEY, ["$12.34", None, "-$0.05"], "decimal128(19, 2)", [Decimal("12.34"), None, Decimal("-0.05")]),
    (UINT2, ["65535", None], "uint16", [65535, None]),
    (UINT8, ["18446744073709551615", None, "0"], "uint64", [2**64 - 1, None, 0]),
    (UUID, ["00000000-0000-0000-0000-00000000000a", None], "string", ["00000000-0000-0000-0000-00000000000a", None]),
    (array_of(INT8), ["{1,NULL,3}", None, "{}"], "list<item: int64>", [[1, None, 3], None, []]),
    (array_of(UUID), ["{00000000-0000-0000-0000-00000000000a}", None], "list<item: string>", [["00000000-0000-0000-0000-00000000000a"], None]),
    (SqlType("jsonb"), ['{"a": 1}', None], "extension<arrow.json>", ['{"a": 1}', None]),
    (SqlType("json"), ['{"a":1}', None], "extension<arrow.json>", ['{"a":1}', None]),
    (array_of(SqlType("jsonb")), ['{1,NULL}', None, "{}"], "list<item: extension<arrow.json>>", [["1", None], None, []]),
    (SqlType("int4range"), ["[1,3)", None], "string", ["[1,3)", None]),
    (SqlType("mz_timestamp"), ["7", None], "int64", [7, None]),
]  # fmt: skip


def batch_of(desc: RelationDesc, columns: Sequence[Sequence[str | None]]) -> pa.RecordBatch:
    arrays = [
        to_array([None if v is None else parse_text(v, c.type, zone="UTC") for v in values], c.type)
        for values, c in zip(columns, desc.columns, strict=True)
    ]
    schema = pa.schema([field.with_nullable(True) for field in desc.arrow_schema()])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def payload(messages: bytes) -> bytes:
    """Return the contents of CopyData messages."""
    found, at = b"", 0
    while at < len(messages):
        assert messages[at : at + 1] == b"d"
        size = int.from_bytes(messages[at + 1 : at + 5], "big")
        found += messages[at + 5 : at + 1 + size]
        at += 1 + size
    return found


def written(desc: RelationDesc, *batches: pa.RecordBatch) -> bytes:
    formatter = ArrowFormatter(desc)
    return payload(
        formatter.start() + b"".join(bytes(formatter.rows(b)) for b in batches) + formatter.end()
    )


def parser_of(desc: RelationDesc) -> ArrowCopyParser:
    return ArrowCopyParser(CopyIn("t", desc, CopyOptions("arrow"), FakeTarget(FakeClient())))


def read(desc: RelationDesc, data: bytes) -> list[list[str | None]]:
    parser = parser_of(desc)
    parser.feed(data)
    batches = parser.take(final=True)
    columns: list[list[str | None]] = [[] for _ in desc.columns]
    for batch in batches:
        for texts, column, c in zip(columns, batch.columns, desc.columns, strict=True):
            texts += [
                None if v is None else format_text(v, c.type) for v in from_array(column, c.type)
            ]
    return columns


def arrow_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


@pytest.mark.parametrize(("type", "texts", "arrow", "values"), CASES, ids=lambda v: str(v)[:20])
def test_values_go_out_as_arrow_has_them_and_come_back(
    type: SqlType, texts: list[str | None], arrow: str, values: list[Any]
) -> None:
    desc = desc_of(c=type)
    batch = batch_of(desc, [[*texts, *texts]])
    data = written(desc, batch.slice(0, 1), batch.slice(1))
    table = pa.ipc.open_stream(data).read_all()
    assert str(table.schema.field(0).type) == arrow
    assert table.column(0).to_pylist() == [*values, *values]
    parser = parser_of(desc)
    parser.feed(data)
    if type.element != UUID:  # text[] is no uuid[] by assignment
        back = pa.Table.from_batches(parser.take(final=True))
        assert (
            back.column(0).to_pylist() == batch_of(desc, [[*texts, *texts]]).column(0).to_pylist()
        )


def test_result_of_no_rows_has_a_schema() -> None:
    desc = desc_of(a=INT4, b=TEXT)
    table = pa.ipc.open_stream(written(desc)).read_all()
    assert (table.num_rows, table.column_names) == (0, ["a", "b"])


def test_intervals_go_out_and_come_back() -> None:
    desc = desc_of(c=INTERVAL)
    texts = ["1 mon 2 days 00:00:03.5", None, "-1 days"]
    data = written(desc, batch_of(desc, [texts]))
    first = pa.ipc.open_stream(data).read_all().column(0)[0].as_py()
    assert (first.months, first.days, first.nanoseconds) == (1, 2, 3_500_000_000)
    assert read(desc, data) == [texts]


def test_interval_beyond_292_years_is_refused() -> None:
    desc = desc_of(c=INTERVAL)
    with pytest.raises(NumericValueOutOfRange, match="292 years"):
        written(desc, batch_of(desc, [["99999999:00:00"]]))


def test_number_that_fits_no_decimal_is_refused() -> None:
    desc = desc_of(c=NUMBER)
    with pytest.raises(NumericValueOutOfRange, match="does not fit"):
        written(desc, batch_of(desc, [["1e30"]]))


def test_columns_are_found_by_name_and_cast_as_assignments_are() -> None:
    desc = desc_of(a=INT8, b=TEXT, c=TIMESTAMPTZ)
    table = pa.table(
        {
            "c": ["2020-01-01T00:00:00Z", None],
            "extra": [1, 2],
            "b": pa.array(["x", "y"]).dictionary_encode(),
            "a": pa.array([1, 2], pa.int16()),
        }
    )
    found = read(desc, arrow_of(table))
    assert found[:2] == [["1", "2"], ["x", "y"]]
    assert found[2][0] is not None
    assert found[2][0].startswith("2020-01-01 00:00:00")


def test_durations_of_pandas_become_intervals() -> None:
    table = pa.table({"c": pa.array([90_000_000_000, None], pa.duration("ns"))})
    assert read(desc_of(c=INTERVAL), arrow_of(table)) == [["00:01:30", None]]


@pytest.mark.parametrize(
    ("table", "error", "message"),
    [
        (pa.table({"b": [1]}), BadCopyFileFormat, 'has no column "a"'),
        (pa.table({"a": ["x"]}), DataError, 'invalid input syntax for type integer: "x"'),
        (pa.table({"a": [2**40]}), DataError, "integer out of range"),
    ],
)
def test_wrong_rows_are_errors_of_postgresql(
    table: pa.Table, error: type[DatabaseError], message: str
) -> None:
    parser = parser_of(desc_of(a=INT4))
    parser.feed(arrow_of(table))
    with pytest.raises(error, match=message) as raised:
        parser.take(final=True)
    assert "COPY t" in (raised.value.where or "COPY t")


@pytest.mark.parametrize("data", [b"", b"id,name\n1,x\n", arrow_of(pa.table({"a": [1]}))[:-20]])
def test_what_is_no_whole_stream_is_refused(data: bytes) -> None:
    parser = parser_of(desc_of(a=INT4))
    parser.feed(data)
    with pytest.raises(BadCopyFileFormat):
        parser.take(final=True)


def test_text_that_is_too_long_is_refused() -> None:
    parser = parser_of(desc_of(a=SqlType("varchar", 3)))
    parser.feed(arrow_of(pa.table({"a": ["abc", "abcd"]})))
    with pytest.raises(DataError, match="value too long") as raised:
        parser.take(final=True)
    assert raised.value.where == "COPY t, line 2, column a"


@pytest.mark.parametrize(
    ("type", "values", "line"),
    [
        (TEXT, pa.array(["x", None, "x\0y"]), 3),
        (TEXT, pa.array(["x", "x\0y"]).dictionary_encode(), 2),
        (TEXT, pa.array(["x", "x\0y"], pa.large_string()), 2),
        (array_of(TEXT), pa.array([["x"], ["x\0y"]]), 1),
    ],
)
def test_text_with_a_zero_byte_is_refused(type: SqlType, values: pa.Array, line: int) -> None:
    parser = parser_of(desc_of(a=type))
    parser.feed(arrow_of(pa.table({"a": values})))
    with pytest.raises(DataError, match="invalid byte sequence") as raised:
        parser.take(final=True)
    assert raised.value.sqlstate == "22021"
    assert raised.value.where == f"COPY t, line {line}, column a"
