"""Views of every kind of operator, on both engines at once, equal their definitions at each time.

Tables go through a seeded run of random changes. At some steps a time is taken, and every view AS
OF it, on the embedded engine and on Spark, is what its definition gives as a one-off query AS OF
the same time, run on both clusters: four answers that are one.
"""

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.harness import Server

STEPS = 30
CHECK_EVERY = 10
KEYS = (*range(5), None)
NAMES = ("p", "q", "", None)

DEFINITIONS = {
    "linear": "SELECT k, v * 2 AS w, n || '!' AS m FROM a WHERE v > 3",
    "grouped": "SELECT k, count(*) AS c, sum(v) AS s, min(n) AS lo, max(v) AS hi FROM a GROUP BY k",
    "whole": "SELECT count(*) AS c, sum(v) AS s, max(n) AS hi FROM a",
    "distinct_of": "SELECT DISTINCT n FROM a",
    "inner_join": "SELECT a.k, a.n, b.v FROM a JOIN b ON a.k = b.k",
    "full_join": "SELECT a.k AS ak, a.n, b.k AS bk, b.v FROM a FULL JOIN b ON a.k = b.k",
    "top": "SELECT k, v, n FROM a ORDER BY v DESC NULLS LAST, k, n LIMIT 4",
    "top_each": "SELECT DISTINCT ON (k) k, v, n FROM a ORDER BY k, v DESC NULLS LAST, n",
    "difference": "SELECT k FROM a EXCEPT ALL SELECT k FROM b",
    "correlated": "SELECT k, (SELECT max(v) FROM b WHERE b.k = a.k) AS m FROM a",
    "unnested": "SELECT k, g FROM a, LATERAL generate_series(1, a.v % 3) g",
    "over_a_view": "SELECT c, count(*) AS groups FROM grouped GROUP BY c",
}
CLUSTERS = ("embedded", "spark")
KEPT = "WITH (RETAIN HISTORY FOR '1 hour')"  # however slow the machine, a time stays readable


@pytest.fixture
def connection(spark_server: Server) -> Iterator[psycopg.Connection[Any]]:
    with spark_server.connect() as opened:
        opened.execute("CREATE CLUSTER embedded")
        opened.execute("CREATE SCHEMA views_equal")
        opened.execute("SET search_path = views_equal")
        opened.execute("CREATE TABLE a (k int, v int, n text) " + KEPT)
        opened.execute("CREATE TABLE b (k int, v int, n text) " + KEPT)
        yield opened
        opened.execute("SET search_path = public")
        opened.execute("DROP SCHEMA views_equal CASCADE")
        opened.execute("DROP CLUSTER embedded CASCADE")


def change(connection: psycopg.Connection[Any], source: random.Random) -> None:
    """Make one change of one table: rows in, changed or out."""
    table = source.choice("ab")
    key, other, value = source.choice(KEYS), source.choice(KEYS), source.randrange(10)
    match source.choice(("insert", "insert", "update", "delete")):
        case "insert":
            row = (key, value, source.choice(NAMES))
            rows = [*[row] * source.randint(1, 2), (other, source.choice((None, 9)), "r")]
            places = ", ".join(["(%s, %s, %s)"] * len(rows))
            arguments = [datum for row in rows for datum in row]
            connection.execute(f"INSERT INTO {table} VALUES {places}", arguments)
        case "update":
            connection.execute(
                f"UPDATE {table} SET k = %s, v = v + 1 WHERE k IS NOT DISTINCT FROM %s",
                (key, other),
            )
        case _:
            connection.execute(f"DELETE FROM {table} WHERE k = %s AND v < %s", (key, value))


def rows(connection: psycopg.Connection[Any], query: str, time: int) -> Counter[Any]:
    """Return the rows of `query` as of a time, with how often each is there."""
    return Counter(connection.execute(f"{query} AS OF {time}".encode()).fetchall())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_views_equal_their_definitions_on_both_engines(
    connection: psycopg.Connection[Any],
) -> None:
    source = random.Random(20131121)
    for cluster in CLUSTERS:
        connection.execute(f"SET cluster = {cluster}".encode())
        for name, definition in DEFINITIONS.items():
            based = definition.replace("FROM grouped", f"FROM grouped_{cluster}")
            view = f"CREATE MATERIALIZED VIEW {name}_{cluster} {KEPT} AS {based}"
            connection.execute(view.encode())
    seen = set()
    for step in range(1, STEPS + 1):
        change(connection, source)
        if step % CHECK_EVERY:
            continue
        taken = connection.execute("SELECT mz_now()::text FROM a LIMIT 1").fetchone()
        assert taken is not None, "the run of changes empties the table"
        time = int(taken[0])
        for name, definition in DEFINITIONS.items():
            query = definition.replace(
                "FROM grouped", f"FROM ({DEFINITIONS['grouped']}) AS grouped"
            )
            answers = {}
            for cluster in CLUSTERS:
                connection.execute(f"SET cluster = {cluster}".encode())
                answers["once", cluster] = rows(connection, query, time)
            connection.execute("SET cluster = embedded")
            for cluster in CLUSTERS:
                answers["view", cluster] = rows(connection, f"SELECT * FROM {name}_{cluster}", time)
            expected = answers["once", "embedded"]
            seen.add((name, frozenset(expected.items())))
            for which, answer in answers.items():
                assert answer == expected, f"{name} at step {step}, {which}"
    assert len(seen) > 2 * len(DEFINITIONS), "the answers hardly changed"
