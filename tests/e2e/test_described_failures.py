"""The answers of messages before an Execute that fails are sent."""

from urllib.parse import urlsplit

import pytest

from tests.wire.raw import Raw


@pytest.mark.parametrize(
    ("sql", "codes"),
    [
        ("INSERT INTO described VALUES (1) RETURNING id", "12TEZ"),
        ("INSERT INTO described VALUES (1)", "12nEZ"),
    ],
)
def test_describe_before_a_failing_execute_is_answered(url: str, sql: str, codes: str) -> None:
    place = urlsplit(url)
    assert place.port is not None
    raw = Raw(place.port, start=False)
    raw.startup(user=place.username or "foreshore", database=place.path.strip("/"))
    raw.until("Z")
    for each in (
        "CREATE TEMP TABLE described (id int PRIMARY KEY)",
        "INSERT INTO described VALUES (1)",
    ):
        raw.send("Q", each.encode() + b"\0")
        raw.until("Z")
    raw.send("P", b"\0" + sql.encode() + b"\0\0\0")
    raw.send("B", b"\0\0" + b"\0" * 6)
    raw.send("D", b"P\0")
    raw.send("E", b"\0\0\0\0\0")
    raw.send("S")
    assert "".join(code for code, _ in raw.until("Z")) == codes
