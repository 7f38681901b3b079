"""Each kind of invalid JSON has an error message without a library's words."""

import msgspec
import pytest

from foreshore.json_errors import describe_json_error


class Body(msgspec.Struct, forbid_unknown_fields=True):
    query: str
    n: int | None = None
    parts: list[int] = []


WRONG = {
    b"": "the JSON ends too early",
    b'{"query"': "the JSON ends too early",
    b'{"query": 1}': '"query" is integer, and must be text',
    b'{"query": "a", "n": 1.5}': '"n" is number, and must be integer or null',
    b'{"query": "a", "parts": [1, "x"]}': '"parts[1]" is text, and must be integer',
    b"[1]": "the value is array, and must be object",
    b"{}": 'field "query" is missing',
    b'{"query": "a", "x": 1}': 'field "x" is unknown',
    b'{"query": "a",}': "the JSON is malformed at byte 14",
    b'{"query": "a"} x': "the JSON is malformed at byte 16",
    b'{"query": "\xff"}': "the JSON is not valid UTF8",
    b'{"query": "a\x01"}': "the JSON is malformed at byte 12",
}


@pytest.mark.parametrize("body", WRONG)
def test_wrong_json_is_described(body: bytes) -> None:
    with pytest.raises((msgspec.DecodeError, UnicodeDecodeError)) as raised:
        msgspec.json.decode(body, type=Body)
    assert describe_json_error(raised.value) == WRONG[body]


def test_depth_is_described() -> None:
    assert describe_json_error(RecursionError()) == "the JSON is nested too deeply"
