"""A server that is killed right after DROP drops upstream, after its next start, what was left."""

from pathlib import Path

import psycopg
import pytest

from tests.adapter.sources.publisher import options_of
from tests.harness import Server, initialised_postgres, running_postgres, until

SOURCE = "CREATE SOURCE s FROM POSTGRES CONNECTION pg (PUBLICATION 'p') FOR ALL TABLES"
SINK = "CREATE SINK k FROM t INTO POSTGRES CONNECTION pg (TABLE 'public.copies') KEY (id)"
LEFT = "SELECT count(*) FROM pg_replication_slots", "SELECT count(*) FROM foreshore.frontiers"


@pytest.mark.full
@pytest.mark.parametrize("clean", [False, True])
def test_end_right_after_drop_leaves_nothing_upstream(data_dir: Path, clean: bool) -> None:
    settings = ("wal_level=logical",)
    with initialised_postgres() as folder, running_postgres(folder, settings=settings) as url:
        server = Server(data_dir).start()
        with psycopg.connect(url, autocommit=True) as upstream:
            upstream.execute("CREATE TABLE a (id int PRIMARY KEY)")
            upstream.execute("ALTER TABLE a REPLICA IDENTITY FULL")
            upstream.execute("CREATE PUBLICATION p FOR TABLE a")

            def left() -> list[int]:
                return [row[0] for each in LEFT for row in upstream.execute(each.encode())]

            for _ in range(1 if clean else 3):
                with server.connect() as connection:
                    connection.execute(f"CREATE CONNECTION pg TO POSTGRES ({options_of(url)})")
                    connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
                    connection.execute("INSERT INTO t VALUES (1)")
                    connection.execute(SOURCE)
                    connection.execute(SINK)
                    until(lambda: upstream.execute(LEFT[0].encode()).fetchall() == [(1,)], "a slot")
                    connection.execute("WAIT FOR SINKS k")
                    assert left() == [1, 1]
                    connection.execute("DROP CONNECTION pg CASCADE")
                    connection.execute("DROP TABLE t")
                server.stop() if clean else server.kill()
                server.start()
                until(lambda: left() == [0, 0], f"nothing is left: {left()}, {listed(server)}")
        server.stop()


def listed(server: Server) -> object:
    with server.connect() as connection:
        return connection.execute("TABLE mz_internal.mz_leftovers").fetchall()
