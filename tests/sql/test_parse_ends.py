"""Parsing ends, whatever follows an operand: a loop that reads no token would hold up the server."""

import itertools
import string
import sys
from contextlib import suppress
from types import FrameType

import pytest

from foreshore.errors import DatabaseError
from foreshore.sql.parse.script import Script

MOST_CALLS = 100_000  # of functions, for a text of a few tokens: a hundred times what it needs
OPERANDS = ("1", "a", "t.a", "a[1]", "(1)", "f(1)", "'x'", "1::int", "ARRAY[1]", "CASE WHEN a")
FOLLOWING = (*string.punctuation, *"{} [] () :: -> ->> @> <@ || .. => := $1 not is at over".split())
TEXTS = ("SELECT {}", "INSERT INTO t VALUES ({}", "UPDATE t SET a = {}", "SELECT 1 FROM t WHERE {}")


class Endless(Exception):
    """Parsing has called too many functions."""


def parse(text: str) -> None:
    """Parse a text, which may be wrong; raises Endless."""
    calls = itertools.count()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and next(calls) > MOST_CALLS:
            raise Endless(text)

    sys.setprofile(count)
    try:
        with suppress(DatabaseError):
            Script("postgres", text)
    finally:
        sys.setprofile(None)


@pytest.mark.parametrize("statement", TEXTS)
def test_parsing_ends_whatever_follows_an_operand(statement: str) -> None:
    for operand, token, end in itertools.product(OPERANDS, FOLLOWING, ("", " d", " 1")):
        parse(statement.format(f"{operand} {token}{end}"))
