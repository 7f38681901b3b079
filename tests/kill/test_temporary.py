"""After a kill nothing is left of temporary tables."""

from __future__ import annotations

from pathlib import Path

from foreshore.storage.inspection import inspect
from tests.harness import Server
from tests.kill.amid import kill_amid

CLIENTS = 3


def test_temporary_objects_are_gone_after_kill(data_dir: Path) -> None:
    server = Server(data_dir).start()
    made: list[int] = []

    def work(client: int) -> None:
        while True:
            with server.connect() as connection:
                connection.execute("CREATE TEMP TABLE t (id serial PRIMARY KEY, a text)")
                connection.execute("CREATE VIEW v AS SELECT a FROM t")
                connection.execute("CREATE INDEX ON v (a)")
                connection.execute(
                    "INSERT INTO t (a) SELECT repeat('x', 100) FROM generate_series(1, 5000)"
                )
                connection.execute("INSERT INTO kept VALUES (%s)", (client,))
                made.append(client)
                if len(made) % 2:
                    connection.execute("DISCARD ALL")

    try:
        with server.connect() as connection:
            connection.execute("CREATE TABLE kept (client int)")
        for _ in range(2):
            before = len(made)
            kill_amid(server, CLIENTS, work, lambda: len(made) > before + 8)  # noqa: B023
            with server.connect() as connection:
                left = connection.execute(
                    "SELECT relname FROM pg_class WHERE relpersistence = 't'"
                    " UNION ALL SELECT nspname FROM pg_namespace WHERE nspname LIKE 'pg_temp%'"
                    " UNION ALL SELECT name FROM mz_catalog.mz_objects WHERE name IN ('t', 'v')"
                ).fetchall()
                assert left == []
                row = connection.execute("SELECT count(*) FROM kept").fetchone()
                assert row is not None
                assert row[0] >= len(made)
        server.stop()
        found = inspect(data_dir)
        assert [shard.id for shard in found.shards if shard.id.startswith("u")] == ["u1"]
        assert (found.unreferenced, found.corruptions) == ([], [])
        files = (data_dir / "blob").rglob("*.parquet")
        assert {path.parent.name for path in files} <= {"s1", "s2", "s3", "u1"}
    finally:
        server.stop()
