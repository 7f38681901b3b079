"""Views on Spark leave rows with errors out, and count them, as those of other clusters do."""

import psycopg
import pytest

from tests.harness import Server

pytestmark = pytest.mark.full

VIEWS = {
    "rows": "SELECT id, 10 / a::int AS x FROM texts",
    "sums": "SELECT id % 2 AS half, sum(10 / a::int) AS s FROM texts GROUP BY id % 2",
}
CHANGES = (
    "INSERT INTO texts VALUES (1, '5'), (2, '0'), (3, 'x'), (4, '2')",
    "UPDATE texts SET a = '10' WHERE id = 2",
    "INSERT INTO texts VALUES (5, '0'), (6, '')",
    "DELETE FROM texts WHERE id IN (3, 4)",
)


def test_views_that_skip_errors_are_equal_on_both_engines(spark_server: Server) -> None:
    with spark_server.connect() as db:
        db.execute("CREATE TABLE texts (id int, a text)")
        db.execute(CHANGES[0])
        for name, query in VIEWS.items():
            for prefix, cluster in (("s", "spark"), ("d", "quickstart")):
                view = f"{prefix}_{name} IN CLUSTER {cluster}"
                db.execute(f"CREATE MATERIALIZED VIEW {view} WITH (ON ERROR = SKIP) AS {query}")
        _check(db)
        for sql in CHANGES[1:]:
            db.execute(sql)
            _check(db)
        assert _errors(db, "s_rows") == [("22012", 1), ("22P02", 1)]
        db.execute("ALTER MATERIALIZED VIEW s_rows RESET (ON ERROR)")
        with pytest.raises(psycopg.errors.DivisionByZero) as failed:
            db.execute("SELECT * FROM s_rows")
        assert failed.value.diag.message_detail is not None
        assert failed.value.diag.message_detail.endswith("materialized view public.s_rows.")
        db.execute("DELETE FROM texts WHERE id IN (5, 6)")
        assert db.execute("SELECT * FROM s_rows ORDER BY id").fetchall() == [(1, 2), (2, 1)]


def _check(db: psycopg.Connection) -> None:
    """Assert that the views of both clusters have the same rows and errors."""
    for name in VIEWS:
        rows = db.execute(f"SELECT * FROM d_{name}").fetchall()
        assert rows
        assert sorted(db.execute(f"SELECT * FROM s_{name}").fetchall()) == sorted(rows)
        assert db.execute(f"VERIFY MATERIALIZED VIEW s_{name} ON duckdb").fetchall() == []
        assert _errors(db, f"s_{name}") == _errors(db, f"d_{name}")


def _errors(db: psycopg.Connection, view: str) -> list[tuple[str, int]]:
    found = db.execute(
        "SELECT sqlstate, sum(rows)::int FROM mz_internal.mz_view_errors e"
        " JOIN mz_objects o ON o.id = e.object_id WHERE o.name = %s AND e.skipped"
        " GROUP BY sqlstate ORDER BY sqlstate",
        (view,),
    )
    return found.fetchall()
