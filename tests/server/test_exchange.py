"""The SCRAM exchange with clients that break its rules, which no library does."""

import base64

import pytest

from foreshore.errors import DatabaseError
from foreshore.scram import MECHANISM, Verifier, digest, hashed
from foreshore.server.admission.exchange import PLUS, Exchange

PASSWORD = "correct horse"
VERIFIER = Verifier.of(PASSWORD)
END_POINT = b"hash of a certificate"


def answer(
    exchange: Exchange, bare: str, server_first: str, channel: bytes, *, password: str = PASSWORD
) -> bytes:
    """Return what a client that keeps the rules answers to the server's first message."""
    import hashlib

    nonce = server_first.split(",")[0]
    unsigned = f"c={base64.b64encode(channel).decode()},{nonce}"
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), VERIFIER.salt, VERIFIER.iterations)
    key = hashed(salted, b"Client Key")
    signature = hashed(digest(key), f"{bare},{server_first},{unsigned}".encode())
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()


@pytest.mark.parametrize("header", ["n", "y"])
def test_client_that_keeps_the_rules_is_admitted(header: str) -> None:
    exchange = Exchange(VERIFIER, None)
    first = exchange.first(MECHANISM, f"{header},,n=,r=abc".encode())
    last = exchange.final(answer(exchange, "n=,r=abc", first, f"{header},,".encode()))
    assert last is not None
    assert last.startswith("v=")


def test_wrong_password_is_not_admitted() -> None:
    exchange = Exchange(VERIFIER, None)
    first = exchange.first(MECHANISM, b"n,,n=,r=abc")
    assert exchange.final(answer(exchange, "n=,r=abc", first, b"n,,", password="x")) is None


def test_another_end_point_is_refused() -> None:
    exchange = Exchange(VERIFIER, END_POINT)
    header = b"p=tls-server-end-point,,"
    first = exchange.first(PLUS, header + b"n=,r=abc")
    with pytest.raises(DatabaseError, match="channel binding check failed"):
        exchange.final(answer(exchange, "n=,r=abc", first, header + b"hash of another"))


def test_stripping_of_channel_binding_is_noticed() -> None:
    with pytest.raises(DatabaseError, match="channel binding negotiation error"):
        Exchange(VERIFIER, END_POINT).first(MECHANISM, b"y,,n=,r=abc")


@pytest.mark.parametrize(
    ("end_point", "mechanism", "first", "sqlstate"),
    [
        (None, PLUS, b"p=tls-server-end-point,,n=,r=abc", "08P01"),
        (END_POINT, PLUS, b"n,,n=,r=abc", "08P01"),
        (END_POINT, MECHANISM, b"p=tls-server-end-point,,n=,r=abc", "08P01"),
        (END_POINT, PLUS, b"p=tls-unique,,n=,r=abc", "08P01"),
        (None, "SCRAM-SHA-1", b"n,,n=,r=abc", "08P01"),
        (None, MECHANISM, b"n,a=x,n=,r=abc", "0A000"),
        (None, MECHANISM, b"n,,m=x,n=,r=abc", "0A000"),
        (None, MECHANISM, b"n,,n=,r=", "08P01"),
        (None, MECHANISM, b"n,,n=,r=a\0c", "08P01"),
        (None, MECHANISM, b"n,,n=,r=a\xff", "08P01"),
        (None, MECHANISM, b"", "08P01"),
    ],
)
def test_first_message_that_breaks_rules_is_refused(
    end_point: bytes | None, mechanism: str, first: bytes, sqlstate: str
) -> None:
    with pytest.raises(DatabaseError) as refused:
        Exchange(VERIFIER, end_point).first(mechanism, first)
    assert refused.value.sqlstate == sqlstate


@pytest.mark.parametrize(
    "last", [b"", b"c=biws", b"c=biws,r={n}", b"c=biws,r={n},p=!", b"c=biws,r=x,p=AA=="]
)
def test_last_message_that_breaks_rules_is_refused(last: bytes) -> None:
    exchange = Exchange(VERIFIER, None)
    first = exchange.first(MECHANISM, b"n,,n=,r=abc")
    nonce = first.split(",")[0].removeprefix("r=")
    with pytest.raises(DatabaseError) as refused:
        exchange.final(last.replace(b"{n}", nonce.encode()))
    assert refused.value.sqlstate == "08P01"
