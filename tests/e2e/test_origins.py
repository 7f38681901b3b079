"""Which table and column a result's column is, tried on Foreshore and on PostgreSQL alike."""

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest


@pytest.fixture(scope="module")
def session(url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t (a int PRIMARY KEY, b varchar(20), c numeric(12, 2))")
        connection.execute("CREATE VIEW v AS SELECT b, a AS d, a + 1 AS e FROM t")
        yield connection
        connection.rollback()


@pytest.mark.parametrize(
    ("statement", "origins"),
    [
        ("SELECT b AS x, a, a + 1, count(*) OVER (), c::text FROM t", "t.2 t.1 - - -"),
        ("SELECT * FROM t ORDER BY c LIMIT 1", "t.1 t.2 t.3"),
        ("SELECT * FROM v", "v.1 v.2 v.3"),
        ("SELECT x.z, u.b, x.y FROM t u LEFT JOIN (SELECT a AS z, c y FROM t) x ON a = z",
         "t.1 t.2 t.3"),
        ("SELECT * FROM t JOIN v ON a = d", "t.1 t.2 t.3 v.1 v.2 v.3"),
        ("SELECT * FROM t JOIN t AS u USING (a, b)", "t.1 t.2 t.3 t.3"),
        ("SELECT a, u.a FROM t FULL JOIN t AS u USING (a)", "- t.1"),
        ("SELECT j.* FROM (t CROSS JOIN v) AS j (f, g)", "t.1 t.2 t.3 v.1 v.2 v.3"),
        ("SELECT c, max(a) FROM t GROUP BY c HAVING count(*) > 1", "t.3 -"),
        ("SELECT DISTINCT b FROM t ORDER BY b", "t.2"),
        ("WITH w (k) AS (SELECT a FROM t) SELECT * FROM w", "t.1"),
        ("SELECT a FROM t UNION SELECT d FROM v", "-"),
        ("INSERT INTO t VALUES (1) RETURNING b, a, a * 2", "t.2 t.1 -"),
        ("UPDATE t SET b = v.b FROM v WHERE a = d RETURNING *", "t.1 t.2 t.3 v.1 v.2 v.3"),
        ("DELETE FROM t AS u WHERE a = 5 RETURNING u.*", "t.1 t.2 t.3"),
        ("VALUES (1)", "-"),
    ],
)  # fmt: skip
def test_result_names_the_columns_of_relations(
    session: psycopg.Connection[Any], statement: str, origins: str
) -> None:
    oids = dict(
        session.execute("SELECT oid::int, relname FROM pg_class WHERE relname IN ('t', 'v')")
        .fetchall()
    )  # fmt: skip
    result = session.execute(statement.encode()).pgresult
    assert result is not None
    found = [
        f"{oids[result.ftable(i)]}.{result.ftablecol(i)}" if result.ftable(i) else "-"
        for i in range(result.nfields)
    ]
    assert found == origins.split()
