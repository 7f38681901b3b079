"""Network addresses: stored forms sort as in PostgreSQL, and text and binary forms are read back."""

import ipaddress

from hypothesis import given, settings
from hypothesis import strategies as st

from foreshore.network import Address, address_of, mac_text, parse_mac, stored_address
from foreshore.output_style import OutputStyle
from foreshore.server.cells import binary_cell
from foreshore.server.parameters import decode_binary
from foreshore.text import format_text, parse_text
from foreshore.types import SqlType
from tests.effort import examples

INET, CIDR = SqlType("inet"), SqlType("cidr")


@st.composite
def addresses(draw: st.DrawFn) -> Address:
    family = draw(st.sampled_from((4, 6)))
    size = 32 if family == 4 else 128
    number = draw(st.integers(0, 3)) << draw(st.integers(0, size - 2))
    return Address(family, draw(st.integers(0, size)), number)


def compare(a: Address, b: Address) -> int:
    """Return PostgreSQL's network_cmp: the common bits, the masks, the whole addresses."""
    if a.family != b.family:
        return a.family - b.family
    shift = a.size - min(a.bits, b.bits)
    if a.number >> shift != b.number >> shift:
        return (a.number >> shift) - (b.number >> shift)
    return a.bits - b.bits or a.number - b.number


@given(addresses(), addresses())
@settings(max_examples=examples(1000))
def test_stored_forms_sort_as_addresses(a: Address, b: Address) -> None:
    x, y = stored_address(a), stored_address(b)
    order = compare(a, b)
    assert (x < y, x == y) == (order < 0, order == 0)
    assert address_of(x) == a


@given(addresses())
@settings(max_examples=examples(500))
def test_text_and_binary_forms_are_read_back(address: Address) -> None:
    for type, value in ((INET, address), (CIDR, address.network)):
        datum = stored_address(value)
        shown = format_text(datum, type)
        assert parse_text(shown, type) == datum
        if address.family == 6:
            assert int(ipaddress.IPv6Address(shown.partition("/")[0])) == value.number
        assert decode_binary(binary_cell(type)(datum, OutputStyle())[4:], type) == datum


@given(st.binary(min_size=6, max_size=6))
@settings(max_examples=examples(100))
def test_hardware_addresses_are_read_back(datum: bytes) -> None:
    assert parse_mac(mac_text(datum)) == datum
