"""The options of COPY, tried on Foreshore and on PostgreSQL alike."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from psycopg import errors

Connection = psycopg.Connection[Any]


@pytest.fixture
def session(url: str) -> Iterator[Connection]:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE copied (a int, b text, c text)")
        yield connection
        connection.rollback()


def load(session: Connection, options: str, data: bytes) -> list[Any]:
    """Return columns a and b of the table after a COPY of these."""
    with session.cursor() as cursor:
        with cursor.copy(f"COPY copied (a, b) FROM STDIN {options}".encode()) as copy:
            copy.write(data)
        return cursor.execute("SELECT a, b FROM copied ORDER BY a").fetchall()


@pytest.mark.parametrize(
    ("options", "sqlstate", "message"),
    [
        ("FORMAT csv, FORMAT text", "42601", "conflicting or redundant options"),
        ("FREEZE, FREEZE false", "42601", "conflicting or redundant options"),
        ("FORMAT csv, FORCE_NULL (b), FORCE_NULL (b)", "42601", "conflicting or redundant"),
        ("NOSUCH 1", "42601", 'option "nosuch" not recognized'),
        ("DEFAULT 'x'", "42601", 'option "default" not recognized'),
        ("FORMAT other", "22023", 'COPY format "other" not recognized'),
        ("HEADER maybe", "42601", 'header requires a Boolean value or "match"'),
        ("FREEZE maybe", "42601", "freeze requires a Boolean value"),
        ("ENCODING 'nosuch'", "22023", 'argument to option "encoding" must be a valid'),
        ("DELIMITER 'ab'", "0A000", "COPY delimiter must be a single one-byte character"),
        ("DELIMITER E'\\n'", "22023", "COPY delimiter cannot be newline or carriage return"),
        ("DELIMITER 'a'", "22023", 'COPY delimiter cannot be "a"'),
        ("NULL E'x\\r'", "22023", "COPY null representation cannot use newline"),
        ("NULL E'x\\ty'", "0A000", "COPY delimiter must not appear in the NULL specification"),
        ("FORMAT csv, NULL '\"'", "0A000", "CSV quote character must not appear in the NULL"),
        ("FORMAT csv, QUOTE ','", "22023", "COPY delimiter and quote must be different"),
        ("FORMAT csv, ESCAPE 'ab'", "0A000", "COPY escape must be a single one-byte character"),
        ("QUOTE 'x'", "0A000", "COPY quote available only in CSV mode"),
        ("FORMAT binary, NULL 'x'", "42601", "cannot specify NULL in BINARY mode"),
        ("FORMAT binary, HEADER", "0A000", "cannot specify HEADER in BINARY mode"),
        ("FORCE_NULL (b)", "0A000", "COPY force null available only in CSV mode"),
        ("FORMAT csv, FORCE_QUOTE (b)", "0A000", "COPY force quote only available using COPY TO"),
        ("FORMAT csv, FORCE_NULL *", "22023", 'argument to option "force_null" must be a list'),
        ("FORMAT csv, FORCE_NULL (c)", "42P10", 'FORCE_NULL column "c" not referenced by COPY'),
        ("FORMAT csv, FORCE_NOT_NULL (d)", "42703", 'column "d" '),
    ],
)
def test_wrong_option_is_refused(
    session: Connection, options: str, sqlstate: str, message: str
) -> None:
    with pytest.raises(psycopg.Error) as caught:
        load(session, f"({options})", b"")
    assert caught.value.sqlstate == sqlstate
    assert message in str(caught.value)


def test_header_that_has_to_match(session: Connection) -> None:
    options = "(FORMAT csv, HEADER match)"
    assert load(session, options, b"a,b\n1,x\n") == [(1, "x")]
    session.commit()
    for data, message in (
        (b"a,c\n1,x\n", 'field 2: got "c", expected "b"'),
        (b"a,\n1,x\n", 'field 2: got null value \\(""\\), expected "b"'),
        (b"a\n1,x\n", "wrong number of fields in header line: got 1, expected 2"),
    ):
        with pytest.raises(errors.BadCopyFileFormat, match=message) as caught:
            load(session, options, data)
        assert caught.value.diag.context is not None
        assert caught.value.diag.context.startswith("COPY copied, line 1")
        session.rollback()
    with pytest.raises(errors.FeatureNotSupported):
        session.execute("COPY copied TO STDOUT (HEADER match)")
    session.rollback()
    session.execute("DROP TABLE copied")
    session.commit()


@pytest.mark.parametrize("rows", [1, 5_000])  # many are read in bulk
def test_nulls_by_force(session: Connection, rows: int) -> None:
    forced = "(FORMAT csv, NULL 'n', FORCE_NOT_NULL (b))"
    assert load(session, forced, b"1,n\n" * rows) == [(1, "n")] * rows
    session.execute("TRUNCATE copied")
    forced = "WITH CSV NULL 'n' FORCE NULL b"
    assert load(session, forced, b'1,"n"\n' * rows) == [(1, None)] * rows
    session.execute("TRUNCATE copied")
    assert load(session, "(FORMAT csv, NULL 'n')", b'1,"n"\n2,n\n') == [(1, "n"), (2, None)]


@pytest.mark.parametrize("alone", [False, True])
def test_changes_are_copied_out(session: Connection, alone: bool) -> None:
    if alone:  # each in its own transaction, which ends before its rows are sent
        session.commit()
        session.autocommit = True
    for statement, expected in (
        ("INSERT INTO copied VALUES (1, 'x'), (2, 'y') RETURNING a, b", b"1\tx\n2\ty\n"),
        ("UPDATE copied SET b = 'z' WHERE a = 2 RETURNING b, c", b"z\t\\N\n"),
        ("DELETE FROM copied WHERE a = 1 RETURNING *", b"1\tx\t\\N\n"),
    ):
        with session.cursor().copy(f"COPY ({statement}) TO STDOUT".encode()) as copy:
            assert b"".join(bytes(each) for each in copy) == expected
    assert session.execute("SELECT a, b FROM copied").fetchall() == [(2, "z")]
    with pytest.raises(errors.FeatureNotSupported, match="must have a RETURNING clause"):
        session.execute("COPY (DELETE FROM copied) TO STDOUT")
    if alone:
        session.execute("DROP TABLE copied")


def test_binary_data_may_end_without_a_trailer(session: Connection) -> None:
    header = b"PGCOPY\n\xff\r\n\0" + bytes(8)
    row = b"\0\2" + b"\0\0\0\4" + b"\0\0\0\7" + b"\0\0\0\1" + b"q"
    assert load(session, "BINARY", header + row) == [(7, "q")]
    with pytest.raises(errors.BadCopyFileFormat, match="unexpected EOF in COPY data"):
        load(session, "BINARY", header + row[:-1])


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b"1,x\n2,y\n3,\n4,\n", 4),  # NOT NULL
        (b"1,x\n-2,y\n3,z\n", 3),  # CHECK
        (b"1,x\n2,y\n1,z\n4,x\n", 4),  # UNIQUE, within
        (b"5,x\n6,y\n7,z\n9,v\n", 4),  # and against the table
    ],
)
def test_violation_names_its_line(session: Connection, data: bytes, line: int) -> None:
    session.execute("ALTER TABLE copied ADD UNIQUE (a), ADD CHECK (a > 0)")
    session.execute("ALTER TABLE copied ALTER b SET NOT NULL")
    session.execute("INSERT INTO copied VALUES (7, 'x')")
    with pytest.raises(errors.IntegrityError) as caught:
        load(session, "(FORMAT csv, HEADER)", b"a,b\n" + data)
    context = caught.value.diag.context
    assert context is not None
    assert context.partition(":")[0] == f"COPY copied, line {line}"


def test_where_takes_some_rows(session: Connection) -> None:
    assert load(session, "WHERE a > 1 AND b <> 'x'", b"1\ta\n2\tx\n3\ty\n\\N\tz\n") == [(3, "y")]
    assert load(session, "CSV WHERE c IS NULL", b"5,b\n") == [(3, "y"), (5, "b")]


def test_line_of_error_counts_rows_that_where_leaves_out(session: Connection) -> None:
    session.execute("ALTER TABLE copied ADD CHECK (a < 9)")
    with pytest.raises(errors.CheckViolation) as raised:
        load(session, "WHERE b = 'x'", b"9\ta\n2\tx\n9\ty\n9\tx\n")
    assert "line 4" in (raised.value.diag.context or "")


@pytest.mark.parametrize(
    ("where", "sqlstate"),
    [
        ("count(*) > 1", "42803"),
        ("a IN (SELECT 1)", "0A000"),
        ("nope > 1", "42703"),
        ("a", "42804"),
        ("1 / (a - 1) > 0", "22012"),
    ],
)
def test_wrong_where_is_refused(session: Connection, where: str, sqlstate: str) -> None:
    with pytest.raises(psycopg.Error) as raised:
        load(session, f"WHERE {where}", b"1\ta\n")
    assert raised.value.sqlstate == sqlstate
