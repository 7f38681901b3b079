"""COPY's binary format parsed many tuples at once gives what it gives tuple by tuple."""

import struct
import tracemalloc
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.datum import from_array
from foreshore.errors import DatabaseError
from foreshore.server import binary_copy
from foreshore.server.binary_copy import SIGNATURE, BinaryCopyParser
from foreshore.server.binary_tuples import tuples_at
from foreshore.types import (
    BOOL,
    DATE,
    FLOAT4,
    FLOAT8,
    INT2,
    INT4,
    INT8,
    NUMBER,
    TEXT,
    TIMESTAMPTZ,
    ColumnType,
    RelationDesc,
)
from tests.effort import examples

TYPES: dict[Any, str] = {
    INT2: ">h", INT4: ">i", INT8: ">q", FLOAT4: ">f", FLOAT8: ">d", DATE: ">i", TIMESTAMPTZ: ">q",
    BOOL: ">?", TEXT: "", NUMBER: "numeric",
}  # fmt: skip
EDGES: dict[str, list[Any]] = {
    ">h": [0, 1, -1, 32767], ">i": [0, 2, -1, 2**31 - 1, -(2**31), 10_000_000], ">f": [0.5, -0.0],
    ">q": [0, 2, -1, 2**63 - 1, -(2**63), 3 * 10**17], ">d": [1.5, float("inf")], ">?": [True, False],
    "": ["", "a", "é", "\0\2", "x" * 300], "numeric": [b"\0\1\0\0\0\0\0\0\0\7", b"\0\0\0\0\0\0\0\0"],
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Copy:
    """What the parser needs of a COPY."""

    table: str
    desc: RelationDesc


def packed(form: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else struct.pack(form, value)


def rows_of(types: list[Any]) -> st.SearchStrategy[list[list[bytes | None]]]:
    """Return rows, mostly of right values, sometimes of bytes that are none."""
    fields = [
        st.one_of(
            st.none(),
            st.sampled_from([packed(TYPES[each], v) for v in EDGES[TYPES[each]]]),
            st.binary(max_size=2) if each is TEXT else st.nothing(),
        )
        for each in types
    ]
    return st.lists(st.tuples(*fields).map(list), max_size=8)


def tuples(rows: list[list[bytes | None]]) -> bytes:
    def field(value: bytes | None) -> bytes:
        return struct.pack(">i", -1) if value is None else struct.pack(">i", len(value)) + value

    return b"".join(struct.pack(">h", len(row)) + b"".join(map(field, row)) for row in rows)


def parsed(types: list[Any], data: bytes, cut: int, names: str = "") -> Any:
    """Return the batches of a parser that gets data in two parts, or its error."""
    columns = tuple(ColumnType(each) for each in types)
    desc = RelationDesc(tuple(names or (f"c{i}" for i in range(len(types)))), columns)
    parser = BinaryCopyParser(_Copy("t", desc))  # type: ignore[arg-type]
    found = []
    try:
        for part, final in ((data[:cut], False), (data[cut:], True)):
            parser.feed(part)
            found.append(parser.take(final=final))
    except DatabaseError as error:
        return str(error), error.sqlstate, error.where
    batches = [each for each in found if each is not None]
    table = pa.Table.from_batches(batches, parser._schema).combine_chunks()
    return {
        name: [datum for chunk in table.column(name).chunks for datum in from_array(chunk, type)]
        for name, type in zip(desc.names, types, strict=True)
    }


@given(st.data())
@settings(max_examples=examples(400))
def test_columns_are_those_of_the_parser_by_tuples(data: Any) -> None:
    types = data.draw(st.lists(st.sampled_from([*TYPES]), min_size=1, max_size=4))
    whole = tuples(data.draw(rows_of(types)))
    noise = data.draw(
        st.sampled_from([b"", b"", b"\0", b"\0\1\0\0\0\0", b"\xff\xff\xff\xff\xff\xfe"])
    )
    end = data.draw(st.sampled_from([b"\xff\xff", b"\xff\xff", b"", b"\0\7"]))
    stream = SIGNATURE + bytes(8) + whole + noise + end
    cut = data.draw(st.integers(0, len(stream)))
    many = parsed(types, stream, cut)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(binary_copy, "columns_of", lambda *of: None)
        by_tuple = parsed(types, stream, cut)
    assert repr(many) == repr(by_tuple)


def test_places_within_values_are_no_tuples(monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tuples([[b"\0\0\0\1", b"x"]])
    rows: list[list[bytes | None]] = [
        [inner[:4], inner],
        [b"\0\0\0\5", None],
        [b"\0\2\0\0", b"\0\2"],
    ]
    rows = [[a, None if b is None else b.replace(b"\0", b"\1")] for a, b in rows]
    monkeypatch.setattr(binary_copy, "WINDOW", 100)
    found = parsed([INT4, TEXT], SIGNATURE + bytes(8) + tuples(rows * 50) + b"\xff\xff", 0)
    assert len(found["c0"]) == 150
    assert found["c0"][1:3] == [5, 0x20000]


def test_places_that_only_look_like_tuples_cost_no_memory_for_each_field() -> None:
    for fields, pattern in ((257, b"\1"), (256, b"\0\0\1\0"), (1600, b"\6\x40")):
        data = pattern * (400_000 // len(pattern))
        tracemalloc.start()
        assert not len(tuples_at(data, 0, fields))
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 100 * len(data)


def test_a_long_value_is_looked_at_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binary_copy, "PIECE", 1000)
    parser = BinaryCopyParser(_Copy("t", RelationDesc(("a",), (ColumnType(TEXT),))))  # type: ignore[arg-type]
    value = b"x" * 100_000
    data = SIGNATURE + bytes(8) + struct.pack(">hi", 1, len(value)) + value + b"\xff\xff"
    takes = 0
    for at in range(0, len(data), 500):
        parser.feed(data[at : at + 500])
        if parser.full:
            takes += 1
            assert parser.take(final=False) is None or at > len(value)
    assert takes < 12
    batch = parser.take(final=True)
    assert batch is not None
    assert from_array(batch.column(0), TEXT) == [value.decode()]


HEAD = SIGNATURE + bytes(8)
HOSTILE = [  # what PostgreSQL says of it
    (HEAD + tuples([[b"\0\0\0\1", b"a"]])[:-1], "unexpected EOF in COPY data", "22P04", "b"),
    (HEAD + b"\0\2", "unexpected EOF in COPY data", "22P04", "a"),
    (HEAD + b"\0\2\xff\xff\xff\xfe", "invalid field size", "22P04", "a"),
    (HEAD + b"\0\2\x3f\xff\xff\xff", "out of memory", "54000", "a"),
    (HEAD + tuples([[b"abcde", b"a"]]), "incorrect binary data format", "22P03", "a"),
    (b"", "COPY file signature not recognized", "22P04", None),
    (SIGNATURE, "invalid COPY file header (missing flags)", "22P04", None),
    (SIGNATURE + bytes(4), "invalid COPY file header (missing length)", "22P04", None),
    (
        SIGNATURE + bytes(4) + b"\xff" * 4,
        "invalid COPY file header (missing length)",
        "22P04",
        None,
    ),
    (SIGNATURE + bytes(7) + b"\5abc", "invalid COPY file header (wrong length)", "22P04", None),
]


@pytest.mark.parametrize(("data", "message", "sqlstate", "column"), HOSTILE)
def test_hostile_data_get_the_errors_of_postgresql(
    data: bytes, message: str, sqlstate: str, column: str | None
) -> None:
    place = None if column is None else f"COPY t, line 1, column {column}"
    assert parsed([INT4, TEXT], data, 0, names="ab") == (message, sqlstate, place)
