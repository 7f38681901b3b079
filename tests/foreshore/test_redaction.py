"""Passwords are in no text that is shown."""

from collections.abc import Callable

import pytest

from foreshore.connection_spec import RULES
from foreshore.errors import DatabaseError
from foreshore.redaction import MOST_SEARCHED, MOST_SHOWN, redacted, redacted_message
from foreshore.statement_history import StatementHistory, Who
from tests.calls import calls_of
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
        ("""SELECT '{"password": "secret", "a": 1}'""", """SELECT '{"password": ..., "a": 1}'"""),
        ("SELECT 'password: secret'", "SELECT 'password: ...'"),
        ("SELECT 'X-Api-Key:secret, a'", "SELECT 'X-Api-Key:... a'"),
        ("SELECT 'Authorization: Bearer secret'", "SELECT 'Authorization: Bearer ...'"),
        ("SELECT 'Authorization: secret'", "SELECT 'Authorization: ...'"),
        ("SELECT 'http://h/ password: secret'", "SELECT 'http://h/ password: ...'"),
        (r"SELECT U&'\0070assword: secret'", "SELECT 'password: ...'"),
        (r"SELECT U&'s3:\002f/k:secret@b'", "SELECT 's3://...@b'"),
        (r"SELECT U&'\d800 password: secret'", r"SELECT '\d800 password: ...'"),
        ("CALL f(password => 'secret')", "CALL f(password => '...')"),
        ("DO 'BEGIN token := ''secret''; END'", "DO 'BEGIN token := ...; END'"),
        ("INSERT INTO t VALUES ('it''s', '1')", "INSERT INTO t VALUES ('it''s', '1')"),
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


@pytest.mark.parametrize(
    ("inner", "shown"),
    [
        ("ALTER ROLE a PASSWORD 'secret'", "ALTER ROLE a PASSWORD '...'"),
        ("CREATE SECRET a AS 'secret'", "CREATE SECRET a AS '...'"),
        ("SET app.token = 'secret'", "SET app.token = ..."),
        ("SELECT set_config('app.token', 'secret')", "SELECT set_config('app.token', '...')"),
        ("COPY t FROM 's3://key:secret@b/c'", "COPY t FROM 's3://...@b/c'"),
    ],
)
def test_statement_within_a_constant_is_redacted(inner: str, shown: str) -> None:
    written, expected = inner, shown
    for _ in range(2):
        for form in ("plain", "escaped", "dollars", "a tag", "code points"):
            assert redacted(f"EXECUTE {WRITTEN[form](written)}") == f"EXECUTE {_plain(expected)}"
        written, expected = f"EXECUTE {_plain(written)}", f"EXECUTE {_plain(expected)}"
    for _ in range(3):  # deeper ones are not read
        written = f"EXECUTE {_plain(written)}"
        assert "secret'" not in redacted(written)


def _plain(text: str) -> str:
    return WRITTEN["plain"](text)


INFOS = {
    "password = secret": "password = ...",
    "password= secret": "password= ...",
    "password =secret": "password =...",
    "password='my secret'": "password=...",
    "password = 'my secret'": "password = ...",
    r"password='it\'s secret'": "password=...",
    "password='it''s secret'": "password=...",
    "sslpassword = se,cr&et;secret": "sslpassword = ...",
}
WRITTEN: dict[str, Callable[[str], str]] = {
    "plain": lambda text: "'" + text.replace("'", "''") + "'",
    "escaped": lambda text: "E'" + text.replace("\\", r"\\").replace("'", r"\'") + "'",
    "dollars": lambda text: f"$${text}$$",
    "a tag": lambda text: f"$x${text}$x$",
    "code points": lambda text: "U&'" + "".join(f"\\{ord(each):04x}" for each in text) + "'",
    "other code points": lambda text: (
        "U&'" + "".join(f"!+{ord(each):06x}" for each in text) + "' UESCAPE '!'"
    ),
    "bytes": lambda text: "E'" + "".join(f"\\x{each:02x}" for each in text.encode()) + "'",
    "octal": lambda text: "E'" + "".join(f"\\{each:03o}" for each in text.encode()) + "'",
    "cut off": lambda text: "'" + text.replace("'", "''"),
    "continued": lambda text: f"'{text[:5]}'\n  '{text[5:]}'".replace("it's", "it''s"),
}


@pytest.mark.parametrize("info", list(INFOS))
@pytest.mark.parametrize("form", sorted(WRITTEN.keys() - {"continued"}))
def test_password_in_a_connection_string_is_hidden(info: str, form: str) -> None:
    value = f"host=h {info} port=1" if form != "cut off" else f"host=h {info}"
    shown = redacted(f"CREATE SUBSCRIPTION a CONNECTION {WRITTEN[form](value)}")
    assert "secret" not in shown
    assert "host=h " + INFOS[info] in shown


