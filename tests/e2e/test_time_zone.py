"""The session's time zone over the wire: texts, binary values, COPY, SUBSCRIBE, views."""

from collections.abc import Iterator
from datetime import UTC, date, datetime
from typing import Any

import psycopg
import pytest

from tests.harness import Server

DEFINED = "at::date AS day, date_trunc('day', at) AS start, timestamptz '2013-03-10' AS since"


@pytest.fixture
def new_york(server: Server) -> Iterator[psycopg.Connection[Any]]:
    """A connection of a session in New York, to a table of moments."""
    with server.connect() as connection:
        connection.execute("CREATE TABLE moments (id int PRIMARY KEY, at timestamptz)")
        connection.execute(
            "INSERT INTO moments VALUES (1, '2013-03-10 04:30+00'), (2, '2013-03-10 07:30+00')"
        )
        connection.execute("SET TIME ZONE 'America/New_York'")
        yield connection
        connection.rollback()
        connection.execute("DROP TABLE moments CASCADE")


def rows(connection: psycopg.Connection[Any], query: str) -> list[Any]:
    return connection.execute(query.encode()).fetchall()


def test_views_are_in_the_readers_zone_and_what_is_maintained_in_utc(
    server: Server, new_york: psycopg.Connection[Any]
) -> None:
    query = f"SELECT id, {DEFINED} FROM moments"
    new_york.execute(f"CREATE VIEW plain AS {query}".encode())
    new_york.execute(f"CREATE VIEW indexed AS {query}".encode())
    new_york.execute("CREATE INDEX ON indexed (id)")
    new_york.execute(f"CREATE MATERIALIZED VIEW kept AS {query}".encode())
    new_york.execute("CREATE MATERIALIZED VIEW kept_over_it AS SELECT * FROM plain")
    new_york.execute(f"CREATE TEMP VIEW mine AS {query}".encode())
    midnight = datetime(2013, 3, 10, tzinfo=UTC)  # also that of the constant, whoever reads it
    in_utc = [(id, date(2013, 3, 10), midnight, midnight) for id in (1, 2)]
    local = [
        (1, date(2013, 3, 9), datetime(2013, 3, 9, 5, tzinfo=UTC), midnight),
        (2, date(2013, 3, 10), datetime(2013, 3, 10, 5, tzinfo=UTC), midnight),
    ]
    for view in ("plain", "indexed", "mine"):
        assert sorted(rows(new_york, f"SELECT * FROM {view}")) == local, view
    with server.connect() as other:
        for view in ("plain", "indexed"):
            assert sorted(rows(other, f"SELECT * FROM {view}")) == in_utc, view
        for view in ("kept", "kept_over_it"):
            for connection in (new_york, other):
                assert sorted(rows(connection, f"SELECT * FROM {view}")) == in_utc, view
    # What a session makes of a view's moments is its own again.
    assert rows(new_york, "SELECT DISTINCT start::date FROM kept") == [(date(2013, 3, 9),)]


def test_defaults_and_checks_are_in_utc(new_york: psycopg.Connection[Any]) -> None:
    new_york.execute(
        "CREATE TABLE checked (at timestamptz DEFAULT '2013-03-10', day date CHECK (day = at::date))"
    )
    new_york.execute("INSERT INTO checked VALUES (DEFAULT, '2013-03-10')")
    new_york.execute("INSERT INTO checked VALUES ('2013-03-10 23:00', '2013-03-11')")
    with pytest.raises(psycopg.errors.CheckViolation, match="checked_check"):
        new_york.execute("INSERT INTO checked VALUES ('2013-03-10 23:00', '2013-03-10')")
    found = rows(new_york, "SELECT at::text FROM checked ORDER BY at")
    assert found == [("2013-03-09 19:00:00-05",), ("2013-03-10 23:00:00-04",)]
    new_york.execute("DROP TABLE checked")


def test_a_table_made_of_a_query_has_what_the_session_asked(
    new_york: psycopg.Connection[Any],
) -> None:
    new_york.execute("CREATE TABLE made AS SELECT at::date AS day FROM moments")
    assert sorted(rows(new_york, "SELECT day FROM made")) == [
        (date(2013, 3, 9),),
        (date(2013, 3, 10),),
    ]
    new_york.execute("DROP TABLE made")


@pytest.mark.parametrize("binary", [False, True])
def test_parameters_and_results(new_york: psycopg.Connection[Any], binary: bool) -> None:
    at = datetime(2013, 3, 10, 7, 30, tzinfo=UTC)
    with new_york.cursor(binary=binary) as cursor:
        found = cursor.execute(
            "SELECT id, at, at::date, at::timestamp, at::text, %b::timestamptz::text FROM moments WHERE at = %t",
            (at, "2013-03-10 03:30"),
        ).fetchall()
    shown = "2013-03-10 03:30:00-04"
    assert found == [(2, at, date(2013, 3, 10), datetime(2013, 3, 10, 3, 30), shown, shown)]
    assert str(found[0][1]) == "2013-03-10 03:30:00-04:00"


@pytest.mark.parametrize("format", ["text", "csv", "binary"])
def test_copy(server: Server, new_york: psycopg.Connection[Any], format: str) -> None:
    with new_york.cursor().copy(f"COPY moments TO STDOUT (FORMAT {format})".encode()) as copy:
        data = b"".join(bytes(piece) for piece in copy)
    if format != "binary":
        assert sorted(data.decode().replace(",", "\t").splitlines()) == [
            "1\t2013-03-09 23:30:00-05",
            "2\t2013-03-10 03:30:00-04",
        ]
        data = data.replace(b"-05", b"").replace(b"-04", b"")
    new_york.execute("CREATE TABLE copied (id int, at timestamptz)")
    with new_york.cursor().copy(f"COPY copied FROM STDIN (FORMAT {format})".encode()) as copy:
        copy.write(data)
    assert sorted(rows(new_york, "SELECT * FROM copied")) == sorted(
        rows(new_york, "SELECT * FROM moments")
    )
    with new_york.cursor().copy("COPY (SELECT id, at::date FROM copied) TO STDOUT") as copy:
        assert sorted(b"".join(bytes(piece) for piece in copy).decode().splitlines()) == [
            "1\t2013-03-09",
            "2\t2013-03-10",
        ]
    new_york.execute("DROP TABLE copied")


def test_subscribe(new_york: psycopg.Connection[Any]) -> None:
    new_york.execute("BEGIN")
    new_york.execute("DECLARE c CURSOR FOR SUBSCRIBE (SELECT at::date, at::text FROM moments)")
    found = rows(new_york, "FETCH 2 c")
    assert sorted(row[-2:] for row in found) == [
        (date(2013, 3, 9), "2013-03-09 23:30:00-05"),
        (date(2013, 3, 10), "2013-03-10 03:30:00-04"),
    ]
