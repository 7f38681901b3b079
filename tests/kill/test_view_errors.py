"""The process ends when a view's errors are durable and its shard is not: the next start recovers."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import psycopg

from foreshore import failpoint
from tests.harness import Server, until

QUERY = "SELECT k, 10 / n AS x FROM t"
POINT = "view.errors"


def told(connection: psycopg.Connection[tuple[object, ...]], sql: str) -> object:
    """Return a query's rows, sorted, or its error."""
    try:
        return sorted(connection.execute(sql.encode()).fetchall())
    except psycopg.errors.DivisionByZero as error:
        return error.diag.message_primary


def test_view_equals_its_query_at_all_times(data_dir: Path) -> None:
    choose = random.Random(7)
    server = Server(data_dir).start()
    times: list[int] = []

    def write(url: str) -> None:
        try:
            with psycopg.connect(url, autocommit=True) as connection:
                while True:
                    n = choose.choice([0, 1, 2])
                    connection.execute("UPDATE t SET n = %s WHERE k = 1", (n,))
                    told(connection, "SELECT * FROM m")
                    row = connection.execute("SELECT mz_now()::text FROM t LIMIT 1").fetchone()
                    assert row is not None
                    times.append(int(row[0]))
        except psycopg.OperationalError:
            return  # the server has ended

    try:
        with server.connect() as connection:
            keeps = "WITH (RETAIN HISTORY FOR '1 hour')"
            connection.execute(f"CREATE TABLE t (k int, n int) {keeps}".encode())
            connection.execute("INSERT INTO t VALUES (1, 1), (2, 5)")
            connection.execute(f"CREATE MATERIALIZED VIEW m {keeps} AS {QUERY}".encode())
            told(connection, "SELECT * FROM m")
        for number in range(1, 5):
            server.kill()
            server.environment = {failpoint.VARIABLE: f"{POINT}:{number}"}
            server.spawn()
            assert server.process is not None
            while server.process.poll() is None:
                thread = threading.Thread(target=write, args=(server.url,))
                thread.start()
                thread.join(60)
                assert not thread.is_alive(), f"{POINT} was not reached"
            until(lambda: not server.processes(), "the replicas of the ended server end", 10)
            server.environment = {}
            server.start()
            with server.connect() as connection:
                found = []
                for time in times:
                    wanted = told(connection, f"{QUERY} AS OF {time}")
                    assert told(connection, f"SELECT * FROM m AS OF {time}") == wanted, time
                    found.append(wanted)
        assert "division by zero" in found
        assert any(isinstance(each, list) for each in found)
    finally:
        server.stop()