def test_comparison_in_sql_is_shown() -> None:
    text = "SELECT 1 FROM t WHERE token = name AND a = 'b'"
    assert redacted(text) == text


# A value that is hidden since its statement makes a secret.
@pytest.mark.parametrize("form", list(WRITTEN))
@pytest.mark.parametrize("value", ["it's secret", "zürich secret", "secret"])
@pytest.mark.parametrize("filling", ["", "/* long */" * 200], ids=["short", "long"])
def test_message_has_no_value_that_is_hidden(form: str, value: str, filling: str) -> None:
    text = f"CREATE SECRET a AS {filling} {WRITTEN[form](value)}"
    for message in (f'invalid value "{value}"', f"invalid value {value} of something"):
        assert redacted_message(message, text, "22023") == message.replace(value, "...")


def test_message_of_a_very_long_statement_quotes_nothing() -> None:
    text = f"CREATE SECRET a AS 'secret' /* {'x' * MOST_SEARCHED} */"
    assert redacted_message('invalid value "secret" of', text) == 'invalid value "..." of'


def test_value_that_a_message_cuts_off_is_hidden() -> None:
    value = "secret" * MOST_SHOWN
    message = f'invalid value "{value}"'
    for each in (message, message[:MOST_SHOWN]):
        assert "sec" not in redacted_message(each, f"CREATE SECRET a AS '{value}'", "22023")


def test_history_keeps_no_value_that_the_cut_text_lacks() -> None:
    history = StatementHistory()
    text = f"CREATE SECRET a AS {' ' * MOST_SHOWN} 'secret'"
    error = DatabaseError('invalid value "secret"', sqlstate="22023")
    history.add(Who("u1", "a", "b", "c", 1), "1", text, 1, 2, None, error)
    assert "secret" not in str(history.entries[0].message)


@pytest.mark.parametrize(
    "again", ["'", "''", "$a$", "E'\\", "'a' ", "1 ", "/*", "$", "U&'", "'abc' \n", "password = '"]
)
def test_hostile_text_is_searched_for_constants_in_milliseconds(again: str) -> None:
    text = ("token" + again * MOST_SEARCHED)[:MOST_SEARCHED]
    message = ("abc'\"$" * MOST_SHOWN)[:MOST_SHOWN]
    assert seconds_of(lambda: redacted_message(message, text)) < 0.2


CONSTANTS: dict[str, Callable[[int], str]] = {
    "strings": lambda i: f"'{i:05d}'",
    "numbers": lambda i: f"{10_000 + i}",
    "other marks": lambda i: f"U&'1abc' uescape '{chr(0x4E00 + i)}'",
    "beginnings": lambda i: "'" + "abc" * (1 + i // 20) + f"{i}'",
    "continued": lambda i: f"'{i}'\n",
    "parts of the message": lambda i: "'" + ("abc" * 400)[i % 3 : 3 + i // 3] + "'",
}


@pytest.mark.parametrize("kind", list(CONSTANTS))
@pytest.mark.parametrize("message", ["a" * MOST_SHOWN, "abc" * MOST_SHOWN, "0123456789" * 200])
def test_each_constant_takes_few_steps(kind: str, message: str) -> None:
    text, count = "token ", 0
    while len(text) + len(more := CONSTANTS[kind](count) + ", ") <= MOST_SEARCHED:
        text, count = text + more, count + 1
    assert count > 50
    # No more of the message is looked at again than a constant is long.
    assert calls_of(lambda: redacted_message(message, text)) < 25 * count + 2 * len(text) + 6_000


@pytest.mark.parametrize("kind", sorted(CONSTANTS.keys() - {"other marks"}))
def test_text_without_a_word_of_secrets_is_not_taken_apart(kind: str) -> None:
    text = "INSERT INTO t VALUES (" + ", ".join(map(CONSTANTS[kind], range(1_000)))
    message = 'duplicate key value violates unique constraint "t_pkey"'
    assert calls_of(lambda: redacted_message(message, text, "23505")) < 100
    assert calls_of(lambda: redacted(text, "23505")) < 100


def test_no_way_to_name_a_secret_goes_without_a_sign() -> None:
    for word in ("sasl password", "session token", "credential", "access_key", "API-Key", "pwd"):
        assert redacted(f"SET {word} = 'hidden'") == f"SET {word} = '...'"
    for rules in RULES.values():
        for name, rule in rules.items():
            if rule.secret == "must":
                assert redacted(f"({name} 'hidden')") == f"({name} '...')"
