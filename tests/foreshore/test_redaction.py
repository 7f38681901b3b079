"""Passwords are in no text that is shown."""

import pytest

from foreshore.redaction import MOST_SHOWN, redacted
from tests.processor_time import seconds_of


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("ALTER ROLE a PASSWORD 'secret'", "ALTER ROLE a PASSWORD '...'"),
        ("CREATE USER a password 'se''cret' LOGIN", "CREATE USER a password '...' LOGIN"),
        ("CREATE ROLE a PASSWORD/* */\n'secret", "CREATE ROLE a PASSWORD/* */\n'...'"),
        (r"ALTER ROLE a PASSWORD E'se\'cret' LOGIN", "ALTER ROLE a PASSWORD '...' LOGIN"),
        ("ALTER ROLE a PASSWORD $x$secret$x$", "ALTER ROLE a PASSWORD '...'"),
        ("ALTER ROLE a PASSWORD U&'secret'", "ALTER ROLE a PASSWORD '...'"),
        ("ALTER ROLE a PASSWORD 'se'\n'cret'", "ALTER ROLE a PASSWORD '...'"),
        ("SELECT 1; ALTER ROLE a PASSWORD 'secret'", "SELECT 1; ALTER ROLE a PASSWORD '...'"),
        ("ALTER ROLE a PASSWORD NULL", "ALTER ROLE a PASSWORD NULL"),
        ("CREATE SECRET a AS 'secret'", "CREATE SECRET a AS '...'"),
        ("(SECRET Access KEY = 'secret', REGION 'x')", "(SECRET Access KEY = '...', REGION 'x')"),
        ("(BROKER 'b', SSL KEY 'secret')", "(BROKER 'b', SSL KEY '...')"),
        ("alter /* */ secret a as E'secret' || 'b'", "alter /* */ secret a as '...'"),
        ("CREATE SECRET a AS decode($t$secret$t$", "CREATE SECRET a AS decode('...'"),
        ("CREATE SECRET a AS 'secret", "CREATE SECRET a AS '...'"),
        ("SELECT 'x' AS secret", "SELECT 'x' AS secret"),
        ("SELECT password, 'b' FROM t", "SELECT password, 'b' FROM t"),
    ],
)
def test_password_is_hidden(text: str, shown: str) -> None:
    assert redacted(text) == shown


@pytest.mark.parametrize(
    ("head", "again"),
    [
        ("password ", "/**/"),
        ("password ", " "),
        ("", "password /*"),
        ("", "password --"),
        ("", "create /*"),
        ("", "create secret "),
    ],
)
def test_hostile_text_is_searched_in_milliseconds(head: str, again: str) -> None:
    text = head + again * 100_000 + "x"
    assert seconds_of(lambda: redacted(text)) < 0.1
    assert len(redacted(text)) <= MOST_SHOWN


def test_password_that_is_cut_off_is_hidden() -> None:
    text = f"ALTER ROLE {'a' * (MOST_SHOWN - 25)} PASSWORD 'secret and more'"
    assert redacted(text).endswith("PASSWORD '...'")
