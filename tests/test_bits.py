"""Stored forms of bit strings: they keep all bits, sort as PostgreSQL's do, and are sent as such."""

from itertools import product

from foreshore.bits import bits_of, padded_bytes, stored_bits
from foreshore.output_style import OutputStyle
from foreshore.server.cells import binary_cell
from foreshore.server.parameters import _BINARY
from foreshore.types import BIT

STRINGS = [
    *("".join(each) for length in range(4) for each in product("01", repeat=length)),
    *("0" * 8, "0" * 9, "1" * 8, "1" * 8 + "0" * 9, "0" * 8 + "1", "10000000" * 3, "1" * 17),
]


def test_stored_bits_are_read_and_sent_as_they_were() -> None:
    for bits in STRINGS:
        datum = stored_bits(bits)
        assert bits_of(datum) == bits
        sent = binary_cell(BIT)(datum, OutputStyle())
        assert _BINARY["bit"](memoryview(sent)[4:], BIT) == datum


def test_stored_bits_sort_by_padded_bytes_and_then_by_length() -> None:
    data = sorted(map(stored_bits, STRINGS))
    expected = sorted(map(stored_bits, STRINGS), key=lambda datum: padded_bytes(datum)[::-1])
    assert data == expected
