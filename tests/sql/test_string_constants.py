"""String constants that continue on the next line are read as by PostgreSQL's lexer."""

import re
from contextlib import suppress
from time import process_time

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from foreshore.errors import SyntaxError_
from foreshore.sql import ast
from foreshore.sql.parse import string_constants
from foreshore.sql.parse.lexer import STRING, tokenize
from foreshore.sql.parse.parse import parse
from tests.effort import examples


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("'a'\n'b'", "ab"),
        ("'a' -- c\n  -- d\n 'b'\r\n'c'", "abc"),
        ("E'a\\t'\n'b\\n'", "a\tb\n"),
        ("e'a\\'' -- c\n 'b\\'''c'", "a'b''c"),
        ("E'\\x4'\n'1'", "\x041"),  # an escape ends with its line
        ("E'\\xc3'\n'\\xa9'", "é"),  # but bytes are combined
        ("U&'a\\00e9'\n'\\0062'", "aéb"),
        ("U&'a!00e9'\n'!0062' UESCAPE '!'", "aéb"),
        ("'E' || E'a'\n'b'", None),
    ],
)
def test_constant_continues_on_next_line(text: str, value: str | None) -> None:
    (statement,) = parse(f"SELECT {text}, 7")
    assert isinstance(statement.ast, ast.SelectStatement)
    body = statement.ast.query.body
    assert isinstance(body, ast.Select)
    first, second = (target.expr for target in body.targets)
    assert isinstance(second, ast.Number)
    assert second.at == len(f"SELECT {text}, ")
    if value is not None:
        assert isinstance(first, ast.String)
        assert first.value == value


def test_statement_parser_reads_continued_constant() -> None:
    tokens, _ = tokenize("COMMENT ON TABLE t IS E'a\\t'\n'b\\n'")
    assert [token.value for token in tokens if token.kind == STRING] == ["a\tb\n"]


@pytest.mark.parametrize("text", ["'a'\nE'b'", "E'a' 'b'", "E'a'\n/* c */'b'"])
def test_constant_without_newline_does_not_continue(text: str) -> None:
    with pytest.raises(SyntaxError_):
        parse(f"SELECT {text}")


def test_similar_text_is_not_joined() -> None:
    text = "SELECT 1 /* E'a'\n'b' */, \"e'a'\n'b'\", $$E'a'\n'b'$$, date'2020-01-01'"
    tokens, _ = tokenize(text)
    assert [token.value for token in tokens if token.kind == STRING] == [
        "E'a'\n'b'",
        "2020-01-01",
    ]


GAP = r"(?:[ \t\f\v]|--[^\n\r]*)*[\n\r](?:[ \t\f\v\n\r]|--[^\n\r]*[\n\r])*"


@settings(max_examples=examples(2000))
@given(st.text(alphabet="'- \t\n\rx", max_size=14), st.integers(1, 5))
@example("--'\r'", 1)
@example("'a\n--b'\n'c'", 3)
def test_text_has_continued_constant_if_a_gap_is_between_quotes(text: str, window: int) -> None:
    kept, string_constants.WINDOW = string_constants.WINDOW, window
    try:
        found = string_constants.has_continued(text)
    finally:
        string_constants.WINDOW = kept
    assert found == (re.search(f"'{GAP}'", text) is not None)


@pytest.mark.parametrize(
    "text",
    [
        "select 'a' " + "-" * 200_001,
        "select 'a' " + "-- " * 100_000 + "\n",
        "select 'a' " + "-- '" * 100_000,
        "select 'a'" + "\n-- '" * 100_000,
        "select 'a'" + "\r" * 200_000 + "'b'",
        "select 'a'" + "\n'b'" * 50_000,
        "select E'a'" + " --" * 30_000 + "\n'b'",
        "select 1 " + "/* " * 50_000,
    ],
    ids=lambda text: repr(text[8:20]),
)
def test_comments_beside_constants_are_read_in_linear_time(text: str) -> None:
    began = process_time()
    with suppress(SyntaxError_):
        parse(text)
    assert process_time() - began < 10
