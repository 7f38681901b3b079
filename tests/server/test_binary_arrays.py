"""Arrays of any shape in binary: what is written is read again, and what is malformed is refused."""

from struct import pack

import pytest

from foreshore.array_text import ShapeNotSupported
from foreshore.datum import to_array
from foreshore.errors import DatabaseError
from foreshore.server.binary_columns import binary_column
from foreshore.server.message import Bind
from foreshore.server.parameters import arguments, decode_binary, with_shapes
from foreshore.text import parse_text
from foreshore.types import (
    FLOAT8,
    INT4,
    JSONB,
    NUMBER,
    TEXT,
    TIMESTAMPTZ,
    SqlType,
    array_of,
    shaped_array,
)

VALUES = [
    (INT4, "{}"),
    (INT4, "{1,2}"),
    (INT4, "{{1,2},{3,4}}"),
    (INT4, "[0:1]={5,NULL}"),
    (FLOAT8, "{{{1.5},{NaN}}}"),
    (TEXT, '[-1:0][2:3]={{x,NULL},{"q r",""}}'),
    (NUMBER, "{{1.50,NaN}}"),
    (JSONB, '{{"{\\"a\\": [1]}"}}'),
    (TIMESTAMPTZ, '{{"2020-01-01 00:00:00+00"}}'),
]
ONE = pack("!iI", 4, 7)


@pytest.mark.parametrize(("element", "text"), VALUES)
def test_an_array_that_is_written_is_read(element: SqlType, text: str) -> None:
    type = shaped_array(element)
    datum = parse_text(text, type)
    (written,) = binary_column(to_array([datum], type), type).to_pylist()
    assert decode_binary(written, type) == datum


@pytest.mark.parametrize(
    ("data", "sqlstate"),
    [
        (pack("!iiI", 7, 0, 23), "54000"),
        (pack("!iiI", -1, 0, 23), "22P03"),
        (pack("!iiI", 1, 2, 23), "22P03"),
        (pack("!iiI", 1, 0, 25), "42804"),
        (pack("!iiI", 0, 0, 23) + b"x", "22P03"),
        (pack("!iiI", 2, 0, 23), "22P03"),
        (pack("!iiIiiii", 2, 0, 23, 1, 1, -1, 1), "22P03"),
        (pack("!iiIii", 1, 0, 23, 2, 2**31 - 2) + 2 * ONE, "22P03"),
        (pack("!iiIiiii", 2, 0, 23, 2**20, 1, 2**20, 1) + ONE, "22P03"),
        (pack("!iiIiiii", 2, 0, 23, 1, 1, 2, 1) + ONE, "22P03"),
        (pack("!iiIiiii", 2, 0, 23, 1, 1, 1, 1) + 2 * ONE, "22P03"),
        (pack("!iiIiiii", 2, 0, 23, 1, 1, 1, 1) + pack("!iI", 9, 7), "22P03"),
    ],
)
def test_malformed_arrays_are_refused(data: bytes, sqlstate: str) -> None:
    with pytest.raises(DatabaseError) as raised:
        decode_binary(data, shaped_array(INT4))
    assert raised.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    ("format", "value"),
    [
        (0, b"{{1}}"),
        (0, b"[0:0]={1}"),
        (1, pack("!iiIiiii", 2, 0, 23, 1, 1, 1, 1) + ONE),
        (1, pack("!iiIii", 1, 0, 23, 1, 0) + ONE),
    ],
)
def test_an_argument_with_a_shape_gets_a_type_that_has_it(format: int, value: bytes) -> None:
    plain = pack("!iiIii", 1, 0, 23, 1, 1) + ONE if format else b"{1}"
    bind = Bind("", "", (format,), (value, plain, None), ())
    types = (array_of(INT4), array_of(INT4), array_of(INT4))
    with pytest.raises(ShapeNotSupported):
        arguments(bind, types, "UTC")
    shaped = tuple(with_shapes(bind, types))
    assert shaped == (shaped_array(INT4), array_of(INT4), array_of(INT4))
    assert arguments(bind, shaped, "UTC")[1:] == [(7,) if format else (1,), None]
