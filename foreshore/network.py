"""Network addresses: text and stored forms of inet, cidr and macaddr.

An inet or cidr is stored as its family (4 or 6), its network, the bits of its mask, and the whole
address. The order of these bytes is PostgreSQL's: by family, by network, by the mask, by address.
A macaddr is stored as its six bytes.
"""

import ipaddress
import re
from typing import NamedTuple

from foreshore.digits import is_digits
from foreshore.errors import DataError, FeatureNotSupported, InvalidTextRepresentation

_SIZES = {4: 4, 6: 16}  # bytes of an address by family
_OCTETS = re.compile(r"\d{1,3}(?:\.\d{1,3}){0,3}\Z", re.ASCII)
_MAC = re.compile(
    r"\s*(?:(?:([0-9a-f]{1,2})([:-])([0-9a-f]{1,2})\2([0-9a-f]{1,2})\2([0-9a-f]{1,2})\2"
    r"([0-9a-f]{1,2})\2([0-9a-f]{1,2}))"
    r"|(?:([0-9a-f]{6})[:-]([0-9a-f]{6}))"
    r"|(?:([0-9a-f]{4})([.-])([0-9a-f]{4})\11([0-9a-f]{4}))"
    r"|([0-9a-f]{12}))\s*\Z",
    re.IGNORECASE | re.ASCII,
)


class Address(NamedTuple):
    """An address with the bits of its mask."""

    family: int  # 4 or 6
    bits: int
    number: int  # the address

    @property
    def size(self) -> int:
        """Return the number of bits of an address of the family."""
        return 8 * _SIZES[self.family]

    @property
    def host_mask(self) -> int:
        """Return the mask of the bits that are not the network's."""
        return (1 << (self.size - self.bits)) - 1

    @property
    def network(self) -> "Address":
        """Return the address with the bits of the host 0."""
        return self._replace(number=self.number & ~self.host_mask)

    @property
    def octets(self) -> bytes:
        """Return the address as bytes."""
        return self.number.to_bytes(_SIZES[self.family], "big")


def stored_address(address: Address) -> bytes:
    """Return the stored form of an address."""
    head = bytes([address.family]) + address.network.octets
    return head + bytes([address.bits]) + address.octets


def address_of(datum: bytes) -> Address:
    """Return the address of a stored form."""
    size = _SIZES[datum[0]]
    return Address(datum[0], datum[1 + size], int.from_bytes(datum[2 + size :], "big"))


def parse_address(text: str, type: str) -> bytes:
    """Return the stored form of `text` as an `inet` or `cidr`; raises DataError."""
    host, slash, mask = text.partition("/")
    if slash and not (is_digits(mask) and len(mask) <= 3):
        raise _invalid(text, type)
    address = _parse_v6(host) if ":" in host else _parse_v4(host, type, bool(slash))
    if address is None:
        raise _invalid(text, type)
    if slash:
        address = address._replace(bits=int(mask))
        if address.bits > address.size:
            raise _invalid(text, type)
    if type == "cidr" and address.network != address:
        raise InvalidTextRepresentation(
            f'invalid cidr value: "{text}"', detail="Value has bits set to right of mask."
        )
    return stored_address(address)


def _invalid(text: str, type: str) -> DataError:
    return InvalidTextRepresentation(f'invalid input syntax for type {type}: "{text}"')


def _parse_v4(host: str, type: str, has_mask: bool) -> Address | None:
    if not _OCTETS.match(host):
        return None
    octets = [int(octet) for octet in host.split(".")]
    if any(octet > 255 for octet in octets):
        return None
    if len(octets) < 4 and type == "inet" and not has_mask:
        return None
    number = int.from_bytes(bytes(octets + [0] * (4 - len(octets))), "big")
    bits = 32
    if len(octets) < 4:
        bits = max(_class_bits(octets[0]), 8 * len(octets))
        if octets == [224]:
            bits = 4
    return Address(4, bits, number)


def _class_bits(octet: int) -> int:
    """Return the bits of the class of networks to which an address belongs."""
    for least, bits in ((240, 32), (224, 8), (192, 24), (128, 16)):
        if octet >= least:
            return bits
    return 8


def _parse_v6(host: str) -> Address | None:
    if "%" in host:
        return None
    try:
        return Address(6, 128, int(ipaddress.IPv6Address(host)))
    except ValueError:
        return None


def host_text(address: Address) -> str:
    """Return the address without its mask."""
    if address.family == 4:
        return ".".join(map(str, address.octets))
    words = [int.from_bytes(address.octets[i : i + 2], "big") for i in range(0, 16, 2)]
    zeros = next((i for i, word in enumerate(words) if word), 8)
    if zeros == 6 or (zeros == 5 and words[5] == 0xFFFF):
        tail = ".".join(map(str, address.octets[12:]))
        return f"::ffff:{tail}" if zeros == 5 else f"::{tail}"
    return str(ipaddress.IPv6Address(address.number))


def address_text(address: Address, *, masked: bool) -> str:
    """Return the address, with the mask if it is `masked` or not all of the bits."""
    mask = f"/{address.bits}" if masked or address.bits != address.size else ""
    return host_text(address) + mask


def abbreviated(network: Address) -> str:
    """Return PostgreSQL's abbrev of a cidr; raises FeatureNotSupported for most of family 6."""
    if network.family == 4:
        octets = network.octets[: max((network.bits + 7) // 8, 1)]
        return f"{'.'.join(map(str, octets))}/{network.bits}"
    if network.bits in (0, network.size):
        return address_text(network, masked=True)
    raise FeatureNotSupported("abbrev of a cidr of the family IPv6 is not supported")


def parse_mac(text: str) -> bytes:
    """Return the six bytes of a macaddr; raises DataError."""
    match = _MAC.match(text)
    if match is None:
        raise _invalid(text, "macaddr")
    if match[1] is not None:
        return bytes(int(match[group], 16) for group in (1, 3, 4, 5, 6, 7))
    digits = "".join(part for part in match.groups()[7:] if part and part not in ".-")
    return bytes.fromhex(digits)


def mac_text(datum: bytes) -> str:
    """Return a macaddr as PostgreSQL shows it."""
    return ":".join(f"{octet:02x}" for octet in datum)
