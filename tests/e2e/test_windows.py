"""Window functions as a driver uses them: prepared, maintained while rows change, and subscribed to."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.harness import Server

CLUSTERS = ("quickstart", "windows_on_duckdb")
RANKED = """
    SELECT name, team, rank() OVER w AS place, lag(name) OVER w AS ahead,
        sum(points) OVER (w ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total
    FROM windows_e2e.players WINDOW w AS (PARTITION BY team ORDER BY points DESC, name)
"""


@pytest.fixture
def connection(server: Server) -> Iterator[psycopg.Connection]:
    """Yield a connection in a schema with players."""
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute("DROP SCHEMA IF EXISTS windows_e2e CASCADE")
        connection.execute("CREATE SCHEMA windows_e2e")
        connection.execute("CREATE TABLE windows_e2e.players (name text, team text, points int)")
        connection.execute(
            "INSERT INTO windows_e2e.players VALUES"
            " ('ann', 'red', 7), ('bob', 'red', 9), ('cat', 'blue', 4), ('dan', 'red', 7)"
        )
        yield connection
        connection.execute("DROP SCHEMA windows_e2e CASCADE")
        connection.execute("DROP CLUSTER IF EXISTS windows_on_duckdb CASCADE")


def create_view(connection: psycopg.Connection, name: str, cluster: str, query: str) -> None:
    """Create a materialized view in a cluster, which is created if it is not there."""
    if cluster != "quickstart":
        connection.execute(f"CREATE CLUSTER {cluster} SIZE 'duckdb'")
    connection.execute(
        f"CREATE MATERIALIZED VIEW windows_e2e.{name} IN CLUSTER {cluster} AS {query}"
    )


def test_offsets_and_arguments_may_be_parameters(connection: psycopg.Connection) -> None:
    query = (
        "SELECT name, sum(points) OVER (ORDER BY name ROWS %s PRECEDING), ntile(%s) OVER (ORDER BY"
        " name), lag(name, %s, 'none') OVER (ORDER BY name) FROM windows_e2e.players ORDER BY name"
    )
    for _ in range(2):
        rows = connection.execute(query, (1, 2, 1), prepare=True).fetchall()
        assert rows == [
            ("ann", 7, 1, "none"), ("bob", 16, 1, "ann"), ("cat", 13, 2, "bob"), ("dan", 11, 2, "cat"),
        ]  # fmt: skip
    with pytest.raises(psycopg.errors.InvalidPrecedingOrFollowingSize) as raised:
        connection.execute(query, (-1, 2, 1), prepare=True)
    assert raised.value.diag.message_primary == "frame starting offset must not be negative"
    with pytest.raises(psycopg.errors.InvalidArgumentForNtileFunction):
        connection.execute(query, (1, 0, 1), prepare=True)


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_a_view_follows_its_rows(connection: psycopg.Connection, cluster: str) -> None:
    create_view(connection, "ranked", cluster, RANKED)
    for change in (
        "SELECT 1",
        "INSERT INTO windows_e2e.players VALUES ('eve', 'blue', 8), ('fay', 'red', 8)",
        "UPDATE windows_e2e.players SET points = points + 1 WHERE name = 'dan'",
        "DELETE FROM windows_e2e.players WHERE team = 'red' AND points = 9",
        "UPDATE windows_e2e.players SET team = 'blue'",
    ):
        connection.execute(change)
        kept = connection.execute("SELECT * FROM windows_e2e.ranked ORDER BY 2, 3, 1").fetchall()
        assert kept == connection.execute(f"{RANKED} ORDER BY 2, 3, 1").fetchall()


@pytest.mark.parametrize("cluster", CLUSTERS)
def test_an_error_within_a_window_goes_with_its_row(
    connection: psycopg.Connection, cluster: str
) -> None:
    query = "SELECT name, sum(100 / points) OVER (PARTITION BY team) AS share"
    create_view(connection, "shares", cluster, f"{query} FROM windows_e2e.players")
    connection.execute("INSERT INTO windows_e2e.players VALUES ('gus', 'red', 0)")
    with pytest.raises(psycopg.errors.DivisionByZero):
        connection.execute("SELECT * FROM windows_e2e.shares")
    connection.execute("DELETE FROM windows_e2e.players WHERE points = 0")
    rows = connection.execute("SELECT DISTINCT share FROM windows_e2e.shares ORDER BY 1").fetchall()
    assert rows == [(25,), (39,)]
