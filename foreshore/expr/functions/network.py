"""inet, cidr and macaddr: operators and functions. A cidr is an inet where a function takes one."""

from collections.abc import Callable

from foreshore.expr.functions.function import declare, hidden
from foreshore.expr.functions.rows import fail, mapped
from foreshore.network import (
    Address,
    abbreviated,
    address_of,
    address_text,
    host_text,
    stored_address,
)


def _within(a: Address, b: Address) -> bool:
    """Return whether the network `a` is `b` or a part of it."""
    if a.family != b.family or a.bits < b.bits:
        return False
    return a._replace(bits=b.bits).network.number == b.network.number


def _test(test: Callable[[Address, Address], bool]) -> Callable[[bytes, bytes], bool]:
    return lambda a, b: test(address_of(a), address_of(b))


def _of(compute: Callable[[Address], object]) -> Callable[[bytes], object]:
    return lambda datum: compute(address_of(datum))


def _moved(by: int) -> Callable[[bytes, int], bytes]:
    def move(datum: bytes, count: int) -> bytes:
        address = address_of(datum)
        return stored_address(_checked(address, address.number + by * count))

    return move


def _checked(address: Address, number: int) -> Address:
    if not 0 <= number < 1 << address.size:
        raise fail("22003", "result is out of range")
    return address._replace(number=number)


def _distance(a: bytes, b: bytes) -> int:
    first, second = address_of(a), address_of(b)
    if first.family != second.family:
        raise fail("22023", "cannot subtract inet values of different sizes")
    distance = first.number - second.number
    if not -(2**63) <= distance < 2**63:
        raise fail("22003", "result is out of range")
    return distance


def _combined(name: str, compute: Callable[[int, int], int]) -> Callable[[bytes, bytes], bytes]:
    def combine(a: bytes, b: bytes) -> bytes:
        first, second = address_of(a), address_of(b)
        if first.family != second.family:
            raise fail("22023", f"cannot {name} inet values of different sizes")
        number = compute(first.number, second.number)
        return stored_address(Address(first.family, max(first.bits, second.bits), number))

    return combine


def _inverted(address: Address) -> bytes:
    return stored_address(address._replace(number=address.number ^ ((1 << address.size) - 1)))


def _broadcast(address: Address) -> bytes:
    return stored_address(address._replace(number=address.number | address.host_mask))


def _netmask(address: Address) -> bytes:
    number = ((1 << address.size) - 1) ^ address.host_mask
    return stored_address(Address(address.family, address.size, number))


def _hostmask(address: Address) -> bytes:
    return stored_address(Address(address.family, address.size, address.host_mask))


def _with_bits(datum: bytes, bits: int, *, network: bool) -> bytes:
    address = address_of(datum)
    bits = address.size if bits == -1 else bits
    if not 0 <= bits <= address.size:
        raise fail("22023", f"invalid mask length: {bits}")
    found = address._replace(bits=bits)
    return stored_address(found.network if network else found)


def _merged(a: bytes, b: bytes) -> bytes:
    first, second = address_of(a), address_of(b)
    if first.family != second.family:
        raise fail("22023", "cannot merge addresses from different families")
    alike = first.size - (first.number ^ second.number).bit_length()
    return stored_address(first._replace(bits=min(first.bits, second.bits, alike)).network)


for _name, _compute in (
    ("<<", lambda a, b: a.bits > b.bits and _within(a, b)),
    ("<<=", _within),
    (">>", lambda a, b: b.bits > a.bits and _within(b, a)),
    (">>=", lambda a, b: _within(b, a)),
    ("&&", lambda a, b: _within(a, b) or _within(b, a)),
):
    declare(_name, "inet inet", "bool", mapped(_test(_compute)), stem=f"network {_name} ")
declare("+", "inet int8", "inet", mapped(_moved(1)), stem="network_plus", fallible=True)
declare("+", "int8 inet", "inet", mapped(lambda n, a: _moved(1)(a, n)), stem="plus", fallible=True)
declare("-", "inet int8", "inet", mapped(_moved(-1)), stem="network_minus", fallible=True)
declare("-", "inet inet", "int8", mapped(_distance), stem="network_minus", fallible=True)
declare(
    *("&", "inet inet", "inet", mapped(_combined("AND", lambda a, b: a & b))),
    stem="network_and",
    fallible=True,
)
declare(
    *("|", "inet inet", "inet", mapped(_combined("OR", lambda a, b: a | b))),
    stem="network_or",
    fallible=True,
)
declare("~", "inet", "inet", mapped(_of(_inverted)), stem="network_not")
declare("host", "inet", "text", mapped(_of(host_text)))
declare("text", "inet", "text", mapped(_of(lambda a: address_text(a, masked=True))))
declare("abbrev", "inet", "text", mapped(_of(lambda a: address_text(a, masked=False))))
declare("abbrev", "cidr", "text", mapped(_of(abbreviated)), fallible=True)
declare("family", "inet", "int4", mapped(_of(lambda a: a.family)))
declare("masklen", "inet", "int4", mapped(_of(lambda a: a.bits)))
declare("broadcast", "inet", "inet", mapped(_of(_broadcast)))
declare("netmask", "inet", "inet", mapped(_of(_netmask)))
declare("hostmask", "inet", "inet", mapped(_of(_hostmask)))
declare("network", "inet", "cidr", mapped(_of(lambda a: stored_address(a.network))))
for _type in ("inet", "cidr"):
    declare(
        "set_masklen",
        f"{_type} int4",
        _type,
        mapped(lambda a, n, network=_type == "cidr": _with_bits(a, n, network=network)),
        fallible=True,
    )
declare("inet_merge", "inet inet", "cidr", mapped(_merged), fallible=True)
declare("inet_same_family", "inet inet", "bool", mapped(_test(lambda a, b: a.family == b.family)))
hidden("cast(inet,cidr)", "inet", "cidr", mapped(_of(lambda a: stored_address(a.network))))
declare("trunc", "macaddr", "macaddr", mapped(lambda datum: datum[:3] + bytes(3)))
