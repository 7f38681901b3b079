"""Composite values in binary, as asyncpg sends them: what is written is read again."""

import pytest

from foreshore.datum import to_array
from foreshore.errors import DatabaseError
from foreshore.server.binary_columns import binary_column
from foreshore.server.parameters import decode_binary
from foreshore.text import parse_text
from foreshore.types import (
    FLOAT8,
    INT4,
    JSONB,
    NUMERIC,
    TEXT,
    TIMESTAMPTZ,
    DefinedType,
    Member,
    SqlType,
    array_of,
)


def composite(oid: int, **columns: SqlType) -> SqlType:
    members = tuple(Member(name, type) for name, type in columns.items())
    return SqlType("record", defined=DefinedType(oid, oid + 1, (f"t{oid}",)), members=members)


PAIR = composite(70_000, a=INT4, b=TEXT)
WIDE = composite(70_002, n=NUMERIC, f=FLOAT8, j=JSONB, t=TIMESTAMPTZ, l=array_of(INT4))
NESTED = composite(70_004, p=PAIR, ps=array_of(PAIR), x=TEXT)

VALUES = [
    (PAIR, '(1,"a b")'),
    (PAIR, "(,)"),
    (PAIR, '(-7,"")'),
    (WIDE, '(1.50,-0.5,"{""a"": [1]}","2020-01-01 00:00:00+00","{1,NULL}")'),
    (WIDE, "(,,,,)"),
    (NESTED, '("(1,x)","{""(2,y)"",NULL}",z)'),
    (NESTED, "(,{},)"),
    (array_of(PAIR), '{"(1,a)",NULL,"(,)"}'),
    (array_of(NESTED), '{"(\\"(1,x)\\",{},z)"}'),
]


@pytest.mark.parametrize(("type", "text"), VALUES)
def test_a_composite_value_that_is_written_is_read(type: SqlType, text: str) -> None:
    datum = parse_text(text, type, zone="UTC")
    (written,) = binary_column(to_array([datum], type), type).to_pylist()
    assert decode_binary(written, type) == datum


GOOD = b"\0\0\0\2" + b"\0\0\0\x17\0\0\0\4\0\0\0\1" + b"\0\0\0\x19\0\0\0\1a"


@pytest.mark.parametrize(
    ("data", "sqlstate", "message"),
    [
        (b"\0\0\0\1" + GOOD[4:16], "42804", "wrong number of columns: 1, expected 2"),
        (GOOD[:7] + b"\x14" + GOOD[8:], "42804", "has type 20 instead of expected 23 (integer)"),
        (GOOD[:-1], "22P03", "incorrect binary data format"),
        (GOOD + b"x", "22P03", "incorrect binary data format"),
        (GOOD[:8] + b"\xff\xff\xff\xfe" + GOOD[12:], "22P03", "incorrect binary data format"),
        (b"", "22P03", "incorrect binary data format"),
    ],
)
def test_a_wrong_composite_value_is_refused(data: bytes, sqlstate: str, message: str) -> None:
    assert decode_binary(GOOD, PAIR) == parse_text("(1,a)", PAIR)
    with pytest.raises(DatabaseError) as raised:
        decode_binary(data, PAIR)
    assert (raised.value.sqlstate, message in raised.value.message) == (sqlstate, True)
