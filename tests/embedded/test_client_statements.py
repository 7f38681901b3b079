"""Statements that would wait for the client, or whose rows it would drop, are refused by name."""

import pytest

from foreshore.embedded.client_statements import check_client_statements
from foreshore.embedded.connection import is_query
from foreshore.errors import FeatureNotSupported

REFUSED = {
    "COPY t FROM STDIN": "needs a client that sends rows",
    'copy "a b".t (x, "stdin") from stdin with (format csv)': "needs a client that sends rows",
    "COPY t FROM STDOUT": "needs a client that sends rows",  # as PostgreSQL reads it
    "/* of /* all */ it */ COPY t FROM STDIN": "needs a client that sends rows",
    "SELECT ';'; -- next\n COPY t FROM STDIN;": "needs a client that sends rows",
    "INSERT INTO t VALUES ($$;$$); COPY t\nTO\nSTDOUT": "needs a client that takes rows",
    "COPY (SELECT * FROM t) TO STDOUT": "needs a client that takes rows",
    "COPY (SUBSCRIBE t UP TO 5) TO STDOUT (FORMAT csv)": "needs a client that takes rows",
    "SUBSCRIBE t": "has no end",
    "SELECT 1; SUBSCRIBE (SELECT up FROM t)": "has no end",
    "SUBSCRIBE t AS OF 5 -- UP TO 6": "has no end",
    "SUBSCRIBE (SELECT 1 /* up to */ FROM t WHERE 'up to' = '')": "has no end",
}
TAKEN = [
    "SUBSCRIBE t AS OF 5 UP TO 6",
    "COPY t FROM 'stdin'",
    "COPY stdin FROM '/tmp/x'",
    "COPY \"from\" TO 'STDOUT'",
    "COPY (SELECT a FROM stdin) TO '/tmp/x'",
    "SELECT 'COPY t FROM STDIN'",
    "SELECT 1 -- ; COPY t FROM STDIN",
    "SELECT 1 /* ; /* ; */ COPY t FROM STDIN */",
    "SELECT $a$; COPY t FROM STDIN$a$",
    "SELECT copy FROM stdin",
    'CREATE TABLE "subscribe" (copy int)',
]


@pytest.mark.parametrize("text", REFUSED)
def test_what_needs_more_of_the_client_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(FeatureNotSupported, match=REFUSED[text]) as caught:
        check_client_statements(text)
    assert caught.value.hint


@pytest.mark.parametrize("text", TAKEN)
def test_others_are_taken(text: str) -> None:
    check_client_statements(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/* a /* b */ */ SELECT 1", True),
        ("-- a\n (VALUES (1))", True),
        ("WITH a AS (SELECT 1) TABLE a", True),
        ("WITH a AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM a", True),
        ("WITH a AS (SELECT 1) INSERT INTO t SELECT * FROM a", False),
        ("SHOW select", False),
        ("", False),
    ],
)
def test_queries_are_told_from_other_statements(text: str, expected: bool) -> None:
    assert is_query(text) == expected
