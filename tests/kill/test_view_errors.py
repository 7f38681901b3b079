"""The process ends when a view's errors are durable and its shard is not: the next start recovers."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import psycopg
import pytest

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


@pytest.mark.parametrize("numbers", [(1, 3), pytest.param((2, 4, 5), marks=pytest.mark.slow)])
def test_view_equals_its_query_at_all_times(data_dir: Path, numbers: tuple[int, ...]) -> None:
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
        for number in numbers:
            server.kill()
            server.environment = {failpoint.VARIABLE: f"{POINT}:{number}"}
            server.spawn()
            assert server.process is not None
            while server.process.poll() is None:
                thread = threading.Thread(target=write, args=(server.url,))
                thread.start()
                thread.join(60)
                assert not thread.is_alive(), f"{POINT} was not reached"
            until(lambda: not server.processes(), "the replicas of the ended server end")
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


def test_refresh_that_lacked_rows_fails_reads_after_kills(data_dir: Path) -> None:
    server = Server(data_dir).start()
    scheduled = {"lagging": "TARGET LAG = '1000 days'", "once": "REFRESH AT CREATION"}

    def read() -> set[str]:
        with server.connect() as connection:
            return {str(told(connection, f"SELECT n FROM {name}")) for name in scheduled}

    try:
        with server.connect() as connection:
            connection.execute("CREATE TABLE t (k int, n int)")
            connection.execute("INSERT INTO t VALUES (1, 0), (2, 5)")
            connection.execute(f"CREATE MATERIALIZED VIEW m AS {QUERY}".encode())
            for name, option in scheduled.items():
                view = f"CREATE MATERIALIZED VIEW {name} WITH ({option}) AS"
                connection.execute(f"{view} SELECT count(*) AS n FROM m".encode())
        assert read() == {"division by zero"}
        with server.connect() as connection:
            connection.execute("UPDATE t SET n = 1 WHERE k = 1")
        for _ in range(2):
            server.kill()
            server.start()
            assert read() == {"division by zero"}
        with server.connect() as connection:
            for name in scheduled:
                connection.execute(f"REFRESH MATERIALIZED VIEW {name}".encode())
            connection.execute("UPDATE t SET n = 0 WHERE k = 1")
        assert read() == {"[(2,)]"}
        server.kill()
        server.start()
        assert read() == {"[(2,)]"}
    finally:
        server.stop()
