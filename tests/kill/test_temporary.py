"""A server that is killed among temporary tables leaves nothing of them to the next."""

from __future__ import annotations

import threading
from pathlib import Path

import psycopg

from foreshore.storage.inspection import inspect
from tests.harness import Server, until

CLIENTS = 3


def test_nothing_temporary_outlives_a_kill(data_dir: Path) -> None:
    server = Server(data_dir).start()
    made: list[int] = []

    def work(client: int) -> None:
        try:
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
        except psycopg.OperationalError:
            pass  # the server was killed

    try:
        with server.connect() as connection:
            connection.execute("CREATE TABLE kept (client int)")
        for _ in range(2):
            before = len(made)
            threads = [threading.Thread(target=work, args=(i,)) for i in range(CLIENTS)]
            for thread in threads:
                thread.start()
            until(lambda: len(made) > before + 8, "temporary tables are made")  # noqa: B023
            server.kill()
            for thread in threads:
                thread.join()
            server.start()
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
        assert (found.unreferenced, found.damages) == ([], [])
        files = (data_dir / "blob").rglob("*.parquet")
        assert {path.parent.name for path in files} <= {"s1", "u1"}
    finally:
        server.stop()
