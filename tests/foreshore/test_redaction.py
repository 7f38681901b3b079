"""Passwords are in no text that is shown."""

import pytest

from foreshore.redaction import MOST_SHOWN, redacted, redacted_message
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
        ("ALTER ROLE a PASSWORD secret", "ALTER ROLE a PASSWORD '...'"),
        ('CREATE USER a PASSWORD "secret" LOGIN', "CREATE USER a PASSWORD '...' LOGIN"),
        ("CREATE TABLE t (password text)", "CREATE TABLE t (password text)"),
        ("COPY t FROM 's3://key:secret@b/c'", "COPY t FROM 's3://...@b/c'"),
        ("COPY t FROM 's3://key:sec/re@t@b/c'", "COPY t FROM 's3://...@b/c'"),
        ("SELECT 'http://secret@h/x'", "SELECT 'http://...@h/x'"),
        ("SELECT 'http://h:80/x'", "SELECT 'http://h:80/x'"),
        (
            "COPY t FROM 'https://h/x?a=1&token=secret&b=2'",
            "COPY t FROM 'https://h/x?a=1&token=...&b=2'",
        ),
        ("CONNECTION 'host=h password=secret port=1'", "CONNECTION 'host=h password=... port=1'"),
        ("SET app.api_token = 'secret'", "SET app.api_token = '...'"),
        ("SET app.jwt_secret TO 'secret'", "SET app.jwt_secret TO '...'"),
        (
            "SELECT set_config('app.token', 'secret', true)",
            "SELECT set_config('app.token', '...', true)",
        ),
        ("""SELECT '{"password": "secret", "a": 1}'""", """SELECT '{"password": '...', "a": 1}'"""),
        (
            "CREATE SOURCE w FROM WEBHOOK BODY FORMAT TEXT CHECK (h->'k' = 'secret')",
            "CREATE SOURCE w FROM WEBHOOK BODY FORMAT TEXT CHECK (h->'...'",
        ),
        ("PASSWORD = SECRET pgpass", "PASSWORD = SECRET pgpass"),
        ("PASSWORD=SECRET pgpass", "PASSWORD=... pgpass"),
        ("SELECT token::text FROM t", "SELECT token::text FROM t"),
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
        ("", "://"),
        ("", "://a:"),
        ("", "token=("),
        ("", "secret-token"),
        ("", '\'{"token": '),
        ("create role ", "password "),
        ("", "webhook check "),
    ],
)
def test_hostile_text_is_searched_in_milliseconds(head: str, again: str) -> None:
    text = head + again * 100_000 + "x"
    assert seconds_of(lambda: redacted(text)) < 0.1
    assert len(redacted(text)) <= MOST_SHOWN


def test_password_that_is_cut_off_is_hidden() -> None:
    text = f"ALTER ROLE {'a' * (MOST_SHOWN - 25)} PASSWORD 'secret and more'"
    assert redacted(text).endswith("PASSWORD '...'")


def test_user_information_that_is_cut_off_is_hidden() -> None:
    text = f"COPY {'a' * (MOST_SHOWN - 30)} FROM 's3://key:secret and more@b"
    assert "secret" not in redacted(text.replace(" and more", "x" * 100))


@pytest.mark.parametrize(
    ("text", "message", "sqlstate"),
    [
        ("ALTER ROLE a PASSWORD 'secret", """unterminated string at or near "'secret\"""", "42601"),
        ("CREATE SECRT a AS 'secret'", """syntax error at or near "'secret'\"""", "42601"),
        ("COPY t FROM 's3://k:secret@b'", "could not open s3://k:secret@b", "58000"),
        ("CREATE SECRET a AS 'secret'", 'invalid value "secret"', "22023"),
    ],
)
def test_message_has_no_constant_that_is_hidden(text: str, message: str, sqlstate: str) -> None:
    assert "secret" not in redacted_message(message, text, sqlstate)
    assert "secret" not in redacted(text, sqlstate)
